//! Rank of an iteration's causes: the one order in which people and agents are told of them.

use std::cmp::Reverse;

use super::DetectionKind;
use super::basis::Basis;
use super::detection::DetectionSeverity;
use super::intervention::InterventionLevel;

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
