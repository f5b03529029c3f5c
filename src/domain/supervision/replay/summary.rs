//! A whole replay in counts, and where the loop would have ended.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::domain::model::record::Record;
use crate::domain::supervision::SupervisionReview;
use crate::domain::supervision::control::{AlarmKind, AlarmSeverity, ControlAction};
use crate::domain::supervision::oversight::{DetectionKind, InterventionLevel, OversightDecision};

/// Cause of a loop's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndKind {
    /// Everything holds, and no check was weakened for it.
    Finished,
    /// It would wait for a person.
    Pause,
    /// It would end with what it has.
    Abort,
}

/// End of a replayed loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PredictedEnd {
    /// After which iteration.
    pub iteration: u64,
    /// Cause.
    pub by: EndKind,
}

/// Whether and how a loop ends with an iteration: work that is finished needs no decision, unless checks were weakened.
pub fn end(record: &Record, review: &SupervisionReview) -> Option<EndKind> {
    let weakened = review.verdict.detections.iter().any(|found| found.kind == DetectionKind::TestTampering);
    match review.decision() {
        _ if record.is_finished() && !weakened => Some(EndKind::Finished),
        OversightDecision::Abort => Some(EndKind::Abort),
        OversightDecision::Pause => Some(EndKind::Pause),
        _ if review.gives_up.is_some() => Some(EndKind::Pause),
        OversightDecision::Continue | OversightDecision::ContinueWithDirectives => None,
    }
}

/// A whole replay in counts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ReplaySummary {
    /// Number of iterations.
    pub iterations: u64,
    /// Alarms raised, by type.
    pub alarms: BTreeMap<AlarmKind, u64>,
    /// The same alarms, by the worst severity that each came to.
    pub severities: BTreeMap<AlarmSeverity, u64>,
    /// Iterations, by what control recommended.
    pub actions: BTreeMap<ControlAction, u64>,
    /// Iterations in which a detection was found, by type.
    pub detections: BTreeMap<DetectionKind, u64>,
    /// Interventions by level, each counted once, when it was new.
    pub interventions: BTreeMap<InterventionLevel, u64>,
    /// The first end that there would have been; `None` where it would go on.
    pub ended: Option<PredictedEnd>,
}

impl ReplaySummary {
    /// Counts reviews, which come in order with their records.
    pub fn of<'a>(reviews: impl IntoIterator<Item = &'a (Record, SupervisionReview)>) -> Self {
        let mut summary = Self::default();
        let mut worst = BTreeMap::new();
        for (record, review) in reviews {
            let decision = &review.control;
            summary.iterations += 1;
            *summary.actions.entry(decision.action).or_default() += 1;
            for kind in &decision.raised {
                *summary.alarms.entry(*kind).or_default() += 1;
            }
            for alarm in &decision.alarms {
                let severity = worst.entry(alarm.id.clone()).or_insert(alarm.severity);
                *severity = alarm.severity.max(*severity);
            }
            for found in &review.verdict.detections {
                *summary.detections.entry(found.kind).or_default() += 1;
            }
            for done in review.verdict.interventions.iter().filter(|done| done.fresh) {
                *summary.interventions.entry(done.level).or_default() += 1;
            }
            let ended = end(record, review).map(|by| PredictedEnd { iteration: decision.iteration, by });
            summary.ended = summary.ended.or(ended);
        }
        for severity in worst.into_values() {
            *summary.severities.entry(severity).or_default() += 1;
        }
        summary
    }
}
