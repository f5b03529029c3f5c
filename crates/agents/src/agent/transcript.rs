//! Feeds agents' output to readers, for tests and fuzzing.

#[cfg(test)]
use std::path::Path;
use std::time::Duration;

use super::AgentEvent;
#[cfg(test)]
use super::AgentStatus;
use super::preset::{OutputReader, ParsedOutput};
use crate::process::{Captured, Finished, ProcessEnd, Stream};

/// Condition on the status of a run.
#[cfg(test)]
pub(super) type StatusTest = fn(&AgentStatus) -> bool;

/// Returns the result of a process that printed `stdout` and `stderr`.
pub(super) fn ended(ended: ProcessEnd, stdout: &str, stderr: &str) -> Finished {
    let captured =
        |text: &str| Captured { head: text.to_owned(), total_bytes: text.len() as u64, ..Captured::default() };
    Finished {
        exit_code: if let ProcessEnd::Exited(code) = ended { Some(code) } else { None },
        ended,
        stdout: captured(stdout),
        stderr: captured(stderr),
        out_of_memory: false,
        duration: Duration::from_secs(1),
    }
}

/// Returns the result of the reader for this output.
pub(super) fn played(
    mut reader: Box<dyn OutputReader>,
    stdout: &str,
    stderr: &str,
    how: ProcessEnd,
) -> (ParsedOutput, Vec<AgentEvent>) {
    let mut events = Vec::new();
    for (stream, text) in [(Stream::Stdout, stdout), (Stream::Stderr, stderr)] {
        for line in text.lines() {
            reader.line(stream, line, &mut |event| events.push(event));
        }
    }
    (reader.finish(&ended(how, stdout, stderr)), events)
}

/// Returns the result of the reader for a recording in `tests/fixtures/agents`.
#[cfg(test)]
pub(super) fn recorded(
    reader: Box<dyn OutputReader>,
    cli: &str,
    case: &str,
    how: ProcessEnd,
) -> (ParsedOutput, Vec<AgentEvent>) {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("tests/fixtures/agents").join(cli);
    let stdout = std::fs::read_to_string(folder.join(format!("{case}.out"))).unwrap();
    let stderr = std::fs::read_to_string(folder.join(format!("{case}.err"))).unwrap_or_default();
    played(reader, &stdout, &stderr, how)
}

/// Reads every prefix of a recording, and the recording with each line corrupted in turn; calls `check` with each
/// result.
#[cfg(test)]
pub(super) fn spoilt(
    reader: fn() -> Box<dyn OutputReader>,
    cli: &str,
    case: &str,
    check: &mut dyn FnMut(&str, ParsedOutput),
) {
    let file = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("tests/fixtures/agents").join(cli);
    let text = std::fs::read_to_string(file.join(format!("{case}.out"))).unwrap();
    spoilt_text(reader, &text, check);
}

/// Calls `check` for every prefix of `stdout`, and for the text with each line corrupted in turn.
#[cfg(test)]
pub(super) fn spoilt_text(
    reader: fn() -> Box<dyn OutputReader>,
    text: &str,
    check: &mut dyn FnMut(&str, ParsedOutput),
) {
    for end in (0..text.len()).step_by(7).filter(|end| text.is_char_boundary(*end)) {
        check(&text[..end], played(reader(), &text[..end], "", ProcessEnd::Signalled(9)).0);
    }
    let odd = ["{}", "[1]", "null", "{\"type\":7}", "\u{feff}", "{\"type\":\"item.completed\",\"item\":[]}", "{"];
    for at in 0..text.lines().count() {
        for line in odd {
            let mut lines: Vec<&str> = text.lines().collect();
            lines[at] = line;
            check(line, played(reader(), &lines.join("\n"), "", ProcessEnd::Exited(0)).0);
        }
    }
}
