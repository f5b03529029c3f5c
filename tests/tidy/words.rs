//! Forbidden words in the source: words that the functional core must not use, and marks of unfinished work.

use regex::Regex;

use crate::source::{SourceFile, line_of, report, source, sources};

/// Patterns that the functional core must not contain, each with its reason.
const BANNED_IN_DOMAIN: [(&str, &str); 8] = [
    (r"\basync\b", "the core is synchronous; do the waiting in an adapter"),
    (r"\btokio\b", "the core has no runtime"),
    (r"\bstd::fs\b", "the core does not touch files; take their text as a value"),
    (r"\bInstant\b", "time is a value; take a Timestamp"),
    (r"\bSystemTime\b", "time is a value; take a Timestamp"),
    (r"\bstd::env\b", "only config reads the environment"),
    (r"\breqwest\b", "the core does not talk to servers"),
    (r"\brusqlite\b", "the core does not know the store"),
];

/// Patterns that no source file may contain, each with its reason.
const BANNED: [(&str, &str); 3] = [
    (r"\btodo!\s*\(", "write it, or leave it out"),
    (r"\bunimplemented!\s*\(", "write it, or leave it out"),
    (r"\bdbg!\s*\(", "use tracing"),
];

#[test]
fn functional_core_is_pure() {
    report(sources("crates/core/src").iter().flat_map(|file| banned(file, &BANNED_IN_DOMAIN)));
}

#[test]
fn source_has_no_unfinished_marks() {
    report(sources("src").iter().chain(&sources("crates")).flat_map(|file| banned(file, &BANNED)));
}

#[test]
fn every_file_has_a_header() {
    let files = sources("src").into_iter().chain(sources("crates")).chain(sources("tests")).collect::<Vec<_>>();
    report(
        files
            .iter()
            .filter(|file| !has_header(&file.text))
            .map(|file| format!("{}:1: begin the file with a `//!` line that says what it is for", file.path)),
    );
}

fn banned(file: &SourceFile, words: &[(&str, &str)]) -> Vec<String> {
    if file.is_test {
        return Vec::new();
    }
    let mut faults = Vec::new();
    for (pattern, advice) in words {
        for found in Regex::new(pattern).expect("pattern").find_iter(&file.code) {
            faults.push(format!(
                "{}:{}: `{}`: {advice}",
                file.path,
                line_of(&file.code, found.start()),
                found.as_str()
            ));
        }
    }
    faults
}

fn has_header(text: &str) -> bool {
    text.lines().next().is_some_and(|line| line.strip_prefix("//!").is_some_and(|words| !words.trim().is_empty()))
}

#[test]
fn banned_words_and_missing_headers_are_found() {
    let impure = source(
        "src/domain/a.rs",
        "async fn a() { tokio::go(); } // async\nconst A: &str = r#\"async \"quoted\" tokio\"#;\n'a: loop {}",
    );
    assert_eq!(banned(&impure, &BANNED_IN_DOMAIN).len(), 2);
    assert_eq!(banned(&source("src/a.rs", "todo!(); dbg!(1); let todo = 1;"), &BANNED).len(), 2);
    assert!(
        has_header("//! For this.\n") && !has_header("//!\n") && !has_header("use a;\n//! Late.") && !has_header("")
    );
}

/// Docstrings must start with a noun phrase or a verb in the third person.
#[test]
fn docstrings_start_with_noun_or_verb() {
    report(["src", "crates", "tests", "benches"].into_iter().flat_map(sources).flat_map(|file| odd_beginnings(&file)));
}

/// Returns a file's docstrings that start with a question word or a preposition.
fn odd_beginnings(file: &SourceFile) -> Vec<String> {
    static DOC: std::sync::LazyLock<Regex> = std::sync::LazyLock::new(|| {
        let words = "What|Whose|Who|Whom|Why|How|Which|Where|When|So|As|Of|In|By|Is|Are|That";
        Regex::new(&format!(r"^\s*//[/!] (?:{words})\b")).expect("pattern")
    });
    let lines: Vec<&str> = file.text.lines().collect();
    let is_start = |at: usize| {
        let previous = at.checked_sub(1).map_or("", |before| lines[before].trim());
        !previous.starts_with("//") || matches!(previous, "///" | "//!")
    };
    let starts = lines.iter().enumerate().filter(|(at, line)| DOC.is_match(line) && is_start(*at));
    starts
        .map(|(at, line)| {
            format!(
                "{}:{}: `{}`: begin with a noun phrase or a verb in the third person",
                file.path,
                at + 1,
                line.trim()
            )
        })
        .collect()
}

#[test]
fn unusual_first_words_are_reported() {
    let text = "//! What it is.\n/// Number of calls.\n/// When a line goes on, it may begin so.\nfn a() {}\n    /// Who asks.\n///\n/// How so.\n// Why: a comment.\n";
    assert_eq!(odd_beginnings(&source("src/a.rs", text)).len(), 3);
}
