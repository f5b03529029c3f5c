//! Flaky checks: at the base, without a change, and in fresh checkouts.

use std::collections::BTreeSet;

use super::*;
use crate::domain::model::task::{Check, TestCounts};

fn flaky(holds: bool) -> CheckReport {
    CheckReport { outcomes: vec![CheckOutcome { flaky: true, ..named(holds).outcomes.remove(0) }] }
}

/// Returns a report for the loop's check.
fn named(holds: bool) -> CheckReport {
    CheckReport { outcomes: vec![CheckOutcome { name: "make test".into(), ..report(holds).outcomes.remove(0) }] }
}

impl LoopRun {
    fn asks_for_a_steady_check(&self) {
        self.is(LoopState::NeedsCriteria, LoopStep::Idle);
        assert!(self.current.why.contains("flaky"), "{}", self.current.why);
        let named = self.effects.iter().any(|effect| match effect {
            Effect::Forge(ForgeEffect::Comment { view, .. }) => match &**view {
                View::NeedsCriteria(view) => view.flaky == ["make test"],
                _ => false,
            },
            _ => false,
        });
        assert!(named, "{:?}", self.effects);
        assert_eq!(replay(self.log.clone()).as_ref(), Some(&self.current));
    }

    fn without_change(&mut self) -> &mut Self {
        self.agent(AgentEnd::Finished).committed(|change| change.commit = None)
    }

    fn reports(&mut self, report: CheckReport) -> &mut Self {
        self.tell(LoopInput::Outcome { ticket: self.current.run.ticket, outcome: WorkOutcome::Checked { report } })
    }
}

#[test]
fn flaky_check_at_base_does_not_start_or_finish_loop() {
    let start = || {
        let mut run = LoopRun::new();
        run.tell(TimerInput::SlotGranted).prepared(|_| {});
        run
    };
    start().reports(flaky(false)).asks_for_a_steady_check();
    let mut run = start();
    run.reports(flaky(true)).asks_for_a_steady_check();
    // It is measured anew with each answer.
    let options = RunOptions { checks: vec!["make test".into()], ..RunOptions::default() };
    run.command(LoopCommand::Run(command::Run { options, guidance: String::new() }))
        .is(LoopState::Queued, LoopStep::Idle);
    run.tell(TimerInput::SlotGranted).prepared(|_| {}).is(LoopState::Running, LoopStep::Baseline);
    run.checked(false).is(LoopState::Running, LoopStep::Agent);
}

#[test]
fn check_that_passes_without_any_change_does_not_complete_the_loop() {
    let mut run = LoopRun::new();
    run.working().without_change().is(LoopState::Running, LoopStep::Check);
    run.checked(true).asks_for_a_steady_check();
    assert_eq!(run.current.branch.verified, None);
}

#[test]
fn commits_without_a_change_do_not_complete_the_loop() {
    let mut run = LoopRun::new();
    let empty = |change: &mut IterationChange| change.branch_stat = Some(DiffStat::default());
    run.working().agent(AgentEnd::Finished).committed(empty).pushed().checked(true).asks_for_a_steady_check();
}

#[test]
fn check_that_passes_without_a_change_is_not_progress() {
    let two = |first: bool| {
        let second = CheckOutcome { name: "lint".into(), ..report(false).outcomes.remove(0) };
        CheckReport { outcomes: vec![report(first).outcomes.remove(0), second] }
    };
    let mut run = LoopRun::new();
    run.tell(TimerInput::SlotGranted).prepared(|_| {}).reports(two(false)).without_change().reports(two(true));
    run.is(LoopState::Running, LoopStep::Agent);
    let last = run.current.iterations[0].clone();
    assert!(last.checks.outcomes[0].holds && last.checks.outcomes[0].flaky);
    assert_eq!(last.completion.get(), 0.0);
    // With a change, the same result is progress.
    run.agent(AgentEnd::Finished).committed(|_| {}).pushed().reports(two(true));
    assert_eq!(run.current.iterations[1].completion.get(), 0.5);
}

#[test]
fn people_are_asked_once_about_a_commit_with_differing_fresh_checkouts() {
    let mut run = LoopRun::new();
    run.working().iteration(true).is(LoopState::Running, LoopStep::Verify);
    run.checked(false).is(LoopState::Running, LoopStep::Agent);
    run.without_change().checked(true).is(LoopState::Running, LoopStep::Verify);
    run.checked(true).is(LoopState::Paused, LoopStep::Idle);
    assert!(run.escalates("flaky_check") && run.current.branch.verified.is_none(), "{}", run.current.why);
    assert!(run.current.iterations[1].checks.outcomes[0].flaky, "the report names it");
    assert_eq!(replay(run.log.clone()).as_ref(), Some(&run.current));
    // Who resumes it accepts the next result.
    run.command(resume()).tell(TimerInput::SlotGranted).prepared(|_| {}).is(LoopState::Running, LoopStep::Verify);
    run.checked(true).is(LoopState::Review, LoopStep::Idle);
    assert_eq!(run.current.branch.verified, run.current.branch.head);
}

#[test]
fn changed_commit_is_verified_again_after_a_failed_verification() {
    let mut run = LoopRun::new();
    run.working().iteration(true).reports(flaky(false)).is(LoopState::Running, LoopStep::Agent);
    let guidance = &run.current.iterations[1].guidance;
    assert!(guidance.iter().any(|fact| fact.text.contains("same result twice")), "{guidance:?}");
    run.iteration(true).checked(true).is(LoopState::Review, LoopStep::Idle);
    let names = |checks: Vec<Check>| checks.into_iter().map(|check| check.name).collect::<Vec<_>>();
    assert_eq!(names(run.current.checks_to_repeat(u64::MAX)), ["make test"], "what is known to be flaky runs twice");
}

#[test]
fn cheap_decisive_checks_run_twice() {
    let mut run = LoopRun::new();
    run.tell(TimerInput::SlotGranted).prepared(|_| {}).reports(named(false));
    assert_eq!(run.current.checks_to_repeat(60_000).len(), 1);
    let eighth = u64::try_from(run.current.limits.time_ms).unwrap_or_default() / 8;
    assert!(eighth > 60_000);
    assert_eq!(run.current.checks_to_repeat(eighth).len(), 1);
    assert_eq!(run.current.checks_to_repeat(eighth + 1).len(), 0);
    run.current.limits.time_ms = 1_000;
    assert_eq!(run.current.checks_to_repeat(60_000).len(), 1);
    assert_eq!(run.current.checks_to_repeat(60_001).len(), 0);
    let once = |again: bool| {
        let mut report = named(true);
        run.current.mark_run_once(&mut report, |_| again);
        report.outcomes[0].ran_once
    };
    assert_eq!((once(false), once(true)), (true, false), "the report says which check had one run");
    assert_eq!(run.current.checks_to_retry(&named(false)).len(), 1);
    assert_eq!(run.current.checks_to_retry(&named(true)).len(), 1, "passing before any change ends a loop, too");
    let slow = CheckOutcome { duration_ms: 30_001, ..named(false).outcomes.remove(0) };
    assert_eq!(run.current.checks_to_retry(&CheckReport { outcomes: vec![slow] }).len(), 0);
}

#[test]
fn repeated_runs_identify_flaky_checks() {
    let of = |report: &CheckReport| (report.outcomes[0].holds, report.outcomes[0].flaky);
    assert_eq!(of(&report(false).run_twice(report(true))), (true, true));
    assert_eq!(of(&report(false).run_twice(report(false))), (false, false));
    assert_eq!(of(&report(true).run_twice(report(false))), (false, true));
    assert_eq!(of(&report(true).repeated(report(true))), (true, false));
    let failed = report(true).repeated(report(false));
    assert_eq!(of(&failed), (false, true));
    assert!(failed.outcomes[0].why.starts_with("passed once and failed once on the same commit"));
}

#[test]
fn objection_to_exit_code_needs_an_earlier_recognized_report() {
    let why = "exit code 0, but a test run ended before its summary";
    let named = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    let objecting = CheckOutcome { objection: Some(why.into()), ..report(true).outcomes.remove(0) };
    let judged_of = |objectors: &[&str], baseline: CheckOutcome| {
        let mut run = LoopRun::new();
        run.tell(TimerInput::SlotGranted).prepared(|_| {});
        run.tell(LoopInput::Outcome {
            ticket: run.current.run.ticket,
            outcome: WorkOutcome::Checked { report: CheckReport { outcomes: vec![baseline] } },
        });
        let objecting = CheckOutcome { objectors: named(objectors), ..objecting.clone() };
        let mut report = CheckReport { outcomes: vec![objecting] };
        run.current.apply_objections(&mut report);
        report.outcomes.remove(0)
    };
    let judged = |baseline| judged_of(&[], baseline);
    let failed = report(false).outcomes.remove(0);
    let judged_alone = judged(failed.clone());
    assert!(judged_alone.holds && judged_alone.why.is_empty(), "the exit code decides");
    let refused = judged(CheckOutcome { understood: true, ..failed.clone() });
    assert_eq!((refused.holds, refused.contradicted, refused.why.as_str()), (false, true, why));
    let other = CheckOutcome { understood: true, command: "another command".into(), ..failed.clone() };
    assert!(judged(other).holds, "it says nothing about this command");
    let pytest = CheckOutcome { understood: true, runners: named(&["pytest"]), ..failed };
    assert!(judged_of(&["cargo test"], pytest.clone()).holds, "the check did not run this runner before");
    for objectors in [&["pytest", "cargo test"][..], &["cargo test", ""], &[]] {
        assert!(!judged_of(objectors, pytest.clone()).holds, "{objectors:?}");
    }
}

/// A check without tests that failed because of another command passes when that command passes.
#[test]
fn exit_code_decides_for_a_check_that_also_failed_without_tests() {
    let none = Some(TestCounts { passing: 0, failing: 0, skipped: 0 });
    let some = Some(TestCounts { passing: 1, failing: 0, skipped: 0 });
    let why = "exit code 0, but it ran no tests";
    let refused = CheckOutcome {
        contradicted: true,
        exit_code: Some(0),
        tests: none,
        why: why.into(),
        ..report(false).outcomes.remove(0)
    };
    let judged = |exit_code, tests| {
        let mut run = LoopRun::new();
        run.tell(TimerInput::SlotGranted).prepared(|_| {});
        let then = CheckOutcome { exit_code, tests, ..report(false).outcomes.remove(0) };
        run.tell(LoopInput::Outcome {
            ticket: run.current.run.ticket,
            outcome: WorkOutcome::Checked { report: CheckReport { outcomes: vec![then] } },
        });
        let mut report = CheckReport { outcomes: vec![refused.clone()] };
        run.current.apply_objections(&mut report);
        report.outcomes.remove(0)
    };
    let passed = judged(Some(2), none);
    assert!(passed.holds && !passed.contradicted && passed.why.is_empty(), "{passed:?}");
    for (exit_code, tests) in [(Some(0), none), (None, none), (Some(101), None), (Some(1), some)] {
        let outcome = judged(exit_code, tests);
        assert_eq!((outcome.holds, outcome.contradicted, outcome.why.as_str()), (false, true, why), "{exit_code:?}");
    }
}

/// A program that ends the process hides the report of its tests. Another line may be a report that was not understood.
#[test]
fn lost_report_of_tests_fails_a_check() {
    let tests = |passing| Some(TestCounts { passing, failing: 1, skipped: 0 });
    let output = "cc -o calc-test calc.c\n./calc-test\ncalc.c:3: failed after 12 ms\n1 passed, 1 failed\n";
    let then = CheckOutcome { understood: true, output: output.into(), ..report(false).outcomes.remove(0) };
    let judged = |tests, output: &str| {
        let mut run = LoopRun::new();
        run.tell(TimerInput::SlotGranted).prepared(|_| {});
        let baseline = CheckReport { outcomes: vec![CheckOutcome { tests, ..then.clone() }] };
        run.tell(LoopInput::Outcome {
            ticket: run.current.run.ticket,
            outcome: WorkOutcome::Checked { report: baseline },
        });
        let mut report = report(true);
        report.outcomes[0].output = output.into();
        run.current.apply_objections(&mut report);
        report.outcomes.remove(0)
    };
    for silent in [
        "",
        "cc -o calc-test calc.c\n./calc-test\n",
        "\ncalc.c:3: failed after 9 ms\n".replace('9', "34").as_str(),
        "\n  .F.\n",
    ] {
        let outcome = judged(tests(1), silent);
        assert_eq!((outcome.holds, outcome.contradicted), (false, true), "{silent}");
        assert_eq!(outcome.why, "exit code 0, but no report of tests; an earlier run of the same command reported 2");
    }
    assert!(judged(tests(1), "./calc-test\nall is well\n").holds, "a report that was not understood");
    assert!(judged(tests(1), "This run has ID `AB'.\n.....\n").holds, "a runner that reports dots if all tests pass");
    assert!(judged(tests(0), "").holds, "a runner that reports failures only");
    assert!(judged(None, "").holds);
}
