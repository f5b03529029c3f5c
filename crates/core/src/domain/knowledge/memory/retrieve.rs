//! Ranks found learnings and selects them for a prompt.

use super::learning::{Learning, LearningKind};
use super::settings::MemorySettings;
use super::terms::{MAX_TASK, by_length};
use crate::domain::checks::criteria::TaskType;
use crate::domain::model::ids::{RepoRef, Timestamp};
use crate::domain::model::similarity::{Rarity, WordCounts};

/// Score of a rule or an estimate that shares no word with the query. It ranks after all learnings that share one.
const UNASKED: f64 = 0.005;

/// Query for learnings.
#[derive(Debug, Clone, PartialEq)]
pub struct LearningQuery {
    /// Task: title, text, failing checks, errors.
    pub text: String,
    /// Type of the task.
    pub task_type: TaskType,
    /// Owner and name of the repository.
    pub repository: RepoRef,
    /// Embedding of the text; `None` without an embedding model.
    pub embedding: Option<Embedding>,
}

/// Embedding of a text.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Embedding {
    /// Identifier of the model; vectors of different models are not comparable.
    pub model: String,
    /// Unit vector; empty if the model knows none of the words.
    pub vector: Vec<f32>,
}

impl Embedding {
    /// Returns the cosine of two embeddings of the same model, -1..1; `None` if one is empty or the models differ.
    pub fn cosine(&self, other: &Self) -> Option<f64> {
        let comparable =
            self.model == other.model && self.vector.len() == other.vector.len() && !self.vector.is_empty();
        let product = || self.vector.iter().zip(&other.vector).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
        comparable.then(|| product().clamp(-1.0, 1.0))
    }
}

/// Files of an embedding model: vectors, tokenizer, description.
pub const EMBEDDING_FILES: [&str; 3] = ["model.safetensors", "tokenizer.json", "config.json"];
/// Reason why a build cannot use an embedding model.
pub const NO_EMBEDDINGS: &str =
    "this build has no embeddings; build with `cargo build --release --features embeddings`, or remove the key";

/// Learning found by a search.
#[derive(Debug, Clone, PartialEq)]
pub struct LearningCandidate {
    /// Learning.
    pub learning: Learning,
    /// Sum of the weights of the learning's rare words, above 0; `None` if it was found differently.
    pub by_words: Option<f64>,
    /// 0-based rank by the embedding model; `None` without a model.
    pub by_vector: Option<usize>,
}

/// Weights for combining the ranked lists.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Weights {
    /// Constant of reciprocal rank fusion, above 0. It is smaller than the usual 60, so that ranks matter beside confidence
    /// and success rate.
    pub fusion: f64,
    /// Weight of the rank by rare words.
    pub words: f64,
    /// Weight of the rank by cosine similarity of all words.
    pub cosine: f64,
    /// Weight of the rank by an embedding model.
    pub vector: f64,
    /// Factor for a learning of another task type, 0..1.
    pub other_type: f64,
}

impl Default for Weights {
    fn default() -> Self {
        // `docs/research/memory.md` describes the tuning. `vector` equals `cosine`, because no model was available for
        // tuning.
        Self { fusion: 10.0, words: 1.0, cosine: 4.0, vector: 4.0, other_type: 0.5 }
    }
}

/// Learning, with its score.
#[derive(Debug, Clone, PartialEq)]
pub struct RankedLearning {
    /// Learning.
    pub learning: Learning,
    /// Score: fused reciprocal ranks, multiplied by confidence and success rate. Comparable only within one result.
    pub score: f64,
}

/// Returns the learnings for a prompt, best first. Combines the ranked lists by reciprocal rank fusion, multiplies by
/// confidence and success rate, and applies the limits per kind and in total.
pub fn rank(
    query: &LearningQuery,
    found: Vec<LearningCandidate>,
    settings: &MemorySettings,
    now: Timestamp,
) -> Vec<RankedLearning> {
    rank_by(&Weights::default(), query, found, settings, now)
}

/// Ranks learnings like [`rank`], with the given weights.
pub fn rank_by(
    weights: &Weights,
    query: &LearningQuery,
    found: Vec<LearningCandidate>,
    settings: &MemorySettings,
    now: Timestamp,
) -> Vec<RankedLearning> {
    let worthy = |candidate: &LearningCandidate| candidate.learning.is_worth_telling(settings, now);
    let found: Vec<LearningCandidate> = found.into_iter().filter(worthy).collect();
    let scored = score(weights, query, found, settings, now);
    let mut quotas = LearningKind::ALL.map(|kind| (kind, quota(kind, settings)));
    let mut fits = |recalled: &RankedLearning| {
        let quota = quotas.iter_mut().find(|(kind, _)| *kind == recalled.learning.kind());
        quota.is_some_and(|(_, unused)| {
            let free = *unused > 0;
            *unused = unused.saturating_sub(1);
            free
        })
    };
    scored.into_iter().filter(|recalled| fits(recalled)).take(settings.limit as usize).collect()
}

/// Returns the scores of all candidates, best first.
fn score(
    weights: &Weights,
    query: &LearningQuery,
    found: Vec<LearningCandidate>,
    settings: &MemorySettings,
    now: Timestamp,
) -> Vec<RankedLearning> {
    let texts: Vec<WordCounts> =
        found.iter().map(|candidate| WordCounts::of(&candidate.learning.search_text())).collect();
    let by_words = places_by_words(&found, &texts);
    let by_cosine = places_by_cosine(query, &texts);
    let mut scored: Vec<RankedLearning> = found
        .into_iter()
        .zip(by_words.into_iter().zip(by_cosine))
        .map(|(candidate, (by_words, by_cosine))| {
            let places =
                [(weights.words, by_words), (weights.cosine, by_cosine), (weights.vector, candidate.by_vector)];
            let part = |(weight, place): (f64, Option<usize>)| Some(weight / (weights.fusion + place? as f64));
            let fused: f64 = places.into_iter().filter_map(part).sum();
            let learning = candidate.learning;
            let rate = if learning.kind() == LearningKind::Estimate { 1.0 } else { learning.success_rate() };
            let mine = learning.task_type == query.task_type || learning.task_type == TaskType::Other;
            let fit = if mine { 1.0 } else { weights.other_type };
            // Rules and estimates of this repository are useful even without a common word.
            let floor = if matches!(learning.kind(), LearningKind::Estimate | LearningKind::Convention) {
                UNASKED
            } else {
                0.0
            };
            RankedLearning { score: (fused + floor) * learning.confidence_at(now, settings) * rate * fit, learning }
        })
        .collect();
    scored.sort_by(|a, b| b.score.total_cmp(&a.score).then_with(|| a.learning.id.cmp(&b.learning.id)));
    scored
}

/// Returns the ranks by rare words. Long texts rank lower, and equal weights share a rank.
fn places_by_words(found: &[LearningCandidate], texts: &[WordCounts]) -> Vec<Option<usize>> {
    let weighed = || found.iter().zip(texts).filter(|(candidate, _)| candidate.by_words.is_some());
    let words: usize = weighed().map(|(_, text)| text.len()).sum();
    let mean = words.max(1) as f64 / weighed().count().max(1) as f64;
    let worth =
        found.iter().zip(texts).map(|(candidate, text)| Some(by_length(candidate.by_words?, text.len() as f64 / mean)));
    let worth: Vec<Option<f64>> = worth.collect();
    let place = |one: &Option<f64>| one.map(|one| worth.iter().flatten().filter(|other| **other > one).count());
    worth.iter().map(place).collect()
}

/// Returns the ranks by cosine similarity of all words, weighted by their rarity among the candidates. `None` for a
/// candidate without a word in common with the query.
fn places_by_cosine(query: &LearningQuery, texts: &[WordCounts]) -> Vec<Option<usize>> {
    let rarity = Rarity::among(texts);
    let wanted = rarity.weigh(&WordCounts::of(&query.text[..query.text.floor_char_boundary(MAX_TASK)]));
    let mut alike: Vec<(f64, usize)> = texts.iter().map(|text| wanted.cosine(&rarity.weigh(text))).zip(0..).collect();
    alike.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    let mut places = vec![None; texts.len()];
    for (place, (cosine, at)) in alike.into_iter().enumerate() {
        if cosine > 0.0 {
            places[at] = Some(place);
        }
    }
    places
}

fn quota(kind: LearningKind, settings: &MemorySettings) -> u32 {
    match kind {
        LearningKind::Strategy => settings.strategies,
        LearningKind::Antipattern => settings.antipatterns,
        LearningKind::Estimate => settings.estimates,
        LearningKind::Convention => settings.conventions,
    }
}
