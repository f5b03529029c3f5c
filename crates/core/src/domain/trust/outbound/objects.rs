//! Scan of everything that a push sends: commit messages, authors, names, links and contents.

use std::collections::{BTreeSet, HashSet};
use std::fmt;

use aho_corasick::AhoCorasick;

use super::{FoundSecret, OutboundFilter};
use crate::domain::model::characters::is_invisible;
use crate::domain::model::ids::Sha;
use crate::domain::trust::bounds::ARCHIVES_BYTES;

/// Maximum length of a path in a report, in characters.
const NAME_CHARACTERS: usize = 200;

/// Secret or unscanned object because of which commits are not pushed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leak {
    /// Name of the finding; never the value of the secret.
    pub what: String,
    /// Location of the finding.
    pub place: String,
}

impl fmt::Display for Leak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the change seems to contain a secret: {} in {}", self.what, self.place)
    }
}

/// Commit that may be pushed, because all new objects in it and its ancestors were scanned. Only [`ObjectScan::finish`] creates
/// it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClearedCommit(Sha);

impl ClearedCommit {
    /// Returns the commit.
    pub fn commit(&self) -> &Sha {
        &self.0
    }

    /// Creates a cleared commit without a scan, for tests of adapters.
    #[cfg(any(test, feature = "testing"))]
    pub fn of_test(commit: &Sha) -> Self {
        Self(commit.clone())
    }
}

/// Scan of the objects that some commits add.
#[derive(Debug)]
pub struct ObjectScan<'a> {
    outbound: &'a OutboundFilter,
    leak: Option<Leak>,
    /// Number of bytes that may still be unpacked from archives.
    unpacked_left: u64,
}

impl<'a> ObjectScan<'a> {
    /// Creates an empty scan.
    pub fn new(outbound: &'a OutboundFilter) -> Self {
        Self { outbound, leak: None, unpacked_left: ARCHIVES_BYTES }
    }

    /// Scans the header and the message of a commit.
    pub fn commit(&mut self, id: &Sha, content: &[u8]) {
        self.text(content, || format!("the message or author of commit {}", id.short()));
    }

    /// Scans the name of a branch.
    pub fn branch(&mut self, name: &str) {
        self.text(name.as_bytes(), || "the name of the branch".to_owned());
        self.visible(name, "the name of the branch");
    }

    /// Scans the path of a new file.
    pub fn path(&mut self, path: &[u8]) {
        let shown = self.shown(path);
        let place = format!("the name of the file `{shown}`");
        self.text(path, || place.clone());
        self.visible(&String::from_utf8_lossy(path), &place);
    }

    /// Scans the commit that a submodule refers to.
    pub fn submodule(&mut self, path: &[u8], commit: &Sha) {
        let place = format!("the submodule `{}`", self.shown(path));
        self.text(commit.as_str().as_bytes(), || place);
    }

    /// Returns the secrets in the content of a file or the target of a link. The caller passes them to [`Self::report`].
    pub fn content(&mut self, content: &[u8]) -> Vec<FoundSecret> {
        self.outbound.secrets_in(content, &mut self.unpacked_left)
    }

    /// Adds the secrets that [`Self::content`] found, except those that the earlier version `before` of the file already
    /// contained.
    pub fn report(&mut self, path: &[u8], content: &[u8], found: Vec<FoundSecret>, before: Option<&[u8]>) {
        let values: BTreeSet<&[u8]> = found.iter().map(|one| &content[one.range.clone()]).collect();
        let values: Vec<&[u8]> = values.into_iter().collect();
        // One search for all of them, because a file may hold thousands.
        let search =
            before.filter(|_| !values.is_empty()).and_then(|before| Some((AhoCorasick::new(&values).ok()?, before)));
        let known: HashSet<&[u8]> = search
            .iter()
            .flat_map(|(search, before)| search.find_overlapping_iter(before))
            .map(|one| values[one.pattern().as_usize()])
            .collect();
        let new = found.into_iter().find(|one| !known.contains(&content[one.range.clone()]));
        if let Some(one) = new {
            let line = content[..one.range.start].iter().filter(|byte| **byte == b'\n').count() + 1;
            self.found(one.name.to_string(), format!("`{}`, line {line}", self.shown(path)));
        }
    }

    /// Adds a finding for an object that cannot be scanned because it is too large or missing.
    pub fn unscanned(&mut self, path: &[u8], why: &str) {
        self.found(format!("something that could not be scanned ({why})"), format!("`{}`", self.shown(path)));
    }

    /// Returns the commit as cleared, or the first finding.
    pub fn finish(self, commit: &Sha) -> Result<ClearedCommit, Leak> {
        self.leak.map_or_else(|| Ok(ClearedCommit(commit.clone())), Err)
    }

    fn text(&mut self, text: &[u8], place: impl FnOnce() -> String) {
        if let Some(found) = self.outbound.secrets_in(text, &mut self.unpacked_left).into_iter().next() {
            self.found(found.name.to_string(), place());
        }
    }

    fn visible(&mut self, name: &str, place: &str) {
        if name.chars().any(|c| c.is_control() || (is_invisible(c) && c != '\u{fe0f}')) {
            self.found("an invisible, bidirectional or control character".to_owned(), place.to_owned());
        }
    }

    fn found(&mut self, what: String, place: String) {
        self.leak.get_or_insert(Leak { what, place });
    }

    /// Returns a path in a form that is safe to display.
    fn shown(&self, path: &[u8]) -> String {
        let path = self.outbound.masked(&String::from_utf8_lossy(path));
        path.chars().filter(|c| !is_invisible(*c) && *c != '`' && *c != '\n').take(NAME_CHARACTERS).collect()
    }
}
