//! Properties of the readers of what agents write, for any input.

use super::output::MAX_NOTES;
use super::transcript::played;
use super::{presets, report};
use crate::process::{Masker, ProcessEnd};

/// A report's lists and texts are bounded, and its numbers are in range.
pub(crate) fn report(data: &[u8]) {
    let (Some(report), problem) = report::parse(data, &Masker::new([""; 0])) else { return };
    assert!(problem.is_none_or(|problem| !problem.is_empty()));
    assert!(report.completion_percentage.is_none_or(|percent| (0.0..=100.0).contains(&percent)));
    assert!(report.quality_score.is_none_or(|score| (0.0..=1.0).contains(&score)));
    for list in [&report.learnings, &report.blockers, &report.resolution_steps, &report.next_steps] {
        assert!(list.len() <= 50 && list.iter().all(|text| text.chars().count() <= 4_001));
    }
    assert!(report.summary.chars().count() <= 4_001 && report.approach.chars().count() <= 4_001);
}

/// Whatever a program prints, every reader ends with a bounded number of errors.
pub(crate) fn output(text: &str) {
    for reader in presets::readers() {
        for end in [ProcessEnd::Exited(0), ProcessEnd::Exited(1), ProcessEnd::Signalled(9)] {
            let (parsed, _) = played(reader(), text, text, end);
            assert!(parsed.errors.len() <= MAX_NOTES + 2, "{}", parsed.errors.len());
        }
    }
}
