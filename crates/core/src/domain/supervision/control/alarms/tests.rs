//! Tests that each alarm is raised, updated and cleared.

use super::*;
use crate::domain::supervision::TaskFacts;
use crate::domain::supervision::control::tests::{completions, long, run};
use crate::domain::supervision::control::{ControlDecision, ControlSettings};

use AlarmKind::{
    DerivativeSpike, IntegralWindup, Oscillation, QualityDegradation, Regression, ResourceBurn, StuckLoop,
};
use AlarmSeverity::{Critical, Emergency, Info, Warning};

/// Returns the severity of one alarm kind after each iteration.
fn course(kind: AlarmKind, decisions: &[ControlDecision]) -> Vec<Option<AlarmSeverity>> {
    let find = |decision: &ControlDecision| {
        decision.alarms.iter().find(|alarm| alarm.kind == kind).map(|alarm| alarm.severity)
    };
    decisions.iter().map(find).collect()
}

fn of(kind: AlarmKind, values: &[f64]) -> Vec<Option<AlarmSeverity>> {
    course(kind, &run(&completions(values), &long(), &ControlSettings::default()))
}

#[test]
fn stuck_loop_is_raised_and_cleared() {
    let far = of(StuckLoop, &[0.2, 0.2, 0.21, 0.2, 0.2, 0.4]);
    assert_eq!(far, [None, None, None, Some(Critical), Some(Critical), None]);
    let near = of(StuckLoop, &[0.6, 0.6, 0.6, 0.6, 1.0]);
    assert_eq!(near, [None, None, None, Some(Warning), None]);
    assert_eq!(of(StuckLoop, &[0.2, 0.24, 0.28, 0.32, 0.36]), [None; 5]);
}

#[test]
fn oscillation_is_raised_and_cleared() {
    let swings = of(Oscillation, &[0.3, 0.5, 0.3, 0.5, 0.55, 0.6, 0.65, 0.7]);
    assert_eq!(swings, [None, None, None, Some(Warning), Some(Warning), Some(Warning), None, None]);
    assert_eq!(of(Oscillation, &[0.3, 0.33, 0.3, 0.33, 0.3, 0.33]), [None; 6]);
}

#[test]
fn sudden_regression_raises_alarm() {
    let fall = of(Regression, &[0.8, 0.65, 0.35, 0.75, 0.85]);
    assert_eq!(fall, [None, Some(Warning), Some(Critical), None, None]);
}

#[test]
fn slow_decline_raises_regression() {
    let slide: Vec<f64> = (0..20).map(|n| 0.8 - 0.02 * f64::from(n)).collect();
    let course = of(Regression, &slide);
    assert_eq!(course[..8], [None; 8]);
    assert_eq!(course[8..11], [Some(Warning); 3]);
    assert_eq!(course[11..], [Some(Critical); 9]);
}

#[test]
fn resource_burn_is_raised_if_forecast_exceeds_rest() {
    let ten = TaskFacts::default();
    let steady: Vec<f64> = (1..=10).map(|n| 0.1 * f64::from(n)).collect();
    let settings = ControlSettings::default();
    assert_eq!(course(ResourceBurn, &run(&completions(&steady), &ten, &settings)), [None; 10]);
    let by_rule = ControlSettings { resource_forecast: false, ..ControlSettings::default() };
    let rule = course(ResourceBurn, &run(&completions(&steady), &ten, &by_rule));
    assert_eq!(rule[7..], [None, Some(Critical), None]);
    let twenty = TaskFacts { max_iterations: 20.0, ..TaskFacts::default() };
    let just_in_time: Vec<f64> = (1..=20).map(|n| 0.05 * f64::from(n)).collect();
    assert_eq!(course(ResourceBurn, &run(&completions(&just_in_time), &twenty, &settings)), [None; 20]);
    let slow: Vec<f64> = (1..=10).map(|n| 0.05 * f64::from(n)).collect();
    let burn = course(ResourceBurn, &run(&completions(&slow), &ten, &settings));
    assert_eq!(burn[7..], [None, Some(Critical), Some(Emergency)]);
}

#[test]
fn time_and_money_raise_resource_burn() {
    let limited = TaskFacts { timeout_minutes: Some(10.0), max_cost_usd: Some(1.0), ..long() };
    let spend = |seconds, usd| {
        let mut records = completions(&[0.1, 0.15, 0.2, 0.25, 0.3]);
        for record in &mut records {
            (record.duration_s, record.cost_usd) = (seconds, usd);
        }
        let decisions = run(&records, &limited, &ControlSettings::default());
        let message = decisions[4].alarms.iter().find(|a| a.kind == ResourceBurn).map(|a| a.message.clone());
        (course(ResourceBurn, &decisions), message.unwrap_or_default())
    };
    let (time, message) = spend(110.0, 0.0);
    assert_eq!(time, [None, None, None, None, Some(Critical)]);
    assert_eq!(message, "550 of 600 seconds are used and, in iterations, 14 more are forecast.");
    let (money, message) = spend(0.0, 0.25);
    assert_eq!(money, [None, None, None, Some(Emergency), Some(Emergency)]);
    assert_eq!(message, "1.25 of 1.00 dollars are used and, in iterations, 14 more are forecast.");
}

#[test]
fn quality_degradation_is_raised_and_cleared() {
    let mut records = completions(&[0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8]);
    for (record, quality) in records.iter_mut().zip([1.0, 0.9, 0.8, 0.65, 0.8, 0.8, 0.8, 0.8]) {
        record.quality = quality;
    }
    let fall = course(QualityDegradation, &run(&records, &long(), &ControlSettings::default()));
    assert_eq!(fall, [None, None, Some(Warning), Some(Critical), Some(Warning), None, None, None]);
}

#[test]
fn integral_windup_is_raised_and_cleared() {
    let stuck = of(IntegralWindup, &[0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.3]);
    assert_eq!(stuck, [None, None, None, None, None, Some(Warning), Some(Warning), None]);
    let rising: Vec<f64> = (1..=20).map(|n| 0.05 * f64::from(n)).collect();
    let decisions = run(&completions(&rising), &long(), &ControlSettings::default());
    assert!(decisions.iter().any(|decision| decision.metrics.i > 4.0));
    assert_eq!(course(IntegralWindup, &decisions), [None; 20]);
}

#[test]
fn derivative_spike_is_raised_and_cleared() {
    let jumps = of(DerivativeSpike, &[0.1, 0.4, 0.45, 0.2, 0.25]);
    assert_eq!(jumps, [None, Some(Info), None, Some(Warning), None]);
}

#[test]
fn active_alarm_keeps_its_id() {
    let records = completions(&[0.2, 0.2, 0.2, 0.2, 0.2, 0.4, 0.4, 0.4, 0.4]);
    let decisions = run(&records, &long(), &ControlSettings::default());
    let alarm = |n: usize| decisions[n].alarms.iter().find(|alarm| alarm.kind == StuckLoop).unwrap();
    assert_eq!((decisions[3].raised.contains(&StuckLoop), decisions[4].raised.contains(&StuckLoop)), (true, false));
    assert_eq!((alarm(3).id.as_str(), alarm(4).id.as_str()), ("stuck_loop-4", "stuck_loop-4"));
    assert_eq!((alarm(4).raised, alarm(4).updated), (4, 5));
    assert!(decisions[5].cleared.contains(&StuckLoop));
    assert_eq!(alarm(8).id, "stuck_loop-9");
    assert_eq!(alarm(3).message, "No progress in 3 iterations: P stays at 0.80.");
}

#[test]
fn acknowledged_alarm_returns_only_if_worse() {
    let found =
        |severity| AlarmFinding { kind: Regression, severity, message: String::new(), context: BTreeMap::new() };
    let mut standing = Vec::new();
    settle(&mut standing, vec![found(Warning)], 1);
    standing[0].acknowledged = true;
    settle(&mut standing, vec![found(Warning)], 2);
    assert!(standing[0].acknowledged);
    settle(&mut standing, vec![found(Critical)], 3);
    assert!(!standing[0].acknowledged);
    assert_eq!(settle(&mut standing, Vec::new(), 4).cleared, [Regression]);
}
