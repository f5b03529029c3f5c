//! The table of coding agents: how each is called, and how its output is read.

use std::path::Path;
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};

use super::broker::ModelKey;
use super::mcp::McpServer;
use super::session::{ContextFill, SessionUsage};
use super::{
    AgentEvent, AgentRun, AgentStatus, aider, claude, codex, gemini, jsonl, kimi, opencode, run_environment, script,
};
use crate::domain::model::ids::Money;
use crate::domain::providers::limit::LimitSignals;
use crate::process::{Finished, Stream};

/// The agents that are known by name.
const PRESETS: [&AgentPreset; 6] =
    [&claude::PRESET, &codex::PRESET, &gemini::PRESET, &opencode::PRESET, &kimi::PRESET, &aider::PRESET];

/// A way to read what an agent prints; any command can be read in any of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputFormat {
    /// Claude Code's `stream-json`.
    Claude,
    /// `codex exec --json`.
    Codex,
    /// Gemini CLI's `stream-json`.
    Gemini,
    /// `opencode run --format json`.
    Opencode,
    /// JSON objects, one a line, in nobody's format: fields with usual names are understood.
    Jsonl,
    /// Text; success is exit code 0 and at least a word.
    Text,
}

impl OutputFormat {
    /// All of them, with the operator's name for each.
    pub const ALL: [(&'static str, Self); 6] = [
        ("claude", Self::Claude),
        ("codex", Self::Codex),
        ("gemini", Self::Gemini),
        ("opencode", Self::Opencode),
        ("jsonl", Self::Jsonl),
        ("text", Self::Text),
    ];

    /// The format of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| *known == name).map(|(_, format)| *format)
    }

    pub(super) fn reader(self) -> Box<dyn OutputReader> {
        match self {
            Self::Claude => (claude::PRESET.reader)(),
            Self::Codex => (codex::PRESET.reader)(),
            Self::Gemini => (gemini::PRESET.reader)(),
            Self::Opencode => (opencode::PRESET.reader)(),
            Self::Jsonl => jsonl::reader(),
            Self::Text => script::text_reader(),
        }
    }
}

/// How an agent gets its prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PromptDelivery {
    /// On standard input; not otherwise, so it must come there or in the operator's `args`.
    Stdin,
    /// In the preset's own arguments, or in a file that they name.
    Arguments,
    /// The operator sees to it: by file, variable, `args` or standard input.
    Operator,
}

/// How an agent is called and read.
pub(super) struct AgentPreset {
    /// Its name in the configuration.
    pub(super) name: &'static str,
    /// Its program; `None` where the configuration has to say.
    pub(super) program: Option<&'static str>,
    /// Arguments of a run.
    pub(super) arguments: fn(&RunContext<'_>) -> Vec<String>,
    /// Environment of a run, beside what every agent gets.
    pub(super) environment: fn(&RunContext<'_>) -> Vec<(String, String)>,
    /// Files that it finds in its home: path from there, and text.
    pub(super) files: fn(&RunContext<'_>) -> Vec<(&'static str, String)>,
    /// How it gets its prompt.
    pub(super) prompt: PromptDelivery,
    /// Reads one run's output.
    pub(super) reader: fn() -> Box<dyn OutputReader>,
    /// Arguments that make it print its version; `None` where there is no such thing.
    pub(super) version: Option<&'static [&'static str]>,
    /// Files and folders of its home that hold its sessions and nothing that it runs; none where it cannot go on with one.
    pub(super) sessions: &'static [&'static str],
    /// Reads how full a session is from a line of its files, where the output does not say it.
    pub(super) filled: Option<fn(&serde_json::Value) -> Option<ContextFill>>,
    /// Reads the model from a line of a session's file, where the output does not say it.
    pub(super) model: Option<fn(&str) -> Option<String>>,
    /// Adds up what a session used from the lines of its files, where the output does not say it; of the whole session, so
    /// that its reader has to say what it saw ([`OutputReader::observed_tokens`]).
    pub(super) ledger: Option<fn(&str, &mut SessionUsage)>,
    /// Where it looks for keys, and for the addresses of what they are for.
    pub(super) keys: &'static [ModelKey],
    /// Hosts of its model, over HTTPS; also of what it signs in by.
    pub(super) model_at: &'static [&'static str],
    /// How names begin that it leaves at the top of the tree for itself, and that are none of its work.
    pub(super) leftovers: &'static [&'static str],
}

impl AgentPreset {
    /// What most do not have.
    pub(super) const NOTHING: Self = Self {
        name: "",
        program: None,
        arguments: |_| Vec::new(),
        environment: |_| Vec::new(),
        files: |_| Vec::new(),
        prompt: PromptDelivery::Operator,
        reader: script::text_reader,
        version: None,
        sessions: &[],
        filled: None,
        model: None,
        ledger: None,
        keys: &[],
        model_at: &[],
        leftovers: &[],
    };
}

/// A run, as a preset sees it.
pub(super) struct RunContext<'a> {
    pub(super) run: &'a AgentRun,
    /// The backend's own name of the model.
    pub(super) model: Option<&'a str>,
    /// Whether we are the superuser; some agents refuse to do without questions then.
    pub(super) root: bool,
    /// The file that holds the prompt.
    pub(super) prompt_file: &'a Path,
    /// The operator's variables.
    pub(super) variables: &'a [(String, SecretString)],
    /// The MCP servers of the run, for agents that want them in a format of their own.
    pub(super) servers: &'a [McpServer],
}

impl RunContext<'_> {
    /// A variable that the operator gives the agent, where it says something.
    pub(super) fn variable(&self, name: &str) -> Option<&str> {
        let (_, value) = self.variables.iter().find(|(known, _)| known == name)?;
        Some(value.expose_secret()).filter(|value| !value.is_empty())
    }

    /// What stands for a prompt that is too long for an argument.
    pub(super) fn see_file(&self) -> String {
        see_file(self.prompt_file)
    }

    /// The folder that the report is left in.
    pub(super) fn report_folder(&self) -> String {
        let report = run_environment::report_path(&self.run.scratch);
        report.parent().unwrap_or(&self.run.scratch).display().to_string()
    }
}

/// What stands for a prompt that is too long for an argument.
pub(super) fn see_file(file: &Path) -> String {
    format!("Read the file {} and do what it says: it holds the whole of your task.", file.display())
}

/// Words as arguments.
pub(super) fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Variables of an environment.
pub(super) fn variables(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// Makes sense of what an agent prints.
pub(super) trait OutputReader: Send {
    /// Takes a line, masked.
    fn line(&mut self, stream: Stream, line: &str, on_event: &mut dyn FnMut(AgentEvent));
    /// Whether the agent has said that it is through; never, where only its end tells.
    fn is_complete(&self) -> bool {
        false
    }
    /// Whether its provider refused it, and it has done nothing since but ask again.
    fn is_waiting(&self) -> bool {
        false
    }
    /// Why it is to be ended, where it goes on without any use.
    fn reason_to_stop(&self) -> Option<String> {
        None
    }
    /// Tokens that the run itself was seen to use, where the backend's figures can be those of a whole session
    /// ([`Cumulative::since`](crate::domain::providers::money::Cumulative::since)); `None` where they never are.
    fn observed_tokens(&self) -> Option<u64> {
        None
    }
    /// What came out, after the end.
    fn finish(&mut self, finished: &Finished) -> ParsedOutput;
}

/// What an agent's output says.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ParsedOutput {
    pub(super) status: AgentStatus,
    pub(super) final_message: String,
    pub(super) session: Option<String>,
    pub(super) filled: Option<ContextFill>,
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
    /// A status and nothing else.
    pub(super) fn only(status: AgentStatus) -> Self {
        Self {
            status,
            final_message: String::new(),
            session: None,
            filled: None,
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

/// The preset of that name.
pub(super) fn find(name: &str) -> Option<&'static AgentPreset> {
    PRESETS.into_iter().find(|preset| preset.name == name)
}

/// Names of the presets, for messages.
pub fn names() -> Vec<&'static str> {
    PRESETS.iter().map(|preset| preset.name).collect()
}

/// The first `max` characters.
pub(super) fn shortened(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Longest text in an event, in characters.
pub(super) const MAX_EVENT_TEXT: usize = 4_000;
/// Longest prompt that is given as an argument, in bytes; Linux takes 131,071 for one.
pub(super) const MAX_ARGUMENT: usize = 100_000;
/// Longest wait for an agent's version.
pub(super) const VERSION_WAIT: Duration = Duration::from_secs(30);
