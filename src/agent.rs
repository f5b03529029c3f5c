//! Backends: what runs a coding agent and reads its output.
//!
//! A backend is a command with a way to call it and a way to read what it prints. Both are a row of the table in
//! `preset`; everything else (folders, environment, sandbox, limits, report) is the same for all, in `command`.

mod aider;
mod broker;
mod claude;
mod codex;
mod command;
mod gemini;
mod internal;
mod jsonl;
mod kimi;
mod mcp;
mod opencode;
mod placeholder;
mod preset;
mod refusal;
mod report;
mod run_environment;
mod script;
mod session;
mod stream;
#[cfg(test)]
mod transcript;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::domain::model::ids::Money;
use crate::domain::model::task::AgentReport;
use crate::domain::providers::backends::BackendSettings;
use crate::domain::providers::limit::LimitSignals;
use crate::domain::providers::money::Cumulative;
use crate::process::Cookie;
use crate::process::sandbox::Network;

pub use claude::ClaudeStream;
pub use internal::{AgentLimits, InternalSettings, ModelFunction, PriceFunction, build_internal};
pub use preset::{OutputFormat, names as preset_names};

/// One run of an agent in a work tree.
#[derive(Debug, Clone)]
pub struct AgentRun {
    /// What the agent is told.
    pub prompt: String,
    /// The work tree, absolute; the agent runs in it and may change it.
    pub tree: PathBuf,
    /// What it may read beside (and within) the tree, absolute.
    pub read_only: Vec<PathBuf>,
    /// A folder outside the tree for this attempt alone, absolute: prompt, report and home of the agent.
    pub scratch: PathBuf,
    /// The loop, for the agent's environment.
    pub loop_id: String,
    /// Number of the iteration, from 1.
    pub iteration: u32,
    /// Model by the operator's name; the settings' map turns it into the backend's. `None` for the backend's default.
    pub model: Option<String>,
    /// Longest run.
    pub wall: Duration,
    /// Longest silence.
    pub idle: Duration,
    /// Turns that it may take; only agents that count them are held to it. `None` for the agent's own limit.
    pub max_turns: Option<u32>,
    /// What it may cost; only backends that count their cost themselves are held to it.
    pub max_cost: Option<Money>,
    /// The session that it goes on with; only agents that keep sessions do ([`Backend::resumes`]).
    pub session: Option<ResumedSession>,
    /// Where the files of its session are to be copied when it ends well: a folder outside the tree, absolute, that is not
    /// there yet. Without one, nobody goes on with it.
    pub keep: Option<PathBuf>,
    /// MCP servers for it, in Claude Code's format (`{"mcpServers": {…}}`): a file, absolute, that it may read.
    pub mcp_config: Option<PathBuf>,
    /// Mark of its processes.
    pub cookie: Cookie,
    /// Whether it is shut in by bubblewrap.
    pub sandboxed: bool,
    /// What it has of the network when shut in, beside the servers of its model.
    pub network: Network,
}

/// A session that a run goes on with.
#[derive(Debug, Clone, PartialEq)]
pub struct ResumedSession {
    /// The backend's name for it.
    pub id: String,
    /// The folder that its files were kept in.
    pub files: PathBuf,
    /// What it had used by then, by the backend's account.
    pub account: Cumulative,
}

/// How a run of an agent went.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentOutcome {
    /// In one word.
    pub status: AgentStatus,
    /// What it reported; `None` where it wrote nothing that can be read.
    pub report: Option<AgentReport>,
    /// What was wrong with the report, in a sentence; also where only a part of it was.
    pub report_problem: Option<String>,
    /// The last thing it said, masked, at most 16 KiB.
    pub final_message: String,
    /// The backend's session.
    pub session: Option<String>,
    /// Whether a later run can go on with it: it ended well, and what is needed for that was kept.
    pub session_kept: bool,
    /// Whether nothing was done because the backend does not know the session that was to go on.
    pub session_unknown: bool,
    /// Tokens of the last turn, read and written: how much of the context the session fills.
    pub context_tokens: Option<u64>,
    /// Tokens that fit into the context, where the backend says it.
    pub context_window: Option<u64>,
    /// Tokens and cost as the backend gave them, which may be those of the whole session.
    pub account: Cumulative,
    /// Tokens read, cached ones included.
    pub tokens_in: u64,
    /// Tokens written, those of its thoughts included.
    pub tokens_out: u64,
    /// Of the tokens read, those that came from the provider's cache.
    pub cache_read: u64,
    /// Of the tokens read, those that were put into the provider's cache.
    pub cache_write: u64,
    /// Cost by the backend's own figure.
    pub cost: Option<Money>,
    /// The model that served it, by the backend's own name, where the backend says it.
    pub model: Option<String>,
    /// Tools it called.
    pub tool_calls: u32,
    /// Calls that failed.
    pub tool_errors: u32,
    /// What went wrong on the way, at most 50, masked.
    pub errors: Vec<String>,
    /// Milliseconds it took.
    pub duration_ms: u64,
    /// What it printed on both outputs, masked, at most 16 MiB, its middle left out where there was more.
    pub output: String,
    /// Tools that it was not allowed to use.
    pub denied: Vec<String>,
    /// Why it stopped, in the backend's own word; empty where it says none.
    pub stop_reason: String,
    /// What can tell of a provider's limit; masked.
    pub signals: LimitSignals,
}

impl AgentOutcome {
    /// Of a run of which nothing but its end is known.
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
        }
    }
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum AgentStatus {
    /// It came to its own end. What that is worth, the checks say.
    Finished,
    /// It broke off.
    Failed { reason: String },
    /// It was ended: it ran or was silent for too long.
    TimedOut { what: String },
    /// It was ended from outside.
    Cancelled,
    /// It cannot run here until somebody acts: program missing, not logged in, model unknown, no sandbox.
    Unavailable { reason: String },
    /// The provider does not serve us now (a limit, or trouble of its own). Not an iteration.
    Limited { until_ms: Option<i64>, reason: String },
    /// It stopped because it cost more than it may.
    OverBudget,
}

impl AgentStatus {
    /// What went wrong, as a sentence without a full stop; for a run that went well, that it ended.
    pub fn words(&self) -> String {
        match self {
            Self::Finished => "it ended".to_owned(),
            Self::Failed { reason } | Self::Unavailable { reason } | Self::Limited { reason, .. } => reason.clone(),
            Self::TimedOut { what } => format!("it was stopped: {what}"),
            Self::Cancelled => "it was stopped".to_owned(),
            Self::OverBudget => "it was stopped at the money limit".to_owned(),
        }
    }
}

/// What an agent does while it runs; texts are masked and at most 4,000 characters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum AgentEvent {
    /// It has a session by this name.
    Session { id: String },
    /// It said something, or printed a line that is not understood further.
    Text { text: String },
    /// It called a tool; what the call was about (a command, a path), at most 500 characters.
    ToolCalled { name: String, input: String },
    /// It changed a file.
    FileChanged { path: String },
    /// A call failed.
    ToolFailed { text: String },
    /// The provider was asked again.
    Retried { reason: String },
    /// What it has used so far. Tokens read include those from the provider's cache and those put into it.
    Used {
        tokens_in: u64,
        tokens_out: u64,
        cache_read: u64,
        cache_write: u64,
        /// By the backend's own figure.
        cost: Option<Money>,
        /// The model that served it, where the backend says it.
        model: Option<String>,
    },
}

/// Where a run with this scratch folder is told to leave its report.
pub fn report_path(scratch: &std::path::Path) -> PathBuf {
    run_environment::report_path(scratch)
}

/// Something that can run a coding agent.
#[async_trait]
pub trait Backend: Send + Sync {
    /// The operator's name for it.
    fn name(&self) -> &str;

    /// Whether a later run can go on with the session of an earlier one.
    fn resumes(&self) -> bool {
        false
    }

    /// Variables with keys that its agent does not get to see.
    fn hidden_keys(&self) -> Vec<&str> {
        Vec::new()
    }

    /// Runs the agent to its end. Never fails: whatever happens is in the outcome.
    async fn run(
        &self,
        run: AgentRun,
        cancel: &CancellationToken,
        on_event: &mut (dyn FnMut(AgentEvent) + Send),
    ) -> AgentOutcome;

    /// Its version.
    ///
    /// # Errors
    /// A sentence that says why it does not answer and what to do.
    async fn probe(&self) -> Result<String, String>;
}

/// What sort of backend it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BackendKind {
    /// Any command.
    Script,
    /// A coding agent that is known by name; see [`preset_names`].
    Preset(String),
    /// Our own agent on a model's HTTP interface; made by [`build_internal`].
    Internal,
}

/// A backend's configuration, resolved for this machine: nothing is read from files or environment here.
#[derive(Debug, Clone)]
pub struct BackendSetup {
    /// Kind of the backend.
    pub kind: BackendKind,
    /// Keys of the configuration. A relative path of a program is taken from `config_folder`.
    pub config: BackendSettings,
    /// Folder of the operator's file, absolute.
    pub config_folder: PathBuf,
    /// `PATH` of the agent, in which its program is looked up.
    pub path: OsString,
    /// Tool folders that it may read in the sandbox (see `process::sandbox::SandboxView::tools`).
    pub tools: Vec<PathBuf>,
    /// The backend's names of models by the operator's.
    pub models: BTreeMap<String, String>,
    /// Allowed environment variables with their values, which are masked in all output.
    pub env: Vec<(String, SecretString)>,
    /// Format of its output; `None` for the preset's own, and text for a script.
    pub output: Option<OutputFormat>,
    /// Whether the prompt is also given on standard input.
    pub prompt_on_stdin: bool,
    /// Secrets of the service: never given to the agent, masked in all output.
    pub masked: Vec<SecretString>,
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
            masked: Vec::new(),
        }
    }
}

/// Makes the backend `name` from its settings; its program is looked up now, once, and never in a work tree.
///
/// # Errors
/// A sentence for the operator: unknown preset, no command, program missing or not executable.
pub fn build(name: &str, settings: BackendSetup) -> Result<Box<dyn Backend>, String> {
    let preset = match &settings.kind {
        BackendKind::Script => &script::PRESET,
        BackendKind::Internal => {
            return Err(format!("backend {name}: an internal agent needs a model: it is made of one"));
        }
        BackendKind::Preset(preset) => preset::find(preset).ok_or_else(|| {
            format!("backend {name}: there is no preset {preset:?}; there are: {}", preset_names().join(", "))
        })?,
    };
    command::CommandBackend::new(name, preset, settings)
        .map(|backend| Box::new(backend) as Box<dyn Backend>)
        .map_err(|reason| format!("backend {name}: {reason}"))
}
