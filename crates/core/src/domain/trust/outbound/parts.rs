//! Parts of a secret that are searched for, each in all its forms.

use std::collections::HashSet;
use std::ops::Range;

use crate::domain::trust::secret_forms::encodings_of;

/// Minimum length of a value, in bytes. Shorter values would occur in ordinary words.
const MIN_VALUE: usize = 8;
/// Minimum length of a line of a value that is searched by itself, in bytes.
const MIN_LINE: usize = 16;
/// Length of the parts of a long value, in bytes. In a value of one line, any 23 consecutive bytes contain a part; in a value of
/// several lines, any 31 consecutive bytes of a line do.
const WINDOW: usize = 16;
/// Distance between the starts of two parts, in bytes.
const STEP: usize = 8;
/// Minimum length of a value whose parts are searched, in bytes.
const MIN_LONG: usize = 24;
/// Minimum number of distinct bytes in a part. Words have fewer, because their letters repeat.
const MIN_DIFFERENT: usize = 9;
/// Maximum number of bytes by which a finding is extended on each side.
const MOST_WIDENED: usize = 4_096;

/// Part of a secret value.
pub(super) struct ValuePart {
    pub bytes: Vec<u8>,
    /// Whether the part is not a whole value or line, so that a finding has to be extended.
    pub is_piece: bool,
}

/// Returns the parts to search for: the whole value, its lines, and overlapping parts of long lines, so that truncated values are
/// found. Empty if the value is too short.
pub(super) fn of_value(value: &str) -> Vec<ValuePart> {
    let trimmed = value.trim();
    if trimmed.len() < MIN_VALUE {
        return Vec::new();
    }
    let lines = trimmed.lines().map(str::trim).filter(|line| line.len() >= MIN_LINE && !line.starts_with("-----"));
    let complete: Vec<&str> = std::iter::once(trimmed).chain(lines.filter(|line| *line != trimmed)).collect();
    let mut parts = Vec::new();
    for line in complete {
        let line = line.as_bytes();
        parts.push(ValuePart { bytes: line.to_vec(), is_piece: false });
        if line.len() < MIN_LONG || line.contains(&b'\n') {
            continue;
        }
        let last = line.len() - WINDOW;
        // The lines of a key are many.
        let step = if trimmed.contains('\n') { WINDOW } else { STEP };
        let windows = (0..last).step_by(step).chain([last]).map(|start| &line[start..start + WINDOW]);
        parts.extend(
            windows.filter(|part| is_random(part)).map(|part| ValuePart { bytes: part.to_vec(), is_piece: true }),
        );
    }
    parts
}

/// Whether a part looks random: it has letters and digits, and few of them repeat.
fn is_random(part: &[u8]) -> bool {
    let different: HashSet<u8> = part.iter().copied().collect();
    let has = |class: fn(&u8) -> bool| part.iter().any(class);
    let classes = [has(u8::is_ascii_lowercase), has(u8::is_ascii_uppercase), has(u8::is_ascii_digit)];
    let words = part.iter().filter(|byte| matches!(byte, b'-' | b'_' | b' ' | b'.' | b'/' | b':')).count();
    different.len() >= MIN_DIFFERENT && classes.iter().filter(|has| **has).count() >= 2 && words <= 2
}

/// Returns a part in all its forms, except those that are too short to differ from ordinary text.
pub(super) fn forms(part: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    encodings_of(part).into_iter().filter(|form| form.len() >= MIN_VALUE)
}

/// Extends a range by the adjacent characters that tokens consist of, so that the rest of a partially found token is masked too.
pub(super) fn widened(bytes: &[u8], range: Range<usize>) -> Range<usize> {
    let is_token = |byte: &&u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'+' | b'/' | b'=' | b'%');
    let before = bytes[..range.start].iter().rev().take(MOST_WIDENED).take_while(is_token).count();
    let after = bytes[range.end..].iter().take(MOST_WIDENED).take_while(is_token).count();
    range.start - before..range.end + after
}
