//! Views of bytes in which a split or wrapped secret is contiguous.

use std::ops::Range;

use data_encoding::{BASE64_NOPAD, Encoding, HEXLOWER};

/// Bytes that remain after others were dropped, each with its original position.
#[derive(Default)]
pub(super) struct Skeleton {
    pub bytes: Vec<u8>,
    positions: Vec<u32>,
}

impl Skeleton {
    fn push(&mut self, byte: u8, position: usize) {
        self.bytes.push(byte);
        self.positions.push(u32::try_from(position).unwrap_or(u32::MAX));
    }

    /// Returns the range of the original bytes that corresponds to a range of this view.
    pub fn original(&self, range: Range<usize>) -> Range<usize> {
        let at = |index: usize| self.positions.get(index).map_or(0, |position| *position as usize);
        match range.is_empty() {
            true => 0..0,
            false => at(range.start)..at(range.end - 1) + 1,
        }
    }
}

/// Returns the view of letters and digits in lower case, without the prefixes of escapes (`\u0041`).
/// The view does not depend on case, or on quotes, spaces, line ends and plus signs that split a value.
pub(super) fn folded(bytes: &[u8]) -> Skeleton {
    kept(bytes, u8::is_ascii_alphanumeric)
}

/// Returns the view of the bytes that `keeps` accepts, in lower case and without the prefixes of escapes.
fn kept(bytes: &[u8], keeps: fn(&u8) -> bool) -> Skeleton {
    let mut view = Skeleton { bytes: Vec::with_capacity(bytes.len()), positions: Vec::with_capacity(bytes.len()) };
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let mark = escape_mark(&bytes[at..]);
        if mark > 0 {
            at += mark;
            continue;
        }
        if keeps(byte) {
            view.push(byte.to_ascii_lowercase(), at);
        }
        at += 1;
    }
    view
}

/// Returns the view with the escapes of URLs, JSON and HTML decoded; `None` if there are no escapes.
pub(super) fn unescaped(bytes: &[u8]) -> Option<Skeleton> {
    if !bytes.iter().any(|byte| matches!(byte, b'%' | b'\\' | b'&')) {
        return None;
    }
    let mut view = Skeleton { bytes: Vec::with_capacity(bytes.len()), positions: Vec::with_capacity(bytes.len()) };
    let (mut at, mut any) = (0, false);
    while at < bytes.len() {
        let (byte, length) = escape(&bytes[at..]).unwrap_or((bytes[at], 1));
        any |= length > 1;
        view.push(byte, at);
        at += length;
    }
    any.then_some(view)
}

/// Decodes the escape at the start of `bytes`; returns its byte and its length. `None` if there is no escape.
fn escape(bytes: &[u8]) -> Option<(u8, usize)> {
    let number = |from: usize| {
        let digits = std::str::from_utf8(bytes.get(from..from + 2)?).ok()?;
        digits.bytes().all(|digit| digit.is_ascii_hexdigit()).then(|| u8::from_str_radix(digits, 16).ok())?
    };
    match bytes {
        [b'%', ..] => Some((number(1)?, 3)),
        [b'\\', b'u' | b'U', b'0', b'0', ..] => Some((number(4)?, 6)),
        [b'\\', c @ (b'"' | b'\'' | b'\\' | b'/'), ..] => Some((*c, 2)),
        // As `render` writes punctuation in titles.
        [b'&', b'#', rest @ ..] => {
            let end = rest.iter().take(4).position(|byte| *byte == b';')?;
            Some((std::str::from_utf8(&rest[..end]).ok()?.parse().ok()?, end + 3))
        }
        _ => {
            let named =
                [(&b"&amp;"[..], b'&'), (b"&lt;", b'<'), (b"&gt;", b'>'), (b"&quot;", b'"'), (b"&apos;", b'\'')];
            named.iter().find(|(name, _)| bytes.starts_with(name)).map(|(name, byte)| (*byte, name.len()))
        }
    }
}

/// Returns the view without zero bytes, in which ASCII characters of two or four bytes become single bytes.
pub(super) fn narrow(bytes: &[u8]) -> Skeleton {
    let mut view = Skeleton::default();
    for (position, byte) in bytes.iter().enumerate().filter(|(_, byte)| **byte != 0) {
        view.push(*byte, position);
    }
    view
}

/// Returns the length of an escaped line end or tab at the start of `bytes`; 0 if there is none.
fn line_end_mark(bytes: &[u8]) -> usize {
    if matches!(bytes, [b'\\', b'n' | b'r' | b't', ..]) { 2 } else { 0 }
}

/// Returns the length of the prefix of a hexadecimal escape, or of an escape without letters, at the start of `bytes`; 0 if
/// there is none.
fn escape_mark(bytes: &[u8]) -> usize {
    let hex = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_hexdigit);
    match bytes {
        [b'\\', b'n' | b'r' | b't', ..] => 2,
        [b'\\', b'u' | b'U', b'0', b'0', ..] if hex(4) && hex(5) => 4,
        _ => 0,
    }
}

/// Bytes that were decoded from a view.
pub(super) struct Decoded {
    pub bytes: Vec<u8>,
    /// Number of characters of the view per decoded byte, as a fraction.
    ratio: (usize, usize),
    offset: usize,
}

impl Decoded {
    /// Returns the range of the view that corresponds to a range of the decoded bytes.
    pub fn encoded(&self, range: Range<usize>, length: usize) -> Range<usize> {
        let (characters, bytes) = self.ratio;
        let start = self.offset + range.start * characters / bytes;
        let end = self.offset + (range.end * characters).div_ceil(bytes);
        start.min(length)..end.min(length)
    }
}

/// Returns the view of base64 characters, with the URL-safe alphabet converted to the standard alphabet.
pub(super) fn base64_characters(bytes: &[u8]) -> Skeleton {
    let mut view = Skeleton { bytes: Vec::with_capacity(bytes.len()), positions: Vec::with_capacity(bytes.len()) };
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let position = at;
        at += line_end_mark(&bytes[at..]).max(1);
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'+' | b'/' => view.push(*byte, position),
            b'-' => view.push(b'+', position),
            b'_' => view.push(b'/', position),
            _ => {}
        }
    }
    view
}

/// Returns the view of hexadecimal digits in lower case, without the prefixes of escapes.
pub(super) fn hex_digits(bytes: &[u8]) -> Skeleton {
    kept(bytes, u8::is_ascii_hexdigit)
}

/// Decodes base64 at each of the four offsets at which it can start.
pub(super) fn from_base64(characters: &[u8]) -> impl Iterator<Item = Decoded> + '_ {
    (0..4).filter_map(|offset| decoded(&BASE64_NOPAD, characters, offset, (4, 3)))
}

/// Decodes hexadecimal digits at both offsets at which they can start.
pub(super) fn from_hex(digits: &[u8]) -> impl Iterator<Item = Decoded> + '_ {
    (0..2).filter_map(|offset| decoded(&HEXLOWER, digits, offset, (2, 1)))
}

fn decoded(encoding: &Encoding, text: &[u8], offset: usize, ratio: (usize, usize)) -> Option<Decoded> {
    let rest = text.get(offset..)?;
    let full_groups = rest.len() / ratio.0 * ratio.0;
    // The last characters may be a part of a group.
    let tail = match (ratio.0, rest.len() - full_groups) {
        (4, 2) => Some((2, 0xf0)),
        (4, 3) => Some((3, 0xfc)),
        _ => None,
    };
    let mut bytes = encoding.decode(&rest[..full_groups]).ok()?;
    if tail.is_some() {
        let mut group = rest[full_groups..].to_vec();
        group.resize(4, b'A');
        let last = encoding.decode(&group).ok()?;
        bytes.extend_from_slice(&last[..rest.len() - full_groups - 1]);
    }
    Some(Decoded { bytes, ratio, offset })
}
