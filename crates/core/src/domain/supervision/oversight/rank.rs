//! Rank of an iteration's causes: the order in which they are reported to people and agents.

use std::cmp::Reverse;

use super::DetectionKind;
use super::basis::Basis;
use super::detection::DetectionSeverity;
use super::intervention::InterventionLevel;

/// Returns a cause's sort key among its iteration's causes. The lowest key is the headline. No other code orders causes.
/// Causes that are only recorded come last, and causes based on text alone come after the others. The remaining criteria
/// are, in order: the level of the intervention, the basis, the severity, and the order in the table of detections, which
/// starts with the most specific ones.
pub fn cause_rank(
    kind: DetectionKind,
    basis: Basis,
    severity: DetectionSeverity,
    level: InterventionLevel,
) -> impl Ord + Copy {
    let recorded = level == InterventionLevel::Log;
    (recorded, basis == Basis::Words, Reverse(level), basis, Reverse(severity), kind)
}
