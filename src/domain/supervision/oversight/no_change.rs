//! No change: iterations in which the agent changed nothing although checks fail.

use super::detection::{Detection, DetectionEvidence, DetectionKind, DetectionSeverity};
use super::detection_input::DetectionInput;
use crate::domain::model::record::Record;

pub(super) fn detect(input: &DetectionInput<'_>) -> Option<Detection> {
    let settings = &input.settings.no_change;
    let newest_first = (0..input.history.len()).rev();
    let run = newest_first.take_while(|at| unchanged(&input.history[..=*at])).take(settings.high_iterations as usize);
    let run = u32::try_from(run.count()).unwrap_or(u32::MAX);
    if run < settings.iterations {
        return None;
    }
    let severity = if run >= settings.high_iterations { DetectionSeverity::High } else { DetectionSeverity::Medium };
    let text = format!("{run} iterations changed nothing");
    Detection::of(
        DetectionKind::NoChange,
        severity,
        vec![DetectionEvidence::new("unchanged", run, settings.iterations, text)],
    )
}

/// Whether the newest iteration changed nothing: the tree is as before; where trees are not known, no file was changed
/// and no figure moved. A run that failed is another matter.
fn unchanged(records: &[Record]) -> bool {
    let Some((last, before)) = records.split_last() else { return false };
    if last.agent_failure.is_some() {
        return false;
    }
    let before = before.last();
    match (&last.tree, before.map(|before| &before.tree)) {
        (Some(tree), Some(Some(before))) => tree == before,
        (Some(_), _) => last.files.is_empty(),
        (None, _) => last.files.is_empty() && before.is_some_and(|before| same_figures(last, before)),
    }
}

fn same_figures(a: &Record, b: &Record) -> bool {
    let figures = |record: &Record| (record.completion, record.errors, record.tests_passing, record.tests_failing);
    figures(a) == figures(b) && a.error_signature == b.error_signature && a.coverage == b.coverage
}
