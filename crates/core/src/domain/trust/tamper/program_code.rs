//! Changed lines of a program file, with the surrounding code in their hunks.

use std::collections::{BTreeSet, HashMap};

use super::diff::{self, FileDiff, Hunk, LineChange};
use super::language::Language;

/// Texts of changed files after the change, by path.
pub type ChangedTexts = HashMap<String, Vec<u8>>;

/// Returns the paths of changed files whose text [`super::scan`] needs: program files whose hunks show parts of multi-line strings.
pub fn files_to_read(diff: &str) -> BTreeSet<String> {
    diff::parse(diff).into_iter().filter(has_texts).filter_map(|file| file.new).collect()
}

fn has_texts(file: &FileDiff) -> bool {
    let mut lines = file.hunks.iter().flat_map(|hunk| &hunk.lines);
    let is_program = !file.is_new() && !file.is_deleted() && Language::of(file.path()).is_some();
    is_program && lines.any(|line| has_text_sign(&line.text))
}

/// Line of a hunk.
pub(super) struct CodeLine<'a> {
    pub change: LineChange,
    pub text: &'a str,
    pub number: u32,
    /// Index of the hunk in the file.
    pub hunk: usize,
    /// Whether the line is in a module of unit tests, as far as git or an earlier hunk shows.
    pub in_test_module: bool,
    /// Whether the line is inside a multi-line string, as far as the hunk shows.
    pub in_text: bool,
}

/// Changed program file.
pub(super) struct ProgramCode<'a> {
    pub file: &'a FileDiff,
    pub language: Language,
    pub lines: Vec<CodeLine<'a>>,
}

impl<'a> ProgramCode<'a> {
    /// Reads the hunks of a file; `None` if its language is unknown. `text` is the file after the change, if it is known: a hunk does
    /// not show whether it starts inside a multi-line string.
    pub fn of(file: &'a FileDiff, text: Option<&[u8]>) -> Option<Self> {
        pattern!(TEST_MODULE, r"^\s*(?:(?:pub(?:\([^)]*\))?\s+)?mod\s+(?:test|spec)\w*|#\[cfg\(test\)\])");
        let language = Language::of(file.path())?;
        let text = text.map(String::from_utf8_lossy);
        let whole = text.as_deref().and_then(|text| lines_in_texts(language, file, text));
        let mut lines = Vec::new();
        let mut in_test_module = false;
        for (at, hunk) in file.hunks.iter().enumerate() {
            in_test_module |= language == Language::Rust && TEST_MODULE.is_match(&hunk.heading);
            let (mut old, mut new) = (TextReader::of(language), TextReader::of(language));
            for (place, line) in hunk.lines.iter().enumerate() {
                let next = || hunk.lines.get(place + 1).map_or("", |next| next.text.trim_start());
                // The attribute of a single item ends with it.
                let is_attribute = line.text.trim_start().starts_with("#[");
                let of_module = !is_attribute || ["mod ", "pub mod ", "#["].iter().any(|word| next().starts_with(word));
                in_test_module |= language == Language::Rust && TEST_MODULE.is_match(&line.text) && of_module;
                let in_text = match line.change {
                    LineChange::Removed => old.take(&line.text),
                    LineChange::Added => new.take(&line.text),
                    LineChange::Context => old.take(&line.text) | new.take(&line.text),
                };
                let (change, number) = (line.change, line.number);
                let known = whole.as_ref().filter(|_| change != LineChange::Removed);
                let in_text = known.map_or(in_text, |whole| whole[number as usize - 1]);
                lines.push(CodeLine { change, text: &line.text, number, hunk: at, in_test_module, in_text });
            }
        }
        Some(Self { file, language, lines })
    }

    /// Returns the heading of the hunk of a line.
    pub fn heading(&self, line: &CodeLine<'_>) -> &'a str {
        self.file.hunks[line.hunk].heading.as_str()
    }
}

/// Returns which lines of a file are inside a multi-line string; `None` if the file does not fit its hunks.
fn lines_in_texts(language: Language, file: &FileDiff, text: &str) -> Option<Vec<bool>> {
    let lines: Vec<&str> = text.split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line)).collect();
    let mut reader = TextReader::of(language);
    file.hunks.iter().all(|hunk| fits(&lines, hunk)).then(|| lines.into_iter().map(|line| reader.take(line)).collect())
}

/// Whether the lines of a hunk after the change are at their places.
fn fits(lines: &[&str], hunk: &Hunk) -> bool {
    let mut kept = hunk.lines.iter().filter(|line| line.change != LineChange::Removed);
    kept.all(|line| lines.get((line.number as usize).wrapping_sub(1)).is_some_and(|text| *text == line.text))
}

/// Whether a line has a sign that starts or ends a multi-line string.
fn has_text_sign(line: &str) -> bool {
    TEXT_SIGNS.iter().any(|(open, close)| line.contains(open) || line.contains(close))
}

/// Signs that start and end multi-line strings.
const TEXT_SIGNS: [(&str, &str); 5] =
    [("\"\"\"", "\"\"\""), ("'''", "'''"), ("r#\"", "\"#"), ("R\"(", ")\""), ("`", "`")];

/// Returns the indentation of a line in columns; a tab counts as four.
pub(super) fn indent(text: &str) -> usize {
    text.chars().take_while(|c| c.is_whitespace()).map(|c| if c == '\t' { 4 } else { 1 }).sum()
}

/// State of tracking multi-line strings on one side of a hunk: between triple quotes or backticks, or a here-document.
struct TextReader {
    language: Language,
    end: Option<String>,
}

impl TextReader {
    fn of(language: Language) -> Self {
        Self { language, end: None }
    }

    /// Reads a line. Returns whether the line is inside a multi-line string.
    fn take(&mut self, line: &str) -> bool {
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
        let opened = TEXT_SIGNS.iter().find(|(open, close)| match line.find(open) {
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
