//! A backend that is any command: it gets the prompt on standard input and says what it likes.

use super::preset::{MAX_EVENT_TEXT, Preset, Reader, Reading, shortened};
use super::stream::Gathered;
use super::{AgentEvent, AgentStatus};
use crate::process::{Ended, Finished, Stream};

/// Bytes of the output's end that count as its final message.
const FINAL_MESSAGE: usize = 4 * 1024;

/// Why a process is gone that the system ended for want of memory, and what to do.
const OUT_OF_MEMORY: &str = "the machine's memory ran out and the system killed it; give it more memory, or let fewer run at once (`limits.loops`)";

pub(super) const PRESET: Preset =
    Preset { name: "script", reader: || Box::new(Plain { may_be_silent: true }), ..Preset::NOTHING };

/// Reads the text of an agent, which has something to say.
pub(super) fn text_reader() -> Box<dyn Reader> {
    Box::new(Plain { may_be_silent: false })
}

/// Plain text; success is exit code 0.
struct Plain {
    /// Whether it may say nothing; an agent may not.
    may_be_silent: bool,
}

impl Reader for Plain {
    fn line(&mut self, _: Stream, line: &str, on_event: &mut dyn FnMut(AgentEvent)) {
        if !line.trim().is_empty() {
            on_event(AgentEvent::Text { text: shortened(line, MAX_EVENT_TEXT) });
        }
    }

    fn finish(&mut self, finished: &Finished) -> Reading {
        let said = finished.stdout.last(FINAL_MESSAGE).trim();
        let status = match &finished.ended {
            Ended::Exited(0) if said.is_empty() && !self.may_be_silent => {
                AgentStatus::Failed { reason: "it ended without a word".to_owned() }
            }
            Ended::Exited(0) => AgentStatus::Finished,
            ended => AgentStatus::Failed { reason: how_it_ended(ended, finished) },
        };
        let mut gathered = Gathered::default();
        said.clone_into(&mut gathered.last_text);
        gathered.printed_by_failed(finished);
        gathered.reading(status, finished)
    }
}

/// In a sentence, with the last line of its error output.
pub(super) fn how_it_ended(ended: &Ended, finished: &Finished) -> String {
    let how = match ended {
        _ if finished.out_of_memory => OUT_OF_MEMORY.to_owned(),
        Ended::Exited(code) => format!("it exited with {code}"),
        Ended::Signalled(signal) => format!("it was killed by signal {signal}"),
        other => format!("it was ended ({other:?})"),
    };
    match finished.stderr.last(FINAL_MESSAGE).trim().lines().last() {
        Some(said) => format!("{how}: {}", shortened(said.trim(), 500)),
        None => how,
    }
}
