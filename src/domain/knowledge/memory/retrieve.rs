//! Which learnings a prompt carries: how what was found is ranked.

use super::learning::{Kind, Learning};
use super::settings::MemorySettings;
use super::terms::{MAX_TASK, by_length};
use crate::domain::checks::criteria::TaskType;
use crate::domain::model::ids::{RepoRef, Timestamp};
use crate::domain::model::similarity::{Rarity, Words};

/// What a rule or an estimate of the repository counts where no word is shared: it comes after all that is found by words.
const UNASKED: f64 = 0.005;

/// What is to be remembered about.
#[derive(Debug, Clone, PartialEq)]
pub struct Query {
    /// The task: title, text, failing checks, errors.
    pub text: String,
    /// Its sort.
    pub task_type: TaskType,
    /// Where it is.
    pub repository: RepoRef,
    /// The text's vector, where there is an embedding model.
    pub embedding: Option<Embedding>,
}

/// A text as an embedding model sees it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Embedding {
    /// What the model is known by; vectors of different models say nothing of each other.
    pub model: String,
    /// A vector of length 1; empty where the model knows none of the words.
    pub vector: Vec<f32>,
}

/// Files of an embedding model: its table of vectors, its tokenizer, its description.
pub const EMBEDDING_FILES: [&str; 3] = ["model.safetensors", "tokenizer.json", "config.json"];
/// Why a build cannot use an embedding model.
pub const NO_EMBEDDINGS: &str =
    "this build has no embeddings; build with `cargo build --release --features embeddings`, or leave the key out";

/// A learning that was found, and by what.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// The learning.
    pub learning: Learning,
    /// What the rare words that it holds are worth together, above 0; `None` where it was found otherwise.
    pub by_words: Option<f64>,
    /// Place by an embedding model, from 0, where there is one.
    pub by_vector: Option<usize>,
}

/// What the lists that found a learning count, and what it is for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Weights {
    /// Constant of reciprocal rank fusion, above 0. Smaller than the usual 60, so that the place in a list still counts
    /// beside confidence and success rate.
    pub fusion: f64,
    /// The place by the rare words.
    pub words: f64,
    /// The place by the cosine of all words.
    pub cosine: f64,
    /// The place by an embedding model.
    pub vector: f64,
    /// What a learning for another type of task counts, 0..1.
    pub other_type: f64,
}

impl Default for Weights {
    fn default() -> Self {
        // `docs/memory.md` has what they were tuned on; `vector` is as `cosine`, its next of kin, for want of a model.
        Self { fusion: 10.0, words: 1.0, cosine: 4.0, vector: 4.0, other_type: 0.5 }
    }
}

/// A learning with the score that its place goes by.
#[derive(Debug, Clone, PartialEq)]
pub struct Recalled {
    /// The learning.
    pub learning: Learning,
    /// Reciprocal ranks, times confidence and success rate; comparable within one answer only.
    pub score: f64,
}

/// What a prompt carries of what was found, best first: fused by reciprocal rank, times confidence and success rate,
/// within the limits of each sort and of all.
pub fn rank(query: &Query, found: Vec<Candidate>, settings: &MemorySettings, now: Timestamp) -> Vec<Recalled> {
    rank_by(&Weights::default(), query, found, settings, now)
}

/// As [`rank`], by weights of the caller's.
pub fn rank_by(
    weights: &Weights,
    query: &Query,
    found: Vec<Candidate>,
    settings: &MemorySettings,
    now: Timestamp,
) -> Vec<Recalled> {
    let worthy = |candidate: &Candidate| candidate.learning.is_worth_telling(settings, now);
    let found: Vec<Candidate> = found.into_iter().filter(worthy).collect();
    let scored = score(weights, query, found, settings, now);
    let mut left = Kind::ALL.map(|kind| (kind, quota(kind, settings)));
    let mut fits = |recalled: &Recalled| {
        let quota = left.iter_mut().find(|(kind, _)| *kind == recalled.learning.kind());
        quota.is_some_and(|(_, left)| {
            let free = *left > 0;
            *left = left.saturating_sub(1);
            free
        })
    };
    scored.into_iter().filter(|recalled| fits(recalled)).take(settings.limit as usize).collect()
}

/// All of what was found with their scores, best first; nothing is left out.
fn score(
    weights: &Weights,
    query: &Query,
    found: Vec<Candidate>,
    settings: &MemorySettings,
    now: Timestamp,
) -> Vec<Recalled> {
    let texts: Vec<Words> = found.iter().map(|candidate| Words::of(&candidate.learning.search_text())).collect();
    let by_words = places_by_words(&found, &texts);
    let by_cosine = places_by_cosine(query, &texts);
    let mut scored: Vec<Recalled> = found
        .into_iter()
        .zip(by_words.into_iter().zip(by_cosine))
        .map(|(candidate, (by_words, by_cosine))| {
            let places =
                [(weights.words, by_words), (weights.cosine, by_cosine), (weights.vector, candidate.by_vector)];
            let part = |(weight, place): (f64, Option<usize>)| Some(weight / (weights.fusion + place? as f64));
            let fused: f64 = places.into_iter().filter_map(part).sum();
            let learning = candidate.learning;
            let rate = if learning.kind() == Kind::Estimate { 1.0 } else { learning.success_rate() };
            let mine = learning.task_type == query.task_type || learning.task_type == TaskType::Other;
            let fit = if mine { 1.0 } else { weights.other_type };
            // What is a rule or a figure of this repository is of use also where no word is shared.
            let floor = if matches!(learning.kind(), Kind::Estimate | Kind::Convention) { UNASKED } else { 0.0 };
            Recalled { score: (fused + floor) * learning.confidence_at(now, settings) * rate * fit, learning }
        })
        .collect();
    scored.sort_by(|a, b| b.score.total_cmp(&a.score).then_with(|| a.learning.id.cmp(&b.learning.id)));
    scored
}

/// Places by the rare words, long texts behind short ones; what is worth the same shares its place.
fn places_by_words(found: &[Candidate], texts: &[Words]) -> Vec<Option<usize>> {
    let weighed = || found.iter().zip(texts).filter(|(candidate, _)| candidate.by_words.is_some());
    let words: usize = weighed().map(|(_, text)| text.len()).sum();
    let mean = words.max(1) as f64 / weighed().count().max(1) as f64;
    let worth =
        found.iter().zip(texts).map(|(candidate, text)| Some(by_length(candidate.by_words?, text.len() as f64 / mean)));
    let worth: Vec<Option<f64>> = worth.collect();
    let place = |one: &Option<f64>| one.map(|one| worth.iter().flatten().filter(|other| **other > one).count());
    worth.iter().map(place).collect()
}

/// Places by the cosine of all words, rare ones among the candidates weighing more; `None` where no word is shared.
fn places_by_cosine(query: &Query, texts: &[Words]) -> Vec<Option<usize>> {
    let rarity = Rarity::among(texts);
    let wanted = rarity.weigh(&Words::of(&query.text[..query.text.floor_char_boundary(MAX_TASK)]));
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

fn quota(kind: Kind, settings: &MemorySettings) -> u32 {
    match kind {
        Kind::Strategy => settings.strategies,
        Kind::Antipattern => settings.antipatterns,
        Kind::Estimate => settings.estimates,
        Kind::Convention => settings.conventions,
    }
}
