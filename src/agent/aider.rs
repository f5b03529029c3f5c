//! aider: how it is called, and how its text is read.
//!
//! It has no structured output, and exits with 0 whatever happens. What tells is the line of figures that follows each
//! answer, and the lines by which its library names an error; a model's own words between them are only text.
//!
//! It keeps no session between runs. It can read its last chat again (`--restore-chat-history`), but that is not gone on
//! with: files that were in the chat are not in it again; lines of an answer that begin with `#` are lost, and those that
//! begin with `####` come back as the user's words; and what is longer than a few thousand tokens is summed up by
//! another call of a model, which is in none of its figures.

use std::sync::LazyLock;

use regex::{Captures, Regex};

use super::broker::ModelKey;
use super::preset::{
    AgentPreset, MAX_EVENT_TEXT, OutputReader, ParsedOutput, PromptDelivery, RunContext, shortened, variables, words,
};
use super::refusal::{no_answer, refused};
use super::stream::{OutputAccumulator, Tokens};
use super::{AgentEvent, AgentStatus};
use crate::domain::model::ids::Money;
use crate::process::{Finished, ProcessEnd, Stream};

/// Bytes of what it says that count as its final message.
const FINAL_MESSAGE: usize = 4 * 1024;
/// Announced wait, in seconds, at which it is stopped: it doubles its waits up to 32 s, and has asked six times by then.
const LONGEST_WAIT_S: f64 = 8.0;
/// Its library asks each time three times more unless it is told not to; this name stands for all models.
const MODEL_SETTINGS: &str = "- name: aider/extra_params\n  extra_params:\n    max_retries: 0\n";
/// Prices that it would fetch from the network in each fresh home; those of its library stand in where this has none.
const FETCHED_PRICES: &str = "{\"none\": {}}\n";
/// Keys of its providers, and the variables by which each is asked elsewhere.
const KEYS: [ModelKey; 2] = [
    ModelKey {
        keys: &["OPENAI_API_KEY"],
        addresses: &["OPENAI_BASE_URL", "OPENAI_API_BASE"],
        usual: Some("https://api.openai.com/v1"),
        unless: &[],
    },
    ModelKey {
        keys: &["ANTHROPIC_API_KEY"],
        addresses: &["ANTHROPIC_API_BASE", "ANTHROPIC_BASE_URL"],
        usual: Some("https://api.anthropic.com"),
        unless: &[],
    },
];

/// What its library calls the refusals of a provider, and the HTTP status that each of these names stands for.
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

pub(super) const PRESET: AgentPreset = AgentPreset {
    name: "aider",
    program: Some("aider"),
    arguments,
    environment: |_| {
        variables(&[
            ("AIDER_ANALYTICS", "false"),
            ("AIDER_CHECK_UPDATE", "false"),
            ("LITELLM_LOCAL_MODEL_COST_MAP", "True"),
            // It breaks lines, those of its figures and errors too, at the width of a terminal.
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
    reader: || Box::new(AiderText::default()),
    version: Some(&["--version"]),
    leftovers: &[".aider.tags.cache."],
    keys: &KEYS,
    model_at: &["api.openai.com", "api.anthropic.com"],
    ..AgentPreset::NOTHING
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
    // The history of its talk would be left in the tree.
    for (flag, name) in [("--input-history-file", "input"), ("--chat-history-file", "chat")] {
        let file = call.run.scratch.join("home").join(format!("aider-{name}.history"));
        arguments.extend([flag.to_owned(), file.display().to_string()]);
    }
    // A `.env` of the repository could send the key elsewhere; it is read before these.
    for ModelKey { addresses, usual, .. } in KEYS {
        let address = addresses.iter().find_map(|name| call.variable(name)).or(usual).unwrap_or_default();
        arguments.extend(addresses.iter().flat_map(|name| ["--set-env".to_owned(), format!("{name}={address}")]));
    }
    if let Some(model) = call.model {
        arguments.extend(["--model".to_owned(), model.to_owned()]);
    }
    arguments.extend(["--message-file".to_owned(), call.prompt_file.display().to_string()]);
    arguments
}

/// Reads aider's text.
#[derive(Debug, Default)]
struct AiderText {
    output: OutputAccumulator,
    /// What it printed since its last answer.
    said: String,
    /// Its last whole answer.
    answer: String,
    /// Whether an answer came, and no error since.
    answered: bool,
    error: Option<String>,
    dollars: f64,
    /// Why it is not worth waiting for it any longer.
    stop_because: Option<String>,
    /// What it wants from a person before it can run.
    wants: Option<String>,
}

fn fixed(expression: &str) -> Regex {
    Regex::new(expression).expect("the expression is fixed and valid")
}

static FIGURES: LazyLock<Regex> = LazyLock::new(|| {
    fixed(
        r"^Tokens: (?<sent>[\d.,]+[kM]?) sent(?:, (?<write>[\d.,]+[kM]?) cache write)?(?:, (?<hit>[\d.,]+[kM]?) cache hit)?, (?<received>[\d.,]+[kM]?) received\.",
    )
});
/// Behind the tokens, or on a line of its own.
static COST: LazyLock<Regex> =
    LazyLock::new(|| fixed(r"(?:^|received\. )Cost: \$[\d.]+ message, \$(?<session>[\d.]+) session\.$"));
static ERROR: LazyLock<Regex> =
    LazyLock::new(|| fixed(r"^litellm\.(?:exceptions\.)?(\w+(?:Error|Exception)|Timeout): "));
static RETRY: LazyLock<Regex> = LazyLock::new(|| fixed(r"^Retrying in ([\d.]+) seconds\.\.\.$"));
static EXHAUSTED: LazyLock<Regex> = LazyLock::new(|| fixed(r"^Model \S+ has hit a token limit!$"));

impl AiderText {
    fn text(&mut self, line: &str, on_event: &mut dyn FnMut(AgentEvent)) {
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
            self.failed(line, &kind[1]);
        } else if EXHAUSTED.is_match(line) {
            self.failed(line, "ContextWindowExceededError");
        } else if let Some(file) = line.strip_prefix("Applied edit to ") {
            self.output.record_tool_call("edit", &file.into(), on_event);
            on_event(AgentEvent::FileChanged { path: shortened(file.trim(), MAX_EVENT_TEXT) });
        } else if line == "The LLM did not conform to the edit format." {
            self.output.record_tool_call("edit", &serde_json::Value::Null, on_event);
            self.output.record_tool_failure(line, on_event);
        } else if let Some(wait) = RETRY.captures(line) {
            let reason = self.error.clone().unwrap_or_else(|| line.to_owned());
            if wait[1].parse().is_ok_and(|wait: f64| wait >= LONGEST_WAIT_S) {
                self.stop_because =
                    Some(format!("its provider refused it again and again: {}", shortened(&reason, 200)));
            }
            self.output.record_retry(reason, on_event);
        } else if line.starts_with("No LLM model was specified and no API keys were provided") {
            // It would wait for somebody to log in with a browser.
            self.wants = Some(line.to_owned());
            self.stop_because = self.wants.clone();
        } else {
            self.other(line, on_event);
        }
    }

    fn other(&mut self, line: &str, on_event: &mut dyn FnMut(AgentEvent)) {
        if line.starts_with("Repo-map: ") {
            // The last line that it says of itself.
            self.said.clear();
        } else if !line.trim().is_empty() {
            self.said.push_str(line);
            self.said.push('\n');
            if self.said.len() > FINAL_MESSAGE {
                self.said = self.said.split_off(self.said.ceil_char_boundary(self.said.len() - FINAL_MESSAGE / 2));
            }
            on_event(AgentEvent::Text { text: shortened(line, MAX_EVENT_TEXT) });
        }
    }

    fn failed(&mut self, line: &str, kind: &str) {
        self.answered = false;
        self.output.record_provider_error(line);
        self.output.signals.code = Some(shortened(kind, 100));
        let status = STATUSES.iter().find(|(name, _)| *name == kind).map(|(_, status)| *status);
        self.output.signals.status = status.or(self.output.signals.status);
        self.error = Some(line.to_owned());
    }

    /// An answer came, and this is what it took.
    fn figures(&mut self, figures: &Captures<'_>, on_event: &mut dyn FnMut(AgentEvent)) {
        self.answered = true;
        self.output.waiting = false;
        self.answer = std::mem::take(&mut self.said);
        let number = |name: &str| figures.name(name).map_or(0, |text| count(text.as_str()));
        let cache_write = number("write");
        self.output.tokens = self.output.tokens.plus(Tokens {
            // It adds those put into the cache to a number that has them already.
            read: number("sent").saturating_sub(cache_write),
            written: number("received"),
            cache_read: number("hit"),
            cache_write,
        });
        self.output.report_usage(on_event);
    }
}

/// A number as it writes them: `850`, `1,200`, `2.4k`, `1.2M`.
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
            Stream::Stdout => self.text(line, on_event),
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
        let words = if self.answered { &self.answer } else { &self.said };
        words.trim().clone_into(&mut self.output.last_text);
        let status = match (&finished.ended, self.error.take()) {
            _ if self.wants.is_some() => AgentStatus::Unavailable { reason: self.wants.take().unwrap_or_default() },
            (ProcessEnd::Exited(0), _) if self.answered => AgentStatus::Finished,
            (_, Some(error)) if !self.answered => match refused(&self.output.signals, &error) {
                // It was worth asking again, so it passes.
                AgentStatus::Failed { reason } if self.output.waiting => {
                    AgentStatus::Limited { until_ms: None, reason }
                }
                status => status,
            },
            (ProcessEnd::Exited(0), _) => match no_answer(&self.said) {
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
