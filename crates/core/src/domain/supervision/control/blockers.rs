//! Recurring blockers and the number of iterations that named each, in a table of bounded size.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::domain::model::record::MAX_BLOCKERS;
use crate::domain::model::signature::normalize;

/// Maximum number of stored blockers. Beyond it, the least frequent ones are removed.
const MAX_KEPT: usize = 64;
/// Maximum number of characters read from a blocker.
const MAX_CHARS: usize = 400;
/// Maximum length of a stored text, in bytes.
const MAX_BYTES: usize = 128;

/// Blocker, with the number of iterations that named it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocker {
    /// Key for comparison, at most 128 bytes.
    pub key: String,
    /// Agent's latest wording on one line, at most 128 bytes.
    pub name: String,
    /// Number of iterations that named the blocker, at least 1.
    pub count: u32,
    /// Last iteration that named the blocker.
    pub last: u64,
}

/// Blockers of a loop.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Blockers(Vec<Blocker>);

impl Blockers {
    /// Adds the distinct blockers of an iteration. Returns the sum of the counts of blockers that more than one iteration
    /// named.
    pub(super) fn count(&mut self, texts: &[String], iteration: u64) -> u32 {
        let mut seen = BTreeSet::new();
        let mut recurrences: u32 = 0;
        for text in texts.iter().take(MAX_BLOCKERS) {
            let text: String = text.chars().take(MAX_CHARS).collect();
            let key = shortened(same_text(&text));
            if key.is_empty() || !seen.insert(key.clone()) {
                continue;
            }
            let name = shortened(one_line(&text));
            match self.0.iter_mut().find(|known| known.key == key) {
                Some(known) => {
                    known.count = known.count.saturating_add(1);
                    (known.name, known.last) = (name, iteration);
                    recurrences = recurrences.saturating_add(known.count);
                }
                None => self.0.push(Blocker { key, name, count: 1, last: iteration }),
            }
        }
        if self.0.len() > MAX_KEPT {
            self.0.sort_by_key(|blocker| std::cmp::Reverse((blocker.count, blocker.last)));
            self.0.truncate(MAX_KEPT);
        }
        recurrences
    }

    /// Returns the blockers named by this iteration and by an earlier one, most frequent first.
    pub fn recurring(&self, iteration: u64) -> Vec<&Blocker> {
        let mut found: Vec<_> =
            self.0.iter().filter(|blocker| blocker.count > 1 && blocker.last == iteration).collect();
        found.sort_by_key(|blocker| std::cmp::Reverse(blocker.count));
        found
    }

    /// Whether the table is within its bounds, so that it can come from `count`. False for a damaged stored table.
    pub(super) fn is_sound(&self) -> bool {
        let fits = |blocker: &Blocker| {
            blocker.count > 0 && !blocker.key.is_empty() && blocker.key.len().max(blocker.name.len()) <= MAX_BYTES
        };
        self.0.len() <= MAX_KEPT && self.0.iter().all(fits)
    }
}

/// Returns a text's key for comparison: lower case, without parts that vary between runs.
fn same_text(text: &str) -> String {
    normalize(&text.to_lowercase())
}

/// Returns a text on one line, without control characters and repeated spaces.
fn one_line(text: &str) -> String {
    let words = text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join(" ")
}

fn shortened(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(MAX_BYTES));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn rephrased_blocker_is_recognized() {
        let mut blockers = Blockers::default();
        assert_eq!(blockers.count(&owned(&["Timeout after 30 s", "timeout  after 31 S ", " ", "null check"]), 1), 0);
        assert_eq!(blockers.count(&owned(&["timeout after\n7 s"]), 2), 2);
        assert_eq!(blockers.count(&owned(&["TIMEOUT after 8 s", "null check"]), 3), 5);
        let names: Vec<_> = blockers.recurring(3).iter().map(|b| (b.name.as_str(), b.count)).collect();
        assert_eq!(names, [("TIMEOUT after 8 s", 3), ("null check", 2)]);
        assert!(blockers.recurring(4).is_empty());
    }

    #[test]
    fn million_blockers_keep_table_small() {
        let mut blockers = Blockers::default();
        blockers.count(&owned(&["no database"]), 1);
        blockers.count(&owned(&["no database"]), 2);
        let name = |mut n: usize| {
            let mut word = "\"".repeat(200);
            while n > 0 {
                word.insert(0, char::from(b'a' + (n % 26) as u8));
                n /= 26;
            }
            word
        };
        let many: Vec<String> = (0..1_000_000).map(name).collect();
        assert_eq!(blockers.count(&many, 3), 0);
        assert!(blockers.is_sound());
        assert!(serde_json::to_string(&blockers).unwrap().len() < 48 * 1024);
        assert_eq!(blockers.count(&owned(&["no database"]), 4), 3);
    }
}
