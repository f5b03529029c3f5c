//! Lengths of functions and files.

use std::sync::LazyLock;

use regex::Regex;

use crate::source::{library, line_of, report};

/// Maximum length of a function outside tests, in lines.
const MAX_FUNCTION: usize = 100;
/// Maximum length of a file without its tests, in lines.
const MAX_FILE: usize = 600;
/// Longer functions with their lengths; entries may shrink and be removed, never grow or be added.
const LONG_FUNCTIONS: &[(&str, &str, usize)] = &[];
/// Longer files with their lengths; entries may shrink and be removed, never grow or be added.
const LONG_FILES: &[(&str, usize)] = &[];

#[test]
fn functions_and_files_stay_short() {
    let files = library();
    let functions: Vec<(String, String, usize, usize)> = files
        .iter()
        .filter(|file| !file.is_test)
        .flat_map(|file| {
            functions(&file.code).into_iter().map(|(name, at, length)| (file.path.clone(), name, at, length))
        })
        .collect();
    let long = functions.iter().filter(|(.., length)| *length > MAX_FUNCTION);
    let too_long = long.clone().filter_map(|(path, name, at, length)| {
        let listed = LONG_FUNCTIONS.iter().find(|(file, function, _)| file == path && function == name);
        ratchet(&format!("{path}:{at}: function `{name}`"), *length, MAX_FUNCTION, listed.map(|entry| entry.2))
    });
    let gone = LONG_FUNCTIONS.iter().filter(|(path, name, _)| !long.clone().any(|(p, n, ..)| p == path && n == name));
    let stale = gone.map(|(path, name, _)| format!("{path}: `{name}` is short now; take it out of LONG_FUNCTIONS"));
    let lengths =
        || files.iter().filter(|file| !file.is_test).map(|file| (&file.path, file.code.trim_end().lines().count()));
    let long_files = lengths().filter(|(_, length)| *length > MAX_FILE).filter_map(|(path, length)| {
        let listed = LONG_FILES.iter().find(|(file, _)| file == path).map(|entry| entry.1);
        ratchet(&format!("{path}:1: this file"), length, MAX_FILE, listed)
    });
    let stale_files = LONG_FILES
        .iter()
        .filter(|(path, _)| !lengths().any(|(file, length)| file == path && length > MAX_FILE))
        .map(|(path, _)| format!("{path}: is short now; take it out of LONG_FILES"));
    report(too_long.chain(stale).chain(long_files).chain(stale_files));
}

fn ratchet(what: &str, length: usize, limit: usize, listed: Option<usize>) -> Option<String> {
    match listed {
        None => Some(format!("{what} has {length} lines, at most {limit} are allowed; split it by what its parts do")),
        Some(allowed) if length > allowed => Some(format!("{what} grew from {allowed} to {length} lines; split it")),
        Some(allowed) if length < allowed => {
            Some(format!("{what} shrank to {length} lines; lower its entry from {allowed}"))
        }
        Some(_) => None,
    }
}

/// Returns the name, first line and length in lines of each function with a body.
fn functions(code: &str) -> Vec<(String, usize, usize)> {
    static FUNCTION: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\bfn\s+(\w+)").expect("pattern"));
    let mut found = Vec::new();
    for start in FUNCTION.captures_iter(code) {
        let begin = start.get(0).map_or(0, |whole| whole.start());
        let mut depth = 0i32;
        for (at, character) in code[begin..].char_indices() {
            match character {
                ';' if depth == 0 => break,
                '(' | '[' | '{' => depth += 1,
                ')' | ']' | '}' => depth -= 1,
                _ => {}
            }
            if character == '}' && depth == 0 {
                let first = line_of(code, begin);
                found.push((start[1].to_owned(), first, line_of(code, begin + at) - first + 1));
                break;
            }
        }
    }
    found
}

#[test]
fn lengths_are_measured_and_ratcheted() {
    let code =
        "trait T { fn none(&self) -> [u8; 3]; }\nfn two() {\n}\nfn four(a: &str)\nwhere A: B {\n    if a { }\n}\n";
    assert_eq!(functions(code), [("two".to_owned(), 2, 2), ("four".to_owned(), 4, 4)]);
    assert!(ratchet("x", 101, 100, None).is_some() && ratchet("x", 101, 100, Some(101)).is_none());
    assert!(ratchet("x", 120, 100, Some(110)).is_some() && ratchet("x", 105, 100, Some(110)).is_some());
}
