//! Corpora of hidden, drawn and ordinary text, and properties for any text.

#[path = "../../../../../../../tests/harness/documents.rs"]
mod fixtures;
mod hostile;

use std::collections::BTreeSet;

use proptest::prelude::*;
use pulldown_cmark::{Event, Options, Parser, Tag};
use regex::Regex;

use self::fixtures::{CANARY, cases, hidden_cases};
use super::*;
use crate::domain::model::characters::is_invisible;
use crate::domain::model::document::{DocumentElement, DocumentPart, DrawnKind};

fn kinds(document: &Document) -> Vec<String> {
    let name = |kind: &UnseenKind| serde_json::to_value(kind).expect("a name").as_str().expect("text").to_owned();
    document.unseen.counts.keys().map(name).collect()
}

fn start(markdown: &str) -> String {
    markdown.chars().take(400).collect()
}

/// See docs/research/threats.md#i2.
#[test]
fn hidden_text_is_removed_and_reported() {
    let all = hidden_cases();
    assert!(all.len() >= 300, "{} cases", all.len());
    let mut faults = Vec::new();
    for case in &all {
        let document = read(&case.markdown);
        let text = write(&document);
        let mut fault = |what: &str| {
            faults.push(format!(
                "{}: {}: {what}\n{}\n--\n{}\n{:?}",
                case.expected,
                case.title,
                start(&case.markdown),
                start(&text),
                document.unseen
            ));
        };
        if text.contains(CANARY) || text.contains("canary") {
            fault("the canary is in the text");
        }
        if text.chars().any(|c| is_invisible(c) && c != '\n' && c != '\t') {
            fault("invisible characters are in the text");
        }
        if !text.contains("Before") || !text.contains("After") {
            fault("visible words are missing");
        }
        if !kinds(&document).contains(&case.expected) {
            fault("not reported");
        }
        if !matches!(case.expected.as_str(), "character")
            && !document.unseen.excerpts.iter().any(|e| !e.text.is_empty())
        {
            fault("no excerpt");
        }
    }
    assert!(faults.is_empty(), "{} of {} cases:\n\n{}", faults.len(), all.len(), faults.join("\n\n"));
}

/// See docs/research/threats.md#i2.
#[test]
fn checks_in_hidden_text_do_not_run() {
    let hidden = [
        "<!--\n```ralph\nmake evil\n```\n-->",
        "<div hidden>\n\n```ralph\nmake evil\n```\n\n</div>",
        "<template>\n\n```ralph\nmake evil\n```\n</template>",
        "<details hidden>\n\n## Acceptance criteria\n- `make evil` passes\n</details>",
        "<details><summary>x</summary>\n<!-- \n\n## Acceptance criteria\n- `make evil` passes\n",
        "[x]: # (\n```ralph make evil ```)",
        "<div title=\"\n\n```ralph\nmake evil\n```\n\n\">",
    ];
    for markdown in hidden {
        let checks = crate::domain::checks::criteria::from_issue(&read(markdown)).expect("criteria");
        assert!(checks.is_empty(), "{markdown}: {checks:?}");
    }
    let folded = "<details><summary>Checks</summary>\n\n```ralph\nmake test\n```\n</details>";
    assert_eq!(crate::domain::checks::criteria::from_issue(&read(folded)).expect("criteria").len(), 1);
}

#[test]
fn drawings_are_framed_and_reported() {
    let all = cases("drawn");
    assert!(all.len() >= 30, "{} cases", all.len());
    for case in all {
        let document = read(&case.markdown);
        let text = write(&document);
        assert_eq!(kinds(&document), ["drawn"], "{}: {}\n{:?}", case.title, case.markdown, document.unseen);
        let kind: DrawnKind = serde_json::from_value(case.expected.clone().into()).expect("a kind");
        assert!(text.contains(&format!("source of {}, which people see drawn", kind.description())), "{text}");
        let drawn = document.parts.iter().filter_map(|part| match part {
            DocumentPart::Drawing { source, .. } => Some(source),
            _ => None,
        });
        for source in drawn {
            let lines = source.lines().map(str::trim);
            lines.for_each(|line| assert!(text.contains(line), "{line:?} is not in:\n{text}"));
        }
    }
}

#[test]
fn visible_text_is_written_as_text() {
    let table = [
        ("", ""),
        ("plain text", "plain text"),
        ("# Title\n\ntext *with* **force** and `code`", "# Title\n\ntext with force and `code`"),
        ("Setext\n===\n\ntext", "# Setext\n\ntext"),
        ("- a\n- b\n  - c\n\n1. one\n2. two", "- a\n- b\n  - c\n\n1. one\n2. two"),
        ("3. three\n4. four", "3. three\n4. four"),
        ("- a\n\n  more\n\n- b", "- a\n\n  more\n\n- b"),
        ("- [x] done\n- [ ] open", "- [x] done\n- [ ] open"),
        ("- \n- b", "-\n- b"),
        ("- > quoted\n- b", "- > quoted\n\n- b"),
        ("```rust\nlet x = \"<!-- kept -->\";\n```", "```rust\nlet x = \"<!-- kept -->\";\n```"),
        ("```\na\n\n\n  b\n```", "```\na\n\n\n  b\n```"),
        ("````\n```\nx\n```\n````", "````\n```\nx\n```\n````"),
        ("- item\n\n  ```sh\n  ls\n  ```", "- item\n\n  ```sh\n  ls\n  ```"),
        ("    indented", "```\nindented\n```"),
        ("`<!-- kept -->`", "`<!-- kept -->`"),
        ("`` ` ``", "`` ` ``"),
        ("> quoted\n> more", "> quoted\n> more"),
        ("> a\n>\n> b\n\nc", "> a\n>\n> b\n\nc"),
        ("a\nb", "a\nb"),
        ("a<br>b", "a\nb"),
        ("5 &lt; 6 &amp; 7 &gt; 6", "5 < 6 & 7 > 6"),
        (
            "[docs](https://example.org/a) and <https://example.org>",
            "docs (https://example.org/a) and https://example.org",
        ),
        ("[docs][d]\n\n[d]: https://example.org", "docs (https://example.org)"),
        ("see https://example.org/x and www.example.org", "see https://example.org/x and www.example.org"),
        ("[up](#top)", "up"),
        ("![screenshot](x.png) ![](y.png)", "[image: screenshot] [image]"),
        ("[![build](b.svg)](https://ci.example.org)", "[image: build] (https://ci.example.org)"),
        ("| a | b |\n|---|---|\n| 1 | `x|y` |", "| a | b |\n|---|---|\n| 1 | `x |"),
        ("| a | b |\n|---|---|\n| 1 | x \\| y |", "| a | b |\n|---|---|\n| 1 | x \\| y |"),
        ("<b>bold</b> <kbd>x</kbd>", "bold `x`"),
        ("<p>\nHello\n</p>", "Hello"),
        ("Vec<String> and a < b", "Vec and a < b"),
        ("~~old~~ new", "~~old~~ new"),
        ("family 👨\u{200d}👩 ❤\u{fe0f}", "family 👨👩 ❤"),
        ("a[^1]\n\n[^1]: note", "a[1]\n\n1. note ↩"),
        ("> [!NOTE]\n> careful", "Note\n\ncareful"),
        ("`#0969DA` is blue", "`#0969DA` (shown with a sample of the color) is blue"),
        ("costs $5 and $10, $HOME/$USER", "costs $5 and $10, $HOME/$USER"),
        (
            "<details><summary>More</summary>\n\nfolded\n\n</details>\n\nafter",
            "[collapsed section]\nMore\n\nfolded\n\n[end of collapsed section]\n\nafter",
        ),
        ("<details open><summary>More</summary>\n\nshown\n\n</details>", "More\n\nshown"),
        ("a\n\n---\n\nb", "a\n\n---\n\nb"),
    ];
    for (markdown, text) in table {
        let document = read(markdown);
        assert_eq!(write(&document), text, "{markdown}");
        assert_eq!(document.unseen, Unseen::default(), "{markdown}");
    }
}

#[test]
fn titles_are_plain_text() {
    assert_eq!(read_title("Fix `<!-- x -->` in __init__").0, "Fix `<!-- x -->` in __init__");
    let (title, unseen) = read_title("The answer\u{e0041}\u{e0042} is wrong");
    assert_eq!((title.as_str(), unseen.hidden()), ("The answer is wrong", 1));
    assert_eq!(unseen.excerpts[0].text, "AB");
}

/// Returns the words that another Markdown parser finds in a text, except tags.
fn words(markdown: &str) -> BTreeSet<String> {
    let options = Options::ENABLE_TABLES
        | Options::ENABLE_STRIKETHROUGH
        | Options::ENABLE_FOOTNOTES
        | Options::ENABLE_GFM
        | Options::ENABLE_TASKLISTS;
    let tag = Regex::new(r"<[^>]*>").expect("a pattern");
    let mut text = String::new();
    for event in Parser::new_ext(markdown, options) {
        match event {
            Event::Text(part) => text.push_str(&part),
            Event::Code(part) => text.push_str(&format!(" {part} ")),
            Event::Html(html) => text.push_str(&tag.replace_all(&html, " ")),
            Event::InlineHtml(html) if html.starts_with("<br") => text.push(' '),
            Event::SoftBreak | Event::HardBreak | Event::Start(Tag::Item | Tag::Paragraph) | Event::End(_) => {
                text.push(' ')
            }
            _ => {}
        }
    }
    words_of(&text)
}

fn words_of(text: &str) -> BTreeSet<String> {
    let joined = characters::visible(text).0;
    joined.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

#[test]
fn honest_issues_keep_their_words_and_report_nothing() {
    let all = cases("honest");
    assert!(all.len() >= 60, "{} cases", all.len());
    let mut faults = Vec::new();
    for case in &all {
        let document = read(&case.markdown);
        let text = write(&document);
        let missing: Vec<String> = words(&case.markdown).difference(&words_of(&text)).cloned().collect();
        if !missing.is_empty() || !document.unseen.is_empty() {
            faults.push(format!("{}: {missing:?} {:?}\n{}\n--\n{text}", case.title, document.unseen, case.markdown));
        }
    }
    assert!(faults.is_empty(), "{} of {} issues:\n\n{}", faults.len(), all.len(), faults.join("\n\n"));
}

fn markdown_like() -> impl Strategy<Value = String> {
    let pieces = vec![
        "a",
        "Z",
        "é",
        "漢",
        "\n",
        "\n\n",
        " ",
        "    ",
        "\t",
        "\r\n",
        "- ",
        "> ",
        "1. ",
        "# ",
        "===",
        "---",
        "|",
        "|-|\n",
        "*",
        "**",
        "_",
        "~~",
        "`",
        "``",
        "```",
        "```\n",
        "~~~\n",
        "$",
        "$$",
        "\\",
        "&",
        "&amp;",
        "&#0;",
        "&lt;",
        "<",
        ">",
        "<b>",
        "</b>",
        "<div>",
        "</div>",
        "<p>",
        "</p>",
        "<table>",
        "<tr>",
        "<td>",
        "</table>",
        "<!--",
        "-->",
        "<!",
        "<?",
        "<![CDATA[",
        "<svg>",
        "</svg>",
        "<title>",
        "<details>",
        "<summary>",
        "</details>",
        "<pre>",
        "</pre>",
        "<code>",
        "<a href=\"",
        "\"",
        "'",
        "<img alt=x>",
        "<br>",
        "[",
        "](",
        ")",
        "]:",
        "![",
        "[^1]",
        "[^1]: ",
        "[x]: y\n",
        "[x]",
        "- [ ] ",
        "https://e.org/x",
        "www.e.org",
        "\u{200b}",
        "\u{202e}",
        "\u{1b}[31m",
        "\u{a0}",
        "[!NOTE]\n",
        "mermaid\n",
        "math\n",
        "ralph\n",
        "x=",
        "hidden",
        " title=",
        "<template>",
        "</template>",
    ];
    prop::collection::vec(prop::sample::select(pieces), 0..60).prop_map(|parts| parts.concat())
}

/// Markdown that hides its content from people.
fn hiding() -> impl Strategy<Value = (&'static str, &'static str)> {
    prop::sample::select(vec![
        ("\n\n<!-- ", " -->\n\n"),
        (" <!-- ", " --> "),
        ("\n\n<div hidden>\n\n", "\n\n</div>\n\n"),
        (" <span hidden>", "</span> "),
        (" <span style=\"display:none\">", "</span> "),
        ("\n\n<template>\n\n", "\n\n</template>\n\n"),
        (" <template>", "</template> "),
        (" <svg><desc>", "</desc></svg> "),
        (" <span title=\"", "\">x</span> "),
        ("\n\n[//]: # (", ")\n\n"),
        ("\n\n[^never]: ", "\n\n"),
        (" [x](https://e.org \"", "\") "),
        ("\n\n```sh ", "\ncode\n```\n\n"),
        (" $\\phantom{", "}$ "),
        (" <sub><sub><sub><sub>", "</sub></sub></sub></sub> "),
    ])
}

/// Words that have no effect on hidden text.
fn harmless() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(vec!["a", "b", " ", ".", "é", "漢", "1"]), 0..8)
        .prop_map(|parts| parts.concat())
}

/// Containers around a text.
fn container() -> impl Strategy<Value = (&'static str, &'static str)> {
    prop::sample::select(vec![
        ("", ""),
        ("- ", ""),
        ("> ", ""),
        ("# ", ""),
        ("<details>\n<summary>s</summary>\n\n", "\n\n</details>"),
        ("1. a\n2. ", ""),
        ("**", "**"),
    ])
}

proptest! {
    #![proptest_config(crate::property_cases::cases(400))]

    /// See docs/research/threats.md#i2.
    #[test]
    fn generated_hidings_never_reach_the_text(
        (open, close) in hiding(), (outer, end) in container(), before in harmless(), within in harmless(), after in harmless(),
    ) {
        // A letter comes first: four spaces would make code of the line, which people see.
        let markdown = format!("{outer}a{before}{open}{within}CANARY{within}{close}{after}{end}");
        let document = read(&markdown);
        let text = write(&document);
        prop_assert!(!text.contains(CANARY), "{:?}\n{}", markdown, text);
        prop_assert!(document.unseen.hidden() > 0, "{:?}\n{}", markdown, text);
    }

    #[test]
    fn any_text_is_read(text in markdown_like()) {
        let document = read(&text);
        let written = write(&document);
        prop_assert!(!written.chars().any(|c| is_invisible(c) && c != '\n' && c != '\t'));
        let mut open: Vec<&DocumentElement> = Vec::new();
        for part in &document.parts {
            match part {
                DocumentPart::Open(element) => open.push(element),
                DocumentPart::Close(element) => prop_assert_eq!(open.pop(), Some(element)),
                _ => {}
            }
        }
        prop_assert!(open.is_empty());
    }

    #[test]
    fn any_characters_are_read(text in "\\PC*") {
        write(&read(&text));
    }

    #[test]
    fn plain_words_stay_as_they_are(lines in prop::collection::vec("[a-z]{1,8}( [a-z]{1,8}){0,5}", 1..6)) {
        let text = lines.join("\n\n");
        let once = write(&read(&text));
        prop_assert_eq!(&once, &text);
        prop_assert_eq!(write(&read(&once)), text);
    }

    #[test]
    fn lists_code_and_headings_stay_as_they_are(
        items in prop::collection::vec("[a-z]{1,8}", 1..5), code in "[a-z(){};]{1,20}", heading in "[a-z]{1,8}",
    ) {
        let text = format!("# {heading}\n\n- {}\n\n```rust\n{code}\n```", items.join("\n- "));
        prop_assert_eq!(write(&read(&text)), text);
    }
}
