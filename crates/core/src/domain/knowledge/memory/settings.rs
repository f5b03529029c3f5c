//! Settings of memory, with their defaults and ranges.

use std::path::PathBuf;

use crate::domain::model::settings::{Settings, config_section};

config_section! {
    /// Extraction, confidence and retrieval of learnings.
    pub struct MemorySettings {
        /// Whether loops have a memory: learnings, reflections, and the tool `session_memory` of agents.
        pub enabled: bool = true;
        /// Whether loops learn from each other: learnings, and estimates from earlier loops. Otherwise a loop has only its own
        /// session memory.
        pub across_loops: bool = true;
        /// Whether learnings of one repository are used in the other repositories of its owner. Learnings of a private
        /// repository are then in the prompts of the others.
        pub share_within_owner: bool = false;
        /// Maximum number of learnings in a prompt.
        #[schemars(skip)]
        pub limit: u32 = 5, in 0..=100;
        /// Maximum number of strategies in a prompt.
        #[schemars(skip)]
        pub strategies: u32 = 3, in 0..=100;
        /// Maximum number of antipatterns in a prompt.
        #[schemars(skip)]
        pub antipatterns: u32 = 2, in 0..=100;
        /// Maximum number of estimates in a prompt.
        #[schemars(skip)]
        pub estimates: u32 = 1, in 0..=100;
        /// Maximum number of conventions in a prompt.
        #[schemars(skip)]
        pub conventions: u32 = 3, in 0..=100;
        /// Minimum confidence of a learning in a prompt.
        #[schemars(skip)]
        pub min_confidence: f64 = 0.7, in 0.0..=1.0;
        /// Minimum success rate of a learning in a prompt. Does not apply to estimates.
        #[schemars(skip)]
        pub min_success_rate: f64 = 0.6, in 0.0..=1.0;
        /// Minimum confidence for a candidate with enough sightings to become active.
        #[schemars(skip)]
        pub promote_confidence: f64 = 0.6, in 0.0..=1.0, at_most merged_confidence;
        /// Number of iterations or loops that must confirm a candidate before it becomes active.
        #[schemars(skip)]
        pub promote_seen: u32 = 2, in 1..=100;
        /// Minimum confidence with which a merged pull request replaces the second sighting.
        #[schemars(skip)]
        pub merged_confidence: f64 = 0.9, in 0.0..=1.0;
        /// Number of loops of a repository in which a review remark has to be made before it is proposed as a convention. A proposal
        /// is in no prompt until a maintainer accepts it.
        #[schemars(skip)]
        pub propose_after: u32 = 3, in 2..=100;
        /// Minimum similarity of words for two review remarks to count as the same request. Of 50 labeled pairs of
        /// equal requests, the default recognizes 44. Of 50 pairs of different requests, half of which have words in
        /// common on purpose, it wrongly accepts 16. With 0.7, it recognizes 20 and wrongly accepts 2.
        #[schemars(skip)]
        pub remark_similarity: f64 = 0.45, in 0.0..=1.0;
        /// Similarity above which two learnings are merged.
        #[schemars(skip)]
        pub same_above: f64 = 0.85, in 0.0..=1.0;
        /// Minimum increase of completion for an approach to be remembered as a strategy.
        #[schemars(skip)]
        pub strategy_gain: f64 = 0.25, in 0.0..=1.0;
        /// Days without use after which confidence halves.
        #[schemars(skip)]
        pub half_life_days: u32 = 180, in 1..=100_000;
        /// Confidence below which a learning is archived.
        #[schemars(skip)]
        pub archive_below: f64 = 0.2, in 0.0..=1.0, below min_confidence;
        /// Number of iterations per summary of a loop; at most half of the loop's maximum.
        pub summary_interval: u32 = 10, in 1..=1_000;
        /// Maximum number of prompts and answers kept per loop. The oldest are deleted first; summaries are kept.
        pub max_raw_turns: u32 = 1_000, in 1..=1_000_000;
        /// Maximum number of rare words of a task that are searched for. Words of its failing checks, their errors and its
        /// files count too.
        #[schemars(skip)]
        pub query_terms: u32 = 16, in 1..=64;
        /// Maximum number of learnings that contain the searched words, after which no further word is added; bounds the time
        /// of a search.
        #[schemars(skip)]
        pub query_postings: u32 = 2_000, in 100..=1_000_000;
        /// Folder of an embedding model in the format of model2vec (`model.safetensors`, `tokenizer.json`, `config.json`);
        /// learnings are then also found by meaning. Needs a build with the feature `embeddings`.
        pub embeddings: Option<PathBuf> = None;
    }
}

impl MemorySettings {
    /// Whether loops learn from each other.
    pub fn learns(&self) -> bool {
        self.enabled && self.across_loops
    }
}

impl Settings for MemorySettings {
    const GROUP: &'static str = "memory";
}
