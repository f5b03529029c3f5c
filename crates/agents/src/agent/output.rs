//! Shared parts of the readers of structured output: notes, usage, summaries of tool calls, and the status of a run
//! without a reported result.

use std::collections::HashMap;

use serde_json::Value;

use super::preset::ParsedOutput;
use super::refusal::{is_brief, no_answer, refused};
use super::text::{MAX_EVENT_TEXT, MAX_NOTE, describe_end, shortened};
use super::usage::{ContextFill, RunTokens};
use super::{AgentEvent, AgentStatus};
use crate::domain::model::ids::Money;
use crate::domain::providers::limit::{EMPTY_ANSWER, LimitSignals};
use crate::process::{Finished, ProcessEnd, Stream};

/// Maximum number of notes, and of denied tools.
pub(super) const MAX_NOTES: usize = 50;
/// Maximum number of messages or calls that are remembered by id.
pub(super) const MAX_KEPT: usize = 10_000;
/// Maximum length of the name of a tool, a model or an event, in characters.
pub(super) const MAX_NAME: usize = 100;
/// Maximum length of the summary of a call's input, in characters.
const MAX_INPUT: usize = 500;
/// Maximum number of last lines that are read as error messages, and number of bytes at the end of the output that are
/// searched for them.
const ERROR_LINES: (usize, usize) = (60, 16 * 1024);

/// Text of Claude Code for an answer without content.
const NO_CONTENT: &str = "(no content)";

/// Fields that summarize a tool call, in order of preference.
const SUMMARY_FIELDS: [&str; 15] = [
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

/// Collects the result of a run while its output is read.
#[derive(Debug, Default)]
pub(super) struct OutputAccumulator {
    pub(super) session: Option<String>,
    /// Number of tokens in the context window after the last turn.
    pub(super) context_fill: Option<ContextFill>,
    /// Last text that the model wrote.
    pub(super) last_text: String,
    pub(super) tokens: RunTokens,
    pub(super) cost: Option<Money>,
    /// Model that was used last.
    pub(super) model: Option<String>,
    pub(super) tool_calls: u32,
    pub(super) tool_errors: u32,
    pub(super) notes: Vec<String>,
    pub(super) denied: Vec<String>,
    /// Number of lines that were JSON objects.
    pub(super) json_lines: u64,
    pub(super) stop_reason: String,
    pub(super) signals: LimitSignals,
    /// Whether the provider refused a request and has not answered since.
    pub(super) waiting: bool,
    /// Paths of the files that pending calls change, by id of the call.
    edits: HashMap<String, String>,
    /// Last refusal by the provider; empty if there is none.
    refusal: String,
    /// Whether an unknown event was already reported.
    has_unknown_event: bool,
    /// Whether a malformed line was already reported.
    has_broken_line: bool,
}

impl OutputAccumulator {
    /// Parses a line of standard output as a JSON object; reports any other line, and standard error, as text.
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

    /// Parses a line as a JSON object. Reports any other line as text, and the first malformed object as a problem.
    pub(super) fn parse_object(&mut self, line: &str, on_event: &mut dyn FnMut(AgentEvent)) -> Option<Value> {
        let line = line.trim().trim_start_matches('\u{feff}');
        if let Ok(object @ Value::Object(_)) = serde_json::from_str::<Value>(line) {
            self.json_lines += 1;
            return Some(object);
        }
        if line.starts_with('{') && !self.has_broken_line && self.json_lines > 0 {
            self.has_broken_line = true;
            self.add_note("a line of its output is invalid JSON".to_owned());
        }
        if !line.is_empty() {
            on_event(AgentEvent::Text { text: shortened(line, MAX_EVENT_TEXT) });
        }
        None
    }

    /// Records the id of the session, and reports it if it is new.
    pub(super) fn record_session(&mut self, id: &Value, on_event: &mut dyn FnMut(AgentEvent)) {
        if let Some(id) = id.as_str().filter(|id| !id.is_empty() && self.session.as_deref() != Some(id)) {
            self.session = Some(id.to_owned());
            on_event(AgentEvent::Session { id: id.to_owned() });
        }
    }

    /// Records and reports a text of the model.
    pub(super) fn record_text(&mut self, text: &str, on_event: &mut dyn FnMut(AgentEvent)) {
        self.waiting = false;
        if !text.trim().is_empty() {
            text.clone_into(&mut self.last_text);
            on_event(AgentEvent::Text { text: shortened(text, MAX_EVENT_TEXT) });
        }
    }

    /// Counts and reports a tool call.
    pub(super) fn record_tool_call(&mut self, name: &str, input: &Value, on_event: &mut dyn FnMut(AgentEvent)) {
        self.waiting = false;
        self.tool_calls = self.tool_calls.saturating_add(1);
        let name = shortened(if name.is_empty() { "unnamed" } else { name }, MAX_NAME);
        on_event(AgentEvent::ToolCalled { name, input: summary(input) });
    }

    /// Counts and reports a tool call whose result comes later. If its tool is one of `editors`, the changed file is
    /// remembered.
    pub(super) fn record_pending_call(
        &mut self,
        id: &Value,
        (name, input): (&str, &Value),
        editors: &[&str],
        on_event: &mut dyn FnMut(AgentEvent),
    ) {
        self.record_tool_call(name, input, on_event);
        let path = input["file_path"].as_str().or(input["notebook_path"].as_str());
        if let (Some(id), Some(path)) = (id.as_str(), path)
            && editors.contains(&name)
            && self.edits.len() < MAX_KEPT
        {
            self.edits.insert(id.to_owned(), path.to_owned());
        }
    }

    /// Records the result of a pending call: its error if it failed, otherwise the change of its file.
    pub(super) fn record_result(&mut self, id: &Value, error: Option<&str>, on_event: &mut dyn FnMut(AgentEvent)) {
        let edited = id.as_str().and_then(|id| self.edits.remove(id));
        if let Some(error) = error {
            self.record_tool_failure(error, on_event);
        } else if let Some(path) = edited {
            on_event(AgentEvent::FileChanged { path: shortened(&path, MAX_EVENT_TEXT) });
        }
    }

    /// Counts and reports a tool call that failed.
    pub(super) fn record_tool_failure(&mut self, text: &str, on_event: &mut dyn FnMut(AgentEvent)) {
        self.tool_errors = self.tool_errors.saturating_add(1);
        self.add_note(format!("a tool failed: {}", text.trim()));
        on_event(AgentEvent::ToolFailed { text: shortened(text.trim(), MAX_EVENT_TEXT) });
    }

    /// Records a tool whose use was denied.
    pub(super) fn record_denial(&mut self, name: &str) {
        if self.denied.len() < MAX_NOTES {
            self.denied.push(shortened(name, MAX_NAME));
        }
    }

    /// Records and reports a retry of a request to the provider.
    pub(super) fn record_retry(&mut self, reason: String, on_event: &mut dyn FnMut(AgentEvent)) {
        self.waiting = true;
        self.refusal.clone_from(&reason);
        self.add_note(format!("a request to the provider was retried: {reason}"));
        on_event(AgentEvent::Retried { reason: shortened(&reason, MAX_NOTE) });
    }

    /// Reports the usage so far.
    pub(super) fn report_usage(&self, on_event: &mut dyn FnMut(AgentEvent)) {
        let RunTokens { read, written, cache_read, cache_write } = self.tokens;
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

    /// Records the name of the model. Names in angle brackets are ignored, because programs use them for their own
    /// messages.
    pub(super) fn record_model(&mut self, model: &Value) {
        if let Some(model) = model.as_str().filter(|model| !model.is_empty() && !model.starts_with('<')) {
            self.model = Some(shortened(model, MAX_NAME));
        }
    }

    /// Adds an error or remark to the result.
    pub(super) fn add_note(&mut self, note: String) {
        if self.notes.len() < MAX_NOTES {
            self.notes.push(shortened(&note, MAX_NOTE));
        }
    }

    /// Records an error of the provider, with the details in its message.
    pub(super) fn record_provider_error(&mut self, message: &str) {
        self.record_error(message, true);
    }

    /// Records an error. If `of_provider` is `false`, numbers in the message are not read as an HTTP status.
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

    /// Reports an unknown event as text, and the first one also as a problem.
    pub(super) fn record_unknown_event(&mut self, kind: &str, event: &Value, on_event: &mut dyn FnMut(AgentEvent)) {
        if !self.has_unknown_event {
            self.has_unknown_event = true;
            let kind = shortened(kind, MAX_NAME);
            self.add_note(format!("it printed an event {kind:?}, which this version of ralph-bot does not support"));
        }
        let text = ["text", "message", "content"].iter().find_map(|name| event[*name].as_str());
        let text = text.map_or_else(|| event.to_string(), str::to_owned);
        on_event(AgentEvent::Text { text: shortened(&text, MAX_EVENT_TEXT) });
    }

    /// Returns the status of a run that ended without a reported result: killed, called with wrong arguments, waiting
    /// for a login, another program with the same name, or a version with another format.
    pub(super) fn status_without_result(&mut self, finished: &Finished) -> AgentStatus {
        if self.waiting && finished.ended != ProcessEnd::Exited(0) {
            // The program retried the request, so the refusal is temporary.
            return match refused(&mut self.signals, &self.refusal) {
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
        let error_output = finished.stderr.last(MAX_EVENT_TEXT);
        let refusal = match printed.as_str() {
            // A longer answer can contain the same words.
            answer if ended_well && !is_brief(answer) => None,
            printed => {
                no_answer(printed).or_else(|| no_answer(error_output).filter(|_| !ended_well || printed.is_empty()))
            }
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
                    "its output has no format that this version of ralph-bot supports; ralph-bot read it as text"
                        .to_owned(),
                );
                AgentStatus::Finished
            }
            ProcessEnd::Exited(0) => AgentStatus::Failed { reason: "it ended without any output".to_owned() },
            ended => AgentStatus::Failed { reason: describe_end(ended, finished) },
        }
    }

    /// Records the end of the output of a program without structured output that exited with an error, because it may
    /// contain a refusal. Output of a stopped program is ignored, because it is about the program's work.
    pub(super) fn add_failure_output(&mut self, finished: &Finished) {
        if matches!(finished.ended, ProcessEnd::Exited(code) if code != 0) {
            let report = without_work(finished.stdout.last(ERROR_LINES.1));
            self.signals.messages.extend(last_lines(&report));
        }
    }

    /// Returns the status of a run that did nothing, although nothing failed: no text, no tool call, no tokens.
    fn without_answer(&mut self, status: AgentStatus, finished: &Finished) -> AgentStatus {
        let has_text = !matches!(self.last_text.trim(), "" | NO_CONTENT);
        if has_text || self.tool_calls > 0 || self.tokens != RunTokens::default() || !self.notes.is_empty() {
            return status;
        }
        match status {
            // Without structured output, tokens are unknown and silence can be success.
            AgentStatus::Finished if self.json_lines > 0 => {
                self.signals.code = Some(EMPTY_ANSWER.to_owned());
                AgentStatus::Failed { reason: "the model gave an empty answer".to_owned() }
            }
            AgentStatus::Failed { reason } if finished.ended == ProcessEnd::Exited(0) => {
                self.signals.code.get_or_insert_with(|| EMPTY_ANSWER.to_owned());
                AgentStatus::Failed { reason }
            }
            status => status,
        }
    }

    /// Returns the result with this status.
    pub(super) fn finish(&mut self, status: AgentStatus, finished: &Finished) -> ParsedOutput {
        let status = self.without_answer(status, finished);
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
            context_fill: self.context_fill,
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

/// Summarizes the input of a tool call in at most 500 characters: its command, path or pattern, otherwise the whole
/// input.
pub(super) fn summary(input: &Value) -> String {
    let summary = SUMMARY_FIELDS.iter().map(|name| &input[*name]).find(|value| !value.is_null());
    let text = match summary.unwrap_or(input) {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(words) if words.iter().all(Value::is_string) => {
            words.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" ")
        }
        other => other.to_string(),
    };
    shortened(text.trim(), MAX_INPUT)
}

/// Returns the end of a program's output without the parts in which an agent writes about its work: blocks of code, lists,
/// quotations, and paragraphs of one indented line, except the last paragraph.
fn without_work(end: &str) -> String {
    let is_fence = |line: &str| line.trim_start().starts_with("```");
    let is_item = |line: &str| ["- ", "* ", "> "].iter().any(|mark| line.trim_start().starts_with(mark));
    // The start can be missing, but not the end.
    let mut fenced = end.lines().filter(|line| is_fence(line)).count() % 2 == 1;
    let mut listed = false;
    let mut text = String::new();
    for line in end.lines() {
        let indented = line.starts_with([' ', '\t']) && !line.trim().is_empty();
        listed = is_item(line) || listed && indented;
        if is_fence(line) {
            fenced = !fenced;
        } else if !fenced && !listed {
            text.push_str(if line.trim().is_empty() { "" } else { line });
            text.push('\n');
        }
    }
    let paragraphs: Vec<&str> =
        text.split("\n\n").map(|part| part.trim_matches('\n')).filter(|part| !part.is_empty()).collect();
    let is_report = |(at, part): &(usize, &&str)| {
        *at + 1 == paragraphs.len() || part.contains('\n') || !part.starts_with([' ', '\t'])
    };
    let reports: Vec<&str> = paragraphs.iter().enumerate().filter(is_report).map(|(_, part)| *part).collect();
    reports.join("\n\n")
}

/// Returns the last lines of an output without lines of stack traces, as one message because an error may span several lines.
fn last_lines(end: &str) -> Option<String> {
    let is_message =
        |line: &&str| !line.is_empty() && !line.starts_with("at ") && line.chars().any(char::is_alphanumeric);
    let mut lines: Vec<String> = end
        .lines()
        .rev()
        .map(str::trim)
        .filter(is_message)
        .take(ERROR_LINES.0)
        .map(|l| shortened(l, MAX_NOTE))
        .collect();
    lines.reverse();
    Some(lines.join("\n")).filter(|end| !end.is_empty())
}

#[cfg(test)]
mod tests;
