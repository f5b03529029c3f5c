//! opencode: arguments, settings and the parser of `opencode run --format json`.
//!
//! opencode retries five times, after the wait that the provider requests. The retries cannot be configured and are
//! not in its output. Its error log on standard error shows when they start, and the time limit for retries ends them.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Value, json};

use crate::agent::broker::ModelKey;
use crate::agent::broker::formats::FormatName;
use crate::agent::mcp::for_opencode;
use crate::agent::output::OutputAccumulator;
use crate::agent::preset::{
    AgentPackage, AgentPreset, AgentProgram, ImageDelivery, OutputReader, ParsedOutput, PromptDelivery, RunContext,
    UsageReport, variables, words,
};
use crate::agent::refusal::{gave_up, refused};
use crate::agent::text::{MAX_EVENT_TEXT, shortened};
use crate::agent::usage::{ContextFill, RunTokens};
use crate::agent::{AgentEvent, AgentStatus};
use crate::domain::model::ids::Money;
use crate::domain::providers::limit::http_error;
use crate::process::{Finished, ProcessEnd, Stream};

/// Tools that change a file.
const EDITORS: [&str; 3] = ["write", "edit", "multiedit"];
/// Number of consecutive responses without content after which opencode is stopped, because it would retry forever.
const MAX_EMPTY: u32 = 3;
/// Names of errors that always come from the provider; other errors can have any source.
const OF_PROVIDER: [&str; 2] = ["APIError", "ProviderAuthError"];
/// Maximum number of headers that are read from a refusal.
const MAX_HEADERS: usize = 50;

/// Variables with the operator's own configuration of opencode, which takes precedence over the preset's.
const OWN_CONFIG: [&str; 3] = ["OPENCODE_CONFIG", "OPENCODE_CONFIG_CONTENT", "OPENCODE_CONFIG_DIR"];
/// Environment variables with the keys of opencode's providers.
const KEYS: [ModelKey; 2] = [
    ModelKey {
        keys: &["ANTHROPIC_API_KEY"],
        addresses: &["ANTHROPIC_BASE_URL"],
        default_address: Some("https://api.anthropic.com/v1"),
        unless_set: &OWN_CONFIG,
        formats: &[FormatName::Messages],
    },
    ModelKey {
        keys: &["OPENAI_API_KEY"],
        addresses: &["OPENAI_BASE_URL"],
        default_address: Some("https://api.openai.com/v1"),
        unless_set: &OWN_CONFIG,
        formats: &[FormatName::Responses, FormatName::Chat],
    },
];
/// Names of these providers in opencode's configuration, with the variables for their addresses.
const PROVIDERS: [(&str, &str); 2] = [("anthropic", "ANTHROPIC_BASE_URL"), ("openai", "OPENAI_BASE_URL")];

/// Preset of opencode.
pub(super) const PRESET: AgentPreset = AgentPreset {
    program: Some(AgentProgram {
        name: "opencode",
        package: AgentPackage::Npm("opencode-ai"),
        tested_version: (1, 18),
        login_variables: &["ANTHROPIC_API_KEY", "OPENAI_API_KEY"],
        login_file: Some(".local/share/opencode/auth.json"),
        login_advice: "run `opencode auth login`, which writes `~/.local/share/opencode/auth.json`, or set the key of a provider, such as `ANTHROPIC_API_KEY`",
    }),
    arguments,
    environment: |_| {
        variables(&[
            ("OPENCODE_DISABLE_AUTOUPDATE", "1"),
            ("OPENCODE_DISABLE_MODELS_FETCH", "1"),
            ("OPENCODE_DISABLE_LSP_DOWNLOAD", "1"),
            // Configuration in the repository could send the key elsewhere.
            ("OPENCODE_DISABLE_PROJECT_CONFIG", "1"),
        ])
    },
    files: |call| {
        // In each new home it would install 95 MB of plugin packages from npm, unless a lock file says that they are
        // installed.
        let lock = json!({ "packages": { "": { "dependencies": { "@opencode-ai/plugin": "*" } } } });
        vec![
            (".config/opencode/opencode.json", settings(call).to_string()),
            (".config/opencode/package-lock.json", lock.to_string()),
            (".config/opencode/node_modules/.keep", String::new()),
        ]
    },
    prompt: PromptDelivery::Stdin,
    version: Some(&["--version"]),
    images: ImageDelivery::Attached("--file"),
    takes_mcp_servers: true,
    // The rest of that folder contains logins and programs.
    sessions: &[".local/share/opencode/opencode.db", ".local/share/opencode/opencode.db-wal"],
    keys: &KEYS,
    model_hosts: &["opencode.ai"],
    is_output_format: true,
    usage: UsageReport::CostOfKnownModels,
    reports_usage_during_run: true,
    protected_paths: &["**/.opencode/**", "opencode.json"],
    any_vendor: true,
    ..AgentPreset::new("opencode", || Box::new(OpencodeStream::default()))
};

fn arguments(call: &RunContext<'_>) -> Vec<String> {
    let mut arguments = words(&["run", "--format", "json", "--print-logs", "--log-level", "ERROR"]);
    if let Some(model) = call.model {
        arguments.extend(["--model".to_owned(), model.to_owned()]);
    }
    if let Some(session) = &call.run.session {
        arguments.extend(["--session".to_owned(), session.id.clone()]);
    }
    arguments
}

fn settings(call: &RunContext<'_>) -> Value {
    // Permissions that would need confirmation are denied. Without a sandbox it may edit files, but not run commands.
    let report = format!("{}/**", call.report_folder());
    let (commands, elsewhere) =
        if call.run.sandboxed { ("allow", json!("allow")) } else { ("deny", json!({ "*": "deny", report: "allow" })) };
    let elsewhere_asked = PROVIDERS.iter().filter_map(|(provider, address)| {
        let options = json!({ "options": { "baseURL": call.variable(address)? } });
        Some(((*provider).to_owned(), options))
    });
    let providers: serde_json::Map<String, Value> = elsewhere_asked.collect();
    json!({
        "$schema": "https://opencode.ai/config.json",
        "autoupdate": false,
        "share": "disabled",
        "permission": {
            "edit": "allow", "bash": commands, "webfetch": commands, "external_directory": elsewhere,
        },
        "provider": providers,
        "mcp": for_opencode(call.servers),
    })
}

/// Reader of the output of `opencode run --format json`.
#[derive(Debug, Default)]
struct OpencodeStream {
    output: OutputAccumulator,
    dollars: f64,
    error: Option<String>,
    /// Whether the last error came from the provider.
    of_provider: bool,
    /// Whether the last step ended the run.
    stopped: bool,
    /// Whether the current step has any content.
    has_content: bool,
    /// Number of consecutive steps without content.
    empty_steps: u32,
}

impl OpencodeStream {
    fn event(&mut self, event: &Value, on_event: &mut dyn FnMut(AgentEvent)) {
        self.output.record_session(&event["sessionID"], on_event);
        let part = &event["part"];
        self.has_content |= ["text", "tool_use", "reasoning"].iter().any(|kind| event["type"] == *kind);
        match event["type"].as_str().unwrap_or_default() {
            "step_start" => (self.stopped, self.has_content) = (false, false),
            "text" => self.output.record_text(part["text"].as_str().unwrap_or_default(), on_event),
            "reasoning" => self.output.waiting = false,
            "tool_use" => self.tool(part, on_event),
            "step_finish" => self.step(part, on_event),
            "error" => self.error(&event["error"]),
            kind => self.output.record_unknown_event(kind, event, on_event),
        }
    }

    fn tool(&mut self, part: &Value, on_event: &mut dyn FnMut(AgentEvent)) {
        let (name, state) = (part["tool"].as_str().unwrap_or_default(), &part["state"]);
        self.output.record_tool_call(name, &state["input"], on_event);
        if state["status"] == "error" {
            let text = state["error"].as_str().unwrap_or("it gave no reason");
            if text.contains("rejected permission") || text.contains("rule which prevents") {
                self.output.record_denial(name);
            }
            self.output.record_tool_failure(text, on_event);
        } else if let Some(code) = state["metadata"]["exit"].as_i64().filter(|code| *code != 0) {
            let output = state["output"].as_str().unwrap_or_default();
            self.output.record_tool_failure(&format!("exit code {code}: {output}"), on_event);
        } else if EDITORS.contains(&name)
            && let Some(path) = state["input"]["filePath"].as_str()
        {
            on_event(AgentEvent::FileChanged { path: shortened(path, MAX_EVENT_TEXT) });
        }
    }

    fn step(&mut self, part: &Value, on_event: &mut dyn FnMut(AgentEvent)) {
        let reason = part["reason"].as_str().unwrap_or_default();
        reason.clone_into(&mut self.output.stop_reason);
        self.stopped = !["", "tool-calls", "unknown"].contains(&reason);
        self.empty_steps = if self.has_content || self.stopped { 0 } else { self.empty_steps.saturating_add(1) };
        if self.empty_steps > 0 {
            self.output.record_retry("an answer without content".to_owned(), on_event);
        }
        let (tokens, cache) = (&part["tokens"], &part["tokens"]["cache"]);
        let number = |value: &Value| value.as_u64().unwrap_or(0);
        let (cache_read, cache_write) = (number(&cache["read"]), number(&cache["write"]));
        let step = RunTokens {
            read: number(&tokens["input"]).saturating_add(cache_read).saturating_add(cache_write),
            written: number(&tokens["output"]).saturating_add(number(&tokens["reasoning"])),
            cache_read,
            cache_write,
        };
        self.output.context_fill = Some(ContextFill { tokens: step.total(), window: None });
        self.output.tokens = self.output.tokens.plus(step);
        self.dollars += part["cost"].as_f64().filter(|cost| cost.is_finite()).unwrap_or(0.0).max(0.0);
        // It reports 0 if it knows no price.
        self.output.cost = (self.dollars > 0.0).then(|| Money::from_usd(self.dollars));
        self.output.report_usage(on_event);
    }

    fn error(&mut self, error: &Value) {
        let (name, data) = (error["name"].as_str().unwrap_or_default(), &error["data"]);
        let message = data["message"].as_str().filter(|message| !message.is_empty()).unwrap_or(name);
        let signals = &mut self.output.signals;
        if !name.is_empty() {
            signals.code = Some(shortened(name, 100));
        }
        if let Some(body) = data["responseBody"].as_str().and_then(|body| serde_json::from_str(body).ok()) {
            signals.learn_body(&body);
        }
        for (name, value) in data["responseHeaders"].as_object().into_iter().flatten().take(MAX_HEADERS) {
            signals.headers.push((name.clone(), value.as_str().unwrap_or_default().to_owned()));
        }
        self.of_provider = OF_PROVIDER.contains(&name);
        self.output.record_error(message, self.of_provider);
        if let Some(status) = data["statusCode"].as_u64().and_then(http_error) {
            self.output.signals.status = Some(status);
        }
        self.error = Some(message.to_owned());
    }

    /// Parses a line of opencode's error log, which can be a refusal by the provider that opencode will retry.
    fn log(&mut self, line: &str, on_event: &mut dyn FnMut(AgentEvent)) {
        static FAILED: LazyLock<Regex> = LazyLock::new(|| {
            Regex::new(r#"message="stream error".* small=false .*error\.error="((?:AI_\w+: )?(.*))"$"#)
                .expect("the expression is fixed and valid")
        });
        if let Some(parts) = FAILED.captures(line) {
            // With the name of the error, which shows that it is the provider's.
            self.output.signals.learn(&parts[1]);
            self.output.record_retry(parts[2].to_owned(), on_event);
        } else if !line.trim().is_empty() {
            on_event(AgentEvent::Text { text: shortened(line, MAX_EVENT_TEXT) });
        }
    }
}

impl OutputReader for OpencodeStream {
    fn line(&mut self, stream: Stream, line: &str, on_event: &mut dyn FnMut(AgentEvent)) {
        match stream {
            Stream::Stdout => {
                if let Some(event) = self.output.parse_object(line, on_event) {
                    self.event(&event, on_event);
                }
            }
            Stream::Stderr => self.log(line, on_event),
        }
    }

    fn is_complete(&self) -> bool {
        self.stopped
    }

    fn is_waiting(&self) -> bool {
        self.output.waiting
    }

    fn reason_to_stop(&self) -> Option<String> {
        (self.empty_steps >= MAX_EMPTY).then(|| "it got no answers with content".to_owned())
    }

    fn finish(&mut self, finished: &Finished) -> ParsedOutput {
        if self.empty_steps > 0 {
            self.output.signals.learn("the provider's answers had no content");
        }
        let status = match self.error.take() {
            Some(error) if self.of_provider => refused(&mut self.output.signals, &error),
            Some(error) => gave_up(&self.output.signals, &error),
            None if self.stopped && !self.output.last_text.trim().is_empty() => AgentStatus::Finished,
            None if self.stopped && matches!(finished.ended, ProcessEnd::Exited(0)) => {
                AgentStatus::Failed { reason: "it ended without any output".to_owned() }
            }
            None => self.output.status_without_result(finished),
        };
        self.output.finish(status, finished)
    }
}

#[cfg(test)]
mod tests;
