//! Search terms of a text: its rarest words, with their weights.

use super::settings::MemorySettings;
use crate::domain::model::similarity::words;

/// Number of bytes read from a task's text.
pub(super) const MAX_TASK: usize = 16 * 1024;
/// Maximum number of distinct words for which frequencies are looked up.
const MAX_WORDS: usize = 400;

/// Search term.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Term {
    /// Normalized word.
    pub word: String,
    /// Number of learnings that contain the word, at least 1.
    pub learnings: u64,
}

impl Term {
    /// Returns the weight of the word in a learning, above 0: `ln(1 + (N - n + 0.5) / (n + 0.5))`, where n of N learnings contain
    /// the word. As in BM25 (Robertson and Spärck Jones).
    pub fn weight(&self, all: u64) -> f64 {
        let (with, all) = (self.learnings as f64, all.max(self.learnings) as f64);
        (1.0 + (all - with + 0.5) / (with + 0.5)).ln()
    }
}

/// Returns the rarest words of a task, rarest first: at most `query_terms`, and only until they occur in `query_postings`
/// learnings in total, but at least one. `frequency` returns the number of learnings with a word. Omits words without
/// learnings.
///
/// # Errors
/// An error from `frequency`.
pub fn rare_terms<E>(
    text: &str,
    settings: &MemorySettings,
    mut frequency: impl FnMut(&str) -> Result<u64, E>,
) -> Result<Vec<Term>, E> {
    let mut known = Vec::new();
    let mut seen = std::collections::HashSet::new();
    let start = &text[..text.floor_char_boundary(MAX_TASK)];
    for word in words(start).into_iter().filter(|word| seen.insert(word.clone())).take(MAX_WORDS) {
        let learnings = frequency(&word)?;
        if learnings > 0 {
            known.push(Term { word, learnings });
        }
    }
    // Equally rare words keep the text's order, because a task's subject comes first.
    known.sort_by_key(|term| term.learnings);
    let mut postings = 0;
    let mut terms = Vec::new();
    for term in known.into_iter().take(settings.query_terms as usize) {
        postings += term.learnings;
        if !terms.is_empty() && postings > u64::from(settings.query_postings) {
            break;
        }
        terms.push(term);
    }
    Ok(terms)
}

/// Row of the store, with the sum of the weights of its terms.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TermMatch {
    /// Row id; newer rows have higher ids.
    pub row: i64,
    /// Sum of the weights.
    pub weight: f64,
}

/// Returns rows by the sum of their terms' weights, best first; for equal sums, newest first. `postings` has one entry per
/// term of a row.
pub fn best_first(mut postings: Vec<TermMatch>) -> Vec<TermMatch> {
    // The sort is stable, so rows with the same terms have exactly the same sum.
    postings.sort_by_key(|one| one.row);
    let sum = |same: &[TermMatch]| TermMatch { row: same[0].row, weight: same.iter().map(|one| one.weight).sum() };
    let mut sums: Vec<TermMatch> = postings.chunk_by(|a, b| a.row == b.row).map(sum).collect();
    sums.sort_unstable_by(|a, b| b.weight.total_cmp(&a.weight).then(b.row.cmp(&a.row)));
    sums
}

/// Normalizes the weight of a text's terms by the text's length, given as a multiple of the mean length. It is BM25 for
/// texts that contain each rare word once, with SQLite's constants.
pub fn by_length(weight: f64, length: f64) -> f64 {
    const K1: f64 = 1.2;
    const B: f64 = 0.75;
    weight * (K1 + 1.0) / (1.0 + K1 * (1.0 - B + B * length))
}
