//! Tests in the hunks of a file: their blocks before and after the change, and the pairing of both.

use std::collections::{HashMap, HashSet};

use super::diff::{FileDiff, Hunk, LineChange};
use super::language::{Language, is_test_path};

/// Number of preceding tests among which the test that the heading of a hunk names is searched.
const RECENT: usize = 100;

/// Line of a hunk, with the tests that it belongs to before and after the change.
pub(super) struct TestLine<'a> {
    pub change: LineChange,
    pub text: &'a str,
    pub number: u32,
    /// Index of the hunk in the file.
    pub hunk: usize,
    /// Index of the test that the line belongs to before the change. An attribute belongs to the test that follows it.
    pub old: Option<usize>,
    /// Index of the test that the line belongs to after the change.
    pub new: Option<usize>,
    /// Whether the line is in a module of unit tests, as far as git or an earlier hunk shows.
    pub in_test_module: bool,
    /// Whether the line is inside a multi-line string, as far as the hunk shows.
    pub in_text: bool,
    /// Whether the enclosing function or class, or the one that an attribute belongs to, was added by the change.
    pub owner_is_new: bool,
}

/// Test, or another function in a test file, either before or after a change.
pub(super) struct TestBlock {
    pub name: String,
    /// Whether test runners do not call the function by themselves, because it is a helper, a fixture or a hook.
    pub helper: bool,
    /// 1-based number of the first line.
    pub number: u32,
    /// Index of the line that begins the function; `None` if only the heading of a hunk mentions it.
    pub header: Option<usize>,
    pub indent: usize,
    /// Indices of the lines of the function.
    pub lines: Vec<usize>,
    /// Number of assertions that the hunks show.
    pub assertions: usize,
    /// Index of the first line with an assertion after the change; `None` if the hunks show none.
    pub first_assertion: Option<usize>,
    /// Index of the same test on the other side of the change; `None` if it was removed or added.
    pub other: Option<usize>,
}

/// Tests of a changed file.
pub(super) struct TestFile<'a> {
    pub file: &'a FileDiff,
    pub language: Language,
    /// Whether test runners look for tests in the file.
    pub is_test: bool,
    pub lines: Vec<TestLine<'a>>,
    pub old: Vec<TestBlock>,
    pub new: Vec<TestBlock>,
}

impl<'a> TestFile<'a> {
    /// Parses the hunks of a file; `None` if the file cannot contain tests.
    pub fn of(file: &'a FileDiff) -> Option<Self> {
        let language = file.paths().find_map(Language::of)?;
        let is_test = file.paths().any(is_test_path);
        let mut tests = Self { file, language, is_test, lines: Vec::new(), old: Vec::new(), new: Vec::new() };
        let mut in_module = false;
        for (at, hunk) in file.hunks.iter().enumerate() {
            tests.add_hunk(at, hunk, &mut in_module);
        }
        tests.pair();
        Some(tests)
    }

    fn add_hunk(&mut self, at: usize, hunk: &'a Hunk, in_module: &mut bool) {
        let module = |text: &str| text.contains("mod test") || text.contains("mod spec");
        *in_module |= module(&hunk.heading) || hunk.heading.contains("cfg(test)");
        let (mut old, mut new) = (BlockReader::default(), BlockReader::default());
        let (mut old_text, mut new_text) = (TextReader::of(self.language), TextReader::of(self.language));
        if let Some(name) = self.language.test_name(&hunk.heading, false) {
            let number = hunk.lines.first().map_or(1, |line| line.number);
            let indent = indent(&hunk.heading);
            let block = |name| TestBlock::new(name, false, number, None, indent);
            old.begin(&mut self.old, block(name.clone()));
            new.begin(&mut self.new, block(name));
        } else if let Some(name) = self.helper_name(&hunk.heading) {
            let number = hunk.lines.first().map_or(1, |line| line.number);
            // Where a mark makes a function a test, the mark is out of sight.
            let helper = !self.language.has_marks();
            let block = |name| TestBlock::new(name, helper, number, None, indent(&hunk.heading));
            old.begin(&mut self.old, block(name.clone()));
            new.begin(&mut self.new, block(name));
        } else if let Some(line) = hunk.lines.iter().find(|line| !line.text.trim().is_empty()).filter(|_| self.is_test)
        {
            // The function around these lines is out of sight: they may be of a test.
            if let Some(outer) = self.language.outer_indent(indent(&line.text)) {
                let block = || TestBlock::new(format!("line {}", line.number), true, line.number, None, outer);
                old.begin(&mut self.old, block());
                new.begin(&mut self.new, block());
                (old.unnamed, new.unnamed) = (true, true);
            }
        }
        for (place, line) in hunk.lines.iter().enumerate() {
            let next = || hunk.lines.get(place + 1).map_or("", |next| next.text.trim_start());
            *in_module |= module(&line.text)
                || line.text.contains("cfg(test)")
                    && ["mod ", "pub mod ", "#[", "impl "].iter().any(|word| next().starts_with(word));
            let index = self.lines.len();
            self.lines.push(TestLine {
                change: line.change,
                text: &line.text,
                number: line.number,
                hunk: at,
                old: None,
                new: None,
                in_test_module: *in_module,
                in_text: false,
                owner_is_new: false,
            });
            let text = match line.change {
                LineChange::Removed => old_text.take(&line.text),
                LineChange::Added => new_text.take(&line.text),
                LineChange::Context => old_text.take(&line.text) | new_text.take(&line.text),
            };
            self.lines[index].in_text = text;
            if line.change != LineChange::Added {
                old.take(&mut self.lines, index, (self.language, self.is_test), &mut self.old, false);
            }
            if line.change != LineChange::Removed {
                new.take(&mut self.lines, index, (self.language, self.is_test), &mut self.new, true);
            }
        }
    }

    fn helper_name(&self, text: &str) -> Option<String> {
        if self.is_test { self.language.helper_name(text) } else { None }
    }

    /// Pairs each test before the change with the same test after it, by a common line or else by name.
    fn pair(&mut self) {
        let mut by_header: HashMap<usize, usize> = HashMap::new();
        let mut by_name: HashMap<(bool, &str), Vec<usize>> = HashMap::new();
        for (at, block) in self.new.iter().enumerate().rev() {
            match block.header {
                Some(header) if self.lines[header].change == LineChange::Context => {
                    by_header.insert(header, at);
                }
                _ => by_name.entry((block.helper, &block.name)).or_default().push(at),
            }
        }
        let mut pairs = Vec::new();
        for (at, block) in self.old.iter().enumerate() {
            let same = block.header.and_then(|header| by_header.get(&header).copied());
            let same = same.filter(|new| self.new[*new].helper == block.helper);
            let named = || by_name.get_mut(&(block.helper, block.name.as_str())).and_then(Vec::pop);
            if let Some(new) = same.or_else(named) {
                pairs.push((at, new));
            }
        }
        self.renamed(&mut pairs);
        for (old, new) in pairs {
            self.old[old].other = Some(new);
            self.new[new].other = Some(old);
        }
        let language = self.language;
        for block in self.old.iter_mut().chain(&mut self.new) {
            let asserting: Vec<usize> =
                block.lines.iter().copied().filter(|at| language.asserts(self.lines[*at].text)).collect();
            block.assertions = asserting.len();
            block.first_assertion =
                asserting.into_iter().filter(|at| self.lines[*at].change != LineChange::Removed).min();
        }
    }

    /// Adds pairs of renamed tests, which share lines of their bodies.
    fn renamed(&self, pairs: &mut Vec<(usize, usize)>) {
        let mut paired: (HashSet<usize>, HashSet<usize>) = pairs.iter().copied().unzip();
        for line in self.lines.iter().filter(|line| line.change == LineChange::Context && !line.text.trim().is_empty())
        {
            let (Some(old), Some(new)) = (line.old, line.new) else { continue };
            let alike = self.old[old].helper == self.new[new].helper && indent(line.text) > self.old[old].indent;
            if alike && !paired.0.contains(&old) && !paired.1.contains(&new) {
                paired.0.insert(old);
                paired.1.insert(new);
                pairs.push((old, new));
            }
        }
    }

    /// Whether a line belongs to tests: it is in a test file, in a test, or in a module of tests.
    pub fn is_about_tests(&self, line: &TestLine<'_>) -> bool {
        self.is_test || line.new.is_some() || line.old.is_some() || line.in_test_module
    }

    /// Returns the test after the change that a line belongs to, if that test existed before.
    pub fn existing(&self, line: &TestLine<'_>) -> Option<&TestBlock> {
        line.new.map(|at| &self.new[at]).filter(|block| block.other.is_some())
    }

    /// Whether a removed line belongs to a test that still exists.
    pub fn existing_before(&self, line: &TestLine<'_>) -> bool {
        line.old.is_some_and(|at| self.old[at].other.is_some())
    }

    /// Whether a line belongs to a test that the change added.
    pub fn is_in_new_test(&self, line: &TestLine<'_>) -> bool {
        line.new.is_some_and(|at| self.new[at].other.is_none())
    }
}

/// Returns the indentation of a line in columns; a tab counts as four.
pub(super) fn indent(text: &str) -> usize {
    text.chars().take_while(|c| c.is_whitespace()).map(|c| if c == '\t' { 4 } else { 1 }).sum()
}

/// State of tracking multi-line strings on one side of a hunk: between triple quotes or backticks, or a here-document.
pub(super) struct TextReader {
    language: Language,
    end: Option<String>,
}

impl TextReader {
    pub fn of(language: Language) -> Self {
        Self { language, end: None }
    }

    /// Reads a line. Returns whether the line is inside a multi-line string.
    pub fn take(&mut self, line: &str) -> bool {
        // In Ruby and PHP, a blank after the sign makes an operator of it, as `<<` is in other languages.
        pattern!(HERE, r#"(?:^|[^<])<<-?\s*\\?["']?([A-Za-z_]\w*)["']?"#);
        pattern!(HERE_WITHOUT_BLANK, r#"(?:^|[^\w)\]])<<[-~<]?["']?([A-Za-z_]\w*)["']?"#);
        let here = match self.language {
            Language::Shell => HERE.captures(line),
            Language::Ruby | Language::Php => HERE_WITHOUT_BLANK.captures(line),
            _ => None,
        };
        if let Some(end) = &self.end {
            let word = end.chars().all(|c| c.is_alphanumeric() || c == '_');
            let ends =
                if word { line.trim().trim_end_matches([';', ')', ',']) == end } else { line.contains(end.as_str()) };
            if ends {
                self.end = None;
            }
            return !ends;
        }
        let quotes = [("\"\"\"", "\"\"\""), ("'''", "'''"), ("r#\"", "\"#"), ("R\"(", ")\""), ("`", "`")];
        let opened = quotes.iter().find(|(open, close)| match line.find(open) {
            Some(at) => line[at + open.len()..].matches(close).count() % 2 == 0,
            None => false,
        });
        self.end = match opened {
            Some((_, close)) => Some((*close).to_owned()),
            None => here.map(|found| found[1].to_owned()),
        };
        false
    }
}

/// State of reading one side of a hunk.
#[derive(Default)]
struct BlockReader {
    /// Index of the current test, and its indentation.
    current: Option<(usize, usize)>,
    /// Whether the current test is the code before the first function of the hunk, whose name is unknown.
    unnamed: bool,
    /// Indices of lines that wait for the test that they belong to: attributes and the lines between them.
    waiting: Vec<usize>,
    marked: bool,
    owner_is_new: bool,
}

impl TestBlock {
    fn new(name: String, helper: bool, number: u32, header: Option<usize>, indent: usize) -> Self {
        Self {
            name,
            helper,
            number,
            header,
            indent,
            lines: Vec::new(),
            assertions: 0,
            first_assertion: None,
            other: None,
        }
    }
}

impl BlockReader {
    fn begin(&mut self, blocks: &mut Vec<TestBlock>, block: TestBlock) {
        // Hunks of one test have the same heading.
        let known = || {
            let mut recent = blocks.iter().enumerate().rev().take(RECENT);
            recent.find(|(_, known)| known.name == block.name).map(|(at, _)| at)
        };
        let indent = block.indent;
        let at = if block.header.is_none() { known() } else { None };
        let at = at.unwrap_or_else(|| {
            blocks.push(block);
            blocks.len() - 1
        });
        self.current = Some((at, indent));
        self.unnamed = false;
    }

    fn take(
        &mut self,
        lines: &mut [TestLine<'_>],
        at: usize,
        (language, is_test): (Language, bool),
        blocks: &mut Vec<TestBlock>,
        is_new: bool,
    ) {
        let (text, change, number) = (lines[at].text, lines[at].change, lines[at].number);
        let comment = language.is_comment(text);
        let trimmed = text.trim_start();
        self.marked |= !comment && language.is_mark(text) || language == Language::Php && language.is_mark(text);
        // A function inside a test is no test of its own; calls may be.
        let nested = language != Language::JavaScript
            && !self.unnamed
            && self.current.is_some_and(|(_, outer)| indent(text) > outer);
        let begins_test = if comment || nested { None } else { language.test_name(text, self.marked) };
        if let Some(name) = begins_test {
            self.begin(blocks, TestBlock::new(name, false, number, Some(at), indent(text)));
            self.marked = false;
            self.owner_is_new = change == LineChange::Added;
            for waiting in std::mem::take(&mut self.waiting) {
                place(lines, blocks, waiting, self.current, is_new, self.owner_is_new);
            }
            place(lines, blocks, at, self.current, is_new, self.owner_is_new);
            return;
        }
        let class = self.unnamed && language.helper_name(text).is_none();
        if language.begins_function(text)
            && !comment
            && (self.current.is_none_or(|(_, block)| indent(text) <= block) || class)
        {
            self.current = None;
            if let Some(name) = is_test.then(|| language.helper_name(text)).flatten() {
                self.begin(blocks, TestBlock::new(name, true, number, Some(at), indent(text)));
            }
            self.marked = false;
            self.owner_is_new = change == LineChange::Added;
            for waiting in std::mem::take(&mut self.waiting) {
                place(lines, blocks, waiting, self.current, is_new, self.owner_is_new);
            }
            place(lines, blocks, at, self.current, is_new, self.owner_is_new);
            return;
        }
        let attribute = trimmed.starts_with(['@', '#']) && !(comment && language != Language::Php)
            || language == Language::Php && trimmed.starts_with("/**")
            || language == Language::Jvm && trimmed.starts_with('@');
        let attribute = attribute && language != Language::Cpp;
        if attribute || (!self.waiting.is_empty() && self.current.is_none() && !trimmed.is_empty()) {
            self.current = None;
            self.waiting.push(at);
            return;
        }
        let Some((_, block)) = self.current else {
            place(lines, blocks, at, None, is_new, self.owner_is_new);
            return;
        };
        let is_script = self.unnamed && language == Language::Shell && block == 0;
        let outside = !trimmed.is_empty() && indent(text) <= block && !comment && !is_script;
        let handler = language == Language::Ruby && ["rescue", "ensure"].iter().any(|word| trimmed.starts_with(word));
        let closes = handler || trimmed.starts_with(['}', ')', ']', '{', '#']) || is_end(trimmed);
        if outside && !closes {
            self.current = None;
            self.owner_is_new = false;
        }
        place(lines, blocks, at, self.current, is_new, self.owner_is_new);
        let handled = trimmed.starts_with("} catch") || trimmed.starts_with("} finally");
        let ended = outside && (is_end(trimmed) || trimmed.starts_with('}') && !handled);
        if ended && language != Language::Python {
            self.current = None;
            self.owner_is_new = false;
        }
    }
}

fn is_end(trimmed: &str) -> bool {
    let word = trimmed.trim_end();
    word == "end" || word == "End" || word == "END_TEST" || word.starts_with("end)") || word == "'"
}

fn place(
    lines: &mut [TestLine<'_>],
    blocks: &mut [TestBlock],
    at: usize,
    block: Option<(usize, usize)>,
    is_new: bool,
    owner_is_new: bool,
) {
    let block = block.map(|(block, _)| block);
    if let Some(block) = block {
        blocks[block].lines.push(at);
    }
    if is_new {
        lines[at].new = block;
        lines[at].owner_is_new = owner_is_new;
    } else {
        lines[at].old = block;
    }
}
