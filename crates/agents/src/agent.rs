//! Backends: run coding agents and read their output.
//!
//! A backend is a command with arguments and a reader for its output. [`presets`] lists the known ones. Folders,
//! environment, sandbox, limits and report are the same for all; the module `command` implements them. The module
//! `internal` is the built-in agent, which calls a model over HTTP.

mod acp;
mod broker;
mod command;
#[cfg(any(test, fuzzing, feature = "testing"))]
pub mod fuzzing;
mod internal;
mod jsonl;
mod login;
mod mcp;
mod output;
mod placeholder;
mod preset;
pub mod presets;
mod refusal;
mod report;
mod run_environment;
mod script;
mod session;
mod text;
#[cfg(any(test, fuzzing, feature = "testing"))]
mod transcript;
mod usage;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ralph_types::failure::Failure;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::domain::model::ids::Money;
use crate::domain::model::task::AgentReport;
use crate::domain::providers::backends::BackendSettings;
use crate::domain::providers::chat::ToolDefinition;
use crate::domain::providers::limit::LimitSignals;
use crate::domain::providers::money::Cumulative;
use crate::domain::providers::prices::TokenUsage;
use crate::process::Cookie;
use crate::process::Masker;
use crate::process::sandbox::Network;
use crate::process::sandbox::SandboxSettings;

pub use internal::{InternalAgentLimits, InternalSettings, ModelFunction, PriceFunction, build_internal};
pub use login::LoginFile;
pub use preset::{AgentPackage, AgentProgram, UsageReport};
pub use presets::OutputFormat;
pub use run_environment::home_path;

/// Purpose of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunPurpose {
    /// Works on the task.
    Iteration,
    /// Makes a plan.
    Plan,
    /// Reviews finished work.
    Review,
    /// Answers a question.
    Question,
}

impl RunPurpose {
    /// Returns the value of the environment variable `RALPH_RUN`.
    fn name(self) -> &'static str {
        match self {
            Self::Iteration => "iteration",
            Self::Plan => "plan",
            Self::Review => "review",
            Self::Question => "question",
        }
    }

    /// Whether the agent may change its work tree.
    fn changes_tree(self) -> bool {
        self == Self::Iteration
    }
}

/// One run of an agent in a work tree.
#[derive(Debug, Clone)]
pub struct AgentRun {
    /// Prompt of the run.
    pub prompt: String,
    /// Absolute path of the work tree, the agent's working directory. The agent may change it if its purpose allows
    /// that.
    pub tree: PathBuf,
    /// Purpose of the run.
    pub purpose: RunPurpose,
    /// Absolute paths outside or within the tree that the agent may read but not change.
    pub read_only: Vec<PathBuf>,
    /// Absolute path of this attempt's folder outside the tree, for prompt, report and home of the agent.
    pub scratch: PathBuf,
    /// Whether the caller has created the agent's home ([`home_path`]), with package caches in it.
    pub home_prepared: bool,
    /// Id of the loop, for the agent's environment.
    pub loop_id: String,
    /// 1-based number of the iteration; 0 for a plan.
    pub iteration: u32,
    /// Operator's name of the model, which the setup maps to the backend's name; `None` for the backend's default.
    pub model: Option<String>,
    /// Maximum running time.
    pub wall: Duration,
    /// Maximum time without output.
    pub idle: Duration,
    /// Maximum number of turns, for agents that count them; `None` for the agent's own limit.
    pub max_turns: Option<u32>,
    /// Maximum cost, which backends that measure their own cost enforce; `None` for no limit.
    pub max_cost: Option<Money>,
    /// Session to resume, for agents that keep sessions ([`Backend::resumes`]).
    pub session: Option<ResumedSession>,
    /// Absolute path, outside the tree and not yet existing, to which the session's files are copied after success.
    /// With `None` the session cannot be resumed later.
    pub keep: Option<PathBuf>,
    /// File with MCP servers in Claude Code's format (`{"mcpServers": {…}}`), absolute and readable by the agent.
    pub mcp_config: Option<PathBuf>,
    /// Images of the task.
    pub images: RunImages,
    /// Further tools, for agents that run in this process; `None` for no further tools.
    pub tools: Option<Arc<dyn RunTools>>,
    /// Mark in the environment of the agent's processes.
    pub cookie: Cookie,
    /// Whether the agent runs in a bubblewrap sandbox.
    pub sandboxed: bool,
    /// Settings of the sandbox.
    pub sandbox: SandboxSettings,
    /// Network access in the sandbox, in addition to the servers of its model.
    pub network: Network,
    /// Cost limits that the run shares with other runs. They are checked before each request that goes through the
    /// broker of keys.
    pub guard: Option<Arc<dyn CostGuard>>,
}

/// Images of a run, as files that the agent may read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunImages {
    /// Folder of all images, absolute; `None` if there are none.
    pub folder: Option<PathBuf>,
    /// Images that the resumed session has not received yet.
    pub attached: Vec<PathBuf>,
}

/// Way in which an agent calls the tools of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolCalls {
    /// The agent cannot call them.
    None,
    /// The agent connects to the MCP servers in [`AgentRun::mcp_config`].
    Servers,
    /// The agent runs in this process and calls [`AgentRun::tools`].
    InProcess,
}

/// Tools of a run, in addition to the agent's tools.
#[async_trait]
pub trait RunTools: Send + Sync + fmt::Debug {
    /// Returns the definitions of the tools; their names are unique.
    fn definitions(&self) -> Vec<ToolDefinition>;

    /// Calls a tool. `arguments` is the text that the model wrote.
    ///
    /// # Errors
    /// A message for the model.
    async fn call(&self, name: &str, arguments: &str) -> Result<String, Failure>;
}

/// Cost limits that several runs share.
#[async_trait]
pub trait CostGuard: Send + Sync + fmt::Debug {
    /// Reserves the cost `committed` for the run: its cost so far plus the maximum cost of its open requests.
    ///
    /// # Errors
    /// A sentence that names the limit that would be exceeded.
    async fn admit(&self, committed: Money) -> Result<(), Failure>;

    /// Records that the run's cost is `committed`, including the maximum cost of its open requests, although less was
    /// reserved. This happens if a request had more input tokens than its length suggested.
    async fn note(&self, committed: Money);
}

/// Usage of a run that the broker of keys counted in the responses of models.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CountedUsage {
    /// Number of requests that were sent and that no model refused.
    pub requests: u64,
    /// Used tokens.
    pub usage: TokenUsage,
    /// Cost according to the models' prices.
    pub cost: Money,
}

impl CountedUsage {
    /// Adds the tokens and cost of one request.
    pub fn add(&mut self, usage: TokenUsage, cost: Money) {
        self.requests = self.requests.saturating_add(1);
        self.usage = self.usage.plus(usage);
        self.cost = self.cost.plus(cost);
    }
}

/// Session that a run resumes.
#[derive(Debug, Clone, PartialEq)]
pub struct ResumedSession {
    /// Id of the session, given by the backend.
    pub id: String,
    /// Folder that contains its files.
    pub files: PathBuf,
    /// Total usage of the session so far, as the backend reported it.
    pub account: Cumulative,
}

/// Result of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentOutcome {
    /// Status of the run.
    pub status: AgentStatus,
    /// Report of the agent; `None` if it wrote none or an unreadable one.
    pub report: Option<AgentReport>,
    /// Problem with the report or with parts of it, as a sentence.
    pub report_problem: Option<String>,
    /// Last message, masked, at most 16 KiB.
    pub final_message: String,
    /// Id of the session.
    pub session: Option<String>,
    /// Whether a later run can resume the session: the run succeeded and the session's files were copied.
    pub session_kept: bool,
    /// Whether the run did no work because the backend does not have the session to resume.
    pub session_unknown: bool,
    /// Input and output tokens of the last turn, which is the part of the context window that the session fills.
    pub context_tokens: Option<u64>,
    /// Size of the context window in tokens, if the backend reports it.
    pub context_window: Option<u64>,
    /// Tokens and cost as the backend reported them. They can cover the whole session instead of this run.
    pub account: Cumulative,
    /// Input tokens, including cached ones.
    pub tokens_in: u64,
    /// Output tokens, including reasoning.
    pub tokens_out: u64,
    /// Input tokens read from the provider's cache; part of `tokens_in`.
    pub cache_read: u64,
    /// Input tokens written to the provider's cache; part of `tokens_in`.
    pub cache_write: u64,
    /// Cost, if the backend reports it.
    pub cost: Option<Money>,
    /// Model that was used, by the backend's name, if the backend reports it.
    pub model: Option<String>,
    /// Number of tool calls.
    pub tool_calls: u32,
    /// Number of tool calls that failed.
    pub tool_errors: u32,
    /// Errors during the run, with secrets masked, at most 50.
    pub errors: Vec<String>,
    /// Running time in milliseconds.
    pub duration_ms: u64,
    /// Output of both streams, with secrets masked, at most 16 MiB; the middle of longer output is omitted.
    pub output: String,
    /// Tools whose use was denied.
    pub denied: Vec<String>,
    /// Stop reason in the backend's words; empty if it reports none.
    pub stop_reason: String,
    /// Signs of a provider's limit, with secrets masked.
    pub signals: LimitSignals,
    /// Whether a signal ended the agent's program, so that files may be incomplete.
    pub killed: bool,
    /// Record of the broker of keys; `None` if the agent's requests do not go through the broker.
    pub brokered: Option<Brokered>,
}

/// Record that the broker of keys made of a run.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Brokered {
    /// Usage that was counted in the models' responses.
    pub counted: CountedUsage,
    /// Refusal by which the model answered the last request; `None` if it was not refused.
    pub refusal: Option<LimitSignals>,
    /// Requests that the broker refused, without repetitions.
    pub refused_requests: Vec<String>,
}

impl AgentOutcome {
    /// Returns the tokens by kind.
    pub fn usage(&self) -> TokenUsage {
        TokenUsage::with_cached_in(self.tokens_in, self.tokens_out, self.cache_read, self.cache_write)
    }

    /// Creates the result of a run that has nothing but a status.
    pub fn only(status: AgentStatus) -> Self {
        Self {
            status,
            report: None,
            report_problem: None,
            final_message: String::new(),
            session: None,
            session_kept: false,
            session_unknown: false,
            context_tokens: None,
            context_window: None,
            account: Cumulative::default(),
            tokens_in: 0,
            tokens_out: 0,
            cache_read: 0,
            cache_write: 0,
            cost: None,
            model: None,
            tool_calls: 0,
            tool_errors: 0,
            errors: Vec::new(),
            duration_ms: 0,
            output: String::new(),
            denied: Vec::new(),
            stop_reason: String::new(),
            signals: LimitSignals::default(),
            killed: false,
            brokered: None,
        }
    }
}

/// End of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum AgentStatus {
    /// The agent ended by itself. The checks decide whether its work is good.
    Finished,
    /// The agent failed.
    Failed { reason: String },
    /// The agent was stopped because it exceeded its time limit or wrote no output for too long. `what` names the
    /// limit.
    TimedOut { what: String },
    /// The run was canceled.
    Cancelled,
    /// The agent cannot run until a person acts: program missing, not logged in, unknown model, no sandbox.
    Unavailable { reason: String },
    /// The provider does not accept requests now because of a limit or an outage. The run does not count as an
    /// iteration.
    Limited { until_ms: Option<i64>, reason: String },
    /// The run was stopped because its budget was used up.
    OverBudget,
}

impl AgentStatus {
    /// Describes the end as a sentence without a full stop.
    pub fn words(&self) -> String {
        match self {
            Self::Finished => "it ended".to_owned(),
            Self::Failed { reason } | Self::Unavailable { reason } | Self::Limited { reason, .. } => reason.clone(),
            Self::TimedOut { what } => format!("it was stopped: {what}"),
            Self::Cancelled => "it was stopped".to_owned(),
            Self::OverBudget => "it was stopped at the cost limit".to_owned(),
        }
    }
}

/// Event of a running agent. Secrets in texts are masked; texts have at most 4,000 characters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum AgentEvent {
    /// The agent started or resumed a session.
    Session { id: String },
    /// The agent wrote a text, or printed a line that was not recognized.
    Text { text: String },
    /// The agent called a tool. `input` is a summary, such as a command or a path, of at most 500 characters.
    ToolCalled { name: String, input: String },
    /// The agent changed a file.
    FileChanged { path: String },
    /// A tool call failed.
    ToolFailed { text: String },
    /// A request to the provider was retried.
    Retried { reason: String },
    /// Usage so far. Input tokens include those read from and written to the provider's cache.
    Used {
        tokens_in: u64,
        tokens_out: u64,
        cache_read: u64,
        cache_write: u64,
        /// Cost, if the backend reports it.
        cost: Option<Money>,
        /// Model that was used, if the backend reports it.
        model: Option<String>,
    },
}

/// Returns the path of the report that a run with this scratch folder writes.
pub fn report_path(scratch: &std::path::Path) -> PathBuf {
    run_environment::report_path(scratch)
}

/// Backend that runs a coding agent.
#[async_trait]
pub trait Backend: Send + Sync {
    /// Name in the configuration.
    fn name(&self) -> &str;

    /// Whether a run can resume the session of an earlier run.
    fn resumes(&self) -> bool {
        false
    }

    /// Returns the way in which the agent calls the tools of a run.
    fn tool_calls(&self) -> ToolCalls {
        ToolCalls::None
    }

    /// Returns the environment variables with API keys that are hidden from the agent.
    fn hidden_keys(&self) -> Vec<&str> {
        Vec::new()
    }

    /// Returns the secrets of the login file of which runs get a copy. They change whenever a program refreshes its login.
    fn login_secrets(&self) -> Vec<String> {
        Vec::new()
    }

    /// Runs the agent to its end. Never fails: errors are part of the outcome.
    async fn run(
        &self,
        run: AgentRun,
        cancel: &CancellationToken,
        on_event: &mut (dyn FnMut(AgentEvent) + Send),
    ) -> AgentOutcome;

    /// Returns the version of the agent's program.
    ///
    /// # Errors
    /// A sentence with the reason and advice.
    async fn probe(&self) -> Result<String, Failure>;
}

/// Kind of a backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BackendKind {
    /// Any command.
    Script,
    /// Any command that speaks the Agent Client Protocol.
    Acp,
    /// A preset, by name; see [`presets`].
    Preset(String),
    /// The built-in agent on an HTTP API; created by [`build_internal`].
    Internal,
}

/// Configuration of a backend, resolved for this machine. Creating a backend reads no configuration files and no
/// environment.
#[derive(Debug, Clone)]
pub struct BackendSetup {
    /// Kind of the backend.
    pub kind: BackendKind,
    /// Settings of the backend. The path of its program can be relative to `config_folder`.
    pub config: BackendSettings,
    /// Absolute path of the folder that contains the operator's configuration file.
    pub config_folder: PathBuf,
    /// `PATH` of the agent, in which its program is looked up.
    pub path: OsString,
    /// Tool folders that the agent may read in the sandbox (see `process::sandbox::SandboxView::tools`).
    pub tools: Vec<PathBuf>,
    /// Names of models: the backend's by the operator's.
    pub models: BTreeMap<String, String>,
    /// Login file of which runs get a copy; `None` if there is none.
    pub login: Option<LoginFile>,
    /// Environment variables that are passed on. Their values are masked in all output.
    pub env: Vec<(String, SecretString)>,
    /// Output format; `None` for the preset's format, or plain text for a script.
    pub output: Option<OutputFormat>,
    /// Whether the prompt is passed on standard input.
    pub prompt_on_stdin: bool,
    /// Secrets of the service. They are never passed to the agent and are masked in all output.
    pub masked: Masker,
}

impl BackendSetup {
    /// Creates a setup with the default configuration.
    pub fn new(kind: BackendKind, config_folder: impl Into<PathBuf>, path: impl Into<OsString>) -> Self {
        Self {
            kind,
            config: BackendSettings::default(),
            config_folder: config_folder.into(),
            path: path.into(),
            tools: Vec::new(),
            models: BTreeMap::new(),
            login: None,
            env: Vec::new(),
            output: None,
            prompt_on_stdin: true,
            masked: Masker::default(),
        }
    }
}

/// Creates the backend `name`. Its program is looked up now, once, and never in a work tree.
///
/// # Errors
/// A message for the operator: unknown preset, no command, program missing or not executable.
pub fn build(name: &str, settings: BackendSetup) -> Result<Box<dyn Backend>, Failure> {
    let preset = match &settings.kind {
        BackendKind::Script => &script::PRESET,
        BackendKind::Acp => &acp::PRESET,
        BackendKind::Internal => {
            return Err(Failure::new(format!(
                "backend {name}: an internal agent needs a model; create it with `build_internal`"
            )));
        }
        BackendKind::Preset(preset) => presets::find(preset).ok_or_else(|| {
            format!("backend {name}: there is no preset {preset:?}; available: {}", presets::names().join(", "))
        })?,
    };
    command::CommandBackend::new(name, preset, settings)
        .map(|backend| Box::new(backend) as Box<dyn Backend>)
        .map_err(|reason| Failure::new(format!("backend {name}")).caused_by(reason))
}
