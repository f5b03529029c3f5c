//! Checks from an issue's text. Only code counts as a command, never prose; quotes and hidden text do not count.

use std::ops::Range;
use std::sync::LazyLock;

use pulldown_cmark::{CodeBlockKind, Event, HeadingLevel, Options, Parser, Tag, TagEnd};
use regex::Regex;
use serde_json::Value;

use super::{CriteriaError, MAX_CHECKS, check_from_value, plain, validate};
use crate::domain::model::task::{Check, CheckRule, CheckSource};

/// Headings of sections with checks, in lower case without punctuation at the end.
const HEADINGS: [&str; 4] =
    ["completion criteria", "acceptance criteria", "completion criterion", "acceptance criterion"];

/// Info strings of code blocks with shell commands.
const SHELLS: [&str; 7] = ["", "sh", "bash", "shell", "zsh", "console", "shell-session"];

/// Programs that count as a command without arguments; any other single word may be a name.
const KNOWN_ALONE: [&str; 16] = [
    "pytest", "make", "tox", "nox", "tsc", "eslint", "jest", "vitest", "mocha", "ctest", "prove", "mypy", "pyright",
    "rspec", "phpunit", "rake",
];

/// Prose beside a command in a list item that requires its success.
static MUST_SUCCEED: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?i)\b(pass(es|ing)?|succeeds?|green|exits?|clean(ly)?|runs?|works?|builds?|compiles?|ok|prints? nothing|no (errors?|output|warnings?|findings?)|without (errors?|warnings?|output))\b")
        .expect("constant pattern")
});

/// Prose that requires empty output.
static MUST_BE_SILENT: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?i)\b(prints? nothing|(no|without|empty) output)\b").expect("constant pattern"));

/// Prose with a negation; such an item is for people.
static NEGATED: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?i)\b(not|never|fails?|no longer|cannot|n't|instead of)\b").expect("constant pattern")
});

/// First word of a command, after assignments.
static PROGRAM: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"^(?:[A-Z_][A-Z0-9_]*=\S* +)*(\.{0,2}/?[a-z0-9][\w./+-]*)( |$)").expect("constant pattern")
});

/// Parses the checks in an issue's Markdown body. A fenced block with the info string `ralph` takes precedence:
/// `checks:` as in the repository file, a list of those, or one command a line. Otherwise sections with the heading
/// "Completion criteria" or "Acceptance criteria": list items with one command in backticks (`cargo test` passes), and
/// shell code blocks, one command a line (a block that is a script is one command). Returns an empty list if there are
/// no criteria.
pub fn from_issue(body: &str) -> Result<Vec<Check>, CriteriaError> {
    let found = read(body);
    let checks = if found.blocks.is_empty() {
        found.section
    } else {
        let mut checks = Vec::new();
        for (block, closed) in &found.blocks {
            if !closed {
                return Err(CriteriaError::Unclosed);
            }
            checks.extend(from_block(block)?);
        }
        checks
    };
    if checks.len() > MAX_CHECKS {
        return Err(CriteriaError::TooMany(checks.len()));
    }
    for check in &checks {
        validate(check).map_err(|reason| CriteriaError::Invalid { name: check.name.clone(), reason })?;
    }
    Ok(checks)
}

/// Findings of one pass over the Markdown.
#[derive(Default)]
struct IssueChecks {
    /// Texts of `ralph` blocks, each with whether its fence is closed.
    blocks: Vec<(String, bool)>,
    /// Checks of the criteria sections.
    section: Vec<Check>,
}

/// List item that is being read: its prose and its inline code.
#[derive(Default)]
struct Item {
    prose: String,
    code: Vec<String>,
}

/// Position of the reader in the Markdown.
#[derive(Default)]
struct IssueReader {
    found: IssueChecks,
    quotes: usize,
    /// Level of the criteria heading of the current section.
    section: Option<HeadingLevel>,
    heading: Option<(HeadingLevel, String)>,
    items: Vec<Item>,
    /// Info string, text and source range of the current code block.
    block: Option<(String, String, Range<usize>)>,
    hidden: usize,
}

fn read(body: &str) -> IssueChecks {
    let options = Options::ENABLE_TASKLISTS | Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH;
    let mut reader = IssueReader::default();
    for (event, range) in Parser::new_ext(body, options).into_offset_iter() {
        reader.take(event, range, body);
    }
    reader.found
}

impl IssueReader {
    fn take(&mut self, event: Event<'_>, range: Range<usize>, body: &str) {
        match event {
            Event::Start(Tag::BlockQuote(_)) => self.quotes += 1,
            Event::End(TagEnd::BlockQuote(_)) => self.quotes = self.quotes.saturating_sub(1),
            _ if self.quotes > 0 => {}
            Event::Start(Tag::Strikethrough) => self.hidden += 1,
            Event::End(TagEnd::Strikethrough) => self.hidden = self.hidden.saturating_sub(1),
            Event::Start(Tag::Heading { level, .. }) => self.heading = Some((level, String::new())),
            Event::End(TagEnd::Heading(_)) => self.end_heading(),
            Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(info))) => {
                let language = info.split([' ', ',', '{']).next().unwrap_or_default().to_lowercase();
                self.block = Some((language, String::new(), range));
            }
            Event::End(TagEnd::CodeBlock) => self.end_block(body),
            Event::Start(Tag::Item) => self.items.push(Item::default()),
            Event::End(TagEnd::Item) => self.end_item(),
            Event::Text(text) => self.text(&text),
            Event::SoftBreak | Event::HardBreak => self.text(" "),
            Event::Code(code) => {
                if let Some((_, title)) = &mut self.heading {
                    title.push_str(&code);
                } else if let Some(item) = self.items.last_mut().filter(|_| self.hidden == 0) {
                    item.code.push(code.trim().to_owned());
                }
            }
            _ => {}
        }
    }

    fn text(&mut self, text: &str) {
        if let Some((_, block, _)) = &mut self.block {
            block.push_str(text);
        } else if let Some((_, title)) = &mut self.heading {
            title.push_str(text);
        } else if let Some(item) = self.items.last_mut() {
            item.prose.push_str(text);
        }
    }

    fn end_heading(&mut self) {
        let Some((level, title)) = self.heading.take() else { return };
        let title = title.trim().trim_end_matches([':', '.', '*', ' ']).to_lowercase();
        if HEADINGS.contains(&title.as_str()) {
            self.section = Some(level);
        } else if self.section.is_some_and(|open| level <= open) {
            self.section = None;
        }
    }

    fn end_block(&mut self, body: &str) {
        let Some((language, text, range)) = self.block.take() else { return };
        if language == "ralph" {
            let closed = closes(body.get(range).unwrap_or_default());
            self.found.blocks.push((text, closed));
        } else if self.section.is_some() && SHELLS.contains(&language.as_str()) {
            let commands = commands(&text);
            self.found.section.extend(commands.iter().map(|command| plain(command, CheckSource::Issue)));
        }
    }

    fn end_item(&mut self) {
        let Some(item) = self.items.pop() else { return };
        if self.section.is_some() {
            self.found.section.extend(from_item(&item));
        }
    }
}

/// Whether the source of a fenced block ends with a fence.
fn closes(source: &str) -> bool {
    let mut lines = source.trim_end().lines();
    let opening = lines.next().unwrap_or_default();
    let fence = |line: &str| {
        let line = line.trim_start_matches([' ', '\t', '>']);
        let mark = line.chars().next().filter(|c| matches!(c, '`' | '~'))?;
        Some((mark, line.chars().take_while(|c| *c == mark).count(), line.trim_end().chars().all(|c| c == mark)))
    };
    match (fence(opening), lines.next_back().and_then(fence)) {
        (Some((mark, length, _)), Some((end, run, bare))) => mark == end && run >= length && bare,
        _ => false,
    }
}

fn from_item(item: &Item) -> Option<Check> {
    let [command] = item.code.as_slice() else { return None };
    let prose = item.prose.trim().trim_matches(['.', ',', ';', ':', '!']).trim();
    let asked = prose.is_empty() || (MUST_SUCCEED.is_match(prose) && !NEGATED.is_match(prose));
    if !asked || !is_command(command) {
        return None;
    }
    let mut check = plain(command, CheckSource::Issue);
    if MUST_BE_SILENT.is_match(prose) {
        check.rule = CheckRule::EmptyOutput;
    }
    Some(check)
}

/// Whether inline code looks like a command line, not like a name, a path or a code fragment.
fn is_command(code: &str) -> bool {
    let Some(program) = PROGRAM.captures(code).and_then(|c| c.get(1)) else { return false };
    let alone = program.end() == code.len();
    !alone || KNOWN_ALONE.contains(&program.as_str()) || program.as_str().starts_with("./")
}

fn from_block(text: &str) -> Result<Vec<Check>, CriteriaError> {
    let meaningful =
        || text.lines().map(str::trim_end).filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    let mapping = meaningful().next().is_some_and(|line| line.starts_with("checks:"));
    let list = meaningful().all(|line| line.starts_with("- ") || line.starts_with(' '))
        && meaningful().any(|l| l.starts_with("- "));
    if !mapping && !list {
        return Ok(commands(text).iter().map(|command| plain(command, CheckSource::Issue)).collect());
    }
    let value: Value =
        serde_saphyr::from_str(text).map_err(|error| CriteriaError::Block(first_line(&error.to_string())))?;
    let entries = match value {
        Value::Array(entries) => entries,
        Value::Object(mut map) => {
            let entries = map.remove("checks");
            if let Some(key) = map.keys().next() {
                return Err(CriteriaError::Block(format!(
                    "unknown key `{key}`; only `checks` can be given in an issue"
                )));
            }
            match entries {
                Some(Value::Array(entries)) => entries,
                _ => return Err(CriteriaError::Block("`checks` must be a list".to_owned())),
            }
        }
        _ => return Err(CriteriaError::Block("it must be `checks:` with a list, or a command a line".to_owned())),
    };
    if entries.len() > MAX_CHECKS {
        return Err(CriteriaError::TooMany(entries.len()));
    }
    entries.iter().map(|entry| check_from_value(entry, CheckSource::Issue)).collect()
}

/// Returns the commands of a block: one a line, without `$ `, with continued lines joined. If any line has a prompt,
/// the others are output. A block that is a script (changes folders, sets variables, loops) is one command.
fn commands(text: &str) -> Vec<String> {
    const SCRIPT: [&str; 9] = ["cd ", "export ", "set ", "if ", "for ", "while ", "case ", "function ", "source "];
    let joined = text.replace("\\\n", " ");
    let lines: Vec<&str> = joined.lines().map(str::trim_end).filter(|line| !line.trim().is_empty()).collect();
    let prompted: Vec<String> = lines
        .iter()
        .filter_map(|line| line.trim_start().strip_prefix("$ "))
        .map(|line| line.trim().to_owned())
        .collect();
    if !prompted.is_empty() {
        return prompted;
    }
    let code: Vec<&str> = lines.into_iter().filter(|line| !line.trim_start().starts_with('#')).collect();
    let script = code.len() > 1
        && code.iter().any(|line| {
            SCRIPT.iter().any(|word| line.starts_with(word)) && !line.contains("&&")
                || line.contains("<<")
                || line.starts_with(char::is_whitespace)
        });
    if script { vec![code.join("\n")] } else { code.iter().map(|line| line.trim().to_owned()).collect() }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}
