//! Checks in an issue's text. Only code can be a command, never prose. Quotations and hidden text are ignored.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use super::{CriteriaError, MAX_CHECKS, check_from_value, plain, validate};
use crate::domain::model::document::{DocumentElement, DocumentPart};
use crate::domain::model::stated_facts::StatedFacts;
use crate::domain::model::task::{Check, CheckRule, CheckSource};

/// Keys of a `ralph` block that is a mapping.
const KEYS: [&str; 2] = ["checks", "task"];

/// Headings of sections with checks, in lower case and without trailing punctuation.
const HEADINGS: [&str; 4] =
    ["completion criteria", "acceptance criteria", "completion criterion", "acceptance criterion"];

/// Info strings of code blocks with shell commands.
const SHELLS: [&str; 7] = ["", "sh", "bash", "shell", "zsh", "console", "shell-session"];

/// Programs that are commands even without arguments. Any other single word is more likely to be a name.
const KNOWN_ALONE: [&str; 16] = [
    "pytest", "make", "tox", "nox", "tsc", "eslint", "jest", "vitest", "mocha", "ctest", "prove", "mypy", "pyright",
    "rspec", "phpunit", "rake",
];

/// Prose in a list item that requires its command to succeed.
static MUST_SUCCEED: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?i)\b(pass(es|ing)?|succeeds?|green|exits?|clean(ly)?|runs?|works?|builds?|compiles?|ok|prints? nothing|no (errors?|output|warnings?|findings?)|without (errors?|warnings?|output))\b")
        .expect("constant pattern")
});

/// Prose that requires empty output.
static MUST_BE_SILENT: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?i)\b(prints? nothing|(no|without|empty) output)\b").expect("constant pattern"));

/// Negated prose. A list item with a negation is not parsed as a check.
static NEGATED: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?i)\b(not|never|fails?|no longer|cannot|n't|instead of)\b").expect("constant pattern")
});

/// First word of a command, after variable assignments.
static PROGRAM: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"^(?:[A-Z_][A-Z0-9_]*=\S* +)*(\.{0,2}/?[a-z0-9][\w./+-]*)( |$)").expect("constant pattern")
});

/// Parses the checks in an issue's visible text. A fenced block with the info string `ralph` takes precedence; it contains
/// `checks:` as in `.ralph.yml`, a list of checks, or one command per line. Without such a block, sections with the heading
/// "Completion criteria" or "Acceptance criteria" are parsed: list items with one command in backticks (`cargo test`
/// passes), and shell code blocks with one command per line. A code block with a script is one command. Returns an empty
/// list if there are no criteria.
pub fn from_issue(issue: &[DocumentPart]) -> Result<Vec<Check>, CriteriaError> {
    from_issue_with_facts(issue).map(|(checks, _)| checks)
}

/// Parses the checks in an issue, and the facts about the task under the key `task:` in its `ralph` blocks.
pub fn from_issue_with_facts(issue: &[DocumentPart]) -> Result<(Vec<Check>, StatedFacts), CriteriaError> {
    let found = read(issue);
    let (mut checks, mut facts) = (Vec::new(), StatedFacts::default());
    if found.blocks.is_empty() {
        checks = found.section;
    }
    for block in &found.blocks {
        let (of_block, stated) = from_block(block)?;
        checks.extend(of_block);
        facts = facts.and(&stated);
    }
    if checks.len() > MAX_CHECKS {
        return Err(CriteriaError::TooMany(checks.len()));
    }
    for check in &checks {
        validate(check)
            .map_err(|reason| CriteriaError::Invalid { name: check.name.clone(), reason: reason.to_string() })?;
    }
    Ok((checks, facts))
}

/// Result of one pass over a document.
#[derive(Default)]
struct IssueChecks {
    /// Texts of the `ralph` blocks.
    blocks: Vec<String>,
    /// Checks of the criteria sections.
    section: Vec<Check>,
}

/// Current list item: its prose and its inline code.
#[derive(Default)]
struct Item {
    prose: String,
    code: Vec<String>,
}

/// Position of the reader in the document.
#[derive(Default)]
struct IssueReader {
    found: IssueChecks,
    quotes: usize,
    /// Heading level of the current criteria section; `None` outside such a section.
    section: Option<u8>,
    heading: Option<(u8, String)>,
    items: Vec<Item>,
    struck: usize,
}

fn read(parts: &[DocumentPart]) -> IssueChecks {
    let mut reader = IssueReader::default();
    for part in parts {
        reader.take(part);
    }
    reader.found
}

impl IssueReader {
    fn take(&mut self, part: &DocumentPart) {
        match part {
            DocumentPart::Open(DocumentElement::Quote) => self.quotes += 1,
            DocumentPart::Close(DocumentElement::Quote) => self.quotes = self.quotes.saturating_sub(1),
            _ if self.quotes > 0 => {}
            DocumentPart::Open(DocumentElement::Struck) => self.struck += 1,
            DocumentPart::Close(DocumentElement::Struck) => self.struck = self.struck.saturating_sub(1),
            DocumentPart::Open(DocumentElement::Heading(level)) => self.heading = Some((*level, String::new())),
            DocumentPart::Close(DocumentElement::Heading(_)) => self.end_heading(),
            DocumentPart::CodeBlock { language, text } => self.block(language, text),
            DocumentPart::Open(DocumentElement::Item) => self.items.push(Item::default()),
            DocumentPart::Close(DocumentElement::Item) => self.end_item(),
            DocumentPart::Text(text) => self.text(text),
            DocumentPart::Break => self.text(" "),
            DocumentPart::Code(code) => {
                if let Some((_, title)) = &mut self.heading {
                    title.push_str(code);
                } else if let Some(item) = self.items.last_mut().filter(|_| self.struck == 0) {
                    item.code.push(code.clone());
                }
            }
            _ => {}
        }
    }

    fn text(&mut self, text: &str) {
        if let Some((_, title)) = &mut self.heading {
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

    fn block(&mut self, language: &str, text: &str) {
        if language == "ralph" {
            self.found.blocks.push(text.to_owned());
        } else if self.section.is_some() && SHELLS.contains(&language) {
            let commands = commands(text);
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

/// Whether inline code looks like a command line and not like a name, a path or a code fragment.
fn is_command(code: &str) -> bool {
    let Some(program) = PROGRAM.captures(code).and_then(|c| c.get(1)) else { return false };
    let alone = program.end() == code.len();
    !alone || KNOWN_ALONE.contains(&program.as_str()) || program.as_str().starts_with("./")
}

fn from_block(text: &str) -> Result<(Vec<Check>, StatedFacts), CriteriaError> {
    let meaningful =
        || text.lines().map(str::trim_end).filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    let mapping = meaningful().next().is_some_and(|line| KEYS.iter().any(|key| line.starts_with(&format!("{key}:"))));
    let list = meaningful().all(|line| line.starts_with("- ") || line.starts_with(' '))
        && meaningful().any(|l| l.starts_with("- "));
    if !mapping && !list {
        let commands = commands(text);
        let checks = commands.iter().map(|command| plain(command, CheckSource::Issue)).collect();
        return Ok((checks, StatedFacts::default()));
    }
    let value: Value =
        serde_saphyr::from_str(text).map_err(|error| CriteriaError::Block(first_line(&error.to_string())))?;
    let (entries, facts) = match value {
        Value::Array(entries) => (entries, StatedFacts::default()),
        Value::Object(mut map) => {
            let (entries, task) = (map.remove("checks"), map.remove("task"));
            if let Some(key) = map.keys().next() {
                return Err(CriteriaError::Block(format!(
                    "unknown key `{key}`; only `checks` and `task` can be given in an issue"
                )));
            }
            let entries = match (entries, &task) {
                (Some(Value::Array(entries)), _) => entries,
                (None, Some(_)) => Vec::new(),
                _ => return Err(CriteriaError::Block("`checks` must be a list".to_owned())),
            };
            (entries, task.map(stated).transpose()?.unwrap_or_default())
        }
        _ => return Err(CriteriaError::Block("expected `checks:` with a list, or one command per line".to_owned())),
    };
    if entries.len() > MAX_CHECKS {
        return Err(CriteriaError::TooMany(entries.len()));
    }
    let checks = entries.iter().map(|entry| check_from_value(entry, CheckSource::Issue)).collect::<Result<_, _>>()?;
    Ok((checks, facts))
}

/// Parses the facts about a task from the value of the key `task:`.
fn stated(task: Value) -> Result<StatedFacts, CriteriaError> {
    let facts: StatedFacts =
        serde_json::from_value(task).map_err(|error| CriteriaError::Block(format!("`task`: {error}")))?;
    match facts.problem("task") {
        Some(problem) => Err(CriteriaError::Block(problem)),
        None => Ok(facts),
    }
}

/// Returns the commands of a block: one per line, without the prompt `$ `, with continued lines joined. If any line has a
/// prompt, lines without a prompt are output and ignored. A block with a script (it changes folders, sets variables or
/// loops) is one command.
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
