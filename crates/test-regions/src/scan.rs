//! Result of parsing a file: items, documentation and tests.

use std::collections::{BTreeSet, HashMap};
use std::ops::{Range, RangeInclusive};

use crate::language::{SourceLanguage, is_too_large};
use crate::{Region, RegionKind, RegionName};

/// Maximum length of a condition or path, in bytes. A longer one is replaced by its digest.
const MAX_NAME: usize = 500;

/// Program item: a function, class or module. The first item is the file itself, with an empty path.
#[derive(Debug, Clone)]
pub(crate) struct ProgramItem {
    pub path: String,
    /// Path of the enclosing item.
    pub parent: String,
    /// Conditions around the item, including its own conditions.
    pub condition: String,
    /// Conditions around the item, excluding its own conditions.
    pub outer: String,
    /// Byte range of the item, including documentation and attributes.
    pub range: Range<usize>,
    /// Whether another item can follow directly after the range.
    pub complete: bool,
    /// Offset at which to insert documentation if the item has none.
    pub doc_at: Option<usize>,
    /// Offset at which to insert documentation inside the item, such as `//!` in Rust.
    pub inner_doc_at: Option<usize>,
    /// Offset at which to append an item inside.
    pub end_at: Option<usize>,
    /// 0-based index among the items with this path and condition.
    pub number: usize,
}

/// Place of a region relative to its item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Shape {
    /// Documents the following or enclosing item.
    Doc,
    /// Documents the file or module that contains it.
    InnerDoc,
    /// Separate item.
    Item,
}

/// Documentation or test in a file. Includes documentation without tests, because the other version may contain some.
#[derive(Debug, Clone)]
pub(crate) struct FoundRegion {
    pub range: Range<usize>,
    pub kind: RegionKind,
    pub anchor: String,
    /// Path of the enclosing item.
    pub container: String,
    /// Conditions around the region, excluding conditions inside it.
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

/// Function that can be overloaded.
#[derive(Debug, Clone)]
pub(crate) struct Overload {
    /// Index of the item.
    pub item: usize,
    /// Parameters in brackets.
    pub parameters: String,
    /// Possible numbers of arguments.
    pub numbers: RangeInclusive<usize>,
}

/// Call in a test.
#[derive(Debug, Clone)]
pub(crate) struct TestCall {
    pub name: String,
    pub start: usize,
    /// Possible numbers of arguments.
    pub numbers: RangeInclusive<usize>,
}

/// Line of the program that may prevent tests from running.
#[derive(Debug, Clone)]
pub(crate) struct Neutralizer {
    pub line: String,
    pub start: usize,
    /// Whether the line ends the process, and does not ask for a test run.
    pub is_exit: bool,
}

/// Result of parsing a file.
#[derive(Debug, Clone, Default)]
pub(crate) struct FileScan {
    pub items: Vec<ProgramItem>,
    pub found: Vec<FoundRegion>,
    /// Macros defined outside tests.
    pub macros: Vec<MacroDefinition>,
    /// Lines of the program that may prevent tests from running.
    pub neutralizers: Vec<Neutralizer>,
    /// Offset of the first unbalanced bracket, string or comment.
    pub fault: Option<usize>,
    /// Whether the last of several items with the same name overrides the others.
    pub last_wins: bool,
    /// Functions with bodies, in languages in which several functions may have the same name.
    pub overloads: Vec<Overload>,
    /// Calls in tests, in these languages.
    pub calls: Vec<TestCall>,
    /// Replacement for removed documentation, which keeps the item's body from being empty.
    pub empty_doc: &'static str,
    /// Text between inserted documentation and code on the same line; empty for a line break.
    pub inline_separator: &'static str,
}

impl FileScan {
    /// Parses a file; `None` if the language is unknown or the file is too large.
    pub fn of(path: &str, source: &str) -> Option<Self> {
        let language = SourceLanguage::of(path, source).filter(|_| !is_too_large(path, source))?;
        let mut scan = language.scan(source);
        scan.finish();
        scan.neutralizers = scan.neutralizers_of(language, source);
        Some(scan)
    }

    /// Returns the lines outside regions that detect a test run or end the process successfully. In a main program without
    /// tests, ending the process is allowed.
    fn neutralizers_of(&self, language: SourceLanguage, source: &str) -> Vec<Neutralizer> {
        let is_main = self.tests().next().is_none() && source.contains("main");
        let exits: &[&str] = if is_main { &[] } else { language.exits() };
        let covered = self.covered();
        let mut at = 0;
        let mut lines = Vec::new();
        for line in source.split_inclusive('\n') {
            let start = at;
            at += line.len();
            // At the top level, it starts the main program in Nim.
            let is_begin = language == SourceLanguage::Nim && line.starts_with("when ");
            let asks = !is_begin && has_any(line, language.questions());
            if (asks || has_any(line, exits)) && !covered.contains(start) {
                lines.push(Neutralizer { line: squeezed(line), start, is_exit: !asks });
            }
        }
        lines
    }

    /// Returns the names used in the conditions of tests.
    pub fn names_in_conditions(&self) -> BTreeSet<&str> {
        self.tests().flat_map(|test| directive_words(&test.condition)).collect()
    }

    /// Returns the directives outside regions that start a condition.
    pub fn conditions<'s>(&self, source: &'s str) -> Vec<&'s str> {
        let covered = self.covered();
        let mut at = 0;
        let mut lines = Vec::new();
        for line in source.split_inclusive('\n') {
            let is_outside = !covered.contains(at);
            let directive = line.trim().strip_prefix('#').map(str::trim_start).unwrap_or_default();
            if is_outside && (directive.starts_with("if") || directive.starts_with("elif")) {
                lines.push(line.trim());
            }
            at += line.len();
        }
        lines
    }

    /// Returns the parts of the file that are regions.
    pub fn covered(&self) -> Covered {
        Covered::by(self.found.iter().map(|found| found.range.clone()))
    }

    /// Returns the number of items and regions.
    pub fn len(&self) -> usize {
        self.items.len() + self.found.len()
    }

    /// Creates a result that contains only the file itself as an item.
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

    /// Adds a test that is an item.
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

    /// Adds an item's documentation.
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

    /// Adds documentation of a file or module.
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

/// Parts of a file that some ranges cover.
pub(crate) struct Covered(Vec<Range<usize>>);

impl Covered {
    pub fn by(ranges: impl Iterator<Item = Range<usize>>) -> Self {
        let mut ranges: Vec<_> = ranges.filter(|range| !range.is_empty()).collect();
        ranges.sort_by_key(|range| range.start);
        let mut parts: Vec<Range<usize>> = Vec::new();
        for range in ranges {
            match parts.last_mut().filter(|last| range.start <= last.end) {
                Some(last) => last.end = last.end.max(range.end),
                None => parts.push(range),
            }
        }
        Self(parts)
    }

    /// Whether any of the ranges contains an offset.
    pub fn contains(&self, at: usize) -> bool {
        let next = self.0.partition_point(|part| part.start <= at);
        next > 0 && self.0[next - 1].end > at
    }
}

/// Returns the path of a name inside a container.
pub(crate) fn join(container: &str, name: &str) -> String {
    match (container.is_empty(), name.is_empty()) {
        (true, _) => bounded(name.to_owned()),
        (_, true) => container.to_owned(),
        _ => bounded(format!("{container}::{name}")),
    }
}

/// Returns the names in a directive.
pub(crate) fn directive_words(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.filter(|word| !["", "if", "ifdef", "ifndef", "elif", "else", "endif", "defined"].contains(word))
}

/// Combines two conditions.
pub(crate) fn and(outer: &str, inner: &str) -> String {
    match (outer.is_empty(), inner.is_empty()) {
        (true, _) => inner.to_owned(),
        (_, true) => outer.to_owned(),
        _ => bounded(format!("{outer} {inner}")),
    }
}

/// Returns the offset after a byte order mark and a `#!` line.
pub(crate) fn text_start(source: &str) -> usize {
    let bom = if source.starts_with('\u{feff}') { 3 } else { 0 };
    let rest = &source[bom..];
    if rest.starts_with("#!") && !rest.starts_with("#![") {
        return bom + rest.find('\n').map_or(rest.len(), |at| at + 1);
    }
    bom
}

/// Returns code with each run of white space replaced by one space.
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

/// Returns a condition or path, or its digest if it is long, because each nested item has a copy.
pub(crate) fn bounded(text: String) -> String {
    use std::hash::{DefaultHasher, Hash, Hasher};
    if text.len() <= MAX_NAME {
        return text;
    }
    let mut digest = DefaultHasher::new();
    text.hash(&mut digest);
    format!("(long text {:016x})", digest.finish())
}

/// Whether a text contains any of the words.
pub(crate) fn has_any(text: &str, words: &[&str]) -> bool {
    words.iter().any(|word| text.contains(word))
}

/// Returns the words of a text.
pub(crate) fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// Whether a text contains a name as a separate word.
pub(crate) fn mentions(text: &str, name: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(name)
        .any(|(at, _)| !text[..at].ends_with(is_part) && !text[at + name.len()..].starts_with(is_part))
}
