//! A backend that is any command: it gets the prompt on standard input and says what it likes.

use super::preset::{AgentPreset, MAX_EVENT_TEXT, OutputReader, ParsedOutput, shortened};
use super::stream::OutputAccumulator;
use super::{AgentEvent, AgentStatus};
use crate::process::{Finished, ProcessEnd, Stream};

/// Bytes of the output's end that count as its final message.
const FINAL_MESSAGE: usize = 4 * 1024;

/// Why a process is gone that the system ended for want of memory, and what to do.
const OUT_OF_MEMORY: &str = "the machine's memory ran out and the system killed it; give it more memory, or let fewer run at once (`limits.loops`)";

pub(super) const PRESET: AgentPreset =
    AgentPreset { name: "script", reader: || Box::new(PlainText { may_be_silent: true }), ..AgentPreset::NOTHING };

/// Reads the text of an agent, which has something to say.
pub(super) fn text_reader() -> Box<dyn OutputReader> {
    Box::new(PlainText { may_be_silent: false })
}

/// PlainText text; success is exit code 0.
struct PlainText {
    /// Whether it may say nothing; an agent may not.
    may_be_silent: bool,
}

impl OutputReader for PlainText {
    fn line(&mut self, _: Stream, line: &str, on_event: &mut dyn FnMut(AgentEvent)) {
        if !line.trim().is_empty() {
            on_event(AgentEvent::Text { text: shortened(line, MAX_EVENT_TEXT) });
        }
    }

    fn finish(&mut self, finished: &Finished) -> ParsedOutput {
        let said = finished.stdout.last(FINAL_MESSAGE).trim();
        let status = match &finished.ended {
            ProcessEnd::Exited(0) if said.is_empty() && !self.may_be_silent => {
                AgentStatus::Failed { reason: "it ended without a word".to_owned() }
            }
            ProcessEnd::Exited(0) => AgentStatus::Finished,
            ended => AgentStatus::Failed { reason: how_it_ended(ended, finished) },
        };
        let mut output = OutputAccumulator::default();
        said.clone_into(&mut output.last_text);
        output.add_failure_output(finished);
        output.finish(status, finished)
    }
}

/// In a sentence, with the last line of its error output.
pub(super) fn how_it_ended(ended: &ProcessEnd, finished: &Finished) -> String {
    let how = match ended {
        _ if finished.out_of_memory => OUT_OF_MEMORY.to_owned(),
        ProcessEnd::Exited(code) => format!("it exited with {code}"),
        ProcessEnd::Signalled(signal) => format!("it was killed by signal {signal}"),
        other => format!("it was ended ({other:?})"),
    };
    match finished.stderr.last(FINAL_MESSAGE).trim().lines().last() {
        Some(said) => format!("{how}: {}", shortened(said.trim(), 500)),
        None => how,
    }
}
