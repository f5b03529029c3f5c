//! Tokens of a piece of code (words, literals and operators), parsed in the same way for every language.

use std::collections::HashMap;
use std::sync::LazyLock;

use regex::Regex;

static TOKEN: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r#"(?x)
        (?P<literal> """(?s:.*?)""" | "(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*' | `[^`]*` | \b\d[\d_]*(?:\.\d+)?(?:[eE][-+]?\d+)?\w*
            | \b(?i:true|false|none|null|nil|nullptr|undefined)\b )
        | (?P<name> [A-Za-z_$@][\w$]*[!?]? )
        | (?P<sign> ={2,3} | !={1,2} | <= | >= | => | -> | && | \|\| | =~ | !~ | -(?:eq|ne|lt|le|gt|ge)\b | [<>=!?|&*+/%~^-] )"#,
    )
    .expect("constant pattern")
});

/// Tokens of a piece of code. A token that occurs several times is listed as often.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct CodeTokens {
    /// Parts of names in lower case; `assertEqual` has two parts.
    pub words: Vec<String>,
    pub literals: Vec<String>,
    pub signs: Vec<String>,
}

impl CodeTokens {
    pub fn of(text: &str) -> Self {
        let mut code_tokens = Self::default();
        for found in TOKEN.captures_iter(text) {
            if let Some(literal) = found.name("literal") {
                let start = with_sign(text, literal.start());
                if text[start..literal.start()].starts_with('-') {
                    code_tokens.signs.pop();
                }
                code_tokens.literals.push(text[start..literal.end()].to_owned());
            } else if let Some(name) = found.name("name") {
                code_tokens.words.extend(words(name.as_str()));
            } else if let Some(sign) = found.name("sign") {
                code_tokens.signs.push(sign.as_str().to_owned());
            }
        }
        code_tokens
    }
}

/// Returns the offset at which a literal starts, including its sign and a leading decimal point (`-.5`). A minus or a point
/// belongs to the number after it, unless it directly follows an operand.
fn with_sign(text: &str, start: usize) -> usize {
    if !text[start..].starts_with(|c: char| c.is_ascii_digit()) {
        return start;
    }
    let operand = |c: char| c.is_alphanumeric() || matches!(c, '_' | ')' | ']' | '}' | '"' | '\'' | '-' | '.');
    let behind = |end: usize, sign: char| text[..end].strip_suffix(sign).filter(|before| !before.ends_with(operand));
    let point = |end: usize| {
        let before = text[..end].strip_suffix('.').filter(|before| before.ends_with('-') || !before.ends_with(operand));
        before.map_or(end, str::len)
    };
    let start = point(start);
    behind(start, '-').map_or(start, str::len)
}

/// Returns the tokens that the old version of a piece of code has more often than the new one.
pub(super) fn lost(old: &str, new: &str) -> CodeTokens {
    let (old, new) = (CodeTokens::of(old), CodeTokens::of(new));
    CodeTokens {
        words: rest(&old.words, &new.words),
        literals: rest(&old.literals, &new.literals),
        signs: rest(&old.signs, &new.signs),
    }
}

/// Returns the items that occur more often in `list` than in `other`.
fn rest(list: &[String], other: &[String]) -> Vec<String> {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    other.iter().for_each(|item| *counts.entry(item).or_default() += 1);
    let is_extra = |item: &&String| match counts.get_mut(item.as_str()) {
        Some(count) if *count > 0 => {
            *count -= 1;
            false
        }
        _ => true,
    };
    list.iter().filter(is_extra).cloned().collect()
}

/// Splits a name into parts in lower case: `toHaveBeenCalled` has four, `assert_called` and `EXPECT_EQ` have two.
fn words(name: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut before = ' ';
    let mut letters = name.chars().peekable();
    while let Some(c) = letters.next() {
        let begins = c.is_uppercase()
            && (before.is_lowercase()
                || (before.is_uppercase() && letters.peek().is_some_and(|next| next.is_lowercase())));
        if (begins || !c.is_alphanumeric()) && !word.is_empty() {
            words.push(std::mem::take(&mut word));
        }
        if c.is_alphanumeric() {
            word.extend(c.to_lowercase());
        }
        before = c;
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_split_into_words() {
        for (name, parts) in [
            ("toHaveBeenCalledWith", "to have been called with"),
            ("assert_called_once", "assert called once"),
            ("EXPECT_STREQ", "expect streq"),
            ("parseURLFast", "parse url fast"),
            ("assert_eq!", "assert eq"),
        ] {
            assert_eq!(words(name).join(" "), parts);
        }
    }

    #[test]
    fn lost_tokens_are_counted() {
        let found = lost("assertEqual(user.name, \"Ada\")", "assertIsNotNone(user.name)");
        assert_eq!(found, CodeTokens { words: vec!["equal".into()], literals: vec!["\"Ada\"".into()], signs: vec![] });
        assert_eq!(
            lost("a == a", "a"),
            CodeTokens { words: vec!["a".into()], signs: vec!["==".into()], ..CodeTokens::default() }
        );
    }

    #[test]
    fn sign_belongs_to_number_unless_it_subtracts() {
        for (text, literals, signs) in [
            ("neg(3) == -3", &["3", "-3"][..], &["=="][..]),
            ("[-1, (-2), x=-4]", &["-1", "-2", "-4"], &["="]),
            ("a - 3", &["3"], &["-"]),
            ("a-3", &["3"], &["-"]),
            ("f()-3", &["3"], &["-"]),
            ("eq -1.5e3", &["-1.5e3"], &[]),
            ("x < -.5", &["-.5"], &["<"]),
            ("(.5)", &[".5"], &[]),
            ("pair.0 - 1..2", &["0", "1", "2"], &["-"]),
        ] {
            let code_tokens = CodeTokens::of(text);
            assert_eq!(code_tokens.literals, literals, "{text}");
            assert_eq!(code_tokens.signs, signs, "{text}");
        }
    }
}
