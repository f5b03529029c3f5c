//! Settings of the engine, taken from the operator's configuration.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use globset::GlobMatcher;

use super::channel_effects::ChannelRetrySettings;
use crate::config::{AssistantChoice, ForgeUpdates, HookProgram, KeySources, MoneyLimits};
use crate::domain::knowledge::intelligence::ContextSettings;
use crate::domain::knowledge::memory::MemorySettings;
use crate::domain::model::ids::{ForgeName, RepoRef};
use crate::domain::providers::backends::{BackendModels, BackendsSettings};
use crate::domain::providers::prices::PriceTable;
use crate::domain::providers::rules::ModelRules;
use crate::domain::report::dashboard_links::DashboardPages;
use crate::domain::trust::egress::Egress;
use crate::domain::trust::images::ImageSettings;
use crate::domain::trust::policy::Policy;
use crate::embed::StaticModel;
use crate::process::sandbox::SandboxSettings;

/// Wait after a failed step, so that a failing store is not called in a tight loop.
const WAIT_AFTER_FAILURE: Duration = Duration::from_secs(1);

/// Pattern of watched repositories: `forge:owner/name` with globs.
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
    /// Watched repositories; empty watches all.
    pub repositories: Vec<RepositoryPattern>,
    /// Source of changes by forge: webhooks or polling. Forges without an entry use webhooks.
    pub updates: HashMap<ForgeName, ForgeUpdates>,
    /// Policy by forge.
    pub policies: HashMap<ForgeName, Policy>,
    /// Configuration keys that the operator sets, each with the place where it is set.
    pub key_sources: KeySources,
    /// Backend of loops that select no other.
    pub default_backend: String,
    /// Models of each backend, by backend name.
    pub models: HashMap<String, BackendModels>,
    /// Settings for selecting a backend; backends that cannot be used here are disabled.
    pub backends: BackendsSettings,
    /// Digest per backend, which changes if its settings, program or key change.
    pub fingerprints: BTreeMap<String, String>,
    /// Name of the provider of a backend's models, by the backend's name; unknown ones are missing.
    pub providers: HashMap<String, &'static str>,
    /// Rules that select a backend's model, by backend name.
    pub rules: HashMap<String, ModelRules>,
    /// Token prices, by backend name.
    pub prices: HashMap<String, PriceTable>,
    /// Context window in tokens, by backend name; unknown ones are missing.
    pub context_windows: HashMap<String, u64>,
    /// Assistant that is asked first, with its model; `None` if none is configured by name.
    pub assistant: Option<AssistantChoice>,
    /// Maximum wait for an assistant's answer; `None` uses the default of the kind of question.
    pub answer_timeout: Option<Duration>,
    /// Settings of context blocks and summaries.
    pub context: ContextSettings,
    /// Settings of memory.
    pub memory: MemorySettings,
    /// Embedding model for looking up learnings, in addition to full-text search.
    pub embedder: Option<Arc<StaticModel>>,
    /// Daily spending limits.
    pub money: MoneyLimits,
    /// Path of this program for agents; `None` if unknown.
    pub program: Option<PathBuf>,
    /// Folder of prompts and agent output.
    pub logs: PathBuf,
    /// Time for which these files and the session memory are kept after a loop's end, and processed deliveries after their receipt.
    pub keep: Duration,
    /// Folder of temporary files of runs.
    pub scratch: PathBuf,
    /// Folder of agent sessions, with one subfolder per loop.
    pub sessions: PathBuf,
    /// Images in issues and comments.
    pub images: ImageSettings,
    /// Folder of the images of loops, with one subfolder per loop.
    pub image_files: PathBuf,
    /// Duration of a lease, which is renewed after a third of this time.
    pub lease: Duration,
    /// Interval of polling for work from other processes.
    pub poll: Duration,
    /// Wait before the outcome of an ambiguous call is looked up, because lists of forges lag.
    pub ambiguity_wait: Duration,
    /// Wait after the first failed call; doubles up to `retry_most`.
    pub retry_first: Duration,
    /// Maximum wait between attempts.
    pub retry_most: Duration,
    /// Retry settings for messages to channels.
    pub channel_retry: ChannelRetrySettings,
    /// Time that running agents get when the service stops.
    pub stop_grace: Duration,
    /// Interval of reconciliation of repositories with open loops.
    pub reconcile_live: Duration,
    /// Interval of reconciliation of all watched repositories.
    pub reconcile_idle: Duration,
    /// Minimum age, in milliseconds, at which an event without a delivery is considered missed.
    pub missed_event_after_ms: i64,
    /// Whether agents and checks run in bubblewrap sandboxes.
    pub sandboxed: bool,
    /// Settings of these sandboxes.
    pub sandbox: SandboxSettings,
    /// Description of the sandbox for people.
    pub sandbox_words: String,
    /// Reason why no loop may run, if the required sandbox is missing.
    pub sandbox_refusal: Option<String>,
    /// Reason why no loop of a public repository may run, if its sandbox would be too weak.
    pub sandbox_refusal_of_public: Option<String>,
    /// Network destinations that agents may reach.
    pub agent_egress: Egress,
    /// Hooks of the operator.
    pub hooks: Vec<HookProgram>,
    /// Pages of the dashboard that comments link to; `None` if only this machine can reach the dashboard.
    pub dashboard: Option<DashboardPages>,
    /// Whether fetches omit blobs if the forge supports it.
    pub partial_clone: bool,
    /// Whether the bot's own account may start loops by the label, as in a trial with a scripted agent.
    pub is_trial: bool,
}

impl EngineSettings {
    /// Whether a repository is watched.
    pub fn watches(&self, repo: &RepoRef) -> bool {
        let name = repo.full_name();
        self.repositories.is_empty()
            || self.repositories.iter().any(|p| p.forge == repo.forge && p.name.is_match(&name))
    }

    /// Returns the operator's policy for a forge.
    pub fn policy(&self, forge: &ForgeName) -> Policy {
        self.policies.get(forge).cloned().unwrap_or_default()
    }

    /// Returns the source of changes of a forge.
    pub fn updates(&self, forge: &ForgeName) -> ForgeUpdates {
        self.updates.get(forge).copied().unwrap_or_default()
    }

    /// Returns the wait before the next step of a task; a wake-up ends the wait early.
    pub(super) fn wait_after_step(&self, failed: bool) -> Duration {
        if failed { WAIT_AFTER_FAILURE } else { self.poll }
    }

    /// Returns the wait before attempt number `attempts` (from 1), in milliseconds.
    pub fn backoff_ms(&self, attempts: u32) -> i64 {
        let first = i64::try_from(self.retry_first.as_millis()).unwrap_or(i64::MAX);
        let most = i64::try_from(self.retry_most.as_millis()).unwrap_or(i64::MAX);
        first.saturating_mul(1 << attempts.saturating_sub(1).min(20)).min(most)
    }
}
