//! Backends: run coding agents and read their output.
//!
//! A backend is a command, its arguments and a reader for its output. [`presets`] lists the known ones; folders, environment,
//! sandbox, limits and report are the same for all and are in `command`. `internal` is the built-in agent on an HTTP API.

mod broker;
mod command;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod internal;
mod jsonl;
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
#[cfg(any(test, fuzzing))]
mod transcript;
mod usage;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
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
pub use preset::{AgentPackage, AgentProgram, UsageReport};
pub use presets::OutputFormat;

/// Purpose of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunPurpose {
    /// It carries out the task.
    Iteration,
    /// It makes a plan.
    Plan,
    /// It reviews finished work.
    Review,
}

impl RunPurpose {
    /// Value of `RALPH_RUN`.
    fn name(self) -> &'static str {
        match self {
            Self::Iteration => "iteration",
            Self::Plan => "plan",
            Self::Review => "review",
        }
    }

    /// Whether the agent may change its tree.
    fn changes_tree(self) -> bool {
        self == Self::Iteration
    }
}

/// One run of an agent in a work tree.
#[derive(Debug, Clone)]
pub struct AgentRun {
    /// Prompt.
    pub prompt: String,
    /// Work tree, absolute; the agent runs in it, and may change it if that is the purpose.
    pub tree: PathBuf,
    /// Purpose.
    pub purpose: RunPurpose,
    /// Further paths that it may only read, outside or within the tree, absolute.
    pub read_only: Vec<PathBuf>,
    /// Folder of this attempt outside the tree, absolute: prompt, report and home of the agent.
    pub scratch: PathBuf,
    /// Id of the loop, for the agent's environment.
    pub loop_id: String,
    /// 1-based number of the iteration.
    pub iteration: u32,
    /// Model by the operator's name; the setup maps it to the backend's name. `None` for the backend's default.
    pub model: Option<String>,
    /// Maximum running time.
    pub wall: Duration,
    /// Maximum time without output.
    pub idle: Duration,
    /// Maximum number of turns, for agents that count them; `None` for the agent's own limit.
    pub max_turns: Option<u32>,
    /// Maximum cost, for backends that measure their cost themselves.
    pub max_cost: Option<Money>,
    /// Session to resume, for agents that keep sessions ([`Backend::resumes`]).
    pub session: Option<ResumedSession>,
    /// Folder to which the session's files are copied after success: absolute, outside the tree, not yet existing. With
    /// `None` the session cannot be resumed.
    pub keep: Option<PathBuf>,
    /// File with MCP servers in Claude Code's format (`{"mcpServers": {…}}`), absolute and readable by the agent.
    pub mcp_config: Option<PathBuf>,
    /// Images of the task.
    pub images: RunImages,
    /// Further tools, for agents that run in this process.
    pub tools: Option<Arc<dyn RunTools>>,
    /// Mark in the environment of its processes.
    pub cookie: Cookie,
    /// Whether it runs in a bubblewrap sandbox.
    pub sandboxed: bool,
    /// Settings of the sandbox.
    pub sandbox: SandboxSettings,
    /// Network access in the sandbox, in addition to the servers of its model.
    pub network: Network,
    /// Limits of cost that other runs share, asked before each request that goes through the broker of keys.
    pub guard: Option<Arc<dyn CostGuard>>,
}

/// Images of a run, as files that it may read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunImages {
    /// Folder of all images, absolute; `None` if there are none.
    pub folder: Option<PathBuf>,
    /// Files that its session was not given before.
    pub attached: Vec<PathBuf>,
}

/// Way in which an agent calls the tools of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolCalls {
    /// It cannot call them.
    None,
    /// It connects to the MCP servers in [`AgentRun::mcp_config`].
    Servers,
    /// It runs in this process and calls [`AgentRun::tools`].
    InProcess,
}

/// Tools of a run, in addition to those of the agent.
#[async_trait]
pub trait RunTools: Send + Sync + fmt::Debug {
    /// Returns the definitions, whose names are unique.
    fn definitions(&self) -> Vec<ToolDefinition>;

    /// Calls a tool with arguments as the model wrote them.
    ///
    /// # Errors
    /// A sentence for the model.
    async fn call(&self, name: &str, arguments: &str) -> Result<String, String>;
}

/// Limits of cost that several runs share.
#[async_trait]
pub trait CostGuard: Send + Sync + fmt::Debug {
    /// Notes that the run will have cost `committed`: what it has cost, and the most that its open requests can.
    ///
    /// # Errors
    /// The limit that this would exceed, as a sentence.
    async fn admit(&self, committed: Money) -> Result<(), String>;

    /// Notes that the run has cost `committed`, with the most that its open requests can: more than was admitted, because a
    /// request had more input than its length let expect.
    async fn note(&self, committed: Money);
}

/// Usage of a run that the broker of keys counted in the answers of its models.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CountedUsage {
    /// Number of requests that were sent and not refused.
    pub requests: u64,
    /// Tokens.
    pub usage: TokenUsage,
    /// Cost by the prices of the models.
    pub cost: Money,
}

impl CountedUsage {
    /// Adds a request.
    pub fn add(&mut self, usage: TokenUsage, cost: Money) {
        self.requests = self.requests.saturating_add(1);
        self.usage = self.usage.plus(usage);
        self.cost = self.cost.plus(cost);
    }
}

/// A session that a run resumes.
#[derive(Debug, Clone, PartialEq)]
pub struct ResumedSession {
    /// Id of the session, given by the backend.
    pub id: String,
    /// Folder that contains its files.
    pub files: PathBuf,
    /// Usage so far, as the backend reported it.
    pub account: Cumulative,
}

/// Result of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentOutcome {
    /// Status.
    pub status: AgentStatus,
    /// Report of the agent; `None` if it wrote none or none that can be read.
    pub report: Option<AgentReport>,
    /// Problem with the report or with parts of it, as a sentence.
    pub report_problem: Option<String>,
    /// Last message, masked, at most 16 KiB.
    pub final_message: String,
    /// Id of the session.
    pub session: Option<String>,
    /// Whether a later run can resume the session: the run succeeded and the session's files were copied.
    pub session_kept: bool,
    /// Whether the run did nothing because the backend does not know the session to resume.
    pub session_unknown: bool,
    /// Input and output tokens of the last turn: the part of the context window that the session fills.
    pub context_tokens: Option<u64>,
    /// Size of the context window in tokens, if the backend reports it.
    pub context_window: Option<u64>,
    /// Tokens and cost as the backend reported them, which can be those of the whole session.
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
    /// Errors during the run, masked, at most 50.
    pub errors: Vec<String>,
    /// Running time in milliseconds.
    pub duration_ms: u64,
    /// Output on both streams, masked, at most 16 MiB; the middle of longer output is left out.
    pub output: String,
    /// Tools whose use was denied.
    pub denied: Vec<String>,
    /// Stop reason in the backend's words; empty if it reports none.
    pub stop_reason: String,
    /// Signs of a provider's limit, masked.
    pub signals: LimitSignals,
    /// Whether its program was ended by a signal, so that files can be incomplete.
    pub killed: bool,
    /// Record of the broker of keys; `None` if the agent's requests do not go through it.
    pub brokered: Option<Brokered>,
}

/// Record of the broker of keys about a run.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Brokered {
    /// Usage by the models' answers.
    pub counted: CountedUsage,
    /// Refusal with which the model answered the last request, if it did.
    pub refusal: Option<LimitSignals>,
    /// Requests that the broker refused, each kind once.
    pub refused_requests: Vec<String>,
}

impl AgentOutcome {
    /// Creates the result of a run with only a status.
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
    /// It ended by itself. Whether the work is good is for the checks to decide.
    Finished,
    /// It failed.
    Failed { reason: String },
    /// It was stopped because it ran or was silent for too long.
    TimedOut { what: String },
    /// It was cancelled.
    Cancelled,
    /// It cannot run until a person acts: program missing, not logged in, model unknown, no sandbox.
    Unavailable { reason: String },
    /// The provider does not serve requests now (a limit, or an outage). Does not count as an iteration.
    Limited { until_ms: Option<i64>, reason: String },
    /// It stopped at its budget.
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

/// Event of a running agent; texts are masked and at most 4,000 characters long.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum AgentEvent {
    /// It started or resumed a session.
    Session { id: String },
    /// It wrote a text, or printed a line that is not recognized.
    Text { text: String },
    /// It called a tool; `input` is a summary (a command, a path), at most 500 characters.
    ToolCalled { name: String, input: String },
    /// It changed a file.
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

/// Returns the file in which a run with this scratch folder leaves its report.
pub fn report_path(scratch: &std::path::Path) -> PathBuf {
    run_environment::report_path(scratch)
}

/// Runs a coding agent.
#[async_trait]
pub trait Backend: Send + Sync {
    /// Name in the configuration.
    fn name(&self) -> &str;

    /// Whether a run can resume the session of an earlier one.
    fn resumes(&self) -> bool {
        false
    }

    /// Way in which its agent calls the tools of a run.
    fn tool_calls(&self) -> ToolCalls {
        ToolCalls::None
    }

    /// Environment variables with keys that are hidden from the agent.
    fn hidden_keys(&self) -> Vec<&str> {
        Vec::new()
    }

    /// Runs the agent to its end. Never fails: errors are part of the outcome.
    async fn run(
        &self,
        run: AgentRun,
        cancel: &CancellationToken,
        on_event: &mut (dyn FnMut(AgentEvent) + Send),
    ) -> AgentOutcome;

    /// Returns the version of its program.
    ///
    /// # Errors
    /// A sentence with the reason and what to do.
    async fn probe(&self) -> Result<String, String>;
}

/// Kind of a backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BackendKind {
    /// Any command.
    Script,
    /// A preset, by name; see [`presets`].
    Preset(String),
    /// The built-in agent on an HTTP API; created by [`build_internal`].
    Internal,
}

/// A backend's configuration, resolved for this machine; no files and no environment are read here.
#[derive(Debug, Clone)]
pub struct BackendSetup {
    /// Kind of the backend.
    pub kind: BackendKind,
    /// Keys of the configuration. The path of a program can be relative to `config_folder`.
    pub config: BackendSettings,
    /// Folder of the operator's file, absolute.
    pub config_folder: PathBuf,
    /// `PATH` of the agent; its program is looked up there.
    pub path: OsString,
    /// Tool folders that it may read in the sandbox (see `process::sandbox::SandboxView::tools`).
    pub tools: Vec<PathBuf>,
    /// Backend's names of models by the operator's names.
    pub models: BTreeMap<String, String>,
    /// Environment variables that are passed on, with their values, which are masked in all output.
    pub env: Vec<(String, SecretString)>,
    /// Output format; `None` for the preset's own format, or text for a script.
    pub output: Option<OutputFormat>,
    /// Whether the prompt is passed on standard input.
    pub prompt_on_stdin: bool,
    /// Secrets of the service: never passed to the agent, masked in all output.
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
            env: Vec::new(),
            output: None,
            prompt_on_stdin: true,
            masked: Masker::default(),
        }
    }
}

/// Creates the backend `name`. Its program is looked up once, now, and never in a work tree.
///
/// # Errors
/// A sentence for the operator: unknown preset, no command, program missing or not executable.
pub fn build(name: &str, settings: BackendSetup) -> Result<Box<dyn Backend>, String> {
    let preset = match &settings.kind {
        BackendKind::Script => &script::PRESET,
        BackendKind::Internal => {
            return Err(format!("backend {name}: an internal agent needs a model; create it with `build_internal`"));
        }
        BackendKind::Preset(preset) => presets::find(preset).ok_or_else(|| {
            format!("backend {name}: there is no preset {preset:?}; there are: {}", presets::names().join(", "))
        })?,
    };
    command::CommandBackend::new(name, preset, settings)
        .map(|backend| Box::new(backend) as Box<dyn Backend>)
        .map_err(|reason| format!("backend {name}: {reason}"))
}
