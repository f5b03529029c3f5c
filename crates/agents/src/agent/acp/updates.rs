//! Updates of a session: texts, tool calls, usage.

use std::collections::HashMap;

use serde_json::Value;

use crate::agent::AgentEvent;
use crate::agent::output::{MAX_KEPT, MAX_NAME, OutputAccumulator, summary};
use crate::agent::text::{MAX_EVENT_TEXT, shortened};
use crate::agent::usage::{ContextFill, RunTokens};
use crate::domain::model::ids::Money;

/// Maximum number of files of a tool call that are reported as changed.
const MAX_FILES: usize = 50;

/// Tool call whose result is not known.
#[derive(Debug, Default)]
pub(super) struct AcpToolCall {
    name: String,
    title: String,
    kind: String,
    /// Summary of the input.
    input: String,
    /// Files that it changes.
    files: Vec<String>,
    is_reported: bool,
}

impl AcpToolCall {
    /// Adds the fields of a message about the call.
    fn learn(&mut self, call: &Value) {
        let meta = &call["_meta"];
        let names = [&call["name"], &meta["toolName"], &meta["claudeCode"]["toolName"]];
        for (field, text) in [
            (&mut self.name, names.into_iter().find_map(Value::as_str)),
            (&mut self.title, call["title"].as_str()),
            (&mut self.kind, call["kind"].as_str()),
        ] {
            if let Some(text) = text.filter(|text| !text.is_empty()) {
                *field = shortened(text, MAX_EVENT_TEXT);
            }
        }
        if call["rawInput"].as_object().is_some_and(|input| !input.is_empty()) {
            self.input = summary(&call["rawInput"]);
        }
        let diffs = call["content"].as_array().into_iter().flatten().filter(|part| part["type"] == "diff");
        for path in diffs.filter_map(|diff| diff["path"].as_str()) {
            if self.files.len() < MAX_FILES && !self.files.iter().any(|known| known == path) {
                self.files.push(shortened(path, MAX_EVENT_TEXT));
            }
        }
    }

    /// Returns the tool's name; its kind or its title if it has none.
    fn shown_name(&self) -> String {
        let names = [&self.name, &self.kind, &self.title];
        names
            .into_iter()
            .find(|name| !name.is_empty())
            .map_or_else(|| "unnamed".to_owned(), |name| shortened(name, MAX_NAME))
    }
}

/// Reader of a session's updates.
#[derive(Debug, Default)]
pub(super) struct AcpUpdates {
    pub(super) output: OutputAccumulator,
    /// Tokens of the session before this run.
    before: RunTokens,
    /// Tokens of this run.
    pub(super) tokens: RunTokens,
    /// Text that is not complete, and the id of its message.
    text: String,
    message: Option<String>,
    /// Tool calls without a result, by id.
    calls: HashMap<String, AcpToolCall>,
}

impl AcpUpdates {
    /// Creates a reader. `before` is the number of tokens that the session used in earlier runs.
    pub(super) fn new(before: RunTokens) -> Self {
        Self { before, ..Self::default() }
    }

    /// Whether a tool call has no result.
    pub(super) fn has_open_calls(&self) -> bool {
        !self.calls.is_empty()
    }

    /// Reads an update of the session; ignores updates of other sessions.
    pub(super) fn read(&mut self, params: &Value, on_event: &mut dyn FnMut(AgentEvent)) {
        let update = &params["update"];
        if params["sessionId"].as_str() != self.output.session.as_deref() {
            return;
        }
        match update["sessionUpdate"].as_str() {
            Some("agent_message_chunk") => self.add_text(update, on_event),
            Some("tool_call" | "tool_call_update") => self.tool_call(update, on_event),
            Some("usage_update") => self.session_usage(update, on_event),
            _ => {}
        }
    }

    fn add_text(&mut self, update: &Value, on_event: &mut dyn FnMut(AgentEvent)) {
        let message = update["messageId"].as_str();
        if message.is_some() && message != self.message.as_deref() {
            self.flush_text(on_event);
            self.message = message.map(|id| shortened(id, MAX_NAME));
        }
        if self.text.len() < MAX_EVENT_TEXT * 16 {
            self.text.push_str(update["content"]["text"].as_str().unwrap_or_default());
        }
        self.record_tokens(&update["_meta"]["usage"], true, on_event);
    }

    /// Reports the text that is complete.
    pub(super) fn flush_text(&mut self, on_event: &mut dyn FnMut(AgentEvent)) {
        let text = std::mem::take(&mut self.text);
        if !text.is_empty() {
            self.output.record_text(&text, on_event);
        }
    }

    fn tool_call(&mut self, update: &Value, on_event: &mut dyn FnMut(AgentEvent)) {
        self.flush_text(on_event);
        let Some(id) = update["toolCallId"].as_str() else { return };
        if self.calls.len() >= MAX_KEPT && !self.calls.contains_key(id) {
            return;
        }
        let mut call = self.calls.remove(id).unwrap_or_default();
        call.learn(update);
        let status = update["status"].as_str().unwrap_or_default();
        let has_ended = matches!(status, "completed" | "failed");
        let is_later = update["sessionUpdate"] == "tool_call_update";
        // The first message may come before its input.
        if has_ended || status == "in_progress" || (is_later && !call.input.is_empty()) {
            self.report_call(&mut call, on_event);
        }
        match status {
            "failed" => self.output.record_tool_failure(&result_text(update), on_event),
            "completed" => {
                if let Some(code) = update["rawOutput"]["exitCode"].as_i64().filter(|code| *code != 0) {
                    let text = format!("exit code {code}: {}", result_text(update));
                    self.output.record_tool_failure(&text, on_event);
                }
                call.files.drain(..).for_each(|path| on_event(AgentEvent::FileChanged { path }));
            }
            _ => drop(self.calls.insert(id.to_owned(), call)),
        }
    }

    fn report_call(&mut self, call: &mut AcpToolCall, on_event: &mut dyn FnMut(AgentEvent)) {
        if !std::mem::replace(&mut call.is_reported, true) {
            let input = if call.input.is_empty() { &call.title } else { &call.input };
            self.output.record_tool_call(&call.shown_name(), &Value::from(input.as_str()), on_event);
        }
    }

    /// Records the tool call for which the agent asks permission; returns its name and its kind.
    pub(super) fn permission_asked(&mut self, asked: &Value, on_event: &mut dyn FnMut(AgentEvent)) -> (String, String) {
        self.flush_text(on_event);
        let mut call = asked["toolCallId"].as_str().and_then(|id| self.calls.remove(id)).unwrap_or_default();
        call.learn(asked);
        let named = (call.shown_name(), call.kind.clone());
        if let Some(id) = asked["toolCallId"].as_str().filter(|_| self.calls.len() < MAX_KEPT) {
            self.calls.insert(id.to_owned(), call);
        }
        named
    }

    /// Records the used part of the context window, and the cost of the session.
    fn session_usage(&mut self, update: &Value, on_event: &mut dyn FnMut(AgentEvent)) {
        if let Some(tokens) = update["used"].as_u64() {
            let window = update["size"].as_u64().filter(|size| *size > 0);
            self.output.context_fill = Some(ContextFill { tokens, window });
        }
        let cost = update["cost"]["amount"].as_f64().filter(|cost| cost.is_finite() && *cost > 0.0);
        if let Some(cost) = cost.filter(|_| update["cost"]["currency"] == "USD") {
            self.output.cost = Some(Money::from_usd(cost));
            self.output.report_usage(on_event);
        }
    }

    /// Records the tokens of one request (`is_part`) or of the whole turn.
    pub(super) fn record_tokens(&mut self, usage: &Value, is_part: bool, on_event: &mut dyn FnMut(AgentEvent)) {
        let tokens = counted(usage);
        if tokens == RunTokens::default() {
            return;
        }
        if is_part {
            self.output.context_fill = Some(ContextFill { tokens: tokens.total(), window: None });
            self.tokens = self.tokens.plus(tokens);
        } else if tokens.total() > self.tokens.total() {
            self.tokens = tokens;
        }
        self.output.tokens = self.before.plus(self.tokens);
        self.output.report_usage(on_event);
    }
}

/// Returns tokens. Some agents count cached tokens as input, others do not. The total shows it.
fn counted(usage: &Value) -> RunTokens {
    let number = |name: &str| usage[name].as_u64().unwrap_or(0);
    let (input, output, total) = (number("inputTokens"), number("outputTokens"), number("totalTokens"));
    let (cache_read, cache_write) = (number("cachedReadTokens"), number("cachedWriteTokens"));
    let with_cache = input.saturating_add(cache_read).saturating_add(cache_write);
    let read = if with_cache.saturating_add(output) <= total { with_cache } else { input };
    RunTokens { read, written: output.max(total.saturating_sub(read)), cache_read, cache_write }
}

/// Returns the text of a tool call's result.
fn result_text(update: &Value) -> String {
    let parts = update["content"].as_array().into_iter().flatten();
    let texts: Vec<&str> = parts.filter_map(|part| part["content"]["text"].as_str()).take(10).collect();
    let text = if texts.is_empty() {
        update["rawOutput"].as_str().unwrap_or("it gave no reason").to_owned()
    } else {
        texts.join("\n")
    };
    shortened(&text, MAX_EVENT_TEXT)
}
