//! Plain text that would have effects on a forge, and properties for any text.

use proptest::prelude::*;
use regex::Regex;

use super::*;

/// Returns everything in plain text that forges, CI systems and bots obey. Written independently of the code under test.
fn acting(text: &str) -> Vec<String> {
    let patterns = [
        r"@\S",
        r"#\d",
        r"!\d",
        r"(?i)\bgh-\d",
        r"#[A-Za-z]",
        r"(?i)\w+://",
        r"(?i)\bwww\.",
        r"(?i)\[[^\]]*\b(?:skip|no)[\s_-]*(?:ci|actions|azurepipelines|azp|travis|appveyor|netlify|circleci|build)[^\]]*\]",
        r"(?i)\[[^\]]*\b(?:ci|actions|azurepipelines|azp|travis|cirrus)[\s_-]*skip[^\]]*\]",
        r"(?i)\*\*\*\s*no_ci\s*\*\*\*",
        r"(?i)skip-checks",
        r"(?i)<!--\s*ralph:",
        r"[\p{Default_Ignorable_Code_Point}\p{Bidi_Control}\p{Cc}]",
        r"(?m)^[/!][a-z]+ ",
    ];
    let found =
        |pattern: &str| Regex::new(pattern).expect("a pattern").find(text).map(|found| found.as_str().to_owned());
    patterns.iter().filter_map(|pattern| found(pattern)).collect()
}

/// See docs/research/threats.md#i8, docs/research/threats.md#g16.
#[test]
fn titles_contain_no_active_markup() {
    let table = [
        ("Fix #12 for @octocat\n[skip ci] now", "Fix no. 12 for (at)octocat (skip ci) now"),
        ("C# 5 and a@ b", "C# 5 and a(at) b"),
        ("fixes owner/repo#1, closes GH-3 and !4", "fixes owner/repo no. 1, closes GH 3 and no. 4"),
        ("resolves https://forge.example/o/r/issues/1", "resolves https[:]//forge.example/o/r/issues/1"),
        ("fix\u{200b}es #\u{202e}1", "fixes no. 1"),
        ("AB#12 JIRA-1 #close #time 2h @1h30m", "AB no. 12 JIRA-1 # close # time 2h (at)1h30m"),
        ("***NO_CI*** x [no-ci] [ci skip] [azp  skip]", "NO CI x (no ci) (ci skip) (azp skip)"),
        ("[ skip\tactions ] skip-checks: true", "( skip actions ) skip checks: true"),
        ("WIP: [Draft] a change", "a change"),
        ("/approve this", "approve this"),
        ("a[0] = b", "a[0] = b"),
        ("Co-authored-by: Eve <eve@example.org>", "Co-authored-by: Eve <eve(at)example.org>"),
    ];
    for (text, expected) in table {
        let safe = title(text);
        assert_eq!(safe, expected, "{text:?}");
        assert_eq!(acting(&safe), Vec::<String>::new(), "{text:?} -> {safe:?}");
    }
    assert_eq!(title(&"x".repeat(200)).chars().count(), 121);
}

/// See docs/research/threats.md#g16.
#[test]
fn co_author_is_written_for_logins_only() {
    let written = co_author("mona", 7, "forge.example").expect("a trailer");
    assert_eq!(written, "Co-authored-by: mona <7+mona@users.noreply.forge.example>");
    assert!(co_author("mona\nSigned-off-by: x", 7, "forge.example").is_none() && co_author("", 1, "h").is_none());
    assert!(co_author("dependabot[bot]", 7, "localhost:3000").is_some());
}

fn active_like() -> impl Strategy<Value = String> {
    let parts = vec![
        "@",
        "#",
        "!",
        "1",
        "org/team",
        "fixes ",
        "closes: ",
        "GH-",
        "gh-",
        "https",
        ":",
        "//",
        "/",
        "www.",
        "[",
        "]",
        "skip",
        " ",
        "ci",
        "-",
        "_",
        "no",
        "actions",
        "azp",
        "***",
        "NO_CI",
        "skip-checks: true",
        "\n",
        "\r",
        "\u{200b}",
        "\u{202e}",
        "\u{e0041}",
        "<!-- ralph:",
        "-->",
        "WIP",
        "Draft:",
        "/approve",
        "a",
        "é",
        "(",
        ")",
        "*",
        "fixup!",
        "\u{1b}[31m",
        "\t",
    ];
    prop::collection::vec(prop::sample::select(parts), 0..30).prop_map(|parts| parts.concat())
}

proptest! {
    /// See docs/research/threats.md#i8, docs/research/threats.md#i9.
    #[test]
    fn plain_text_is_stable_and_inert(text in active_like()) {
        for safe in [title(&text), subject(&text, 100), plain_line(&text)] {
            let without_command: Vec<String> = acting(&format!("ralph: {safe}"));
            prop_assert_eq!(without_command, Vec::<String>::new(), "{:?} -> {:?}", text, safe);
            prop_assert_eq!(&plain_line(&safe), &safe, "from {:?}", text);
        }
        prop_assert_eq!(acting(&title(&text)), Vec::<String>::new());
    }

    #[test]
    fn any_line_is_accepted(text in "\\PC*") {
        title(&text);
        subject(&text, 10);
    }
}
