//! Backend for any command. The command receives the prompt on standard input and prints text.

use super::output::OutputAccumulator;
use super::preset::{AgentPreset, OutputReader, ParsedOutput};
use super::refusal::refused;
use super::text::{MAX_EVENT_TEXT, describe_end, shortened};
use super::{AgentEvent, AgentStatus};
use crate::process::{Finished, ProcessEnd, Stream};

/// Number of bytes at the end of the output that are the final message.
const FINAL_MESSAGE: usize = 4 * 1024;

/// Preset for commands that have no preset.
pub(super) const PRESET: AgentPreset = AgentPreset::new("script", || Box::new(PlainText { may_be_silent: true }));

/// Creates a reader for plain text. A run without output fails.
pub(super) fn text_reader() -> Box<dyn OutputReader> {
    Box::new(PlainText { may_be_silent: false })
}

/// Reader of plain text; a run succeeds with exit code 0.
struct PlainText {
    /// Whether a run without output can succeed.
    may_be_silent: bool,
}

impl OutputReader for PlainText {
    fn line(&mut self, _: Stream, line: &str, on_event: &mut dyn FnMut(AgentEvent)) {
        if !line.trim().is_empty() {
            on_event(AgentEvent::Text { text: shortened(line, MAX_EVENT_TEXT) });
        }
    }

    fn finish(&mut self, finished: &Finished) -> ParsedOutput {
        let text = finished.stdout.last(FINAL_MESSAGE).trim();
        let mut output = OutputAccumulator::default();
        let error = final_error(text).filter(|_| matches!(finished.ended, ProcessEnd::Exited(_)));
        let status = match (&finished.ended, error) {
            (_, Some(error)) => {
                output.record_provider_error(error);
                refused(&mut output.signals, error)
            }
            (ProcessEnd::Exited(0), None) if text.is_empty() && !self.may_be_silent => {
                AgentStatus::Failed { reason: "it ended without any output".to_owned() }
            }
            (ProcessEnd::Exited(0), None) => AgentStatus::Finished,
            (ended, None) => AgentStatus::Failed { reason: describe_end(ended, finished) },
        };
        text.clone_into(&mut output.last_text);
        output.add_failure_output(finished);
        output.finish(status, finished)
    }
}

/// Returns the error with which an output ends in the wording of goose, which then exits with code 0.
fn final_error(text: &str) -> Option<&str> {
    const HEADING: &str = "Ran into this error: ";
    const ADVICE: &str = "Please retry if you think this is a transient or recoverable error.";
    let text = text.strip_suffix(ADVICE).unwrap_or(text).trim_end();
    let (before, error) = text.rsplit_once(HEADING)?;
    let is_end = (before.is_empty() || before.ends_with('\n')) && !error.contains("\n\n");
    is_end.then_some(error)
}
