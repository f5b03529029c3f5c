//! Tests of final messages with and without claims.

use proptest::prelude::*;

use super::*;

#[test]
fn plain_claims_are_accepted() {
    for message in [
        "All tests pass now.",
        "I fixed the parser.\n\nAll 42 tests pass and the task is complete.",
        "✅ The implementation is complete. All checks pass.",
        "I've successfully completed the task. No tests fail any more.",
        "## Summary\n\n- Changed `parse.py`\n- All tests and lints pass\n\nEverything passes.\n\nNext steps: none",
        "Task completed. 0 errors remain.",
    ] {
        assert!(report_of(message).completion_signal, "{message}");
    }
}

#[test]
fn hedged_retracted_and_quoted_claims_are_ignored() {
    for message in [
        "",
        "All tests should pass now.",
        "All tests pass except test_empty.",
        "Almost everything works.",
        "If the fixture is added, all tests pass.",
        "The task is not complete.",
        "Once the network is back, everything works.",
        "All tests pass. However, I did not run the integration tests.",
        "The task is complete. mypy still fails with one error.",
        "All unit tests pass.\n\nNext steps:\n- write the migration\n",
        "All tests pass.\n\nBlockers:\n- no access to the database\n",
        "> All tests pass.",
        "```\nAll tests pass.\n```\nI looked at the code.",
        "Is the task complete?",
        "I will make sure that all tests pass.",
        "Completion: 80 %. The task is done.",
        "The user said that all tests pass.",
        "I have finished the first part.",
        "The task is complete. I could not run the tests.",
    ] {
        assert!(!report_of(message).completion_signal, "{message}: {:?}", report_of(message));
    }
}

#[test]
fn blockers_steps_and_percentages_are_extracted() {
    let report = report_of(
        "I rewrote the tokenizer; **half of the cases** work.\n\n\
         The tests cannot be run: `psql` is not installed. I am blocked by the missing database.\n\n\
         ### Remaining work\n\n1. Port the writer\n2. Mend `test_nested`\n\nOverall progress: 60 %\n",
    );
    assert_eq!(report.summary, "I rewrote the tokenizer; half of the cases work.");
    assert_eq!(
        report.blockers,
        ["The tests cannot be run: `psql` is not installed.", "I am blocked by the missing database."]
    );
    assert_eq!(report.next_steps, ["Port the writer", "Mend `test_nested`"]);
    assert_eq!(report.completion_percentage, Some(60.0));
    assert_eq!(report_of("Coverage is at 80 %, branch coverage 70 %.").completion_percentage, None);
    assert_eq!(report_of("The task is 40% done.\nThe task is 70% done.").completion_percentage, None);
    assert_eq!(report_of("Blockers:\n- none\n").blockers, [""; 0]);
    let report = report_of("I ran out of turns. Remaining:\n- port the writer\n- run the tests\n");
    assert_eq!(report.next_steps, ["port the writer", "run the tests"]);
    assert_eq!(report_of("I could not read src/db.rs at all.").blockers, ["I could not read src/db.rs at all."]);
    assert_eq!(report_of("Unable to go on: there is no database.").blockers.len(), 1);
    assert_eq!(
        report_of("Summary of changes:\n\n- a guard\n\nThe guard is in `parse`.").summary,
        "The guard is in `parse`."
    );
    assert_eq!(report_of("Next: rename the module.").next_steps, ["rename the module."]);
}

proptest! {
    #[test]
    fn report_of_accepts_any_message(message in "(?s).{0,400}") {
        let report = report_of(&message);
        prop_assert!(report.blockers.len() <= 5 && report.next_steps.len() <= 5);
        prop_assert!(report.summary.chars().count() <= 301);
    }
}
