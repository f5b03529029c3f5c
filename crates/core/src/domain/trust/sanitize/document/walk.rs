//! Converts the HTML tree of a page to a document. Allowed elements become parts of it; everything else becomes text or is
//! hidden.

use std::sync::LazyLock;

use html5ever::{Attribute, QualName};
use regex::Regex;

use super::tree::{HtmlContent, HtmlNode, ROOT};
use super::{attributes, drawn, markdown};
use crate::domain::model::characters;
use crate::domain::model::document::{Document, DocumentElement, DocumentPart, DrawnKind, Unseen, UnseenKind};

/// White space that is so long that it moves the following text off the screen.
static FAR_RIGHT: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"[^\S\r\n]{200,}\S[^\r\n]*").expect("a constant pattern"));
/// `data:` URL in a text.
static DATA_ADDRESS: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r#"(?i)\bdata:[\w/.+=-]*(?:;[\w=+.-]*)*,[^\s<>"')]*"#).expect("a constant pattern"));
/// Color of which GitHub displays a sample.
static COLOR: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?i)^(?:#[0-9a-f]{6}|rgba?\(\s*\d{1,3}(?:\s*,\s*[\d.%]+){2,3}\s*\)|hsla?\(\s*\d{1,3}(?:\s*,\s*[\d.%]+){2,3}\s*\))$")
        .expect("a constant pattern")
});

/// Number of consecutive lines without visible text after which text counts as displaced, because nobody scrolls further.
const EMPTY_LINES: usize = 100;
/// Maximum number of columns of a table; further ones are off the screen.
const COLUMNS: usize = 20;
/// Maximum nesting of elements that shrink text; deeper text is too small to be read.
const SHRUNK: usize = 3;
/// Maximum length of an image description, in characters; the rest is hidden.
const DESCRIPTION: usize = 100;
/// Maximum length of an address that is not the text of its link, in bytes.
const LONGEST_ADDRESS: usize = 200;
/// Maximum length of such an address, in bytes, if a part of it consists of words.
const LONGEST_WORDS: usize = 120;
/// Minimum number of words in a part of an address that count as a sentence.
const SENTENCE: usize = 5;
/// Minimum length of a word without separators that counts as a sentence, in letters.
const LONG_WORD: usize = 40;
/// Maximum length of a document's text, in bytes. Forges allow less.
const TEXT_BYTES: usize = 512 * 1024;

/// Converts a tree and adds the result to a document and its report.
pub(super) fn read(nodes: &[HtmlNode], document: &mut Document) {
    let mut walk = DocumentWalk {
        nodes,
        document,
        open: Vec::new(),
        empty: 0,
        displaced: false,
        columns: Vec::new(),
        shrunk: 0,
        bytes: 0,
    };
    let mut at = ROOT;
    loop {
        let inside = walk.enter(at);
        if inside && let Some(first) = nodes[at].first {
            at = first;
            continue;
        }
        if inside {
            walk.leave();
        }
        loop {
            if at == ROOT {
                return;
            }
            if let Some(next) = nodes[at].next {
                at = next;
                break;
            }
            at = nodes[at].parent.unwrap_or(ROOT);
            walk.leave();
        }
    }
}

/// Element that is currently open.
struct OpenElement {
    /// Element that was opened in the document; `None` if there is no counterpart.
    part: Option<DocumentElement>,
    /// Whether the element is displayed on lines of its own.
    block: bool,
    /// Whether the element is a table row.
    row: bool,
    /// Whether the element shrinks its text.
    shrinks: bool,
    /// Number of parts of the document before the element.
    parts: usize,
}

/// State of converting a tree.
struct DocumentWalk<'a> {
    nodes: &'a [HtmlNode],
    document: &'a mut Document,
    open: Vec<OpenElement>,
    /// Number of consecutive lines without visible text up to the current position.
    empty: usize,
    /// Whether the current position is too far down, so that the rest is hidden.
    displaced: bool,
    /// Number of cells so far, for each open row.
    columns: Vec<usize>,
    /// Number of open elements that shrink their text.
    shrunk: usize,
    /// Length of the text so far, in bytes.
    bytes: usize,
}

impl DocumentWalk<'_> {
    fn unseen(&mut self) -> &mut Unseen {
        &mut self.document.unseen
    }

    /// Enters a node. Returns whether its children are to be visited.
    fn enter(&mut self, at: usize) -> bool {
        let nodes = self.nodes;
        match &nodes[at].content {
            HtmlContent::Text(text) => {
                self.text(text);
                false
            }
            HtmlContent::Element(name, attributes) => self.element(at, name, attributes),
            HtmlContent::Other => {
                if at == ROOT {
                    self.push_open(None, false);
                }
                at == ROOT
            }
        }
    }

    fn push_open(&mut self, part: Option<DocumentElement>, block: bool) {
        let part = part.filter(|_| !self.displaced);
        if let Some(part) = &part {
            self.document.parts.push(DocumentPart::Open(part.clone()));
        }
        self.open.push(OpenElement { part, block, row: false, shrinks: false, parts: self.document.parts.len() });
    }

    fn leave(&mut self) {
        let Some(element) = self.open.pop() else { return };
        self.shrunk -= usize::from(element.shrinks);
        if element.row {
            self.columns.pop();
        }
        if element.block && self.document.parts.len() == element.parts {
            self.line();
        }
        if let Some(part) = element.part {
            self.document.parts.push(DocumentPart::Close(part));
        }
    }

    /// Counts a line without visible text.
    fn line(&mut self) {
        self.empty += 1;
        self.displaced |= self.empty > EMPTY_LINES;
    }

    fn element(&mut self, at: usize, name: &QualName, attributes: &[Attribute]) -> bool {
        if hides(self.nodes, at, name, attributes) {
            self.hide(at, UnseenKind::Element);
            return false;
        }
        let paragraph = Some(DocumentElement::Paragraph);
        let (part, block) = match &*name.local {
            "p" | "div" | "section" | "article" | "aside" | "header" | "footer" | "main" | "nav" | "figure"
            | "figcaption" | "center" | "address" | "caption" | "dl" | "dt" | "dd" | "fieldset" | "legend" | "form"
            | "hgroup" => (paragraph, true),
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => {
                let level = name.local.as_bytes().get(1).map_or(1, |digit| digit - b'0');
                (Some(DocumentElement::Heading(level)), true)
            }
            "blockquote" => (Some(DocumentElement::Quote), true),
            "ul" | "menu" | "dir" => (Some(DocumentElement::List(None)), true),
            "ol" => {
                let first = attributes::value(attributes, "start").and_then(|start| start.parse().ok());
                (Some(DocumentElement::List(Some(first.unwrap_or(1)))), true)
            }
            "li" => (Some(DocumentElement::Item), true),
            "table" => (Some(DocumentElement::Table), true),
            "tr" => {
                self.columns.push(0);
                self.push_open(Some(DocumentElement::Row), true);
                if let Some(open) = self.open.last_mut() {
                    open.row = true;
                }
                return true;
            }
            "td" | "th" => return self.cell(at),
            "details" if attributes::value(attributes, "open").is_none() => (Some(DocumentElement::Collapsed), true),
            "details" => (paragraph, true),
            "summary" => (Some(DocumentElement::Summary), true),
            "a" => (self.link(at, attributes), false),
            "s" | "del" | "strike" => (Some(DocumentElement::Struck), false),
            "sub" | "sup" | "small" => return self.smaller(at),
            _ => return self.leaf(at, name, attributes),
        };
        self.push_open(part, block);
        true
    }

    /// Converts an element without content of its own. Returns whether the children are to be visited.
    fn leaf(&mut self, at: usize, name: &QualName, attributes: &[Attribute]) -> bool {
        match &*name.local {
            "br" => {
                self.line();
                self.push(DocumentPart::Break);
            }
            "hr" => self.push(DocumentPart::Rule),
            "img" | "image" => {
                let value = |name| attributes::value(attributes, name).unwrap_or_default();
                self.image(value("alt"), value("src"));
            }
            "input" => {
                if attributes::value(attributes, "type").is_some_and(|kind| kind.eq_ignore_ascii_case("checkbox")) {
                    self.push(DocumentPart::Task { done: attributes::value(attributes, "checked").is_some() });
                }
            }
            "pre" | "listing" => self.pre(at, attributes),
            _ if attributes::value(attributes, "data-math-style").is_some() => {
                let source = self.gather(at);
                self.drawing(DrawnKind::Formula, &source, true);
            }
            "code" | "tt" | "kbd" | "samp" => {
                let code = self.gather(at).split_whitespace().collect::<Vec<_>>().join(" ");
                if !code.is_empty() {
                    let color = &*name.local == "code" && COLOR.is_match(&code);
                    self.push(if color { DocumentPart::Color(code) } else { DocumentPart::Code(code) });
                }
            }
            _ => {
                self.push_open(None, false);
                return true;
            }
        }
        false
    }

    fn cell(&mut self, at: usize) -> bool {
        if let Some(column) = self.columns.last_mut() {
            *column += 1;
            if *column > COLUMNS {
                self.hide(at, UnseenKind::Displaced);
                return false;
            }
        }
        self.push_open(Some(DocumentElement::Cell), false);
        true
    }

    fn smaller(&mut self, at: usize) -> bool {
        if self.shrunk >= SHRUNK {
            self.hide(at, UnseenKind::Displaced);
            return false;
        }
        self.push_open(None, false);
        self.shrunk += 1;
        if let Some(open) = self.open.last_mut() {
            open.shrinks = true;
        }
        true
    }

    /// Returns the element for a link; `None` if its address need not be displayed.
    fn link(&mut self, at: usize, attributes: &[Attribute]) -> Option<DocumentElement> {
        let address = attributes::value(attributes, "href")?.trim();
        if address.starts_with("#fn-") {
            return Some(DocumentElement::FootnoteReference);
        }
        if address.is_empty() || address.starts_with('#') {
            return None;
        }
        let scheme = address
            .split(['/', '?', '#'])
            .next()
            .unwrap_or_default()
            .split_once(':')
            .map(|(scheme, _)| scheme.to_ascii_lowercase());
        let known = scheme.is_none_or(|scheme| matches!(scheme.as_str(), "http" | "https" | "mailto" | "ftp"));
        let plain = !address.chars().any(|c| c.is_whitespace() || characters::is_invisible(c));
        let text = self.plain_text(at);
        let text = text.trim();
        let same = text == address
            || address.strip_prefix("mailto:") == Some(text)
            || address.strip_prefix("http://") == Some(text);
        if !known || !plain || address.contains(":~:") || (!same && has_hidden_words(address)) {
            self.unseen().add(UnseenKind::Address, address);
            return None;
        }
        (!same).then(|| DocumentElement::Link(address.to_owned()))
    }

    fn image(&mut self, description: &str, address: &str) {
        let (text, runs) = characters::visible(description);
        self.characters(runs, description);
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let end = text.char_indices().nth(DESCRIPTION).map_or(text.len(), |(at, _)| at);
        if end < text.len() {
            self.unseen().add(UnseenKind::Attribute, &text[end..]);
        }
        self.push(DocumentPart::Image { text: text[..end].to_owned(), address: address.trim().to_owned() });
    }

    fn pre(&mut self, at: usize, attributes: &[Attribute]) {
        let nodes = self.nodes;
        let mut language = attributes::value(attributes, "lang").unwrap_or_default().to_owned();
        let child = nodes[at].first.map(|first| &nodes[first].content);
        if let Some(HtmlContent::Element(_, attributes)) = child {
            let class = attributes::value(attributes, "class").unwrap_or_default();
            let named = class.split_ascii_whitespace().find_map(|class| class.strip_prefix("language-"));
            language = named.map_or(language, str::to_owned);
        }
        let closed = language != markdown::UNCLOSED;
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '#' | '_' | '.');
        language = if closed { language.chars().take_while(|c| plain(*c)).take(20).collect() } else { "ralph".into() };
        let text = self.gather(at);
        match DrawnKind::of_language(&language) {
            Some(kind) => self.drawing(kind, &text, false),
            None => self.code_block(language, &text, closed),
        }
    }

    /// Adds a code block, up to the part that is off the screen.
    fn code_block(&mut self, language: String, text: &str, closed: bool) {
        if self.displaced {
            return self.unseen().add(UnseenKind::Displaced, text);
        }
        let mut shown_lines: Vec<String> = Vec::new();
        let mut lines = text.lines();
        for line in lines.by_ref() {
            if line.trim().is_empty() {
                self.line();
            } else {
                self.empty = 0;
            }
            if self.displaced {
                break;
            }
            shown_lines.push(self.near(line));
        }
        let rest = lines.collect::<Vec<_>>().join("\n");
        if !rest.trim().is_empty() {
            self.unseen().add(UnseenKind::Displaced, rest.trim());
        }
        self.add(DocumentPart::CodeBlock { language, text: shown_lines.join("\n"), closed });
    }

    fn drawing(&mut self, kind: DrawnKind, source: &str, inline: bool) {
        if self.displaced {
            return self.unseen().add(UnseenKind::Displaced, source);
        }
        if let Some(source) = drawn::source(kind, source, &mut self.document.unseen) {
            self.push(DocumentPart::Drawing { kind, source, inline });
        }
    }

    /// Reports runs of invisible characters in a text.
    fn characters(&mut self, runs: usize, text: &str) {
        if runs > 0 {
            self.unseen().add_all(UnseenKind::Character, runs, &characters::code_points(text));
        }
    }

    /// Adds running text.
    fn text(&mut self, text: &str) {
        let (mut visible, runs) = characters::visible(text);
        self.characters(runs, text);
        visible = self.near(&visible);
        if visible.contains(':') {
            for found in DATA_ADDRESS.find_iter(&visible) {
                self.document.unseen.add(UnseenKind::Address, found.as_str());
            }
            visible = DATA_ADDRESS.replace_all(&visible, "").into_owned();
        }
        let mut line = String::with_capacity(visible.len());
        for c in visible.chars() {
            if !c.is_ascii_whitespace() {
                line.push(c);
            } else if !line.ends_with(' ') {
                line.push(' ');
            }
        }
        if line.trim().is_empty() {
            // White space between blocks is nothing; between words it is a space.
            if !line.is_empty() && self.document.parts.last().is_some_and(is_inline) {
                self.add(DocumentPart::Text(" ".into()));
            }
            return;
        }
        self.push(DocumentPart::Text(line));
    }

    /// Returns a text without the parts that are far to the right.
    fn near(&mut self, text: &str) -> String {
        if text.len() < 200 {
            return text.to_owned();
        }
        for found in FAR_RIGHT.find_iter(text) {
            self.document.unseen.add(UnseenKind::Displaced, found.as_str().trim());
        }
        FAR_RIGHT.replace_all(text, "").into_owned()
    }

    /// Adds a visible part, or hides it if the current position is too far down.
    fn push(&mut self, part: DocumentPart) {
        if self.displaced {
            if let DocumentPart::Text(text) | DocumentPart::Code(text) | DocumentPart::Color(text) = &part {
                let text = text.clone();
                self.unseen().add(UnseenKind::Displaced, &text);
            }
            return;
        }
        if !matches!(part, DocumentPart::Break) {
            self.empty = 0;
        }
        self.add(part);
    }

    /// Adds a part if the limit of size allows it.
    fn add(&mut self, part: DocumentPart) {
        if let DocumentPart::Text(text) | DocumentPart::Code(text) | DocumentPart::CodeBlock { text, .. } = &part {
            self.bytes += text.len();
            if self.bytes > TEXT_BYTES {
                let text = text.clone();
                return self.unseen().add(UnseenKind::Excess, &text);
            }
        }
        self.document.parts.push(part);
    }

    /// Reports the text of a hidden element as unseen.
    fn hide(&mut self, at: usize, kind: UnseenKind) {
        let text = self.plain_text(at);
        if text.chars().any(|c| !c.is_whitespace()) {
            self.unseen().add(kind, &text);
        }
    }

    /// Returns all text of an element, displayed or not, up to a length that suffices for reports and comparisons.
    fn plain_text(&self, at: usize) -> String {
        const ENOUGH: usize = 1_000;
        let mut text = String::new();
        self.descend(at, |content| {
            if let HtmlContent::Text(part) = content {
                text.push_str(&part[..part.floor_char_boundary(ENOUGH)]);
            }
            text.len() < ENOUGH
        });
        text
    }

    /// Returns the visible text of an element with its line breaks. Reports the hidden parts in it.
    fn gather(&mut self, at: usize) -> String {
        let nodes = self.nodes;
        let mut text = String::new();
        let mut hidden = Vec::new();
        let mut stack: Vec<usize> = children(nodes, at).collect();
        stack.reverse();
        while let Some(at) = stack.pop() {
            match &nodes[at].content {
                HtmlContent::Text(part) => text.push_str(part),
                HtmlContent::Element(name, attributes) => {
                    if hides(nodes, at, name, attributes) {
                        hidden.push(at);
                        continue;
                    }
                    if &*name.local == "br" {
                        text.push('\n');
                    }
                    let from = stack.len();
                    stack.extend(children(nodes, at));
                    stack[from..].reverse();
                }
                HtmlContent::Other => {}
            }
        }
        for at in hidden {
            self.hide(at, UnseenKind::Element);
        }
        let (visible, runs) = characters::visible(&text);
        self.characters(runs, &text);
        visible
    }

    /// Visits the contents below a node in order, as long as `go` returns true.
    fn descend(&self, at: usize, mut go: impl FnMut(&HtmlContent) -> bool) {
        let mut stack = vec![at];
        while let Some(at) = stack.pop() {
            if !go(&self.nodes[at].content) {
                return;
            }
            let from = stack.len();
            stack.extend(children(self.nodes, at));
            stack[from..].reverse();
        }
    }
}

/// Whether the content of an element is not displayed, or is hard to see.
fn hides(nodes: &[HtmlNode], at: usize, name: &QualName, attributes: &[Attribute]) -> bool {
    if attributes::element_hides(name) || attributes::attributes_hide(attributes) {
        return true;
    }
    let (mut text, mut behind) = attributes::paints(attributes);
    if text == behind {
        return text;
    }
    // One color of the pair is that of an element around it.
    for node in std::iter::successors(nodes[at].parent, |at| nodes[*at].parent).map(|at| &nodes[at]) {
        if let HtmlContent::Element(_, attributes) = &node.content {
            let (also_text, also_behind) = attributes::paints(attributes);
            (text, behind) = (text || also_text, behind || also_behind);
        }
    }
    text && behind
}

/// Whether an address that is not displayed is long enough to contain a message.
fn has_hidden_words(address: &str) -> bool {
    let is_sentence = |part: &str| {
        let words = || part.split(|c: char| !c.is_alphabetic()).filter(|word| word.chars().count() > 1);
        words().count() >= SENTENCE || words().any(|word| word.chars().count() >= LONG_WORD)
    };
    address.len() > LONGEST_ADDRESS
        || (address.len() > LONGEST_WORDS && address.split(['/', '?', '&', '=', '#']).any(is_sentence))
}

/// Whether a part is displayed within a line of text.
fn is_inline(part: &DocumentPart) -> bool {
    match part {
        DocumentPart::Text(_) | DocumentPart::Code(_) | DocumentPart::Color(_) | DocumentPart::Image { .. } => true,
        DocumentPart::Drawing { inline, .. } => *inline,
        DocumentPart::Close(element) => {
            matches!(element, DocumentElement::Link(_) | DocumentElement::Struck | DocumentElement::FootnoteReference)
        }
        _ => false,
    }
}

/// Returns the indices of a node's children, in order.
fn children(nodes: &[HtmlNode], at: usize) -> impl Iterator<Item = usize> + '_ {
    std::iter::successors(nodes[at].first, |at| nodes[*at].next)
}
