//! Searches the texts of all loops, newest first.
//!
//! Ranking all matches of a common word would require reading all of them. Therefore, FTS5 returns matches newest first and
//! stops at the limit. SQLite interrupts a slow search, which then returns the matches found so far.

mod text_kind;

use std::time::Duration;

use regex::Regex;

use super::search::{columns, table};
use super::{event, packed, scope};
use crate::clock::Stopwatch;
use crate::domain::knowledge::session::{EventKind, SessionSummary, SessionTier, terms, word_finder};
use crate::domain::loops::LoopState;
use crate::domain::model::ids::{LoopId, Timestamp};
use crate::store::listing::{self, LoopRow, RepoScope, words_expression};
use crate::store::sql::{Connection, OptionalExtension, Row, Value, params, params_from_iter};
use crate::store::{StoreError, StoreResult, within};

pub use text_kind::{TextKind, TextRow, source_of};

/// Time after which a search returns the matches found so far.
const BUDGET: Duration = Duration::from_millis(50);
/// Maximum length of a snippet, and of its part before the first match, in characters.
const SNIPPET: usize = 240;
const BEFORE: usize = 60;
/// Maximum number of matches in a text that are compared to find its best line.
const MOST_MATCHES: usize = 2_000;
/// Length of the text around the first match, on each side, in which secrets are masked, in bytes.
const MASKED: usize = 8 * 1024;

/// Kinds of rows that are searched, in the order in which their matches are interleaved.
const TIERS: [TextTier; 4] = [
    TextTier::Loops,
    TextTier::Session(SessionTier::Summaries),
    TextTier::Session(SessionTier::Events),
    TextTier::Session(SessionTier::Raw),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TextTier {
    /// Titles and state reasons of loops.
    Loops,
    /// Session memory of loops.
    Session(SessionTier),
}

impl TextTier {
    fn table(self) -> &'static str {
        match self {
            Self::Loops => "loop_summaries",
            Self::Session(tier) => table(tier),
        }
    }
}

/// Position of a search: for each kind of row, the row id below which the search continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextPosition([i64; TIERS.len()]);

impl Default for TextPosition {
    fn default() -> Self {
        Self([i64::MAX; TIERS.len()])
    }
}

impl TextPosition {
    /// Parses the output of `Display`; `None` if it is malformed.
    pub fn parse(text: &str) -> Option<Self> {
        let parts: Vec<i64> = text.split('.').map(|part| part.parse().ok()).collect::<Option<_>>()?;
        let rows: [i64; TIERS.len()] = parts.try_into().ok()?;
        rows.iter().all(|row| *row >= 0).then_some(Self(rows))
    }
}

impl std::fmt::Display for TextPosition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let rows = self.0.map(|row| row.to_string());
        f.write_str(&rows.join("."))
    }
}

/// Search over all loops.
#[derive(Debug, Clone, PartialEq)]
pub struct TextQuery {
    /// Words that a row must all contain. In titles and reasons, the last word may be a prefix. There is no query syntax.
    pub text: String,
    /// Repositories whose titles, reasons and states are searched.
    pub titles: RepoScope,
    /// Repositories whose prompts, answers and outputs are searched.
    pub texts: RepoScope,
    /// Loop to search; `None` for all.
    pub of: Option<LoopId>,
    /// States of the loops to search; empty for all.
    pub states: Vec<LoopState>,
    /// Kind of texts to search; `None` for all.
    pub kind: Option<TextKind>,
    /// Position to continue from; the start for the first page.
    pub before: TextPosition,
    /// Maximum number of results.
    pub limit: usize,
}

impl TextQuery {
    /// Returns a search for words in all visible texts, starting at the newest one.
    pub fn of(text: String, titles: RepoScope, texts: RepoScope, limit: usize) -> Self {
        let before = TextPosition::default();
        Self { text, titles, texts, of: None, states: Vec::new(), kind: None, before, limit }
    }

    /// Returns the columns to search and the SQL condition on the rows of a tier; `None` if the tier is not searched.
    fn within(&self, tier: TextTier) -> Option<(&'static str, &'static str)> {
        match (self.kind, tier) {
            (Some(kind), tier) => kind.within(tier),
            (None, TextTier::Loops) => self.of.is_none().then_some(("", "TRUE")),
            (None, TextTier::Session(tier)) => Some((columns(tier), "TRUE")),
        }
    }
}

/// Results of a search.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FoundTexts {
    /// Matches; those within a kind are sorted newest first.
    pub hits: Vec<TextHit>,
    /// Position to continue from; `None` if the search is complete, or if it found nothing within its time limit.
    pub next: Option<TextPosition>,
    /// Whether the search stopped early because of its time limit.
    pub early: bool,
}

/// Match of a search.
#[derive(Debug, Clone, PartialEq)]
pub struct TextHit {
    /// Loop that contains the text.
    pub of: LoopRow,
    /// 1-based iteration; `None` for title and reason.
    pub iteration: Option<u32>,
    /// Part of the loop that matched.
    pub place: SearchedText,
    /// Row of the text; `None` for title, reason and summary.
    pub row: Option<TextRow>,
    /// 1-based line of the first match in the text.
    pub line: u32,
    /// Part of the text around the first match.
    pub snippet: Vec<SnippetPart>,
    /// Time of the text.
    pub at: Timestamp,
}

/// Part of a loop that a search can match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SearchedText {
    /// Title, person, repository, branch or number of the issue.
    Title,
    /// Reason of the loop's state.
    Reason,
    /// Summary of iterations.
    Summary,
    /// Event of an iteration.
    Event(EventKind),
    /// Prompt.
    Prompt,
    /// Answer of an agent or an assistant, or its error.
    Response,
}

impl SearchedText {
    /// Returns the name in API responses.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Title => "title",
            Self::Reason => "reason",
            Self::Summary => "summary",
            Self::Event(kind) => kind.as_str(),
            Self::Prompt => "prompt",
            Self::Response => "response",
        }
    }
}

/// Part of a snippet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnippetPart {
    /// Text on one line.
    pub text: String,
    /// Whether the part matches the search.
    pub marked: bool,
}

/// Matches of one kind of row.
struct TierMatches {
    tier: TextTier,
    /// Row id below which the search of this kind started.
    from: i64,
    /// Row id below which the search of this kind continues; 0 if all rows were searched.
    before: i64,
    rows: Vec<i64>,
    /// Whether the search of this kind stopped early because of its time limit.
    is_interrupted: bool,
}

/// Masks secrets in a text.
pub type MaskText<'a> = &'a dyn Fn(&str) -> String;

/// Searches titles, reasons, prompts, answers, summaries and events of all visible loops. Applies `mask` before it cuts
/// snippets, because the masker would not recognize part of a secret.
///
/// # Errors
/// The database fails or contains values that are unreadable for this version.
pub fn search_texts(c: &Connection, query: &TextQuery, mask: MaskText<'_>) -> StoreResult<FoundTexts> {
    search_within(c, query, mask, BUDGET)
}

pub(super) fn search_within(
    c: &Connection,
    query: &TextQuery,
    mask: MaskText<'_>,
    budget: Duration,
) -> StoreResult<FoundTexts> {
    if words_expression(&query.text, false).is_none() {
        return Ok(FoundTexts::default());
    }
    let watch = Stopwatch::start();
    let open = TIERS.into_iter().zip(query.before.0).filter(|(tier, from)| *from > 0 && query.within(*tier).is_some());
    let open: Vec<(TextTier, i64)> = open.collect();
    let mut tiers = Vec::with_capacity(open.len());
    for (nth, (tier, from)) in (1..).zip(&open) {
        // Time that one kind leaves unused is available to the next kinds.
        let deadline = budget * nth / u32::try_from(open.len()).unwrap_or(1);
        tiers.push(TierMatches::search(c, query, (*tier, *from), deadline.saturating_sub(watch.elapsed()))?);
    }
    let finder = word_finder(&terms(&query.text));
    let (chosen, next) = mixed(&tiers, query.limit);
    // If nothing was found, a continuation would search the same rows again.
    let next = next.filter(|_| !chosen.is_empty());
    let mut hits = Vec::with_capacity(chosen.len());
    for (tier, row) in chosen {
        hits.extend(hit(c, (tier, row), (query.kind, finder.as_ref()), mask)?);
    }
    Ok(FoundTexts { hits, next, early: tiers.iter().any(|found| found.is_interrupted) })
}

impl TierMatches {
    /// Searches the rows of a kind below `from`, newest first, for at most `limit`.
    fn search(c: &Connection, query: &TextQuery, (tier, from): (TextTier, i64), limit: Duration) -> StoreResult<Self> {
        let (sql, values) = statement(c, query, tier, from);
        let mut statement = c.prepare_cached(&sql)?;
        let mut rows = Vec::new();
        let read = within(c, limit, |_| {
            for row in statement.query_map(params_from_iter(values), |row| row.get(0))? {
                rows.push(row?);
            }
            Ok(())
        });
        let is_interrupted = matches!(read, Err(StoreError::TooSlow));
        if !is_interrupted {
            read?;
        }
        let more = is_interrupted || rows.len() >= query.limit;
        let before = if more { rows.last().copied().unwrap_or(from) } else { 0 };
        Ok(Self { tier, from, before, rows, is_interrupted })
    }
}

/// Builds the SQL statement that selects the row ids of a kind's matches below `from`, newest first.
fn statement(c: &Connection, query: &TextQuery, tier: TextTier, from: i64) -> (String, Vec<Value>) {
    let own = tier.table();
    let words = format!("{own}_words");
    let matches = c.matches(&words, 1);
    let expression = words_expression(&query.text, tier == TextTier::Loops).unwrap_or_default();
    let (columns, condition) = query.within(tier).unwrap_or(("", "FALSE"));
    let matched = match (tier, &query.of) {
        (TextTier::Loops, _) => expression,
        (TextTier::Session(_), None) => format!("{columns} : ({expression})"),
        (TextTier::Session(_), Some(of)) => format!("scope : {} AND {columns} : ({expression})", scope(of)),
    };
    let mut values: Vec<Value> =
        vec![matched.into(), from.into(), i64::try_from(query.limit).unwrap_or(i64::MAX).into()];
    let (join, visible) = match tier {
        TextTier::Loops => (format!("CROSS JOIN loop_summaries s WHERE s.id = {words}.rowid"), &query.titles),
        TextTier::Session(_) => (
            format!(
                "CROSS JOIN {own} t CROSS JOIN loop_summaries s WHERE t.id = {words}.rowid AND s.loop_id = t.loop_id"
            ),
            &query.texts,
        ),
    };
    let visible = visible.condition("s", &mut values);
    let states = match query.states[..] {
        [] => String::new(),
        _ => {
            let names: Vec<String> = query.states.iter().map(|state| format!("'{}'", state.as_str())).collect();
            format!(" AND s.state IN ({})", names.join(", "))
        }
    };
    let of = match (&query.of, tier) {
        (Some(of), TextTier::Session(_)) => {
            values.push(of.as_str().to_owned().into());
            format!(" AND t.loop_id = ?{}", values.len())
        }
        _ => String::new(),
    };
    let sql = format!(
        "SELECT {words}.rowid FROM {words} {join} AND {matches} AND {words}.rowid < ?2 AND {visible}
             AND {condition}{states}{of}
         ORDER BY {words}.rowid DESC LIMIT ?3"
    );
    (sql, values)
}

/// Interleaves the matches of all kinds, up to `limit`; also returns the position after them.
fn mixed(tiers: &[TierMatches], limit: usize) -> (Vec<(TextTier, i64)>, Option<TextPosition>) {
    let longest = tiers.iter().map(|found| found.rows.len()).max().unwrap_or_default();
    let in_turn =
        (0..longest).flat_map(|nth| tiers.iter().filter_map(move |found| Some((found.tier, *found.rows.get(nth)?))));
    let chosen: Vec<(TextTier, i64)> = in_turn.take(limit).collect();
    let after = |found: &TierMatches| {
        let taken = chosen.iter().filter(|(tier, _)| *tier == found.tier).count();
        match taken {
            all if all == found.rows.len() => found.before,
            0 => found.from,
            some => found.rows[some - 1],
        }
    };
    let of_tier = |tier| tiers.iter().find(|found| found.tier == tier).map_or(0, after);
    let rows = TIERS.map(of_tier);
    let next = rows.iter().any(|row| *row > 0).then_some(TextPosition(rows));
    (chosen, next)
}

/// Reads a match; `None` if its row was deleted in the meantime.
fn hit(
    c: &Connection,
    (tier, row): (TextTier, i64),
    (kind, finder): (Option<TextKind>, Option<&Regex>),
    mask: MaskText<'_>,
) -> StoreResult<Option<TextHit>> {
    let found = match tier {
        TextTier::Loops => loop_text(c, row, finder)?,
        TextTier::Session(SessionTier::Raw) => turn_text(c, row, (kind, finder))?,
        TextTier::Session(SessionTier::Events) => event_text(c, row)?,
        TextTier::Session(SessionTier::Summaries) => summary_text(c, row)?,
    };
    let Some(LocatedText { id, iteration, place, text, at }) = found else { return Ok(None) };
    let Some(of) = listing::row(c, &id)? else { return Ok(None) };
    let (line, snippet) = located(&text, finder, mask);
    let row = match place {
        SearchedText::Prompt => Some(TextRow::Prompt(row)),
        SearchedText::Response => Some(TextRow::Answer(row)),
        SearchedText::Event(_) => Some(TextRow::Event(row)),
        SearchedText::Title | SearchedText::Reason | SearchedText::Summary => None,
    };
    Ok(Some(TextHit { of, iteration, place, row, line, snippet, at }))
}

/// Text of a match with its place in the loop.
struct LocatedText {
    id: LoopId,
    iteration: Option<u32>,
    place: SearchedText,
    text: String,
    at: Timestamp,
}

fn loop_text(c: &Connection, row: i64, finder: Option<&Regex>) -> StoreResult<Option<LocatedText>> {
    let sql = "SELECT loop_id, title, reason, updated_at FROM loop_summaries WHERE id = ?1";
    let read = c.prepare_cached(sql)?.query_row([row], |row| {
        Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, row.get::<_, String>(2)?, row.get(3)?))
    });
    Ok(read.optional()?.map(|(id, title, reason, at)| {
        let in_reason = finder.is_some_and(|finder| !finder.is_match(&title) && finder.is_match(&reason));
        let (place, text) = if in_reason { (SearchedText::Reason, reason) } else { (SearchedText::Title, title) };
        LocatedText { id: LoopId::new(id), iteration: None, place, text, at: Timestamp(at) }
    }))
}

fn turn_text(
    c: &Connection,
    row: i64,
    (kind, finder): (Option<TextKind>, Option<&Regex>),
) -> StoreResult<Option<LocatedText>> {
    let sql = "SELECT loop_id, iteration, prompt, response, error, ended_at FROM session_turns WHERE id = ?1";
    let mut statement = c.prepare_cached(sql)?;
    let mut rows = statement.query(params![row])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let (prompt, response) = (packed::text(row.get_ref(2)?)?, packed::text(row.get_ref(3)?)?);
    let response = match row.get::<_, Option<String>>(4)? {
        Some(error) => format!("{response}\n{error}"),
        None => response,
    };
    let in_prompt = match kind {
        Some(kind) => kind == TextKind::Prompt,
        None => best_line(&prompt, finder).words > best_line(&response, finder).words,
    };
    let (place, text) = if in_prompt { (SearchedText::Prompt, prompt) } else { (SearchedText::Response, response) };
    let id = LoopId::new(row.get::<_, String>(0)?);
    Ok(Some(LocatedText { id, iteration: Some(row.get(1)?), place, text, at: Timestamp(row.get(5)?) }))
}

fn event_text(c: &Connection, row: i64) -> StoreResult<Option<LocatedText>> {
    let sql = "SELECT iteration, kind, tool, path, text, failed, at, loop_id FROM session_events WHERE id = ?1";
    let mut statement = c.prepare_cached(sql)?;
    let mut rows = statement.query(params![row])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let found = event(&row)?;
    let id = LoopId::new(row.get::<_, String>(7)?);
    // The searched object, on one line before the text.
    let head: Vec<&str> = [found.tool.as_deref(), found.path.as_deref()].into_iter().flatten().collect();
    let text = if head.is_empty() { found.text } else { format!("{}: {}", head.join(" "), found.text) };
    let place = SearchedText::Event(found.kind);
    Ok(Some(LocatedText { id, iteration: Some(found.iteration), place, text, at: found.at }))
}

fn summary_text(c: &Connection, row: i64) -> StoreResult<Option<LocatedText>> {
    let sql = "SELECT loop_id, data FROM session_summaries WHERE id = ?1";
    let read = |row: &Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?));
    let Some((id, data)) = c.prepare_cached(sql)?.query_row([row], read).optional()? else { return Ok(None) };
    let summary: SessionSummary = serde_json::from_str(&data)?;
    let text = super::words::summary_text(&summary);
    let id = LoopId::new(id);
    let at = summary.made_at;
    Ok(Some(LocatedText { id, iteration: Some(summary.to), place: SearchedText::Summary, text, at }))
}

/// Line of a text that best represents its matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct BestLine {
    /// Number of different search words on the line.
    words: usize,
    /// Offset of the line's first match in the text, in bytes.
    start: usize,
    /// 1-based line number.
    line: usize,
}

/// Returns the first line with the most different search words, or the first line of the text if it contains none of them,
/// which is possible because the index uses word stems. Compares at most [`MOST_MATCHES`] matches.
fn best_line(text: &str, finder: Option<&Regex>) -> BestLine {
    let mut best = BestLine { line: 1, ..BestLine::default() };
    let mut current = best;
    let mut words: Vec<String> = Vec::new();
    let mut read_to = 0;
    for found in finder.into_iter().flat_map(|finder| finder.find_iter(text)).take(MOST_MATCHES) {
        let breaks = text[read_to..found.start()].matches('\n').count();
        read_to = found.start();
        if breaks > 0 || words.is_empty() {
            words.clear();
            current = BestLine { words: 0, start: found.start(), line: current.line + breaks };
        }
        let word = found.as_str().to_lowercase();
        if !words.contains(&word) {
            words.push(word);
        }
        current.words = words.len();
        if current.words > best.words {
            best = current;
        }
    }
    best
}

/// Returns the 1-based number of the line chosen by [`best_line`], and a snippet around its first match.
fn located(text: &str, finder: Option<&Regex>, mask: MaskText<'_>) -> (u32, Vec<SnippetPart>) {
    let BestLine { start: first, line, .. } = best_line(text, finder);
    // More text than the snippet, so that a secret at the snippet's border is complete.
    let (from, to) = (text.floor_char_boundary(first.saturating_sub(MASKED)), text.ceil_char_boundary(first + MASKED));
    let (cut_before, cut_after) = (from > 0, to < text.len());
    let text = mask(&text[from..to]);
    let first = best_line(&text, finder).start;
    let begin = text[..first].char_indices().rev().nth(BEFORE - 1).map_or(0, |(at, _)| at);
    let end = text[begin..].char_indices().nth(SNIPPET).map_or(text.len(), |(at, _)| begin + at);
    let part: String = text[begin..end].chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let mut parts = Vec::new();
    let mut add = |text: &str, marked: bool| {
        if !text.is_empty() {
            parts.push(SnippetPart { text: text.to_owned(), marked });
        }
    };
    let mut done = 0;
    add(if begin > 0 || cut_before { "…" } else { "" }, false);
    for found in finder.into_iter().flat_map(|finder| finder.find_iter(&part)) {
        // The pattern matches the start of a word.
        let length = part[found.end()..].find(|c: char| !c.is_alphanumeric()).unwrap_or(part.len() - found.end());
        if found.start() >= done {
            add(&part[done..found.start()], false);
            done = found.end() + length;
            add(&part[found.start()..done], true);
        }
    }
    add(&part[done..], false);
    add(if end < text.len() || cut_after { "…" } else { "" }, false);
    (u32::try_from(line).unwrap_or(u32::MAX), parts)
}

#[cfg(test)]
mod tests;
