//! Turn of an agent that is still running, with its output so far.

use serde::{Deserialize, Serialize};

use super::SessionTurn;
use crate::domain::model::ids::Timestamp;

/// Maximum size of collected texts before they are stored, in bytes.
const MAX_PENDING: usize = 32 * 1024;
/// Maximum size of a text that accepts further lines, in bytes.
const MAX_JOINED: usize = 4 * 1024;

/// Text that an agent wrote during its run, masked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputText {
    /// Time of the first line.
    pub at: Timestamp,
    /// Text of one or more lines.
    pub text: String,
}

/// Turn of an agent that is still running.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningTurn {
    /// Turn without its answer. Its end time is the agent's last activity.
    pub turn: SessionTurn,
    /// Texts written by the agent, oldest first. Only the end of a long output is kept.
    pub output: Vec<OutputText>,
}

impl RunningTurn {
    /// Returns the output so far as one text.
    pub fn text(&self) -> String {
        self.output.iter().map(|output| output.text.as_str()).collect::<Vec<_>>().join("\n")
    }

    /// Returns the turn of an interrupted run, whose answer is the output so far.
    pub fn cut(self, error: &str) -> SessionTurn {
        SessionTurn { response: self.text(), error: Some(error.to_owned()), ..self.turn }
    }
}

/// Buffer for an agent's output that is not stored yet. Consecutive lines without another event between them become one
/// text. If the buffer is full, it drops further output until it is emptied.
#[derive(Debug, Default)]
pub struct OutputBuffer {
    texts: Vec<OutputText>,
    bytes: usize,
    omitted: usize,
    interrupted: bool,
}

impl OutputBuffer {
    /// Adds a text.
    pub fn add(&mut self, at: Timestamp, text: &str) {
        if self.bytes + text.len() > MAX_PENDING {
            self.omitted += text.lines().count();
            return;
        }
        self.bytes += text.len() + 1;
        match self.texts.last_mut().filter(|last| !self.interrupted && last.text.len() < MAX_JOINED) {
            Some(last) => {
                last.text.push('\n');
                last.text.push_str(text);
            }
            None => self.texts.push(OutputText { at, text: text.to_owned() }),
        }
        self.interrupted = false;
    }

    /// Notes that another event happened, so that the next line starts a new text.
    pub fn interrupt(&mut self) {
        self.interrupted = true;
    }

    /// Removes and returns the collected texts, oldest first.
    pub fn take(&mut self) -> Vec<OutputText> {
        let Self { mut texts, omitted, .. } = std::mem::take(self);
        if let Some(last) = texts.last_mut().filter(|_| omitted > 0) {
            last.text.push_str(&format!("\n[… {omitted} lines omitted …]"));
        }
        texts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(buffer: &mut OutputBuffer) -> Vec<(i64, String)> {
        buffer.take().into_iter().map(|output| (output.at.0, output.text)).collect()
    }

    #[test]
    fn consecutive_output_lines_are_joined_into_one_text() {
        let mut buffer = OutputBuffer::default();
        buffer.add(Timestamp(1), "one");
        buffer.add(Timestamp(2), "two");
        buffer.interrupt();
        buffer.add(Timestamp(3), "three");
        assert_eq!(taken(&mut buffer), [(1, "one\ntwo".into()), (3, "three".into())]);
        assert_eq!(taken(&mut buffer), [], "nothing is taken twice");
        buffer.add(Timestamp(4), "four");
        assert_eq!(taken(&mut buffer), [(4, "four".into())]);
    }

    #[test]
    fn long_output_is_split_into_several_texts() {
        let mut buffer = OutputBuffer::default();
        let line = "x".repeat(1_000);
        (0..12).for_each(|at| buffer.add(Timestamp(at), &line));
        let texts = buffer.take();
        assert!(
            texts.len() > 1 && texts.iter().all(|output| output.text.len() < MAX_JOINED + 1_001),
            "{}",
            texts.len()
        );
        let lines: usize = texts.iter().map(|output| output.text.lines().count()).sum();
        assert_eq!(lines, 12, "no line is lost");
    }

    #[test]
    fn output_flood_is_bounded_and_reports_omitted_lines() {
        let mut buffer = OutputBuffer::default();
        (0..100_000).for_each(|n| buffer.add(Timestamp(n), &format!("line {n}")));
        let texts = buffer.take();
        let bytes: usize = texts.iter().map(|output| output.text.len()).sum();
        assert!(bytes <= MAX_PENDING + 100, "{bytes}");
        assert_eq!(texts[0].text.lines().next(), Some("line 0"));
        let shown: usize = texts.iter().map(|output| output.text.lines().count()).sum::<usize>() - 1;
        let last = &texts.last().expect("a text").text;
        assert!(last.ends_with(&format!("\n[… {} lines omitted …]", 100_000 - shown)), "{last}");
        buffer.add(Timestamp(1), "after the flood");
        assert_eq!(taken(&mut buffer), [(1, "after the flood".into())], "the next write begins anew");
    }
}
