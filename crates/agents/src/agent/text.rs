//! Length limits of texts from agents, and descriptions of process ends.

use crate::process::{Finished, ProcessEnd};

/// Maximum length of a text in an event, in characters.
pub(super) const MAX_EVENT_TEXT: usize = 4_000;
/// Maximum length of a note or a reason, in characters.
pub(super) const MAX_NOTE: usize = 500;
/// Maximum length of a prompt that is passed as an argument, in bytes; Linux accepts 131,071 bytes per argument.
pub(super) const MAX_ARGUMENT: usize = 100_000;
/// Number of bytes at the end of standard error that are searched for its last line.
const ERROR_OUTPUT: usize = 4 * 1024;
/// Reason and advice if the kernel killed a process because memory ran out.
const OUT_OF_MEMORY: &str = "the machine's memory ran out and the system killed it; give it more memory, or let fewer run at once (`limits.loops`)";

/// Returns the first `max` characters, followed by an ellipsis if the text is longer.
pub(super) fn shortened(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Describes the end of a process in one sentence, with the last line of standard error.
pub(super) fn describe_end(end: &ProcessEnd, finished: &Finished) -> String {
    let how = match end {
        _ if finished.out_of_memory => OUT_OF_MEMORY.to_owned(),
        ProcessEnd::Exited(code) => format!("it exited with {code}"),
        ProcessEnd::Signalled(signal) => format!("it was killed by signal {signal}"),
        ProcessEnd::ResourceLimit(reason) => format!("it was ended: {reason}"),
        other => format!("it was ended ({other:?})"),
    };
    match finished.stderr.last(ERROR_OUTPUT).trim().lines().last() {
        Some(line) => format!("{how}: {}", shortened(line.trim(), MAX_NOTE)),
        None => how,
    }
}
