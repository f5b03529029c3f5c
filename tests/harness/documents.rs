//! Markdown that hides or draws something: the cases in `tests/fixtures/documents`, for the unit tests of the sanitizer and for the
//! stories of attacks.

use std::path::Path;

use regex::{Captures, Regex};

/// Word of a hidden case that must reach nobody.
pub const CANARY: &str = "CANARY";

/// Files of hidden cases, without `hidden_` and their extension.
pub const HIDDEN: [&str; 7] =
    ["comments", "elements", "attributes", "definitions", "characters", "displaced", "drawings"];

/// Case of a file of fixtures: its name, what is expected, and its Markdown.
#[derive(Debug, Clone)]
pub struct DocumentCase {
    pub expected: String,
    pub title: String,
    pub markdown: String,
}

/// Reads the cases of a file: `=== expected: title`, then the Markdown.
pub fn cases(name: &str) -> Vec<DocumentCase> {
    // Tests of the core use this file, too, from a folder below.
    let mut folders =
        Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().map(|root| root.join("tests/fixtures/documents"));
    let folder = folders.find(|folder| folder.is_dir()).expect("fixtures");
    let file = std::fs::read_to_string(folder.join(name).with_extension("md")).expect("a fixture");
    let parts = file.split("\n=== ").skip(1);
    parts
        .map(|part| {
            let (head, markdown) = part.split_once('\n').expect("a case with text");
            let (expected, title) = head.split_once(": ").expect("an expectation and a title");
            DocumentCase {
                expected: expected.to_owned(),
                title: title.to_owned(),
                markdown: expanded(markdown.strip_suffix('\n').unwrap_or(markdown)),
            }
        })
        .collect()
}

/// Reads all hidden cases.
pub fn hidden_cases() -> Vec<DocumentCase> {
    HIDDEN.iter().flat_map(|file| cases(&format!("hidden_{file}"))).collect()
}

/// Replaces `{{U+200B}}`, `{{260 U+00A0}}`, `{{100 "<br>"}}`, `{{tags TEXT}}` and `{{bits U+200B U+200C TEXT}}`.
fn expanded(text: &str) -> String {
    let character = |code: &str| char::from_u32(u32::from_str_radix(code, 16).expect("a number")).expect("a character");
    let pattern = Regex::new(
        r#"(?s)\{\{(?:(?:(?<times>\d+) )?(?:U\+(?<code>[0-9A-F]+)|"(?<text>[^"]*)")|tags (?<tags>\w+)|bits U\+(?<zero>\w+) U\+(?<one>\w+) (?<bits>\w+))\}\}"#,
    );
    let written = |found: &Captures<'_>| -> String {
        if let Some(tags) = found.name("tags") {
            return tags.as_str().chars().filter_map(|c| char::from_u32(0xe0000 + u32::from(c))).collect();
        }
        if let Some(bits) = found.name("bits") {
            let (zero, one) = (character(&found["zero"]), character(&found["one"]));
            let bits = bits.as_str().bytes().flat_map(|byte| (0..8).map(move |bit| byte >> bit & 1 == 1));
            return bits.map(|bit| if bit { one } else { zero }).collect();
        }
        let times = found.name("times").map_or(1, |times| times.as_str().parse().expect("a number"));
        let code = found.name("code").map(|code| character(code.as_str()).to_string());
        code.unwrap_or_else(|| found["text"].to_owned()).repeat(times)
    };
    pattern.expect("a pattern").replace_all(text, written).into_owned()
}
