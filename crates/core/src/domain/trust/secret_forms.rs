//! Finds secrets in bytes in several forms: plain, as hexadecimal or base64 digits, and in UTF-8 or UTF-16. In each form, any of
//! the characters may be escaped as in URLs or JSON.
//!
//! A value is searched in pieces of at least 16 bytes, so that a truncated value is found too. A form is a sequence of symbols. A
//! scan tracks all forms at once and accepts each symbol plain or escaped, so that mixtures are found.

mod scan;

use std::ops::Range;
use std::sync::Arc;

use data_encoding::{BASE64, BASE64URL, HEXLOWER};

pub use scan::{StreamRedactor, StreamTracker};

/// Minimum length of a piece of a value that is searched by itself, in bytes.
const PIECE: usize = 16;
/// Minimum number of symbols of a form. Shorter forms would occur in ordinary text.
const MIN_SYMBOLS: usize = 6;
/// Minimum number of symbols of a form for ignoring case and separators between the symbols.
const LOOSE_SYMBOLS: usize = 10;

/// Returns a value in each of its forms, without mixtures of escaped and plain characters. For a value within a longer one
/// (`user:value` in base64), characters that depend on the neighbors are omitted.
pub fn encodings_of(secret: &[u8]) -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = Vec::new();
    for form in forms_of(secret) {
        let first = |of: fn(&Symbol) -> u8| form.iter().map(of).collect::<Vec<u8>>();
        let (one, other) = (first(|symbol| symbol.0), first(|symbol| symbol.1));
        all.extend([one.to_ascii_lowercase(), one.to_ascii_uppercase()].into_iter().filter(|case| is_hex(case)));
        all.extend([one, other]);
    }
    let escaped = |escape: fn(u8) -> String| secret.iter().map(|byte| escape(*byte)).collect::<String>().into_bytes();
    all.push(escaped(|byte| format!("%{byte:02X}")));
    all.push(escaped(|byte| format!("%{byte:02x}")));
    all.push(escaped(
        |byte| if byte.is_ascii_alphanumeric() { char::from(byte).into() } else { format!("%{byte:02X}") },
    ));
    all.push(escaped(
        |byte| if byte.is_ascii_alphanumeric() { char::from(byte).into() } else { format!("%{byte:02x}") },
    ));
    all.push(escaped(|byte| format!("\\u{byte:04x}")));
    all.push(escaped(|byte| format!("\\u{byte:04X}")));
    all.push(secret.iter().flat_map(|byte| [*byte, 0]).collect());
    all.push(secret.iter().flat_map(|byte| [0, *byte]).collect());
    all.retain(|form| form.len() >= MIN_SYMBOLS);
    all.sort();
    all.dedup();
    all
}

fn is_hex(text: &[u8]) -> bool {
    text.iter().all(u8::is_ascii_hexdigit)
}

/// Symbol of a form. It has two alternative bytes, because the base64 alphabets differ in two digits.
type Symbol = (u8, u8);

/// Returns the forms by which a value or a piece of it is recognized.
fn forms_of(secret: &[u8]) -> Vec<Vec<Symbol>> {
    let plain = |text: &[u8]| text.iter().map(|byte| (*byte, *byte)).collect::<Vec<Symbol>>();
    let mut forms = vec![plain(secret), plain(HEXLOWER.encode(secret).as_bytes())];
    forms.extend((0..3).map(|offset| inner_base64(secret, offset)));
    forms.retain(|form| form.len() >= MIN_SYMBOLS);
    forms
}

/// Returns the base64 digits of a text that follows `offset` other bytes, without digits that also depend on its neighbors.
fn inner_base64(text: &[u8], offset: usize) -> Vec<Symbol> {
    let mut padded = vec![0; offset];
    padded.extend_from_slice(text);
    let first = (offset * 8).div_ceil(6);
    let last = padded.len() * 8 / 6;
    let standard = BASE64.encode(&padded);
    let url_safe = BASE64URL.encode(&padded);
    standard.bytes().zip(url_safe.bytes()).skip(first).take(last.saturating_sub(first)).collect()
}

/// Form to search for.
struct SecretForm {
    symbols: Vec<Symbol>,
    /// Whether the case of letters and separators between symbols are ignored.
    is_loose: bool,
}

impl SecretForm {
    /// Whether the symbol at index `at` matches this byte.
    fn accepts(&self, at: usize, byte: u8) -> bool {
        let same = |symbol: u8| symbol == byte || (self.is_loose && symbol.eq_ignore_ascii_case(&byte));
        self.symbols.get(at).is_some_and(|(one, other)| same(*one) || same(*other))
    }
}

/// Forms of some secrets. Its `Debug` output contains no secrets.
pub struct SecretForms {
    forms: Vec<SecretForm>,
    /// Indices of the forms that may start with each byte.
    by_first: Vec<Vec<u16>>,
}

impl std::fmt::Debug for SecretForms {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SecretForms")
    }
}

impl SecretForms {
    /// Creates the forms of these values. Values shorter than 6 bytes are found only in their longer forms (base64, hexadecimal).
    pub fn new<S: AsRef<[u8]>>(secrets: impl IntoIterator<Item = S>) -> Self {
        let mut symbols: Vec<Vec<Symbol>> = Vec::new();
        for secret in secrets {
            let secret = secret.as_ref().trim_ascii();
            for piece in pieces(secret) {
                symbols.extend(forms_of(piece));
            }
        }
        symbols.sort();
        symbols.dedup();
        symbols.truncate(usize::from(scan::ANY_FORM));
        let forms: Vec<SecretForm> = symbols
            .into_iter()
            .map(|symbols| SecretForm { is_loose: symbols.len() >= LOOSE_SYMBOLS, symbols })
            .collect();
        let begins = |byte: u8| {
            let of_byte = (0_u16..).zip(&forms).filter(|(_, form)| form.accepts(0, byte));
            of_byte.map(|(index, _)| index).collect()
        };
        let by_first = (0..=u8::MAX).map(begins).collect();
        Self { forms, by_first }
    }

    /// Returns the ranges of the secrets in these bytes, in order and without overlaps.
    pub fn find(&self, bytes: &[u8]) -> Vec<Range<usize>> {
        let mut scan = scan::Scan::default();
        let mut found: Vec<Range<usize>> = Vec::new();
        for (at, byte) in bytes.iter().enumerate() {
            if let Some(start) = scan.next(self, *byte) {
                while found.last().is_some_and(|last| last.start >= start) {
                    found.pop();
                }
                match found.last_mut() {
                    Some(last) if last.end >= start => last.end = at + 1,
                    _ => found.push(start..at + 1),
                }
            }
        }
        found
    }

    /// Whether these bytes contain one of the secrets.
    pub fn is_in(&self, bytes: &[u8]) -> bool {
        let mut scan = scan::Scan::default();
        bytes.iter().any(|byte| scan.next(self, *byte).is_some())
    }

    /// Returns the bytes with each secret replaced by `mark`.
    pub fn redact(self: &Arc<Self>, bytes: &[u8], mark: &'static [u8]) -> Vec<u8> {
        let mut redactor = StreamRedactor::new(self.clone(), mark);
        let mut clean = redactor.push(bytes);
        clean.extend(redactor.finish());
        clean
    }
}

/// Splits a value into pieces of at least [`PIECE`] bytes that cover it.
fn pieces(secret: &[u8]) -> impl Iterator<Item = &[u8]> {
    let count = (secret.len() / PIECE).max(1);
    let cut = move |at: usize| at * secret.len() / count;
    (0..count).map(move |at| &secret[cut(at)..cut(at + 1)])
}

#[cfg(test)]
mod tests;
