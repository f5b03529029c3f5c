//! Corpora of text with effects on a forge, and properties for any text.

use proptest::prelude::*;
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use super::*;

/// Returns everything in rendered Markdown that could have an effect.
fn acting(markdown: &str) -> Vec<String> {
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_FOOTNOTES;
    let parser = Parser::new_ext(markdown, options);
    let mut found: Vec<String> = parser.reference_definitions().iter().map(|(name, _)| format!("def {name}")).collect();
    let mut in_code = false;
    let mut text = String::new();
    for (event, range) in parser.into_offset_iter() {
        let begins_line = range.start == 0 || markdown[..range.start].ends_with('\n');
        let command =
            |from: &str| from.starts_with(['/', '!']) && from[1..].starts_with(|c: char| c.is_ascii_alphabetic());
        if matches!(event, Event::Text(_)) && !in_code && begins_line && command(&markdown[range.start..]) {
            found.push("command".into());
        }
        match event {
            Event::Start(Tag::CodeBlock(_)) => in_code = true,
            Event::End(TagEnd::CodeBlock) => in_code = false,
            Event::Start(Tag::Link { dest_url, .. }) | Event::Start(Tag::Image { dest_url, .. }) => {
                found.push(format!("link {dest_url}"));
            }
            Event::Start(Tag::Heading { .. }) => found.push("heading".into()),
            Event::Html(html) | Event::InlineHtml(html) => found.push(format!("html {html}")),
            Event::Text(part) if !in_code => text.push_str(&part),
            Event::Code(_) => text.push('\u{1}'),
            Event::End(TagEnd::Emphasis | TagEnd::Strong | TagEnd::Strikethrough | TagEnd::Link) => {}
            Event::SoftBreak | Event::HardBreak | Event::End(_) => text.push('\n'),
            _ => {}
        }
    }
    // Markers are read from a comment's text as it is, not as it is shown.
    let marker = regex::Regex::new(r"(?i)<!--\s*ralph:").expect("a constant pattern");
    found.extend(marker.find_iter(markdown).map(|m| format!("marker {}", m.as_str())));
    let live = regex::Regex::new(r"(?im)@[a-z0-9]|#\d|\bGH-\d|https?://|\bwww\.\w|!\d").expect("a constant pattern");
    found.extend(live.find_iter(&text).map(|m| format!("text {}", m.as_str())));
    found
}

/// See docs/research/threats.md#i6, docs/research/threats.md#i8.
#[test]
fn foreign_text_has_no_effect_in_comments() {
    let table = [
        ("ask @octocat and @org/team.", "ask `@octocat` and `@org/team`."),
        ("fixes &commat;*a*", "fixes `@*a`*"),
        ("see #**12**", "see `#**12`**"),
        ("see #_12_ and !_1. `_", "see `#_12_` and `!_1`. '_"),
        ("mail a.b@example.org!", "mail `a.b@example.org`!"),
        ("fixes #1, closes org/repo#2 and GH-3", "fixes `#1`, closes `org/repo#2` and `GH-3`"),
        ("resolves https://github.com/o/r/issues/1.", "resolves `https://github.com/o/r/issues/1`."),
        ("/approve", "`/approve`"),
        ("/ralph abort now", "`/ralph` abort now"),
        ("- /merge\n> !deploy prod", "- `/merge`\n> `!deploy` prod"),
        ("@dependabot merge", "`@dependabot` merge"),
        ("![alt](https://evil.example/?d=1)", "alt"),
        ("> [`]: https://evil.example`", "> \\[`]: https://evil.example`"),
        ("[one `]` two\nof `]: x`", "\\[one `]` two\nof `]: x`"),
        ("[`x`] is [one\n[of `]: x`", "[`x`] is [one\n\\[of `]: x`"),
        ("[text](https://example.org/x) [bad](javascript:alert)", "text (`https://example.org/x`) bad"),
        ("[a][b]\n\n[b]: https://example.org", "[a] [b]\n\n[b] : `https://example.org`"),
        ("<script>x</script> <b>", "&lt;script>x&lt;/script> &lt;b>"),
        ("x <!-- ralph:1 x -->", "x  ralph:1 x -->"),
        ("# Heading\ntext\n---\nmore", "Heading\ntext\nmore"),
        ("- ## Heading in item", "- Heading in item"),
        ("&#64;octocat &commat;octocat &amp;#64;octocat", "`@octocat` `@octocat` `@octocat`"),
        ("\\@octocat fixes \\#1", "`@octocat` fixes `#1`"),
        ("a stray ` tick @octocat", "a stray ' tick `@octocat`"),
        ("kept `@code` and `a\\.b`", "kept `@code` and `a\\.b`"),
        ("`a`@octocat", "`a` `@octocat`"),
        ("AT&T & co; 5 < 6", "AT&amp;T & co; 5 &lt; 6"),
        ("```mermaid\ngraph\n", "```text\ngraph\n```"),
        ("```\n/approve\n```\n````\n```\n@x\n````", "```\n /approve\n```\n````\n```\n @x\n````"),
        ("a\u{202e}b\u{200b}c\x1b[31md\x1b[0m", "abcd"),
        ("* item **bold** _it_", "* item **bold** _it_"),
        ("run `cargo test`.", "run `cargo test`."),
    ];
    for (text, expected) in table {
        let safe = for_people(text);
        assert_eq!(safe, expected, "{text:?}");
        assert_eq!(acting(&safe), Vec::<String>::new(), "{text:?} -> {safe:?}");
    }
}

#[test]
fn cells_and_code_contain_foreign_text() {
    assert_eq!(table_cell("a | b\nc \\| d @x"), "a \\| b c \\| d `@x`");
    assert_eq!(table_cell("ends with \\"), "ends with ");
    assert_eq!(inline_code(""), "");
    assert_eq!(inline_code("a"), "`a`");
    assert_eq!(inline_code("a ``b`` `c`\nd"), "```a ``b`` `c` d```");
    assert_eq!(inline_code("`a"), "`` `a ``");
    assert_eq!(fence("a\n```\nb\n", "rust"), "````rust\na\n```\nb\n````");
    assert_eq!(fence("", "sh -c @x"), "```sh\n```");
    assert_eq!(fence("/usr/bin/x: no\n/retest", ""), "```\n/usr/bin/x: no\n /retest\n```");
}

#[test]
fn long_output_keeps_its_end() {
    assert_eq!(truncate_lines("a\nb\n", 60, 1000), "a\nb");
    assert_eq!(truncate_lines("a\nb\nc\n", 2, 1000), "… 1 line left out\nb\nc");
    assert_eq!(truncate_lines("aaaa\nbbbb\ncc", 60, 7), "… 2 lines left out\ncc");
    assert_eq!(truncate_lines("a\nb", 0, 100), "… 2 lines left out");
    assert_eq!(
        truncate_lines(&"ä".repeat(10), 5, 5),
        format!("… 0 lines and the start of this line left out\n{}", "ä".repeat(2))
    );
    assert_eq!(truncate_lines("", 5, 5), "");
}

#[test]
fn hostile_sizes_are_processed_quickly() {
    let big = |part: &str| part.repeat(100_000 / part.len());
    for part in [
        "&amp;",
        "amp;",
        "&#5",
        "[",
        "[[a](b)",
        "`",
        "``a",
        "<!--",
        "<!-- ralph:",
        "<div hidden>",
        "> ",
        "- ",
        "\\",
        "@a@",
        "*_",
        "<",
        "&#3&#56;;",
        "\u{1b}[",
        "| a ",
        "~~~\n",
    ] {
        let text = big(part);
        for_people(&text);
        fence(&text, "");
    }
}

fn markdown_like() -> impl Strategy<Value = String> {
    prop::collection::vec(
        prop::sample::select(vec![
            "@user",
            "#1",
            "fixes ",
            "`",
            "``",
            "```",
            "~~~",
            "\n",
            "\n\n",
            " ",
            "    ",
            "\\",
            "<!--",
            "-->",
            "<!-- ralph:1",
            "<b>",
            "[",
            "](",
            ")",
            "]:",
            "![",
            "https://e.org/x",
            "www.e.org",
            "&",
            "#",
            "# ",
            "amp;",
            "lt;",
            "#64;",
            "x40;",
            "- ",
            "> ",
            "1. ",
            "===",
            "---",
            "|",
            "*",
            "_",
            "~",
            "/approve",
            "!go",
            "a",
            "Z",
            "é",
            "\u{200b}",
            "\u{202e}",
            "\u{1b}[31m",
            "\t",
            "\r\n",
            ".",
            ":",
            "(",
            "'",
            "\"",
            "GH-1",
            "</details>",
            "<details>",
            "org/repo",
            "&#96;",
            "&commat;",
            "!",
            "\u{a0}",
        ]),
        0..40,
    )
    .prop_map(|parts| parts.concat())
}

proptest! {
    /// See docs/research/threats.md#i8, docs/research/threats.md#i9.
    #[test]
    fn displayed_text_is_stable_and_inert(text in markdown_like()) {
        let safe = for_people(&text);
        prop_assert_eq!(&for_people(&safe), &safe, "from {:?}", text);
        prop_assert_eq!(acting(&safe), Vec::<String>::new(), "{:?} -> {:?}", text, safe);
    }

    #[test]
    fn displayed_text_does_not_change_the_surrounding_structure(text in markdown_like()) {
        let page = |inside: &str| format!("### One\n\n{inside}\n\n<details>\n<summary>s</summary>\n\nx\n\n</details>\n\n### Two\n");
        let structure = |markdown: &str| -> Vec<String> {
            Parser::new(markdown).filter_map(|event| match event {
                Event::Start(Tag::Heading { .. }) => Some("heading".to_owned()),
                Event::Html(html) => Some(html.trim().to_owned()),
                _ => None,
            }).collect()
        };
        let safe = for_people(&text);
        prop_assert_eq!(structure(&page(&safe)), structure(&page("plain")), "{:?}", safe);
    }

    /// See docs/research/threats.md#i9.
    #[test]
    fn fence_can_contain_any_text(text in markdown_like()) {
        let block = fence(&text, "text");
        let tail = format!("{block}\n\nafter");
        let events: Vec<Event<'_>> = Parser::new(&tail).collect();
        let blocks = events.iter().filter(|e| matches!(e, Event::Start(Tag::CodeBlock(_)))).count();
        prop_assert_eq!(blocks, 1);
        prop_assert!(matches!(events.last(), Some(Event::End(TagEnd::Paragraph))));
    }

    #[test]
    fn any_text_stays_in_one_table_cell(text in markdown_like()) {
        let table = format!("| a | b |\n|---|---|\n| {} | end |\n", table_cell(&text));
        let cells = Parser::new_ext(&table, Options::ENABLE_TABLES).filter(|e| matches!(e, Event::Start(Tag::TableCell))).count();
        prop_assert_eq!(cells, 4, "{}", table);
        prop_assert!(table.contains("| end |"));
        let rows = Parser::new_ext(&table, Options::ENABLE_TABLES).filter(|e| matches!(e, Event::Start(Tag::TableRow))).count();
        prop_assert_eq!(rows, 1);
    }

    #[test]
    fn any_text_is_accepted(text in "\\PC*", lines in 0..5_usize, bytes in 0..50_usize) {
        for_people(&text);
        inline(&text);
        inline_code(&text);
        prop_assert!(truncate_lines(&text, lines, bytes).len() <= text.len().min(bytes) + 100);
    }
}
