//! What is kept of an output stream: its beginning and its end, masked; and its lines as they come.

use std::collections::VecDeque;

use super::mask::Masker;

/// Longest line that is handed on; the rest of a longer one is left out.
pub(super) const MAX_LINE: usize = 1024 * 1024;
/// Bytes kept beyond what is shown, so that a secret at a cut is still seen whole.
const SLACK: usize = 16 * 1024;

/// What a process printed on one stream, masked and decoded lossily.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Captured {
    /// All of it, or its beginning.
    pub head: String,
    /// Its end, where something was left out; else empty.
    pub tail: String,
    /// Bytes that were printed in all.
    pub total_bytes: u64,
    /// Bytes left out between `head` and `tail`, about (masking and decoding change lengths); 0 when all is there.
    pub left_out: u64,
}

impl Captured {
    /// Beginning and end, with a line between them that says how much is missing.
    pub fn text(&self) -> String {
        if self.left_out == 0 {
            return self.head.clone();
        }
        format!("{}\n… {} bytes left out …\n{}", self.head, self.left_out, self.tail)
    }

    /// The last lines, at most `bytes` of valid text.
    pub fn last(&self, bytes: usize) -> &str {
        let text = if self.left_out == 0 { &self.head } else { &self.tail };
        &text[text.ceil_char_boundary(text.len().saturating_sub(bytes))..]
    }
}

/// Keeps the first and the last bytes of a stream, raw, within a bound.
pub(super) struct Keeper {
    half: usize,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    total: u64,
}

impl Keeper {
    /// Keeps about `keep` bytes, in two halves.
    pub(super) fn new(keep: usize) -> Self {
        Self { half: keep / 2, head: Vec::new(), tail: VecDeque::new(), total: 0 }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let room = (self.half + SLACK).saturating_sub(self.head.len()).min(bytes.len());
        self.head.extend_from_slice(&bytes[..room]);
        let rest = &bytes[room..];
        let cap = self.half + SLACK;
        let rest = &rest[rest.len().saturating_sub(cap)..];
        let too_many = (self.tail.len() + rest.len()).saturating_sub(cap);
        self.tail.drain(..too_many);
        self.tail.extend(rest);
    }

    /// Decodes, masks, cuts. Masking sees `SLACK` bytes more than what is shown on each side of the cut.
    pub(super) fn finish(self, secrets: &Masker) -> Captured {
        let Self { half, mut head, tail, total } = self;
        let tail: Vec<u8> = tail.into();
        if (head.len() + tail.len()) as u64 == total {
            head.extend_from_slice(&tail);
            let text = decode(head);
            if text.len() <= 2 * half {
                return Captured {
                    head: secrets.mask(&text).into_owned(),
                    tail: String::new(),
                    total_bytes: total,
                    left_out: 0,
                };
            }
            return Self::cut(secrets, &text, &text, half, total);
        }
        Self::cut(secrets, &decode(head), &decode(tail), half, total)
    }

    fn cut(secrets: &Masker, head: &str, tail: &str, half: usize, total: u64) -> Captured {
        let head_end = head.floor_char_boundary(half);
        let tail_start = tail.ceil_char_boundary(tail.len().saturating_sub(half));
        let kept = head_end + (tail.len() - tail_start);
        Captured {
            head: secrets.mask_range(head, 0..head_end),
            tail: secrets.mask_range(tail, tail_start..tail.len()),
            total_bytes: total,
            left_out: total.saturating_sub(kept as u64).max(1),
        }
    }
}

fn decode(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned())
}

/// A line as people and parsers get it. Of one that was cut, the last part is left out too: it may be half a secret.
pub(super) fn masked_line(secrets: &Masker, line: &[u8], cut: bool) -> String {
    let text = String::from_utf8_lossy(line);
    if cut {
        let end = text.floor_char_boundary(text.len().saturating_sub(SLACK));
        return secrets.mask_range(&text, 0..end);
    }
    secrets.mask(&text).into_owned()
}

/// Cuts a stream of chunks into lines without their ends (`\n`, `\r\n`).
#[derive(Default)]
pub(super) struct LineCutter {
    partial: Vec<u8>,
    too_long: bool,
}

impl LineCutter {
    /// Takes a chunk; `emit` gets each line that it completes and whether that was cut at [`MAX_LINE`].
    pub(super) fn push(&mut self, mut bytes: &[u8], emit: &mut impl FnMut(&[u8], bool)) {
        while let Some(end) = bytes.iter().position(|b| *b == b'\n') {
            self.extend(&bytes[..end]);
            self.flush(emit);
            bytes = &bytes[end + 1..];
        }
        self.extend(bytes);
    }

    /// The stream is over: what is left is a line.
    pub(super) fn end(&mut self, emit: &mut impl FnMut(&[u8], bool)) {
        if !self.partial.is_empty() {
            self.flush(emit);
        }
    }

    fn extend(&mut self, bytes: &[u8]) {
        let room = MAX_LINE - self.partial.len();
        self.too_long |= bytes.len() > room;
        self.partial.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    fn flush(&mut self, emit: &mut impl FnMut(&[u8], bool)) {
        let line = self.partial.strip_suffix(b"\r").unwrap_or(&self.partial);
        emit(line, self.too_long);
        self.partial.clear();
        self.too_long = false;
    }
}
