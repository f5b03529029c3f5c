//! The hidden line by which one of our texts is found again after a crash, signed so that nobody else can write it.

use std::fmt::Write as _;

use data_encoding::HEXLOWER;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Room that a marker and the empty lines around it take at most.
pub(super) const MAX_BYTES: usize = 1_024;

const BEGIN: &str = "<!-- ralph:1 ";
const END: &str = " -->";
/// Bytes of the code: 128 bits.
const CODE_BYTES: usize = 16;
/// Longest field as it is written; subjects, keys and places are far shorter.
const FIELD_BYTES: usize = 300;

/// The service's secret that markers are signed with.
#[derive(Clone)]
pub struct MarkerKey(Hmac<Sha256>);

impl std::fmt::Debug for MarkerKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MarkerKey")
    }
}

impl MarkerKey {
    /// Takes a secret of any length; it must stay the same over restarts, or own comments are not found again.
    pub fn new(secret: &[u8]) -> Self {
        // A code of this sort takes a key of any length, so the other arm is never taken.
        Self(Hmac::new_from_slice(secret).unwrap_or_else(|_| Hmac::new(&Default::default())))
    }

    fn over(&self, fields: &str) -> Hmac<Sha256> {
        let mut code = self.0.clone();
        code.update(b"ralph marker 1\n");
        code.update(fields.as_bytes());
        code
    }
}

/// Which text of ours it is: whose, which, and where. Two are equal when all three are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marker {
    fields: String,
    code: String,
}

impl Marker {
    /// The marker of the text `key` of `subject` (a loop, or whatever else has texts) on the issue whose key is `place`.
    pub fn new(subject: &str, key: &str, place: &str, secret: &MarkerKey) -> Self {
        let fields = format!("{} {} {}", field(subject), field(key), field(place));
        let code = HEXLOWER.encode(&secret.over(&fields).finalize().into_bytes()[..CODE_BYTES]);
        Self { fields, code }
    }

    /// Whose text it is, as it is written there: that of a loop is its id.
    pub fn subject(&self) -> &str {
        self.fields.split(' ').next().unwrap_or_default()
    }

    /// The hidden line.
    pub fn text(&self) -> String {
        format!("{BEGIN}{} {}{END}", self.fields, self.code)
    }
}

/// A field without anything that ends it or the comment around it; what is plain stays readable, the rest is encoded.
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

/// The marker at the end of a text, if we signed it. Anything before the last line is somebody's quotation. That it
/// belongs to this place is for the caller to see, by comparing it with the marker that is looked for.
pub fn find_marker(body: &str, secret: &MarkerKey) -> Option<Marker> {
    let line = body.trim_end().lines().next_back()?.trim_end();
    let (fields, code) = line.strip_prefix(BEGIN)?.strip_suffix(END)?.rsplit_once(' ')?;
    let bytes = HEXLOWER.decode(code.as_bytes()).ok().filter(|bytes| bytes.len() == CODE_BYTES)?;
    secret.over(fields).verify_truncated_left(&bytes).ok()?;
    Some(Marker { fields: fields.to_owned(), code: code.to_owned() })
}
