//! Tests of oversight: traces with and without problems, and the interventions for them.

mod defaults;
mod fires;
mod healthy;
mod levels;
mod properties;
mod rank;
mod returns;
mod settings;

use super::*;
use crate::domain::model::ids::Ratio;
use crate::domain::supervision::control::AlarmKind;
use crate::domain::supervision::{SupervisionPreset, SupervisionSettings};

/// Returns a trace with these completions, numbered from 1. `change` completes each record, given its 0-based index.
fn trace(completions: &[f64], change: impl Fn(usize, &mut Record)) -> Vec<Record> {
    let record = |(at, completion): (usize, &f64)| {
        let mut record =
            Record { iteration: at as f64 + 1.0, completion: Ratio::new(*completion), ..Record::default() };
        change(at, &mut record);
        record
    };
    completions.iter().enumerate().map(record).collect()
}

/// Returns a trace of this length without any progress.
fn flat(length: usize, change: impl Fn(usize, &mut Record)) -> Vec<Record> {
    trace(&vec![0.3; length], change)
}

/// Returns the thresholds of the preset `pinned`, which are independent of the defaults.
fn pinned_settings() -> OversightSettings {
    SupervisionSettings::of(SupervisionPreset::Pinned).oversight
}

/// Loop with a review after each iteration.
struct ReviewedLoop {
    facts: TaskFacts,
    control: ControlView,
    settings: OversightSettings,
    state: OverseerState,
}

impl Default for ReviewedLoop {
    fn default() -> Self {
        let facts = TaskFacts { max_iterations: 30.0, ..TaskFacts::default() };
        Self { facts, control: ControlView::default(), settings: pinned_settings(), state: OverseerState::default() }
    }
}

impl ReviewedLoop {
    fn on(task: &str) -> Self {
        let mut it = Self::default();
        it.facts.task = task.to_owned();
        it
    }

    fn with_alarm(kind: AlarmKind, severity: DetectionSeverity) -> Self {
        let control = ControlView { alarms: vec![(kind, severity)], ..ControlView::default() };
        Self { control, ..Self::default() }
    }

    fn review(&mut self, history: &[Record]) -> OversightVerdict {
        review(&mut self.state, history, &self.facts, &self.control, &self.settings)
    }

    /// Reviews the whole trace, iteration by iteration.
    fn run(&mut self, records: &[Record]) -> Vec<OversightVerdict> {
        (1..=records.len()).map(|until| self.review(&records[..until])).collect()
    }
}

/// Returns the severity of this kind's detection in a verdict.
fn severity(verdict: &OversightVerdict, kind: DetectionKind) -> Option<DetectionSeverity> {
    verdict.detections.iter().find(|found| found.kind == kind).map(|found| found.severity)
}

/// Returns the level of this kind's intervention in a verdict.
fn level(verdict: &OversightVerdict, kind: DetectionKind) -> Option<InterventionLevel> {
    verdict.interventions.iter().find(|done| done.kind == kind).map(|done| done.level)
}

/// Returns the names of this kind's signals in all verdicts.
fn signals(verdicts: &[OversightVerdict], kind: DetectionKind) -> Vec<&str> {
    let found = verdicts.iter().flat_map(|verdict| &verdict.detections).filter(|found| found.kind == kind);
    found.flat_map(|found| &found.evidence).map(|evidence| evidence.signal.as_str()).collect()
}
