//! Search texts of people and agents as queries that are always valid for full-text search.

use crate::domain::model::similarity::words;

/// Maximum length of a query that is read, in bytes.
const MAX_QUERY: usize = 16 * 1024;
/// Maximum number of phrases of a query.
const MAX_PHRASES: usize = 32;

/// Parsed query.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ParsedQuery {
    /// Phrases to find: one or several words each.
    pub phrases: Vec<String>,
    /// Phrases to exclude.
    pub without: Vec<String>,
    /// Whether one of the phrases is sufficient.
    pub any: bool,
}

impl ParsedQuery {
    /// Returns the query in the syntax of SQLite's FTS5; `None` if there is nothing to find.
    pub fn to_fts(&self) -> Option<String> {
        // Phrases contain letters, digits and spaces only, so that no quote can end them.
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

/// Parses a query of any syntax: quoted phrases stay phrases, `OR` makes one phrase sufficient, `NOT` or `-` excludes
/// what follows, and everything else (`AND`, `NEAR`, columns, wild cards, brackets) counts by its words.
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

/// Splits at white space and quotes; `true` for quoted parts.
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
