//! Full text: turns texts into `tsvector` and search expressions of FTS5 into `tsquery`.
//!
//! The words are found and shortened here and not by a configuration of the server, so that searches depend neither on its
//! locale nor on its dictionaries. A column of an index has a weight, by which an expression is limited to columns.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

use crate::domain::model::similarity::stem;

/// Maximum length of a word, in bytes.
const LONGEST_WORD: usize = 500;
/// Maximum position of a word in a `tsvector`; later words have this position.
const LAST_POSITION: usize = 16_383;
/// Maximum number of positions of a word.
const POSITIONS: usize = 250;

/// Indexes and their columns.
const INDEXES: [(&str, &[&str]); 5] = [
    ("learnings_words", &["words"]),
    ("session_turns_words", &["scope", "prompt", "response"]),
    ("session_events_words", &["scope", "text"]),
    ("session_summaries_words", &["scope", "text"]),
    ("loop_summaries_words", &["title", "reason", "person", "place"]),
];

/// Returns the weight of a column; `None` if no index has it.
fn weight(column: &str) -> Option<char> {
    Some(match column {
        "title" | "prompt" | "text" | "words" => 'A',
        "reason" | "response" => 'B',
        "person" => 'C',
        "place" | "scope" => 'D',
        _ => return None,
    })
}

fn columns(index: &str) -> &'static [&'static str] {
    INDEXES.iter().find(|(name, _)| *name == index).map_or(&[], |(_, columns)| *columns)
}

/// Returns the term for the vector of a row of an index. The index of the server has the same term.
pub(super) fn vector_of(index: &str) -> String {
    let weighted =
        columns(index).iter().map(|column| format!("setweight({index}.{column}, '{}')", weight(column).unwrap_or('A')));
    format!("({})", weighted.collect::<Vec<_>>().join(" || "))
}

/// Returns the weights of `ts_rank`, from D to A, for the weights of an index's columns.
pub(super) fn weights_of(index: &str, weights: &[f64]) -> String {
    let of = |letter: char| {
        let at = columns(index).iter().position(|column| weight(column) == Some(letter));
        at.and_then(|at| weights.get(at)).copied().unwrap_or(1.0)
    };
    let numbers = ['D', 'C', 'B', 'A'].map(|letter| of(letter).to_string());
    format!("{{{}}}", numbers.join(", "))
}

/// Returns the words of a text: lower case, without diacritics and endings.
fn words(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for word in text.split(|c: char| !c.is_alphanumeric() && !is_combining_mark(c)) {
        let mut word: String = if word.is_ascii() {
            word.to_ascii_lowercase()
        } else {
            word.nfd().filter(|c| !is_combining_mark(*c)).flat_map(char::to_lowercase).collect()
        };
        word.truncate(word.floor_char_boundary(LONGEST_WORD));
        stem(&mut word);
        if !word.is_empty() {
            found.push(word);
        }
    }
    found
}

/// Returns a text as a `tsvector`.
pub(super) fn vector(text: &str) -> String {
    let mut positions: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (at, word) in (1..).zip(words(text)) {
        let of_word = positions.entry(word).or_default();
        if of_word.len() < POSITIONS {
            of_word.push(at.min(LAST_POSITION));
        }
    }
    let mut out = String::new();
    for (word, at) in positions {
        let at: Vec<String> = at.iter().map(ToString::to_string).collect();
        let _ = write!(out, "'{word}':{} ", at.join(","));
    }
    out
}

/// Returns a search expression of FTS5 as a `tsquery`; `None` if FTS5 would reject it.
pub(super) fn query(expression: &str) -> Option<String> {
    let mut parser = FtsParser { tokens: tokens(expression)?, at: 0, depth: 0 };
    let query = parser.any(None)?;
    (parser.at == parser.tokens.len()).then(|| query.unwrap_or_default())
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum FtsToken {
    Quoted(String),
    Bare(String),
    Sign(char),
}

fn tokens(expression: &str) -> Option<Vec<FtsToken>> {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || !c.is_ascii();
    let mut tokens = Vec::new();
    let mut rest = expression.chars().peekable();
    while let Some(first) = rest.next() {
        match first {
            _ if first.is_whitespace() => {}
            '"' => {
                let mut text = String::new();
                loop {
                    match rest.next()? {
                        '"' if rest.next_if_eq(&'"').is_some() => text.push('"'),
                        '"' => break,
                        other => text.push(other),
                    }
                }
                tokens.push(FtsToken::Quoted(text));
            }
            _ if is_bare(first) => {
                let mut word = String::from(first);
                while let Some(next) = rest.next_if(|c| is_bare(*c) && !c.is_whitespace()) {
                    word.push(next);
                }
                tokens.push(FtsToken::Bare(word));
            }
            '(' | ')' | '{' | '}' | ':' | '+' | '*' | '^' | ',' | '-' => tokens.push(FtsToken::Sign(first)),
            _ => return None,
        }
    }
    Some(tokens)
}

/// Maximum depth of parentheses.
const DEEPEST: usize = 64;

struct FtsParser {
    tokens: Vec<FtsToken>,
    at: usize,
    depth: usize,
}

/// QueryPart of an expression; `None` inside if it has no words.
type QueryPart = Option<Option<String>>;

impl FtsParser {
    fn is_sign(&self, sign: char) -> bool {
        self.tokens.get(self.at) == Some(&FtsToken::Sign(sign))
    }

    fn takes_sign(&mut self, sign: char) -> bool {
        let is_next = self.is_sign(sign);
        self.at += usize::from(is_next);
        is_next
    }

    fn takes_word(&mut self, word: &str) -> bool {
        let is_next = matches!(self.tokens.get(self.at), Some(FtsToken::Bare(bare)) if bare == word);
        self.at += usize::from(is_next);
        is_next
    }

    /// `OR` binds weakest, then `AND`, then `NOT`, then words without an operator.
    fn any(&mut self, weights: Option<&str>) -> QueryPart {
        let mut parts = vec![self.all(weights)?];
        while self.takes_word("OR") {
            parts.push(self.all(weights)?);
        }
        Some(joined(parts, " | "))
    }

    fn all(&mut self, weights: Option<&str>) -> QueryPart {
        let mut parts = vec![self.without(weights)?];
        while self.takes_word("AND") {
            parts.push(self.without(weights)?);
        }
        Some(joined(parts, " & "))
    }

    fn without(&mut self, weights: Option<&str>) -> QueryPart {
        let mut left = self.group(weights)?;
        while self.takes_word("NOT") {
            let right = self.group(weights)?;
            left = match (left, right) {
                (Some(left), Some(right)) => Some(format!("({left} & !{right})")),
                (left, _) => left,
            };
        }
        Some(left)
    }

    fn group(&mut self, weights: Option<&str>) -> QueryPart {
        let mut parts = vec![self.one(weights)?];
        let ends = |parser: &Self| match parser.tokens.get(parser.at) {
            None | Some(FtsToken::Sign(')' | ',')) => true,
            Some(FtsToken::Bare(word)) => matches!(word.as_str(), "AND" | "OR" | "NOT"),
            Some(_) => false,
        };
        while !ends(self) {
            parts.push(self.one(weights)?);
        }
        Some(joined(parts, " & "))
    }

    fn one(&mut self, weights: Option<&str>) -> QueryPart {
        self.depth += 1;
        let part = if self.depth > DEEPEST { None } else { self.within_depth(weights) };
        self.depth -= 1;
        part
    }

    fn within_depth(&mut self, weights: Option<&str>) -> QueryPart {
        if self.takes_sign('(') {
            let inner = self.any(weights)?;
            return self.takes_sign(')').then_some(inner);
        }
        if let Some(columns) = self.columns() {
            return self.one(Some(&columns?));
        }
        if matches!(&self.tokens[self.at..], [FtsToken::Bare(near), FtsToken::Sign('('), ..] if near == "NEAR") {
            self.at += 2;
            let mut parts = Vec::new();
            while !self.is_sign(')') && !self.takes_sign(',') {
                parts.push(self.phrase(weights)?);
            }
            if !self.is_sign(')') {
                self.at += 1;
            }
            return self.takes_sign(')').then(|| joined(parts, " & "));
        }
        self.phrase(weights)
    }

    /// Returns the weights of a column filter; `None` if there is none, and `Some(None)` if a column does not exist.
    fn columns(&mut self) -> Option<Option<String>> {
        let start = self.at;
        let excludes = self.takes_sign('-');
        let mut names = Vec::new();
        if self.takes_sign('{') {
            while let Some(FtsToken::Bare(name)) = self.tokens.get(self.at) {
                names.push(name.clone());
                self.at += 1;
            }
            self.takes_sign('}');
        } else if let Some(FtsToken::Bare(name)) = self.tokens.get(self.at) {
            names.push(name.clone());
            self.at += 1;
        }
        if names.is_empty() || !self.takes_sign(':') {
            self.at = start;
            return None;
        }
        let found: Option<String> = names.iter().map(|name| weight(name)).collect();
        Some(found.map(|found| if excludes { "ABCD".chars().filter(|c| !found.contains(*c)).collect() } else { found }))
    }

    fn phrase(&mut self, weights: Option<&str>) -> QueryPart {
        let mut found = Vec::new();
        self.takes_sign('^');
        loop {
            match self.tokens.get(self.at)? {
                FtsToken::Quoted(text) | FtsToken::Bare(text) => found.extend(words(text)),
                FtsToken::Sign(_) => return None,
            }
            self.at += 1;
            if !self.takes_sign('+') {
                break;
            }
        }
        let open_ended = self.takes_sign('*');
        let count = found.len();
        let terms = (1..).zip(found).map(|(nth, word)| {
            let star = if open_ended && nth == count { "*" } else { "" };
            match (star, weights.unwrap_or_default()) {
                ("", "") => format!("'{word}'"),
                (star, weights) => format!("'{word}':{star}{weights}"),
            }
        });
        let terms: Vec<String> = terms.collect();
        Some(match terms.len() {
            0 => None,
            1 => terms.into_iter().next(),
            _ => Some(format!("({})", terms.join(" <-> "))),
        })
    }
}

fn joined(parts: Vec<Option<String>>, with: &str) -> Option<String> {
    let mut parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.len() < 2 { parts.pop() } else { Some(format!("({})", parts.join(with))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_of_fts5_are_translated() {
        for (expression, expected) in [
            ("\"zebra\"", Some("'zebra'")),
            ("zebra* OR \"Éclair tests\"", Some("('zebra':* | ('eclair' <-> 'test'))")),
            ("a b AND c NOT d", Some("(('a' & 'b') & ('c' & !'d'))")),
            ("scope : l7 AND {prompt response} : (\"a\" OR b*)", Some("('l7':D & ('a':AB | 'b':*AB))")),
            ("NEAR(a b, 5)", Some("('a' & 'b')")),
            ("\"it's\"", Some("('it' <-> 's')")),
            ("\"...\" x", Some("'x'")),
            ("unknown : x", None),
            ("a.b", None),
            ("(a", None),
            ("a AND", None),
            ("\"a", None),
            ("", None),
        ] {
            assert_eq!(query(expression).as_deref(), expected, "{expression}");
        }
        assert_eq!(query(&"(".repeat(10_000)), None);
    }

    #[test]
    fn texts_become_vectors_with_positions() {
        assert_eq!(vector("Tests, and a TEST: naïve"), "'a':3 'and':2 'naiv':5 'test':1,4 ");
        assert!(vector(&"x ".repeat(40_000)).len() < 2_000);
    }

    #[test]
    fn every_index_has_a_weight_for_each_column() {
        for (index, columns) in INDEXES {
            let weights: std::collections::BTreeSet<_> = columns.iter().map(|column| weight(column)).collect();
            assert!(weights.len() == columns.len() && !weights.contains(&None), "{index}");
        }
        assert_eq!(weights_of("session_turns_words", &[0.0, 0.3, 1.0]), "{0, 1, 1, 0.3}");
    }
}
