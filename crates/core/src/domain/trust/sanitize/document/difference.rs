//! Finds the parts of a source that its page does not contain, by comparing words.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::LazyLock;

use regex::{Captures, Regex};

use super::allowed::{INLINE, survives};
use crate::domain::model::document::{Unseen, UnseenKind};

/// Minimum number of letters of a part that is reported.
const LETTERS: usize = 3;
/// Attributes of HTML whose values concern the layout, or that the page has as well.
const LAYOUT: [&str; 18] = [
    "align", "border", "checked", "colspan", "dir", "height", "href", "lang", "loading", "open", "rel", "rowspan",
    "scope", "src", "start", "type", "valign", "width",
];

/// Tag with its name and attributes.
static TAG: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r#"(?s)</?([A-Za-z][A-Za-z0-9-]*)((?:\s+[^\s<>="'/]+(?:\s*=\s*(?:"[^"]*"|'[^']*'|[^\s"'<>]+))?)*)\s*/?>"#)
});
/// Attribute with its value.
static ATTRIBUTE: LazyLock<Regex> =
    LazyLock::new(|| pattern(r#"(?s)([^\s<>="'/]+)(?:\s*=\s*("[^"]*"|'[^']*'|[^\s"'<>]+))?"#));
/// Image with a description that is at most a short line.
static IMAGE: LazyLock<Regex> =
    LazyLock::new(|| pattern(r#"!\[[^\[\]\n]{0,100}\](?:\([^()\s]*\)|\[[^\[\]\n]{0,40}\])"#));
/// Link with its text and its address without the scheme.
static LINK: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"\[([^\[\]\n]{1,200})\]\((?:https?://|mailto:)?([^()\s]{1,200})\)"));
/// Syntax without displayed text: language of a code block, mark of a footnote or task, reference to a link definition.
static SYNTAX: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?m)^[ \t>*+-]*(?:`{3,}|~{3,})[ \t]*[\w+#.,-]{1,30}|\[\^[^\]\s]{1,40}\]|\[[xX]\]|\]\[[^\[\]\n]{1,40}\]|^[ \t>]*\[[^\[\]\n]{1,40}\]:",
    )
});
/// Character reference.
static REFERENCE: LazyLock<Regex> = LazyLock::new(|| pattern(r"&(?:#?[A-Za-z0-9]{1,31});"));

fn pattern(source: &str) -> Regex {
    Regex::new(source).expect("a constant pattern")
}

/// Reports the parts of `source` whose words the page does not contain: neither its text nor its replacements of words.
/// `known` contains the HTML comments of issue templates.
pub(super) fn report(source: &str, (text, beside): (&str, &[String]), known: &HashSet<String>, unseen: &mut Unseen) {
    let mut page: HashMap<String, usize> = HashMap::new();
    for (_, word) in std::iter::once(text).chain(beside.iter().map(String::as_str)).flat_map(words) {
        *page.entry(word).or_default() += 1;
    }
    let images = text.matches("![image](<").count();
    let (prose, comments) = split(source);
    let mut hidden = Vec::new();
    for range in prose {
        let part = without_syntax(&source[range], images);
        hidden.extend(missing(&part, &mut page).into_iter().map(|text| (UnseenKind::Source, text)));
    }
    for comment in comments {
        let content = source[comment.clone()].replace("\r\n", "\n");
        let content = content.strip_prefix("<!--").unwrap_or(&content);
        let content = content.strip_suffix("-->").unwrap_or(content);
        if known.contains(content) {
            hidden.push((UnseenKind::TemplateComment, String::new()));
        } else {
            hidden.extend(missing(content, &mut page).into_iter().map(|text| (UnseenKind::Comment, text)));
        }
    }
    for (kind, text) in hidden {
        unseen.add(kind, &text);
    }
}

/// Returns the ranges of the source outside of HTML comments, and the ranges of the comments.
fn split(source: &str) -> (Vec<Range<usize>>, Vec<Range<usize>>) {
    let (mut prose, mut comments) = (Vec::new(), Vec::new());
    let mut at = 0;
    while let Some(start) = source[at..].find("<!--").map(|found| at + found) {
        let end = source[start + 4..].find("-->").map_or(source.len(), |found| start + 4 + found + 3);
        prose.push(at..start);
        comments.push(start..end);
        at = end;
    }
    prose.push(at..source.len());
    (prose, comments)
}

/// Replaces the syntax of Markdown and HTML that displays no words. Of attributes, the values remain that people do not see. Removes
/// at most `images` images.
fn without_syntax(source: &str, images: usize) -> String {
    let text = if images > 0 { IMAGE.replacen(source, images, " ").into_owned() } else { source.to_owned() };
    // A page displays an address once if it is the text of its own link.
    let text = LINK.replace_all(&text, |found: &Captures<'_>| {
        let is_address = found[1].trim_start_matches("https://").trim_start_matches("http://") == &found[2];
        found[if is_address { 1 } else { 0 }].to_owned()
    });
    let text =
        SYNTAX.replace_all(&text, |found: &Captures<'_>| if found[0].starts_with("][") { "]" } else { " " }.to_owned());
    let text = REFERENCE.replace_all(&text, " ");
    let mut left = images;
    let text = TAG.replace_all(&text, |found: &Captures<'_>| {
        let name = found[1].to_ascii_lowercase();
        let is_image = name == "img" && left > 0;
        left -= usize::from(is_image);
        let mut kept = String::new();
        for attribute in ATTRIBUTE.captures_iter(&found[2]) {
            let layout = LAYOUT.iter().any(|known| attribute[1].eq_ignore_ascii_case(known));
            let described = is_image && attribute[1].eq_ignore_ascii_case("alt") && attribute[0].len() <= 100;
            if !described && (!layout || attribute[1].eq_ignore_ascii_case("href")) {
                kept.push(' ');
                kept.push_str(attribute.get(2).map_or(&attribute[1], |value| value.as_str()));
            }
        }
        if !survives(&name) {
            kept.push_str(&format!(" {name} "));
        }
        let inline = INLINE.contains(&name.as_str()) && name != "a";
        if kept.is_empty() && inline { String::new() } else { format!("{kept} ") }
    });
    text.into_owned()
}

/// Returns the words of a text that contain a letter, in lower case, with their positions. Marks of emphasis and backslashes in
/// words are ignored.
fn words(text: &str) -> Vec<(Range<usize>, String)> {
    let mut found: Vec<(Range<usize>, String)> = Vec::new();
    let mut word = String::new();
    let mut start = 0;
    for (at, c) in text.char_indices().chain([(text.len(), ' ')]) {
        if c.is_alphanumeric() {
            if word.is_empty() {
                start = at;
            }
            word.extend(c.to_lowercase());
        } else if !matches!(c, '*' | '_' | '~' | '`' | '\\') && !crate::domain::model::characters::is_invisible(c)
            || c == '\n'
        {
            if word.chars().any(char::is_alphabetic) {
                found.push((start..at, std::mem::take(&mut word)));
            }
            word.clear();
        }
    }
    found
}

/// Returns the runs of words of a text that are not among the words of the page, and counts down those that are.
fn missing(text: &str, page: &mut HashMap<String, usize>) -> Vec<String> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    let mut continues = false;
    for (place, word) in words(text) {
        match page.get_mut(&word).filter(|count| **count > 0) {
            Some(count) => {
                *count -= 1;
                continues = false;
            }
            None => {
                match runs.last_mut().filter(|_| continues) {
                    Some(run) => run.end = place.end,
                    None => runs.push(place),
                }
                continues = true;
            }
        }
    }
    let long = |run: &Range<usize>| text[run.clone()].chars().filter(|c| c.is_alphabetic()).count() >= LETTERS;
    runs.into_iter().filter(long).map(|run| text[run].to_owned()).collect()
}
