//! The one filter for everything that leaves the service: texts for forges, channels and agents, and commits before they are pushed.
//!
//! Text of agents, tools and outsiders is made inert where it is placed: by the functions of `markdown` in comments and bodies, by
//! those of `plain` in titles and messages of commits. Everything passes a [`OutboundFilter`] last, which removes the values of secrets. Adapters
//! take [`Outbound`] texts and [`ClearedCommit`]s, which only the filter creates.

mod archive;
mod bounds;
mod markdown;
mod masker;
mod objects;
mod parts;
mod patterns;
mod plain;
mod rare_forms;
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

use crate::domain::model::characters::is_invisible;

/// Number of learned values that are searched together.
const GROUP: usize = 8;
/// Maximum number of groups of learned values; the oldest are forgotten, because tokens end.
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

/// Text without secrets; only a [`OutboundFilter`] creates it.
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

    /// Returns the text as it is, for tests of adapters.
    #[cfg(test)]
    pub fn of_test(text: &str) -> Self {
        Self::new(text.to_owned())
    }
}

impl<K> serde::Serialize for Outbound<K> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

#[cfg(test)]
impl<K> From<&str> for Outbound<K> {
    fn from(text: &str) -> Self {
        Self::of_test(text)
    }
}

/// JSON without secrets; only a [`OutboundFilter`] creates it.
#[derive(Debug, Clone, PartialEq)]
pub struct OutboundJson(Value);

impl OutboundJson {
    /// Returns the value, to which a service may require its own key to be added.
    pub fn into_value(self) -> Value {
        self.0
    }
}

/// Line at the end of a commit's message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trailer {
    /// Loop that the commit belongs to.
    Loop(String),
    /// Account that asked for the loop: login, id and host of the forge.
    CoAuthor(String, i64, String),
}

impl Trailer {
    /// Returns the line; `None` if its values are invalid.
    fn line(&self) -> Option<String> {
        match self {
            Self::Loop(id) => Some(format!("Ralph-Loop: {}", plain_line(id))),
            Self::CoAuthor(login, id, host) => co_author(login, *id, host),
        }
    }
}

/// Maximum length of a text of JSON that is remembered, in bytes.
const REMEMBERED_MAX: usize = 100;

/// Masks one value of JSON. Rows repeat their names and many of their values, so that texts without secrets are searched once.
struct JsonMasking {
    masker: Masker,
    /// Short texts without secrets.
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

/// Removes secrets from everything that leaves. Clones share the learned values.
#[derive(Clone, Default)]
pub struct OutboundFilter {
    configured: Masker,
    learned: Arc<RwLock<Learned>>,
}

/// Values that became known while the service runs.
#[derive(Default)]
struct Learned {
    /// Groups of at most [`GROUP`] values; only the last one grows.
    groups: VecDeque<LearnedGroup>,
    /// Searches of all groups.
    masker: Masker,
}

/// Learned values that one search finds.
#[derive(Default)]
struct LearnedGroup {
    values: Vec<(Arc<str>, SecretString)>,
    masker: Masker,
}

impl Learned {
    fn knows(&self, value: &str) -> bool {
        self.groups.iter().flat_map(|group| &group.values).any(|(_, known)| known.expose_secret() == value)
    }

    /// Adds a value to the last group, whose search alone is built anew.
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
    /// Creates a filter that replaces each value of the masker by its name.
    pub fn new(configured: Masker) -> Self {
        Self { configured, learned: Arc::default() }
    }

    /// Adds a value that was just issued. What was scanned before cannot hold it.
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

    /// Returns the secrets in the content of a file.
    pub(super) fn secrets_in(&self, content: &[u8]) -> Vec<FoundSecret> {
        self.masker().found_in_file(content)
    }

    /// Returns JSON with secrets replaced in every text and name. Foreign text is masked before it is escaped for a
    /// format, because escaping changes the forms of a value.
    pub fn masked_json(&self, value: Value) -> Value {
        JsonMasking { masker: self.masker(), clean: HashSet::new() }.masked(value)
    }

    /// Lets a rendered comment or body pass. Forges offer the body of a pull request as the message of its merge, so it holds no
    /// words for CI systems.
    pub fn body(&self, markdown: &str) -> Outbound<BodyText> {
        Outbound::new(plain::without_ci_words(&without_invisible(&self.masked(markdown))))
    }

    /// Lets a title pass, whose foreign parts are results of [`title`].
    pub fn title(&self, text: &str) -> Outbound<TitleText> {
        let line = without_invisible(&self.masked(text)).split_whitespace().collect::<Vec<_>>().join(" ");
        Outbound::new(line)
    }

    /// Lets an answer to an agent pass.
    pub fn answer(&self, text: &str) -> Outbound<AnswerText> {
        Outbound::new(self.masked(text))
    }

    /// Lets a message to a channel pass.
    pub fn json(&self, value: Value) -> OutboundJson {
        OutboundJson(self.masked_json(value))
    }

    /// Returns the message of a commit: the subject, lines and trailers. Only trailers act.
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

/// Removes invisible and bidirectional characters but those of emoji.
fn without_invisible(text: &str) -> String {
    let is_kept = |c: char| !is_invisible(c) || matches!(c, '\n' | '\t' | '\u{fe0f}');
    text.chars().filter(|c| is_kept(*c)).collect()
}
