//! Claude Code: arguments, settings and the parser of its `stream-json` output.
//!
//! The output differs between versions. Neither the exit code nor `subtype` shows success: a refused request has
//! `"subtype":"success"`, and an interrupted run exits with 0. The status is derived from `is_error` of the result
//! line, then from `terminal_reason`; without a result line, from whether there was any text. Unknown lines and fields
//! are ignored.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::agent::broker::ModelKey;
use crate::agent::broker::formats::FormatName;
use crate::agent::output::{MAX_KEPT, MAX_NOTES, OutputAccumulator};
use crate::agent::preset::{
    AgentPackage, AgentPreset, AgentProgram, ImageDelivery, OutputReader, ParsedOutput, PromptDelivery, RunContext,
    UsageReport, variables, words,
};
use crate::agent::refusal::{gave_up, refused};
use crate::agent::text::{MAX_EVENT_TEXT, MAX_NOTE, shortened};
use crate::agent::usage::{ContextFill, RunTokens};
use crate::agent::{AgentEvent, AgentStatus};
use crate::domain::model::ids::{Money, Timestamp};
use crate::domain::providers::limit::http_error;
use crate::process::{Finished, Stream};

/// Maximum number of retries of a request. With its default, Claude Code would wait for minutes.
const MAX_RETRIES: &str = "3";
/// Time limit for a response, in milliseconds.
const API_TIMEOUT_MS: &str = "300000";
/// Maximum time that Claude Code waits for MCP servers before its first request, in milliseconds.
const MCP_CONNECT_TIMEOUT_MS: &str = "10000";

/// Preset of Claude Code.
pub(super) const PRESET: AgentPreset = AgentPreset {
    program: Some(AgentProgram {
        name: "claude",
        package: AgentPackage::Npm("@anthropic-ai/claude-code"),
        tested_version: (2, 1),
        login_variables: &["ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN"],
        login_file: Some(".claude/.credentials.json"),
        login_advice: "run `claude setup-token` and set `CLAUDE_CODE_OAUTH_TOKEN` to the token that it prints, which is valid for a year and stays hidden from runs",
    }),
    arguments,
    environment,
    prompt: PromptDelivery::Stdin,
    version: Some(&["--version"]),
    images: ImageDelivery::Folder("--add-dir"),
    takes_mcp_servers: true,
    sessions: &[".claude/projects"],
    keys: &[ModelKey {
        keys: &["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"],
        addresses: &["ANTHROPIC_BASE_URL"],
        default_address: Some("https://api.anthropic.com"),
        unless_set: &["CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY"],
        formats: &[FormatName::Messages],
    }],
    model_hosts: &["api.anthropic.com", "console.anthropic.com", "platform.claude.com"],
    is_output_format: true,
    usage: UsageReport::Cost,
    reports_usage_during_run: true,
    reports_context_window: true,
    protected_paths: &["**/CLAUDE.md", "**/.claude/**"],
    ..AgentPreset::new("claude", || Box::new(ClaudeStream::default()))
};

fn arguments(call: &RunContext<'_>) -> Vec<String> {
    // Without a sandbox its own permissions are the only protection: edits are allowed, and commands that only create files
    // in the tree (`touch`); other commands are denied unless the operator's `args` allow them.
    let mode = if call.run.sandboxed { "bypassPermissions" } else { "acceptEdits" };
    let mut arguments =
        words(&["-p", "--output-format", "stream-json", "--verbose", "--permission-mode", mode, "--strict-mcp-config"]);
    // Settings in the repository could send the key elsewhere (`env.ANTHROPIC_BASE_URL`) or run hooks.
    arguments.extend(["--setting-sources", "user"].map(str::to_owned));
    if let Some(model) = call.model {
        arguments.extend(["--model".to_owned(), model.to_owned()]);
    }
    if let Some(session) = &call.run.session {
        arguments.extend(["--resume".to_owned(), session.id.clone()]);
    }
    if let Some(config) = &call.run.mcp_config {
        arguments.extend(["--mcp-config".to_owned(), config.display().to_string()]);
    }
    if let Some(turns) = call.run.max_turns {
        arguments.extend(["--max-turns".to_owned(), turns.to_string()]);
    }
    if let Some(max) = call.run.max_cost {
        arguments.extend(["--max-budget-usd".to_owned(), format!("{:.6}", max.usd().max(0.000_001))]);
    }
    arguments
}

fn environment(call: &RunContext<'_>) -> Vec<(String, String)> {
    let mut environment = vec![
        ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
        ("DISABLE_AUTOUPDATER", "1"),
        ("CLAUDE_CODE_MAX_RETRIES", MAX_RETRIES),
        ("API_TIMEOUT_MS", API_TIMEOUT_MS),
    ];
    if call.root && call.run.sandboxed {
        // As root it refuses to work without confirmation unless a variable states that it runs in a sandbox.
        environment.push(("IS_SANDBOX", "1"));
    }
    if !call.servers.is_empty() {
        // Otherwise its first request can lack the tools of servers that it still connects to.
        environment.extend([("MCP_CONNECTION_NONBLOCKING", "0"), ("MCP_CONNECT_TIMEOUT_MS", MCP_CONNECT_TIMEOUT_MS)]);
    }
    variables(&environment)
}

/// Types of lines that are ignored.
const IGNORED: [&str; 8] = [
    "system",
    "stream_event",
    "control_request",
    "control_response",
    "control_cancel_request",
    "keep_alive",
    "tool_progress",
    "auth_status",
];
/// Tools that change a file.
const EDITORS: [&str; 4] = ["Write", "Edit", "MultiEdit", "NotebookEdit"];

/// Reader of Claude Code's `stream-json` output.
#[derive(Debug, Default)]
struct ClaudeStream {
    output: OutputAccumulator,
    usage: BTreeMap<String, RunTokens>,
    /// Name of the limit that the provider reported; `None` if it reported none.
    limit: Option<String>,
    result: Option<Value>,
}

impl ClaudeStream {
    /// Parses one line and reports its events. Lines that are not JSON are reported as text.
    fn line(&mut self, line: &str, on_event: &mut dyn FnMut(AgentEvent)) {
        let Some(event) = self.output.parse_object(line, on_event) else { return };
        self.output.record_session(&event["session_id"], on_event);
        match event["type"].as_str().unwrap_or_default() {
            "assistant" => self.assistant(&event, on_event),
            "user" => self.tool_results(&event, on_event),
            "system" if event["subtype"] == "init" => self.output.record_model(&event["model"]),
            "system" if event["subtype"] == "api_retry" => {
                self.output.signals.status = event["error_status"].as_u64().and_then(http_error);
                let status = event["error_status"].as_u64().map(|s| format!(" ({s})")).unwrap_or_default();
                let reason = format!("{}{status}", event["error"].as_str().unwrap_or("the provider did not answer"));
                self.output.record_retry(reason, on_event);
            }
            "rate_limit_event" => self.rate_limit(&event["rate_limit_info"]),
            "result" => {
                self.output.cost = event["total_cost_usd"].as_f64().map(|usd| Money::from_usd(usd.max(0.0)));
                self.result = Some(event);
                self.output.tokens = self.tokens();
                self.output.report_usage(on_event);
            }
            kind if IGNORED.contains(&kind) => {}
            kind => self.output.record_unknown_event(kind, &event, on_event),
        }
    }

    fn assistant(&mut self, event: &Value, on_event: &mut dyn FnMut(AgentEvent)) {
        let message = &event["message"];
        let usage = counted(&message["usage"]);
        if usage != RunTokens::default() && (self.usage.len() < MAX_KEPT) {
            // A message is spread over several lines, each with the usage so far.
            let id = message["id"].as_str().unwrap_or_default().to_owned();
            let is_new = self.usage.insert(id, usage) != Some(usage);
            // A subagent has a separate context.
            if event["parent_tool_use_id"].is_null() {
                self.output.record_model(&message["model"]);
                self.output.context_fill = Some(ContextFill { tokens: usage.total(), window: None });
            }
            if is_new {
                // The result line contains the cost; until then it can be estimated.
                self.output.tokens = self.messages();
                self.output.report_usage(on_event);
            }
        }
        for part in message["content"].as_array().into_iter().flatten() {
            match part["type"].as_str() {
                Some("text") => self.output.record_text(part["text"].as_str().unwrap_or_default(), on_event),
                Some("tool_use") => {
                    let name = part["name"].as_str().unwrap_or_default();
                    self.output.record_pending_call(&part["id"], (name, &part["input"]), &EDITORS, on_event);
                }
                _ => {}
            }
        }
    }

    fn tool_results(&mut self, event: &Value, on_event: &mut dyn FnMut(AgentEvent)) {
        for part in event["message"]["content"].as_array().into_iter().flatten() {
            if part["type"] != "tool_result" {
                continue;
            }
            let text = match &part["content"] {
                Value::String(text) => text.as_str(),
                other => other[0]["text"].as_str().unwrap_or_default(),
            };
            let error = Some(text).filter(|_| part["is_error"] == true);
            self.output.record_result(&part["tool_use_id"], error, on_event);
        }
    }

    fn rate_limit(&mut self, info: &Value) {
        if info["status"] == "rejected" {
            let kind = info["rateLimitType"].as_str().unwrap_or("unknown");
            let until = info["resetsAt"].as_i64().and_then(|seconds| seconds.checked_mul(1000));
            self.output.signals.resets_at = until.map(Timestamp);
            self.output.signals.code = Some(kind.to_owned());
            self.limit = Some(kind.replace('_', " "));
        }
    }

    /// Returns the tokens: the sum over models if it is reported, otherwise the total, otherwise the sum of all
    /// messages. The figures of the result line are 0 if the budget was used up.
    fn tokens(&self) -> RunTokens {
        let result = self.result.as_ref().unwrap_or(&Value::Null);
        let by_model = result["modelUsage"].as_object().into_iter().flat_map(|models| models.values());
        let models = by_model.fold(RunTokens::default(), |sum, model| {
            let number = |name: &str| model[name].as_u64().unwrap_or(0);
            sum.plus(added(
                number("inputTokens"),
                number("cacheReadInputTokens"),
                number("cacheCreationInputTokens"),
                number("outputTokens"),
            ))
        });
        let sums = [models, counted(&result["usage"]), self.messages()];
        sums.into_iter().find(|sum| *sum != RunTokens::default()).unwrap_or_default()
    }

    fn messages(&self) -> RunTokens {
        self.usage.values().fold(RunTokens::default(), |sum, tokens| sum.plus(*tokens))
    }

    /// Returns the size of the model's context window. If the run used several models, the window of the model with the most
    /// input tokens.
    fn window(&self) -> Option<u64> {
        let models = self.result.as_ref()?["modelUsage"].as_object()?.values();
        let read = |model: &&Value| model["cacheReadInputTokens"].as_u64().max(model["inputTokens"].as_u64());
        models.max_by_key(read)?["contextWindow"].as_u64()
    }

    fn judged(&mut self, result: &Value) -> AgentStatus {
        for error in result["errors"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            self.output.record_error(error, is_refusal(result));
        }
        let is_error = result["is_error"] == true;
        let reason = result["terminal_reason"].as_str().unwrap_or("completed");
        let stop = result["stop_reason"].as_str().unwrap_or(reason);
        match result["subtype"].as_str().unwrap_or_default() {
            subtype @ ("error_max_budget_usd" | "error_max_turns") => subtype,
            _ if reason != "completed" => reason,
            _ => stop,
        }
        .clone_into(&mut self.output.stop_reason);
        match result["subtype"].as_str().unwrap_or_default() {
            "error_max_budget_usd" => AgentStatus::OverBudget,
            // Not an error: the next iteration continues the work.
            "error_max_turns" => {
                self.output.add_note("it stopped at its limit of turns".to_owned());
                AgentStatus::Finished
            }
            _ if is_error => {
                let message = result["result"].as_str().filter(|text| !text.trim().is_empty());
                let message = message.or(self.output.notes.last().map(String::as_str)).unwrap_or(reason);
                let message = shortened(message.trim(), MAX_NOTE);
                self.gave_up(result, &message)
            }
            _ if reason != "completed" => AgentStatus::Failed { reason: format!("it ended with {reason:?}") },
            _ => AgentStatus::Finished,
        }
    }

    /// Returns the status of a run that ended with an error.
    fn gave_up(&mut self, result: &Value, message: &str) -> AgentStatus {
        let signals = &mut self.output.signals;
        let of_provider = is_refusal(result);
        if of_provider {
            signals.learn(message);
        } else {
            signals.add_message(message);
        }
        if let Some(status) = result["api_error_status"].as_u64() {
            signals.status = http_error(status);
        }
        let code = result["api_error"].as_str().or(result["api_error_type"].as_str());
        if let Some(code) = code.filter(|code| !code.is_empty()) {
            signals.code = Some(code.to_owned());
        }
        if result["stop_reason"] == "refusal" {
            signals.code.get_or_insert_with(|| "refusal".to_owned());
        }
        match (&self.limit, signals.resets_at) {
            (Some(limit), until) => {
                AgentStatus::Limited { until_ms: until.map(|at| at.0), reason: format!("{message} ({limit})") }
            }
            (None, _) if of_provider => refused(signals, message),
            (None, _) => gave_up(signals, message),
        }
    }
}

impl OutputReader for ClaudeStream {
    fn line(&mut self, stream: Stream, line: &str, on_event: &mut dyn FnMut(AgentEvent)) {
        match stream {
            Stream::Stdout => ClaudeStream::line(self, line, on_event),
            Stream::Stderr if line.trim().is_empty() => {}
            Stream::Stderr => on_event(AgentEvent::Text { text: shortened(line, MAX_EVENT_TEXT) }),
        }
    }

    fn is_complete(&self) -> bool {
        self.result.is_some()
    }

    fn is_waiting(&self) -> bool {
        self.output.waiting
    }

    /// Returns the tokens in `usage`, which cover the run in all versions. In newer versions, cost and tokens by model
    /// cover the whole session.
    fn observed_tokens(&self) -> Option<u64> {
        let of_run = self.result.as_ref().map_or(0, |result| counted(&result["usage"]).total());
        Some(of_run.max(self.messages().total()))
    }

    fn finish(&mut self, finished: &Finished) -> ParsedOutput {
        self.output.tokens = self.tokens();
        let window = self.window();
        self.output.context_fill = self.output.context_fill.map(|context_fill| ContextFill { window, ..context_fill });
        let result = self.result.take().unwrap_or_default();
        let status =
            if result.is_object() { self.judged(&result) } else { self.output.status_without_result(finished) };
        let denied = result["permission_denials"].as_array().into_iter().flatten();
        for name in denied.filter_map(|d| d["tool_name"].as_str()).take(MAX_NOTES) {
            self.output.record_denial(name);
        }
        if let Some(text) = result["result"].as_str() {
            text.clone_into(&mut self.output.last_text);
        }
        self.output.finish(status, finished)
    }
}

/// Whether an error came from the provider. In this case the program itself reports success.
fn is_refusal(result: &Value) -> bool {
    result["subtype"] == "success" || result["api_error_status"].is_u64()
}

/// Returns the tokens of a response.
fn counted(usage: &Value) -> RunTokens {
    let number = |name: &str| usage[name].as_u64().unwrap_or(0);
    added(
        number("input_tokens"),
        number("cache_read_input_tokens"),
        number("cache_creation_input_tokens"),
        number("output_tokens"),
    )
}

fn added(fresh: u64, cache_read: u64, cache_write: u64, written: u64) -> RunTokens {
    let read = fresh.saturating_add(cache_read).saturating_add(cache_write);
    RunTokens { read, written, cache_read, cache_write }
}

#[cfg(test)]
mod tests;
