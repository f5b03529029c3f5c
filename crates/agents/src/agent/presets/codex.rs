//! Codex: arguments, settings and the parser of `codex exec --json`.
//!
//! A turn ends with `turn.completed` or `turn.failed`. Before that, an `error` line can be a notice of a retry, and an
//! `error` item a warning. The cost is not reported. The usage covers the whole thread, including earlier runs that
//! were resumed.

use std::collections::HashSet;

use serde_json::Value;

use crate::agent::broker::ModelKey;
use crate::agent::broker::formats::FormatName;
use crate::agent::mcp::for_codex;
use crate::agent::output::{MAX_KEPT, OutputAccumulator};
use crate::agent::preset::{
    AgentPackage, AgentPreset, AgentProgram, ImageDelivery, OutputReader, ParsedOutput, PromptDelivery, RunContext,
    UsageReport, words,
};
use crate::agent::refusal::{gave_up, refused};
use crate::agent::text::{MAX_EVENT_TEXT, shortened};
use crate::agent::usage::{ContextFill, RunTokens};
use crate::agent::{AgentEvent, AgentStatus};
use crate::domain::providers::limit::status_in;
use crate::process::{Finished, ProcessEnd, Stream};

/// Settings of a separate provider entry, because the built-in ones ignore the configured number of retries.
const PROVIDER: [(&str, &str); 6] = [
    ("name", "\"OpenAI\""),
    ("wire_api", "\"responses\""),
    ("requires_openai_auth", "true"),
    // Retries of a refused request and of a broken stream; the product is the maximum number of requests.
    ("request_max_retries", "2"),
    ("stream_max_retries", "2"),
    // Time limit for silence within an answer; an answer that never starts is left to the run's own limit.
    ("stream_idle_timeout_ms", "300000"),
];

/// Preset of Codex.
pub(super) const PRESET: AgentPreset = AgentPreset {
    program: Some(AgentProgram {
        name: "codex",
        package: AgentPackage::Npm("@openai/codex"),
        tested_version: (0, 169),
        login_variables: &["CODEX_API_KEY"],
        login_file: Some(".codex/auth.json"),
        login_advice: "run `codex login`, which writes `~/.codex/auth.json`, or set `CODEX_API_KEY` to a key of the API",
    }),
    arguments,
    environment: |call| for_codex(call.servers).1,
    prompt: PromptDelivery::Stdin,
    version: Some(&["--version"]),
    images: ImageDelivery::Attached("--image"),
    takes_mcp_servers: true,
    sessions: &[".codex/sessions"],
    context_fill: Some(context_fill),
    model: Some(model),
    keys: &[ModelKey {
        keys: &["CODEX_API_KEY"],
        addresses: &["OPENAI_BASE_URL"],
        default_address: Some("https://api.openai.com/v1"),
        unless_set: &["CODEX_HOME"],
        formats: &[FormatName::Responses],
    }],
    model_hosts: &["api.openai.com", "chatgpt.com", "auth.openai.com"],
    is_output_format: true,
    usage: UsageReport::Tokens,
    reports_context_window: true,
    protected_paths: &["**/.codex/**"],
    ..AgentPreset::new("codex", || Box::new(CodexStream::default()))
};

fn arguments(call: &RunContext<'_>) -> Vec<String> {
    let mut arguments = words(&["exec"]);
    if let Some(session) = &call.run.session {
        arguments.extend(["resume".to_owned(), session.id.clone()]);
    }
    arguments.extend(words(&["--json", "--skip-git-repo-check"]));
    let mut set = |setting: String| arguments.extend(["-c".to_owned(), setting]);
    // An operator's own CODEX_HOME may define a provider, which is used then.
    if call.variable("CODEX_HOME").is_none() {
        set("model_provider=\"ralph\"".to_owned());
        for (key, value) in PROVIDER {
            set(format!("model_providers.ralph.{key}={value}"));
        }
        if let Some(url) = call.variable("OPENAI_BASE_URL") {
            set(format!("model_providers.ralph.base_url={}", Value::from(url)));
        }
    }
    set("check_for_update_on_startup=false".to_owned());
    // The provider would search, outside of the allowed hosts; the operator's `args` can turn it on again.
    set("web_search=\"disabled\"".to_owned());
    set("approval_policy=\"never\"".to_owned());
    if call.run.sandboxed {
        // It runs in our sandbox, and its own cannot be set up within.
        set("sandbox_mode=\"danger-full-access\"".to_owned());
    } else {
        set("sandbox_mode=\"workspace-write\"".to_owned());
        set(format!("sandbox_workspace_write.writable_roots=[{}]", Value::from(call.report_folder())));
    }
    let (servers, _) = for_codex(call.servers);
    servers.into_iter().for_each(set);
    if let Some(model) = call.model {
        arguments.extend(["-m".to_owned(), model.to_owned()]);
    }
    arguments
}

/// Reader of the output of `codex exec --json`.
#[derive(Debug, Default)]
struct CodexStream {
    output: OutputAccumulator,
    /// Ids of calls that were reported when they started.
    begun: HashSet<String>,
    /// Last error that was not a notice of a retry.
    error: Option<String>,
    end: Option<TurnEnd>,
}

/// Reads the used part of the context window from a line of a session file.
fn context_fill(line: &Value) -> Option<ContextFill> {
    let info = &line["payload"]["info"];
    let tokens =
        info["last_token_usage"]["total_tokens"].as_u64().filter(|_| line["payload"]["type"] == "token_count")?;
    Some(ContextFill { tokens, window: info["model_context_window"].as_u64() })
}

/// Reads the model from a line of a session file; each turn starts with such a line.
fn model(line: &str) -> Option<String> {
    let turn: Value = line.contains("\"turn_context\"").then(|| serde_json::from_str(line).ok())??;
    Some(turn["payload"]["model"].as_str().filter(|_| turn["type"] == "turn_context")?.to_owned())
}

/// End of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TurnEnd {
    Completed,
    Failed,
}

impl CodexStream {
    fn event(&mut self, event: &Value, on_event: &mut dyn FnMut(AgentEvent)) {
        match event["type"].as_str().unwrap_or_default() {
            "thread.started" => self.output.record_session(&event["thread_id"], on_event),
            "turn.started" => (self.end, self.error) = (None, None),
            "item.started" | "item.updated" => self.item(&event["item"], false, on_event),
            "item.completed" => self.item(&event["item"], true, on_event),
            "turn.completed" => {
                self.end = Some(TurnEnd::Completed);
                "completed".clone_into(&mut self.output.stop_reason);
                self.output.tokens = counted(&event["usage"]);
                self.output.report_usage(on_event);
            }
            "turn.failed" => {
                self.end = Some(TurnEnd::Failed);
                "failed".clone_into(&mut self.output.stop_reason);
                let message = event["error"]["message"].as_str().unwrap_or("it gave no reason");
                self.error(message);
                // A turn fails when requests to the provider fail.
                self.output.signals.learn(message);
            }
            "error" => {
                let message = event["message"].as_str().unwrap_or_default();
                if message.starts_with("Reconnecting...") {
                    self.output.signals.status = status_in(message);
                    self.output.record_retry(message.to_owned(), on_event);
                } else {
                    self.error(message);
                }
            }
            kind => self.output.record_unknown_event(kind, event, on_event),
        }
    }

    fn error(&mut self, message: &str) {
        if self.error.as_deref() != Some(message) {
            self.output.record_error(message, false);
            self.error = Some(message.to_owned());
        }
    }

    fn item(&mut self, item: &Value, has_ended: bool, on_event: &mut dyn FnMut(AgentEvent)) {
        let kind = item["type"].as_str().unwrap_or_default();
        let id = item["id"].as_str().unwrap_or_default();
        match kind {
            "agent_message" if has_ended => {
                self.output.record_text(item["text"].as_str().unwrap_or_default(), on_event)
            }
            "agent_message" | "reasoning" | "todo_list" | "plan" => self.output.waiting = false,
            "error" if has_ended => self.output.add_note(item["message"].as_str().unwrap_or_default().to_owned()),
            "error" => {}
            "command_execution" | "file_change" | "mcp_tool_call" | "web_search" | "collab_tool_call" => {
                let begins = self.begun.len() >= MAX_KEPT || self.begun.insert(id.to_owned());
                if begins {
                    let (name, input) = called(kind, item);
                    self.output.record_tool_call(&name, &input, on_event);
                }
                if has_ended {
                    self.begun.remove(id);
                    self.call_ended(kind, item, on_event);
                }
            }
            _ if has_ended => self.output.record_unknown_event(kind, item, on_event),
            _ => {}
        }
    }

    /// Reports a call that has ended.
    fn call_ended(&mut self, kind: &str, item: &Value, on_event: &mut dyn FnMut(AgentEvent)) {
        if item["status"] == "declined" {
            self.output.record_denial(kind);
        }
        if ["failed", "declined"].iter().any(|status| item["status"] == *status) {
            let output = item["aggregated_output"].as_str().or(item["error"]["message"].as_str());
            let text = match item["exit_code"].as_i64() {
                Some(code) => format!("exit code {code}: {}", output.unwrap_or_default().trim()),
                None => output.unwrap_or("it gave no reason").to_owned(),
            };
            self.output.record_tool_failure(text.trim_end_matches([':', ' ']), on_event);
        } else if kind == "file_change" {
            for path in item["changes"].as_array().into_iter().flatten().filter_map(|c| c["path"].as_str()) {
                on_event(AgentEvent::FileChanged { path: shortened(path, MAX_EVENT_TEXT) });
            }
        }
    }
}

/// Returns the name and the input of a call.
fn called(kind: &str, item: &Value) -> (String, Value) {
    match kind {
        "command_execution" => (kind.to_owned(), item["command"].clone()),
        "file_change" => {
            let changes = item["changes"].as_array().into_iter().flatten();
            (kind.to_owned(), changes.map(|change| change["path"].clone()).collect())
        }
        "mcp_tool_call" => {
            let word = |name: &str| item[name].as_str().unwrap_or_default();
            (format!("{}.{}", word("server"), word("tool")), item["arguments"].clone())
        }
        "web_search" => (kind.to_owned(), item["query"].clone()),
        _ => (item["tool"].as_str().unwrap_or(kind).to_owned(), item["prompt"].clone()),
    }
}

fn counted(usage: &Value) -> RunTokens {
    let number = |name: &str| usage[name].as_u64().unwrap_or(0);
    RunTokens {
        read: number("input_tokens"),
        written: number("output_tokens"),
        cache_read: number("cached_input_tokens"),
        cache_write: number("cache_write_input_tokens"),
    }
}

impl OutputReader for CodexStream {
    fn line(&mut self, stream: Stream, line: &str, on_event: &mut dyn FnMut(AgentEvent)) {
        if let Some(event) = self.output.parse_line(stream, line, on_event) {
            self.event(&event, on_event);
        }
    }

    fn is_complete(&self) -> bool {
        self.end.is_some()
    }

    fn is_waiting(&self) -> bool {
        self.output.waiting
    }

    /// Returns the tokens of the run: the usage of the whole thread minus the usage of the previous run.
    fn observed_tokens(&self) -> Option<u64> {
        Some(0)
    }

    fn finish(&mut self, finished: &Finished) -> ParsedOutput {
        let status = match (self.end, self.error.take()) {
            (Some(TurnEnd::Completed), _) if self.output.last_text.trim().is_empty() => {
                AgentStatus::Failed { reason: "its turn ended without any output".to_owned() }
            }
            (Some(TurnEnd::Completed), _) => AgentStatus::Finished,
            (Some(TurnEnd::Failed), Some(error)) => refused(&mut self.output.signals, &error),
            (None, Some(error)) if !matches!(finished.ended, ProcessEnd::Signalled(_)) => {
                gave_up(&self.output.signals, &error)
            }
            _ => self.output.status_without_result(finished),
        };
        if status != AgentStatus::Finished && self.output.json_lines == 0 {
            self.output.signals.learn(finished.stderr.last(500).trim().lines().last().unwrap_or_default());
        }
        self.output.finish(status, finished)
    }
}

#[cfg(test)]
mod tests;
