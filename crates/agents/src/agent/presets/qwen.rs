//! Qwen Code: arguments, settings and the parser of its `stream-json` output.
//!
//! The lines resemble those of Claude Code, but input tokens include cached ones, and a refusal is an error in the
//! result line that begins with `[API Error: `. Retries are not in the output. After waiting for 30 s, Qwen Code
//! prints a notice on standard error and is then stopped. Without `QWEN_CODE_UNATTENDED_RETRY` it would wait silently
//! for as long as the provider requests.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Value, json};

use crate::agent::broker::ModelKey;
use crate::agent::broker::formats::FormatName;
use crate::agent::output::{MAX_KEPT, MAX_NOTES, OutputAccumulator};
use crate::agent::preset::{
    AgentPackage, AgentPreset, AgentProgram, ImageDelivery, OutputReader, ParsedOutput, PromptDelivery, RunContext,
    UsageReport, variables, words,
};
use crate::agent::refusal::{gave_up, refused};
use crate::agent::text::{MAX_EVENT_TEXT, shortened};
use crate::agent::usage::{ContextFill, RunTokens};
use crate::agent::{AgentEvent, AgentStatus};
use crate::domain::providers::limit::status_in;
use crate::process::{Finished, ProcessEnd, Stream};

/// Path of the settings file, relative to the home.
const SETTINGS: &str = ".qwen/ralph-settings.json";
/// Default address of the API. It is always set, because a `.env` in the repository could set another one.
const BASE_URL: &str = "https://api.openai.com/v1";
/// Time limit for a response, in milliseconds.
const API_TIMEOUT_MS: u64 = 300_000;
/// Exit code for reaching the maximum number of turns.
const OUT_OF_TURNS: i32 = 53;
/// Tools that change a file.
const EDITORS: [&str; 3] = ["write_file", "edit", "notebook_edit"];

/// Preset of Qwen Code.
pub(super) const PRESET: AgentPreset = AgentPreset {
    program: Some(AgentProgram {
        name: "qwen",
        package: AgentPackage::Npm("@qwen-code/qwen-code"),
        tested_version: (0, 24),
        login_variables: &["OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL"],
        login_file: None,
        login_advice: "set `OPENAI_API_KEY`, `OPENAI_BASE_URL` and `OPENAI_MODEL` to a key, the address and a model of any compatible API",
    }),
    arguments,
    environment,
    files: |context| vec![(SETTINGS, settings(context).to_string())],
    prompt: PromptDelivery::Stdin,
    is_output_format: true,
    usage: UsageReport::TokensAndModel,
    reports_usage_during_run: true,
    version: Some(&["--version"]),
    images: ImageDelivery::Folder("--include-directories"),
    takes_mcp_servers: true,
    sessions: &[".qwen/projects"],
    keys: &[ModelKey {
        keys: &["OPENAI_API_KEY"],
        addresses: &["OPENAI_BASE_URL"],
        default_address: Some(BASE_URL),
        unless_set: &[],
        formats: &[FormatName::Chat],
    }],
    model_hosts: &["api.openai.com"],
    protected_paths: &["**/QWEN.md", "**/.qwen/**"],
    any_vendor: true,
    ..AgentPreset::new("qwen", || Box::new(QwenStream::default()))
};

fn arguments(context: &RunContext<'_>) -> Vec<String> {
    // Without a sandbox it may edit files, but not run commands.
    let mode = if context.run.sandboxed { "yolo" } else { "auto-edit" };
    let mut arguments = words(&["--output-format", "stream-json", "--approval-mode", mode]);
    arguments.extend(["--include-directories".to_owned(), context.report_folder()]);
    if let Some(model) = context.model {
        arguments.extend(["--model".to_owned(), model.to_owned()]);
    }
    if let Some(session) = &context.run.session {
        arguments.extend(["--resume".to_owned(), session.id.clone()]);
    }
    if let Some(config) = &context.run.mcp_config {
        arguments.extend(["--mcp-config".to_owned(), config.display().to_string()]);
    }
    arguments
}

fn environment(context: &RunContext<'_>) -> Vec<(String, String)> {
    let settings = context.run.scratch.join("home").join(SETTINGS).display().to_string();
    let mut environment = variables(&[
        ("QWEN_CODE_SYSTEM_SETTINGS_PATH", settings.as_str()),
        ("QWEN_CODE_SUPPRESS_YOLO_WARNING", "1"),
        ("QWEN_CODE_UNATTENDED_RETRY", "1"),
    ]);
    if context.variable("OPENAI_BASE_URL").is_none() {
        environment.extend(variables(&[("OPENAI_BASE_URL", BASE_URL)]));
    }
    environment
}

/// Returns the settings, which settings in the repository cannot override.
fn settings(context: &RunContext<'_>) -> Value {
    let mut model = json!({ "generationConfig": { "maxRetries": 0, "timeout": API_TIMEOUT_MS } });
    if let Some(turns) = context.run.max_turns {
        model["maxSessionTurns"] = json!(turns);
    }
    json!({
        "security": { "auth": { "selectedType": "openai" } },
        // An entry in the repository could send the key elsewhere.
        "modelProviders": { "openai": [] },
        "general": { "enableAutoUpdate": false },
        "privacy": { "usageStatisticsEnabled": false },
        "telemetry": { "enabled": false },
        // It would request further answers after each run, for its own notes.
        "memory": { "enableManagedAutoMemory": false, "enableManagedAutoDream": false, "enableAutoSkill": false },
        "model": model,
    })
}

/// Reader of Qwen Code's `stream-json` output.
#[derive(Debug, Default)]
struct QwenStream {
    output: OutputAccumulator,
    /// Usage of each message, by its id.
    messages: BTreeMap<String, RunTokens>,
    /// Reason to stop the run; `None` to continue.
    stop_because: Option<String>,
    result: Option<Value>,
}

impl QwenStream {
    fn event(&mut self, event: &Value, on_event: &mut dyn FnMut(AgentEvent)) {
        self.output.record_session(&event["session_id"], on_event);
        match event["type"].as_str().unwrap_or_default() {
            "system" => self.output.record_model(&event["model"]),
            "assistant" => self.assistant(event, on_event),
            "user" => self.tool_results(event, on_event),
            "result" => {
                self.result = Some(event.clone());
                self.output.tokens = self.tokens();
                self.output.report_usage(on_event);
            }
            "stream_event" => {}
            kind => self.output.record_unknown_event(kind, event, on_event),
        }
    }

    fn assistant(&mut self, event: &Value, on_event: &mut dyn FnMut(AgentEvent)) {
        let message = &event["message"];
        for part in message["content"].as_array().into_iter().flatten() {
            match part["type"].as_str() {
                Some("text") if part["text"].as_str().is_some_and(is_refusal) => {}
                Some("text") => self.output.record_text(part["text"].as_str().unwrap_or_default(), on_event),
                Some("tool_use") => {
                    let name = part["name"].as_str().unwrap_or_default();
                    self.output.record_pending_call(&part["id"], (name, &part["input"]), &EDITORS, on_event);
                }
                _ => {}
            }
        }
        let usage = counted(&message["usage"]);
        if usage != RunTokens::default() && self.messages.len() < MAX_KEPT {
            self.messages.insert(message["id"].as_str().unwrap_or_default().to_owned(), usage);
            // A subagent has a context of its own.
            if event["parent_tool_use_id"].is_null() {
                self.output.record_model(&message["model"]);
                self.output.context_fill = Some(ContextFill { tokens: usage.total(), window: None });
            }
            self.output.tokens = self.observed();
            self.output.report_usage(on_event);
        }
    }

    fn tool_results(&mut self, event: &Value, on_event: &mut dyn FnMut(AgentEvent)) {
        for part in event["message"]["content"].as_array().into_iter().flatten() {
            let text = part["content"].as_str().unwrap_or("it does not say why");
            let error = Some(text).filter(|_| part["is_error"] == true);
            self.output.record_result(&part["tool_use_id"], error, on_event);
        }
    }

    /// Parses a line of standard error, which can be a notice of a wait for the provider with the remaining time.
    fn parse_error_line(&mut self, line: &str, on_event: &mut dyn FnMut(AgentEvent)) {
        static WAITING: LazyLock<Regex> = LazyLock::new(|| {
            Regex::new(r"^\[qwen-code\] Waiting for API capacity\.\.\. attempt \d+, retry in (\d+)s$")
                .expect("the expression is fixed and valid")
        });
        if let Some(parts) = WAITING.captures(line.trim()) {
            // It waits like this after a status of 429 or 529 only.
            self.output.signals.status = Some(429);
            if let Ok(seconds) = parts[1].parse::<u64>() {
                self.output.signals.headers.push(("retry-after".to_owned(), seconds.to_string()));
            }
            self.stop_because = Some(format!("its provider refused it; it would retry in {} s", &parts[1]));
            self.output.record_retry("the provider refused a request for lack of capacity".to_owned(), on_event);
        } else if !line.trim().is_empty() {
            on_event(AgentEvent::Text { text: shortened(line, MAX_EVENT_TEXT) });
        }
    }

    /// Returns the sum of all messages of this run.
    fn observed(&self) -> RunTokens {
        self.messages.values().fold(RunTokens::default(), |sum, tokens| sum.plus(*tokens))
    }

    /// Returns the tokens of the result line, which cover the whole session; without them, the sum of all messages.
    fn tokens(&self) -> RunTokens {
        let total = self.result.as_ref().map(|result| counted(&result["usage"])).unwrap_or_default();
        if total == RunTokens::default() { self.observed() } else { total }
    }

    fn status(&mut self, result: &Value) -> AgentStatus {
        result["subtype"].as_str().unwrap_or_default().clone_into(&mut self.output.stop_reason);
        if result["is_error"] != true {
            let is_empty = self.output.last_text.trim().is_empty();
            let empty = AgentStatus::Failed { reason: "it ended without any output".to_owned() };
            return if is_empty { empty } else { AgentStatus::Finished };
        }
        let message = result["error"]["message"].as_str().unwrap_or("it did not say why").to_owned();
        let of_provider = is_refusal(&message);
        self.output.record_error(&message, of_provider);
        if of_provider {
            self.output.signals.status = status_in(&message).or(self.output.signals.status);
            refused(&mut self.output.signals, &message)
        } else {
            gave_up(&self.output.signals, &message)
        }
    }
}

/// Whether a text reports that the provider refused a request.
fn is_refusal(text: &str) -> bool {
    text.starts_with("[API Error: ")
}

/// Returns the tokens of a message or of a session. Input tokens include cached ones.
fn counted(usage: &Value) -> RunTokens {
    let number = |name: &str| usage[name].as_u64().unwrap_or(0);
    let cache_read = number("cache_read_input_tokens");
    RunTokens { read: number("input_tokens"), written: number("output_tokens"), cache_read, cache_write: 0 }
}

impl OutputReader for QwenStream {
    fn line(&mut self, stream: Stream, line: &str, on_event: &mut dyn FnMut(AgentEvent)) {
        match stream {
            Stream::Stdout => {
                if let Some(event) = self.output.parse_object(line, on_event) {
                    self.event(&event, on_event);
                }
            }
            Stream::Stderr => self.parse_error_line(line, on_event),
        }
    }

    fn is_complete(&self) -> bool {
        self.result.is_some()
    }

    fn is_waiting(&self) -> bool {
        self.output.waiting
    }

    fn reason_to_stop(&self) -> Option<String> {
        self.stop_because.clone()
    }

    /// Returns the tokens of this run, because the result line covers the whole session.
    fn observed_tokens(&self) -> Option<u64> {
        Some(self.observed().total())
    }

    fn finish(&mut self, finished: &Finished) -> ParsedOutput {
        let result = self.result.take();
        let denied = result.iter().flat_map(|result| result["permission_denials"].as_array()).flatten();
        for name in denied.filter_map(|denial| denial["tool_name"].as_str()).take(MAX_NOTES) {
            self.output.record_denial(name);
        }
        let status = match (result, &finished.ended) {
            (Some(result), _) => self.status(&result),
            (None, ProcessEnd::Exited(OUT_OF_TURNS)) => {
                self.output.add_note("it stopped at its limit of turns".to_owned());
                AgentStatus::Finished
            }
            (None, _) => self.output.status_without_result(finished),
        };
        self.output.finish(status, finished)
    }
}

#[cfg(test)]
mod tests;
