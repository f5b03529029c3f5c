//! aider: how it is called, and how its text is read.
//!
//! It has no structured output and no session, and exits with 0 whatever happens. What tells is the line of figures
//! that follows each answer, and the lines by which its library names an error; a model's own words between them are
//! only text.

use std::sync::LazyLock;

use regex::{Captures, Regex};

use super::preset::{Call, MAX_EVENT_TEXT, Preset, PromptBy, Reader, Reading, shortened, variables, words};
use super::refusal::{no_answer, refused};
use super::stream::{Gathered, Tokens};
use super::{AgentEvent, AgentStatus};
use crate::domain::ids::Money;
use crate::process::{Ended, Finished, Stream};

/// Bytes of what it says that count as its final message.
const FINAL_MESSAGE: usize = 4 * 1024;

pub(super) const PRESET: Preset = Preset {
    name: "aider",
    program: Some("aider"),
    arguments,
    environment: |_| variables(&[("AIDER_ANALYTICS", "false"), ("AIDER_CHECK_UPDATE", "false")]),
    files: |_| Vec::new(),
    prompt: PromptBy::Arguments,
    reader: || Box::new(AiderText::default()),
    version: Some(&["--version"]),
    sessions: &[],
    filled: None,
};

fn arguments(call: &Call<'_>) -> Vec<String> {
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
    if let Some(model) = call.model {
        arguments.extend(["--model".to_owned(), model.to_owned()]);
    }
    arguments.extend(["--message-file".to_owned(), call.prompt_file.display().to_string()]);
    arguments
}

/// Reads aider's text.
#[derive(Debug, Default)]
struct AiderText {
    gathered: Gathered,
    said: String,
    /// Whether an answer came, and no error since.
    answered: bool,
    error: Option<String>,
    dollars: f64,
}

impl AiderText {
    fn text(&mut self, line: &str, on_event: &mut dyn FnMut(AgentEvent)) {
        static FIGURES: LazyLock<Regex> = LazyLock::new(|| {
            Regex::new(
                r"^Tokens: (?<sent>[\d.,]+k?) sent(?:, (?<write>[\d.,]+k?) cache write)?(?:, (?<hit>[\d.,]+k?) cache hit)?, (?<received>[\d.,]+k?) received\.(?: Cost: \$[\d.]+ message, \$(?<session>[\d.]+) session\.)?",
            )
            .expect("the expression is fixed and valid")
        });
        static ERROR: LazyLock<Regex> = LazyLock::new(|| {
            Regex::new(r"^litellm\.(?:exceptions\.)?(\w+(?:Error|Exception)): ")
                .expect("the expression is fixed and valid")
        });
        if let Some(figures) = FIGURES.captures(line) {
            self.figures(&figures, on_event);
        } else if let Some(kind) = ERROR.captures(line) {
            self.answered = false;
            self.gathered.failed(line);
            self.gathered.signals.code = Some(shortened(&kind[1], 100));
            self.error = Some(line.to_owned());
        } else if let Some(file) = line.strip_prefix("Applied edit to ") {
            self.gathered.tool_called("edit", &file.into(), on_event);
            on_event(AgentEvent::FileChanged { path: shortened(file.trim(), MAX_EVENT_TEXT) });
        } else if line.starts_with("Retrying in ") {
            let reason = self.error.clone().unwrap_or_else(|| line.to_owned());
            self.gathered.retried(reason, on_event);
        } else if !line.trim().is_empty() {
            self.said.push_str(line);
            self.said.push('\n');
            if self.said.len() > FINAL_MESSAGE {
                self.said = self.said.split_off(self.said.ceil_char_boundary(self.said.len() - FINAL_MESSAGE / 2));
            }
            on_event(AgentEvent::Text { text: shortened(line, MAX_EVENT_TEXT) });
        }
    }

    /// An answer came, and this is what it took.
    fn figures(&mut self, figures: &Captures<'_>, on_event: &mut dyn FnMut(AgentEvent)) {
        self.answered = true;
        self.gathered.waiting = false;
        let number = |name: &str| figures.name(name).map_or(0, |text| count(text.as_str()));
        self.gathered.tokens = self.gathered.tokens.plus(Tokens {
            read: number("sent"),
            written: number("received"),
            cache_read: number("hit"),
            cache_write: number("write"),
        });
        if let Some(dollars) = figures.name("session").and_then(|text| text.as_str().parse::<f64>().ok()) {
            self.dollars = self.dollars.max(dollars);
            self.gathered.cost = Some(Money::from_usd(self.dollars));
        }
        self.gathered.used(on_event);
    }
}

/// A number as it writes them: `850`, `1,200`, `2.4k`.
fn count(text: &str) -> u64 {
    let plain = text.replace(',', "");
    let (digits, factor) = plain.strip_suffix('k').map_or((plain.as_str(), 1.0), |digits| (digits, 1000.0));
    // A cast from a float stays within the integer's range.
    digits.parse::<f64>().map_or(0, |number| (number * factor).round() as u64)
}

impl Reader for AiderText {
    fn line(&mut self, _: Stream, line: &str, on_event: &mut dyn FnMut(AgentEvent)) {
        self.text(line, on_event);
    }

    fn complete(&self) -> bool {
        false
    }

    fn waiting(&self) -> bool {
        self.gathered.waiting
    }

    fn finish(&mut self, finished: &Finished) -> Reading {
        self.said.trim().clone_into(&mut self.gathered.last_text);
        let status = match (&finished.ended, self.error.take()) {
            (Ended::Exited(0), _) if self.answered => AgentStatus::Finished,
            (_, Some(error)) if !self.answered => refused(&self.gathered.signals, &error),
            (Ended::Exited(0), _) => match no_answer(&self.said) {
                Some(line) => AgentStatus::Unavailable { reason: format!("it did not run: {line}") },
                None => AgentStatus::Failed { reason: "it ended without an answer of the model".to_owned() },
            },
            _ => self.gathered.without_result(finished),
        };
        self.gathered.reading(status, finished)
    }
}

#[cfg(test)]
mod tests;
