//! Types that describe a coding agent: its program, its arguments and the reader of its output. The table is in
//! [`presets`](super::presets).

use std::path::{Path, PathBuf};

use secrecy::{ExposeSecret, SecretString};

use super::broker::ModelKey;
use super::mcp::McpServer;
use super::usage::ContextFill;
use super::{AgentEvent, AgentRun, AgentStatus, RunImages, run_environment};
use crate::domain::model::ids::Money;
use crate::domain::providers::limit::LimitSignals;
use crate::process::{Finished, Stream};

/// Coding agent that is known by name.
pub(super) struct AgentPreset {
    /// Name in the configuration.
    pub(super) name: &'static str,
    /// Program to run; `None` if the configuration has to name one.
    pub(super) program: Option<AgentProgram>,
    /// Returns the arguments of a run.
    pub(super) arguments: fn(&RunContext<'_>) -> Vec<String>,
    /// Returns the files to create in the agent's home: relative path and content.
    pub(super) environment: fn(&RunContext<'_>) -> Vec<(String, String)>,
    /// Returns files to create in the agent's home: path relative to it, and content.
    pub(super) files: fn(&RunContext<'_>) -> Vec<(&'static str, String)>,
    /// Way in which the program receives the prompt.
    pub(super) prompt: PromptDelivery,
    /// Creates a reader for the output of one run.
    pub(super) reader: fn() -> Box<dyn OutputReader>,
    /// Whether `output` in the configuration can name this preset's format for the output of other commands.
    pub(super) is_output_format: bool,
    /// Usage that the output reports.
    pub(super) usage: UsageReport,
    /// Whether the output reports usage during a run, so that the run can be stopped at its budget.
    pub(super) reports_usage_during_run: bool,
    /// Whether the output reports the size of the model's context window.
    pub(super) reports_context_window: bool,
    /// Arguments that print the program's version; `None` if there are none.
    pub(super) version: Option<&'static [&'static str]>,
    /// Whether the program receives the MCP servers of a run.
    pub(super) takes_mcp_servers: bool,
    /// Way in which the program receives the images of a run.
    pub(super) images: ImageDelivery,
    /// Files and folders in the home that contain sessions but no programs or settings; empty if sessions cannot be
    /// resumed.
    pub(super) sessions: &'static [&'static str],
    /// Reads the used part of the context window from a line of a session file; `None` if the output reports it.
    pub(super) context_fill: Option<fn(&serde_json::Value) -> Option<ContextFill>>,
    /// Reads the model from a line of a session file; `None` if the output reports it.
    pub(super) model: Option<fn(&str) -> Option<String>>,
    /// Environment variables with API keys, each group with the variables for the model's address.
    pub(super) keys: &'static [ModelKey],
    /// Hosts of the model and of the login, which are reached over HTTPS.
    pub(super) model_hosts: &'static [&'static str],
    /// Globs of files in a repository that configure or instruct the agent. They are protected from changes by
    /// default.
    pub(super) protected_paths: &'static [&'static str],
    /// Name prefixes of files that the program leaves at the top of the work tree and that are not part of its work.
    pub(super) leftovers: &'static [&'static str],
    /// Whether the program runs models of any vendor, so that `model_hosts` does not identify the vendor.
    pub(super) any_vendor: bool,
}

impl AgentPreset {
    /// Creates a preset with a name and a reader. The operator configures how the prompt is passed.
    pub(super) const fn new(name: &'static str, reader: fn() -> Box<dyn OutputReader>) -> Self {
        Self {
            name,
            program: None,
            arguments: |_| Vec::new(),
            environment: |_| Vec::new(),
            files: |_| Vec::new(),
            prompt: PromptDelivery::Operator,
            reader,
            is_output_format: false,
            usage: UsageReport::Nothing,
            reports_usage_during_run: false,
            reports_context_window: false,
            version: None,
            takes_mcp_servers: false,
            images: ImageDelivery::Prompt,
            sessions: &[],
            context_fill: None,
            model: None,
            keys: &[],
            model_hosts: &[],
            protected_paths: &[],
            leftovers: &[],
            any_vendor: false,
        }
    }
}

/// Program of a coding agent.
#[derive(Debug)]
pub struct AgentProgram {
    /// Name that is looked up in `PATH`.
    pub name: &'static str,
    /// Package that contains the program.
    pub package: AgentPackage,
    /// Major and minor version with which this version of ralph-bot was tested.
    pub tested_version: (u32, u32),
    /// Environment variables that usually contain the program's credentials, the most common one first.
    pub login_variables: &'static [&'static str],
    /// File with the login of a subscription, relative to the home; `None` if the program has none that runs can use.
    pub login_file: Option<&'static str>,
    /// Instruction for getting a login, as a sentence.
    pub login_advice: &'static str,
}

impl AgentProgram {
    /// Returns the command that installs the tested version, because newer versions have not been reviewed.
    pub fn install_command(&self) -> String {
        let (major, minor) = self.tested_version;
        match self.package {
            AgentPackage::Npm(package) => format!("npm install -g {package}@{major}.{minor}"),
            AgentPackage::Pipx(package) => format!("pipx install {package}=={major}.{minor}.*"),
        }
    }
}

/// Package of a coding agent.
#[derive(Debug, Clone, Copy)]
pub enum AgentPackage {
    /// npm package.
    Npm(&'static str),
    /// Python package, installed with pipx.
    Pipx(&'static str),
}

/// Usage that the output of a command reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UsageReport {
    /// Cost, for every model.
    Cost,
    /// Cost, but only for models whose price the program knows.
    CostOfKnownModels,
    /// Tokens and the name of the model.
    TokensAndModel,
    /// Tokens, or figures that depend on the command.
    Tokens,
    /// Nothing.
    Nothing,
}

/// Way in which an agent receives its prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PromptDelivery {
    /// Standard input only. The program must read it by default or because of the operator's `args`.
    Stdin,
    /// Arguments of the preset contain the prompt or name its file.
    Arguments,
    /// The operator configures it: file, variable, `args` or standard input.
    Operator,
    /// Messages of the Agent Client Protocol, which also passes the model, the session, images and MCP servers.
    Acp,
}

/// Way in which an agent receives the images of a run. The prompt always names their files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ImageDelivery {
    /// This option attaches a file to the prompt; it is repeated for each file.
    Attached(&'static str),
    /// This option names a folder that the agent's tools may read.
    Folder(&'static str),
    /// Only the prompt names the files.
    Prompt,
}

impl ImageDelivery {
    /// Returns the arguments that pass the images.
    pub(super) fn arguments(self, images: &RunImages) -> Vec<String> {
        let argument = |option: &str, path: &PathBuf| format!("{option}={}", path.display());
        match self {
            Self::Attached(option) => images.attached.iter().map(|file| argument(option, file)).collect(),
            Self::Folder(option) => images.folder.iter().map(|folder| argument(option, folder)).collect(),
            Self::Prompt => Vec::new(),
        }
    }
}

/// Data of a run that a preset uses.
pub(super) struct RunContext<'a> {
    /// The run.
    pub(super) run: &'a AgentRun,
    /// Name of the model in the backend's notation.
    pub(super) model: Option<&'a str>,
    /// Whether the service runs as root; some agents then refuse to work without confirmation.
    pub(super) root: bool,
    /// Whether the home contains the login file of a subscription.
    pub(super) has_login: bool,
    /// File that contains the prompt.
    pub(super) prompt_file: &'a Path,
    /// Environment variables that the operator passes on.
    pub(super) variables: &'a [(String, SecretString)],
    /// MCP servers of the run, for agents that need them in their own format.
    pub(super) servers: &'a [McpServer],
}

impl RunContext<'_> {
    /// Returns a variable that the operator passes on; `None` if it is missing or empty.
    pub(super) fn variable(&self, name: &str) -> Option<&str> {
        let (_, value) = self.variables.iter().find(|(known, _)| known == name)?;
        Some(value.expose_secret()).filter(|value| !value.is_empty())
    }

    /// Returns the folder in which the agent writes its report.
    pub(super) fn report_folder(&self) -> String {
        let report = run_environment::report_path(&self.run.scratch);
        report.parent().unwrap_or(&self.run.scratch).display().to_string()
    }
}

/// Returns a prompt that refers to a file, for prompts that are too long for an argument.
pub(super) fn prompt_reference(file: &Path) -> String {
    format!("Read the file {} and do what it says: it contains your complete task.", file.display())
}

/// Returns the words as owned arguments.
pub(super) fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Returns the pairs as owned environment variables.
pub(super) fn variables(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// Parses the output of one run.
pub(super) trait OutputReader: Send {
    /// Reads one line, in which secrets are masked.
    fn line(&mut self, stream: Stream, line: &str, on_event: &mut dyn FnMut(AgentEvent));
    /// Whether the agent has reported its result. Always `false` for formats in which only the end of the process
    /// shows it.
    fn is_complete(&self) -> bool {
        false
    }
    /// Whether the agent has not accepted its prompt yet. Always `false` for formats that do not show it.
    fn is_starting(&self) -> bool {
        false
    }
    /// Whether the agent can only wait for its model: no tool runs. Always `false` for formats that show retries.
    fn awaits_model(&self) -> bool {
        false
    }
    /// Whether the provider refused a request and only retries have followed since.
    fn is_waiting(&self) -> bool {
        false
    }
    /// Returns the reason to stop a run that can no longer succeed; `None` to continue.
    fn reason_to_stop(&self) -> Option<String> {
        None
    }
    /// Returns the number of tokens that this run was observed to use. Needed if the reported figures can cover
    /// a whole session ([`Cumulative::since`](crate::domain::providers::money::Cumulative::since)); `None` if they
    /// never are.
    fn observed_tokens(&self) -> Option<u64> {
        None
    }
    /// Returns the result after the process has ended.
    fn finish(&mut self, finished: &Finished) -> ParsedOutput;
}

/// Result of parsing an agent's output. Its fields have the same meaning as the fields of
/// [`AgentOutcome`](super::AgentOutcome).
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ParsedOutput {
    pub(super) status: AgentStatus,
    pub(super) final_message: String,
    pub(super) session: Option<String>,
    pub(super) context_fill: Option<ContextFill>,
    pub(super) tokens_in: u64,
    pub(super) tokens_out: u64,
    pub(super) cache_read: u64,
    pub(super) cache_write: u64,
    pub(super) cost: Option<Money>,
    pub(super) model: Option<String>,
    pub(super) tool_calls: u32,
    pub(super) tool_errors: u32,
    pub(super) errors: Vec<String>,
    pub(super) denied: Vec<String>,
    pub(super) stop_reason: String,
    pub(super) signals: LimitSignals,
}

impl ParsedOutput {
    /// Creates an output that has nothing but a status.
    pub(super) fn only(status: AgentStatus) -> Self {
        Self {
            status,
            final_message: String::new(),
            session: None,
            context_fill: None,
            tokens_in: 0,
            tokens_out: 0,
            cache_read: 0,
            cache_write: 0,
            cost: None,
            model: None,
            tool_calls: 0,
            tool_errors: 0,
            errors: Vec::new(),
            denied: Vec::new(),
            stop_reason: String::new(),
            signals: LimitSignals::default(),
        }
    }
}
