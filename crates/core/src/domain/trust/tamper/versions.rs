//! Comparison of two versions of a line or an assertion, ignoring their literals, and the possible results.

use super::code_tokens::with_sign;

pattern!(
    LITERAL,
    r#""""(?s:.*?)"""|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`[^`]*`|\b\d[\d_]*(?:\.\d+)?(?:[eE][-+]?\d+)?\w*|\b(?i:true|false|none|null|nil)\b"#
);
/// Difference between two versions of an assertion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AssertionChange {
    /// The new version certainly accepts more values.
    Wider,
    /// The new version accepts more values, in a way that is also common in legitimate work. For example, it checks a part of a
    /// value instead of the whole value.
    Looser,
    /// The new version expects another value.
    Expectation,
    /// The new version contains no value any more. The value is elsewhere, or is computed by the code under test.
    Unnamed,
    /// The new version is as strict as the old one.
    Other,
}

/// Whether a statement is a condition under which a test fails.
pub(super) fn fails_under_condition(text: &str) -> bool {
    let text = text.trim_start();
    text.starts_with("if ") || text.starts_with("if(") || text.starts_with("elif ") || text.starts_with("} else if")
}

/// Returns the literals in a text, with their signs.
pub(super) fn literals(text: &str) -> Vec<&str> {
    LITERAL.find_iter(text).map(|found| &text[with_sign(text, found.start())..found.end()]).collect()
}

/// Whether two literals are the same number or the same string.
pub(super) fn is_same_value(old: &str, new: &str) -> bool {
    let number = |text: &str| text.replace('_', "").parse::<f64>().ok();
    old == new || number(old).is_some_and(|old| number(new) == Some(old))
}

/// Returns a line without its literals, for finding its other version.
pub(super) fn shape(line: &str) -> String {
    let line = line.trim().trim_end_matches([',', ';']);
    let (mut shape, mut end) = (String::new(), 0);
    for found in LITERAL.find_iter(line) {
        shape += &line[end..with_sign(line, found.start())];
        shape.push('#');
        end = found.end();
    }
    shape + &line[end..]
}
