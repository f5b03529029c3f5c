//! Converts the HTML of a page to a document. The text of an allow list of elements survives; of their attributes, only the
//! addresses of links and images do.

use std::sync::LazyLock;

use html5ever::{Attribute, QualName};
use regex::Regex;

use super::allowed::{INLINE, classes, hides, value};
use super::tree::{HtmlContent, HtmlNode, ROOT};
use crate::domain::model::characters;
use crate::domain::model::document::{Document, DocumentElement, DocumentPart, DrawnKind, UnseenKind};
use crate::domain::trust::bounds::TEXT_BYTES;

/// White space that is so long that it moves the following text off the screen.
static FAR_RIGHT: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"[^\S\r\n]{200,}\S[^\r\n]*").expect("a constant pattern"));

/// Class of a change that a reviewer suggests, which GitHub displays as a diff.
const SUGGESTION: &str = "js-suggested-changes-blob";

/// Number of consecutive lines without visible text after which text counts as displaced, because readers do not scroll further.
const EMPTY_LINES: usize = 100;
/// Maximum number of columns of a table; further ones are off the screen.
const COLUMNS: usize = 20;
/// Maximum nesting of elements that shrink text; deeper text is too small to be read.
const SHRUNK: usize = 3;
/// Maximum length of an address that is displayed after the text of its link, in characters.
const LONGEST_ADDRESS: usize = 200;
/// Maximum length of a language of a code block, in bytes.
const LONGEST_LANGUAGE: usize = 20;

/// Converts a tree, and adds the result to a document. Returns the page's replacements of words of the source: the
/// addresses of links, and the names of emoji.
pub(super) fn read(nodes: &[HtmlNode], document: &mut Document) -> Vec<String> {
    let mut walk = DocumentWalk {
        nodes,
        document,
        open: Vec::new(),
        empty: 0,
        displaced: false,
        columns: Vec::new(),
        shrunk: 0,
        mails: 0,
        bytes: 0,
        beside: Vec::new(),
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
                return walk.beside;
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
    /// Whether the element is displayed on separate lines.
    block: bool,
    /// Whether the element is a table row.
    row: bool,
    /// Whether the element shrinks its text.
    shrinks: bool,
    /// Whether the element is a text that was sent by mail.
    mail: bool,
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
    /// Number of open texts that were sent by mail, in which line breaks are displayed.
    mails: usize,
    /// Length of the text so far, in bytes.
    bytes: usize,
    beside: Vec<String>,
}

impl DocumentWalk<'_> {
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
        let parts = self.document.parts.len();
        self.open.push(OpenElement { part, block, row: false, shrinks: false, mail: false, parts });
    }

    fn leave(&mut self) {
        let Some(element) = self.open.pop() else { return };
        self.shrunk -= usize::from(element.shrinks);
        self.mails -= usize::from(element.mail);
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
        // The parser wraps the content of a page in this element.
        if self.nodes[at].parent == Some(ROOT) && &*name.local == "html" {
            self.push_open(None, false);
            return true;
        }
        if classes(attributes).any(|class| class == SUGGESTION) {
            self.suggestion(at);
            return false;
        }
        if hides(name, attributes) || self.drawn(at, name, attributes) {
            return false;
        }
        let (part, block) = match &*name.local {
            "p" => (Some(DocumentElement::Paragraph), true),
            "div" if classes(attributes).any(|class| class == "email-fragment") => {
                self.push_open(Some(DocumentElement::Paragraph), true);
                if let Some(open) = self.open.last_mut() {
                    open.mail = true;
                }
                self.mails += 1;
                return true;
            }
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => {
                let level = name.local.as_bytes().get(1).map_or(1, |digit| digit - b'0');
                (Some(DocumentElement::Heading(level)), true)
            }
            "blockquote" => (Some(DocumentElement::Quote), true),
            "ul" | "menu" | "dir" => (Some(DocumentElement::List(None)), true),
            "ol" => {
                let first = value(attributes, "start").and_then(|start| start.parse().ok());
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
            "td" | "th" => return self.cell(),
            "details" if value(attributes, "open").is_none() => (Some(DocumentElement::Collapsed), true),
            "summary" => (Some(DocumentElement::Summary), true),
            "a" => (Some(self.link(at, attributes)), false),
            "s" | "del" | "strike" => (Some(DocumentElement::Struck), false),
            "sub" | "sup" | "small" => return self.smaller(),
            _ => return self.leaf(at, name, attributes),
        };
        self.push_open(part, block);
        true
    }

    /// Converts an element without its own content, or without a counterpart. Returns whether the children are to be visited.
    fn leaf(&mut self, at: usize, name: &QualName, attributes: &[Attribute]) -> bool {
        match &*name.local {
            "br" => {
                self.line();
                self.push(DocumentPart::Break);
            }
            "hr" => self.push(DocumentPart::Rule),
            "img" => {
                self.beside.extend(value(attributes, "data-alias").map(str::to_owned));
                let source = value(attributes, "data-canonical-src").or_else(|| value(attributes, "src"));
                let address = source.unwrap_or_default().trim().to_owned();
                if !classes(attributes).any(|class| class == "emoji") {
                    self.push(DocumentPart::Image { address });
                }
            }
            "input" => {
                if value(attributes, "type").is_some_and(|kind| kind.eq_ignore_ascii_case("checkbox")) {
                    self.push(DocumentPart::Task { done: value(attributes, "checked").is_some() });
                }
            }
            "pre" => {
                let (language, text) = (self.language(at, attributes), self.gather(at));
                self.code_block(language, &text);
            }
            "code" | "tt" | "kbd" | "samp" => {
                let code = self.gather(at).split_whitespace().collect::<Vec<_>>().join(" ");
                if !code.is_empty() {
                    self.push(DocumentPart::Code(code));
                }
            }
            "tbody" | "thead" | "tfoot" | "colgroup" | "col" | "picture" | "source" => {
                self.push_open(None, false);
                return true;
            }
            name => {
                let alias = value(attributes, "alias").or_else(|| value(attributes, "data-alias"));
                self.beside.extend(alias.map(str::to_owned));
                let inline = INLINE.contains(&name);
                self.push_open(Some(if inline { DocumentElement::Inline } else { DocumentElement::Block }), !inline);
                return true;
            }
        }
        false
    }

    fn cell(&mut self) -> bool {
        if let Some(column) = self.columns.last_mut() {
            *column += 1;
            if *column > COLUMNS {
                return false;
            }
        }
        self.push_open(Some(DocumentElement::Cell), false);
        true
    }

    fn smaller(&mut self) -> bool {
        if self.shrunk >= SHRUNK {
            return false;
        }
        self.push_open(Some(DocumentElement::Inline), false);
        self.shrunk += 1;
        if let Some(open) = self.open.last_mut() {
            open.shrinks = true;
        }
        true
    }

    /// Returns the element for a link: with its address if that is short and differs from the text. A link without text shows no
    /// address.
    fn link(&mut self, at: usize, attributes: &[Attribute]) -> DocumentElement {
        let address = value(attributes, "href").unwrap_or_default().trim();
        // Gitea removes the class from the link, so the raised link is the sign.
        let is_raised = self.nodes[at].parent.is_some_and(
            |parent| matches!(&self.nodes[parent].content, HtmlContent::Element(name, _) if &*name.local == "sup"),
        );
        if is_raised && address.starts_with("#fn")
            || value(attributes, "data-footnote-ref").is_some()
            || classes(attributes).any(|class| class == "footnote-ref")
        {
            return DocumentElement::FootnoteReference;
        }
        let scheme = address.split(['/', '?', '#']).next().unwrap_or_default().split_once(':');
        let scheme = scheme.map_or_else(String::new, |(scheme, _)| scheme.to_ascii_lowercase());
        let known = matches!(scheme.as_str(), "" | "http" | "https" | "mailto" | "ftp");
        let address = if scheme == "mailto" { address.split('?').next().unwrap_or_default() } else { address };
        let plain = !address.chars().any(|c| c.is_whitespace() || characters::is_invisible(c));
        let short = address.chars().count() <= LONGEST_ADDRESS && !address.contains(":~:");
        let text = self.gather(at);
        let text = text.trim();
        let mention = classes(attributes).any(|class| class.ends_with("mention"));
        let same = text == address
            || ["mailto:", "http://", "https://"].iter().any(|prefix| address.strip_prefix(prefix) == Some(text));
        if address.starts_with('#') && short {
            self.beside.push(address.to_owned());
        }
        if text.is_empty()
            || address.is_empty()
            || address.starts_with('#')
            || !known
            || !plain
            || !short
            || mention
            || same
        {
            return DocumentElement::Inline;
        }
        self.beside.push(address.to_owned());
        DocumentElement::Link(address.to_owned())
    }

    /// Returns the language of a code block in lower case; empty if there is none.
    fn language(&self, at: usize, attributes: &[Attribute]) -> String {
        let of_node = |at: Option<usize>| match at.map(|at| &self.nodes[at].content) {
            Some(HtmlContent::Element(_, attributes)) => attributes.as_slice(),
            _ => &[],
        };
        let (inside, around) = (of_node(self.nodes[at].first), of_node(self.nodes[at].parent));
        let named = |attributes, beginnings: &[&str]| {
            classes(attributes).find_map(|class| beginnings.iter().find_map(|beginning| class.strip_prefix(beginning)))
        };
        let language = value(attributes, "lang")
            .or_else(|| named(inside, &["language-"]))
            .or_else(|| named(attributes, &["language-"]))
            .or_else(|| named(around, &["highlight-source-", "highlight-text-"]));
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '#' | '_' | '.');
        let language = language.unwrap_or_default();
        let valid = language.len() <= LONGEST_LANGUAGE && language.chars().all(plain);
        if valid { language.to_lowercase() } else { String::new() }
    }

    /// Adds an element that forges render as a picture. Returns whether the node is such an element.
    fn drawn(&mut self, at: usize, name: &QualName, attributes: &[Attribute]) -> bool {
        let (kind, source, inline) = match &*name.local {
            "math-renderer" => {
                let source = self.gather(at);
                let block = classes(attributes).any(|class| class == "js-display-math");
                (DrawnKind::Formula, source.trim().trim_matches(['$', '`']).to_owned(), !block)
            }
            "code" if classes(attributes).any(|class| class == "language-math") => {
                (DrawnKind::Formula, self.gather(at), true)
            }
            "pre" => match DrawnKind::of_language(&self.language(at, attributes)) {
                Some(kind) => (kind, self.gather(at), false),
                None => return false,
            },
            "section" => {
                let Some(kind) = value(attributes, "data-type").and_then(DrawnKind::of_language) else { return false };
                let is_pre = |at: &usize| matches!(&self.nodes[*at].content, HtmlContent::Element(name, _) if &*name.local == "pre");
                let Some(raw) = descendants(self.nodes, at).find(is_pre) else { return false };
                (kind, self.gather(raw), false)
            }
            _ => return false,
        };
        if !source.trim().is_empty() && !self.displaced {
            self.document.unseen.add(UnseenKind::Drawn, &source);
            self.push(DocumentPart::Drawing { kind, source: source.trim_end().to_owned(), inline });
        }
        true
    }

    /// Adds the new lines of a suggested change as the code block that its author wrote.
    fn suggestion(&mut self, at: usize) {
        let nodes = self.nodes;
        let is_new = |at: &usize| match &nodes[*at].content {
            HtmlContent::Element(name, attributes) => {
                &*name.local == "td" && classes(attributes).any(|class| class == "blob-code-addition")
            }
            _ => false,
        };
        let added = descendants(nodes, at).filter(is_new);
        let lines: String = added.map(|at| format!("{}\n", all_text(nodes, at).trim_end_matches('\n'))).collect();
        self.code_block("suggestion".to_owned(), &characters::visible(&lines).0);
    }

    /// Adds a code block without the part that is off the screen.
    fn code_block(&mut self, language: String, text: &str) {
        if self.displaced {
            return;
        }
        let mut shown_lines: Vec<String> = Vec::new();
        for line in text.lines() {
            if line.trim().is_empty() {
                self.line();
            } else {
                self.empty = 0;
            }
            if self.displaced {
                break;
            }
            shown_lines.push(near(line));
        }
        let mut shown = shown_lines.join("\n");
        if text.ends_with('\n') {
            shown.push('\n');
        }
        self.add(DocumentPart::CodeBlock { language, text: shown });
    }

    /// Adds running text.
    fn text(&mut self, text: &str) {
        if self.mails > 0 && text.contains('\n') {
            for (number, line) in text.lines().enumerate() {
                if number > 0 {
                    self.line();
                    self.push(DocumentPart::Break);
                }
                self.words(line);
            }
            return;
        }
        self.words(text);
    }

    fn words(&mut self, text: &str) {
        let visible = near(&characters::visible(text).0);
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

    /// Adds a visible part, or hides it if the current position is too far down.
    fn push(&mut self, part: DocumentPart) {
        if self.displaced {
            return;
        }
        if !matches!(part, DocumentPart::Break) {
            self.empty = 0;
        }
        self.add(part);
    }

    /// Adds a part if the limit of size allows it.
    fn add(&mut self, part: DocumentPart) {
        if let DocumentPart::Text(text)
        | DocumentPart::Code(text)
        | DocumentPart::CodeBlock { text, .. }
        | DocumentPart::Drawing { source: text, .. } = &part
        {
            self.bytes += text.len();
            if self.bytes > TEXT_BYTES {
                return;
            }
        }
        self.document.parts.push(part);
    }

    /// Returns the visible text of an element with its line breaks.
    fn gather(&self, at: usize) -> String {
        let nodes = self.nodes;
        let mut text = String::new();
        let mut stack: Vec<usize> = children(nodes, at).collect();
        stack.reverse();
        while let Some(at) = stack.pop() {
            match &nodes[at].content {
                HtmlContent::Text(part) => text.push_str(part),
                HtmlContent::Element(name, attributes) if !hides(name, attributes) => {
                    if &*name.local == "br" {
                        text.push('\n');
                    }
                    let from = stack.len();
                    stack.extend(children(nodes, at));
                    stack[from..].reverse();
                }
                HtmlContent::Element(..) | HtmlContent::Other => {}
            }
        }
        characters::visible(&text).0
    }
}

/// Returns a text without the parts that are far to the right.
fn near(text: &str) -> String {
    if text.len() < 200 { text.to_owned() } else { FAR_RIGHT.replace_all(text, "").into_owned() }
}

/// Whether a part is displayed within a line of text.
fn is_inline(part: &DocumentPart) -> bool {
    match part {
        DocumentPart::Text(_) | DocumentPart::Code(_) | DocumentPart::Image { .. } => true,
        DocumentPart::Drawing { inline, .. } => *inline,
        DocumentPart::Close(element) => {
            matches!(
                element,
                DocumentElement::Link(_)
                    | DocumentElement::Struck
                    | DocumentElement::FootnoteReference
                    | DocumentElement::Inline
            )
        }
        _ => false,
    }
}

/// Returns the indices of a node's children, in order.
fn children(nodes: &[HtmlNode], at: usize) -> impl Iterator<Item = usize> + '_ {
    std::iter::successors(nodes[at].first, |at| nodes[*at].next)
}

/// Returns the indices of all nodes below a node, in order.
fn descendants(nodes: &[HtmlNode], at: usize) -> impl Iterator<Item = usize> + '_ {
    let mut stack: Vec<usize> = vec![at];
    std::iter::from_fn(move || {
        let next = stack.pop()?;
        let from = stack.len();
        stack.extend(children(nodes, next));
        stack[from..].reverse();
        Some(next)
    })
}

/// Returns all text of an element.
fn all_text(nodes: &[HtmlNode], at: usize) -> String {
    let texts = descendants(nodes, at).filter_map(|at| match &nodes[at].content {
        HtmlContent::Text(text) => Some(text.as_str()),
        _ => None,
    });
    texts.collect()
}
