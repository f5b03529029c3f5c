//! Text of a forge for a prompt, as people see it on the forge; hidden text is removed.
//!
//! The Markdown is parsed and written again from its visible parts. Text that only some forges show is omitted: the
//! author notices a missing word, but nobody notices a hidden instruction.

mod html;

use std::sync::LazyLock;

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd, TextMergeStream};
use regex::Regex;

use super::longest_run;
use crate::domain::model::characters;

/// Maximum length that is read, in bytes; forges allow less.
const LONGEST: usize = 512 * 1024;
/// Maximum number of columns of a table; more do not fit a screen.
const COLUMNS: usize = 20;

/// Maximum nesting of quotes and lists that is kept.
const DEEPEST: usize = 20;

/// Length of white space that moves the following text off the screen.
static FAR_RIGHT: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"[^\S\n]{200,}[^\n]*").expect("a constant pattern"));
/// Data in an address.
static DATA_ADDRESS: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r#"(?i)\bdata:[\w/.+=-]*(?:;[\w=+.-]*)*,[^\s<>"')]*"#).expect("a constant pattern"));

/// Visible part of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prompted {
    /// Visible text as simple Markdown, trimmed.
    pub text: String,
    /// Number of parts omitted because the forge hides or collapses them.
    pub hidden_removed: usize,
}

/// Returns the visible text of `markdown`: without comments, attributes, link targets, descriptions of images,
/// definitions, footnotes, invisible characters, hidden elements, and text that is moved off the screen.
pub fn for_prompt(markdown: &str) -> Prompted {
    let cut = markdown.floor_char_boundary(LONGEST);
    let (visible, runs) = characters::visible(&markdown[..cut]);
    let options = Options::ENABLE_TABLES
        | Options::ENABLE_FOOTNOTES
        | Options::ENABLE_STRIKETHROUGH
        | Options::ENABLE_TASKLISTS
        | Options::ENABLE_GFM;
    let parser = Parser::new_ext(&visible, options);
    let definitions = parser.reference_definitions().iter().count();
    let mut page = Page { removed: runs + definitions + usize::from(cut < markdown.len()), ..Page::default() };
    for event in TextMergeStream::new(parser) {
        page.take(event);
    }
    let Page { out, mut removed, .. } = page;
    // References to characters have become characters by now.
    let (mut text, runs) = characters::visible(&out);
    removed += runs;
    for pattern in [&FAR_RIGHT, &DATA_ADDRESS] {
        removed += pattern.find_iter(&text).count();
        text = pattern.replace_all(&text, "").into_owned();
    }
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    Prompted { text: lines.join("\n").trim().to_owned(), hidden_removed: removed }
}

/// State of reading a text.
#[derive(Default)]
struct Page {
    out: String,
    removed: usize,
    /// Parts within which nothing counts (pictures, footnotes).
    muted: usize,
    /// HTML elements that hide what is in them, and all that were opened within.
    elements: html::Elements,
    /// The rest of this block is hidden (a comment that was opened and not closed).
    block_is_over: bool,
    /// Open lists: the next number, or none for bullets.
    lists: Vec<Option<u64>>,
    quotes: usize,
    /// Byte offset in `out` of the last line.
    line_begin: usize,
    /// Text of the code or HTML block that is being read.
    block: Option<String>,
    code_language: String,
    column: usize,
}

impl Page {
    fn take(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) | Event::InlineMath(text) | Event::DisplayMath(text) => match &mut self.block {
                Some(block) => block.push_str(&text),
                None => self.text(&text),
            },
            Event::Code(code) => {
                let ticks = "`".repeat(longest_run(&code, '`') + 1);
                let pad = if code.starts_with('`') || code.ends_with('`') { " " } else { "" };
                self.push(&format!("{ticks}{pad}{code}{pad}{ticks}"));
            }
            Event::Html(html) => match &mut self.block {
                Some(block) => block.push_str(&html),
                None => self.html(&html, false),
            },
            Event::InlineHtml(html) => self.html(&html, true),
            Event::SoftBreak | Event::HardBreak => self.line(),
            Event::Rule => {
                self.paragraph();
                self.push("---");
            }
            Event::TaskListMarker(done) => self.push(if done { "[x] " } else { "[ ] " }),
            Event::FootnoteReference(_) => {}
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Paragraph | Tag::Table(_) => self.paragraph(),
            Tag::Heading { level, .. } => {
                self.paragraph();
                self.push(&"#".repeat(level as usize));
                self.push(" ");
            }
            Tag::BlockQuote(_) => {
                self.paragraph();
                self.quotes += 1;
                if self.quotes <= DEEPEST {
                    self.push("> ");
                }
            }
            Tag::CodeBlock(kind) => {
                let info = match &kind {
                    CodeBlockKind::Fenced(info) => info.as_ref(),
                    CodeBlockKind::Indented => "",
                };
                let mut words = info.split_whitespace();
                let language = words.next().unwrap_or_default();
                let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '#' | '_');
                self.code_language = language.chars().take_while(|c| plain(*c)).take(20).collect();
                self.removed += usize::from(words.next().is_some() || self.code_language.len() < language.len());
                self.block = Some(String::new());
            }
            Tag::HtmlBlock => self.block = Some(String::new()),
            Tag::List(first) => self.lists.push(first),
            Tag::Item => {
                self.line();
                let depth = self.lists.len().saturating_sub(1);
                let mark = match self.lists.last_mut() {
                    Some(Some(number)) => {
                        *number = number.saturating_add(1);
                        format!("{}. ", number.saturating_sub(1))
                    }
                    _ => "- ".to_owned(),
                };
                self.push(&format!("{}{mark}", "  ".repeat(depth.min(DEEPEST))));
            }
            Tag::TableHead | Tag::TableRow => {
                self.line();
                self.column = 0;
            }
            Tag::TableCell => {
                self.column += 1;
                if self.column > COLUMNS {
                    self.muted += 1;
                    self.removed += 1;
                } else if self.column > 1 {
                    self.push(" | ");
                }
            }
            Tag::Image { .. } => {
                self.push("[picture]");
                self.mute();
            }
            Tag::FootnoteDefinition(_) | Tag::MetadataBlock(_) => self.mute(),
            Tag::Link { title, .. } => self.removed += usize::from(!title.is_empty()),
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Paragraph | TagEnd::Heading(_) | TagEnd::TableCell => {
                self.block_is_over = false;
                self.elements.end_of_block();
                if tag == TagEnd::TableCell && self.column > COLUMNS {
                    self.muted = self.muted.saturating_sub(1);
                }
            }
            TagEnd::Item => {
                self.block_is_over = false;
                self.elements.end_of_block();
            }
            TagEnd::BlockQuote(_) => self.quotes = self.quotes.saturating_sub(1),
            TagEnd::List(_) => {
                self.lists.pop();
            }
            TagEnd::CodeBlock => {
                let block = self.block.take().unwrap_or_default();
                self.code(&block);
            }
            TagEnd::HtmlBlock => {
                let block = self.block.take().unwrap_or_default();
                self.paragraph();
                self.html(&block, false);
            }
            TagEnd::Image | TagEnd::FootnoteDefinition | TagEnd::MetadataBlock(_) => {
                self.muted = self.muted.saturating_sub(1);
            }
            _ => {}
        }
    }

    fn mute(&mut self) {
        self.muted += 1;
        self.removed += 1;
    }

    /// Running text. What looks like the beginning of a comment hides the rest of its block.
    fn text(&mut self, text: &str) {
        match text.find("<!--") {
            Some(at) if !self.block_is_over => {
                self.push(&text[..at]);
                self.block_is_over = true;
                self.removed += 1;
            }
            _ => self.push(text),
        }
    }

    fn code(&mut self, block: &str) {
        let diagram = self.code_language.eq_ignore_ascii_case("mermaid");
        let (shown, notes): (Vec<&str>, Vec<&str>) =
            block.lines().partition(|line| !(diagram && line.trim_start().starts_with("%%")));
        self.removed += notes.len();
        let ticks = "`".repeat(longest_run(block, '`').max(2) + 1);
        self.paragraph();
        self.push(&format!("{ticks}{}", self.code_language));
        for line in shown {
            self.line();
            self.push(line);
        }
        self.line();
        self.push(&ticks);
    }

    fn html(&mut self, source: &str, inline: bool) {
        for part in html::parts(source) {
            match part {
                html::HtmlPart::Text(text) if !inline => {
                    let text = characters::decode_once(text);
                    if !text.trim().is_empty() {
                        self.text(&text);
                    }
                }
                html::HtmlPart::Text(text) => self.text(text),
                html::HtmlPart::Hidden => self.removed += 1,
                html::HtmlPart::Open(tag) => {
                    self.removed += usize::from(tag.hides || tag.says_something || tag.name == "details");
                    match tag.name.as_str() {
                        "img" => self.push("[picture]"),
                        name if html::BREAKS.contains(&name) => self.line(),
                        "td" | "th" => self.push(" "),
                        _ => {}
                    }
                    self.elements.open(tag, inline);
                }
                html::HtmlPart::Close(name) => self.elements.close(&name),
            }
        }
    }

    fn is_hidden(&self) -> bool {
        self.muted > 0 || self.block_is_over || self.elements.hide()
    }

    fn push(&mut self, text: &str) {
        if !self.is_hidden() {
            self.out.push_str(text);
        }
    }

    /// A new line, unless one has just begun.
    fn line(&mut self) {
        if self.is_hidden() || self.out.is_empty() || self.at_line_start() {
            return;
        }
        self.out.push('\n');
        self.line_begin = self.out.len();
        self.out.push_str(&"> ".repeat(self.quotes.min(DEEPEST)));
    }

    /// A new line after an empty one, unless an item or quote has just begun.
    fn paragraph(&mut self) {
        if self.is_hidden() || self.out.is_empty() {
            return;
        }
        if self.lists.is_empty() || !self.at_line_start() {
            self.line();
            if !self.out.ends_with("\n\n") && self.out.ends_with('\n') {
                self.out.push('\n');
                self.line_begin = self.out.len();
            }
        }
    }

    /// Whether nothing but marks of items and quotes stands on the last line.
    fn at_line_start(&self) -> bool {
        const LONGEST_MARKS: usize = 200;
        let line = self.out.get(self.line_begin..).unwrap_or_default();
        if line.len() > LONGEST_MARKS {
            return false;
        }
        let rest = line.trim_start_matches(['>', ' ']);
        rest.is_empty()
            || matches!(rest, "- " | "* ")
            || (rest.ends_with(". ") && rest.len() < 12 && rest[..rest.len() - 2].bytes().all(|b| b.is_ascii_digit()))
    }
}
