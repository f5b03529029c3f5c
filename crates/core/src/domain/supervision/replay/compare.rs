//! Compares settings over recorded traces: iterations saved, and healthy loops disturbed.

use serde::{Deserialize, Serialize};

use super::{EndKind, PredictedEnd, Trace, end};
use crate::domain::supervision::SupervisionSettings;
use crate::domain::supervision::oversight::InterventionLevel;

/// Result of replaying one trace with some settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceOutcome {
    /// Predicted end of the loop; `None` if it would continue.
    pub ended: Option<PredictedEnd>,
    /// Number of iterations saved, because the loop never finished and would have been paused or ended earlier.
    pub saved: u64,
    /// Number of interventions above LOG. An intervention over several iterations counts once.
    pub interventions: u64,
    /// Whether the loop finished, but only after an intervention.
    pub disturbed: bool,
    /// Whether the loop finished, but would have been stopped earlier.
    pub stopped: bool,
}

/// Result of replaying all traces with some settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Comparison {
    /// Number of traces.
    pub loops: u64,
    /// Number of loops that finished.
    pub healthy: u64,
    /// Number of iterations of all loops.
    pub iterations: u64,
    /// Number of iterations saved in loops that never finished.
    pub saved: u64,
    /// Number of interventions above LOG.
    pub interventions: u64,
    /// Number of finished loops with an intervention.
    pub disturbed: u64,
    /// Number of finished loops that would have been stopped.
    pub stopped: u64,
}

/// Replays each trace with the settings. Returns the results in order, and their sums.
pub fn compare(traces: &[Trace], settings: &SupervisionSettings) -> (Vec<TraceOutcome>, Comparison) {
    let outcomes: Vec<TraceOutcome> = traces.iter().map(|trace| outcome(trace, settings)).collect();
    let mut all = Comparison { loops: traces.len() as u64, ..Comparison::default() };
    for (trace, outcome) in traces.iter().zip(&outcomes) {
        all.healthy += u64::from(finishes(trace));
        all.iterations += trace.records.len() as u64;
        all.saved += outcome.saved;
        all.interventions += outcome.interventions;
        all.disturbed += u64::from(outcome.disturbed);
        all.stopped += u64::from(outcome.stopped);
    }
    (outcomes, all)
}

fn finishes(trace: &Trace) -> bool {
    trace.records.iter().any(|record| record.clone().cleaned().0.is_finished())
}

fn outcome(trace: &Trace, settings: &SupervisionSettings) -> TraceOutcome {
    let (mut ended, mut interventions, mut taken) = (None, 0, 0);
    for (record, review) in trace.reviews(settings) {
        taken += 1;
        let fresh =
            review.verdict.interventions.iter().filter(|done| done.fresh && done.level > InterventionLevel::Log);
        interventions += fresh.count() as u64;
        ended = end(&record, &review).map(|by| PredictedEnd { iteration: review.control.iteration, by });
        if ended.is_some() {
            break;
        }
    }
    let healthy = finishes(trace);
    let stopped = healthy && ended.is_some_and(|ended| ended.by != EndKind::Finished);
    let saved = if healthy { 0 } else { trace.records.len() as u64 - taken };
    TraceOutcome { ended, saved, interventions, disturbed: healthy && (interventions > 0 || stopped), stopped }
}
