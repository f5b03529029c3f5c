//! Error signatures. A failure keeps its signature even if its line number, folder or time changes.
//!
//! Placeholders replace parts that vary between runs (numbers, hashes, addresses, times, folders). Words, identifiers, error
//! codes and paths within the repository remain, so that different failures have different signatures.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::Regex;

mod first_error;

pub use first_error::{error_lines, first_error};

/// Maximum length of the text that is read, in bytes. The start of an error is enough to identify it.
const MAX_TEXT: usize = 2_000;
/// Maximum length of a signature, in characters.
const MAX_SIGNATURE: usize = 300;
/// Folders at which a path in a signature can start. Parent folders are dropped, because they depend on the location of the
/// checkout.
const ROOTS: [&str; 16] = [
    "src",
    "tests",
    "test",
    "lib",
    "app",
    "apps",
    "packages",
    "pkg",
    "cmd",
    "internal",
    "crates",
    "spec",
    "examples",
    "benches",
    "site-packages",
    "node_modules",
];

static ANSI: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-_])").expect("constant pattern")
});

/// Parts that vary between runs. The groups have the order of the kinds in [`placeholder`].
static VARYING: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r#"(?x)
        ((?-u:\b)[a-z][a-z0-9+.-]{1,10}://[^\s'"<>()\[\]]+)
        |((?-u:\b)[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}(?-u:\b))
        |((?-u:\b)(?:
            [0-9]{4}[-/][0-9]{2}[-/][0-9]{2}
                (?:[T\ ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:[.,][0-9]+)?)?(?:\ ?(?:Z|UTC|[+-][0-9]{2}:?[0-9]{2}))?)?
            |[0-9]{1,2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]+)?
            |[0-9]{1,2}/[0-9]{1,2}/[0-9]{2,4}(?-u:\b)
            |(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*,?\ +)?(?:[0-9]{1,2}\ +)?
                (?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*\.?\ +
                (?:[0-9]{1,2},?\ +)?(?:[0-9]{4}|[0-9]{2}:[0-9]{2}:[0-9]{2})(?:\ +[0-9]{2}:[0-9]{2}:[0-9]{2}|\ +[0-9]{4})?
            |(?:[0-9]+(?:\.[0-9]+)?(?:ns|µs|us|ms|s|m|h|\ (?:ns|µs|us|ms|s|secs?|seconds?|mins?|minutes?|hours?))(?-u:\b)
                \ ?)+
        ))
        |((?-u:\b)0x[0-9a-fA-F]+)
        |((?-u:\b)(?:[0-9]{1,3}(?:\.[0-9]{1,3}){3}|localhost)(?-u:\b)(?::[0-9]+)?
            |\[(?:[0-9a-fA-F]{0,4}:){2,7}[0-9a-fA-F]{0,4}\](?::[0-9]+)?)
        |((?-u:\b)[A-Za-z]:[\\/](?:[^\\/\s:*?"'<>|()]+[\\/])*[^\\/\s:*?"'<>|()]+
            |~?/(?:[\w.@+~%$-]+/)*[\w.@+~%$-]+)
        |(\.{1,2}(?:/[\w.@+~%$-]+)+|(?-u:\b|@)[\w.@+~%$-]+(?:/[\w.@+~%$-]+)+)
        |((?-u:\b)h?[0-9a-fA-F]{7,64}(?-u:\b)(?:[.:,_][0-9]+)*)
        |((?-u:\b)[0-9]+(?:[.:,_][0-9]+)*)
        "#,
    )
    .expect("constant pattern")
});

static IN_PATH: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?-u:\b)[0-9a-fA-F]{7,64}(?-u:\b)|[0-9]{5,}").expect("constant pattern"));

/// Returns a text's signature: one line without colors, with placeholders for varying parts, at most 300 characters. Reads
/// only the first 2,000 bytes.
pub fn normalize(text: &str) -> String {
    let plain = without_ansi(cut(text, MAX_TEXT));
    let mut replaced = String::with_capacity(plain.len());
    let mut done = 0;
    for found in VARYING.captures_iter(&plain) {
        let Some((kind, part)) = found.iter().skip(1).enumerate().find_map(|(kind, part)| Some((kind, part?))) else {
            continue;
        };
        replaced.push_str(&plain[done..part.start()]);
        replaced.push_str(&placeholder(kind, part.as_str()));
        done = part.end();
    }
    replaced.push_str(&plain[done..]);
    one_line(&replaced)
}

/// Returns the placeholder for a varying part of this kind.
fn placeholder(kind: usize, part: &str) -> Cow<'_, str> {
    match kind {
        0 => url(part).into(),
        1 => "<uuid>".into(),
        2 if part.ends_with(' ') => "<time> ".into(),
        2 => "<time>".into(),
        3 => "<addr>".into(),
        4 => "<host>".into(),
        5 => absolute(part).into(),
        6 => relative(part).into(),
        7 => hash(part).into(),
        _ => "#".into(),
    }
}

fn url(part: &str) -> String {
    match part.split_once("://") {
        Some(("file", path)) => absolute(path),
        _ => without_digits(part),
    }
}

/// Returns the text with each run of digits replaced.
fn without_digits(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        if !character.is_ascii_digit() {
            out.push(character);
        } else if !out.ends_with('#') {
            out.push('#');
        }
    }
    out
}

/// Shortens an absolute path to the part that starts at its last well-known folder, or to the file name. Replaces the name
/// of a file directly in a folder for temporary files.
fn absolute(path: &str) -> String {
    let path = path.replace('\\', "/");
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let Some((name, folders)) = parts.split_last() else { return path };
    if let Some(root) = folders.iter().rposition(|folder| ROOTS.contains(folder)) {
        return relative(&parts[root..].join("/"));
    }
    if folders.last().is_some_and(|folder| matches!(*folder, "tmp" | "Temp" | "T" | "shm")) {
        return name.rsplit_once('.').map_or("<tmp>".to_owned(), |(_, extension)| format!("<tmp>.{extension}"));
    }
    relative(name)
}

/// Returns a path within the repository with hashes and long numbers replaced.
fn relative(path: &str) -> String {
    let path = path.strip_prefix("./").unwrap_or(path);
    if path.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'/' | b'.')) {
        return "#".to_owned();
    }
    IN_PATH.replace_all(path, |found: &regex::Captures<'_>| hash(&found[0]).to_owned()).into_owned()
}

fn hash(part: &str) -> &str {
    let digits = part.bytes().filter(u8::is_ascii_digit).count();
    match digits {
        0 => part,
        _ if part.bytes().any(|byte| byte.is_ascii_alphabetic()) => "<hash>",
        _ => "#",
    }
}

/// Returns the text without terminal control sequences.
fn without_ansi(text: &str) -> Cow<'_, str> {
    if text.contains('\x1b') { ANSI.replace_all(text, "") } else { Cow::Borrowed(text) }
}

/// Returns the start of a text, at most `bytes` long, cut between characters.
fn cut(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}

/// Returns the text on one line; runs of white space and control characters become single spaces.
fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for word in text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty()) {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    if let Some((end, _)) = line.char_indices().nth(MAX_SIGNATURE) {
        line.truncate(end);
    }
    line
}

#[cfg(test)]
mod tests;
