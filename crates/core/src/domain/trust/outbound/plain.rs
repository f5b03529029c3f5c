//! Foreign text in plain text that forges, CI systems and bots act upon: titles and commit messages.
//!
//! Plain text has no markup that could make a text inert, so characters that trigger an effect are replaced. Ids of commits are
//! kept, because forges only link them.

use std::sync::LazyLock;

use regex::Regex;

use crate::domain::trust::sanitize::visible;

/// Maximum length of a title, in characters.
const TITLE_CHARACTERS: usize = 120;
/// Maximum length of a text, in bytes; the rest is omitted.
const LONGEST: usize = 16 * 1024;

/// Text that triggers an effect, such as a mention or a reference.
static ACTIVE: LazyLock<Regex> = LazyLock::new(|| {
    constant(concat!(
        // Mentions, times spent (`@1h`), commits of other repositories.
        r"(?P<at>@)|",
        // References to issues, also of other trackers, and commands to them (`#close`).
        r"(?P<number>[#!]+)(?:\d)|(?P<command>#+)(?:\p{L})|(?i:(?P<gh>\bgh-)\d)|",
        // Addresses, of issues among others.
        r"(?P<scheme>:/{2,})|(?i:\b(?P<www>www\.))",
    ))
});
/// Text in brackets that a CI system may obey, such as `[skip ci]`.
static BRACKETS: LazyLock<Regex> =
    LazyLock::new(|| constant(r"(?i)\[([^\]]*(?:skip|no|ci|azp|actions|deploy|build|wip|draft)[^\]]*)\]"));
/// Words that CI systems obey even without brackets, also as parts of longer words.
static WORDS: LazyLock<Regex> = LazyLock::new(|| {
    constant(r"(?i)\*+(\s*no[\s_-]*ci\s*)\*+|(no)\s*[_-]+\s*(ci)|(skip)\s*[_-]+\s*(checks|ci)|(ci)\s*[_-]+\s*(skip)")
});
/// Prefixes of titles that forges obey: markers of unfinished pull requests, and of commits that are to be squashed.
static PREFIX: LazyLock<Regex> = LazyLock::new(|| {
    constant(r"(?i)^(?:[\s(\[]*(?:wip|draft|do not merge)\b[\])]*\s*(?::|$|-|\]|\))|(?:fixup|squash|amend)!|[\s/!])\s*")
});

/// Instructions to CI systems, in brackets or as a trailer. They are removed from any text that may become a commit message.
static CI_WORDS: LazyLock<Regex> = LazyLock::new(|| {
    let systems = "ci|actions|azure-?pipelines|azp|travis|appveyor|circle-?ci|netlify|buildkite|drone|woodpecker|cirrus|vercel|build|deploy";
    constant(&format!(
        r"(?i)\[(\s*(?:skip[\s_-]*(?:{systems})|(?:{systems})[\s_-]*skip|no[\s_-]*(?:{systems}))\s*)\]|\*+(\s*no[\s_-]*ci\s*)\*+|(skip)-(checks\s*:)"
    ))
});

/// Removes the words that CI systems obey in commit messages.
pub(super) fn without_ci_words(text: &str) -> String {
    let words = CI_WORDS.replace_all(text, |found: &regex::Captures<'_>| match (found.get(1), found.get(2)) {
        (Some(words), _) => format!("({})", words.as_str()),
        (_, Some(words)) => words.as_str().replace('_', " ").trim().to_owned(),
        _ => found[0].replacen('-', " ", 1),
    });
    words.into_owned()
}

fn constant(pattern: &str) -> Regex {
    Regex::new(pattern).expect("a constant pattern")
}

/// Returns a text on one line without effects: without mentions, references, URLs, trailers, words that CI systems obey, and
/// invisible characters. Applying it twice has the same result as applying it once.
pub fn plain_line(text: &str) -> String {
    /// Maximum number of passes. Few are needed, because each pass removes characters.
    const PASSES: usize = 16;
    let text = visible(&text[..text.floor_char_boundary(LONGEST)]);
    let mut line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for _ in 0..PASSES {
        let next = inert(&line);
        if next == line {
            return line;
        }
        line = next;
    }
    // Nothing acts without these.
    line.replace(['@', '#', '!', '[', ']', '*', '_', ':', '-', '.'], " ")
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

fn inert(line: &str) -> String {
    let line = BRACKETS.replace_all(line, "($1)");
    let line = WORDS.replace_all(&line, |found: &regex::Captures<'_>| {
        let parts: Vec<&str> = found.iter().skip(1).flatten().map(|part| part.as_str().trim()).collect();
        parts.join(" ").replace(['_', '-'], " ")
    });
    let mut out = String::with_capacity(line.len() + 16);
    let mut at = 0;
    for found in ACTIVE.captures_iter(&line) {
        let replacements = [
            ("at", "(at)"),
            ("number", "no. "),
            ("command", "# "),
            ("gh", "GH "),
            ("scheme", "[:]//"),
            ("www", "www "),
        ];
        for (group, instead) in replacements {
            let Some(mark) = found.name(group) else { continue };
            out.push_str(&line[at..mark.start()]);
            if group == "number" && out.ends_with(|c: char| !c.is_whitespace() && c != '(') {
                out.push(' ');
            }
            out.push_str(instead);
            at = mark.end();
        }
    }
    out.push_str(&line[at..]);
    out.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns a text as a title: [`plain_line`] with at most 120 characters, without prefixes that forges obey.
pub fn title(text: &str) -> String {
    let mut title = plain_line(text);
    while let Some(mark) = PREFIX.find(&title).filter(|mark| !mark.is_empty()) {
        title = title[mark.end()..].to_owned();
    }
    match title.char_indices().nth(TITLE_CHARACTERS) {
        Some((at, _)) => format!("{}…", title[..at].trim_end()),
        None => title,
    }
}

/// Returns a text as the subject of a commit: `plain_line` with at most `most` characters.
pub fn subject(text: &str, most: usize) -> String {
    let line = plain_line(text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default());
    line.chars().take(most).collect::<String>().trim_end().to_owned()
}

/// Returns a `Co-authored-by` trailer for an account; `None` if the login is invalid.
pub fn co_author(login: &str, id: i64, host: &str) -> Option<String> {
    let named = |text: &str, others: &[char]| {
        !text.is_empty() && text.len() <= 100 && text.chars().all(|c| c.is_ascii_alphanumeric() || others.contains(&c))
    };
    // Bots have brackets in their names.
    let is_valid = named(login, &['-', '_', '.', '[', ']']) && named(host, &['-', '.', ':']);
    is_valid.then(|| format!("Co-authored-by: {login} <{id}+{login}@users.noreply.{host}>"))
}

#[cfg(test)]
#[path = "plain_tests.rs"]
mod tests;
