//! Kimi Code: arguments, settings and the parser of its `stream-json` output.
//!
//! The output contains no result, no tokens and no cost. The status is derived from the exit code and the last line of
//! standard error, and the tokens are read from the session's files. Kimi Code runs commands without confirmation,
//! with or without a sandbox. A discontinued Python program has the same name; it prints a notice and exits with 0.

use serde_json::Value;

use crate::agent::broker::ModelKey;
use crate::agent::broker::formats::FormatName;
use crate::agent::output::OutputAccumulator;
use crate::agent::preset::{
    AgentPackage, AgentPreset, AgentProgram, ImageDelivery, OutputReader, ParsedOutput, PromptDelivery, RunContext,
    UsageReport, variables, words,
};
use crate::agent::refusal::{gave_up, refused};
use crate::agent::text::{MAX_ARGUMENT, MAX_EVENT_TEXT, shortened};
use crate::agent::usage::{ContextFill, RunTokens, SessionUsage};
use crate::agent::{AgentEvent, AgentStatus};
use crate::domain::providers::limit::http_error;
use crate::process::{Finished, ProcessEnd, Stream};

/// Settings that limit the number of requests per step.
const SETTINGS: &str = "[loop_control]\nmax_attempts_per_step = 3\n";
/// Prefixes of lines in a tool's result that show that a command failed.
const FAILURES: [&str; 3] = ["Command failed with exit code", "<system>ERROR", "Error:"];
/// Announced wait, in milliseconds, at which Kimi Code is stopped. Kimi Code waits as long as the provider requests.
const LONGEST_DELAY_MS: f64 = 30_000.0;

/// Preset of Kimi Code.
pub(super) const PRESET: AgentPreset = AgentPreset {
    program: Some(AgentProgram {
        name: "kimi",
        package: AgentPackage::Npm("@moonshot-ai/kimi-code"),
        tested_version: (2, 1),
        login_variables: &["KIMI_MODEL_API_KEY", "KIMI_MODEL_NAME", "KIMI_MODEL_BASE_URL"],
        login_file: None,
        login_advice: "set `KIMI_MODEL_API_KEY`, `KIMI_MODEL_NAME` and `KIMI_MODEL_BASE_URL` to a key of the Kimi platform, a model and the address of its API",
    }),
    arguments,
    environment: |_| variables(&[("KIMI_CODE_NO_AUTO_UPDATE", "1"), ("KIMI_DISABLE_TELEMETRY", "1")]),
    files: |call| {
        let mut files = vec![(".kimi-code/config.toml", SETTINGS.to_owned())];
        // It reads Claude Code's format.
        if let Some(config) = call.run.mcp_config.as_ref().and_then(|file| std::fs::read_to_string(file).ok()) {
            files.push((".kimi-code/mcp.json", config));
        }
        files
    },
    prompt: PromptDelivery::Arguments,
    version: Some(&["--version"]),
    images: ImageDelivery::Folder("--add-dir"),
    takes_mcp_servers: true,
    sessions: &[".kimi-code/sessions"],
    model: Some(model),
    session_usage: Some(session_usage),
    keys: &[ModelKey {
        keys: &["KIMI_MODEL_API_KEY"],
        addresses: &["KIMI_MODEL_BASE_URL"],
        default_address: None,
        unless_set: &[],
        formats: &[FormatName::Chat],
    }],
    model_hosts: &["api.moonshot.ai", "api.moonshot.cn", "api.kimi.com", "auth.kimi.com"],
    usage: UsageReport::Tokens,
    ..AgentPreset::new("kimi", || Box::new(KimiStream::default()))
};

fn arguments(call: &RunContext<'_>) -> Vec<String> {
    let mut arguments = words(&["--output-format", "stream-json"]);
    if let Some(model) = call.model {
        arguments.extend(["--model".to_owned(), model.to_owned()]);
    }
    // Sessions can only be resumed in the same work tree; a loop's tree stays where it is.
    if let Some(session) = &call.run.session {
        arguments.extend(["--session".to_owned(), session.id.clone()]);
    }
    arguments.extend(["--add-dir".to_owned(), call.report_folder()]);
    // It does not read standard input, and needs a terminal without this argument.
    let prompt = &call.run.prompt;
    arguments.push(if prompt.len() < MAX_ARGUMENT {
        format!("--prompt={prompt}")
    } else {
        format!("--prompt={}", call.prompt_reference())
    });
    arguments
}

/// Reader of Kimi Code's `stream-json` output.
#[derive(Debug, Default)]
struct KimiStream {
    output: OutputAccumulator,
    /// Reason to stop the run; `None` to continue.
    stop_because: Option<String>,
}

/// Adds a line of a session file: the usage of a request, or how full the context window is.
fn session_usage(line: &str, sum: &mut SessionUsage) {
    if !line.contains("\"usage.record\"") && !line.contains("\"token_counting.measured\"") {
        return;
    }
    let Ok(event) = serde_json::from_str::<Value>(line) else { return };
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    match event["type"].as_str().unwrap_or_default() {
        "usage.record" => {
            let usage = &event["usage"];
            let (cache_read, cache_write) = (number(&usage["inputCacheRead"]), number(&usage["inputCacheCreation"]));
            sum.tokens = sum.tokens.plus(RunTokens {
                read: number(&usage["inputOther"]).saturating_add(cache_read).saturating_add(cache_write),
                written: number(&usage["output"]),
                cache_read,
                cache_write,
            });
        }
        "token_counting.measured" if event["agentId"] == "main" => {
            sum.context_fill = Some(ContextFill { tokens: number(&event["tokens"]), window: None });
        }
        _ => {}
    }
}

/// Reads the model from a line of a session file.
fn model(line: &str) -> Option<String> {
    let record: Value = line.contains("\"usage.record\"").then(|| serde_json::from_str(line).ok())??;
    Some(record["model"].as_str().filter(|_| record["type"] == "usage.record")?.to_owned())
}

impl KimiStream {
    fn event(&mut self, event: &Value, on_event: &mut dyn FnMut(AgentEvent)) {
        match event["role"].as_str().unwrap_or_default() {
            "assistant" => {
                self.output.record_text(&text_of(&event["content"]), on_event);
                for call in event["tool_calls"].as_array().into_iter().flatten() {
                    let function = &call["function"];
                    let input = function["arguments"].as_str().and_then(|text| serde_json::from_str(text).ok());
                    let name = function["name"].as_str().unwrap_or_default();
                    self.output.record_tool_call(name, &input.unwrap_or_default(), on_event);
                }
            }
            "tool" => {
                let text = text_of(&event["content"]);
                if FAILURES.iter().any(|words| text.starts_with(words) || text.contains(&format!("\n{words}"))) {
                    self.output.record_tool_failure(&text, on_event);
                }
            }
            "meta" => self.meta(event, on_event),
            "user" | "system" => {}
            role => self.output.record_unknown_event(role, event, on_event),
        }
    }

    fn meta(&mut self, event: &Value, on_event: &mut dyn FnMut(AgentEvent)) {
        match event["type"].as_str().unwrap_or_default() {
            "session.resume_hint" => self.output.record_session(&event["session_id"], on_event),
            "turn.step.retrying" => {
                let signals = &mut self.output.signals;
                signals.status = event["status_code"].as_u64().and_then(http_error).or(signals.status);
                signals.code = event["error_name"].as_str().map(|name| shortened(name, 100));
                let reason = event["error_message"].as_str().unwrap_or("it did not answer").to_owned();
                signals.learn(&reason);
                if let Some(delay) = event["delay_ms"].as_f64().filter(|delay| *delay >= LONGEST_DELAY_MS) {
                    signals.headers.push(("retry-after-ms".to_owned(), format!("{delay:.0}")));
                    self.stop_because = Some(format!("its provider wants it to wait for {:.0} s", delay / 1000.0));
                }
                self.output.record_retry(reason, on_event);
            }
            // Notices, such as its version or a compaction.
            _ => {}
        }
    }
}

/// Returns a text, or the joined texts of a list of parts.
fn text_of(content: &Value) -> String {
    let parts = content.as_array().into_iter().flatten().filter_map(|part| part["text"].as_str());
    content.as_str().map_or_else(|| parts.collect::<Vec<_>>().join("\n"), str::to_owned)
}

impl OutputReader for KimiStream {
    fn line(&mut self, stream: Stream, line: &str, on_event: &mut dyn FnMut(AgentEvent)) {
        if let Some(event) = self.output.parse_line(stream, line, on_event) {
            self.event(&event, on_event);
        }
    }

    fn is_waiting(&self) -> bool {
        self.output.waiting
    }

    fn reason_to_stop(&self) -> Option<String> {
        self.stop_because.clone()
    }

    /// Returns the tokens of the run: the usage of the whole session minus that of the previous run.
    fn observed_tokens(&self) -> Option<u64> {
        Some(0)
    }

    fn finish(&mut self, finished: &Finished) -> ParsedOutput {
        // `error: failed to run prompt: provider.rate_limit: 429 …`
        let errors = finished.stderr.last(MAX_EVENT_TEXT).to_owned();
        let error = errors.lines().rev().find_map(|line| line.strip_prefix("error: failed to run prompt: "));
        let status = match (&finished.ended, error) {
            (ProcessEnd::Exited(0), _) if self.output.json_lines > 0 && !self.output.last_text.trim().is_empty() => {
                AgentStatus::Finished
            }
            (ProcessEnd::Exited(code), Some(message)) if *code != 0 => {
                let (kind, words) = message.split_once(": ").unwrap_or(("", message));
                let of_provider = kind.starts_with("provider.");
                self.output.record_error(words, of_provider);
                if kind.contains('.') {
                    self.output.signals.code = Some(shortened(kind, 100));
                }
                if of_provider {
                    refused(&mut self.output.signals, message)
                } else {
                    gave_up(&self.output.signals, message)
                }
            }
            _ => self.output.status_without_result(finished),
        };
        self.output.finish(status, finished)
    }
}

#[cfg(test)]
mod tests;
