//! Merges a new learning with equal, similar or contradictory known learnings.

use super::learning::{Content, Learning, LearningKind, LearningState};
use super::settings::MemorySettings;
use crate::domain::model::ids::Timestamp;
use crate::domain::model::similarity::similarity;

/// Share of its confidence that a learning loses if it is contradicted by a learning with many more sightings. With equal
/// numbers of sightings, it loses half as much.
const CONTRADICTED: f64 = 0.6;

/// Limit for the effect of one sighting on the confidence, as a share of the difference between the two confidences. It is a
/// minimum if the sighting increases the confidence, and a maximum if it decreases the confidence.
const RENEWED: f64 = 0.2;

/// Whether two learnings are the same: repository, kind and task type are equal, and the texts are similar.
pub fn are_same(a: &Learning, b: &Learning, settings: &MemorySettings) -> bool {
    let alike = a.kind() == b.kind() && a.task_type == b.task_type && is_same_repository(a, b);
    alike && (a.id == b.id || a.kind() == LearningKind::Estimate || is_alike(a, b, settings))
}

/// Whether one learning recommends an approach and the other one warns about it.
pub fn contradicts(a: &Learning, b: &Learning, settings: &MemorySettings) -> bool {
    let opposite = matches!(
        (a.kind(), b.kind()),
        (LearningKind::Strategy, LearningKind::Antipattern) | (LearningKind::Antipattern, LearningKind::Strategy)
    );
    opposite && a.task_type == b.task_type && is_same_repository(a, b) && is_alike(a, b, settings)
}

/// Returns a known learning updated with a new sighting. Weights the confidence by the numbers of sightings, within the limits
/// for one sighting, and joins the sources. A sighting from a known source has no effect.
#[must_use]
pub fn absorb(known: &Learning, new: &Learning, settings: &MemorySettings, now: Timestamp) -> Learning {
    let mut merged = known.clone();
    let fresh = new.sources.iter().filter(|source| merged.add_source(source)).count();
    if fresh == 0 {
        return merged;
    }
    let (before, after) = (f64::from(known.seen.max(1)), f64::from(new.seen.max(1)));
    let (confidence, share) = (known.confidence_at(now, settings), after / (before + after));
    // Every sighting is a confirmation. A sighting that increases the confidence has a minimum weight, so that a learning
    // can recover; a less confident sighting has a maximum weight.
    let share = if new.confidence > confidence { share.max(RENEWED) } else { share.min(RENEWED) };
    merged.content = joined(&known.content, &new.content);
    merged.confidence = match &merged.content {
        Content::Estimate { iterations, .. } => estimate_confidence(iterations.samples),
        _ => confidence + share * (new.confidence - confidence),
    };
    merged.evidence = known.evidence.plus(new.evidence);
    merged.merged |= new.merged;
    if merged.about.len() < new.about.len() {
        merged.about.clone_from(&new.about);
    }
    merged.updated_at = now;
    if merged.state == LearningState::Archived && merged.confidence >= settings.promote_confidence {
        merged.state = LearningState::Candidate;
    }
    promote(&mut merged, settings);
    merged
}

/// Result of adding a learning.
#[derive(Debug, Clone, PartialEq)]
pub enum AddedLearning {
    /// The same learning is already known from the same source and remains unchanged.
    Known(Learning),
    /// The learning was merged into a known learning, given in its new state.
    Merged(Learning),
    /// The learning is new.
    New {
        /// New learning.
        learning: Learning,
        /// Contradicted learnings, whose confidence was lowered.
        lowered: Vec<Learning>,
    },
}

/// Adds a learning. `near` has similar or contradictory known learnings. The new learning is merged into the first equal
/// one. Otherwise it is added, and both sides of a contradiction lose confidence.
pub fn take_in(mut new: Learning, near: &[Learning], settings: &MemorySettings, now: Timestamp) -> AddedLearning {
    let itself = near.iter().find(|known| known.id == new.id);
    if let Some(known) = itself.or_else(|| near.iter().find(|known| are_same(known, &new, settings))) {
        let merged = absorb(known, &new, settings, now);
        return if merged == *known { AddedLearning::Known(merged) } else { AddedLearning::Merged(merged) };
    }
    let mut lowered = Vec::new();
    for known in near {
        if contradicts(known, &new, settings) {
            let mut known = known.clone();
            contradict(&mut known, &mut new, settings, now);
            lowered.push(known);
        }
    }
    AddedLearning::New { learning: new, lowered }
}

/// Activates a candidate with enough sightings, or with a high confidence and use in a merged pull request.
pub fn promote(learning: &mut Learning, settings: &MemorySettings) {
    let often = learning.seen >= settings.promote_seen;
    let merged = learning.merged && learning.confidence >= settings.merged_confidence;
    if learning.state == LearningState::Candidate
        && learning.confidence >= settings.promote_confidence
        && (often || merged)
    {
        learning.state = LearningState::Active;
    }
}

/// Lowers the confidence of two contradictory learnings, each in proportion to the other's share of sightings.
pub fn contradict(a: &mut Learning, b: &mut Learning, settings: &MemorySettings, now: Timestamp) {
    let (left, right) = (f64::from(a.seen.max(1)), f64::from(b.seen.max(1)));
    for (one, against) in [(a, right), (b, left)] {
        one.confidence = one.confidence_at(now, settings) * (1.0 - CONTRADICTED * against / (left + right));
        one.updated_at = now;
        if one.confidence < settings.archive_below {
            one.state = LearningState::Archived;
        }
    }
}

/// Returns the confidence of an estimate from `samples` loops: 0.5 for one, 0.67 for two, 0.75 for three.
pub(super) fn estimate_confidence(samples: u64) -> f64 {
    samples as f64 / (samples as f64 + 1.0)
}

fn is_same_repository(a: &Learning, b: &Learning) -> bool {
    a.repository.forge == b.repository.forge && a.repository.id == b.repository.id
}

fn is_alike(a: &Learning, b: &Learning, settings: &MemorySettings) -> bool {
    similarity(a.content.gist(), b.content.gist()) > settings.same_above
}

/// Joins two contents: adds up statistics, and fills empty texts.
fn joined(known: &Content, new: &Content) -> Content {
    let filled = |known: &String, new: &String| if known.is_empty() { new.clone() } else { known.clone() };
    match (known.clone(), new) {
        (
            Content::Strategy { approach, tools, resolution, iterations },
            Content::Strategy { tools: new_tools, resolution: new_resolution, iterations: new_iterations, .. },
        ) => Content::Strategy {
            approach,
            tools: if tools.is_empty() { new_tools.clone() } else { tools },
            resolution: filled(&resolution, new_resolution),
            iterations: iterations.plus(*new_iterations),
        },
        (
            Content::Antipattern { pattern, consequence, alternative },
            Content::Antipattern { consequence: new_consequence, alternative: new_alternative, .. },
        ) => Content::Antipattern {
            pattern,
            consequence: filled(&consequence, new_consequence),
            alternative: filled(&alternative, new_alternative),
        },
        (
            Content::Estimate { iterations, minutes, cost_usd },
            Content::Estimate { iterations: new_iterations, minutes: new_minutes, cost_usd: new_cost },
        ) => Content::Estimate {
            iterations: iterations.plus(*new_iterations),
            minutes: minutes.plus(*new_minutes),
            cost_usd: cost_usd.plus(*new_cost),
        },
        (known, _) => known,
    }
}
