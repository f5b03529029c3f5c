//! What a text is looked up by: its rarest words, and what each of them is worth.

use super::settings::MemorySettings;
use crate::domain::model::similarity::words;

/// Longest task text whose words are looked at, in bytes.
pub(super) const MAX_TASK: usize = 16 * 1024;
/// Most different words of a task whose frequencies are asked for.
const MAX_WORDS: usize = 400;

/// A word that learnings are looked up by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Term {
    /// The word, as it is compared.
    pub word: String,
    /// Learnings that hold it, at least 1.
    pub learnings: u64,
}

impl Term {
    /// What a learning that holds it is worth, above 0: `ln(1 + (N - n + 0.5) / (n + 0.5))`, the weight of BM25 (Robertson
    /// and Spärck Jones), where n of N learnings hold it.
    pub fn weight(&self, all: u64) -> f64 {
        let (with, all) = (self.learnings as f64, all.max(self.learnings) as f64);
        (1.0 + (all - with + 0.5) / (with + 0.5)).ln()
    }
}

/// The rarest words of a task, rarest first: as many as `query_terms`, and no more once they are in `query_postings`
/// learnings together (one is always taken). `frequency` says in how many learnings a word is; words in none are left out.
///
/// # Errors
/// What `frequency` errors with.
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
    // Words of the same rarity stay in the order of the text: what a task is about stands first.
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

/// A row of the store, and what the terms that it holds are worth together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Match {
    /// The row; newer ones are greater.
    pub row: i64,
    /// The sum of the weights.
    pub weight: f64,
}

/// Rows by what the terms that they hold are worth together, the best first, of equals the newest. `postings` has each row
/// once for each of its terms, with that term's weight.
pub fn best_first(mut postings: Vec<Match>) -> Vec<Match> {
    // Stable, so that rows with the same terms have the same sum to the last bit.
    postings.sort_by_key(|one| one.row);
    let sum = |same: &[Match]| Match { row: same[0].row, weight: same.iter().map(|one| one.weight).sum() };
    let mut sums: Vec<Match> = postings.chunk_by(|a, b| a.row == b.row).map(sum).collect();
    sums.sort_unstable_by(|a, b| b.weight.total_cmp(&a.weight).then(b.row.cmp(&a.row)));
    sums
}

/// What the terms that a text holds are worth, given its length in means of such texts: a long text is worth less than a
/// short one. This is BM25 for texts that name a rare word once, with SQLite's constants.
pub fn by_length(weight: f64, length: f64) -> f64 {
    const K1: f64 = 1.2;
    const B: f64 = 0.75;
    weight * (K1 + 1.0) / (1.0 + K1 * (1.0 - B + B * length))
}
