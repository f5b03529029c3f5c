//! Some iterations in short.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::job::{Job, JobKind};
use super::text;

/// Longest summary, characters.
const SUMMARY: usize = 1_200;
/// Most items of a list in it, and the longest.
const ITEMS: (usize, usize) = (10, 200);
/// Iterations that a question carries, and characters of each.
const TURNS: (usize, usize) = (50, 600);

/// An iteration as a summary sees it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Turn {
    /// Its number.
    pub iteration: u32,
    /// What was tried.
    pub approach: String,
    /// What came of it.
    pub outcome: String,
    /// What the agent said.
    pub summary: String,
    /// Paths that were changed.
    pub files: Vec<String>,
    /// First error, normalised.
    pub error: Option<String>,
}

/// A summary.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SummaryAnswer {
    /// What was tried, what worked, what failed; at most 150 words.
    pub summary: String,
    /// What was decided and still holds.
    pub key_decisions: Vec<String>,
    /// Paths that were changed.
    pub files: Vec<String>,
    /// Errors that came, the most frequent first.
    pub error_patterns: Vec<String>,
}

/// The question for a summary of iterations, oldest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summarising {
    turns: Vec<Turn>,
}

impl Summarising {
    /// Of these iterations, oldest first; of more than fifty, of the newest fifty.
    pub fn of(mut turns: Vec<Turn>) -> Self {
        turns.drain(..turns.len().saturating_sub(TURNS.0));
        Self { turns }
    }

    /// The most frequent of some texts, most frequent first; of equals, the first by name.
    fn frequent<'a>(texts: impl Iterator<Item = &'a String>) -> Vec<String> {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for text in texts {
            let text = text::line(text, ITEMS.1);
            if !text.is_empty() {
                *counts.entry(text).or_default() += 1;
            }
        }
        let mut counts: Vec<(String, usize)> = counts.into_iter().collect();
        counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        counts.into_iter().map(|(text, _)| text).take(ITEMS.0).collect()
    }

    fn files(&self) -> Vec<String> {
        Self::frequent(self.turns.iter().flat_map(|turn| &turn.files))
    }
}

impl Job for Summarising {
    type Answer = SummaryAnswer;

    const KIND: JobKind = JobKind::Summary;

    fn question(&self, nonce: &str) -> String {
        let (first, last) = (self.turns.first(), self.turns.last());
        let number = |turn: Option<&Turn>| turn.map_or(0, |turn| turn.iteration);
        let mut out = format!(
            "Summarise the iterations {} to {} of a coding agent for whoever goes on. Say what was tried, what worked, what \
             failed and which decisions still hold. Keep names of files and errors as they are. Make nothing up.\n\n",
            number(first),
            number(last)
        );
        let lines = self.turns.iter().map(|turn| {
            let files = turn.files.join(", ");
            let error = turn.error.as_deref().unwrap_or_default();
            let all = format!("{}. {} {} Files: {files}. Error: {error}", turn.approach, turn.summary, turn.outcome);
            format!("Iteration {}: {}\n", turn.iteration, text::line(&all, TURNS.1))
        });
        text::frame(&mut out, nonce, "iterations", &lines.collect::<String>());
        out
    }

    fn checked(&self, answer: SummaryAnswer) -> Result<SummaryAnswer, String> {
        let items = |items: &[String]| -> Vec<String> {
            let lines = items.iter().map(|item| text::line(item, ITEMS.1)).filter(|item| !item.is_empty());
            lines.take(ITEMS.0).collect()
        };
        let summary = text::line(&answer.summary, SUMMARY);
        if summary.is_empty() {
            return Err("`summary` is empty".to_owned());
        }
        // Which files were changed is known; a model may only choose among them.
        let known = |file: &String| self.turns.iter().any(|turn| turn.files.contains(file));
        Ok(SummaryAnswer {
            summary,
            key_decisions: items(&answer.key_decisions),
            files: items(&answer.files).into_iter().filter(known).collect(),
            error_patterns: items(&answer.error_patterns),
        })
    }

    /// First and last iteration, and the lists counted.
    fn fallback(&self) -> SummaryAnswer {
        let told = |turn: &Turn| {
            let (approach, outcome) = (text::line(&turn.approach, 160), text::line(&turn.outcome, 160));
            format!("Iteration {}: {approach}. {outcome}.", turn.iteration)
        };
        let shown: Vec<String> = match self.turns.as_slice() {
            [] => vec!["No iteration.".to_owned()],
            [only] => vec![told(only)],
            [first, .., last] => vec![told(first), told(last)],
        };
        let errors = Self::frequent(self.turns.iter().filter_map(|turn| turn.error.as_ref()));
        let between: Vec<String> = match self.turns.as_slice() {
            [_, between @ .., _] => between.iter().map(|turn| text::line(&turn.approach, 80)).collect(),
            _ => Vec::new(),
        };
        let mut summary = shown.join(" ");
        if !between.is_empty() {
            summary.push_str(&format!(" In between: {}.", between.join("; ")));
        }
        SummaryAnswer {
            summary: text::line(&summary, SUMMARY),
            key_decisions: Vec::new(),
            files: self.files(),
            error_patterns: errors,
        }
    }
}
