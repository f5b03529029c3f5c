//! What the readers of structured output share: notes, figures, what a call was about, and how a run without a clear
//! end is judged.

use serde_json::Value;

use super::preset::{MAX_EVENT_TEXT, ParsedOutput, shortened};
use super::refusal::{is_brief, no_answer, refused};
use super::script::how_it_ended;
use super::session::ContextFill;
use super::{AgentEvent, AgentStatus};
use crate::domain::model::ids::Money;
use crate::domain::providers::limit::LimitSignals;
use crate::process::{Finished, ProcessEnd, Stream};

/// Most errors and denials that are kept.
pub(super) const MAX_NOTES: usize = 50;
/// Longest note, in characters.
pub(super) const MAX_NOTE: usize = 500;
/// Most things (messages, calls) of a run that are kept by their id.
pub(super) const MAX_KEPT: usize = 10_000;
/// Longest name of a tool or an error, in characters.
pub(super) const MAX_NAME: usize = 100;
/// Longest summary of a call's input, in characters.
const MAX_INPUT: usize = 500;
/// Most lines of an output's end that count as messages of an error, and the bytes that they are looked for in.
const ERROR_LINES: (usize, usize) = (10, 16 * 1024);

/// Fields that say best what a call is about, the best first.
const TELLING: [&str; 15] = [
    "command",
    "cmd",
    "file_path",
    "filePath",
    "path",
    "absolute_path",
    "notebook_path",
    "dir_path",
    "pattern",
    "query",
    "url",
    "skill",
    "description",
    "prompt",
    "input",
];

/// Tokens of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Tokens {
    /// Read, cached ones included.
    pub(super) read: u64,
    /// Written, those of its thoughts included.
    pub(super) written: u64,
    /// Of those read: from the provider's cache.
    pub(super) cache_read: u64,
    /// Of those read: put into the provider's cache.
    pub(super) cache_write: u64,
}

impl Tokens {
    /// All of them.
    pub(super) fn total(self) -> u64 {
        self.read.saturating_add(self.written)
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            read: self.read.saturating_add(other.read),
            written: self.written.saturating_add(other.written),
            cache_read: self.cache_read.saturating_add(other.cache_read),
            cache_write: self.cache_write.saturating_add(other.cache_write),
        }
    }
}

/// What is gathered from a run's output while it comes.
#[derive(Debug, Default)]
pub(super) struct OutputAccumulator {
    pub(super) session: Option<String>,
    /// How full the session is after the last turn.
    pub(super) filled: Option<ContextFill>,
    /// The last thing that it said.
    pub(super) last_text: String,
    pub(super) tokens: Tokens,
    pub(super) cost: Option<Money>,
    /// The model that served it last.
    pub(super) model: Option<String>,
    pub(super) tool_calls: u32,
    pub(super) tool_errors: u32,
    pub(super) notes: Vec<String>,
    pub(super) denied: Vec<String>,
    /// Lines that were JSON objects.
    pub(super) json_lines: u64,
    pub(super) stop_reason: String,
    pub(super) signals: LimitSignals,
    /// Whether the provider refused, and nothing came from it since.
    pub(super) waiting: bool,
    /// What the provider refused with when it was asked again last.
    refusal: String,
    unknown: bool,
    cut: bool,
}

impl OutputAccumulator {
    /// What is an object on standard output; all else, and standard error, is told of as text.
    pub(super) fn parse_line(
        &mut self,
        stream: Stream,
        line: &str,
        on_event: &mut dyn FnMut(AgentEvent),
    ) -> Option<Value> {
        if stream == Stream::Stdout {
            return self.parse_object(line, on_event);
        }
        if !line.trim().is_empty() {
            on_event(AgentEvent::Text { text: shortened(line, MAX_EVENT_TEXT) });
        }
        None
    }

    /// The line as a JSON object. Any other line is told of as text, and one that begins like an object is noted once.
    pub(super) fn parse_object(&mut self, line: &str, on_event: &mut dyn FnMut(AgentEvent)) -> Option<Value> {
        let line = line.trim().trim_start_matches('\u{feff}');
        if let Ok(object @ Value::Object(_)) = serde_json::from_str::<Value>(line) {
            self.json_lines += 1;
            return Some(object);
        }
        if line.starts_with('{') && !self.cut && self.json_lines > 0 {
            self.cut = true;
            self.add_note("a line of its output is broken JSON".to_owned());
        }
        if !line.is_empty() {
            on_event(AgentEvent::Text { text: shortened(line, MAX_EVENT_TEXT) });
        }
        None
    }

    pub(super) fn record_session(&mut self, id: &Value, on_event: &mut dyn FnMut(AgentEvent)) {
        if let Some(id) = id.as_str().filter(|id| !id.is_empty() && self.session.as_deref() != Some(id)) {
            self.session = Some(id.to_owned());
            on_event(AgentEvent::Session { id: id.to_owned() });
        }
    }

    /// The model said something.
    pub(super) fn record_text(&mut self, text: &str, on_event: &mut dyn FnMut(AgentEvent)) {
        self.waiting = false;
        if !text.trim().is_empty() {
            text.clone_into(&mut self.last_text);
            on_event(AgentEvent::Text { text: shortened(text, MAX_EVENT_TEXT) });
        }
    }

    pub(super) fn record_tool_call(&mut self, name: &str, input: &Value, on_event: &mut dyn FnMut(AgentEvent)) {
        self.waiting = false;
        self.tool_calls = self.tool_calls.saturating_add(1);
        let name = shortened(if name.is_empty() { "unnamed" } else { name }, MAX_NAME);
        on_event(AgentEvent::ToolCalled { name, input: summary(input) });
    }

    pub(super) fn record_tool_failure(&mut self, text: &str, on_event: &mut dyn FnMut(AgentEvent)) {
        self.tool_errors = self.tool_errors.saturating_add(1);
        self.add_note(format!("a tool failed: {}", text.trim()));
        on_event(AgentEvent::ToolFailed { text: shortened(text.trim(), MAX_EVENT_TEXT) });
    }

    pub(super) fn record_denial(&mut self, name: &str) {
        if self.denied.len() < MAX_NOTES {
            self.denied.push(shortened(name, MAX_NAME));
        }
    }

    /// The provider is asked again.
    pub(super) fn record_retry(&mut self, reason: String, on_event: &mut dyn FnMut(AgentEvent)) {
        self.waiting = true;
        self.refusal.clone_from(&reason);
        self.add_note(format!("the provider was asked again: {reason}"));
        on_event(AgentEvent::Retried { reason: shortened(&reason, MAX_NOTE) });
    }

    pub(super) fn report_usage(&self, on_event: &mut dyn FnMut(AgentEvent)) {
        let Tokens { read, written, cache_read, cache_write } = self.tokens;
        let model = self.model.clone();
        on_event(AgentEvent::Used {
            tokens_in: read,
            tokens_out: written,
            cache_read,
            cache_write,
            cost: self.cost,
            model,
        });
    }

    /// A model is named. What stands in angle brackets is none: a program's own words come from such a one.
    pub(super) fn record_model(&mut self, model: &Value) {
        if let Some(model) = model.as_str().filter(|model| !model.is_empty() && !model.starts_with('<')) {
            self.model = Some(shortened(model, MAX_NAME));
        }
    }

    pub(super) fn add_note(&mut self, note: String) {
        if self.notes.len() < MAX_NOTES {
            self.notes.push(shortened(&note, MAX_NOTE));
        }
    }

    /// An error of the provider in the structured output: what it says, and what is packed into its words.
    pub(super) fn record_provider_error(&mut self, message: &str) {
        self.record_error(message, true);
    }

    /// An error in the structured output; where it can be anybody's, numbers in its words are no status of an answer.
    pub(super) fn record_error(&mut self, message: &str, of_provider: bool) {
        let message = message.trim();
        if message.is_empty() {
            return;
        }
        if of_provider {
            self.signals.learn(message);
        } else {
            self.signals.add_message(message);
        }
        self.add_note(message.to_owned());
    }

    /// An event of a kind that is not known: told of as text, and noted once.
    pub(super) fn record_unknown_event(&mut self, kind: &str, event: &Value, on_event: &mut dyn FnMut(AgentEvent)) {
        if !self.unknown {
            self.unknown = true;
            let kind = shortened(kind, MAX_NAME);
            self.add_note(format!("it printed an event {kind:?}, which this version of ralph-bot does not know"));
        }
        let said = ["text", "message", "content"].iter().find_map(|name| event[*name].as_str());
        let text = said.map_or_else(|| event.to_string(), str::to_owned);
        on_event(AgentEvent::Text { text: shortened(&text, MAX_EVENT_TEXT) });
    }

    /// Judges a run that ended without saying how: killed, called wrongly, waiting for a login, a program that does
    /// nothing, or one of a version that says it in another way.
    pub(super) fn status_without_result(&mut self, finished: &Finished) -> AgentStatus {
        if self.waiting && finished.ended != ProcessEnd::Exited(0) {
            // It was worth asking again, so it passes.
            return match refused(&self.signals, &self.refusal) {
                AgentStatus::Failed { reason } => AgentStatus::Limited { until_ms: None, reason },
                status => status,
            };
        }
        let printed = finished.stdout.last(MAX_EVENT_TEXT).trim().to_owned();
        let plain = self.json_lines == 0;
        if plain {
            self.add_failure_output(finished);
        }
        let answer = if plain { &printed } else { &self.last_text };
        let ended_well = finished.ended == ProcessEnd::Exited(0);
        let said = finished.stderr.last(MAX_EVENT_TEXT);
        let refusal = match printed.as_str() {
            // What it says of its work can hold the same words.
            answer if ended_well && !is_brief(answer) => None,
            printed => no_answer(printed).or_else(|| no_answer(said).filter(|_| !ended_well || printed.is_empty())),
        };
        if plain && let Some(line) = refusal {
            let how = match &finished.ended {
                ProcessEnd::Exited(code) if *code != 0 => format!("it exited with {code}"),
                _ => "it did not run".to_owned(),
            };
            return AgentStatus::Unavailable { reason: format!("{how}: {line}") };
        }
        match &finished.ended {
            ProcessEnd::Exited(0) if !answer.trim().is_empty() => {
                if plain {
                    self.last_text = printed;
                }
                self.add_note(
                    "its output is not understood by this version of ralph-bot; it was read as text".to_owned(),
                );
                AgentStatus::Finished
            }
            ProcessEnd::Exited(0) => AgentStatus::Failed { reason: "it ended without a word".to_owned() },
            ended => AgentStatus::Failed { reason: how_it_ended(ended, finished) },
        }
    }

    /// Takes the end of what a program without structured output printed before it exited with an error: some tell of a
    /// refusal there. Of one that was ended, the words are those of its work.
    pub(super) fn add_failure_output(&mut self, finished: &Finished) {
        if matches!(finished.ended, ProcessEnd::Exited(code) if code != 0) {
            // One message, as it may be broken over lines.
            let end = last_lines(finished.stdout.last(ERROR_LINES.1)).join("\n");
            self.signals.messages.extend(Some(end).filter(|end| !end.is_empty()));
        }
    }

    /// Everything, with a status.
    pub(super) fn finish(&mut self, status: AgentStatus, finished: &Finished) -> ParsedOutput {
        let mut signals = std::mem::take(&mut self.signals);
        signals.succeeded = status == AgentStatus::Finished;
        signals.exit_code = finished.exit_code;
        if !signals.succeeded {
            signals.messages.extend(last_lines(finished.stderr.last(ERROR_LINES.1)));
            signals.messages.dedup();
        }
        ParsedOutput {
            final_message: std::mem::take(&mut self.last_text),
            session: self.session.take(),
            filled: self.filled,
            tokens_in: self.tokens.read,
            tokens_out: self.tokens.written,
            cache_read: self.tokens.cache_read,
            cache_write: self.tokens.cache_write,
            cost: self.cost,
            model: self.model.take(),
            tool_calls: self.tool_calls,
            tool_errors: self.tool_errors,
            errors: std::mem::take(&mut self.notes),
            denied: std::mem::take(&mut self.denied),
            stop_reason: std::mem::take(&mut self.stop_reason),
            signals,
            status,
        }
    }
}

/// What a call is about: its command, path or pattern, else all of its input; at most 500 characters.
pub(super) fn summary(input: &Value) -> String {
    let telling = TELLING.iter().map(|name| &input[*name]).find(|value| !value.is_null());
    let text = match telling.unwrap_or(input) {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(words) if words.iter().all(Value::is_string) => {
            words.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" ")
        }
        other => other.to_string(),
    };
    shortened(text.trim(), MAX_INPUT)
}

/// The last lines of an output that are not steps of a stack.
fn last_lines(end: &str) -> Vec<String> {
    let told = |line: &&str| !line.is_empty() && !line.starts_with("at ") && line.chars().any(char::is_alphanumeric);
    let mut lines: Vec<String> =
        end.lines().rev().map(str::trim).filter(told).take(ERROR_LINES.0).map(|l| shortened(l, MAX_NOTE)).collect();
    lines.reverse();
    lines
}

#[cfg(test)]
mod tests;
