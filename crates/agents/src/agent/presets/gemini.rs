//! Gemini CLI: arguments, settings and the parser of its `stream-json` output.
//!
//! The exit code is the HTTP status of a refusal modulo 256; the kind of the error is printed on standard error only.
//! The settings are written to a file that settings in the repository cannot override.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Value, json};

use crate::agent::broker::ModelKey;
use crate::agent::broker::formats::FormatName;
use crate::agent::mcp::for_gemini;
use crate::agent::output::OutputAccumulator;
use crate::agent::preset::{
    AgentPackage, AgentPreset, AgentProgram, ImageDelivery, OutputReader, ParsedOutput, PromptDelivery, RunContext,
    UsageReport, variables, words,
};
use crate::agent::refusal::{gave_up, refused};
use crate::agent::text::{MAX_EVENT_TEXT, describe_end, shortened};
use crate::agent::usage::{ContextFill, RunTokens};
use crate::agent::{AgentEvent, AgentStatus};
use crate::domain::providers::limit::{LimitSignals, http_error, status_in};
use crate::process::{Finished, ProcessEnd, Stream};

/// Path of the settings file, relative to the home.
const SETTINGS: &str = ".gemini/settings.json";
/// Maximum number of attempts per request. Between two attempts Gemini CLI waits as long as the provider requests.
const MAX_ATTEMPTS: u64 = 2;
/// Default address of the API. It is always set, because a `.env` in the repository could set another one.
const BASE_URL: &str = "https://generativelanguage.googleapis.com";
/// Exit codes for: not logged in, invalid settings, maximum number of turns reached.
const NOT_LOGGED_IN: i32 = 41;
const WRONG_SETTINGS: i32 = 52;
const OUT_OF_TURNS: i32 = 53;
/// Number of bytes at the end of standard error that are searched for an error.
const MAX_ERROR: usize = 16 * 1024;
/// Tools that change a file.
const EDITORS: [&str; 3] = ["write_file", "replace", "edit"];

/// Preset of Gemini CLI.
pub(super) const PRESET: AgentPreset = AgentPreset {
    program: Some(AgentProgram {
        name: "gemini",
        package: AgentPackage::Npm("@google/gemini-cli"),
        tested_version: (0, 61),
        login_variables: &["GEMINI_API_KEY"],
        login_file: Some(".gemini/oauth_creds.json"),
        login_advice: "set `GEMINI_API_KEY` to a key from https://aistudio.google.com/apikey, or log in once in `gemini`, which writes `~/.gemini/oauth_creds.json`",
    }),
    arguments,
    environment,
    files: |call| vec![(SETTINGS, settings(call).to_string())],
    prompt: PromptDelivery::Stdin,
    version: Some(&["--version"]),
    images: ImageDelivery::Folder("--include-directories"),
    takes_mcp_servers: true,
    sessions: &[".gemini/tmp"],
    context_fill: Some(context_fill),
    keys: &[ModelKey {
        keys: &["GEMINI_API_KEY"],
        addresses: &["GOOGLE_GEMINI_BASE_URL"],
        default_address: Some(BASE_URL),
        unless_set: &["GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_GCA"],
        formats: &[FormatName::Gemini],
    }],
    model_hosts: &["generativelanguage.googleapis.com", "cloudcode-pa.googleapis.com", "oauth2.googleapis.com"],
    is_output_format: true,
    usage: UsageReport::TokensAndModel,
    protected_paths: &["**/GEMINI.md", "**/.gemini/**"],
    ..AgentPreset::new("gemini", || Box::new(GeminiStream::default()))
};

fn arguments(call: &RunContext<'_>) -> Vec<String> {
    // Without a sandbox it may edit files, but not run commands.
    let mode = if call.run.sandboxed { "yolo" } else { "auto_edit" };
    let mut arguments = words(&["--output-format", "stream-json", "--approval-mode", mode]);
    arguments.extend(["--include-directories".to_owned(), call.report_folder()]);
    if let Some(model) = call.model {
        arguments.extend(["--model".to_owned(), model.to_owned()]);
    }
    if let Some(session) = &call.run.session {
        arguments.extend(["--resume".to_owned(), session.id.clone()]);
    }
    arguments
}

fn environment(call: &RunContext<'_>) -> Vec<(String, String)> {
    let mut environment = variables(&[
        ("GEMINI_CLI_TRUST_WORKSPACE", "true"),
        ("GEMINI_SANDBOX", "false"),
        ("GEMINI_TELEMETRY_ENABLED", "false"),
    ]);
    let settings = call.run.scratch.join("home").join(SETTINGS).display().to_string();
    environment.push(("GEMINI_CLI_SYSTEM_SETTINGS_PATH".to_owned(), settings));
    if call.variable("GOOGLE_GEMINI_BASE_URL").is_none() {
        environment.extend(variables(&[("GOOGLE_GEMINI_BASE_URL", BASE_URL)]));
    }
    environment
}

fn settings(call: &RunContext<'_>) -> Value {
    let on = |name: &str| call.variable(name).is_some_and(|value| value == "true" || value == "1");
    let login = if on("GOOGLE_GENAI_USE_VERTEXAI") {
        "vertex-ai"
    } else if on("GOOGLE_GENAI_USE_GCA") || call.has_login {
        "oauth-personal"
    } else {
        "gemini-api-key"
    };
    let mut model = json!({});
    if let Some(turns) = call.run.max_turns {
        model["maxSessionTurns"] = json!(turns);
    }
    json!({
        "security": { "auth": { "selectedType": login } },
        "general": {
            "maxAttempts": MAX_ATTEMPTS, "disableAutoUpdate": true, "enableAutoUpdate": false,
            "disableUpdateNag": true, "enableAutoUpdateNotification": false,
        },
        "privacy": { "usageStatisticsEnabled": false },
        "model": model,
        "mcpServers": for_gemini(call.servers),
    })
}

/// Reader of Gemini CLI's `stream-json` output.
#[derive(Debug, Default)]
struct GeminiStream {
    output: OutputAccumulator,
    /// Text that has been streamed so far and is not complete.
    pending_text: String,
    error: Option<String>,
    result: Option<Value>,
}

impl GeminiStream {
    fn event(&mut self, event: &Value, on_event: &mut dyn FnMut(AgentEvent)) {
        let kind = event["type"].as_str().unwrap_or_default();
        if kind == "message" {
            if event["role"] == "assistant" {
                let text = event["content"].as_str().unwrap_or_default();
                if event["delta"] != true {
                    self.flush_text(on_event);
                }
                if self.pending_text.len() < MAX_EVENT_TEXT * 16 {
                    self.pending_text.push_str(text);
                }
                self.output.waiting = false;
            }
            return;
        }
        self.flush_text(on_event);
        match kind {
            "init" => {
                self.output.record_model(&event["model"]);
                self.output.record_session(&event["session_id"], on_event);
            }
            "tool_use" => {
                let name = event["tool_name"].as_str().unwrap_or_default();
                self.output.record_pending_call(&event["tool_id"], (name, &event["parameters"]), &EDITORS, on_event);
            }
            "tool_result" => {
                let text = event["error"]["message"].as_str().or(event["output"].as_str());
                let error = Some(text.unwrap_or("it gave no reason")).filter(|_| event["status"] == "error");
                self.output.record_result(&event["tool_id"], error, on_event);
            }
            // A warning only, such as a detected loop; an error that ends the run is in the result.
            "error" => self.output.add_note(event["message"].as_str().unwrap_or_default().to_owned()),
            "result" => {
                self.output.tokens = counted(&event["stats"]);
                self.output.report_usage(on_event);
                self.result = Some(event.clone());
            }
            kind => self.output.record_unknown_event(kind, event, on_event),
        }
    }

    fn flush_text(&mut self, on_event: &mut dyn FnMut(AgentEvent)) {
        let text = std::mem::take(&mut self.pending_text);
        if !text.is_empty() {
            self.output.record_text(&text, on_event);
        }
    }

    /// Parses a line of standard error, which can be a notice of a retry or name the kind of the last error.
    fn parse_error_line(&mut self, line: &str, on_event: &mut dyn FnMut(AgentEvent)) {
        static KIND: LazyLock<Regex> = LazyLock::new(|| {
            Regex::new(r"^Error when talking to Gemini API .*?\.json _?([A-Za-z]*Error): (.*)$")
                .expect("the expression is fixed and valid")
        });
        let is_retry = line.starts_with("Attempt ") && line.contains(" failed");
        if is_retry && !line.contains("Max attempts reached") {
            self.output.signals.status = status_in(line).or(self.output.signals.status);
            self.output.record_retry(line.to_owned(), on_event);
        } else if let Some(parts) = KIND.captures(line) {
            self.error = Some(parts[2].to_owned());
            self.output.signals.learn(&parts[2]);
            if self.output.signals.code.is_none() {
                self.output.signals.code = Some(shortened(&parts[1], 100));
            }
        } else if let Some(delay) = line.trim().strip_prefix("retryDelayMs: ").filter(|_| self.error.is_some()) {
            // Wait that the provider asked for; `undefined` if it asked for none.
            if let Ok(ms) = delay.trim_end_matches(',').parse::<f64>() {
                self.output.signals.headers.push(("retry-after-ms".to_owned(), format!("{ms:.0}")));
            }
        } else if !line.trim().is_empty() {
            on_event(AgentEvent::Text { text: shortened(line, MAX_EVENT_TEXT) });
        }
    }

    fn judged(&mut self, result: &Value, finished: &Finished) -> AgentStatus {
        result["status"].as_str().unwrap_or_default().clone_into(&mut self.output.stop_reason);
        let exit = finished.exit_code.unwrap_or_default();
        if exit == OUT_OF_TURNS {
            self.output.add_note("it stopped at its limit of turns".to_owned());
            return AgentStatus::Finished;
        }
        if result["status"] == "success" {
            let silent = self.output.last_text.trim().is_empty();
            let silence = AgentStatus::Failed { reason: "it ended without any output".to_owned() };
            return if silent { silence } else { AgentStatus::Finished };
        }
        let message = result["error"]["message"].as_str().unwrap_or("it gave no reason").to_owned();
        // Refusals of the provider are printed on standard error, or start with these words.
        let of_provider = self.error.is_some() || message.starts_with("[API Error: ");
        self.output.record_error(&message, of_provider);
        let LimitSignals { status, .. } = &mut self.output.signals;
        *status = status_of(exit).or(*status);
        if of_provider { refused(&mut self.output.signals, &message) } else { gave_up(&self.output.signals, &message) }
    }

    /// Returns the status of a run without a result; older versions print the error on standard error only.
    fn without_result(&mut self, finished: &Finished) -> AgentStatus {
        match (&finished.ended, self.error.take()) {
            (ProcessEnd::Exited(NOT_LOGGED_IN | WRONG_SETTINGS), _) => {
                AgentStatus::Unavailable { reason: describe_end(&finished.ended, finished) }
            }
            (ProcessEnd::Exited(code), Some(error)) if *code != 0 => {
                let LimitSignals { status, .. } = &mut self.output.signals;
                *status = status_of(*code).or(*status);
                refused(&mut self.output.signals, &error)
            }
            (ProcessEnd::Exited(code), None) if *code != 0 => {
                let LimitSignals { status, .. } = &mut self.output.signals;
                *status = status_of(*code).or(*status);
                // An error over several lines: JSON, or a text with JSON.
                let text = finished.stderr.last(MAX_ERROR);
                let json = text.find('{').zip(text.rfind('}')).and_then(|(open, close)| text.get(open..=close));
                let body = json.and_then(|json| serde_json::from_str::<Value>(json).ok()).unwrap_or_default();
                if let Some(message) = body["error"]["message"].as_str() {
                    self.output.signals.learn_body(&body);
                    self.output.record_provider_error(message);
                    return gave_up(&self.output.signals, message);
                }
                match gave_up(&self.output.signals, text) {
                    AgentStatus::Failed { .. } => self.output.status_without_result(finished),
                    status => status,
                }
            }
            _ => self.output.status_without_result(finished),
        }
    }
}

/// Reads the used part of the context window from a line of a session file.
fn context_fill(line: &Value) -> Option<ContextFill> {
    let tokens = line["tokens"]["total"].as_u64().filter(|_| line["type"] == "gemini")?;
    Some(ContextFill { tokens, window: None })
}

/// Returns the HTTP status that corresponds to an exit code.
fn status_of(exit: i32) -> Option<u16> {
    // 400 to 511 become 144 to 255; 512 and above would be common exit codes.
    u64::try_from(exit).ok().filter(|code| (144..=255).contains(code)).and_then(|code| http_error(code + 256))
}

fn counted(stats: &Value) -> RunTokens {
    let number = |name: &str| stats[name].as_u64().unwrap_or(0);
    let read = number("input_tokens");
    // `output_tokens` excludes reasoning, the total includes it.
    let written = number("total_tokens").saturating_sub(read).max(number("output_tokens"));
    RunTokens { read, written, cache_read: number("cached"), cache_write: 0 }
}

impl OutputReader for GeminiStream {
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

    fn finish(&mut self, finished: &Finished) -> ParsedOutput {
        self.flush_text(&mut |_| ());
        let status = match self.result.take() {
            Some(result) => self.judged(&result, finished),
            None => self.without_result(finished),
        };
        self.output.finish(status, finished)
    }
}

#[cfg(test)]
mod tests;
