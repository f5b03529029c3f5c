//! Text transcript of a run of the built-in agent, with a maximum size.

use std::collections::VecDeque;

/// Number of bytes that are kept of the transcript's start, and of its end.
const HALF: usize = 4 * 1024 * 1024;

/// Start and end of a transcript.
#[derive(Default)]
pub(super) struct Transcript {
    head: String,
    tail: VecDeque<String>,
    tail_bytes: usize,
    left_out: usize,
}

impl Transcript {
    /// Adds a passage; passages longer than 64 KiB are cut.
    pub(super) fn add(&mut self, passage: &str) {
        let passage = &passage[..passage.floor_char_boundary(64 * 1024)];
        if self.tail.is_empty() && self.head.len() + passage.len() < HALF {
            self.head.push_str(passage);
            self.head.push('\n');
            return;
        }
        self.tail_bytes += passage.len() + 1;
        self.tail.push_back(passage.to_owned());
        while self.tail_bytes > HALF {
            let Some(removed) = self.tail.pop_front() else { break };
            self.tail_bytes -= removed.len() + 1;
            self.left_out += removed.len() + 1;
        }
    }

    /// Returns the transcript, with a line that marks omitted text.
    pub(super) fn text(self) -> String {
        let mut text = self.head;
        if self.left_out > 0 {
            text.push_str(&format!("… {} bytes left out …\n", self.left_out));
        }
        for passage in self.tail {
            text.push_str(&passage);
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_and_end_are_kept() {
        let mut short = Transcript::default();
        short.add("a");
        short.add("b");
        assert_eq!(short.text(), "a\nb\n");
        let mut long = Transcript::default();
        for number in 0..1_000 {
            long.add(&format!("{number:>20000}"));
        }
        let text = long.text();
        assert!(text.len() < 2 * HALF + 100_000 && text.contains("bytes left out"), "{}", text.len());
        assert!(text.starts_with(&format!("{:>20000}\n", 0)) && text.ends_with("999\n"));
        let mut flood = Transcript::default();
        flood.add(&"ä".repeat(100_000));
        assert!(flood.text().len() <= 64 * 1024 + 1);
    }
}
