//! Settings of memory, their defaults, and what each may be.

use std::path::PathBuf;

use crate::domain::model::settings::{Settings, config_section};

config_section! {
    /// Extraction, confidence and retrieval of learnings.
    pub struct MemorySettings {
        /// Whether loops learn, and prompts carry learnings.
        pub enabled: bool = true;
        /// Whether learnings of one repository are told in the other repositories of its owner. What is learnt in a private
        /// repository is then in the prompts of the others.
        pub share_within_owner: bool = false;
        /// Most learnings in a prompt.
        pub limit: u32 = 5, in 0..=100;
        /// Most strategies among them.
        pub strategies: u32 = 3, in 0..=100;
        /// Most antipatterns among them.
        pub antipatterns: u32 = 2, in 0..=100;
        /// Most estimates among them.
        pub estimates: u32 = 1, in 0..=100;
        /// Most conventions among them.
        pub conventions: u32 = 3, in 0..=100;
        /// Confidence, less than which a learning is in no prompt.
        pub min_confidence: f64 = 0.7, in 0.0..=1.0;
        /// Success rate, less than which a learning is in no prompt. Estimates are judged by their confidence alone.
        pub min_success_rate: f64 = 0.6, in 0.0..=1.0;
        /// Confidence from which on a candidate that was seen often enough is believed.
        pub promote_confidence: f64 = 0.6, in 0.0..=1.0, at_most merged_confidence;
        /// Iterations or loops that have to show a candidate before it is believed.
        pub promote_seen: u32 = 2, in 1..=100;
        /// Confidence from which on a merged pull request stands for the second sighting.
        pub merged_confidence: f64 = 0.9, in 0.0..=1.0;
        /// Similarity, above which two learnings are one.
        pub same_above: f64 = 0.85, in 0.0..=1.0;
        /// Completion that an iteration gains at least where its approach is remembered as a strategy.
        pub strategy_gain: f64 = 0.25, in 0.0..=1.0;
        /// Days without use after which confidence halves.
        pub half_life_days: u32 = 180, in 1..=100_000;
        /// Confidence, less than which a learning is archived.
        pub archive_below: f64 = 0.2, in 0.0..=1.0, below min_confidence;
        /// Iterations that one summary of a loop covers.
        pub summary_interval: u32 = 10, in 1..=1_000;
        /// Days that prompts, answers and events of loops are kept.
        pub retention_days: u32 = 30, in 1..=100_000;
        /// Most prompts and answers of a loop that are kept; the oldest go first, summaries stay.
        pub max_raw_turns: u32 = 1_000, in 1..=1_000_000;
        /// Rarest terms of a task that learnings are looked up by; its failing checks, their errors and its files count as well.
        pub query_terms: u32 = 16, in 1..=64;
        /// Learnings that hold any of these terms, more than which no further term is taken; bounds the time of a look-up.
        pub query_postings: u32 = 2_000, in 100..=1_000_000;
        /// Folder of an embedding model in the format of model2vec (`model.safetensors`, `tokenizer.json`, `config.json`);
        /// learnings are then found by meaning, too. Needs a build with the feature `embeddings`.
        pub embeddings: Option<PathBuf> = None;
    }
}

impl Settings for MemorySettings {
    const GROUP: &'static str = "memory";
}
