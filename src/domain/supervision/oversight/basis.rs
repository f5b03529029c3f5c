//! Basis of detections: how directly their evidence was measured, and the rank of an iteration's causes by it.

use std::cmp::Reverse;

use serde::{Deserialize, Serialize};

use super::DetectionKind;
use super::detection::DetectionSeverity;
use super::intervention::InterventionLevel;

/// Basis of a signal or a detection, most direct first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// Counts, exit codes, outputs of checks, and trees.
    Measured,
    /// Rates, trends and estimates that are computed from measurements.
    Derived,
    /// Words of the agent and of the task.
    Words,
}

impl Basis {
    /// All values, most direct first.
    pub const ALL: [Self; 3] = [Self::Measured, Self::Derived, Self::Words];

    /// Returns its name, as in the documentation.
    pub fn name(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Derived => "derived",
            Self::Words => "words",
        }
    }

    /// Returns the strongest intervention that it supports: words alone neither pause nor end a loop.
    pub fn strongest(self) -> InterventionLevel {
        match self {
            Self::Measured | Self::Derived => InterventionLevel::Abort,
            Self::Words => InterventionLevel::Redirect,
        }
    }
}

/// Returns the sort key of a cause among those of its iteration; the least is the headline, and the only place where causes
/// are ordered. A cause that is only recorded comes after those that something is done about, and one that rests on words
/// alone after the others. Then the level of the intervention decides, then the basis, then the severity, then the table of
/// detections, which begins with the most specific ones.
pub fn cause_rank(
    kind: DetectionKind,
    basis: Basis,
    severity: DetectionSeverity,
    level: InterventionLevel,
) -> impl Ord + Copy {
    let recorded = level == InterventionLevel::Log;
    (recorded, basis == Basis::Words, Reverse(level), basis, Reverse(severity), kind)
}
