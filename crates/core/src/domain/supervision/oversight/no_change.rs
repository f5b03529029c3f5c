//! No change: iterations in which the agent changed nothing although checks fail.

use super::DetectionKind;
use super::basis::Basis;
use super::definition::{DetectionDefinition, DetectionRow, detection_settings};
use super::detection::{Detection, DetectionEvidence, DetectionSeverity};
use super::detection_input::DetectionInput;
use super::intervention::InterventionLevel;
use crate::domain::model::record::{Record, TreeChange};

detection_settings! {
    /// Conditions of iterations without changes.
    NoChangeSettings {
        /// Number of consecutive iterations without a change.
        #[schemars(skip)]
        pub iterations: u32 = 2, in 1..=100, at_most high_iterations;
        /// Number of consecutive iterations without a change at which the detection is severe.
        #[schemars(skip)]
        pub high_iterations: u32 = 3, in 1..=100;
    }
}

impl DetectionDefinition for NoChangeSettings {
    const ROW: DetectionRow = DetectionRow {
        title: "Iterations changed nothing while checks fail",
        pattern: "the agent changes nothing while checks fail",
        signals: &[("unchanged", Basis::Measured)],
        effect: "",
        order: "Change something now: start with the first failing check.",
        advice: &[
            "Change the code that the first failing check points at.",
            "If nothing can be changed, say what is missing as a blocker.",
        ],
        high: InterventionLevel::Warn,
        profile: |schedule| &schedule.stuck,
        of_approach: true,
    };

    fn detect(&self, input: &DetectionInput<'_>) -> Option<Detection> {
        let newest_first = (0..input.history.len()).rev();
        let run = newest_first.take_while(|at| unchanged(&input.history[..=*at])).take(self.high_iterations as usize);
        let run = u32::try_from(run.count()).unwrap_or(u32::MAX);
        if run < self.iterations {
            return None;
        }
        let severity = if run >= self.high_iterations { DetectionSeverity::High } else { DetectionSeverity::Medium };
        let text = format!("{run} iterations changed nothing");
        Detection::of(
            DetectionKind::NoChange,
            severity,
            vec![DetectionEvidence::new("unchanged", run, self.iterations, text)],
        )
    }
}

/// Whether the agent changed nothing in the newest iteration, according to the recorded origin of the change or a comparison
/// of the trees. If both are unknown, no file and no figure may have changed. False if the agent's run failed.
fn unchanged(records: &[Record]) -> bool {
    let Some((last, before)) = records.split_last() else { return false };
    if last.agent_failure.is_some() {
        return false;
    }
    match last.change {
        TreeChange::Nothing => return true,
        TreeChange::Agent | TreeChange::Service => return false,
        TreeChange::Unknown => {}
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
