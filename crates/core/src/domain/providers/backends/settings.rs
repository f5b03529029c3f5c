//! Configuration of backends: kind, roles, priority, limits, rotation and cool-down.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::domain::model::quantity::{Duration, Usd};
use crate::domain::model::settings::{ConfigSection as _, KeyProblem, config_section, did_you_mean};
use crate::domain::providers::prices::PriceEntry;
use crate::domain::providers::rules::ModelRule;
use crate::domain::supervision::control::ModelTier;

/// Maximum interval of rotation, and maximum cool-down.
const MONTH: Duration = Duration::days(31);

config_section! {
    /// Everything that the choice of a backend depends on.
    pub struct BackendsSettings {
        /// The backends by name.
        pub backends: BTreeMap<String, BackendSettings> => section;
        /// Order of the backends, by role.
        pub priority: BackendPriority;
        /// Rotation among the backends.
        pub rotation: RotationSettings => section;
        /// Time during which a backend is not used after a limit or repeated failures.
        pub cooldown: CooldownSettings => section;
    }
}

/// Use of a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum BackendRole {
    /// Runs the agent that works on a tree.
    Agent,
    /// Answers short questions: plans, reflections, summaries.
    Assistant,
    /// Gives second opinions about finished work.
    Reviewer,
}

impl BackendRole {
    /// Returns the name for the store and metrics.
    pub fn word(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Assistant => "assistant",
            Self::Reviewer => "reviewer",
        }
    }
}

config_section! {
    /// A program or model API that runs agents or answers questions.
    pub struct BackendSettings {
        /// Type: a coding agent's command, a command that speaks the Agent Client Protocol, an HTTP model API, the built-in agent
        /// on such an API, or any command. Omit it for the presets.
        #[serde(rename = "type")]
        pub kind: Option<BackendType>;
        /// Whether the backend is used.
        pub enabled: bool = true;
        /// Program and its first arguments; a list, never a shell string. A program with a slash is relative to this file.
        pub command: Vec<String>;
        /// Further arguments. `{model}`, `{prompt}`, `{prompt_file}`, `{report}`, `{session}` and `{mcp_config}` are
        /// replaced, by an empty text if a run has no such value; other braces stay. A prompt that is too long for an
        /// argument (128 KiB on Linux) is replaced by a pointer to its file.
        pub args: Vec<String>;
        /// Whether the prompt is given on standard input; `prompt` by default.
        pub stdin: Option<StdinUse>;
        /// Files and folders in which a command keeps its sessions, as paths from its home. Only these are kept between runs, so
        /// that the next iteration can continue the session (`{session}`, `type: acp`); do not list programs or settings.
        /// The presets {presets_with_sessions} know theirs.
        pub session_files: Vec<String>;
        /// Names of environment variables that are passed on.
        pub env: Vec<String>;
        /// File with the login of a subscription of a preset, such as `~/.codex/auth.json`. Each run gets a copy, which it can
        /// read; tokens that the program refreshes are written back: `docs/guides/your-agent.md`.
        pub login_file: Option<PathBuf>;
        /// Whether API keys stay with the service. Runs get a one-time token in place of a key and an address of the service in
        /// place of the model's; other hosts of the provider are reachable if `sandbox.network` lists them. The presets know
        /// the variables of their keys and tokens; logins in files, and keys that your own configuration names, are passed on
        /// unchanged.
        pub hide_keys: bool = true;
        /// Further variables of `env` that hold an API key, each with the variable that holds the model's address, alone or as the
        /// only one in settings as JSON: `{ MY_KEY: MY_MODEL_URL }`.
        pub keys: BTreeMap<String, String>;
        /// Features of the provider that runs with a hidden key may use although they pass data outside of `sandbox.network` or
        /// cost more than is counted, by the names in the error of a refused request: tools that the provider runs
        /// (`web_search`, `code_execution`, `mcp`, `google_search`), `url_sources`, `files`, `mcp_servers`, `priority_tier`.
        pub server_tools: Vec<String>;
        /// Format of a command's output; the preset's format, or text, by default.
        pub output: Option<OutputFormatName>;
        /// Uses of the backend. A backend of type `api` cannot be an agent. The backend that `assistant` names is an `assistant` as
        /// well, and the backend that `review` names is a `reviewer` as well.
        pub roles: Vec<BackendRole> = vec![BackendRole::Agent];
        /// Models that are requested.
        pub models: BackendModels;
        /// Address of the HTTP API, for `api` and `internal`: `https://api.anthropic.com`, `http://localhost:11434`.
        pub url: Option<String>;
        /// Protocol of the HTTP API, for `api` and `internal`. By default it follows from the address: `messages` for
        /// Anthropic, `responses` for OpenAI, `chat` for all others.
        pub wire: Option<WireName>;
        /// Whether the models of an `internal` backend accept images. By default models of `messages` and `responses` do,
        /// and models of `chat` do not. Images that the model does not get are mentioned in the prompt.
        pub images: Option<bool>;
        /// Environment variable with the key of the HTTP API.
        pub api_key_env: Option<String>;
        /// File with the key of the HTTP API.
        pub api_key_file: Option<PathBuf>;
        /// Size of the context window in tokens; 128000 by default for `internal`.
        /// {presets_with_context_window} report theirs after a run, for `max_context_pct`; `context.budget_pct` and all other backends use only this value.
        pub context_window: Option<u64>, in 4_000..=100_000_000;
        /// Limits above which another backend is preferred.
        pub thresholds: BackendThresholds => section;
        /// Prices by model in US dollars per million tokens, for backends that do not report cost. They take precedence
        /// over the built-in prices. A name that ends with `*` matches all models that start with it.
        pub prices: BTreeMap<String, PriceEntry>;
    }
}

/// Type of a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum BackendType {
    /// A coding agent's command.
    External,
    /// A command that speaks the Agent Client Protocol.
    Acp,
    /// An HTTP model API, for questions.
    Api,
    /// The built-in agent on an HTTP model API.
    Internal,
    /// Any command.
    Script,
}

impl BackendType {
    /// Whether the backend is a model behind an HTTP API, as opposed to a command.
    pub fn is_http(self) -> bool {
        matches!(self, Self::Api | Self::Internal)
    }

    /// Returns the name, as in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::External => "external",
            Self::Acp => "acp",
            Self::Api => "api",
            Self::Internal => "internal",
            Self::Script => "script",
        }
    }
}

/// Protocol of an HTTP model API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum WireName {
    /// Anthropic Messages.
    Messages,
    /// OpenAI Responses.
    Responses,
    /// OpenAI Chat Completions, as most other servers use it (Ollama, vLLM, llama.cpp, gateways).
    Chat,
}

impl WireName {
    /// Returns the name, as in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Messages => "messages",
            Self::Responses => "responses",
            Self::Chat => "chat",
        }
    }

    /// Returns the usual protocol of the API at `host`.
    pub fn of_host(host: &str) -> Self {
        let is = |domain: &str| host == domain || host.ends_with(&format!(".{domain}"));
        if is("anthropic.com") {
            Self::Messages
        } else if is("api.openai.com") {
            Self::Responses
        } else {
            Self::Chat
        }
    }

    /// Whether models with this protocol usually take images.
    pub fn usually_takes_images(self) -> bool {
        self != Self::Chat
    }
}

/// Use of standard input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum StdinUse {
    /// The prompt.
    Prompt,
    /// Nothing.
    None,
}

/// Name of the format of a backend's output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct OutputFormatName(String);

impl OutputFormatName {
    /// Returns the name, as in the configuration.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

config_section! {
    /// Models that are requested from a backend.
    pub struct BackendModels {
        /// Default model; the backend's own default if omitted. Required for `api` and `internal`.
        pub default: Option<String>;
        /// Cheaper model.
        pub cheap: Option<String>;
        /// Stronger model.
        pub strong: Option<String>;
        /// Rules that choose another model; the first that matches wins, before the tiers above.
        pub rules: Vec<ModelRule>;
    }
}

impl BackendModels {
    /// Returns the model for a tier. If the tier has no model, returns the default one, if there is one.
    pub fn of(&self, tier: ModelTier) -> Option<&String> {
        let wanted = match tier {
            ModelTier::Cheap => self.cheap.as_ref(),
            ModelTier::Strong => self.strong.as_ref(),
            ModelTier::Default => None,
        };
        wanted.or(self.default.as_ref())
    }
}

config_section! {
    /// Limits above which another backend is preferred. An omitted key means no limit.
    pub struct BackendThresholds {
        /// Maximum number of calls within `window`.
        pub max_requests_per_window: Option<u32>, in 1..=1_000_000;
        /// Time within which calls are counted.
        pub window: Duration = Duration::hours(1), in Duration::seconds(1)..=Duration::days(1);
        /// Maximum cost within an hour. A call that alone costs more may start if the cost within the hour is zero.
        pub max_cost_per_hour: Option<Usd>, in Usd::CENT..=Usd::dollars(1_000_000), at_most max_cost_per_day;
        /// Maximum cost within 24 hours. A call that alone costs more may start if the cost within the 24 hours is zero.
        pub max_cost_per_day: Option<Usd>, in Usd::CENT..=Usd::dollars(1_000_000);
        /// Percentage of the context window at which a new session is started instead of resuming the last one.
        /// {presets_with_context_window} report their window, `internal` has one; for all other commands it is known only if
        /// `context_window` is set.
        pub max_context_pct: u8 = 85, in 1..=100;
        /// Number of consecutive errors, in any loops, after which the backend cools down.
        pub max_consecutive_errors: u32 = 3, in 1..=1_000;
    }
}

config_section! {
    /// Order of the backends, by role. Backends with the role that are not listed follow in the order of their
    /// names.
    pub struct BackendPriority {
        /// For runs of the agent.
        pub agent: Vec<String>;
        /// For questions to an assistant.
        pub assistant: Vec<String>;
    }
}

config_section! {
    /// Rotation among the backends.
    pub struct RotationSettings {
        /// Kind of rotation.
        pub mode: RotationMode;
        /// Length of a turn, for `time_sliced`; turns are counted from 1970-01-01.
        pub interval: Duration = Duration::minutes(30), in Duration::minutes(1)..=MONTH;
        /// Backends that take turns, for `time_sliced` and `round_robin`. If empty, all backends with the role take
        /// turns.
        pub order: Vec<String>;
    }
}

/// Kind of rotation among backends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RotationMode {
    /// The first backend that can be used.
    #[default]
    None,
    /// Another backend at each iteration.
    RoundRobin,
    /// Another backend after each interval.
    TimeSliced,
}

config_section! {
    /// Time during which a backend is not used after a limit or repeated failures.
    pub struct CooldownSettings {
        /// First wait if the provider does not state one; doubles until a call succeeds.
        pub backoff_first: Duration = Duration::minutes(1), in Duration::seconds(1)..=Duration::days(1), at_most backoff_max;
        /// Longest wait if the provider does not state one.
        pub backoff_max: Duration = Duration::hours(1), in Duration::seconds(1)..=Duration::days(1), at_most longest;
        /// Longest wait in any case; then one call tests whether the provider accepts calls again.
        #[schemars(skip)]
        pub longest: Duration = Duration::days(40), in Duration::hours(1)..=Duration::days(40);
    }
}

impl BackendsSettings {
    /// Returns the thresholds of a backend; the defaults if it is not configured.
    pub fn thresholds(&self, backend: &str) -> BackendThresholds {
        self.backends.get(backend).map_or_else(BackendThresholds::default, |settings| settings.thresholds.clone())
    }

    /// Whether a session whose context window is filled to `context_pct` percent should be replaced by a new one.
    pub fn wants_fresh_session(&self, backend: &str, context_pct: f64) -> bool {
        context_pct.is_nan() || context_pct >= f64::from(self.thresholds(backend).max_context_pct)
    }

    /// Returns the backends with a role, enabled or not: those in `priority` first, then the rest by name.
    pub fn in_order(&self, role: BackendRole) -> Vec<&str> {
        let first = match role {
            BackendRole::Agent => &self.priority.agent[..],
            BackendRole::Assistant => &self.priority.assistant,
            BackendRole::Reviewer => &[][..],
        };
        self.sorted_by(first, role, true)
    }

    /// Returns the backends of `names` that have the role, without repetitions. With `with_rest`, appends all other backends with
    /// the role.
    pub(super) fn sorted_by(&self, names: &[String], role: BackendRole, with_rest: bool) -> Vec<&str> {
        let mut sorted: Vec<&str> = Vec::new();
        let rest = self.backends.keys().filter(|_| with_rest);
        for name in names.iter().chain(rest) {
            let entry = self.backends.get_key_value(name).filter(|(_, settings)| settings.roles.contains(&role));
            if let Some((name, _)) = entry.filter(|(name, _)| !sorted.contains(&name.as_str())) {
                sorted.push(name);
            }
        }
        sorted
    }

    /// Returns all problems: numbers out of range, contradictions, then roles and names.
    pub fn validate(&self) -> Vec<KeyProblem> {
        let mut problems = self.check("");
        for (name, backend) in &self.backends {
            if backend.roles.is_empty() {
                let key = format!("backends.{name}.roles");
                problems
                    .push(KeyProblem::new(key, "is empty; list `agent`, `assistant`, `reviewer` or several of them"));
            }
        }
        for (key, names, role) in [
            ("priority.agent", &self.priority.agent, Some(BackendRole::Agent)),
            ("priority.assistant", &self.priority.assistant, Some(BackendRole::Assistant)),
            ("rotation.order", &self.rotation.order, None),
        ] {
            self.validate_names(key, names, role, &mut problems);
        }
        problems
    }

    fn validate_names(&self, key: &str, names: &[String], role: Option<BackendRole>, problems: &mut Vec<KeyProblem>) {
        for (index, name) in names.iter().enumerate() {
            let what = match self.backends.get(name) {
                None => {
                    let near = did_you_mean(name, self.backends.keys().map(String::as_str));
                    format!("is `{}`; there is no such backend{near}", super::shortened(name))
                }
                Some(backend) if role.is_some_and(|role| !backend.roles.contains(&role)) => {
                    format!("is `{name}`, which does not have this role")
                }
                Some(_) if names.iter().take(index).any(|earlier| earlier == name) => {
                    format!("is `{name}`, which is already listed")
                }
                Some(_) => continue,
            };
            problems.push(KeyProblem::new(format!("{key}[{index}]"), what));
        }
    }
}
