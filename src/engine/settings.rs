//! What the engine has to know of the operator's configuration.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use globset::GlobMatcher;

use super::notify::NotifySettings;
use crate::config::MoneyLimits;
use crate::domain::knowledge::intelligence::ContextSettings;
use crate::domain::knowledge::memory::MemorySettings;
use crate::domain::model::ids::{ForgeName, RepoRef};
use crate::domain::providers::backends::{BackendModels, BackendsSettings};
use crate::domain::providers::prices::PriceTable;
use crate::domain::providers::rules::ModelRules;
use crate::domain::trust::egress::Egress;
use crate::domain::trust::policy::Policy;
use crate::embed::StaticModel;

/// Repositories that are watched: `forge:owner/name` with globs.
#[derive(Debug, Clone)]
pub struct RepositoryPattern {
    /// Forge.
    pub forge: ForgeName,
    /// Glob over `owner/name`.
    pub name: GlobMatcher,
}

/// Settings of the engine.
#[derive(Debug, Clone)]
pub struct EngineSettings {
    /// Watched repositories; empty for all.
    pub repositories: Vec<RepositoryPattern>,
    /// Policy by forge.
    pub policies: HashMap<ForgeName, Policy>,
    /// Backend that is used where a loop names none.
    pub default_backend: String,
    /// Models of a backend, by its name.
    pub models: HashMap<String, BackendModels>,
    /// What the choice of a backend depends on; one that cannot be used here is switched off.
    pub backends: BackendsSettings,
    /// For each backend a text that changes when its settings, its program or its key do.
    pub fingerprints: BTreeMap<String, String>,
    /// Which model a backend is asked for, by its name.
    pub rules: HashMap<String, ModelRules>,
    /// What a backend's tokens cost, by its name.
    pub prices: HashMap<String, PriceTable>,
    /// Tokens that fit into a backend's context, by its name; those of which nobody said it are missing.
    pub context_windows: HashMap<String, u64>,
    /// Longest wait for an assistant's answer; that of the sort of question where there is none.
    pub answer_timeout: Option<Duration>,
    /// How long context blocks are, and who writes them and the summaries.
    pub context: ContextSettings,
    /// What loops learn, and how much of it a prompt carries.
    pub memory: MemorySettings,
    /// The embedding model that learnings are found by, beside their words.
    pub embedder: Option<Arc<StaticModel>>,
    /// Money that is spent at most within a day.
    pub money: MoneyLimits,
    /// This program, as agents can call it; `None` where that is not known.
    pub program: Option<PathBuf>,
    /// Where prompts, reports and agents' output are kept.
    pub logs: PathBuf,
    /// How long they are kept after a loop's end, and handled deliveries against replays.
    pub keep: Duration,
    /// Scratch space of runs.
    pub scratch: PathBuf,
    /// Where what agents need to go on with their sessions is kept, a folder for each loop.
    pub sessions: PathBuf,
    /// Lease of a piece of work; renewed at a third of it.
    pub lease: Duration,
    /// Longest sleep between two looks for work of other processes.
    pub poll: Duration,
    /// Wait after a call whose outcome is unknown, before it is looked up: lists lag behind.
    pub ambiguity_wait: Duration,
    /// First wait after a failed call; doubles up to `retry_most`.
    pub retry_first: Duration,
    /// Longest wait between two tries.
    pub retry_most: Duration,
    /// How messages to channels are tried.
    pub notify: NotifySettings,
    /// How long agents get when the service stops.
    pub stop_grace: Duration,
    /// Time between two reconciliations where loops live.
    pub reconcile_live: Duration,
    /// Time between two reconciliations where none live.
    pub reconcile_idle: Duration,
    /// How long an event may be under way before it counts as missed, milliseconds.
    pub event_patience_ms: i64,
    /// Whether agents and checks run in bubblewrap.
    pub sandboxed: bool,
    /// Sandbox for people.
    pub sandbox_words: String,
    /// Why no loop may run, where the sandbox is not what is required.
    pub sandbox_refusal: Option<String>,
    /// What agents may reach.
    pub agent_egress: Egress,
    /// Whether fetches leave blobs out where the forge can.
    pub partial_clone: bool,
}

impl EngineSettings {
    /// Whether a repository is watched.
    pub fn watches(&self, repo: &RepoRef) -> bool {
        let name = repo.full_name();
        self.repositories.is_empty()
            || self.repositories.iter().any(|p| p.forge == repo.forge && p.name.is_match(&name))
    }

    /// The operator's policy for a forge.
    pub fn policy(&self, forge: &ForgeName) -> Policy {
        self.policies.get(forge).cloned().unwrap_or_default()
    }

    /// Wait before try number `attempts` (from 1).
    pub fn backoff_ms(&self, attempts: u32) -> i64 {
        let first = i64::try_from(self.retry_first.as_millis()).unwrap_or(i64::MAX);
        let most = i64::try_from(self.retry_most.as_millis()).unwrap_or(i64::MAX);
        first.saturating_mul(1 << attempts.saturating_sub(1).min(20)).min(most)
    }
}
