//! Statistics of oversight for tuning its thresholds: detections, interventions, and the progress after them.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::DetectionKind;
use super::intervention::InterventionLevel;
use super::state::{OverseerState, ProgressCounts};

/// Statistics of oversight for one or several loops.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct OversightReport {
    /// Number of iterations with a detection, by kind.
    pub detections: BTreeMap<DetectionKind, u32>,
    /// Number of interventions, by level.
    pub interventions: BTreeMap<InterventionLevel, u32>,
    /// Number of interventions that reached the agent, with and without subsequent progress, by level.
    pub followed: BTreeMap<InterventionLevel, ProgressCounts>,
}

/// Returns the statistics of a loop.
pub fn report(state: &OverseerState) -> OversightReport {
    OversightReport {
        detections: state.detections.clone(),
        interventions: state.interventions.clone(),
        followed: state.followed.clone(),
    }
}

impl OversightReport {
    /// Returns the sum of two statistics.
    #[must_use]
    pub fn plus(mut self, other: &Self) -> Self {
        for (kind, count) in &other.detections {
            *self.detections.entry(*kind).or_default() += count;
        }
        for (level, count) in &other.interventions {
            *self.interventions.entry(*level).or_default() += count;
        }
        for (level, followed) in &other.followed {
            let sum = self.followed.entry(*level).or_default();
            sum.progress += followed.progress;
            sum.none += followed.none;
        }
        self
    }
}

impl fmt::Display for OversightReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.detections.is_empty() {
            writeln!(f, "Nothing was detected.")?;
        } else {
            writeln!(f, "Detections (iterations each):")?;
        }
        for (kind, count) in &self.detections {
            writeln!(f, "  {kind:<16}{count:>5}")?;
        }
        if self.interventions.is_empty() {
            return Ok(());
        }
        writeln!(f, "Interventions:")?;
        for (level, count) in &self.interventions {
            write!(f, "  {:<16}{count:>5}", level.name())?;
            match self.followed.get(level) {
                Some(followed) => {
                    let known = followed.progress + followed.none;
                    writeln!(f, "   progress followed {} of {known}", followed.progress)?;
                }
                None => writeln!(f)?,
            }
        }
        Ok(())
    }
}
