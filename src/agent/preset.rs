//! The table of coding agents: how each is called, and how its output is read.

use std::time::Duration;

use super::{AgentEvent, AgentRun, AgentStatus};
use crate::domain::ids::Money;
use crate::process::{Finished, Stream};

/// The agents that are known by name.
const PRESETS: [&Preset; 1] = [&super::claude::PRESET];

/// How an agent is called and read.
pub(super) struct Preset {
    /// Its name in the configuration.
    pub(super) name: &'static str,
    /// Its program; `None` where the configuration has to say.
    pub(super) program: Option<&'static str>,
    /// Arguments of a run.
    pub(super) arguments: fn(&Call<'_>) -> Vec<String>,
    /// Environment of a run, beside what every agent gets.
    pub(super) environment: fn(&Call<'_>) -> Vec<(&'static str, String)>,
    /// Reads one run's output.
    pub(super) reader: fn() -> Box<dyn Reader>,
    /// Arguments that make it print its version; `None` where there is no such thing.
    pub(super) version: Option<&'static [&'static str]>,
}

/// A run, as a preset sees it.
pub(super) struct Call<'a> {
    pub(super) run: &'a AgentRun,
    /// The backend's own name of the model.
    pub(super) model: Option<&'a str>,
    /// Whether we are the superuser; some agents refuse to do without questions then.
    pub(super) root: bool,
}

/// Makes sense of what an agent prints.
pub(super) trait Reader: Send {
    /// Takes a line, masked.
    fn line(&mut self, stream: Stream, line: &str, on_event: &mut dyn FnMut(AgentEvent));
    /// Whether the agent has said that it is through.
    fn complete(&self) -> bool;
    /// What came out, after the end.
    fn finish(&mut self, finished: &Finished) -> Reading;
}

/// What an agent's output says.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Reading {
    pub(super) status: AgentStatus,
    pub(super) final_message: String,
    pub(super) session: Option<String>,
    pub(super) tokens_in: u64,
    pub(super) tokens_out: u64,
    pub(super) cost: Option<Money>,
    pub(super) tool_calls: u32,
    pub(super) tool_errors: u32,
    pub(super) errors: Vec<String>,
    pub(super) denied: Vec<String>,
}

impl Reading {
    /// A status and nothing else.
    pub(super) fn only(status: AgentStatus) -> Self {
        Self {
            status,
            final_message: String::new(),
            session: None,
            tokens_in: 0,
            tokens_out: 0,
            cost: None,
            tool_calls: 0,
            tool_errors: 0,
            errors: Vec::new(),
            denied: Vec::new(),
        }
    }
}

/// The preset of that name.
pub(super) fn find(name: &str) -> Option<&'static Preset> {
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
/// Longest wait for an agent's version.
pub(super) const VERSION_WAIT: Duration = Duration::from_secs(30);
