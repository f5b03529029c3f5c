//! Masks secrets in text: known values in common encodings, and everything that looks like a token or a key.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::LazyLock;

use data_encoding::{BASE64, BASE64URL, HEXLOWER, HEXUPPER};
use regex::Regex;

/// Replacement of a secret.
const MASK: &str = "***";
/// Minimum length of a masked value, in bytes; shorter ones would occur in ordinary words.
const MIN_VALUE: usize = 6;

/// Patterns of tokens and keys.
static PATTERNS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let patterns = [
        // GitHub; the newer installation tokens are several hundred characters with dots.
        r"gh[pousr]_[A-Za-z0-9._-]{36,}",
        r"github_pat_[A-Za-z0-9_]{22,}",
        // Models.
        r"sk-(?:ant|proj|or|svcacct)-[A-Za-z0-9_-]{16,}",
        r"sk-[A-Za-z0-9]{32,}",
        r"AIza[A-Za-z0-9_-]{35}",
        // Clouds, chats, registries, other forges.
        r"(?:AKIA|ASIA)[A-Z0-9]{16}",
        r"xox[abeprs]-[A-Za-z0-9-]{10,}",
        r"glpat-[A-Za-z0-9_-]{20,}",
        r"npm_[A-Za-z0-9]{36}",
        // Signed tokens, authorization headers, passwords in addresses.
        r"eyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}",
        r#"(?i:authorization["'\\]*\s*[:=]\s*["'\\]*(?:bearer|basic|token))\s+[A-Za-z0-9._~+/-]{6,}=*"#,
        r"(?i:bearer)[ \t]+[A-Za-z0-9._~+/-]{16,}=*",
        r"://[^\s/:@]{0,100}:[^\s/:@]{3,600}@",
        // Private keys, whole or from their beginning on; also inside JSON strings.
        r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----(?:[A-Za-z0-9+/=\s:,.-]|\\[nrt])*?-----END [A-Z0-9 ]*PRIVATE KEY-----",
        r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----(?:[A-Za-z0-9+/=\s]|\\[nr])*",
    ];
    Regex::new(&patterns.join("|")).ok()
});

/// Replaces secrets by `***`. Cheap to clone; its `Debug` output contains no secrets.
#[derive(Clone, Default)]
pub struct Masker {
    values: Option<Regex>,
}

impl std::fmt::Debug for Masker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Masker")
    }
}

impl Masker {
    /// Creates a masker for these values and their base64 (at any offset), hex, percent-encoded and JSON-escaped forms, and for
    /// their single lines. Values shorter than 6 bytes are ignored. Patterns of tokens are always masked.
    pub fn new<I, S>(values: I) -> Self
    where
        I: IntoIterator<Item = S>,
        S: AsRef<str>,
    {
        let mut forms: Vec<String> = Vec::new();
        for value in values {
            let value = value.as_ref();
            for part in std::iter::once(value.trim()).chain(value.lines().map(str::trim).filter(|l| l.len() >= 16)) {
                if part.len() >= MIN_VALUE {
                    forms.extend(forms_of(part));
                }
            }
        }
        // Longest first: the first alternative that matches is taken.
        forms.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        forms.dedup();
        if forms.is_empty() {
            return Self { values: None };
        }
        let pattern = forms.iter().map(|f| regex::escape(f)).collect::<Vec<_>>().join("|");
        let built = regex::RegexBuilder::new(&pattern).size_limit(256 * 1024 * 1024).build();
        // Escaped literals always parse; too large a set must hide too much rather than too little.
        Self { values: Some(built.or_else(|_| Regex::new(r"\S+")).ok()).flatten() }
    }

    /// Returns the text with secrets masked; the text itself if it contains none.
    pub fn mask<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let found = self.found(text);
        if found.is_empty() {
            return Cow::Borrowed(text);
        }
        Cow::Owned(replace(text, &found, 0..text.len()))
    }

    /// Returns a part of a text (between character boundaries) with secrets masked, including those that overlap its edges.
    pub(super) fn mask_range(&self, text: &str, range: Range<usize>) -> String {
        replace(text, &self.found(text), range)
    }

    /// Returns the ranges of the secrets, in order and without overlaps.
    fn found(&self, text: &str) -> Vec<Range<usize>> {
        let known = self.values.iter().chain(PATTERNS.iter());
        let mut all: Vec<Range<usize>> = known.flat_map(|regex| regex.find_iter(text).map(|m| m.range())).collect();
        all.sort_by_key(|r| r.start);
        let mut merged: Vec<Range<usize>> = Vec::with_capacity(all.len());
        for range in all {
            match merged.last_mut() {
                Some(last) if range.start < last.end => last.end = last.end.max(range.end),
                _ => merged.push(range),
            }
        }
        merged
    }
}

/// Returns the part `range` of `text` with the ranges in `found` replaced.
fn replace(text: &str, found: &[Range<usize>], range: Range<usize>) -> String {
    let mut out = String::with_capacity(range.len());
    let mut at = range.start;
    for secret in found {
        if secret.end <= at {
            continue;
        }
        if secret.start >= range.end {
            break;
        }
        out.push_str(&text[at..secret.start.max(at)]);
        out.push_str(MASK);
        at = secret.end.min(range.end);
    }
    out.push_str(&text[at..range.end]);
    out
}

/// Returns a value in all forms in which it is likely to be printed.
fn forms_of(value: &str) -> Vec<String> {
    let bytes = value.as_bytes();
    let mut forms = vec![value.to_owned(), HEXLOWER.encode(bytes), HEXUPPER.encode(bytes)];
    for encoding in [BASE64, BASE64URL] {
        for offset in 0..3 {
            // As part of a longer value (`user:value`): characters that depend on neighbouring bytes are left out.
            let mut padded = vec![0; offset];
            padded.extend_from_slice(bytes);
            let encoded = encoding.encode(&padded);
            let first = (offset * 8).div_ceil(6);
            let last = padded.len() * 8 / 6;
            forms.push(encoded[first..last].to_owned());
        }
    }
    let percent: String = bytes
        .iter()
        .map(|b| match b {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => char::from(*b).to_string(),
            other => format!("%{other:02X}"),
        })
        .collect();
    forms.push(percent);
    forms.push(url::form_urlencoded::byte_serialize(bytes).collect());
    if let Ok(json) = serde_json::to_string(value) {
        forms.push(json[1..json.len() - 1].to_owned());
    }
    forms.retain(|f| f.len() >= MIN_VALUE);
    forms
}

#[cfg(test)]
mod tests {
    use super::*;

    /// See docs/threats.md#i7, docs/threats.md#s8.
    #[test]
    fn values_are_masked_in_every_form() {
        let secret = "p@ss/w0rd+\"näh\"~x";
        let masker = Masker::new([secret]);
        for offset in 0..6 {
            let longer = format!("{}{secret}{}", "u".repeat(offset), "z".repeat(offset));
            for text in [BASE64.encode(longer.as_bytes()), BASE64URL.encode(longer.as_bytes())] {
                assert!(masker.mask(&text).contains(MASK), "offset {offset}: {text}");
            }
        }
        for text in [
            secret.to_owned(),
            HEXLOWER.encode(secret.as_bytes()),
            HEXUPPER.encode(secret.as_bytes()),
            url::form_urlencoded::byte_serialize(secret.as_bytes()).collect(),
            serde_json::to_string(secret).unwrap().trim_matches('"').to_owned(),
        ] {
            assert_eq!(masker.mask(&format!("<{text}>")), "<***>", "{text}");
        }
    }

    /// See docs/threats.md#s8.
    #[test]
    fn tokens_are_masked_by_pattern() {
        let body = "aB3".repeat(20);
        let masker = Masker::default();
        for token in [
            format!("ghp_{}", &body[..36]),
            format!("gho_{}", &body[..40]),
            format!("ghs_{}", &body[..36]),
            format!("ghs_12345_{}.{}.{}-{}_x", body.repeat(3), body.repeat(2), body, body),
            format!("github_pat_{body}"),
            format!("sk-ant-api03-{body}"),
            "AKIAIOSFODNN7EXAMPLE".to_owned(),
            format!("eyJ{body}.eyJ{body}.{body}"),
            format!(
                "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\n{body}\n{body}==\n-----END RSA PRIVATE KEY-----"
            ),
            format!("-----BEGIN PRIVATE KEY-----\\n{body}\\n-----END PRIVATE KEY-----"),
            format!("-----BEGIN OPENSSH PRIVATE KEY-----\n{body}\n{body}"),
        ] {
            assert_eq!(masker.mask(&format!("a \"{token}\" b")), "a \"***\" b", "{token}");
        }
        assert_eq!(masker.mask("-H 'Authorization: Basic eDp5eg==' x"), "-H '***' x");
        assert_eq!(masker.mask(r#"{"authorization":"token abc123"}"#), r#"{"***"}"#);
        assert_eq!(masker.mask("sent Bearer abcdef0123456789=="), "sent ***");
        assert_eq!(masker.mask("clone https://me:hunter22@host/x"), "clone https***host/x");
    }

    #[test]
    fn ordinary_text_is_not_masked() {
        let masker = Masker::new(["", "abc", "  \n"]);
        for text in [
            "the bearer of this letter",
            "basic operation of a token stream, Bearer authentication",
            "see https://example.org:8080/a@b and ghp_short, sk-learn, AKIA",
            "-----BEGIN PUBLIC KEY-----",
            "abc 12:30@noon",
            "",
        ] {
            assert!(matches!(masker.mask(text), Cow::Borrowed(t) if t == text), "{text}");
        }
    }

    #[test]
    fn value_that_overlaps_a_pattern_is_masked_completely() {
        let masker = Masker::new(["abcdefghijklmnopq!rst"]);
        assert_eq!(masker.mask("Bearer abcdefghijklmnopq!rst."), "***.");
        assert_eq!(format!("{masker:?}"), "Masker");
    }

    #[test]
    fn single_lines_of_a_long_value_are_masked() {
        let key = format!("-----BEGIN X-----\n{}\n{}\n-----END X-----", "q".repeat(64), "w".repeat(20));
        let masker = Masker::new([key]);
        assert_eq!(masker.mask(&format!("1 {}", "w".repeat(20))), "1 ***");
    }

    #[test]
    fn secret_at_the_edge_of_a_range_is_masked() {
        let masker = Masker::new(["0123456789"]);
        let text = "ab0123456789cd";
        assert_eq!(masker.mask_range(text, 0..5), "ab***");
        assert_eq!(masker.mask_range(text, 8..14), "***cd");
        assert_eq!(masker.mask_range(text, 5..8), "***");
        assert_eq!(masker.mask_range(text, 0..2), "ab");
        assert_eq!(masker.mask_range(text, 12..14), "cd");
    }
}
