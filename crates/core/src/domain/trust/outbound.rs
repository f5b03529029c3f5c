//! Filter for everything that leaves the service: texts for forges, channels and agents, and commits before they are pushed.
//!
//! Text of agents, tools and outsiders is made inert where it is inserted: by the functions of `markdown` in comments and bodies,
//! and by the functions of `plain` in titles and commit messages. Finally everything passes an [`OutboundFilter`], which removes secrets.
//! Adapters accept only [`Outbound`] texts and [`ClearedCommit`]s, which only the filter creates.

mod archive;
mod bounds;
mod markdown;
mod masker;
mod objects;
mod parts;
mod patterns;
mod plain;
mod skeleton;

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::{HashSet, VecDeque};
use std::marker::PhantomData;
use std::sync::{Arc, PoisonError, RwLock};

use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;

pub use bounds::{ChangeSize, MAX_BINARY_BYTES, MAX_CHANGE_BYTES, MAX_CHANGED_FILES, files_of_patch};
pub use markdown::{fence, for_people, inline, inline_code, table_cell, truncate_lines};
pub use masker::{FoundSecret, Masker};
pub use objects::{ClearedCommit, Leak, ObjectScan};
pub use plain::{co_author, plain_line, subject, title};

use crate::domain::model::authorship::CommitAuthor;
use crate::domain::model::characters::is_invisible;

/// Maximum number of learned values in a group; each group has one search.
const GROUP: usize = 8;
/// Maximum number of groups of learned values. The oldest group is dropped, because the tokens in it have expired.
const MOST_GROUPS: usize = 5;

/// Markdown of a comment, issue or pull request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyText {}
/// Title of an issue or pull request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TitleText {}
/// Message of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitText {}
/// Answer to an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerText {}

/// Text without secrets. Only an [`OutboundFilter`] creates it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outbound<K> {
    text: String,
    kind: PhantomData<K>,
}

impl<K> Outbound<K> {
    fn new(text: String) -> Self {
        Self { text, kind: PhantomData }
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Creates a text without filtering, for tests of adapters.
    #[cfg(any(test, feature = "testing"))]
    pub fn of_test(text: &str) -> Self {
        Self::new(text.to_owned())
    }
}

impl<K> serde::Serialize for Outbound<K> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

#[cfg(any(test, feature = "testing"))]
impl<K> From<&str> for Outbound<K> {
    fn from(text: &str) -> Self {
        Self::of_test(text)
    }
}

/// JSON without secrets. Only an [`OutboundFilter`] creates it.
#[derive(Debug, Clone, PartialEq)]
pub struct OutboundJson(Value);

impl OutboundJson {
    /// Returns the JSON value. The caller may add the key that the receiving service requires.
    pub fn into_value(self) -> Value {
        self.0
    }
}

/// Trailer of a commit message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trailer {
    /// Loop that the commit belongs to.
    Loop(String),
    /// Account that requested the loop: its login, its id, and the host of its forge.
    CoAuthor(String, i64, String),
    /// Sign-off of the commit's author.
    SignedOff(CommitAuthor),
}

impl Trailer {
    /// Returns the trailer as a line; `None` if a value is invalid in a trailer.
    fn line(&self) -> Option<String> {
        match self {
            Self::Loop(id) => Some(format!("Ralph-Loop: {}", plain_line(id))),
            Self::CoAuthor(login, id, host) => co_author(login, *id, host),
            Self::SignedOff(author) => CommitAuthor::checked(&author.name, &author.email)
                .map(|author| format!("Signed-off-by: {} <{}>", author.name, author.email)),
        }
    }
}

/// Maximum length of a JSON text whose result is cached, in bytes.
const REMEMBERED_MAX: usize = 100;

/// Masks one JSON value. Texts without secrets are cached, because rows repeat their keys and many of their values.
struct JsonMasking {
    masker: Masker,
    /// Short texts that are known to contain no secrets.
    clean: HashSet<String>,
}

impl JsonMasking {
    fn masked(&mut self, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.text(text)),
            Value::Array(items) => items.into_iter().map(|item| self.masked(item)).collect(),
            Value::Object(map) => map.into_iter().map(|(name, item)| (self.text(name), self.masked(item))).collect(),
            other => other,
        }
    }

    fn text(&mut self, text: String) -> String {
        if text.is_empty() || self.clean.contains(&text) {
            return text;
        }
        match self.masker.mask_named(&text) {
            Cow::Owned(masked) => return masked,
            Cow::Borrowed(_) if text.len() <= REMEMBERED_MAX => self.clean.insert(text.clone()),
            Cow::Borrowed(_) => false,
        };
        text
    }
}

/// Removes secrets from everything that leaves the service. Clones share the learned values.
#[derive(Clone, Default)]
pub struct OutboundFilter {
    configured: Masker,
    learned: Arc<RwLock<Learned>>,
}

/// Secrets that became known while the service runs.
#[derive(Default)]
struct Learned {
    /// Groups of at most [`GROUP`] values. New values are added to the last group.
    groups: VecDeque<LearnedGroup>,
    /// Combined masker of all groups.
    masker: Masker,
}

/// Group of learned values that share one search.
#[derive(Default)]
struct LearnedGroup {
    values: Vec<(Arc<str>, SecretString)>,
    masker: Masker,
}

impl Learned {
    fn knows(&self, value: &str) -> bool {
        self.groups.iter().flat_map(|group| &group.values).any(|(_, known)| known.expose_secret() == value)
    }

    /// Adds a value to the last group, so that only the search of that group is rebuilt.
    fn add(&mut self, name: &str, value: &SecretString) {
        if self.groups.back().is_none_or(|group| group.values.len() >= GROUP) {
            self.groups.push_back(LearnedGroup::default());
        }
        if self.groups.len() > MOST_GROUPS {
            self.groups.pop_front();
        }
        if let Some(group) = self.groups.back_mut() {
            group.values.push((name.into(), value.clone()));
            let values = group.values.iter().map(|(name, value)| (name.clone(), value.expose_secret()));
            group.masker = Masker::whole(values);
        }
        self.masker = self.groups.iter().fold(Masker::default(), |all, group| all.with(&group.masker));
    }
}

impl std::fmt::Debug for OutboundFilter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OutboundFilter")
    }
}

impl OutboundFilter {
    /// Creates a filter that replaces each secret of the masker by its name.
    pub fn new(configured: Masker) -> Self {
        Self { configured, learned: Arc::default() }
    }

    /// Adds a secret that was just issued. Texts that were filtered before cannot contain it.
    pub fn learn(&self, name: &str, value: &SecretString) {
        let value_text = value.expose_secret();
        if self.configured.knows(value_text)
            || self.learned.read().unwrap_or_else(PoisonError::into_inner).knows(value_text)
        {
            return;
        }
        self.learned.write().unwrap_or_else(PoisonError::into_inner).add(name, value);
    }

    /// Returns a masker for configured and learned values.
    fn masker(&self) -> Masker {
        self.configured.with(&self.learned.read().unwrap_or_else(PoisonError::into_inner).masker)
    }

    /// Returns a text with each secret replaced by its name in brackets.
    pub fn masked(&self, text: &str) -> String {
        self.masker().mask_named(text).into_owned()
    }

    /// Returns the secrets that the content of a file contains; see [`Masker::found_in_file`].
    pub(super) fn secrets_in(&self, content: &[u8], unpacked_left: &mut u64) -> Vec<FoundSecret> {
        self.masker().found_in_file(content, unpacked_left)
    }

    /// Returns JSON with the secrets replaced in every key and string. Foreign text must be masked before it is escaped for a
    /// format, because escaping changes how a secret is written.
    pub fn masked_json(&self, value: Value) -> Value {
        JsonMasking { masker: self.masker(), clean: HashSet::new() }.masked(value)
    }

    /// Filters a rendered comment or body. Also removes words that CI systems obey, because forges offer the body of a pull
    /// request as the message of its merge commit.
    pub fn body(&self, markdown: &str) -> Outbound<BodyText> {
        Outbound::new(plain::without_ci_words(&without_invisible(&self.masked(markdown))))
    }

    /// Filters a title. Foreign parts of it must be results of [`title`].
    pub fn title(&self, text: &str) -> Outbound<TitleText> {
        let line = without_invisible(&self.masked(text)).split_whitespace().collect::<Vec<_>>().join(" ");
        Outbound::new(line)
    }

    /// Filters an answer to an agent.
    pub fn answer(&self, text: &str) -> Outbound<AnswerText> {
        Outbound::new(self.masked(text))
    }

    /// Filters a message to a channel.
    pub fn json(&self, value: Value) -> OutboundJson {
        OutboundJson(self.masked_json(value))
    }

    /// Builds and filters a commit message of a subject, lines and trailers. Only `trailers` become trailers that git recognizes.
    pub fn message(&self, subject: &str, lines: &[String], trailers: &[Trailer]) -> Outbound<CommitText> {
        let inert = |line: &str| plain_line(&self.masked(line));
        let mut text = format!("{}\n", inert(subject));
        if !lines.is_empty() {
            text.push('\n');
        }
        for line in lines {
            text.push_str(&inert(line));
            text.push('\n');
        }
        let trailers: Vec<String> = trailers.iter().filter_map(Trailer::line).collect();
        text.push_str(&format!("\n{}\n", trailers.join("\n")));
        Outbound::new(self.masked(&text))
    }
}

/// Removes invisible and bidirectional characters, except those in emoji.
fn without_invisible(text: &str) -> String {
    let is_kept = |c: char| !is_invisible(c) || matches!(c, '\n' | '\t' | '\u{fe0f}');
    text.chars().filter(|c| is_kept(*c)).collect()
}
