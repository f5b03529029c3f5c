//! aider: arguments, settings and the parser of its text output.
//!
//! aider has no structured output and always exits with 0. The status is derived from the usage line after each
//! response and from the error lines of its library; text of the model between them is ignored.
//!
//! Sessions are not resumed. `--restore-chat-history` reads the last chat again, but without the files that were in
//! the chat. Lines of a response that start with `#` are lost, lines that start with `####` become the user's words,
//! and longer chats are summarized by another model call that is not in aider's usage figures.

use std::sync::LazyLock;

use regex::{Captures, Regex};

use crate::agent::broker::ModelKey;
use crate::agent::broker::formats::FormatName;
use crate::agent::output::OutputAccumulator;
use crate::agent::preset::{
    AgentPackage, AgentPreset, AgentProgram, ImageDelivery, OutputReader, ParsedOutput, PromptDelivery, RunContext,
    UsageReport, variables, words,
};
use crate::agent::refusal::{no_answer, refused};
use crate::agent::text::{MAX_EVENT_TEXT, shortened};
use crate::agent::usage::RunTokens;
use crate::agent::{AgentEvent, AgentStatus};
use crate::domain::model::ids::Money;
use crate::process::{Finished, ProcessEnd, Stream};

/// Number of bytes at the end of the text that are the final message.
const FINAL_MESSAGE: usize = 4 * 1024;
/// Announced wait, in seconds, at which aider is stopped. aider doubles its waits up to 32 s and has sent six requests
/// by then.
const LONGEST_WAIT_S: f64 = 8.0;
/// Settings that disable the retries of aider's library; this name applies to all models.
const MODEL_SETTINGS: &str = "- name: aider/extra_params\n  extra_params:\n    max_retries: 0\n";
/// Empty price list. Without it, aider downloads prices into each new home; with it, the prices of aider's library are
/// used.
const FETCHED_PRICES: &str = "{\"none\": {}}\n";
/// Environment variables with the keys of aider's providers.
const KEYS: [ModelKey; 2] = [
    ModelKey {
        keys: &["OPENAI_API_KEY"],
        addresses: &["OPENAI_BASE_URL", "OPENAI_API_BASE"],
        default_address: Some("https://api.openai.com/v1"),
        unless_set: &[],
        formats: &[FormatName::Chat, FormatName::Responses],
    },
    ModelKey {
        keys: &["ANTHROPIC_API_KEY"],
        addresses: &["ANTHROPIC_API_BASE", "ANTHROPIC_BASE_URL"],
        default_address: Some("https://api.anthropic.com"),
        unless_set: &[],
        formats: &[FormatName::Messages],
    },
];

/// Names of errors in aider's library, with the HTTP status of each.
const STATUSES: [(&str, u16); 8] = [
    ("BadRequestError", 400),
    ("AuthenticationError", 401),
    ("PermissionDeniedError", 403),
    ("NotFoundError", 404),
    ("RateLimitError", 429),
    ("InternalServerError", 500),
    ("BadGatewayError", 502),
    ("ServiceUnavailableError", 503),
];

/// Preset of aider.
pub(super) const PRESET: AgentPreset = AgentPreset {
    program: Some(AgentProgram {
        name: "aider",
        package: AgentPackage::Pipx("aider-chat"),
        tested_version: (0, 86),
        login_variables: &["ANTHROPIC_API_KEY", "OPENAI_API_KEY"],
        login_file: None,
        login_advice: "set the key of the provider of its model, such as `ANTHROPIC_API_KEY` or `OPENAI_API_KEY`",
    }),
    arguments,
    environment: |_| {
        variables(&[
            ("AIDER_ANALYTICS", "false"),
            ("AIDER_CHECK_UPDATE", "false"),
            ("LITELLM_LOCAL_MODEL_COST_MAP", "True"),
            // It wraps lines, including figures and errors, at the width of the terminal.
            ("COLUMNS", "20000"),
            ("LINES", "1000"),
        ])
    },
    files: |_| {
        vec![
            (".aider.model.settings.yml", MODEL_SETTINGS.to_owned()),
            (".aider/caches/model_prices_and_context_window.json", FETCHED_PRICES.to_owned()),
        ]
    },
    prompt: PromptDelivery::Arguments,
    version: Some(&["--version"]),
    images: ImageDelivery::Attached("--read"),
    leftovers: &[".aider.tags.cache."],
    keys: &KEYS,
    model_hosts: &["api.openai.com", "api.anthropic.com"],
    usage: UsageReport::Cost,
    reports_usage_during_run: true,
    protected_paths: &[".aider*"],
    any_vendor: true,
    ..AgentPreset::new("aider", || Box::new(AiderText::default()))
};

fn arguments(call: &RunContext<'_>) -> Vec<String> {
    let mut arguments = words(&[
        "--yes-always",
        "--no-auto-commits",
        "--no-dirty-commits",
        "--no-pretty",
        "--no-stream",
        "--no-gitignore",
        "--no-show-model-warnings",
        "--no-show-release-notes",
        "--no-suggest-shell-commands",
        "--no-detect-urls",
        "--no-restore-chat-history",
        "--timeout",
        "300",
    ]);
    // By default it leaves its history in the work tree.
    for (flag, name) in [("--input-history-file", "input"), ("--chat-history-file", "chat")] {
        let file = call.run.scratch.join("home").join(format!("aider-{name}.history"));
        arguments.extend([flag.to_owned(), file.display().to_string()]);
    }
    // A `.env` in the repository could send the key elsewhere; these arguments override it.
    for ModelKey { addresses, default_address, .. } in KEYS {
        let address = addresses.iter().find_map(|name| call.variable(name)).or(default_address).unwrap_or_default();
        arguments.extend(addresses.iter().flat_map(|name| ["--set-env".to_owned(), format!("{name}={address}")]));
    }
    if let Some(model) = call.model {
        arguments.extend(["--model".to_owned(), model.to_owned()]);
    }
    arguments.extend(["--message-file".to_owned(), call.prompt_file.display().to_string()]);
    arguments
}

/// Reader of aider's text output.
#[derive(Debug, Default)]
struct AiderText {
    output: OutputAccumulator,
    /// Text since the last response.
    text: String,
    /// Last complete response.
    answer: String,
    /// Whether there was a response and no error since.
    answered: bool,
    error: Option<String>,
    dollars: f64,
    /// Reason to stop the run; `None` to continue.
    stop_because: Option<String>,
    /// Action that a person has to take before aider can run; `None` if none is needed.
    needed_action: Option<String>,
}

fn fixed(expression: &str) -> Regex {
    Regex::new(expression).expect("the expression is fixed and valid")
}

static FIGURES: LazyLock<Regex> = LazyLock::new(|| {
    fixed(
        r"^Tokens: (?<sent>[\d.,]+[kM]?) sent(?:, (?<write>[\d.,]+[kM]?) cache write)?(?:, (?<hit>[\d.,]+[kM]?) cache hit)?, (?<received>[\d.,]+[kM]?) received\.",
    )
});
/// Pattern of the cost, which follows the tokens or is on its own line.
static COST: LazyLock<Regex> =
    LazyLock::new(|| fixed(r"(?:^|received\. )Cost: \$[\d.]+ message, \$(?<session>[\d.]+) session\.$"));
static ERROR: LazyLock<Regex> =
    LazyLock::new(|| fixed(r"^litellm\.(?:exceptions\.)?(\w+(?:Error|Exception)|Timeout): "));
static RETRY: LazyLock<Regex> = LazyLock::new(|| fixed(r"^Retrying in ([\d.]+) seconds\.\.\.$"));
static EXHAUSTED: LazyLock<Regex> = LazyLock::new(|| fixed(r"^Model \S+ has hit a token limit!$"));

impl AiderText {
    fn parse_line(&mut self, line: &str, on_event: &mut dyn FnMut(AgentEvent)) {
        let figures = FIGURES.captures(line);
        if let Some(cost) = COST.captures(line) {
            self.dollars = self.dollars.max(cost["session"].parse().unwrap_or(0.0));
            self.output.cost = Some(Money::from_usd(self.dollars));
        }
        if let Some(figures) = figures {
            self.figures(&figures, on_event);
        } else if COST.is_match(line) {
            self.output.report_usage(on_event);
        } else if let Some(kind) = ERROR.captures(line) {
            self.record_failure(line, &kind[1]);
        } else if EXHAUSTED.is_match(line) {
            self.record_failure(line, "ContextWindowExceededError");
        } else if let Some(file) = line.strip_prefix("Applied edit to ") {
            self.output.record_tool_call("edit", &file.into(), on_event);
            on_event(AgentEvent::FileChanged { path: shortened(file.trim(), MAX_EVENT_TEXT) });
        } else if line == "The LLM did not conform to the edit format." {
            self.output.record_tool_call("edit", &serde_json::Value::Null, on_event);
            self.output.record_tool_failure(line, on_event);
        } else if let Some(wait) = RETRY.captures(line) {
            let reason = self.error.clone().unwrap_or_else(|| line.to_owned());
            if wait[1].parse().is_ok_and(|wait: f64| wait >= LONGEST_WAIT_S) {
                self.stop_because = Some(format!("its provider refused it repeatedly: {}", shortened(&reason, 200)));
            }
            self.output.record_retry(reason, on_event);
        } else if line.starts_with("No LLM model was specified and no API keys were provided") {
            // It would wait for a login in a browser.
            self.needed_action = Some(line.to_owned());
            self.stop_because = self.needed_action.clone();
        } else {
            self.other(line, on_event);
        }
    }

    fn other(&mut self, line: &str, on_event: &mut dyn FnMut(AgentEvent)) {
        if line.starts_with("Repo-map: ") {
            // Last line of aider itself before the answer.
            self.text.clear();
        } else if !line.trim().is_empty() {
            self.text.push_str(line);
            self.text.push('\n');
            if self.text.len() > FINAL_MESSAGE {
                self.text = self.text.split_off(self.text.ceil_char_boundary(self.text.len() - FINAL_MESSAGE / 2));
            }
            on_event(AgentEvent::Text { text: shortened(line, MAX_EVENT_TEXT) });
        }
    }

    fn record_failure(&mut self, line: &str, kind: &str) {
        self.answered = false;
        self.output.record_provider_error(line);
        self.output.signals.code = Some(shortened(kind, 100));
        let status = STATUSES.iter().find(|(name, _)| *name == kind).map(|(_, status)| *status);
        self.output.signals.status = status.or(self.output.signals.status);
        self.error = Some(line.to_owned());
    }

    /// Records a response with its usage.
    fn figures(&mut self, figures: &Captures<'_>, on_event: &mut dyn FnMut(AgentEvent)) {
        self.answered = true;
        self.output.waiting = false;
        self.answer = std::mem::take(&mut self.text);
        let number = |name: &str| figures.name(name).map_or(0, |text| count(text.as_str()));
        let cache_write = number("write");
        self.output.tokens = self.output.tokens.plus(RunTokens {
            // It adds tokens written to the cache to a number that includes them.
            read: number("sent").saturating_sub(cache_write),
            written: number("received"),
            cache_read: number("hit"),
            cache_write,
        });
        self.output.report_usage(on_event);
    }
}

/// Parses a number such as `850`, `1,200`, `2.4k` or `1.2M`.
fn count(text: &str) -> u64 {
    let plain = text.replace(',', "");
    let (digits, factor) = [("k", 1e3), ("M", 1e6)]
        .iter()
        .find_map(|(unit, factor)| Some((plain.strip_suffix(unit)?, *factor)))
        .unwrap_or((&plain, 1.0));
    // A cast from a float stays within the integer's range.
    digits.parse::<f64>().map_or(0, |number| (number * factor).round() as u64)
}

impl OutputReader for AiderText {
    fn line(&mut self, stream: Stream, line: &str, on_event: &mut dyn FnMut(AgentEvent)) {
        match stream {
            Stream::Stdout => self.parse_line(line, on_event),
            Stream::Stderr if line.trim().is_empty() => {}
            Stream::Stderr => on_event(AgentEvent::Text { text: shortened(line, MAX_EVENT_TEXT) }),
        }
    }

    fn is_waiting(&self) -> bool {
        self.output.waiting
    }

    fn reason_to_stop(&self) -> Option<String> {
        self.stop_because.clone()
    }

    fn finish(&mut self, finished: &Finished) -> ParsedOutput {
        let text = if self.answered { &self.answer } else { &self.text };
        text.trim().clone_into(&mut self.output.last_text);
        let status = match (&finished.ended, self.error.take()) {
            _ if self.needed_action.is_some() => {
                AgentStatus::Unavailable { reason: self.needed_action.take().unwrap_or_default() }
            }
            (ProcessEnd::Exited(0), _) if self.answered => AgentStatus::Finished,
            (_, Some(error)) if !self.answered => match refused(&mut self.output.signals, &error) {
                // aider retried the request, so the refusal is temporary.
                AgentStatus::Failed { reason } if self.output.waiting => {
                    AgentStatus::Limited { until_ms: None, reason }
                }
                status => status,
            },
            (ProcessEnd::Exited(0), _) => match no_answer(&self.text) {
                Some(line) => AgentStatus::Unavailable { reason: format!("it did not run: {line}") },
                None => AgentStatus::Failed { reason: "it ended without an answer of the model".to_owned() },
            },
            _ => self.output.status_without_result(finished),
        };
        self.output.finish(status, finished)
    }
}

#[cfg(test)]
mod tests;
