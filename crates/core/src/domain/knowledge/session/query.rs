//! Queries of the session memory: filters, and words in a form that full-text search accepts.

use std::sync::LazyLock;

use globset::{GlobBuilder, GlobMatcher};
use regex::Regex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::EventKind;

/// Number of characters read from a query.
const MAX_QUERY: usize = 500;
/// Maximum number of words in a query.
const MAX_TERMS: usize = 24;
/// Default number of results.
const DEFAULT_LIMIT: u32 = 10;
/// Maximum number of results.
pub const MAX_LIMIT: u32 = 50;

/// Regular expression operators between words: wild cards, alternatives, groups, anchors and classes.
static BETWEEN: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\.[*+?]|\\[a-zA-Z]|[|()\[\]{}^$?*+,;]").expect("constant pattern"));

/// Part of the session memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SessionTier {
    /// Prompts and answers.
    #[serde(alias = "turns")]
    Raw,
    /// Tool calls, results, file changes, errors, checks, switches, interventions, commands.
    #[serde(alias = "event")]
    Events,
    /// Summaries of several iterations.
    #[serde(alias = "summary")]
    Summaries,
}

/// Range of iterations, inclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct IterationFilter {
    /// First iteration; the first of all if missing.
    pub from: Option<u32>,
    /// Last iteration; the newest if missing.
    pub to: Option<u32>,
}

/// Search query. Every field narrows the results.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SessionQuery {
    /// Words that must all occur; FTS5 syntax works too ("a phrase", this OR that, NOT, prefix*). Empty for the newest
    /// entries that pass the other filters.
    pub query: String,
    /// Part to search; all if missing.
    pub tier: Option<SessionTier>,
    /// Only these iterations.
    pub iterations: IterationFilter,
    /// Only events of these types.
    pub event_types: Vec<EventKind>,
    /// Only events of these tools or checks; globs such as mcp__* work.
    pub tools: Vec<String>,
    /// Only events about files that match one of these globs, such as src/**/*.rs; without a slash, the file's name.
    pub paths: Vec<String>,
    /// Only turns of these backends; globs work.
    pub backends: Vec<String>,
    /// true: only failures; false: no failures.
    pub has_error: Option<bool>,
    /// Maximum number of results, 1 to 50; default 10.
    pub limit: Option<u32>,
}

impl SessionQuery {
    /// Returns the maximum number of results, 1..=50.
    pub fn limit(&self) -> usize {
        self.limit.unwrap_or(DEFAULT_LIMIT).clamp(1, MAX_LIMIT) as usize
    }

    /// Returns the tiers to search, shortest first. A filter for events restricts the search to events, a filter for
    /// backends to turns.
    pub fn tiers(&self) -> Vec<SessionTier> {
        let about_events = !(self.event_types.is_empty() && self.tools.is_empty() && self.paths.is_empty());
        match self.tier {
            _ if about_events => vec![SessionTier::Events],
            _ if !self.backends.is_empty() => vec![SessionTier::Raw],
            Some(tier) => vec![tier],
            None => vec![SessionTier::Summaries, SessionTier::Events, SessionTier::Raw],
        }
    }
}

/// Form of a query in FTS5 syntax.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Form {
    /// Expression.
    pub expression: String,
    /// Note for the caller if this form is used; `None` for the unchanged query.
    pub note: Option<String>,
}

/// Returns the forms of a query to try in order, until one is accepted and has results: the query as given, its words
/// quoted, and any of its words. Empty if the query has no words. FTS5 always accepts all forms except the first.
pub fn forms(query: &str) -> Vec<Form> {
    let cleaned = cleaned(query);
    let terms = terms(query);
    if terms.is_empty() {
        return Vec::new();
    }
    let quoted: Vec<String> = terms.iter().map(|term| format!("\"{term}\"")).collect();
    let (all, any) = (quoted.join(" "), quoted.join(" OR "));
    let mut forms = Vec::new();
    if balanced(&cleaned) {
        forms.push(Form { expression: cleaned, note: None });
    }
    let note = format!("the query is not a valid search expression; searched for {all} instead");
    forms.push(Form { expression: all, note: Some(note) });
    if terms.len() > 1 {
        let note = format!("no entry contains all of it; searched for {any} instead");
        forms.push(Form { expression: any, note: Some(note) });
    }
    forms
}

/// Returns the distinct words and phrases of a query, in order, without operators; at most 24. They contain no quotation
/// marks.
pub fn terms(query: &str) -> Vec<String> {
    let cleaned = cleaned(query);
    let mut terms: Vec<String> = Vec::new();
    for piece in cleaned.split(|c: char| c.is_whitespace() || c == '"') {
        for part in BETWEEN.split(piece) {
            let term = part.trim_matches(|c: char| !c.is_alphanumeric());
            let operator = matches!(term, "AND" | "OR" | "NOT" | "NEAR");
            if !term.is_empty() && !operator && !terms.iter().any(|known| known == term) && terms.len() < MAX_TERMS {
                terms.push(term.to_owned());
            }
        }
    }
    terms
}

/// Returns the query on one line, without control and invisible characters.
fn cleaned(query: &str) -> String {
    let plain: String = query.chars().take(MAX_QUERY).map(|c| if c.is_control() { ' ' } else { c }).collect();
    plain.trim().to_owned()
}

/// Whether quotation marks and parentheses are balanced, so that the query can be part of a larger expression.
fn balanced(query: &str) -> bool {
    let (mut quoted, mut depth) = (false, 0i32);
    for character in query.chars() {
        match character {
            '"' => quoted = !quoted,
            '(' if !quoted => depth += 1,
            ')' if !quoted => depth -= 1,
            _ => {}
        }
        if depth < 0 {
            return false;
        }
    }
    !quoted && depth == 0
}

/// Globs, one of which must match. An empty list matches everything.
#[derive(Debug, Clone, Default)]
pub struct Patterns(Vec<(GlobMatcher, bool)>);

impl Patterns {
    /// Compiles globs for paths: `*` does not match a slash, and a glob without a slash matches the file name. Adds a note for
    /// each invalid glob.
    pub fn of_paths(globs: &[String], notes: &mut Vec<String>) -> Self {
        Self::new(globs, false, notes)
    }

    /// Compiles globs for names, ignoring case. Adds a note for each invalid glob.
    pub fn of_names(globs: &[String], notes: &mut Vec<String>) -> Self {
        Self::new(globs, true, notes)
    }

    fn new(globs: &[String], any_case: bool, notes: &mut Vec<String>) -> Self {
        let mut matchers = Vec::new();
        for glob in globs.iter().take(MAX_LIMIT as usize) {
            let text = glob.trim().trim_start_matches("./");
            let build = |text: &str| {
                GlobBuilder::new(text)
                    .literal_separator(true)
                    .case_insensitive(any_case)
                    .build()
                    .map(|g| g.compile_matcher())
            };
            let literal = || build(&globset::escape(text));
            let matcher = match build(text) {
                Ok(matcher) => Some(matcher),
                Err(error) => {
                    notes.push(format!("{glob:?} is not a valid glob ({}); used as plain text", error.kind()));
                    literal().ok()
                }
            };
            matchers.extend(matcher.map(|matcher| (matcher, !text.contains('/'))));
        }
        Self(matchers)
    }

    /// Whether a glob matches the text, or there are no globs.
    pub fn matches(&self, text: Option<&str>) -> bool {
        let Some(text) = text else { return self.0.is_empty() };
        let name = text.rsplit('/').next().unwrap_or(text);
        self.0.is_empty() || self.0.iter().any(|(glob, by_name)| glob.is_match(if *by_name { name } else { text }))
    }
}
