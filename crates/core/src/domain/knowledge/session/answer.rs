//! Answers to an agent's queries, within a token budget.

use std::fmt::Write as _;

use regex::{Regex, RegexBuilder};

use super::{EventKind, SessionEvent, SessionSummary, SessionTurn, TurnRole};
use crate::domain::model::tokens::{BYTES_PER_TOKEN, estimated_tokens};

/// Maximum length of an excerpt, in characters.
const EXCERPT: usize = 400;
/// Number of tokens reserved for the line with the number of omitted results.
const MORE_TOKENS: usize = 30;

/// Search result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hit {
    /// Turn, with the matching part of its text.
    Turn {
        /// Iteration of the turn.
        iteration: u32,
        /// Attempt of the turn.
        attempt: u32,
        /// Author of the answer.
        role: TurnRole,
        /// Name of the backend.
        backend: String,
        /// Model; `None` if unknown.
        model: Option<String>,
        /// Error; `None` if the turn succeeded.
        error: Option<String>,
        /// Matching part.
        excerpt: String,
    },
    /// Event, with its text cut to the matching part.
    Event(SessionEvent),
    /// Complete summary.
    Summary(SessionSummary),
}

/// Results of a search.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SearchResults {
    /// Results, best first.
    pub hits: Vec<Hit>,
    /// Number of results missing in `hits`.
    pub more: u64,
    /// Whether `more` is only a lower bound, because counting has a limit.
    pub at_least: bool,
    /// Notes for the caller, for example that the query was rewritten or a glob is invalid.
    pub notes: Vec<String>,
}

/// Returns a pattern that matches words with any of these prefixes, ignoring case; `None` without words.
pub fn word_finder(terms: &[String]) -> Option<Regex> {
    let stems: Vec<String> = terms
        .iter()
        .map(|term| {
            let length = term.chars().count();
            let stem: String = term.chars().take(if length > 5 { length - 2 } else { length }).collect();
            regex::escape(&stem)
        })
        .collect();
    if stems.is_empty() {
        return None;
    }
    RegexBuilder::new(&format!(r"\b(?:{})", stems.join("|"))).case_insensitive(true).build().ok()
}

/// Returns the part of a text around the first match, or its start without a match; at most 400 characters.
pub fn excerpt(text: &str, finder: Option<&Regex>) -> String {
    let text = text.trim();
    let at = finder.and_then(|finder| finder.find(text)).map_or(0, |found| found.start());
    let before = text[..at].char_indices().rev().nth(EXCERPT / 3).map_or(0, |(index, _)| index);
    let part = cut(&text[before..], EXCERPT);
    if before > 0 { format!("…{part}") } else { part }
}

/// Returns the first `most` characters, with a mark if the text was cut.
pub(super) fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", text[..end].trim_end()),
        None => text.to_owned(),
    }
}

/// Shortens a text to `budget` tokens: keeps its start and end, and states the length of the omitted part.
pub fn shortened(text: &str, budget: usize) -> String {
    let text = text.trim();
    if estimated_tokens(text.len()) <= budget {
        return text.to_owned();
    }
    let room = budget.saturating_sub(MORE_TOKENS) * BYTES_PER_TOKEN;
    let head = text.floor_char_boundary(room * 2 / 3);
    let tail = text.ceil_char_boundary(text.len() - (room - room * 2 / 3).min(text.len() - head));
    let left_out = estimated_tokens(tail - head);
    format!("{}\n[… {left_out} more tokens …]\n{}", text[..head].trim_end(), text[tail..].trim_start())
}

/// Joins blocks within a token budget. Shortens the first block if necessary. Appends the number of omitted blocks,
/// including `more` blocks that were not fetched.
pub fn fit(blocks: &[String], more: u64, at_least: bool, budget: usize) -> String {
    let room = budget.saturating_sub(MORE_TOKENS);
    let mut text = String::new();
    let mut shown = 0;
    for block in blocks {
        let tokens_left = room.saturating_sub(estimated_tokens(text.len()));
        let fits = estimated_tokens(block.len()) < tokens_left;
        if !fits && shown > 0 {
            break;
        }
        if shown > 0 {
            text.push_str("\n\n");
        }
        text.push_str(&if fits { block.trim_end().to_owned() } else { shortened(block, tokens_left) });
        shown += 1;
    }
    let more = more.saturating_add((blocks.len() - shown) as u64);
    if more > 0 {
        let or_so = if at_least { "at least " } else { "" };
        // Writing to a string cannot fail.
        let _ = write!(text, "\n\n{or_so}{more} more; narrow the search to see them");
    }
    text
}

/// Formats the answer to a search within a token budget.
pub fn found_text(found: &SearchResults, budget: usize) -> String {
    let notes: String = found.notes.iter().map(|note| format!("note: {}\n", cut(note, EXCERPT))).collect();
    let notes = shortened(&notes, budget / 4);
    if found.hits.is_empty() {
        return format!("{notes}\nnothing found").trim_start().to_owned();
    }
    let blocks: Vec<String> = found.hits.iter().map(hit_text).collect();
    let body = fit(&blocks, found.more, found.at_least, budget.saturating_sub(estimated_tokens(notes.len()) + 1));
    if notes.is_empty() { body } else { format!("{notes}\n\n{body}") }
}

fn hit_text(hit: &Hit) -> String {
    match hit {
        Hit::Turn { iteration, attempt, role, backend, model, error, excerpt } => {
            let model = model.as_deref().map(|model| format!(" {model}")).unwrap_or_default();
            let error = error.as_deref().map(|error| format!("\nfailed: {}", cut(error, EXCERPT))).unwrap_or_default();
            let head = format!("[turn] iteration {iteration}, attempt {attempt}, {}, {backend}{model}", role.as_str());
            format!("{head}{error}\n{excerpt}")
        }
        Hit::Event(event) => event_text(event),
        Hit::Summary(summary) => summary_text(summary),
    }
}

fn event_text(event: &SessionEvent) -> String {
    let mut head = format!("[{}] iteration {}", event.kind, event.iteration);
    for part in [&event.tool, &event.path].into_iter().flatten() {
        head.push_str(&format!(", {}", cut(part, EXCERPT)));
    }
    if event.failed && event.kind != EventKind::Error {
        head.push_str(", failed");
    }
    format!("{head}\n{}", event.text)
}

fn summary_text(summary: &SessionSummary) -> String {
    let SessionSummary { from, to, text, decisions, files, errors, .. } = summary;
    let mut block = format!("[summary] iterations {from} to {to}\n{}", text.trim());
    if !summary.extractive {
        let errors: Vec<String> = errors.iter().map(|e| format!("{}x {}", e.count, e.signature)).collect();
        for (title, lines) in [("Decisions", decisions), ("Errors", &errors), ("Files", files)] {
            if !lines.is_empty() {
                block.push_str(&format!("\n{title}: {}", lines.join("; ")));
            }
        }
    }
    block
}

/// Formats summaries within a token budget, oldest first. If not all fit, keeps the newest.
pub fn summaries_text(summaries: &[SessionSummary], budget: usize) -> String {
    if summaries.is_empty() {
        return "there is no summary of these iterations yet".to_owned();
    }
    let newest_first: Vec<String> = summaries.iter().rev().map(summary_text).collect();
    fit(&newest_first, 0, false, budget)
}

/// Formats an iteration's turns within a token budget: the agent's last turn first, and answers before prompts.
pub fn turns_text(iteration: u32, turns: &[SessionTurn], budget: usize) -> String {
    let mut turns: Vec<&SessionTurn> = turns.iter().collect();
    if turns.is_empty() {
        return format!("there is no turn of iteration {iteration}; it has not run, or its turns were deleted");
    }
    turns.sort_by_key(|turn| (turn.role == TurnRole::Assistant, std::cmp::Reverse((turn.attempt, turn.started))));
    let each = budget.saturating_sub(MORE_TOKENS) / turns.len().clamp(1, 3);
    let each = each.saturating_sub(MORE_TOKENS);
    let blocks: Vec<String> = turns.iter().map(|turn| turn_text(turn, each)).collect();
    fit(&blocks, 0, false, budget)
}

fn turn_text(turn: &SessionTurn, budget: usize) -> String {
    let model = turn.model.as_deref().map(|model| format!(" {model}")).unwrap_or_default();
    let about = if turn.estimated { "about " } else { "" };
    let mut head = format!(
        "[turn] iteration {}, attempt {}, {}, {}{model}, {} s, {about}{} tokens in, {} cached, {} out, {}",
        turn.iteration,
        turn.attempt,
        turn.role.as_str(),
        turn.backend,
        turn.ended.since(turn.started) / 1000,
        turn.tokens_in,
        turn.tokens_cached,
        turn.tokens_out,
        turn.cost,
    );
    if let Some(error) = &turn.error {
        head.push_str(&format!("\nfailed: {}", cut(error, EXCERPT)));
    }
    let room = budget.saturating_sub(estimated_tokens(head.len()) + MORE_TOKENS);
    let response = shortened(&turn.response, room * 2 / 3);
    let prompt = shortened(&turn.prompt, room.saturating_sub(estimated_tokens(response.len())));
    format!("{head}\n--- answer\n{response}\n--- prompt\n{prompt}")
}
