//! What people and agents search for, made into a query that full-text search always understands.

use crate::domain::model::similarity::words;

/// Longest query that is read, in bytes.
const MAX_QUERY: usize = 16 * 1024;
/// Most phrases of a query.
const MAX_PHRASES: usize = 32;

/// A query in the form that was asked of full-text search.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Asked {
    /// Phrases to be found; each is one word, or several in a row.
    pub phrases: Vec<String>,
    /// Phrases that must not be found.
    pub without: Vec<String>,
    /// Whether one of the phrases is enough.
    pub any: bool,
}

impl Asked {
    /// The query in the syntax of SQLite's FTS5; `None` where there is nothing to be found.
    pub fn to_fts(&self) -> Option<String> {
        // Phrases hold letters, digits and spaces alone, so that no quote can end them.
        let joined = |phrases: &[String], with: &str| {
            phrases.iter().map(|phrase| format!("\"{phrase}\"")).collect::<Vec<_>>().join(with)
        };
        if self.phrases.is_empty() {
            return None;
        }
        let wanted = joined(&self.phrases, if self.any { " OR " } else { " AND " });
        Some(match self.without.as_slice() {
            [] => wanted,
            without => format!("({wanted}) NOT ({})", joined(without, " OR ")),
        })
    }
}

/// Reads a query of any syntax: quoted phrases stay phrases, `OR` makes one phrase enough, `NOT` or `-` leaves out what
/// follows, and everything else (`AND`, `NEAR`, columns, wild cards, brackets) counts by its words.
pub fn correct(query: &str) -> Asked {
    let mut asked = Asked::default();
    let mut excludes = false;
    for (is_phrase, piece) in pieces(&query[..query.floor_char_boundary(MAX_QUERY)]) {
        match piece {
            "OR" if !is_phrase => asked.any = true,
            "NOT" if !is_phrase => excludes = true,
            "AND" | "NEAR" if !is_phrase => {}
            _ => {
                let minus = !is_phrase && piece.starts_with('-') && piece.len() > 1;
                let found = words(piece);
                let phrases = if is_phrase { vec![found.join(" ")] } else { found };
                let list = if excludes || minus { &mut asked.without } else { &mut asked.phrases };
                for phrase in phrases {
                    if !phrase.is_empty() && list.len() < MAX_PHRASES && !list.contains(&phrase) {
                        list.push(phrase);
                    }
                }
                excludes = false;
            }
        }
    }
    asked
}

/// The pieces between white space and quotes; `true` for what was quoted.
fn pieces(query: &str) -> impl Iterator<Item = (bool, &str)> {
    let closed = query.matches('"').count() / 2 * 2;
    query.split('"').enumerate().flat_map(move |(at, part)| {
        // A quote that is never closed quotes nothing.
        let is_phrase = at % 2 == 1 && at < closed;
        let whole = is_phrase.then_some((true, part));
        let apart = (!is_phrase).then(|| part.split(|c: char| c.is_whitespace() || "()".contains(c)));
        whole
            .into_iter()
            .chain(apart.into_iter().flatten().filter(|piece| !piece.is_empty()).map(|piece| (false, piece)))
    })
}
