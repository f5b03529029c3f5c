//! Fuzz targets for reading the output of agents.

use super::output::MAX_NOTES;
use super::transcript::played;
use super::{broker, presets, report};
use crate::process::{Masker, ProcessEnd};

/// Checks that a report's lists and texts are bounded and its numbers are in range.
pub fn report(data: &[u8]) {
    let (Some(report), problem) = report::parse(data, &Masker::new([""; 0])) else { return };
    assert!(problem.is_none_or(|problem| !problem.is_empty()));
    assert!(report.completion_percentage.is_none_or(|percent| (0.0..=100.0).contains(&percent)));
    for list in [&report.learnings, &report.blockers, &report.resolution_steps, &report.next_steps] {
        assert!(list.len() <= 50 && list.iter().all(|text| text.chars().count() <= 4_001));
    }
    assert!(report.summary.chars().count() <= 4_001 && report.approach.chars().count() <= 4_001);
}

/// Checks that reading any output ends with a bounded number of errors. The first byte selects the reader and the end
/// of the run.
pub fn output(data: &[u8]) {
    let Some((choice, text)) = data.split_first() else { return };
    let (text, choice) = (String::from_utf8_lossy(text), usize::from(choice.wrapping_sub(b'a')));
    let readers: Vec<_> = presets::readers().collect();
    let ends = [ProcessEnd::Exited(0), ProcessEnd::Exited(1), ProcessEnd::Signalled(9)];
    let (reader, end) = (readers[choice % readers.len()], &ends[choice / readers.len() % ends.len()]);
    let (parsed, _) = played(reader(), &text, &text, end.clone());
    assert!(parsed.errors.len() <= MAX_NOTES + 2, "{}", parsed.errors.len());
}

/// Whether the body of a request to a model passes the checks. The first byte selects the wire format.
pub fn accepts_model_body(data: &[u8]) -> bool {
    broker::fuzzing::accepts(data)
}

/// Checks the body of a request to a model, or of its response.
pub fn model_body(data: &[u8]) {
    broker::fuzzing::body(data);
}
