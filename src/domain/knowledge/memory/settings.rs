//! Settings of memory, their defaults, and what each may be.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::domain::model::settings::Settings;

/// What is learnt, what is believed, and how much of it a prompt carries.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MemorySettings {
    /// Whether loops learn, and prompts carry learnings.
    pub enabled: bool,
    /// Whether learnings of one repository are told in the other repositories of its owner. What is learnt in a private
    /// repository is then in the prompts of the others.
    pub share_within_owner: bool,
    /// Most learnings in a prompt.
    pub limit: u32,
    /// Most strategies among them.
    pub strategies: u32,
    /// Most antipatterns among them.
    pub antipatterns: u32,
    /// Most estimates among them.
    pub estimates: u32,
    /// Most conventions among them.
    pub conventions: u32,
    /// Confidence, less than which a learning is in no prompt, 0..1.
    pub min_confidence: f64,
    /// Success rate, less than which a learning is in no prompt, 0..1. Estimates are judged by their confidence alone.
    pub min_success_rate: f64,
    /// Confidence from which on a candidate that was seen often enough is believed, 0..1.
    pub promote_confidence: f64,
    /// Iterations or loops that have to show a candidate before it is believed.
    pub promote_seen: u32,
    /// Confidence from which on a merged pull request stands for the second sighting, 0..1.
    pub merged_confidence: f64,
    /// Similarity, above which two learnings are one, 0..1.
    pub same_above: f64,
    /// Completion that an iteration gains at least where its approach is remembered as a strategy, 0..1.
    pub strategy_gain: f64,
    /// Days without use after which confidence halves.
    pub half_life_days: u32,
    /// Confidence, less than which a learning is archived, 0..1.
    pub archive_below: f64,
    /// Iterations that one summary of a loop covers.
    pub summary_interval: u32,
    /// Days that prompts, answers and events of loops are kept.
    pub retention_days: u32,
    /// Most prompts and answers of a loop that are kept; the oldest go first, summaries stay.
    pub max_raw_turns: u32,
    /// Rarest terms of a task that learnings are looked up by; its failing checks, their errors and its files count as well.
    pub query_terms: u32,
    /// Learnings that hold any of these terms, more than which no further term is taken; bounds the time of a look-up.
    pub query_postings: u32,
    /// Folder of an embedding model in the format of model2vec (`model.safetensors`, `tokenizer.json`, `config.json`);
    /// learnings are then found by meaning, too. Needs a build with the feature `embeddings`.
    pub embeddings: Option<PathBuf>,
}

impl Default for MemorySettings {
    fn default() -> Self {
        Self {
            enabled: true,
            share_within_owner: false,
            limit: 5,
            strategies: 3,
            antipatterns: 2,
            estimates: 1,
            conventions: 3,
            min_confidence: 0.7,
            min_success_rate: 0.6,
            promote_confidence: 0.6,
            promote_seen: 2,
            merged_confidence: 0.9,
            same_above: 0.85,
            strategy_gain: 0.25,
            half_life_days: 180,
            archive_below: 0.2,
            summary_interval: 10,
            retention_days: 30,
            max_raw_turns: 1_000,
            query_terms: 16,
            query_postings: 2_000,
            embeddings: None,
        }
    }
}

impl Settings for MemorySettings {
    const GROUP: &'static str = "memory";

    const RANGES: &'static [(&'static str, f64, f64)] = &[
        ("limit", 0.0, 100.0),
        ("strategies", 0.0, 100.0),
        ("antipatterns", 0.0, 100.0),
        ("estimates", 0.0, 100.0),
        ("conventions", 0.0, 100.0),
        ("min_confidence", 0.0, 1.0),
        ("min_success_rate", 0.0, 1.0),
        ("promote_confidence", 0.0, 1.0),
        ("promote_seen", 1.0, 100.0),
        ("merged_confidence", 0.0, 1.0),
        ("same_above", 0.0, 1.0),
        ("strategy_gain", 0.0, 1.0),
        ("half_life_days", 1.0, 100_000.0),
        ("archive_below", 0.0, 1.0),
        ("summary_interval", 1.0, 1_000.0),
        ("retention_days", 1.0, 100_000.0),
        ("max_raw_turns", 1.0, 1_000_000.0),
        ("query_terms", 1.0, 64.0),
        ("query_postings", 100.0, 1_000_000.0),
    ];

    const BELOW: &'static [(&'static str, &'static str)] = &[("archive_below", "min_confidence")];

    const AT_MOST: &'static [(&'static str, &'static str)] = &[("promote_confidence", "merged_confidence")];
}
