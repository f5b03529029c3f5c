//! Captures an output stream: keeps its start and end, and splits it into lines. Secrets are masked in both.

use std::collections::VecDeque;

use super::Masker;

/// Maximum length of a line, in bytes; the rest of a longer one is left out.
pub(super) const MAX_LINE: usize = 1024 * 1024;
/// Number of bytes that are kept beyond each side of a cut, so that a secret at the cut is recognized.
const SLACK: usize = 16 * 1024;

/// Output of a process on one stream. Secrets are masked, invalid UTF-8 is replaced.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Captured {
    /// Complete output, or its start if something was omitted.
    pub head: String,
    /// End of the output if something was omitted; otherwise empty.
    pub tail: String,
    /// Total number of bytes that were printed.
    pub total_bytes: u64,
    /// Approximate number of bytes omitted between `head` and `tail`, because masking and decoding change lengths; 0
    /// if none.
    pub left_out: u64,
}

impl Captured {
    /// Returns start and end, with a line between them that states the number of omitted bytes.
    pub fn text(&self) -> String {
        if self.left_out == 0 {
            return self.head.clone();
        }
        format!("{}\n… {} bytes left out …\n{}", self.head, self.left_out, self.tail)
    }

    /// Returns the end of the output, at most `bytes` long, cut at a character boundary.
    pub fn last(&self, bytes: usize) -> &str {
        let text = if self.left_out == 0 { &self.head } else { &self.tail };
        &text[text.ceil_char_boundary(text.len().saturating_sub(bytes))..]
    }
}

/// Buffer for the first and the last bytes of a stream, before masking.
pub(super) struct HeadAndTail {
    half: usize,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    total: u64,
}

impl HeadAndTail {
    /// Creates a buffer for about `keep` bytes, half for each end.
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

    /// Decodes, masks and cuts the output. Masking covers `SLACK` bytes beyond each side of the cut.
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

/// Returns a line with secrets masked. The end of a line that was cut is omitted, because it may be part of a secret.
pub(super) fn masked_line(secrets: &Masker, line: &[u8], cut: bool) -> String {
    let text = String::from_utf8_lossy(line);
    if cut {
        let end = text.floor_char_boundary(text.len().saturating_sub(SLACK));
        return secrets.mask_line(&text, 0..end);
    }
    secrets.mask_line(&text, 0..text.len())
}

/// Splits a stream of chunks into lines without line endings (`\n`, `\r\n`).
#[derive(Default)]
pub(super) struct LineCutter {
    partial: Vec<u8>,
    too_long: bool,
}

impl LineCutter {
    /// Adds a chunk; calls `emit` with each completed line and whether it was cut at [`MAX_LINE`].
    pub(super) fn push(&mut self, mut bytes: &[u8], emit: &mut impl FnMut(&[u8], bool)) {
        while let Some(end) = bytes.iter().position(|b| *b == b'\n') {
            self.extend(&bytes[..end]);
            self.flush(emit);
            bytes = &bytes[end + 1..];
        }
        self.extend(bytes);
    }

    /// Ends the stream; remaining bytes are the last line.
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
