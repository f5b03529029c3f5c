//! Writes a document as text for agents, similar to Markdown.

use std::sync::LazyLock;

use regex::Regex;

use crate::domain::model::document::{DocumentElement, DocumentPart, DrawnKind};
use crate::domain::trust::sanitize::longest_run;

/// Maximum nesting of quotes and lists that is written.
const DEEPEST: usize = 6;
/// Language of a block with checks.
const CHECKS: &str = "ralph";
/// Maximum length of the text, in bytes.
const LONGEST: usize = 1024 * 1024;

/// Image in the text of parts, with its address.
static IMAGE: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"!\[image\]\(<([^<>\s]*)>\)").expect("a constant pattern"));

/// Returns the text of parts, without white space at its ends. Code blocks are verbatim. Images have their addresses, which
/// [`without_addresses`] removes.
pub(super) fn text(parts: &[DocumentPart]) -> String {
    let mut writer = DocumentWriter::default();
    for part in parts {
        writer.part(part);
        if writer.out.len() > LONGEST {
            writer.out.push_str("\n[the rest of the text is too long]");
            break;
        }
    }
    let lines: Vec<&str> = writer.out.lines().map(str::trim_end).collect();
    lines.join("\n").trim().to_owned()
}

/// Removes the addresses of images from a text.
pub(super) fn without_addresses(text: &str) -> String {
    IMAGE.replace_all(text, "[image]").into_owned()
}

/// Returns the addresses of the images in a text.
pub(super) fn addresses(text: &str) -> Vec<String> {
    IMAGE.captures_iter(text).map(|found| found[1].to_owned()).collect()
}

/// White space that is required before the next text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
enum Gap {
    #[default]
    None,
    Line,
    Blank,
}

/// List that is currently open.
struct OpenList {
    /// Number of the next item; `None` in a bulleted list.
    next: Option<u64>,
}

/// State of the text around a table cell, while the cell is being written.
struct OuterText {
    out: String,
    gap: Gap,
    prefixes: Vec<String>,
    lists: Vec<OpenList>,
}

/// Writer of a text.
#[derive(Default)]
struct DocumentWriter {
    out: String,
    gap: Gap,
    /// Number of quotes around the gap.
    gap_quotes: usize,
    /// Prefixes of each line: markers of quotes and indentation of items.
    prefixes: Vec<String>,
    /// Markers of items that just started, each with the index of its prefix.
    markers: Vec<(usize, String)>,
    lists: Vec<OpenList>,
    /// Nesting of tables. Inner tables are written as text.
    tables: usize,
    /// Cells of the open row; `None` outside of a row.
    row: Option<Vec<String>>,
    /// State before the open cell; `None` outside of a cell.
    cell: Option<OuterText>,
    /// Number of rows of the open table.
    rows: usize,
}

impl DocumentWriter {
    fn part(&mut self, part: &DocumentPart) {
        match part {
            DocumentPart::Open(element) => self.open(element),
            DocumentPart::Close(element) => self.close(element),
            DocumentPart::Text(text) => self.words(text),
            DocumentPart::Code(code) => self.push(&inline_code(code)),
            DocumentPart::Break => self.need(Gap::Line),
            DocumentPart::Rule => {
                self.need(Gap::Blank);
                self.push("---");
                self.need(Gap::Blank);
            }
            DocumentPart::Task { done } => self.push(if *done { "[x] " } else { "[ ] " }),
            DocumentPart::Image { address } if address.contains(['<', '>', ' ', '\n']) => self.push("[image]"),
            DocumentPart::Image { address } => self.push(&format!("![image](<{address}>)")),
            // Other languages would be a place for words that the page does not show.
            DocumentPart::CodeBlock { language, text } if language == CHECKS => self.code_block(CHECKS, text),
            DocumentPart::CodeBlock { text, .. } => self.code_block("", text),
            DocumentPart::Drawing { kind, source, inline } => self.drawing(*kind, source, *inline),
        }
    }

    fn open(&mut self, element: &DocumentElement) {
        match element {
            DocumentElement::Paragraph | DocumentElement::Block => self.need(Gap::Blank),
            DocumentElement::Heading(level) => {
                self.need(Gap::Blank);
                self.push(&format!("{} ", "#".repeat(usize::from(*level))));
            }
            DocumentElement::Quote => {
                self.need(Gap::Blank);
                self.prefixes.push("> ".into());
            }
            DocumentElement::List(first) => {
                self.need(if self.lists.is_empty() { Gap::Blank } else { Gap::Line });
                self.lists.push(OpenList { next: *first });
            }
            DocumentElement::Item => self.item(),
            DocumentElement::Table => {
                self.need(Gap::Blank);
                self.tables += 1;
                if self.tables == 1 {
                    self.rows = 0;
                }
            }
            DocumentElement::Row if self.tables == 1 => self.row = Some(Vec::new()),
            DocumentElement::Row => self.need(Gap::Line),
            DocumentElement::Cell if self.tables == 1 && self.row.is_some() => {
                self.cell = Some(OuterText {
                    out: std::mem::take(&mut self.out),
                    gap: std::mem::take(&mut self.gap),
                    prefixes: std::mem::take(&mut self.prefixes),
                    lists: std::mem::take(&mut self.lists),
                });
            }
            DocumentElement::Cell => self.words(" "),
            DocumentElement::FootnoteReference => self.push("["),
            DocumentElement::Struck => self.push("~~"),
            DocumentElement::Collapsed => {
                self.need(Gap::Blank);
                self.push("[collapsed section]");
                self.need(Gap::Line);
            }
            DocumentElement::Summary => self.need(Gap::Line),
            DocumentElement::Link(_) | DocumentElement::Inline => {}
        }
    }

    fn close(&mut self, element: &DocumentElement) {
        match element {
            DocumentElement::Paragraph
            | DocumentElement::Block
            | DocumentElement::Heading(_)
            | DocumentElement::Summary => self.need(Gap::Blank),
            DocumentElement::Quote => {
                self.prefixes.pop();
                self.need(Gap::Blank);
            }
            DocumentElement::List(_) => {
                self.lists.pop();
                self.need(if self.lists.is_empty() { Gap::Blank } else { Gap::Line });
            }
            DocumentElement::Item => {
                self.flush_markers();
                self.prefixes.pop();
                self.need(Gap::Line);
            }
            DocumentElement::Table => {
                self.tables = self.tables.saturating_sub(1);
                self.need(Gap::Blank);
            }
            DocumentElement::Row if self.tables == 1 => self.end_row(),
            DocumentElement::Row => self.need(Gap::Line),
            DocumentElement::Cell if self.tables == 1 => {
                if let Some(outer) = self.cell.take() {
                    let cell = std::mem::replace(&mut self.out, outer.out);
                    (self.gap, self.prefixes, self.lists) = (outer.gap, outer.prefixes, outer.lists);
                    self.markers.clear();
                    if let Some(row) = &mut self.row {
                        row.push(cell.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|"));
                    }
                }
            }
            DocumentElement::Cell | DocumentElement::Inline => {}
            DocumentElement::FootnoteReference => self.push("]"),
            DocumentElement::Struck => self.push("~~"),
            DocumentElement::Collapsed => {
                self.need(Gap::Blank);
                self.push("[end of collapsed section]");
                self.need(Gap::Blank);
            }
            DocumentElement::Link(address) => self.push(&format!(" ({address})")),
        }
    }

    fn item(&mut self) {
        self.need(Gap::Line);
        let marker = match self.lists.last_mut() {
            Some(OpenList { next: Some(number) }) => {
                let marker = format!("{number}. ");
                *number = number.saturating_add(1);
                marker
            }
            _ => "- ".to_owned(),
        };
        self.markers.push((self.prefixes.len(), marker.clone()));
        self.prefixes.push(" ".repeat(marker.len()));
    }

    /// Writes the pending marker of an item that has no text.
    fn flush_markers(&mut self) {
        if !self.markers.is_empty() {
            self.push("");
        }
    }

    fn end_row(&mut self) {
        let Some(row) = self.row.take() else { return };
        self.need(Gap::Line);
        self.push(&format!("| {} |", row.join(" | ")));
        self.need(Gap::Line);
        if self.rows == 0 {
            self.push(&format!("|{}", "---|".repeat(row.len().max(1))));
            self.need(Gap::Line);
        }
        self.rows += 1;
    }

    fn code_block(&mut self, language: &str, text: &str) {
        let ticks = "`".repeat(longest_run(text, '`').max(2) + 1);
        self.need(Gap::Blank);
        self.push(&format!("{ticks}{language}"));
        for line in text.lines() {
            self.new_line();
            self.push(line);
        }
        self.new_line();
        self.push(&ticks);
        self.need(Gap::Blank);
    }

    fn drawing(&mut self, kind: DrawnKind, source: &str, inline: bool) {
        if inline && !source.contains('\n') {
            let code = inline_code(&source.split_whitespace().collect::<Vec<_>>().join(" "));
            return self.push(&format!("{code} (source of {}, which people see drawn)", kind.description()));
        }
        self.need(Gap::Blank);
        self.push(&format!("The following is the source of {}, which people see drawn:", kind.description()));
        self.code_block(kind.language(), source);
        self.push(&format!("End of the source of {}.", kind.description()));
        self.need(Gap::Blank);
    }

    /// Requires a line break or an empty line before the next text. After the marker of an item, text follows directly.
    fn need(&mut self, gap: Gap) {
        if self.markers.is_empty() {
            let quotes = self.prefixes.iter().take(DEEPEST).take_while(|prefix| prefix.starts_with('>')).count();
            self.gap_quotes = if self.gap == Gap::None { quotes } else { self.gap_quotes.min(quotes) };
            self.gap = self.gap.max(gap);
        }
    }

    /// Starts a new line, even if the last line is empty.
    fn new_line(&mut self) {
        self.gap = Gap::None;
        self.out.push('\n');
        self.prefix(false);
    }

    fn prefix(&mut self, marked: bool) {
        for (at, prefix) in self.prefixes.iter().enumerate() {
            let marker = self.markers.iter().find(|(place, _)| marked && *place == at);
            match marker {
                Some((_, marker)) => self.out.push_str(marker),
                None if at < DEEPEST => self.out.push_str(prefix),
                None => {}
            }
        }
    }

    /// Appends running text without spaces at the start of a line.
    fn words(&mut self, text: &str) {
        let begins =
            self.gap != Gap::None || !self.markers.is_empty() || self.out.is_empty() || self.out.ends_with([' ', '\n']);
        let text = if begins { text.trim_start_matches(' ') } else { text };
        if !text.is_empty() {
            self.push(text);
        }
    }

    fn push(&mut self, text: &str) {
        if !self.markers.is_empty() && self.gap == Gap::None && !self.out.is_empty() {
            self.gap = Gap::Line;
        }
        let begins = self.out.is_empty();
        if !begins && self.gap != Gap::None {
            self.out.push('\n');
            if self.gap == Gap::Blank {
                self.out.push_str("> ".repeat(self.gap_quotes).trim_end());
                self.out.push('\n');
            }
        }
        if begins || self.gap != Gap::None {
            self.prefix(true);
        }
        self.markers.clear();
        self.gap = Gap::None;
        self.out.push_str(text);
    }
}

/// Returns inline code, delimited by more backticks than any run of backticks in it.
fn inline_code(code: &str) -> String {
    let ticks = "`".repeat(longest_run(code, '`') + 1);
    let pad = if code.starts_with('`') || code.ends_with('`') { " " } else { "" };
    format!("{ticks}{pad}{code}{pad}{ticks}")
}
