//! Parts of a secret value that are searched for, each in all its forms.

use std::collections::HashSet;
use std::ops::Range;

use super::rare_forms::rare_forms;
use crate::domain::trust::secret_forms::encodings_of;

/// Minimum length of a value, in bytes; shorter ones would occur in ordinary words.
const MIN_VALUE: usize = 8;
/// Minimum length of a line of a value that counts alone, in bytes.
const MIN_LINE: usize = 16;
/// Length of the parts of a long value, in bytes. Any stretch of 23 bytes of a value of one line contains a part, and of 31 bytes
/// of a line of others.
const WINDOW: usize = 16;
/// Distance of the parts of a long value, in bytes.
const STEP: usize = 8;
/// Minimum length of a value whose parts count, in bytes.
const MIN_LONG: usize = 24;
/// Minimum number of different bytes in a part; words repeat letters.
const MIN_DIFFERENT: usize = 9;
/// Maximum length that a finding is widened by on each side, in bytes.
const MOST_WIDENED: usize = 4_096;

/// Part of a value.
pub(super) struct ValuePart {
    pub bytes: Vec<u8>,
    /// Whether a finding of it is the beginning, middle or end of more.
    pub is_piece: bool,
}

/// Returns the whole value, its lines and, of long lines, overlapping parts, so that a truncated value is found as well. Nothing for a
/// value that is too short.
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

/// Whether a part looks generated: letters and digits, few of them twice.
fn is_random(part: &[u8]) -> bool {
    let different: HashSet<u8> = part.iter().copied().collect();
    let has = |class: fn(&u8) -> bool| part.iter().any(class);
    let classes = [has(u8::is_ascii_lowercase), has(u8::is_ascii_uppercase), has(u8::is_ascii_digit)];
    let words = part.iter().filter(|byte| matches!(byte, b'-' | b'_' | b' ' | b'.' | b'/' | b':')).count();
    different.len() >= MIN_DIFFERENT && classes.iter().filter(|has| **has).count() >= 2 && words <= 2
}

/// Returns a part in all forms in which it is likely to leave; without those that are too short to be distinguished from ordinary
/// text.
pub(super) fn forms(part: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    encodings_of(part).into_iter().chain(rare_forms(part)).filter(|form| form.len() >= MIN_VALUE)
}

/// Widens a range by the characters of tokens around it, so that nothing of a token remains of which a part was found.
pub(super) fn widened(bytes: &[u8], range: Range<usize>) -> Range<usize> {
    let is_token = |byte: &&u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'+' | b'/' | b'=' | b'%');
    let before = bytes[..range.start].iter().rev().take(MOST_WIDENED).take_while(is_token).count();
    let after = bytes[range.end..].iter().take(MOST_WIDENED).take_while(is_token).count();
    range.start - before..range.end + after
}
