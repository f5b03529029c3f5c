//! Renders Markdown to HTML like forges render issues and comments. Reports what leaves no trace in the HTML.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use comrak::arena_tree::NodeEdge;
use comrak::nodes::{Node, NodeCodeBlock, NodeValue};
use comrak::{Arena, Options};
use regex::Regex;

use crate::domain::model::document::{Unseen, UnseenKind};

/// Internal language that marks a block of checks with an unclosed fence.
pub(super) const UNCLOSED: &str = "ralph-unclosed";

/// Maximum number of parser steps per byte of Markdown, where each text counts as 1,000 bytes longer. Ordinary text needs less
/// than one step per byte.
/// byte.
const STEPS_A_BYTE: usize = 40;
/// Number of parser steps after which the limit is checked.
const STEPS_A_QUESTION: usize = 256;
/// Maximum length of the language of a code block, in bytes.
const LONGEST_LANGUAGE: usize = 20;
/// Maximum nesting of quotes and lists that one line may open.
const DEEPEST_LINE: usize = 64;
/// Maximum of the number of lines times the nesting of lists and quotes.
const COMPARISONS: usize = 4_000_000;

/// Beginning of a link reference definition, after markers of quotes and items: label, address, rest of the line.
static DEFINITION: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"^[ \t>*+-]*(?:\d{1,9}[.)][ \t]+)?\[([^\]\[^][^\]\[]{0,999})\]:[ \t]*(<[^>]*>|\S*)(.*)$")
        .expect("constant pattern")
});

/// Returns the parser options for issues and comments: GitHub Flavored Markdown in which every line break is kept.
fn options() -> Options<'static> {
    let mut options = Options::default();
    let extension = &mut options.extension;
    extension.strikethrough = true;
    extension.table = true;
    extension.autolink = true;
    extension.tasklist = true;
    extension.footnotes = true;
    extension.alerts = true;
    extension.math_dollars = true;
    extension.math_code = true;
    options.parse.leave_footnote_definitions = true;
    options.render.hardbreaks = true;
    options.render.r#unsafe = true;
    options
}

/// Rendered Markdown.
pub(super) struct Rendered {
    /// HTML fragment.
    pub html: String,
    /// Lines that look like link reference definitions and that no link uses.
    pub definitions: Vec<String>,
}

/// Renders Markdown. Returns `None` if it is nested too deeply to be parsed in linear time.
pub(super) fn render(markdown: &str, unseen: &mut Unseen) -> Option<Rendered> {
    let mut options = options();
    if has_front_matter(markdown) {
        options.extension.front_matter_delimiter = Some("---".to_owned());
    }
    let arena = Arena::new();
    let root = parse_with(&arena, markdown, &options)?;
    let lines: Vec<&str> = lines_of(markdown);
    let mut page = MarkdownPage { unseen, lines: &lines, code: HashSet::new(), links: HashSet::new() };
    let mut footnotes = Footnotes::default();
    for edge in root.traverse() {
        match edge {
            NodeEdge::Start(node) => {
                footnotes.enter(node);
                page.read(node);
            }
            NodeEdge::End(node) => footnotes.leave(node),
        }
    }
    let definitions = page.definitions();
    footnotes.place(root, unseen);
    let mut html = String::with_capacity(markdown.len() * 2);
    comrak::format_html(root, &options, &mut html).ok()?;
    Some(Rendered { html, definitions })
}

/// Parses Markdown with the same options as `render`. Returns `None` if it is nested too deeply to be parsed in linear time.
pub(in crate::domain) fn parse<'a>(arena: &'a Arena<'a>, markdown: &str) -> Option<Node<'a>> {
    parse_with(arena, markdown, &options())
}

fn parse_with<'a>(arena: &'a Arena<'a>, markdown: &str, options: &Options<'_>) -> Option<Node<'a>> {
    if too_deep(markdown) {
        return None;
    }
    let questions = Cell::new((markdown.len() + 1000) * STEPS_A_BYTE / STEPS_A_QUESTION);
    let tired = || {
        questions.set(questions.get().saturating_sub(1));
        questions.get() == 0
    };
    comrak::try_parse_document(arena, markdown, options, &tired).ok()
}

/// Splits a text at line endings as defined by CommonMark.
fn lines_of(markdown: &str) -> Vec<&str> {
    let mut lines = Vec::new();
    let mut rest = markdown;
    while let Some(at) = rest.find(['\n', '\r']) {
        lines.push(&rest[..at]);
        let end = if rest[at..].starts_with("\r\n") { at + 2 } else { at + 1 };
        rest = &rest[end..];
    }
    lines.push(rest);
    lines
}

/// Whether quotes and lists are nested so deeply that parsing would take long. The parser compares each line with all open quotes
/// and lists.
fn too_deep(markdown: &str) -> bool {
    let (mut lines, mut deepest, mut levels) = (0, None, 0);
    for line in markdown.split(['\n', '\r']) {
        lines += 1;
        let (marks, rule) = marks_of(line);
        if marks > DEEPEST_LINE && !rule {
            return true;
        }
        let indentation = line.len() - line.trim_start().len();
        if marks > 0 && deepest.is_none_or(|deepest| indentation > deepest) {
            deepest = Some(indentation);
            levels += marks;
        }
    }
    levels * lines > COMPARISONS
}

/// Returns the number of markers of quotes and items at the beginning of a line, and whether the line is a horizontal rule.
fn marks_of(line: &str) -> (usize, bool) {
    let bytes = line.as_bytes();
    let (mut marks, mut rule) = (0, true);
    let first = line.trim_start().bytes().next().unwrap_or_default();
    for (at, byte) in bytes.iter().enumerate() {
        let spaced = bytes.get(at + 1).is_none_or(|next| matches!(next, b' ' | b'\t'));
        match byte {
            b'>' => marks += 1,
            b'-' | b'+' | b'*' => marks += usize::from(spaced),
            b'.' | b')' => marks += usize::from(spaced && at > 0 && bytes[at - 1].is_ascii_digit()),
            b' ' | b'\t' | b'0'..=b'9' => {}
            _ => {
                rule = false;
                break;
            }
        }
        rule &= first != b'>' && (*byte == first || matches!(byte, b' ' | b'\t'));
    }
    (marks, rule)
}

/// Whether the text begins with a block that some forges read as front matter.
fn has_front_matter(markdown: &str) -> bool {
    static FIRST: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"\A\u{feff}?---[ \t]*\r?\n[ \t]*[\w-]+[ \t]*:").expect("constant pattern"));
    FIRST.is_match(markdown)
}

/// State of the pass over the nodes of a document.
struct MarkdownPage<'a> {
    unseen: &'a mut Unseen,
    lines: &'a [&'a str],
    /// 1-based numbers of the lines that are code or HTML.
    code: HashSet<usize>,
    /// Addresses of links and images.
    links: HashSet<String>,
}

impl MarkdownPage<'_> {
    fn read(&mut self, node: Node<'_>) {
        let mut data = node.data_mut();
        let place = data.sourcepos;
        let replacement = match &mut data.value {
            NodeValue::FrontMatter(text) => {
                self.unseen.add(UnseenKind::Metadata, text);
                self.code.extend(place.start.line..=place.end.line);
                None
            }
            NodeValue::CodeBlock(block) => {
                self.code.extend(place.start.line..=place.end.line);
                self.code_block(block);
                None
            }
            NodeValue::HtmlBlock(_) => {
                self.code.extend(place.start.line..=place.end.line);
                None
            }
            NodeValue::Link(link) | NodeValue::Image(link) => {
                self.links.insert(link.url.clone());
                None
            }
            NodeValue::Math(math) if math.dollar_math && !math.display_math => {
                // Forges draw a formula only if no letter follows: `$HOME/$USER` is none.
                let line = self.lines.get(place.end.line.wrapping_sub(1)).copied().unwrap_or_default();
                let next = line.get(place.end.column..).and_then(|rest| rest.chars().next());
                next.is_some_and(char::is_alphanumeric).then(|| NodeValue::Text(format!("${}$", math.literal).into()))
            }
            _ => None,
        };
        if let Some(replacement) = replacement {
            data.value = replacement;
        }
    }

    /// Reduces the info string of a code block to the language.
    fn code_block(&mut self, block: &mut NodeCodeBlock) {
        let info = block.info.trim();
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '#' | '_' | '.');
        let end = info.find(|c| !plain(c)).unwrap_or(info.len());
        let language = if end > LONGEST_LANGUAGE { "" } else { &info[..end] };
        let rest = info[language.len()..].trim();
        // `rust,no_run` and the like say how to highlight the code.
        let flag = rest.len() <= LONGEST_LANGUAGE && rest.starts_with(',') && rest[1..].chars().all(plain);
        if rest.chars().any(char::is_alphanumeric) && !flag {
            self.unseen.add(UnseenKind::CodeInfo, rest);
        }
        let unclosed = language.eq_ignore_ascii_case("ralph") && block.fenced && !block.closed;
        block.info = if unclosed { UNCLOSED.to_owned() } else { language.to_lowercase() };
    }

    /// Returns the lines that look like link reference definitions and whose address no link has.
    fn definitions(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (index, line) in self.lines.iter().enumerate() {
            if !line.contains("]:") || self.code.contains(&(index + 1)) {
                continue;
            }
            let Some(parts) = DEFINITION.captures(line) else { continue };
            let mut address = parts[2].trim_matches(['<', '>']).to_owned();
            let next = self.lines.get(index + 1).copied().unwrap_or_default().trim();
            if address.is_empty() {
                address = next.split_whitespace().next().unwrap_or_default().to_owned();
            }
            // A title may stand on the next line.
            let title = if next.starts_with(['"', '\'', '(']) { next } else { "" };
            let known = self.links.contains(&address) || self.links.contains(&comrak_address(&address));
            if !known {
                found.push(format!("{} {title}", line.trim()).trim().to_owned());
            }
        }
        found
    }
}

/// Returns an address as the Markdown parser stores it: without backslashes before punctuation.
fn comrak_address(address: &str) -> String {
    let mut clean = String::with_capacity(address.len());
    let mut characters = address.chars().peekable();
    while let Some(c) = characters.next() {
        if c != '\\' || !characters.peek().is_some_and(char::is_ascii_punctuation) {
            clean.push(c);
        }
    }
    clean
}

/// Footnotes of a document, and the references between them.
#[derive(Default)]
struct Footnotes<'a> {
    definitions: Vec<Node<'a>>,
    /// Names of the footnote definitions that are currently open.
    open: Vec<String>,
    /// Names and numbers of the referenced footnotes, by the footnote that refers to them; the key `None` is the text outside of
    /// footnotes.
    references: HashMap<Option<String>, Vec<(String, u32)>>,
}

impl<'a> Footnotes<'a> {
    fn enter(&mut self, node: Node<'a>) {
        match &node.data().value {
            NodeValue::FootnoteReference(reference) => {
                let from = self.open.last().cloned();
                self.references.entry(from).or_default().push((reference.name.clone(), reference.ix));
            }
            NodeValue::FootnoteDefinition(footnote) => {
                self.definitions.push(node);
                self.open.push(footnote.name.clone());
            }
            _ => {}
        }
    }

    fn leave(&mut self, node: Node<'a>) {
        if matches!(node.data().value, NodeValue::FootnoteDefinition(_)) {
            self.open.pop();
        }
    }

    /// Moves footnotes to the end, in the order of their references. Removes those that no visible text refers to.
    fn place(mut self, root: Node<'a>, unseen: &mut Unseen) {
        let mut numbers: HashMap<String, u32> = HashMap::new();
        let mut reached = self.references.remove(&None).unwrap_or_default();
        while let Some((name, number)) = reached.pop() {
            reached.extend(self.references.remove(&Some(name.clone())).unwrap_or_default());
            numbers.insert(name, number);
        }
        let mut shown = Vec::new();
        for node in self.definitions {
            let name = match &node.data().value {
                NodeValue::FootnoteDefinition(footnote) => footnote.name.clone(),
                _ => continue,
            };
            node.detach();
            match numbers.remove(&name) {
                Some(number) => shown.push((number, node)),
                None => {
                    let mut text = String::new();
                    node.collect_text_append(&mut text);
                    unseen.add(UnseenKind::Footnote, &format!("{name}: {text}"));
                }
            }
        }
        shown.sort_by_key(|(number, _)| *number);
        for (_, node) in shown {
            root.append(node);
        }
    }
}
