//! Converts search texts of people and agents to queries that full-text search always accepts.

use crate::domain::model::similarity::words;

/// Number of bytes read from a query.
const MAX_QUERY: usize = 16 * 1024;
/// Maximum number of phrases in a query.
const MAX_PHRASES: usize = 32;

/// Parsed query.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ParsedQuery {
    /// Phrases to find, each of one or more words.
    pub phrases: Vec<String>,
    /// Phrases to exclude.
    pub without: Vec<String>,
    /// Whether one matching phrase is sufficient. If false, all phrases must match.
    pub any: bool,
}

impl ParsedQuery {
    /// Returns the query in SQLite's FTS5 syntax; `None` if there are no phrases to find.
    pub fn to_fts(&self) -> Option<String> {
        // Phrases contain only letters, digits and spaces, so no quote can end them.
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

/// Parses a query in any syntax. Quoted phrases remain phrases. `OR` makes one matching phrase sufficient, and `NOT` or `-`
/// excludes the following phrase. For all other syntax (`AND`, `NEAR`, columns, wild cards, brackets), uses only the words.
pub fn correct(query: &str) -> ParsedQuery {
    let mut asked = ParsedQuery::default();
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

/// Splits a query at white space and quotes. A piece's flag states whether it was quoted.
fn pieces(query: &str) -> impl Iterator<Item = (bool, &str)> {
    let closed = query.matches('"').count() / 2 * 2;
    query.split('"').enumerate().flat_map(move |(at, part)| {
        // An unclosed quote is ignored.
        let is_phrase = at % 2 == 1 && at < closed;
        let phrase = is_phrase.then_some((true, part));
        let apart = (!is_phrase).then(|| part.split(|c: char| c.is_whitespace() || "()".contains(c)));
        phrase
            .into_iter()
            .chain(apart.into_iter().flatten().filter(|piece| !piece.is_empty()).map(|piece| (false, piece)))
    })
}
