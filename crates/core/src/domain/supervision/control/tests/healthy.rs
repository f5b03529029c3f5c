//! Tests that healthy loops get no interventions.

use super::{completions, long, run};
use crate::domain::model::record::Record;
use crate::domain::supervision::TaskFacts;
use crate::domain::supervision::control::{AlarmSeverity, ControlAction, ControlSettings, Urgency};

/// Pseudo-random numbers in -1..1 from a linear congruential generator.
struct SignalNoise(u64);

impl SignalNoise {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
    }
}

/// Returns records that gain 5 % per iteration from 0, with noise of 2 percentage points, until the work is done.
fn healthy(seed: u64) -> Vec<Record> {
    let mut noise = SignalNoise(seed);
    let mut values: Vec<f64> = (1..20).map(|n| 0.05 * f64::from(n) + 0.02 * noise.next()).collect();
    values.push(1.0);
    completions(&values)
}

#[test]
fn healthy_noisy_loop_raises_only_info() {
    let facts = TaskFacts { max_iterations: 30.0, ..TaskFacts::default() };
    for seed in 0..2000 {
        for decision in run(&healthy(seed), &facts, &ControlSettings::default()) {
            let loud: Vec<_> = decision.alarms.iter().filter(|alarm| alarm.severity > AlarmSeverity::Info).collect();
            assert!(loud.is_empty(), "seed {seed}, iteration {}: {loud:?}", decision.iteration);
            assert!(decision.action <= ControlAction::Adjust, "seed {seed}, iteration {}", decision.iteration);
        }
    }
}

/// Returns the profile and urgency of each iteration of a loop that gains 10 % per iteration with one error.
fn steady_gain(settings: &ControlSettings) -> Vec<(String, Urgency)> {
    let mut records = completions(&[0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8]);
    records.iter_mut().for_each(|record| record.errors = 1.0);
    let facts = TaskFacts { max_iterations: 30.0, ..TaskFacts::default() };
    run(&records, &facts, settings).into_iter().map(|decision| (decision.gains.profile, decision.urgency)).collect()
}

#[test]
fn windup_with_progress_does_not_change_profile_and_urgency() {
    for (profile, urgency) in steady_gain(&ControlSettings::default()) {
        assert_ne!(profile, "recovery");
        assert!(urgency < Urgency::Critical, "{profile}: {urgency:?}");
    }
    let unguarded = steady_gain(&ControlSettings { windup_guard: false, ..ControlSettings::default() });
    assert!(unguarded.contains(&("recovery".to_owned(), Urgency::Critical)), "{unguarded:?}");
}

#[test]
fn windup_without_progress_selects_its_profile() {
    let decisions = run(&completions(&[0.05, 0.06, 0.06, 0.07, 0.07, 0.08]), &long(), &ControlSettings::default());
    assert_eq!(decisions[5].gains.profile, "recovery");
    let reasons: Vec<String> = decisions.into_iter().filter_map(|d| d.transition).map(|change| change.reason).collect();
    assert!(reasons.iter().any(|reason| reason.contains("errors accumulate") || reason.contains("no progress")));
}

#[test]
fn finished_work_raises_no_alarm() {
    let mut records = completions(&[0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 1.0, 1.0, 1.0]);
    for record in &mut records {
        (record.errors, record.quality) = (9.0, record.completion.get() - 1.0);
    }
    let decisions = run(&records, &TaskFacts::default(), &ControlSettings::default());
    assert!(!decisions[8].alarms.is_empty());
    for decision in &decisions[9..] {
        assert!(decision.alarms.is_empty() && decision.prompt_adjustments.is_empty());
        assert_eq!(decision.action, ControlAction::Continue);
        assert_eq!(decision.summary, "The work is finished.");
    }
    assert_eq!(decisions[9].cleared.len(), decisions[8].alarms.len());
    let again = run(&completions(&[1.0, 0.9, 1.0]), &long(), &ControlSettings::default());
    assert!(again[2].alarms.is_empty());
}
