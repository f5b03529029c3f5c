//! Result of reading a file: its items, its documentation, and its tests.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use crate::language::SourceLanguage;
use crate::{Region, RegionKind, RegionName};

/// Item of a program: a function, class or module. The file itself is the first item, with an empty path.
#[derive(Debug, Clone)]
pub(crate) struct ProgramItem {
    pub path: String,
    /// Path of the item that contains it.
    pub parent: String,
    /// Conditions that enclose the item, including its own.
    pub condition: String,
    /// Conditions that enclose the item, without its own.
    pub outer: String,
    /// Bytes of the item with its documentation and attributes.
    pub range: Range<usize>,
    /// Whether another item can follow directly after the range.
    pub complete: bool,
    /// Offset at which documentation is inserted if the item has none.
    pub doc_at: Option<usize>,
    /// Offset at which documentation is inserted inside of the item, as `//!` of Rust.
    pub inner_doc_at: Option<usize>,
    /// Offset at which an item is appended inside.
    pub end_at: Option<usize>,
    /// 0-based number among the items with this path and condition.
    pub number: usize,
}

/// Place of a region relative to its item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Shape {
    /// Documents the item that follows or encloses it.
    Doc,
    /// Documents the file or module that it is in.
    InnerDoc,
    /// Stands on its own.
    Item,
}

/// Documentation or test that was found. Documentation without tests is found, too, since the other version may have some.
#[derive(Debug, Clone)]
pub(crate) struct FoundRegion {
    pub range: Range<usize>,
    pub kind: RegionKind,
    pub anchor: String,
    /// Path of the item that contains the region.
    pub container: String,
    /// Conditions that enclose the region, without those that are part of it.
    pub condition: String,
    pub number: usize,
    pub shape: Shape,
    pub is_test: bool,
}

impl FoundRegion {
    pub fn region(&self) -> Region {
        Region { range: self.range.clone(), name: self.name(), condition: self.condition.clone() }
    }

    pub fn name(&self) -> RegionName {
        RegionName { kind: self.kind, anchor: self.anchor.clone(), number: self.number }
    }
}

/// Definition of a macro that tests may use.
#[derive(Debug, Clone)]
pub(crate) struct MacroDefinition {
    pub name: String,
    pub range: Range<usize>,
}

/// Result of reading a file.
#[derive(Debug, Clone, Default)]
pub(crate) struct FileScan {
    pub items: Vec<ProgramItem>,
    pub found: Vec<FoundRegion>,
    /// Macros outside of tests.
    pub macros: Vec<MacroDefinition>,
    /// Lines of the program that may keep tests from running.
    pub neutralizers: Vec<String>,
    /// Offset of the first unbalanced bracket, text or comment.
    pub fault: Option<usize>,
    /// Whether only the last of several items with a name counts.
    pub last_wins: bool,
    /// Whether several functions of a file may have the same name, of which a call takes the one that fits.
    pub has_overloads: bool,
    /// Text that takes the place of removed documentation, so that the item keeps a body.
    pub empty_doc: &'static str,
    /// Text between inserted documentation and code on the same line. A line break if it is empty.
    pub inline_separator: &'static str,
}

impl FileScan {
    /// Reads a file; `None` if the language is unknown.
    pub fn of(path: &str, source: &str) -> Option<Self> {
        let language = SourceLanguage::of(path, source)?;
        let mut scan = language.scan(source);
        scan.finish();
        scan.neutralizers = scan.neutralizers_of(language, source);
        Some(scan)
    }

    /// Returns the lines outside of regions that ask whether tests run, or that end the process with success. A main program
    /// without tests may do the latter.
    fn neutralizers_of(&self, language: SourceLanguage, source: &str) -> Vec<String> {
        let is_main = self.tests().next().is_none() && source.contains("main");
        let exits: &[&str] = if is_main { &[] } else { language.exits() };
        let mut at = 0;
        let mut lines = Vec::new();
        for line in source.split_inclusive('\n') {
            let start = at;
            at += line.len();
            // At the top level it begins the main program of Nim.
            let is_begin = language == SourceLanguage::Nim && line.starts_with("when ");
            let asks = !is_begin && has_any(line, language.questions());
            if (asks || has_any(line, exits)) && !self.found.iter().any(|one| one.range.contains(&start)) {
                lines.push(squeezed(line));
            }
        }
        lines
    }

    /// Returns the names in the conditions of tests.
    pub fn names_in_conditions(&self) -> BTreeSet<&str> {
        self.tests().flat_map(|test| directive_words(&test.condition)).collect()
    }

    /// Returns the directives outside of regions that begin a condition.
    pub fn conditions<'s>(&self, source: &'s str) -> Vec<&'s str> {
        let mut at = 0;
        let mut lines = Vec::new();
        for line in source.split_inclusive('\n') {
            let is_outside = !self.found.iter().any(|one| one.range.contains(&at));
            let directive = line.trim().strip_prefix('#').map(str::trim_start).unwrap_or_default();
            if is_outside && (directive.starts_with("if") || directive.starts_with("elif")) {
                lines.push(line.trim());
            }
            at += line.len();
        }
        lines
    }

    /// Begins the result with the file itself as an item.
    pub fn new(source: &str) -> Self {
        let start = text_start(source);
        let file = ProgramItem {
            path: String::new(),
            parent: String::new(),
            condition: String::new(),
            outer: String::new(),
            range: 0..source.len(),
            complete: false,
            doc_at: None,
            inner_doc_at: Some(start),
            end_at: Some(source.len()),
            number: 0,
        };
        Self { items: vec![file], ..Self::default() }
    }

    /// Returns the regions that are tests.
    pub fn tests(&self) -> impl Iterator<Item = &FoundRegion> {
        self.found.iter().filter(|found| found.is_test)
    }

    /// Adds a test that is an item itself.
    pub fn add_test(
        &mut self,
        kind: RegionKind,
        (container, anchor): (&str, String),
        condition: &str,
        range: Range<usize>,
    ) {
        self.found.push(FoundRegion {
            range,
            kind,
            anchor,
            container: container.to_owned(),
            condition: condition.to_owned(),
            number: 0,
            shape: Shape::Item,
            is_test: true,
        });
    }

    /// Adds the documentation of an item.
    pub fn add_doc(&mut self, anchor: &str, condition: &str, range: Range<usize>, is_test: bool) {
        self.found.push(FoundRegion {
            range,
            kind: RegionKind::Doctest,
            anchor: anchor.to_owned(),
            container: String::new(),
            condition: condition.to_owned(),
            number: 0,
            shape: Shape::Doc,
            is_test,
        });
    }

    /// Adds the documentation of a file or module.
    pub fn add_inner_doc(&mut self, anchor: &str, condition: &str, range: Range<usize>, is_test: bool) {
        self.add_doc(anchor, condition, range, is_test);
        if let Some(found) = self.found.last_mut() {
            found.kind = RegionKind::ModuleDoctest;
            found.shape = Shape::InnerDoc;
        }
    }

    /// Sorts and numbers items and regions.
    fn finish(&mut self) {
        self.found.sort_by_key(|found| (found.range.start, found.range.end));
        let mut numbers: HashMap<(String, String), usize> = HashMap::new();
        for item in &mut self.items {
            let number = numbers.entry((item.path.clone(), item.condition.clone())).or_default();
            item.number = *number;
            *number += 1;
        }
        let mut numbers: HashMap<(RegionKind, String), usize> = HashMap::new();
        for found in self.found.iter_mut().filter(|found| found.is_test) {
            let number = numbers.entry((found.kind, found.anchor.clone())).or_default();
            found.number = *number;
            *number += 1;
        }
    }
}

/// Returns the path of a name inside of a container.
pub(crate) fn join(container: &str, name: &str) -> String {
    match (container.is_empty(), name.is_empty()) {
        (true, _) => name.to_owned(),
        (_, true) => container.to_owned(),
        _ => format!("{container}::{name}"),
    }
}

/// Returns the names in a directive.
pub(crate) fn directive_words(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.filter(|word| !["", "if", "ifdef", "ifndef", "elif", "else", "endif", "defined"].contains(word))
}

/// Returns two conditions as one.
pub(crate) fn and(outer: &str, inner: &str) -> String {
    match (outer.is_empty(), inner.is_empty()) {
        (true, _) => inner.to_owned(),
        (_, true) => outer.to_owned(),
        _ => bounded(format!("{outer} {inner}")),
    }
}

/// Returns the offset after a byte order mark and a line with `#!`.
pub(crate) fn text_start(source: &str) -> usize {
    let bom = if source.starts_with('\u{feff}') { 3 } else { 0 };
    let rest = &source[bom..];
    if rest.starts_with("#!") && !rest.starts_with("#![") {
        return bom + rest.find('\n').map_or(rest.len(), |at| at + 1);
    }
    bom
}

/// Returns a piece of code with each run of white space as one blank.
pub(crate) fn squeezed(code: &str) -> String {
    let mut text = String::with_capacity(code.len());
    for word in code.split_whitespace() {
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(word);
    }
    text
}

/// Returns a condition, or its digest if it is long, so that conditions of nested blocks stay short.
pub(crate) fn bounded(condition: String) -> String {
    use std::hash::{DefaultHasher, Hash, Hasher};
    if condition.len() <= 1_000 {
        return condition;
    }
    let mut digest = DefaultHasher::new();
    condition.hash(&mut digest);
    format!("(long condition {:016x})", digest.finish())
}

/// Whether a text contains one of some words.
pub(crate) fn has_any(text: &str, words: &[&str]) -> bool {
    words.iter().any(|word| text.contains(word))
}
