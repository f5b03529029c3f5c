//! Minimal HTML reader for Markdown texts, which finds the visible text.

/// Elements whose content is not shown as text, on any forge or on some.
const HIDING: &[&str] = &[
    "script",
    "style",
    "template",
    "svg",
    "title",
    "textarea",
    "noscript",
    "iframe",
    "object",
    "video",
    "audio",
    "canvas",
    "math",
    "head",
    "select",
    "xmp",
    "noembed",
    "noframes",
    "plaintext",
    "datalist",
    "dialog",
    "applet",
    "map",
];
/// Elements that have no content.
const EMPTY: &[&str] =
    &["area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr"];
/// Elements that begin on a line of their own.
pub(super) const BREAKS: &[&str] = &[
    "br",
    "p",
    "div",
    "li",
    "tr",
    "ul",
    "ol",
    "table",
    "details",
    "summary",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "hr",
    "blockquote",
    "pre",
    "dt",
    "dd",
    "section",
];
/// Attributes with text that is hidden or collapsed.
const SAYING: &[&str] =
    &["alt", "title", "placeholder", "value", "label", "content", "summary", "srcdoc", "srcset", "name", "id"];
/// Styles that make text hard to see; forges drop styles, but not all and not always.
const HIDING_STYLES: &[&str] = &[
    "display",
    "visibility",
    "opacity",
    "font-size",
    "color",
    "position",
    "clip",
    "text-indent",
    "height",
    "width",
    "transform",
    "overflow",
    "filter",
    "font:",
    "margin",
    "z-index",
];

/// A piece of HTML.
pub(super) enum HtmlPart<'a> {
    /// Text between tags, undecoded.
    Text(&'a str),
    /// A comment, declaration or instruction.
    Hidden,
    /// An opening tag.
    Open(OpenTag),
    /// A closing tag: its name in lower case.
    Close(String),
}

/// An opening tag.
pub(super) struct OpenTag {
    /// Name in lower case.
    pub name: String,
    /// Whether what is within is not shown.
    pub hides: bool,
    /// Whether the element itself hides, not an attribute.
    hides_by_name: bool,
    /// Whether an attribute holds text.
    pub says_something: bool,
    /// Whether it has no content.
    empty: bool,
}

/// Splits HTML into its parts. An unclosed part reaches to the end.
pub(super) fn parts(source: &str) -> Vec<HtmlPart<'_>> {
    let mut parts = Vec::new();
    let mut rest = source;
    while let Some(at) = rest.find('<') {
        let tail = &rest[at..];
        let Some((length, part)) = markup(tail) else {
            parts.push(HtmlPart::Text(&rest[..=at]));
            rest = &rest[at + 1..];
            continue;
        };
        parts.push(HtmlPart::Text(&rest[..at]));
        parts.push(part);
        rest = &tail[length..];
    }
    parts.push(HtmlPart::Text(rest));
    parts
}

/// The comment or tag at the beginning of `text`, and its length in bytes.
fn markup(text: &str) -> Option<(usize, HtmlPart<'static>)> {
    let through = |end: &str, from: usize| {
        text.get(from..).and_then(|t| t.find(end)).map_or(text.len(), |at| from + at + end.len())
    };
    if let Some(rest) = text.strip_prefix("<!--") {
        let length = match rest {
            rest if rest.starts_with('>') => 5,
            rest if rest.starts_with("->") => 6,
            _ => through("-->", 4),
        };
        return Some((length, HtmlPart::Hidden));
    }
    if text.starts_with("<![CDATA[") {
        return Some((through("]]>", 9), HtmlPart::Hidden));
    }
    if text.starts_with("<?") {
        return Some((through("?>", 2), HtmlPart::Hidden));
    }
    if text.starts_with("<!") {
        return Some((through(">", 2), HtmlPart::Hidden));
    }
    let (closing, name_at) = if text.starts_with("</") { (true, 2) } else { (false, 1) };
    let rest = text.get(name_at..)?;
    if !rest.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return None;
    }
    let end = rest.find(|c: char| c.is_whitespace() || matches!(c, '/' | '>')).unwrap_or(rest.len());
    let name = rest[..end].to_ascii_lowercase();
    let (attributes, length) = attributes(&rest[end..]);
    let length = name_at + end + length;
    if closing {
        return Some((length, HtmlPart::Close(name)));
    }
    let hides_by_name = HIDING.contains(&name.as_str());
    let tag = OpenTag {
        hides: hides_by_name || attributes.iter().any(|(name, value)| attribute_hides(name, value)),
        hides_by_name,
        says_something: attributes.iter().any(|(name, value)| attribute_says(name, value)),
        empty: EMPTY.contains(&name.as_str()),
        name,
    };
    Some((length, HtmlPart::Open(tag)))
}

/// The attributes up to the end of a tag, and the length of all that in bytes.
fn attributes(text: &str) -> (Vec<(String, String)>, usize) {
    let mut attributes = Vec::new();
    let mut at = 0;
    loop {
        let rest = &text[at..];
        let skipped = rest.len() - rest.trim_start_matches(|c: char| c.is_whitespace() || c == '/').len();
        at += skipped;
        let rest = &text[at..];
        if rest.is_empty() {
            return (attributes, at);
        }
        if rest.starts_with('>') {
            return (attributes, at + 1);
        }
        let first = rest.chars().next().map_or(0, char::len_utf8);
        let ends = |c: char| c.is_whitespace() || matches!(c, '=' | '>' | '/');
        let end = rest[first..].find(ends).map_or(rest.len(), |end| first + end);
        let name = rest[..end].to_ascii_lowercase();
        at += end;
        let after = text[at..].trim_start();
        let mut value = String::new();
        if let Some(after) = after.strip_prefix('=') {
            let after = after.trim_start();
            let start = text.len() - after.len();
            let quote = after.chars().next().filter(|c| matches!(c, '"' | '\''));
            let (from, to, next) = match quote {
                Some(quote) => {
                    let to = after[1..].find(quote).map_or(after.len(), |end| end + 1);
                    (1, to, (to + 1).min(after.len()))
                }
                None => {
                    let to = after.find(|c: char| c.is_whitespace() || c == '>').unwrap_or(after.len());
                    (0, to, to)
                }
            };
            value = after[from..to].to_owned();
            at = start + next;
        }
        attributes.push((name, value));
    }
}

fn attribute_hides(name: &str, value: &str) -> bool {
    let value = value.to_ascii_lowercase();
    match name {
        "hidden" | "popover" | "inert" => true,
        "aria-hidden" => value != "false",
        "style" => HIDING_STYLES.iter().any(|style| value.contains(style)),
        "color" => ["white", "#fff", "transparent", "#f"].iter().any(|color| value.starts_with(color)),
        "class" => {
            ["hidden", "sr-only", "d-none", "invisible", "show-on-focus"].iter().any(|class| value.contains(class))
        }
        "width" | "height" | "size" => value == "0",
        _ => false,
    }
}

fn attribute_says(name: &str, value: &str) -> bool {
    !value.trim().is_empty()
        && (SAYING.contains(&name) || name.starts_with("aria-") || name.starts_with("data-") || name.starts_with("on"))
}

/// Open elements, beginning with the first that hides its content.
#[derive(Default)]
pub(super) struct Elements {
    /// Name, and whether it ends with the block it was opened in.
    open: Vec<(String, bool)>,
}

impl Elements {
    /// Whether text is hidden now.
    pub fn hide(&self) -> bool {
        !self.open.is_empty()
    }

    /// Takes note of an opening tag.
    pub fn open(&mut self, tag: OpenTag, inline: bool) {
        if !tag.empty && (tag.hides || self.hide()) {
            // `<title>` in the middle of a sentence is somebody who forgot the backticks: it ends with the paragraph.
            let ends_with_block = inline && (tag.hides_by_name || !tag.hides);
            self.open.push((tag.name, ends_with_block));
        }
    }

    /// Takes note of a closing tag.
    pub fn close(&mut self, name: &str) {
        if let Some(at) = self.open.iter().rposition(|(open, _)| open == name) {
            self.open.truncate(at);
        }
    }

    /// Closes what ends with the block.
    pub fn end_of_block(&mut self) {
        if let Some(at) = self.open.iter().position(|(_, ends_with_block)| *ends_with_block) {
            self.open.truncate(at);
        }
    }
}
