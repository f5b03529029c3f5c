//! Racket and Clojure. Their tests are forms at the top level or in a module.

use crate::RegionKind;
use crate::lex::{Apostrophe, Lexis, RawText, TokenKind, lex, long_quote};
use crate::scan::{FileScan, ProgramItem, join, text_start};

const RACKET: Lexis = Lexis {
    line_comments: &[";"],
    line_texts: &["#lang"],
    block_comments: &[("#|", "|#", true)],
    quotes: &[long_quote("\"")],
    apostrophe: Apostrophe::CharOrName,
    raw: RawText::None,
    has_regex: false,
    has_directives: false,
    word: "-?!*/<>=+.:%&$^~",
    char_prefix: "#\\",
    discard: "#;",
};
const CLOJURE: Lexis = Lexis { line_texts: &[], block_comments: &[], char_prefix: "\\", discard: "#_", ..RACKET };

/// Parses a Racket file.
pub(crate) fn racket(source: &str) -> FileScan {
    scan(source, &RACKET, "#;")
}

/// Parses a Clojure file.
pub(crate) fn clojure(source: &str) -> FileScan {
    scan(source, &CLOJURE, "#_")
}

/// Returns the kind of a test form and the number of words in its name.
fn test_form(words: &[&str]) -> Option<(RegionKind, usize)> {
    match words {
        ["module+" | "module*", name, ..] if name.contains("test") => Some((RegionKind::TestModule, 2)),
        ["deftest" | "deftest-" | "t/deftest" | "defspec" | "test/deftest" | "test-case" | "test-suite", ..] => {
            Some((RegionKind::Test, 2))
        }
        ["is" | "testing" | "fact" | "facts" | "test-begin" | "with-test", ..] => Some((RegionKind::Test, 1)),
        [word, ..] if word.starts_with("check-") => Some((RegionKind::Test, 1)),
        _ => None,
    }
}

fn scan(source: &str, lexis: &Lexis, discard: &str) -> FileScan {
    let lexed = lex(source, lexis, text_start(source));
    let mut scan = FileScan::new(source);
    scan.fault = lexed.fault;
    let text = |at: usize| lexed.tokens.get(at).map_or("", |token| &source[token.start..token.end]);
    // Ends of the open modules, their paths and conditions.
    let mut open: Vec<(usize, String)> = Vec::new();
    let mut at = 0;
    let mut discarded = 0_usize;
    while at < lexed.tokens.len() {
        while open.last().is_some_and(|(end, _)| *end <= at) {
            open.pop();
        }
        let token = lexed.tokens[at];
        if text(at) == discard {
            discarded += 1;
            at += 1;
            continue;
        }
        if token.kind == TokenKind::Comment {
            at += 1;
            continue;
        }
        if token.kind != TokenKind::Open || token.pair == usize::MAX {
            discarded = discarded.saturating_sub(1);
            at += 1;
            continue;
        }
        let after = token.pair + 1;
        if discarded > 0 {
            discarded -= 1;
            at = after;
            continue;
        }
        let container = open.last().map_or(String::new(), |(_, path)| path.clone());
        let words: Vec<&str> = (at + 1..after.min(at + 4)).map(text).collect();
        let range = token.start..lexed.tokens[token.pair].end;
        if let Some((kind, length)) = test_form(&words) {
            let name = words[..length.min(words.len())].join(" ");
            scan.add_test(kind, (&container, join(&container, &name)), "", range);
            at = after;
            continue;
        }
        let named = if text(at + 2) == "(" || text(at + 2) == "[" { text(at + 3) } else { text(at + 2) };
        let path = join(&container, &format!("{} {named}", text(at + 1)));
        scan.items.push(ProgramItem {
            path: path.clone(),
            parent: container,
            condition: String::new(),
            outer: String::new(),
            end_at: Some(lexed.tokens[token.pair].start),
            range,
            complete: true,
            doc_at: None,
            inner_doc_at: None,
            number: 0,
        });
        let inside = (at + 1..token.pair).find(|at| lexed.tokens[*at].kind == TokenKind::Open);
        at = after;
        if words.first() == Some(&"module") && open.len() < 64 {
            open.push((token.pair, path));
            at = inside.unwrap_or(after);
        }
    }
    scan
}
