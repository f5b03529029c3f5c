//! Tests that the default thresholds can reach every signal, severity and level.

use super::*;
use crate::domain::model::record::CheckFact;
use crate::domain::supervision::control::{AlarmKind, Trend};

/// Returns a loop with the default settings.
fn usual() -> ReviewedLoop {
    ReviewedLoop { settings: OversightSettings::default(), ..ReviewedLoop::default() }
}

/// Asserts that one review of the whole trace detects the kind with this signal and severity.
fn reached(mut it: ReviewedLoop, kind: DetectionKind, signal: &str, wanted: DetectionSeverity, records: &[Record]) {
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
fn every_signal_and_severity_of_stuck_is_reached() {
    use DetectionSeverity::{Critical, High};
    reached(usual(), DetectionKind::Stuck, "same_error", High, &flat(5, same_error));
    reached(usual(), DetectionKind::Stuck, "same_error", Critical, &flat(10, same_error));
    reached(usual(), DetectionKind::Stuck, "standstill", High, &flat(7, |_, _| {}));
    reached(
        usual(),
        DetectionKind::Stuck,
        "no_progress",
        High,
        &trace(&[0.3, 0.301, 0.302, 0.303, 0.303, 0.303, 0.303, 0.303], |_, _| {}),
    );
    reached(
        usual(),
        DetectionKind::Stuck,
        "same_reflection",
        High,
        &flat(4, |_, r| r.reflection = Some("The mock is wrong.".into())),
    );
    let alarmed = || ReviewedLoop {
        settings: OversightSettings::default(),
        ..ReviewedLoop::with_alarm(AlarmKind::StuckLoop, DetectionSeverity::Medium)
    };
    reached(alarmed(), DetectionKind::Stuck, "alarm", High, &flat(7, same_error));
}

#[test]
fn every_signal_and_severity_of_oscillation_is_reached() {
    use DetectionSeverity::{Critical, High};
    reached(usual(), DetectionKind::Oscillation, "undo_redo", High, &flat(5, alternating));
    reached(usual(), DetectionKind::Oscillation, "undo_redo", Critical, &flat(8, alternating));
    reached(usual(), DetectionKind::Oscillation, "tree_return", DetectionSeverity::Medium, &flat(3, alternating));
    let churn = flat(5, |at, r| r.files = vec![["src/a.rs", "src/b.rs"][at % 2].to_owned()]);
    reached(usual(), DetectionKind::Oscillation, "undo_redo", High, &churn);
    let swings = trace(&[0.3, 0.5, 0.3, 0.5, 0.3, 0.5], |_, _| {});
    reached(usual(), DetectionKind::Oscillation, "sign_changes", High, &swings);
    let control = ControlView { trend: Trend::Oscillating, ..ControlView::default() };
    reached(ReviewedLoop { control, ..usual() }, DetectionKind::Oscillation, "trend", High, &swings[..4]);
}

#[test]
fn every_severity_of_deviation_no_change_and_agent_failure_is_reached() {
    use DetectionSeverity::{High, Medium};
    let strange = |_: usize, r: &mut Record| r.objective_similarity = Some(0.1);
    reached(usual(), DetectionKind::Deviation, "objective", Medium, &flat(3, strange));
    reached(usual(), DetectionKind::Deviation, "objective", High, &flat(4, strange));
    let mut scoped = usual();
    scoped.facts.scope = vec!["src/login".to_owned()];
    let elsewhere = flat(3, |at, r| r.files = (0..5).map(|n| format!("web/page{at}{n}.ts")).collect());
    reached(scoped, DetectionKind::Deviation, "scope", Medium, &elsewhere);
    let idle = |_: usize, r: &mut Record| r.tree = Some("a".to_owned());
    reached(usual(), DetectionKind::NoChange, "unchanged", Medium, &trace(&[0.3, 0.3], idle));
    reached(usual(), DetectionKind::NoChange, "unchanged", High, &flat(4, idle));
    let failed = flat(5, |at, r| r.agent_failure = (at != 1 && at != 3).then(|| "it crashed".to_owned()));
    reached(usual(), DetectionKind::AgentFailure, "failed_runs", High, &failed);
}

#[test]
fn token_growth_is_reached_with_the_default_thresholds() {
    use DetectionSeverity::{High, Medium};
    let tokens = |growth: f64| flat(6, move |at, r| r.tokens_in = if at < 3 { 1e5 } else { growth * 1e5 });
    reached(usual(), DetectionKind::TokenGrowth, "tokens", Medium, &tokens(2.0));
    reached(usual(), DetectionKind::TokenGrowth, "tokens", High, &tokens(4.0));
}

#[test]
fn every_signal_and_severity_of_resource_burn_is_reached() {
    use DetectionSeverity::{Critical, High, Medium};
    let limited = || {
        let facts = TaskFacts {
            estimated_iterations: Some(3.0),
            max_cost_usd: Some(5.0),
            timeout_minutes: Some(10.0),
            ..TaskFacts::default()
        };
        ReviewedLoop { facts, ..usual() }
    };
    let rising: Vec<f64> = (1..=8).map(|n| 0.05 * f64::from(n)).collect();
    reached(limited(), DetectionKind::ResourceBurn, "iterations", High, &trace(&rising[..7], |_, _| {}));
    reached(limited(), DetectionKind::ResourceBurn, "iterations", Critical, &trace(&rising, |_, _| {}));
    let nearly: Vec<f64> = (1..=7).map(|n| 0.13 * f64::from(n)).collect();
    reached(limited(), DetectionKind::ResourceBurn, "iterations", Medium, &trace(&nearly, |_, _| {}));
    reached(limited(), DetectionKind::ResourceBurn, "cost", High, &trace(&rising[..4], |_, r| r.cost_usd = 3.0));
    reached(limited(), DetectionKind::ResourceBurn, "time", High, &trace(&rising[..4], |_, r| r.duration_s = 330.0));
    reached(
        limited(),
        DetectionKind::ResourceBurn,
        "tool_calls",
        High,
        &trace(&rising[..5], |_, r| r.tool_calls = 1_000.0),
    );
    let alarmed = ReviewedLoop {
        settings: OversightSettings::default(),
        ..ReviewedLoop::with_alarm(AlarmKind::ResourceBurn, DetectionSeverity::Critical)
    };
    reached(alarmed, DetectionKind::ResourceBurn, "alarm", High, &trace(&[0.5, 0.45, 0.4], |_, _| {}));
    let mut hopeless = limited();
    let last = hopeless.run(&trace(&[0.01; 8], |_, _| {})).pop().expect("eight looks");
    assert_eq!(
        (level(&last, DetectionKind::ResourceBurn), last.decision),
        (Some(InterventionLevel::Abort), OversightDecision::Abort)
    );
}

#[test]
fn every_signal_and_severity_of_regression_is_reached() {
    use DetectionSeverity::{Critical, High};
    let rising = [0.3, 0.35, 0.4, 0.45];
    let tests =
        trace(&rising[..2], |at, r| (r.tests_passing, r.tests_failing) = (Some([10.0, 1.0][at]), Some([0.0, 9.0][at])));
    reached(usual(), DetectionKind::Regression, "tests", High, &tests);
    let coverage = trace(&rising, |at, r| r.coverage = Some(85.0 - 4.0 * at as f64));
    reached(usual(), DetectionKind::Regression, "coverage", High, &coverage);
    reached(usual(), DetectionKind::Regression, "completion", High, &trace(&[0.6, 0.55, 0.5], |_, _| {}));
    let check = |baseline| {
        trace(&rising[..3], |at, r| {
            r.checks = vec![
                CheckFact { name: "build".to_owned(), passed: at == 0, baseline: Some(baseline) },
                CheckFact { name: "test".to_owned(), passed: false, baseline: Some(false) },
            ]
        })
    };
    reached(usual(), DetectionKind::Regression, "check", High, &check(false));
    reached(usual(), DetectionKind::Regression, "baseline_check", Critical, &check(true));
    let alarmed = ReviewedLoop {
        settings: OversightSettings::default(),
        ..ReviewedLoop::with_alarm(AlarmKind::Regression, DetectionSeverity::Critical)
    };
    reached(alarmed, DetectionKind::Regression, "alarm", High, &trace(&rising[..1], |_, _| {}));
}

#[test]
fn test_tampering_reaches_every_level() {
    let weakened = |_: usize, r: &mut Record| r.tampering = vec!["a test was removed".to_owned()];
    reached(usual(), DetectionKind::TestTampering, "weakened_checks", DetectionSeverity::High, &flat(1, weakened));
    let skipped = trace(&[0.3, 0.4], |at, r| {
        (r.tests_passing, r.tests_failing, r.tests_skipped) = (Some([9.0, 8.0][at]), Some(1.0), Some([0.0, 1.0][at]))
    });
    reached(usual(), DetectionKind::TestTampering, "skipped_tests", DetectionSeverity::High, &skipped);
    let ladder = |kind: DetectionKind, records: &[Record]| {
        let mut levels: Vec<InterventionLevel> =
            usual().run(records).iter().filter_map(|verdict| level(verdict, kind)).collect();
        levels.dedup();
        levels
    };
    use InterventionLevel::{Pause, Redirect, Warn};
    assert_eq!(ladder(DetectionKind::TestTampering, &flat(9, weakened)), [Redirect, Pause]);
    assert_eq!(ladder(DetectionKind::Stuck, &flat(9, same_error)), [Redirect, Pause]);
    let strange = |_: usize, r: &mut Record| r.objective_similarity = Some(0.1);
    assert_eq!(ladder(DetectionKind::Deviation, &flat(20, strange)), [Warn, Redirect]);
    let mut watched = usual();
    watched.settings.stuck.observe = true;
    let verdicts = watched.run(&flat(9, same_error));
    assert!(
        verdicts
            .iter()
            .all(|verdict| level(verdict, DetectionKind::Stuck).is_none_or(|level| level == InterventionLevel::Log))
    );
    assert!(verdicts.iter().any(|verdict| level(verdict, DetectionKind::Stuck) == Some(InterventionLevel::Log)));
}
