//! Token growth: iterations use many times as many tokens as earlier ones, without progress. A typical cause is a session
//! whose context fills up; a fresh session starts again from the task.

use super::DetectionKind;
use super::basis::Basis;
use super::definition::{DetectionDefinition, DetectionRow, detection_settings};
use super::detection::{Detection, DetectionEvidence, DetectionSeverity};
use super::detection_input::DetectionInput;
use super::intervention::InterventionLevel;
use crate::domain::model::record::Record;

detection_settings! {
    /// Conditions of growing use of tokens without progress.
    observed TokenGrowthSettings {
        /// Number of newest iterations that must all have grown. At least as many earlier ones are needed to compare with.
        #[schemars(skip)]
        pub window: u32 = 3, in 1..=50;
        /// Tokens of an iteration at which it has grown, as a multiple of the median of earlier iterations.
        #[schemars(skip)]
        pub growth: f64 = 2.0, in 1.0..=1_000.0, at_most high_growth;
        /// Multiple at which the detection is severe.
        #[schemars(skip)]
        pub high_growth: f64 = 4.0, in 1.0..=1_000.0;
        /// Minimum number of tokens of an iteration that has grown.
        #[schemars(skip)]
        pub min_tokens: u32 = 100_000, in 0..=1_000_000_000;
    }
}

impl DetectionDefinition for TokenGrowthSettings {
    const ROW: DetectionRow = DetectionRow {
        title: "Iterations take ever more tokens without progress",
        pattern: "iterations take a multiple of the tokens of earlier ones and bring no progress",
        signals: &[("tokens", Basis::Derived)],
        effect: "",
        order: "Start again from the output of the failing checks; do not reread files that did not help.",
        advice: &[
            "Read only the files that the first failing check points at.",
            "Keep long outputs out of the conversation: write them to a file and search it.",
            "Split the remaining work into smaller tasks.",
        ],
        high: InterventionLevel::Redirect,
        profile: |schedule| &schedule.stuck,
        of_approach: false,
    };

    /// Compares each of the newest iterations with the median of earlier ones, so a single large iteration is not growth.
    /// Ignores iterations with a failed run, because they are not evidence about the session.
    fn detect(&self, input: &DetectionInput<'_>) -> Option<Detection> {
        if input.improving() {
            return None;
        }
        let tokens = |record: &Record| record.tokens_in + record.tokens_out;
        let complete = input.history.iter().filter(|record| record.agent_failure.is_none()).map(tokens);
        let used: Vec<f64> = complete.filter(|tokens| *tokens > 0.0).collect();
        let (before, newest) = used.split_at(used.len().saturating_sub(self.window as usize));
        if before.len() < newest.len() {
            return None;
        }
        let (before, now) = (median(before)?, newest.iter().copied().reduce(f64::min)?);
        let growth = now / before;
        if growth < self.growth || now < f64::from(self.min_tokens) {
            return None;
        }
        let severity = if growth >= self.high_growth { DetectionSeverity::High } else { DetectionSeverity::Medium };
        let text =
            format!("the last {} iterations took {growth:.1} times the tokens of those before, or more", newest.len());
        let evidence = DetectionEvidence::new("tokens", growth, self.growth, text);
        Detection::of(DetectionKind::TokenGrowth, severity, vec![evidence])
    }
}

/// Returns the median, or the lower of the two middle values; `None` without values.
fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len().checked_sub(1)? / 2).copied()
}
