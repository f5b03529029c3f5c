//! Claude Code: how it is called, and how its stream of JSON lines is read.
//!
//! What it prints differs between versions, and neither its exit code nor `subtype` tells how it went (a refused
//! request is `"subtype":"success"`; an interrupted run exits with 0). So: `is_error` of the result line decides, then
//! `terminal_reason`; without a result line, whether there was any text. Unknown lines and fields are passed over.

use std::collections::BTreeMap;

use serde_json::Value;

use super::preset::{Call, MAX_EVENT_TEXT, Preset, Reader, Reading, shortened};
use super::script::how_it_ended;
use super::{AgentEvent, AgentStatus};
use crate::domain::ids::Money;
use crate::process::{Ended, Finished, Stream};

/// Most errors and denials that are kept.
const MAX_NOTES: usize = 50;
/// Longest note, in characters.
const MAX_NOTE: usize = 500;
/// Most messages whose usage is kept; a run that long has its figures from the result line.
const MAX_MESSAGES: usize = 10_000;
/// How often it asks the provider again; with more it would sit in a back-off for minutes.
const MAX_RETRIES: &str = "3";
/// How long it waits for an answer, in milliseconds.
const API_TIMEOUT_MS: &str = "300000";

pub(super) const PRESET: Preset = Preset {
    name: "claude",
    program: Some("claude"),
    arguments,
    environment,
    reader: || Box::new(ClaudeStream::default()),
    version: Some(&["--version"]),
};

fn arguments(call: &Call<'_>) -> Vec<String> {
    // Without a sandbox its own gate is the only one: edits pass, as do commands that only make files in the tree
    // (`touch`); other commands do not, unless the operator's `args` say so.
    let mode = if call.run.sandboxed { "bypassPermissions" } else { "acceptEdits" };
    let mut arguments: Vec<String> =
        ["-p", "--output-format", "stream-json", "--verbose", "--permission-mode", mode, "--strict-mcp-config"]
            .map(str::to_owned)
            .into();
    // A repository's own settings could send the key elsewhere (`env.ANTHROPIC_BASE_URL`) or run hooks.
    arguments.extend(["--setting-sources", "user"].map(str::to_owned));
    if let Some(model) = call.model {
        arguments.extend(["--model".to_owned(), model.to_owned()]);
    }
    if let Some(turns) = call.run.max_turns {
        arguments.extend(["--max-turns".to_owned(), turns.to_string()]);
    }
    if let Some(max) = call.run.max_cost {
        arguments.extend(["--max-budget-usd".to_owned(), format!("{:.6}", max.usd().max(0.000_001))]);
    }
    arguments
}

fn environment(call: &Call<'_>) -> Vec<(&'static str, String)> {
    let mut environment = vec![
        ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
        ("DISABLE_AUTOUPDATER", "1"),
        ("CLAUDE_CODE_MAX_RETRIES", MAX_RETRIES),
        ("API_TIMEOUT_MS", API_TIMEOUT_MS),
    ];
    if call.root && call.run.sandboxed {
        // As the superuser it refuses to work without questions unless it is told that it is shut in.
        environment.push(("IS_SANDBOX", "1"));
    }
    environment.into_iter().map(|(name, value)| (name, value.to_owned())).collect()
}

/// Reads Claude Code's `stream-json` output, a line at a time.
#[derive(Debug, Default)]
pub struct ClaudeStream {
    session: Option<String>,
    last_text: String,
    usage: BTreeMap<String, (u64, u64)>,
    tool_calls: u32,
    tool_errors: u32,
    errors: Vec<String>,
    json_lines: u64,
    limit: Option<Limit>,
    result: Option<Value>,
}

/// A limit that the provider told of.
#[derive(Debug, Clone)]
struct Limit {
    until_ms: Option<i64>,
    kind: String,
}

impl ClaudeStream {
    /// Takes a line; what it means for people goes to `on_event`. Lines that are not JSON are kept as text.
    pub fn line(&mut self, line: &str, on_event: &mut dyn FnMut(AgentEvent)) {
        let line = line.trim().trim_start_matches('\u{feff}');
        let Ok(Value::Object(event)) = serde_json::from_str::<Value>(line) else {
            if !line.is_empty() {
                on_event(AgentEvent::Text { text: shortened(line, MAX_EVENT_TEXT) });
            }
            return;
        };
        let event = Value::Object(event);
        self.json_lines += 1;
        if let Some(id) = event["session_id"].as_str()
            && self.session.as_deref() != Some(id)
        {
            self.session = Some(id.to_owned());
            on_event(AgentEvent::Session { id: id.to_owned() });
        }
        match event["type"].as_str() {
            Some("assistant") => self.assistant(&event, on_event),
            Some("user") => self.tool_results(&event, on_event),
            Some("system") if event["subtype"] == "api_retry" => {
                let status = event["error_status"].as_u64().map(|s| format!(" ({s})")).unwrap_or_default();
                let reason = format!("{}{status}", event["error"].as_str().unwrap_or("the provider did not answer"));
                self.note(format!("the provider was asked again: {reason}"));
                on_event(AgentEvent::Retried { reason });
            }
            Some("rate_limit_event") => self.rate_limit(&event["rate_limit_info"]),
            Some("result") => {
                self.result = Some(event);
                let (tokens_in, tokens_out) = self.tokens();
                on_event(AgentEvent::Used { tokens_in, tokens_out, cost: self.money() });
            }
            _ => {}
        }
    }

    fn assistant(&mut self, event: &Value, on_event: &mut dyn FnMut(AgentEvent)) {
        let message = &event["message"];
        let usage = counted(&message["usage"]);
        if usage != (0, 0) && (self.usage.len() < MAX_MESSAGES) {
            // One message comes in several lines, each with the usage so far.
            self.usage.insert(message["id"].as_str().unwrap_or_default().to_owned(), usage);
        }
        for part in message["content"].as_array().into_iter().flatten() {
            match part["type"].as_str() {
                Some("text") => {
                    let text = part["text"].as_str().unwrap_or_default();
                    if !text.trim().is_empty() {
                        text.clone_into(&mut self.last_text);
                        on_event(AgentEvent::Text { text: shortened(text, MAX_EVENT_TEXT) });
                    }
                }
                Some("tool_use") => {
                    self.tool_calls = self.tool_calls.saturating_add(1);
                    let name = shortened(part["name"].as_str().unwrap_or("unnamed"), 100);
                    on_event(AgentEvent::ToolCalled { name });
                }
                _ => {}
            }
        }
    }

    fn tool_results(&mut self, event: &Value, on_event: &mut dyn FnMut(AgentEvent)) {
        for part in event["message"]["content"].as_array().into_iter().flatten() {
            if part["type"] == "tool_result" && part["is_error"] == true {
                self.tool_errors = self.tool_errors.saturating_add(1);
                let text = match &part["content"] {
                    Value::String(text) => text.clone(),
                    other => other[0]["text"].as_str().unwrap_or_default().to_owned(),
                };
                self.note(format!("a tool failed: {}", text.trim()));
                on_event(AgentEvent::ToolFailed { text: shortened(text.trim(), MAX_EVENT_TEXT) });
            }
        }
    }

    fn rate_limit(&mut self, info: &Value) {
        if info["status"] == "rejected" {
            self.limit = Some(Limit {
                until_ms: info["resetsAt"].as_i64().and_then(|seconds| seconds.checked_mul(1000)),
                kind: info["rateLimitType"].as_str().unwrap_or("unknown").replace('_', " "),
            });
        }
    }

    fn note(&mut self, note: String) {
        if self.errors.len() < MAX_NOTES {
            self.errors.push(shortened(&note, MAX_NOTE));
        }
    }

    /// Tokens read and written: by model where it adds them up so, else in all, else by message. The figures of the
    /// result line are 0 where it ran out of money.
    fn tokens(&self) -> (u64, u64) {
        let result = self.result.as_ref().unwrap_or(&Value::Null);
        let by_model = result["modelUsage"].as_object().into_iter().flat_map(|models| models.values());
        let number = |value: &Value| value.as_u64().unwrap_or(0);
        let models = by_model.fold((0u64, 0u64), |(read, written), model| {
            let inputs = ["inputTokens", "cacheReadInputTokens", "cacheCreationInputTokens"];
            let input = inputs.iter().fold(0u64, |sum, name| sum.saturating_add(number(&model[*name])));
            (read.saturating_add(input), written.saturating_add(number(&model["outputTokens"])))
        });
        let messages = self
            .usage
            .values()
            .fold((0u64, 0u64), |(read, written), (r, w)| (read.saturating_add(*r), written.saturating_add(*w)));
        [models, counted(&result["usage"]), messages].into_iter().find(|sum| *sum != (0, 0)).unwrap_or_default()
    }

    fn money(&self) -> Option<Money> {
        Some(Money::from_usd(self.result.as_ref()?["total_cost_usd"].as_f64()?.max(0.0)))
    }

    fn status(&mut self, finished: &Finished) -> AgentStatus {
        let Some(result) = self.result.take() else { return self.without_result(finished) };
        let status = self.judged(&result);
        self.result = Some(result);
        status
    }

    fn judged(&mut self, result: &Value) -> AgentStatus {
        for error in result["errors"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            self.note(error.to_owned());
        }
        let is_error = result["is_error"] == true;
        let reason = result["terminal_reason"].as_str().unwrap_or("completed");
        match result["subtype"].as_str().unwrap_or_default() {
            "error_max_budget_usd" => AgentStatus::OverBudget,
            // Not an error of the work: the next iteration goes on from here.
            "error_max_turns" => {
                self.note("it stopped at its limit of turns".to_owned());
                AgentStatus::Finished
            }
            _ if is_error => {
                let said = result["result"].as_str().filter(|text| !text.trim().is_empty());
                let said = said.or(self.errors.last().map(String::as_str)).unwrap_or(reason);
                self.refused(result["api_error_status"].as_u64(), &shortened(said.trim(), MAX_NOTE))
            }
            _ if reason != "completed" => AgentStatus::Failed { reason: format!("it ended with {reason:?}") },
            _ => AgentStatus::Finished,
        }
    }

    /// An error that it gave up on: whose fault it is decides what comes next.
    fn refused(&self, status: Option<u64>, said: &str) -> AgentStatus {
        let reason = said.to_owned();
        let lower = said.to_lowercase();
        let says = |words: &[&str]| words.iter().any(|word| lower.contains(word));
        if let Some(limit) = &self.limit {
            return AgentStatus::Limited { until_ms: limit.until_ms, reason: format!("{reason} ({})", limit.kind) };
        }
        let nobody_helps = ["/login", "invalid api key", "credit balance", "authenticate", "oauth token"];
        match status {
            Some(401..=404) => AgentStatus::Unavailable { reason },
            Some(408 | 429 | 500..=599) => AgentStatus::Limited { until_ms: None, reason },
            _ if says(&nobody_helps) => AgentStatus::Unavailable { reason },
            None if says(&["hit your", "usage limit", "rate limit"]) => {
                // An older form ends with the time in seconds: `usage limit reached|1750000000`.
                let epoch = said.rsplit_once('|').and_then(|(_, at)| at.trim().parse::<i64>().ok());
                AgentStatus::Limited { until_ms: epoch.and_then(|s| s.checked_mul(1000)), reason }
            }
            None if says(&["timed out", "connection", "unable to connect", "econn", "overloaded"]) => {
                AgentStatus::Limited { until_ms: None, reason }
            }
            _ => AgentStatus::Failed { reason },
        }
    }

    /// It ended without saying how: killed, called wrongly, or of a version that says it in another way.
    fn without_result(&mut self, finished: &Finished) -> AgentStatus {
        let printed = if self.json_lines == 0 { finished.stdout.head.trim() } else { self.last_text.trim() };
        let said = finished.stderr.head.trim();
        match &finished.ended {
            Ended::Exited(0) if !printed.is_empty() => {
                if self.json_lines == 0 {
                    self.last_text = finished.stdout.last(MAX_EVENT_TEXT).trim().to_owned();
                }
                self.note("its output is not understood by this version of ralph-bot; it was read as text".to_owned());
                AgentStatus::Finished
            }
            Ended::Exited(0) => AgentStatus::Failed { reason: "it ended without a word".to_owned() },
            Ended::Exited(_)
                if self.json_lines == 0 && (said.contains("unknown option") || said.contains("/login")) =>
            {
                AgentStatus::Unavailable { reason: how_it_ended(&finished.ended, finished) }
            }
            ended => AgentStatus::Failed { reason: how_it_ended(ended, finished) },
        }
    }
}

impl Reader for ClaudeStream {
    fn line(&mut self, stream: Stream, line: &str, on_event: &mut dyn FnMut(AgentEvent)) {
        match stream {
            Stream::Stdout => ClaudeStream::line(self, line, on_event),
            Stream::Stderr if line.trim().is_empty() => {}
            Stream::Stderr => on_event(AgentEvent::Text { text: shortened(line, MAX_EVENT_TEXT) }),
        }
    }

    fn complete(&self) -> bool {
        self.result.is_some()
    }

    fn finish(&mut self, finished: &Finished) -> Reading {
        let status = self.status(finished);
        let result = self.result.as_ref().unwrap_or(&Value::Null);
        let denied = result["permission_denials"].as_array().into_iter().flatten();
        let denied: Vec<String> =
            denied.filter_map(|d| d["tool_name"].as_str()).take(MAX_NOTES).map(|n| shortened(n, 100)).collect();
        let (tokens_in, tokens_out) = self.tokens();
        Reading {
            status,
            final_message: result["result"].as_str().unwrap_or(&self.last_text).to_owned(),
            session: self.session.clone(),
            tokens_in,
            tokens_out,
            cost: self.money(),
            tool_calls: self.tool_calls,
            tool_errors: self.tool_errors,
            errors: std::mem::take(&mut self.errors),
            denied,
        }
    }
}

/// Tokens read (cached ones too) and written.
fn counted(usage: &Value) -> (u64, u64) {
    let number = |name: &str| usage[name].as_u64().unwrap_or(0);
    let cached = number("cache_creation_input_tokens").saturating_add(number("cache_read_input_tokens"));
    (number("input_tokens").saturating_add(cached), number("output_tokens"))
}

#[cfg(test)]
mod tests;
