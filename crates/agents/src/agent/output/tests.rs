//! Tests of the parts that readers share.

use serde_json::json;

use super::*;
use crate::agent::presets::find;
use crate::agent::script::text_reader;
use crate::agent::transcript::played;
use crate::domain::model::ids::Timestamp;
use crate::domain::providers::limit::{LimitKind, classify};

#[test]
fn tool_call_is_summarized_by_command_or_path() {
    for (input, expected) in [
        (json!({"command": "make", "description": "x"}), "make"),
        (json!({"cmd": ["git", "status"]}), "git status"),
        (json!({"content": "long", "file_path": "a.rs"}), "a.rs"),
        (json!({"n": 1}), "{\"n\":1}"),
        (json!("plain"), "plain"),
        (json!(null), ""),
    ] {
        assert_eq!(summary(&input), expected);
    }
    assert_eq!(summary(&json!("ä".repeat(900))).chars().count(), 501);
}

#[test]
fn last_output_of_failed_text_program_is_searched_for_limits() {
    let text = "I looked at the tests.\n\nError: Rate limit is exceeded. Please try\nagain in 90s.\n";
    for reader in [text_reader, find("claude").expect("a preset").reader] {
        let limit =
            |how: ProcessEnd, stdout: &str| classify(&played(reader(), stdout, "", how).0.signals, Timestamp(1_000));
        let found = limit(ProcessEnd::Exited(1), text).expect("a limit");
        assert_eq!((found.kind, found.until), (LimitKind::Rate, Some(Timestamp(91_000))), "{found:?}");
        // Not the output of a run that succeeded or was stopped, and not a long text.
        for how in [ProcessEnd::Exited(0), ProcessEnd::Signalled(9), ProcessEnd::IdleLimit] {
            assert_eq!(limit(how, text), None);
        }
        let prose =
            "The page shows a rate limit of 429 answers; whoever has to try again in 90s is told so.\n1 test failed";
        assert_eq!(limit(ProcessEnd::Exited(1), prose), None);
    }
}

#[test]
fn error_over_several_lines_of_standard_error_is_one_message() {
    let wrapped = "✗ Sorry, you've hit a rate limit that restricts the number of requests within a specific time \n  \
                   period. Please try again in 58 hours.\n";
    let signals = played(text_reader(), "", wrapped, ProcessEnd::Exited(1)).0.signals;
    let limit = classify(&signals, Timestamp(1_000)).expect("a limit");
    assert_eq!(limit.until, Some(Timestamp(1_000 + 58 * 3_600_000)), "{limit:?}");
    let advice = "See the documentation of the command.\n".repeat(40);
    let early = format!("ERROR: You've hit your usage limit. Try again in 2 hours.\n{advice}");
    let signals = played(text_reader(), "", &early, ProcessEnd::Exited(1)).0.signals;
    assert_eq!(classify(&signals, Timestamp(1_000)).map(|limit| limit.kind), Some(LimitKind::Quota));
}

#[test]
fn report_of_work_is_not_a_refusal() {
    let kind = |stdout: &str| {
        let signals = played(text_reader(), stdout, "", ProcessEnd::Exited(1)).0.signals;
        classify(&signals, Timestamp(1_000)).map(|limit| limit.kind)
    };
    for work in [
        "I added the texts:\n- Credit balance is too low\n- Prompt is too long\n\nOne test fails.\n",
        "The page shows:\n\n> You've hit your usage limit. Try again at 3pm.\n\nOne test fails.\n",
        "* The message is\n  Credit balance is too low\n\nOne test fails.\n",
        "The page shows:\n\n```\nCredit balance is too low\n```\n\nOne test fails.\n",
        "The page shows:\n\n    Credit balance is too low\n\nOne test fails.\n",
    ] {
        assert_eq!(kind(work), None, "{work}");
    }
    for refusal in [
        "I looked at the tests.\n\nCredit balance is too low\n",
        "I looked at the tests.\n\n  Credit balance is too low\n",
        "```\nlet text = 1;\n```\nCredit balance is too low\n",
        "```\nlet text = 1;\nCredit balance is too low\n",
    ] {
        assert_eq!(kind(refusal), Some(LimitKind::Billing), "{refusal}");
    }
}

#[test]
fn error_at_the_end_of_an_output_is_a_failure_with_any_exit_code() {
    let advice = "\n\nPlease retry if you think this is a transient or recoverable error.\n";
    let status = |text: &str, code| played(text_reader(), text, "", ProcessEnd::Exited(code)).0.status;
    for code in [0, 1] {
        let limited = format!("I look.\nRan into this error: Rate limit exceeded: Max retries exceeded.{advice}");
        let reason = "Rate limit exceeded: Max retries exceeded.".to_owned();
        assert_eq!(status(&limited, code), AgentStatus::Limited { until_ms: None, reason });
        let other = format!("Ran into this error: the tool is missing.{advice}");
        assert_eq!(status(&other, code), AgentStatus::Failed { reason: "the tool is missing.".into() });
    }
    let work = "The log said:\nRan into this error: Rate limit exceeded.\n\nI removed the loop.\n";
    assert_eq!(status(work, 0), AgentStatus::Finished);
}

#[test]
fn answer_about_logins_is_not_a_refusal() {
    let answer = "I changed three files.\n\n- The page asks users to sign in.\n- `--json` is no unknown option now.\n";
    let status = |stdout: &str, stderr: &str, how| {
        played((find("claude").expect("a preset").reader)(), stdout, stderr, how).0.status
    };
    assert_eq!(status(answer, "", ProcessEnd::Exited(0)), AgentStatus::Finished);
    assert_eq!(status(answer, "the plugin x has been deprecated", ProcessEnd::Exited(0)), AgentStatus::Finished);
    let brief = "Welcome!\n\nPlease sign in to continue.\n";
    for (stdout, stderr, how) in
        [(brief, "", ProcessEnd::Exited(0)), ("", answer, ProcessEnd::Exited(0)), (answer, "", ProcessEnd::Exited(1))]
    {
        let status = status(stdout, stderr, how);
        assert!(matches!(status, AgentStatus::Unavailable { .. }), "{stdout} {stderr}: {status:?}");
    }
}
