//! Course of a loop as its stored iterations show it, for the statistics of oversight.

use crate::domain::loops::{Iteration, Loop};
use crate::domain::supervision::oversight::{CourseStep, GivenIntervention, OversightReport};

impl Loop {
    /// Returns the statistics of oversight, with the effect of each detection's interventions.
    pub fn oversight_report(&self) -> OversightReport {
        let Some(known) = &self.supervision.state else { return OversightReport::default() };
        let step = |iteration: &Iteration| {
            let weakened = iteration.record.as_ref().is_some_and(|record| !record.tampering.is_empty());
            let found = iteration.judged.iter().flat_map(|judged| &judged.found).filter(|found| found.fresh);
            CourseStep {
                completion: if weakened { 0.0 } else { iteration.completion.get() },
                interventions: found.map(|found| GivenIntervention { kind: found.kind, level: found.level }).collect(),
            }
        };
        let course: Vec<CourseStep> = self.retained_iterations().map(step).collect();
        let min_progress = self.settings.policy.supervision().oversight.min_progress;
        OversightReport::of(&known.overseer, &course, self.as_ended().is_some(), min_progress)
    }
}
