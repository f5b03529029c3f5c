//! Rank of the causes of an iteration: the order in which they are reported to people and agents.

use std::cmp::Reverse;

use super::DetectionKind;
use super::basis::Basis;
use super::detection::DetectionSeverity;
use super::intervention::InterventionLevel;

/// Returns the sort key of a cause among those of its iteration. The lowest key is the headline. No other code orders causes.
/// Causes that are only recorded come last, and causes that are based on text alone come after the others. Then follow, in this
/// order, the level of the intervention, the basis, the severity, and the order in the table of detections, which begins with the
/// most specific ones.
pub fn cause_rank(
    kind: DetectionKind,
    basis: Basis,
    severity: DetectionSeverity,
    level: InterventionLevel,
) -> impl Ord + Copy {
    let recorded = level == InterventionLevel::Log;
    (recorded, basis == Basis::Words, Reverse(level), basis, Reverse(severity), kind)
}
