//! Comparisons of keyed codes (webhook signatures, comment markers).

use std::sync::LazyLock;

use regex::Regex;

use crate::source::{SourceFile, library, report, source};

/// `hmac` must verify keyed codes in constant time, because the duration of a byte comparison reveals the matching prefix.
/// See docs/research/threats.md#w3.
#[test]
fn codes_are_compared_in_constant_time() {
    let keyed = library().into_iter().filter(|file| file.code.contains("Hmac<")).collect::<Vec<_>>();
    report(keyed.iter().flat_map(comparisons_of_codes));
    // Modules that verify a code from outside.
    for path in
        ["crates/forges/src/forge/signature.rs", "crates/engine/src/render/marker.rs", "crates/engine/src/mcp.rs"]
    {
        let file = keyed.iter().find(|file| file.path == path).unwrap_or_else(|| panic!("{path} has moved"));
        assert!(VERIFIES.is_match(&file.code), "{path} does not verify by `verify_slice` or its like");
    }
}

static VERIFIES: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\.verify(?:_slice|_truncated_left)?\(").expect("pattern"));

/// Returns the lines of a file with keyed codes that compare a code with `==`, `!=`, `eq`, or as text.
fn comparisons_of_codes(file: &SourceFile) -> Vec<String> {
    static COMPARES: LazyLock<Regex> = LazyLock::new(|| {
        let code = r"(?:digest|signature|mac|code|tag|token|finalize|into_bytes|sign)";
        let calls = r"(?:\([^)]*\)|\.[a-z_]+|\[[^\]]*\])*";
        let pattern = format!(r"\b{code}\b{calls}\s*[!=]=|(?:[!=]=|\.(?:eq|ne|cmp)\()\s*[&*]*(?:\w+\.)*{code}\b");
        Regex::new(&pattern).expect("pattern")
    });
    let lengths = Regex::new(r"\.len\(\)\s*[!=]=").expect("pattern");
    let faults = file.code.lines().enumerate().filter(|(_, line)| COMPARES.is_match(line) && !lengths.is_match(line));
    faults
        .map(|(at, line)| {
            format!(
                "{}:{}: `{}` compares a code; use `verify_slice`, which takes as long for any",
                file.path,
                at + 1,
                line.trim()
            )
        })
        .collect()
}

#[test]
fn comparisons_of_codes_are_found() {
    let cases = [
        ("if digest == expected { }", 1),
        ("if expected != mac { }", 1),
        ("mac.finalize().into_bytes()[..] == given[..]", 1),
        ("given.eq(&signature)", 1),
        ("sign(&secret, body) == value", 1),
        ("mac.verify_slice(digest).is_ok()", 0),
        ("digest.len() == HEX_CHARS", 0),
        ("let digest = if header == x { a } else { b };", 0),
        ("// digest == expected", 0),
    ];
    for (code, faults) in cases {
        assert_eq!(comparisons_of_codes(&source("src/a.rs", code)).len(), faults, "{code}");
    }
}
