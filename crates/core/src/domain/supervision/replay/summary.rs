//! Totals of a replay, and the predicted end of the loop.

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
    /// The loop finished: all checks pass, and none were weakened.
    Finished,
    /// The loop would wait for a person.
    Pause,
    /// The loop would end at its current state.
    Abort,
}

/// End of a replayed loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PredictedEnd {
    /// Last iteration.
    pub iteration: u64,
    /// Cause.
    pub by: EndKind,
}

/// Returns how the loop would end after an iteration; `None` if it would continue. Finished work ends the loop regardless of
/// the decision, unless checks were weakened.
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

/// Totals of a replay.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ReplaySummary {
    /// Number of iterations.
    pub iterations: u64,
    /// Number of raised alarms, by kind.
    pub alarms: BTreeMap<AlarmKind, u64>,
    /// Number of raised alarms, by the highest severity of each alarm.
    pub severities: BTreeMap<AlarmSeverity, u64>,
    /// Number of iterations, by control's recommended action.
    pub actions: BTreeMap<ControlAction, u64>,
    /// Number of iterations with a detection, by kind.
    pub detections: BTreeMap<DetectionKind, u64>,
    /// Number of new interventions, by level. An intervention over several iterations counts once.
    pub interventions: BTreeMap<InterventionLevel, u64>,
    /// First predicted end of the loop; `None` if it would continue.
    pub ended: Option<PredictedEnd>,
}

impl ReplaySummary {
    /// Computes the totals of reviews, given in order with their records.
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
