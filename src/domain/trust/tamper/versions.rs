//! Two versions of a line or an assertion: what they have in common but for their literals, and how they can differ.

use super::code_tokens::with_sign;

pattern!(
    LITERAL,
    r#""""(?s:.*?)"""|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`[^`]*`|\b\d[\d_]*(?:\.\d+)?(?:[eE][-+]?\d+)?\w*|\b(?i:true|false|none|null|nil)\b"#
);
/// Difference of two versions of an assertion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AssertionChange {
    /// Certainly accepts more values.
    Wider,
    /// Accepts more values in a way that honest work also uses: a part of a value instead of the value.
    Looser,
    /// Expects another value.
    Expectation,
    /// Names no value any more: the value is elsewhere, or comes from the code under test.
    Unnamed,
    /// Demands as much.
    Other,
}

/// Whether a statement is the condition of a failure.
pub(super) fn fails_under_condition(text: &str) -> bool {
    let text = text.trim_start();
    text.starts_with("if ") || text.starts_with("if(") || text.starts_with("elif ") || text.starts_with("} else if")
}

/// Literals of a text, with their signs.
pub(super) fn literals(text: &str) -> Vec<&str> {
    LITERAL.find_iter(text).map(|found| &text[with_sign(text, found.start())..found.end()]).collect()
}

/// Whether two literals are the same number or the same text.
pub(super) fn is_same_value(old: &str, new: &str) -> bool {
    let number = |text: &str| text.replace('_', "").parse::<f64>().ok();
    old == new || number(old).is_some_and(|old| number(new) == Some(old))
}

/// A line with its literals left out, for finding its other version.
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
