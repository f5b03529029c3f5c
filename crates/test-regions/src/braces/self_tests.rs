//! Tests that a program contains without a test framework, and parts that are compiled only for tests.

use std::collections::HashSet;
use std::ops::Range;

use crate::lex::{LexToken, TokenKind};
use crate::scan::{directive_words, has_any};

/// Maximum number of tokens between an `else` without braces and its `main`.
const MAX_ELSE: usize = 200;

/// Whether a function or class has the name of a test and makes assertions, or is a `main` that mostly makes assertions. `body` is the
/// index of its opening brace.
pub(super) fn is_self_test(name: &str, text: &str, source: &str, tokens: &[LexToken], body: usize) -> bool {
    let is_named =
        name.starts_with("test") || ["Test", "Tests", "_test", "_tests"].iter().any(|end| name.ends_with(end));
    is_named && has_any(text, &["assert", "Assert"]) || name == "main" && mostly_asserts(source, tokens, body)
}

/// Whether at least half of the statements in braces are assertions, apart from `return`.
fn mostly_asserts(source: &str, tokens: &[LexToken], open: usize) -> bool {
    let (mut assertions, mut others) = (0_usize, 0_usize);
    let mut begins = true;
    let mut at = open + 1;
    while at < tokens[open].pair {
        let token = tokens[at];
        let text = &source[token.start..token.end];
        if begins && !matches!(token.kind, TokenKind::Comment | TokenKind::Directive) {
            let is_assertion = text.to_ascii_lowercase().contains("assert");
            assertions += usize::from(is_assertion);
            others += usize::from(!is_assertion && text != "return");
            begins = false;
        }
        begins |= text == ";" || text == "{";
        let is_open = token.kind == TokenKind::Open && token.pair != usize::MAX;
        at = if is_open { token.pair + 1 } else { at + 1 };
    }
    assertions > 0 && assertions >= others
}

/// Whether a statement is `version (unittest) {}` before an `else` that contains only `main`, which gives a module of D a main
/// program outside tests. `after` is the index of the token after the braces at `body`.
pub(super) fn excludes_main(source: &str, tokens: &[LexToken], body: usize, after: usize) -> bool {
    let text = |at: usize| tokens.get(at).map_or("", |token| &source[token.start..token.end]);
    let pair = |at: usize| tokens.get(at).map_or(usize::MAX, |token| token.pair);
    if pair(body) != body + 1 || text(after) != "else" {
        return false;
    }
    let is_block = text(after + 1) == "{" && pair(after + 1) != usize::MAX;
    let end = if is_block { pair(after + 1) } else { tokens.len().min(after + MAX_ELSE) };
    let mut at = after + 1 + usize::from(is_block);
    while text(at) == "import" {
        at = (at..end).find(|at| text(*at) == ";").map_or(end, |at| at + 1);
    }
    let open = (at..end).find(|at| matches!(text(*at), "(" | ";" | "{")).unwrap_or(end);
    let is_main = open > at && open < end && text(open) == "(" && text(open - 1) == "main";
    let body = if is_main && pair(open) < end { pair(open) + 1 } else { return false };
    text(body) == "{" && pair(body) < end && (!is_block || pair(body) + 1 == end)
}

/// Whether a directive such as `#ifdef SELFTEST` starts code that is compiled only for tests. The name of its macro says so, or the
/// code contains a `main` with assertions, and the file does not define the macro.
pub(super) fn starts_test_part(line: &str, file: &PartedFile<'_>, at: usize) -> bool {
    let names: Vec<&str> =
        directive_words(line).filter(|name| !name.starts_with(|c: char| c.is_ascii_digit())).collect();
    if line.starts_with("ifndef") || line.contains('!') {
        return false;
    }
    let of_tests = |name: &&str| {
        let name = name.to_ascii_uppercase();
        name.split('_').any(|part| part.starts_with("TEST") || part == "SELFTEST" || part == "UNITTEST")
    };
    let is_named = if line.contains("||") { names.iter().all(of_tests) } else { names.iter().any(of_tests) };
    let [name] = names[..] else { return is_named };
    // A platform's macros start with an underscore.
    if is_named || name.starts_with('_') {
        return is_named;
    }
    let part = &file.source[part_of(file.source, file.tokens, at)];
    has_any(part, &["assert", "ASSERT"]) && part.contains(" main(") && !file.defined.contains(name)
}

/// File with conditional parts.
pub(super) struct PartedFile<'a> {
    pub source: &'a str,
    pub tokens: &'a [LexToken],
    /// Names that the file defines.
    pub defined: &'a HashSet<&'a str>,
}

/// Returns the names that the file defines by a directive, without the names of macros with parameters.
pub(super) fn defined_names(source: &str) -> HashSet<&str> {
    let lines = source.lines().map(str::trim_start).filter(|line| line.starts_with('#'));
    let definitions = lines.map(|line| line.trim_start_matches('#').split_whitespace());
    definitions.filter_map(|mut words| words.next().filter(|word| *word == "define").and(words.next())).collect()
}

/// Returns the range between an `#if` and the directive that ends its part.
fn part_of(source: &str, tokens: &[LexToken], at: usize) -> Range<usize> {
    let start = tokens[at].end;
    let mut depth = 0_usize;
    for token in tokens[at + 1..].iter().filter(|token| token.kind == TokenKind::Directive) {
        let word = source[token.start..token.end].trim_start_matches('#').trim_start();
        if word.starts_with("if") {
            depth += 1;
        } else if depth == 0 && (word.starts_with("el") || word.starts_with("endif")) {
            return start..token.start;
        } else if word.starts_with("endif") {
            depth -= 1;
        }
    }
    start..source.len()
}
