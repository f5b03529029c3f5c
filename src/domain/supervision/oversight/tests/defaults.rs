//! With the thresholds that are there without configuration, every signal, severity and level can be reached.

use super::*;
use crate::domain::model::record::CheckFact;
use crate::domain::supervision::control::Trend;

/// A loop under the defaults.
fn usual() -> Loop {
    Loop { settings: OversightSettings::default(), ..Loop::default() }
}

/// Asserts that one look at the whole trace finds the kind by the signal, this severe.
fn reached(mut it: Loop, kind: Kind, signal: &str, wanted: Severity, records: &[Record]) {
    let verdict = it.review(records);
    let found = verdict.detections.iter().find(|found| found.kind == kind);
    let found = found.unwrap_or_else(|| panic!("{kind} by {signal} is not found: {:?}", verdict.detections));
    assert!(found.evidence.iter().any(|evidence| evidence.signal == signal), "{signal}: {:?}", found.evidence);
    assert_eq!(found.severity, wanted, "{kind} by {signal}: {:?}", found.evidence);
}

fn same_error(_: usize, record: &mut Record) {
    record.error_signature = Some("error: no such table".to_owned());
}

fn alternating(at: usize, record: &mut Record) {
    record.tree = Some(["a", "b"][at % 2].to_owned());
}

#[test]
fn stuck() {
    use Severity::{Critical, High};
    reached(usual(), Kind::Stuck, "same_error", High, &flat(5, same_error));
    reached(usual(), Kind::Stuck, "same_error", Critical, &flat(10, same_error));
    reached(usual(), Kind::Stuck, "standstill", High, &flat(7, |_, _| {}));
    reached(
        usual(),
        Kind::Stuck,
        "no_progress",
        High,
        &trace(&[0.3, 0.301, 0.302, 0.303, 0.303, 0.303, 0.303, 0.303], |_, _| {}),
    );
    reached(
        usual(),
        Kind::Stuck,
        "same_reflection",
        High,
        &flat(4, |_, r| r.reflection = Some("The mock is wrong.".into())),
    );
    let alarmed =
        || Loop { settings: OversightSettings::default(), ..Loop::with_alarm("stuck_loop", Severity::Medium) };
    reached(alarmed(), Kind::Stuck, "alarm", High, &flat(7, same_error));
}

#[test]
fn oscillation() {
    use Severity::{Critical, High};
    reached(usual(), Kind::Oscillation, "undo_redo", High, &flat(5, alternating));
    reached(usual(), Kind::Oscillation, "undo_redo", Critical, &flat(8, alternating));
    let churn = flat(5, |at, r| r.files = vec![["src/a.rs", "src/b.rs"][at % 2].to_owned()]);
    reached(usual(), Kind::Oscillation, "undo_redo", High, &churn);
    let swings = trace(&[0.3, 0.5, 0.3, 0.5, 0.3, 0.5], |_, _| {});
    reached(usual(), Kind::Oscillation, "sign_changes", High, &swings);
    let control = ControlView { trend: Trend::Oscillating, ..ControlView::default() };
    reached(Loop { control, ..usual() }, Kind::Oscillation, "trend", High, &swings[..4]);
}

#[test]
fn deviation_no_change_and_failure() {
    use Severity::{High, Medium};
    let strange = |_: usize, r: &mut Record| r.objective_similarity = Some(0.1);
    reached(usual(), Kind::Deviation, "objective", Medium, &flat(3, strange));
    reached(usual(), Kind::Deviation, "objective", High, &flat(4, strange));
    let mut scoped = usual();
    scoped.facts.scope = vec!["src/login".to_owned()];
    let elsewhere = flat(3, |at, r| r.files = (0..5).map(|n| format!("web/page{at}{n}.ts")).collect());
    reached(scoped, Kind::Deviation, "scope", Medium, &elsewhere);
    let idle = |_: usize, r: &mut Record| r.tree = Some("a".to_owned());
    reached(usual(), Kind::NoChange, "unchanged", Medium, &trace(&[0.3, 0.3], idle));
    reached(usual(), Kind::NoChange, "unchanged", High, &flat(4, idle));
    let failed = flat(5, |at, r| r.agent_failure = (at != 1 && at != 3).then(|| "it crashed".to_owned()));
    reached(usual(), Kind::AgentFailure, "failed_runs", High, &failed);
}

#[test]
fn resource_burn() {
    use Severity::{Critical, High, Medium};
    let limited = || {
        let facts = TaskFacts {
            estimated_iterations: Some(3.0),
            max_cost_usd: Some(5.0),
            timeout_minutes: Some(10.0),
            ..TaskFacts::default()
        };
        Loop { facts, ..usual() }
    };
    let rising: Vec<f64> = (1..=8).map(|n| 0.05 * f64::from(n)).collect();
    reached(limited(), Kind::ResourceBurn, "iterations", High, &trace(&rising[..7], |_, _| {}));
    reached(limited(), Kind::ResourceBurn, "iterations", Critical, &trace(&rising, |_, _| {}));
    let nearly: Vec<f64> = (1..=7).map(|n| 0.13 * f64::from(n)).collect();
    reached(limited(), Kind::ResourceBurn, "iterations", Medium, &trace(&nearly, |_, _| {}));
    reached(limited(), Kind::ResourceBurn, "cost", High, &trace(&rising[..4], |_, r| r.cost_usd = 3.0));
    reached(limited(), Kind::ResourceBurn, "time", High, &trace(&rising[..4], |_, r| r.duration_s = 330.0));
    reached(limited(), Kind::ResourceBurn, "tool_calls", High, &trace(&rising[..5], |_, r| r.tool_calls = 1_000.0));
    let alarmed =
        Loop { settings: OversightSettings::default(), ..Loop::with_alarm("resource_burn", Severity::Critical) };
    reached(alarmed, Kind::ResourceBurn, "alarm", High, &trace(&[0.5, 0.45, 0.4], |_, _| {}));
    let mut hopeless = limited();
    let last = hopeless.run(&trace(&[0.01; 8], |_, _| {})).pop().expect("eight looks");
    assert_eq!((level(&last, Kind::ResourceBurn), last.decision), (Some(Level::Abort), Decision::Abort));
}

#[test]
fn regression() {
    use Severity::{Critical, High};
    let rising = [0.3, 0.35, 0.4, 0.45];
    let tests =
        trace(&rising[..2], |at, r| (r.tests_passing, r.tests_failing) = (Some([10.0, 1.0][at]), Some([0.0, 9.0][at])));
    reached(usual(), Kind::Regression, "tests", High, &tests);
    let coverage = trace(&rising, |at, r| r.coverage = Some(85.0 - 4.0 * at as f64));
    reached(usual(), Kind::Regression, "coverage", High, &coverage);
    reached(usual(), Kind::Regression, "completion", High, &trace(&[0.6, 0.55, 0.5], |_, _| {}));
    let check = |baseline| {
        trace(&rising[..3], |at, r| {
            r.checks = vec![
                CheckFact { name: "build".to_owned(), passed: at == 0, baseline: Some(baseline) },
                CheckFact { name: "test".to_owned(), passed: false, baseline: Some(false) },
            ]
        })
    };
    reached(usual(), Kind::Regression, "check", High, &check(false));
    reached(usual(), Kind::Regression, "baseline_check", Critical, &check(true));
    let alarmed = Loop { settings: OversightSettings::default(), ..Loop::with_alarm("regression", Severity::Critical) };
    reached(alarmed, Kind::Regression, "alarm", High, &trace(&rising[..1], |_, _| {}));
}

#[test]
fn test_tampering_and_the_ladder() {
    let weakened = |_: usize, r: &mut Record| r.tampering = vec!["a test was removed".to_owned()];
    reached(usual(), Kind::TestTampering, "weakened_checks", Severity::High, &flat(1, weakened));
    let skipped = trace(&[0.3, 0.4], |at, r| {
        (r.tests_passing, r.tests_failing, r.tests_skipped) = (Some([9.0, 8.0][at]), Some(1.0), Some([0.0, 1.0][at]))
    });
    reached(usual(), Kind::TestTampering, "skipped_tests", Severity::High, &skipped);
    let ladder = |kind: Kind, records: &[Record]| {
        let mut levels: Vec<Level> = usual().run(records).iter().filter_map(|verdict| level(verdict, kind)).collect();
        levels.dedup();
        levels
    };
    use Level::{Pause, Redirect, Warn};
    assert_eq!(ladder(Kind::TestTampering, &flat(9, weakened)), [Redirect, Pause]);
    assert_eq!(ladder(Kind::Stuck, &flat(9, same_error)), [Redirect, Pause]);
    let strange = |_: usize, r: &mut Record| r.objective_similarity = Some(0.1);
    assert_eq!(ladder(Kind::Deviation, &flat(12, strange)), [Warn, Redirect, Pause]);
    let mut watched = usual();
    watched.settings.stuck.observe = true;
    let verdicts = watched.run(&flat(9, same_error));
    assert!(verdicts.iter().all(|verdict| level(verdict, Kind::Stuck).is_none_or(|level| level == Level::Log)));
    assert!(verdicts.iter().any(|verdict| level(verdict, Kind::Stuck) == Some(Level::Log)));
}
