//! Settings of the engine's services, taken from the operator's configuration: one section per service.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::time::Duration;

use crate::config::{AssistantChoice, ForgeUpdates, KeySources, MoneyLimits, RepoPattern};
use crate::domain::knowledge::intelligence::ContextSettings;
use crate::domain::model::ids::{ForgeName, RepoRef};
use crate::domain::providers::backends::{BackendModels, BackendsSettings};
use crate::domain::providers::prices::PriceTable;
use crate::domain::providers::rules::ModelRules;
use crate::domain::trust::egress::Egress;
use crate::domain::trust::policy::Policy;
use crate::forge::http::jitter;
use crate::process::SandboxTier;
use crate::process::sandbox::SandboxSettings;

/// Wait after a failed step, so that a failing store is not called in a tight loop.
const WAIT_AFTER_FAILURE: Duration = Duration::from_secs(1);

/// Watched repositories and the operator's policies.
#[derive(Debug, Clone)]
pub struct ForgeSettings {
    /// Watched repositories; empty watches all.
    pub repositories: Vec<RepoPattern>,
    /// Source of changes by forge: webhooks or polling. Forges without an entry use webhooks.
    pub updates: HashMap<ForgeName, ForgeUpdates>,
    /// Policy by forge.
    pub policies: HashMap<ForgeName, Policy>,
    /// Configuration keys that the operator sets, each with the place where it is set.
    pub key_sources: KeySources,
    /// Whether the bot's own account may start loops by the label, as in a trial with a scripted agent.
    pub is_trial: bool,
}

impl ForgeSettings {
    /// Whether a repository is watched.
    pub fn watches(&self, repo: &RepoRef) -> bool {
        self.repositories.is_empty() || self.repositories.iter().any(|pattern| pattern.matches(repo))
    }

    /// Returns the operator's policy for a forge.
    pub fn policy(&self, forge: &ForgeName) -> Policy {
        self.policies.get(forge).cloned().unwrap_or_default()
    }

    /// Returns the source of changes of a forge.
    pub fn updates(&self, forge: &ForgeName) -> ForgeUpdates {
        self.updates.get(forge).copied().unwrap_or_default()
    }
}

/// Backends, their models and spending limits.
#[derive(Debug, Clone)]
pub struct CallSettings {
    /// Backend of loops that select no other.
    pub default_backend: String,
    /// Settings of the backends; backends that cannot be used here are disabled.
    pub backends: BackendsSettings,
    /// Digest per backend, which changes if its settings, program or key change.
    pub fingerprints: BTreeMap<String, String>,
    /// Name of the provider of a backend's models, by the backend's name; unknown ones are missing.
    pub providers: HashMap<String, &'static str>,
    /// Rules that select a backend's model, by backend name.
    pub rules: HashMap<String, ModelRules>,
    /// Token prices, by backend name.
    pub prices: HashMap<String, PriceTable>,
    /// Assistant that answers questions first, with its model; `None` if the configuration names none.
    pub assistant: Option<AssistantChoice>,
    /// Daily spending limits.
    pub money: MoneyLimits,
}

impl CallSettings {
    /// Returns the configured models of a backend; `None` for an unknown backend.
    pub fn models(&self, backend: &str) -> Option<&BackendModels> {
        Some(&self.backends.backends.get(backend)?.models)
    }

    /// Returns the configured context window of a backend in tokens; `None` if unknown.
    pub fn context_window(&self, backend: &str) -> Option<u64> {
        self.backends.backends.get(backend)?.context_window
    }
}

/// Questions to assistants.
#[derive(Debug, Clone)]
pub struct QuestionSettings {
    /// Settings of context blocks and summaries.
    pub context: ContextSettings,
    /// Maximum wait for an assistant's answer; `None` uses the default of the kind of question.
    pub answer_timeout: Option<Duration>,
    /// Number of iterations for which a kind of question rests after repeated failures: the interval of summaries.
    pub summary_interval: u32,
}

/// Programs that the service starts.
#[derive(Debug, Clone)]
pub struct ProgramSettings {
    /// Path of this program for agents; `None` if unknown.
    pub program: Option<PathBuf>,
    /// Folder of temporary files of runs.
    pub scratch: PathBuf,
    /// Sandbox of agents and checks.
    pub sandbox: ServiceSandbox,
    /// Network destinations that agents may reach.
    pub agent_egress: Egress,
}

/// Sandbox of agents and checks on this machine.
#[derive(Debug, Clone)]
pub struct ServiceSandbox {
    /// Whether agents and checks run in sandboxes.
    pub on: bool,
    /// Settings of these sandboxes.
    pub settings: SandboxSettings,
    /// Tier that the probe found.
    pub tier: SandboxTier,
    /// Description for people.
    pub words: String,
    /// Reason why no loop may run; `None` if loops may run.
    pub refusal: Option<String>,
    /// Reason why no loop of a public repository may run; `None` if loops may run.
    pub refusal_of_public: Option<String>,
}

/// Folders with one subfolder per loop.
#[derive(Debug, Clone)]
pub struct LoopFolders {
    /// Prompts and agent output.
    pub logs: PathBuf,
    /// Agent sessions.
    pub sessions: PathBuf,
    /// Images of loops.
    pub images: PathBuf,
}

/// Durations of leases, waits and retries.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
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
    /// Time that running agents get when the service stops.
    pub stop_grace: Duration,
}

impl Pace {
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

/// Intervals of the reconciliation.
#[derive(Debug, Clone, Copy)]
pub struct RoundSettings {
    /// Interval of reconciliation of repositories with open loops.
    pub live: Duration,
    /// Interval of reconciliation of all watched repositories.
    pub idle: Duration,
    /// Minimum age, in milliseconds, at which an event without a delivery is considered missed.
    pub missed_event_after_ms: i64,
}

/// Retry settings for messages to channels.
#[derive(Debug, Clone)]
pub struct ChannelRetrySettings {
    /// Time limit of one attempt.
    pub request_timeout: Duration,
    /// Wait after the first failed attempt. It doubles with each further one, up to `max_wait`. Up to half of the wait
    /// is random.
    pub first_wait: Duration,
    /// Maximum wait between attempts, unless the channel asks for more.
    pub max_wait: Duration,
    /// Time after which an undelivered message is dropped.
    pub give_up_after: Duration,
    /// Maximum wait for the escalation issue that the message links to.
    pub issue_wait: Duration,
    /// Time that a running request gets to finish when the service stops, so that its message is not sent again.
    pub stop_wait: Duration,
}

impl Default for ChannelRetrySettings {
    fn default() -> Self {
        Self {
            request_timeout: Duration::from_secs(10),
            first_wait: Duration::from_secs(5),
            max_wait: Duration::from_secs(15 * 60),
            give_up_after: Duration::from_secs(24 * 3_600),
            issue_wait: Duration::from_secs(30),
            stop_wait: Duration::from_secs(2),
        }
    }
}

impl ChannelRetrySettings {
    /// Returns the wait after a failed attempt, in milliseconds. `before` is the number of failed attempts before that
    /// one.
    pub(super) fn backoff_ms(&self, before: u32) -> i64 {
        let ceiling = self.first_wait.saturating_mul(1 << before.min(20)).min(self.max_wait);
        let half = u64::try_from(ceiling.as_millis() / 2).unwrap_or(u64::MAX);
        i64::try_from(half.saturating_add(jitter(half))).unwrap_or(i64::MAX)
    }
}
