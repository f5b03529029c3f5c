//! Tests with traces that reach every alarm, severity, profile, action, trend, urgency and actuator position.

use super::{completions, long, run};
use crate::domain::model::ids::Ratio;
use crate::domain::model::record::{CheckFact, Record};
use crate::domain::supervision::TaskFacts;
use crate::domain::supervision::control::{
    AlarmKind, AlarmSeverity, Breadth, ControlAction, ControlDecision, ControlSettings, ControlState, ModelTier, Trend,
    Urgency,
};
use crate::domain::supervision::{SupervisionPreset, SupervisionSettings};

/// Returns the thresholds of the preset `pinned` with all actuators enabled.
fn pinned_settings() -> ControlSettings {
    SupervisionSettings::of(SupervisionPreset::Pinned).control
}

fn course(values: &[f64]) -> Vec<ControlDecision> {
    run(&completions(values), &long(), &pinned_settings())
}

fn of_task(values: &[f64], facts: &TaskFacts) -> Vec<ControlDecision> {
    run(&completions(values), facts, &pinned_settings())
}

fn has(decisions: &[ControlDecision], condition: impl Fn(&ControlDecision) -> bool) -> bool {
    decisions.iter().any(condition)
}

fn alarmed(decisions: &[ControlDecision], kind: AlarmKind, severity: AlarmSeverity) -> bool {
    has(decisions, |decision| decision.alarms.iter().any(|alarm| alarm.kind == kind && alarm.severity == severity))
}

/// Returns the decisions for a constant completion of 0.5 with these qualities.
fn qualities(values: &[f64]) -> Vec<ControlDecision> {
    let mut records = completions(&vec![0.5; values.len()]);
    for (record, quality) in records.iter_mut().zip(values) {
        record.quality = *quality;
    }
    run(&records, &long(), &pinned_settings())
}

#[test]
fn every_alarm_and_severity_is_reachable() {
    use AlarmKind::*;
    use AlarmSeverity::*;
    let ten = TaskFacts::default();
    let traces = [
        (StuckLoop, Warning, course(&[0.6; 4])),
        (StuckLoop, Critical, course(&[0.3; 4])),
        (Oscillation, Warning, course(&[0.3, 0.5, 0.3, 0.5])),
        (Regression, Warning, course(&[0.8, 0.65])),
        (Regression, Critical, course(&[0.8, 0.55])),
        (ResourceBurn, Critical, of_task(&[0.1; 9], &ten)),
        (ResourceBurn, Emergency, of_task(&[0.1; 10], &ten)),
        (QualityDegradation, Warning, qualities(&[1.0, 0.8])),
        (QualityDegradation, Critical, qualities(&[1.0, 0.6])),
        (IntegralWindup, Warning, course(&[0.1; 8])),
        (DerivativeSpike, Info, course(&[0.1, 0.4])),
        (DerivativeSpike, Warning, course(&[0.4, 0.1])),
    ];
    for (kind, severity, decisions) in &traces {
        assert!(alarmed(decisions, *kind, *severity), "{} {}", severity.word(), kind.name());
    }
    assert!(AlarmKind::ALL.iter().all(|kind| traces.iter().any(|(reached, ..)| reached == kind)));
}

#[test]
fn every_profile_is_reachable() {
    let task = |complexity, security_sensitive, breaking_changes| TaskFacts {
        complexity: Some(complexity),
        security_sensitive,
        breaking_changes,
        ..long()
    };
    let traces = [
        ("conservative", of_task(&[0.4], &task(2.0, true, false))),
        ("conservative", of_task(&[0.4], &task(5.0, false, true))),
        ("conservative", course(&[0.8, 0.65])),
        ("standard", course(&[0.4])),
        ("aggressive", of_task(&[0.4], &task(3.0, false, false))),
        ("recovery", course(&[0.1; 4])),
        ("recovery", course(&[0.32, 0.34, 0.36, 0.38, 0.4, 0.42, 0.44, 0.46, 0.47])),
        ("cautious", course(&[0.9])),
        ("damped", course(&[0.3, 0.5, 0.3, 0.5])),
        ("exploration", of_task(&[0.4], &task(7.0, false, false))),
    ];
    for (profile, decisions) in &traces {
        let last = decisions.last().unwrap();
        assert_eq!(last.gains.profile, *profile, "{:?}", last.metrics);
    }
    let changed = traces[7].1[0].transition.as_ref().unwrap();
    assert_eq!((changed.from.as_str(), changed.to.as_str()), ("standard", "cautious"));
    assert_eq!(changed.reason, "nearly done (P 0.10)");
    assert_eq!(course(&[0.4])[0].transition, None);
}

#[test]
fn every_action_trend_and_urgency_is_reachable() {
    let last = |values: &[f64]| course(values).pop().unwrap();
    assert_eq!(last(&[0.8]).action, ControlAction::Continue);
    assert_eq!(last(&[0.8, 0.65]).action, ControlAction::Adjust);
    assert_eq!(last(&[0.3; 4]).action, ControlAction::Pause);
    assert_eq!(of_task(&[0.1; 10], &TaskFacts::default()).pop().unwrap().action, ControlAction::Abort);
    let trends = [last(&[0.3, 0.4]), last(&[0.3]), last(&[0.4, 0.3]), last(&[0.3, 0.5, 0.3, 0.5])];
    let expected = [Trend::Improving, Trend::Stable, Trend::Regressing, Trend::Oscillating];
    assert_eq!(trends.map(|decision| decision.metrics.trend), expected);
    let urgencies = [last(&[0.9]), last(&[0.5]), last(&[0.1]), last(&[0.0; 5])].map(|decision| decision.urgency);
    assert_eq!(urgencies, [Urgency::Normal, Urgency::Elevated, Urgency::High, Urgency::Critical]);
}

#[test]
fn every_actuator_position_is_reachable() {
    let simple = TaskFacts { complexity: Some(1.0), ..long() };
    let first = |values: &[f64]| course(values).pop().unwrap().actuation;
    assert_eq!(first(&[0.9]).model, ModelTier::Cheap);
    assert_eq!(first(&[0.5]).model, ModelTier::Default);
    let twice: Vec<_> = of_task(&[0.0, 0.2], &simple).into_iter().map(|decision| decision.actuation.model).collect();
    assert_eq!(twice, [ModelTier::Default, ModelTier::Strong]);
    assert_eq!(first(&[0.1; 4]).model, ModelTier::Strong);
    assert_eq!(first(&[0.9]).breadth, Breadth::FirstFailure);
    assert_eq!(first(&[0.8, 0.65]).breadth, Breadth::OneChange);
    assert_eq!(first(&[0.5]).breadth, Breadth::Usual);
    assert_eq!(of_task(&[0.5], &simple)[0].actuation.breadth, Breadth::Everything);
    assert_eq!(first(&[0.0; 20]).effort, 1.5);
    assert!(first(&[0.95]).effort < 0.6);
    assert_eq!(first(&[1.0]).memory_share, 0.2);
    assert_eq!(first(&[0.0; 50]).memory_share, 0.5);
    assert_eq!(first(&[0.0; 50]).tone, Urgency::Critical);
}

#[test]
fn prompt_states_breadth_of_work() {
    let last_adjustment =
        |mut decisions: Vec<ControlDecision>| decisions.pop().unwrap().prompt_adjustments.pop().unwrap_or_default();
    let simple = TaskFacts { complexity: Some(1.0), ..long() };
    assert_eq!(last_adjustment(course(&[0.9])), "Work on the first failing check only, and leave the rest for later.");
    assert_eq!(last_adjustment(course(&[0.8, 0.65])), "Make one change, and check it before anything else.");
    assert_eq!(last_adjustment(of_task(&[0.5], &simple)), "Work on everything that is open at once.");
    assert!(last_adjustment(course(&[0.5])).starts_with("Urgency is "));
}

#[test]
fn actuator_movements_have_a_cause_and_disabled_actuators_do_not_move() {
    let records = completions(&[0.1; 4]);
    let decisions = run(&records, &long(), &pinned_settings());
    let lines: Vec<_> =
        decisions[3].actuation.movements.iter().map(|m| format!("{} -> {}: {}", m.from, m.to, m.cause)).collect();
    insta::assert_snapshot!(lines.join("\n"), @"
    132 % -> 150 %: the control signal is 1.00
    default -> strong: the profile is recovery
    35 % -> 39 %: I is 3.10
    ");
    let mut off = pinned_settings();
    off.actuators.effort.enabled = false;
    off.actuators.model.enabled = false;
    off.actuators.breadth.enabled = false;
    off.actuators.tone.enabled = false;
    off.actuators.memory.enabled = false;
    assert!(run(&records, &long(), &off).iter().all(|decision| decision.actuation.movements.is_empty()));
}

#[test]
fn remaining_time_and_money_are_reported() {
    let facts = TaskFacts { timeout_minutes: Some(10.0), max_cost_usd: Some(2.0), ..long() };
    let record = Record { duration_s: 540.0, cost_usd: 0.5, ..Record::default() };
    let actuation = run(&[record], &facts, &pinned_settings()).remove(0).actuation;
    assert_eq!((actuation.seconds_left, actuation.usd_left), (Some(60.0), Some(1.5)));
}

#[test]
fn prompt_names_problems() {
    let check = |name: &str, passed| CheckFact { name: name.to_owned(), passed, baseline: None };
    let record = |iteration| Record {
        iteration,
        completion: Ratio::new(0.25),
        tests_passing: Some(30.0),
        tests_failing: Some(2.0),
        error_signature: Some("cannot find `Foo`\nin this scope".to_owned()),
        blockers: vec!["no database on port 5432".to_owned()],
        checks: vec![check("clippy", false), check("fmt", true), check("test", false)],
        ..Record::default()
    };
    let records: Vec<_> = (1..=4).map(|n| record(f64::from(n))).collect();
    let last = run(&records, &long(), &pinned_settings()).pop().unwrap();
    insta::assert_snapshot!(last.prompt_adjustments.join("\n"), @"
    Urgency is critical: 75 % is open, and there is no progress.
    2 of 3 checks fail: `clippy`, `test`.
    2 of 32 tests fail.
    The first error is `cannot find 'Foo' in this scope`
    This blocked the work in 4 iterations: `no database on port 5432`
    The attempts of the last iterations changed nothing: try something else.
    ");
    insta::assert_snapshot!(last.summary, @"No progress in 3 iterations: P stays at 0.75.");
}

#[test]
fn fixed_gains_do_not_change_and_explicit_profile_takes_precedence() {
    let fixed = ControlSettings { adaptive_gains: false, base_profile: "cautious".to_owned(), ..pinned_settings() };
    for decision in run(&completions(&[0.1; 6]), &long(), &fixed) {
        assert_eq!((decision.gains.profile.as_str(), decision.gains.gains.kp), ("cautious", 0.2));
        assert_eq!(decision.transition, None);
    }
}

#[test]
fn pause_and_abort_need_auto_intervene() {
    let records = completions(&[0.3; 4]);
    let alone = ControlSettings { auto_intervene: true, ..pinned_settings() };
    let effects: Vec<_> = run(&records, &long(), &alone).iter().map(|decision| decision.takes_effect).collect();
    assert_eq!(effects, [false, false, false, true]);
    assert!(!run(&records, &long(), &pinned_settings())[3].takes_effect);
}

#[test]
fn acknowledged_alarm_does_not_pause() {
    let (facts, settings) = (long(), pinned_settings());
    let mut state = ControlState::rebuild(&completions(&[0.3; 4]), &facts, &settings);
    assert!(!state.acknowledge("stuck_loop-1") && state.acknowledge("stuck_loop-4"));
    let next =
        state.step(&Record { iteration: 5.0, completion: Ratio::new(0.3), ..Record::default() }, &facts, &settings);
    assert_eq!(next.action, ControlAction::Adjust);
    assert_eq!(state.alarms()[0].id, "stuck_loop-4");
}
