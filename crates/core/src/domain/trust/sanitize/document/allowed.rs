//! Elements, classes and styles that a page may have without hiding text.

use html5ever::{Attribute, QualName};

/// Elements within a line of text.
#[rustfmt::skip]
pub(super) const INLINE: [&str; 30] = [
    "a", "abbr", "b", "cite", "code", "del", "dfn", "em", "g-emoji", "i", "ins", "kbd", "label", "mark", "math-renderer", "q",
    "ruby", "s", "samp", "small", "span", "strike", "strong", "sub", "sup", "time", "tt", "u", "var", "wbr",
];
/// Other elements whose text survives.
#[rustfmt::skip]
const BLOCKS: [&str; 49] = [
    "address", "article", "aside", "blockquote", "br", "caption", "center", "col", "colgroup", "dd", "details", "dir", "div",
    "dl", "dt", "figcaption", "figure", "footer", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hgroup", "hr", "img", "input",
    "li", "main", "markdown-accessiblity-table", "menu", "nav", "ol", "p", "picture", "pre", "section", "source", "summary",
    "table", "tbody", "td", "tfoot", "th", "thead", "tr", "ul",
];
/// Classes that the renderers of forges set themselves, and that hide nothing.
#[rustfmt::skip]
const CLASSES: [&str; 53] = [
    "anchor", "chroma", "color-preview", "commit", "commit-link", "commit-tease-sha", "contains-task-list",
    "data-footnote-backref", "display", "email-fragment", "emoji", "enabled", "footnotes", "footnote-ref", "footnote-backref",
    "g-emoji", "heading-element", "highlight", "internal", "is-loading", "issue-keyword", "issue-link", "js-display-math", "line",
    "js-inline-math", "js-issue-link", "js-team-mention", "link", "markdown-heading", "member-mention", "mention",
    "nohighlight", "notranslate", "octicon", "overflow-auto", "position-relative", "ref-commit", "ref-external-issue",
    "ref-issue", "snippet-clipboard-content", "svg", "task-list", "task-list-item", "task-list-item-checkbox", "team-mention",
    "tooltipped", "tooltipped-se", "user-mention", "js-render-needs-enrichment", "render-needs-enrichment", "user-content-toc",
    "zeroclipboard-container", "dropdown-caret",
];
/// Beginnings of further such classes.
#[rustfmt::skip]
const CLASS_BEGINNINGS: [&str; 9] = [
    "pl-", "language-", "highlight-source-", "highlight-text-", "markdown-alert", "attention", "octicon-", "code-block",
    "code-overflow-",
];

/// Whether the text of an element can survive.
pub(super) fn survives(name: &str) -> bool {
    INLINE.contains(&name) || BLOCKS.contains(&name)
}

/// Whether an element's content does not survive: it is not on the allow list, or one of its attributes may hide it.
pub(super) fn hides(name: &QualName, attributes: &[Attribute]) -> bool {
    let plain_style = |style: &str| {
        style.split(';').all(|rule| {
            let rule: String = rule.chars().filter(|c| !c.is_whitespace()).collect();
            rule.is_empty()
                || rule.starts_with("text-align:")
                || matches!(&*rule, "max-width:100%" | "display:block" | "display:inline-block")
        })
    };
    let plain_class = |class: &str| {
        // The highlighters of forges use classes of up to three characters.
        class.len() <= 3 && class.chars().all(|c| c.is_ascii_alphanumeric())
            || CLASSES.contains(&class)
            || CLASS_BEGINNINGS.iter().any(|beginning| class.starts_with(beginning))
    };
    !survives(&name.local)
        || value(attributes, "hidden").is_some()
        || value(attributes, "style").is_some_and(|style| !plain_style(style))
        || !classes(attributes).all(plain_class)
}

/// Returns the value of an attribute; `None` if the element does not have it.
pub(super) fn value<'a>(attributes: &'a [Attribute], name: &str) -> Option<&'a str> {
    attributes.iter().find(|attribute| &*attribute.name.local == name).map(|attribute| &*attribute.value)
}

pub(super) fn classes(attributes: &[Attribute]) -> impl Iterator<Item = &str> {
    value(attributes, "class").unwrap_or_default().split_ascii_whitespace()
}
