//! Reads JSON Lines output of unknown programs: fields with common names are recognized, everything else is reported
//! as text.

use serde_json::Value;

use super::output::OutputAccumulator;
use super::preset::{OutputReader, ParsedOutput};
use super::refusal::gave_up;
use super::usage::RunTokens;
use super::{AgentEvent, AgentStatus};
use crate::domain::model::ids::Money;
use crate::domain::providers::limit::http_error;
use crate::process::{Finished, ProcessEnd, Stream};

/// Names of fields that contain the session, texts, tools, usage, cost or the stop reason.
const SESSION: [&str; 6] = ["session_id", "sessionId", "sessionID", "thread_id", "conversation_id", "session"];
const TEXT: [&str; 5] = ["text", "result", "response", "message", "content"];
const TOOL: [&str; 3] = ["tool_name", "tool", "toolName"];
const INPUT: [&str; 5] = ["input", "parameters", "arguments", "args", "command"];
const USAGE: [&str; 4] = ["usage", "stats", "tokens", "token_usage"];
const READ: [&str; 4] = ["input_tokens", "prompt_tokens", "inputTokens", "tokens_in"];
const WRITTEN: [&str; 4] = ["output_tokens", "completion_tokens", "outputTokens", "tokens_out"];
const COST: [&str; 4] = ["total_cost_usd", "cost_usd", "total_cost", "cost"];
const STOP: [&str; 3] = ["stop_reason", "finish_reason", "terminal_reason"];

/// Creates a reader for JSON lines of an unknown program.
pub(super) fn reader() -> Box<dyn OutputReader> {
    Box::new(JsonLines::default())
}

#[derive(Debug, Default)]
struct JsonLines {
    output: OutputAccumulator,
    error: Option<String>,
}

fn first<'a>(event: &'a Value, names: &[&str]) -> &'a Value {
    names.iter().map(|name| &event[*name]).find(|value| !value.is_null()).unwrap_or(&Value::Null)
}

/// Returns the text in a value: the value itself, or the text in a message or list. `depth` is the number of levels to
/// search.
fn text_in(value: &Value, depth: u8) -> Option<&str> {
    match value {
        Value::String(text) => Some(text).filter(|text| !text.trim().is_empty()).map(String::as_str),
        Value::Array(parts) if depth > 0 => parts.iter().find_map(|part| text_in(part, depth - 1)),
        Value::Object(_) if depth > 0 => TEXT.iter().find_map(|name| text_in(&value[*name], depth - 1)),
        _ => None,
    }
}

impl JsonLines {
    fn event(&mut self, event: &Value, on_event: &mut dyn FnMut(AgentEvent)) {
        self.output.record_session(first(event, &SESSION), on_event);
        self.figures(event, on_event);
        if let Some(stop) = first(event, &STOP).as_str() {
            stop.clone_into(&mut self.output.stop_reason);
        }
        let kind = event["type"].as_str().or(event["event"].as_str()).unwrap_or_default();
        let role = event["role"].as_str().or(event["message"]["role"].as_str()).unwrap_or("assistant");
        let tool = first(event, &TOOL);
        if kind.contains("error") || event["is_error"] == true || is_error(&event["error"]) {
            self.error(event);
        } else if let Some(name) = tool.as_str().or(tool["name"].as_str()) {
            if !kind.contains("result") && !kind.contains("end") {
                self.output.record_tool_call(name, first(event, &INPUT), on_event);
            }
        } else if ["assistant", "model", "agent"].contains(&role) {
            match TEXT.iter().find_map(|name| text_in(&event[*name], 3)) {
                Some(text) => {
                    self.error = None;
                    self.output.record_text(text, on_event);
                }
                None if kind.is_empty() => self.output.record_unknown_event("without a type", event, on_event),
                None => {}
            }
        }
    }

    fn error(&mut self, event: &Value) {
        self.output.signals.learn_body(event);
        let error = if is_error(&event["error"]) { &event["error"] } else { event };
        let status = first(event, &["status_code", "statusCode", "status"]).as_u64();
        if let Some(status) = status.and_then(http_error) {
            self.output.signals.status = Some(status);
        }
        let message = text_in(error, 3).map_or_else(|| event.to_string(), str::to_owned);
        self.output.record_error(&message, false);
        self.error = Some(message);
    }

    fn figures(&mut self, event: &Value, on_event: &mut dyn FnMut(AgentEvent)) {
        let usage = first(event, &USAGE);
        let number = |names: &[&str]| first(usage, names).as_u64().unwrap_or(0);
        let (read, written) = (number(&READ), number(&WRITTEN));
        let cost = first(event, &COST).as_f64().filter(|cost| cost.is_finite() && *cost >= 0.0);
        if let Some(cost) = cost {
            self.output.cost = Some(Money::from_usd(cost));
        }
        if read > 0 || written > 0 {
            // Whether these are totals or increments is unknown; the maximum is never too high.
            let tokens = &mut self.output.tokens;
            *tokens = RunTokens { read: tokens.read.max(read), written: tokens.written.max(written), ..*tokens };
        }
        if cost.is_some() || read > 0 || written > 0 {
            self.output.report_usage(on_event);
        }
    }
}

fn is_error(error: &Value) -> bool {
    match error {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty(),
        _ => true,
    }
}

impl OutputReader for JsonLines {
    fn line(&mut self, stream: Stream, line: &str, on_event: &mut dyn FnMut(AgentEvent)) {
        if let Some(event) = self.output.parse_line(stream, line, on_event) {
            self.event(&event, on_event);
        }
    }

    fn finish(&mut self, finished: &Finished) -> ParsedOutput {
        let has_text = self.output.json_lines > 0 && !self.output.last_text.trim().is_empty();
        let status = match (&finished.ended, self.error.take()) {
            (ProcessEnd::Exited(_), Some(error)) => gave_up(&self.output.signals, &error),
            (ProcessEnd::Exited(0), None) if has_text => AgentStatus::Finished,
            _ => self.output.status_without_result(finished),
        };
        self.output.finish(status, finished)
    }
}

#[cfg(test)]
mod tests;
