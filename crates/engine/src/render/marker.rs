//! Hidden, signed line that identifies a text of the bot, even after a crash.

use std::fmt::Write as _;

use data_encoding::HEXLOWER;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Maximum size of a marker including the surrounding empty lines, in bytes.
pub(super) const MAX_BYTES: usize = 1_024;

const BEGIN: &str = "<!-- ralph:1 ";
const END: &str = " -->";
/// Length of the signature, in bytes.
const CODE_BYTES: usize = 16;
/// Maximum length of an encoded field, in bytes.
const FIELD_BYTES: usize = 300;

/// Secret of the service that signs markers.
#[derive(Clone)]
pub struct MarkerKey(Hmac<Sha256>);

impl std::fmt::Debug for MarkerKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MarkerKey")
    }
}

impl MarkerKey {
    /// Derives the key from a secret of any length. Comments can only be found again with the same secret.
    pub fn new(secret: &[u8]) -> Self {
        // HMAC accepts keys of any length, so the fallback is never used.
        Self(Hmac::new_from_slice(secret).unwrap_or_else(|_| Hmac::new(&Default::default())))
    }

    fn over(&self, fields: &str) -> Hmac<Sha256> {
        let mut code = self.0.clone();
        code.update(b"ralph marker 1\n");
        code.update(fields.as_bytes());
        code
    }
}

/// Identity of a bot's text: subject, key and place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marker {
    fields: String,
    code: String,
}

impl Marker {
    /// Creates the signed marker for the text `key` of `subject` (such as a loop's id) on the issue with the key `place`.
    pub fn new(subject: &str, key: &str, place: &str, secret: &MarkerKey) -> Self {
        let fields = format!("{} {} {}", field(subject), field(key), field(place));
        let code = HEXLOWER.encode(&secret.over(&fields).finalize().into_bytes()[..CODE_BYTES]);
        Self { fields, code }
    }

    /// Returns the encoded subject of the text, for example a loop's id.
    pub fn subject(&self) -> &str {
        self.fields.split(' ').next().unwrap_or_default()
    }

    /// Returns the hidden line.
    pub fn text(&self) -> String {
        format!("{BEGIN}{} {}{END}", self.fields, self.code)
    }
}

/// Percent-encodes each character that could end the field or the surrounding HTML comment.
fn field(text: &str) -> String {
    let mut field = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'.' | b'/' | b'#' | b':' => field.push(char::from(byte)),
            b'-' if !field.ends_with('-') => field.push('-'),
            // Writing to a string cannot fail.
            byte => drop(write!(field, "%{byte:02x}")),
        }
    }
    field.truncate(FIELD_BYTES);
    if field.is_empty() { "%".to_owned() } else { field }
}

/// Returns the marker on a text's last line if its signature is valid. Markers on other lines are quotations. The caller
/// must compare the marker with the expected one, because a valid marker may have been copied from another place.
pub fn find_marker(body: &str, secret: &MarkerKey) -> Option<Marker> {
    let line = body.trim_end().lines().next_back()?.trim_end();
    let (fields, code) = line.strip_prefix(BEGIN)?.strip_suffix(END)?.rsplit_once(' ')?;
    let bytes = HEXLOWER.decode(code.as_bytes()).ok().filter(|bytes| bytes.len() == CODE_BYTES)?;
    secret.over(fields).verify_truncated_left(&bytes).ok()?;
    Some(Marker { fields: fields.to_owned(), code: code.to_owned() })
}
