//! Text of an issue or comment as displayed by the forge, and the parts of its source that the forge does not display.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Maximum number of excerpts in a report of unseen parts.
pub const MAX_EXCERPTS: usize = 5;
/// Maximum length of an excerpt, in characters.
pub const EXCERPT_CHARACTERS: usize = 120;

/// Visible text of an issue or comment, in reading order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Document {
    /// Parts in reading order. Every `Open` has a `Close` with the same element; they nest.
    pub parts: Vec<DocumentPart>,
    /// Parts of the source that the forge does not display as text.
    pub unseen: Unseen,
}

impl Document {
    /// Returns the addresses of the images, in reading order.
    pub fn images(&self) -> Vec<String> {
        images_of(&self.parts)
    }
}

/// Returns the addresses of the images in parts of a document, in reading order.
pub fn images_of(parts: &[DocumentPart]) -> Vec<String> {
    let images = parts.iter().filter_map(|part| match part {
        DocumentPart::Image { address } => Some(address.clone()),
        _ => None,
    });
    images.collect()
}

/// Part of a document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DocumentPart {
    /// Start of an element.
    Open(DocumentElement),
    /// End of an element.
    Close(DocumentElement),
    /// Running text without line breaks; runs of spaces are one space.
    Text(String),
    /// Inline code.
    Code(String),
    /// Line break.
    Break,
    /// Horizontal rule.
    Rule,
    /// Checkbox in a task list.
    Task {
        /// Whether the box is checked.
        done: bool,
    },
    /// Image.
    Image {
        /// Address; empty if none. Addresses are never copied into prompts or other texts.
        address: String,
    },
    /// Code block.
    CodeBlock {
        /// Language in lower case; empty if none is given.
        language: String,
        /// Verbatim code without invisible characters.
        text: String,
    },
    /// Drawing: source text that the forge renders as a picture.
    Drawing {
        /// Kind of the drawing.
        kind: DrawnKind,
        /// Source of the drawing.
        source: String,
        /// Whether the drawing is within a line of text.
        inline: bool,
    },
}

/// Element with content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DocumentElement {
    /// Paragraph.
    Paragraph,
    /// Another block of text.
    Block,
    /// Heading of a level, 1 to 6.
    Heading(u8),
    /// Quotation.
    Quote,
    /// List. The value is its first item's number, or `None` for a bulleted list.
    List(Option<u64>),
    /// Item of a list.
    Item,
    /// Table.
    Table,
    /// Row of a table.
    Row,
    /// Cell of a table.
    Cell,
    /// Link. The value is its address, displayed after the link's text.
    Link(String),
    /// Reference to a footnote.
    FootnoteReference,
    /// Struck-through text.
    Struck,
    /// Another part of a line, such as emphasized text.
    Inline,
    /// Section that is collapsed until a person opens it.
    Collapsed,
    /// Summary of a collapsible section.
    Summary,
}

/// Kind of a drawing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DrawnKind {
    /// Formula in TeX.
    Formula,
    /// Mermaid diagram.
    Mermaid,
    /// Map in GeoJSON.
    GeoJson,
    /// Map in TopoJSON.
    TopoJson,
    /// Three-dimensional model in STL.
    Stl,
}

impl DrawnKind {
    /// All kinds.
    pub const ALL: [Self; 5] = [Self::Formula, Self::Mermaid, Self::GeoJson, Self::TopoJson, Self::Stl];

    /// Returns the language of a code block that is drawn.
    pub fn language(self) -> &'static str {
        match self {
            Self::Formula => "math",
            Self::Mermaid => "mermaid",
            Self::GeoJson => "geojson",
            Self::TopoJson => "topojson",
            Self::Stl => "stl",
        }
    }

    /// Returns the kind that a forge draws for a code block's language, ignoring letter case.
    pub fn of_language(language: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.language().eq_ignore_ascii_case(language))
    }

    /// Returns a description ("a diagram (mermaid)").
    pub fn description(self) -> &'static str {
        match self {
            Self::Formula => "a formula (math)",
            Self::Mermaid => "a diagram (mermaid)",
            Self::GeoJson => "a map (geojson)",
            Self::TopoJson => "a map (topojson)",
            Self::Stl => "a 3D model (stl)",
        }
    }
}

/// Kind of a part that the forge does not display as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnseenKind {
    /// HTML comment, declaration or processing instruction.
    Comment,
    /// HTML comment from one of the repository's issue templates.
    TemplateComment,
    /// Invisible characters.
    Character,
    /// Text beyond the size and nesting limits.
    Excess,
    /// Drawing. The forge renders it as a picture; the document contains its source.
    Drawn,
    /// Another part of the source that is missing on the page. Also all kinds stored by earlier versions.
    #[serde(other)]
    Source,
}

impl UnseenKind {
    /// Whether the part was removed from the document.
    pub fn is_hidden(self) -> bool {
        self != Self::Drawn
    }

    /// Returns the display name, in the plural.
    pub fn name(self) -> &'static str {
        match self {
            Self::Comment => "HTML comments",
            Self::TemplateComment => "HTML comments of the repository's issue templates",
            Self::Source => "texts that the page does not contain",
            Self::Character => "runs of invisible characters",
            Self::Excess => "texts beyond the limits of size and nesting",
            Self::Drawn => "formula or diagram (the agent gets its source)",
        }
    }
}

/// Excerpt of an unseen part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnseenExcerpt {
    /// Kind of the part.
    pub kind: UnseenKind,
    /// Start of its text on one line, at most `EXCERPT_CHARACTERS` characters plus an ellipsis.
    pub text: String,
}

/// Report of parts that the forge does not display as text: counts by kind, and excerpts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Unseen {
    /// Number of parts by kind.
    pub counts: BTreeMap<UnseenKind, u32>,
    /// Excerpts, at most `MAX_EXCERPTS`. If the list is full, a hidden part replaces a drawing.
    pub excerpts: Vec<UnseenExcerpt>,
}

impl Unseen {
    /// Counts a part, and stores its excerpt if there is room.
    pub fn add(&mut self, kind: UnseenKind, text: &str) {
        self.count(kind, 1);
        self.keep(kind, text);
    }

    /// Counts `count` parts of a kind, and stores one excerpt for all of them.
    pub fn add_all(&mut self, kind: UnseenKind, count: usize, text: &str) {
        if count > 0 {
            self.count(kind, u32::try_from(count).unwrap_or(u32::MAX));
            self.keep(kind, text);
        }
    }

    fn count(&mut self, kind: UnseenKind, more: u32) {
        let count = self.counts.entry(kind).or_default();
        *count = count.saturating_add(more);
    }

    fn keep(&mut self, kind: UnseenKind, text: &str) {
        let place = match self.excerpts.len() < MAX_EXCERPTS {
            true => None,
            false if kind.is_hidden() => self.excerpts.iter().rposition(|excerpt| !excerpt.kind.is_hidden()),
            false => return,
        };
        if place.is_none() && self.excerpts.len() >= MAX_EXCERPTS {
            return;
        }
        let text = excerpt(text);
        if text.is_empty() {
            return;
        }
        if let Some(place) = place {
            self.excerpts.remove(place);
        }
        self.excerpts.push(UnseenExcerpt { kind, text });
    }

    /// Adds the counts and excerpts of another report.
    pub fn append(&mut self, other: Self) {
        for (kind, count) in other.counts {
            self.count(kind, count);
        }
        for UnseenExcerpt { kind, text } in other.excerpts {
            self.keep(kind, &text);
        }
    }

    /// Returns the number of parts removed from the document.
    pub fn hidden(&self) -> u32 {
        let hidden = self.counts.iter().filter(|(kind, _)| kind.is_hidden());
        hidden.fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }

    /// Whether the forge displays the whole source as text.
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// Whether any part is not a comment from the repository's issue templates.
    pub fn has_foreign(&self) -> bool {
        self.counts.keys().any(|kind| *kind != UnseenKind::TemplateComment)
    }
}

/// Returns the start of a text on one line.
fn excerpt(text: &str) -> String {
    /// Number of characters read per character of the excerpt, because runs of white space are collapsed.
    const READ: usize = 8;
    let start: String = text.chars().take(EXCERPT_CHARACTERS * READ).collect();
    let line = start.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(EXCERPT_CHARACTERS) {
        Some((at, _)) => format!("{}…", line[..at].trim_end()),
        None => line,
    }
}
