//! Agent failure: the agent's backend crashes, times out, or returns no usable answer.

use super::DetectionKind;
use super::basis::Basis;
use super::definition::{DetectionDefinition, DetectionRow, detection_settings};
use super::detection::{Detection, DetectionEvidence, DetectionSeverity};
use super::detection_input::{DetectionInput, line};
use super::intervention::InterventionLevel;

detection_settings! {
    /// Conditions of failing backends.
    AgentFailureSettings {
        /// Number of failed iterations within `window` at which the detection is raised.
        #[schemars(skip)]
        pub iterations: u32 = 3, in 1..=100, at_most window;
        /// Number of newest iterations in which failures are counted.
        #[schemars(skip)]
        pub window: u32 = 5, in 1..=100;
    }
}

impl DetectionDefinition for AgentFailureSettings {
    const ROW: DetectionRow = DetectionRow {
        title: "The backend keeps failing",
        pattern: "the backend crashes, times out or returns invalid output",
        signals: &[("failed_runs", Basis::Measured)],
        effect: "another backend, where one is free",
        order: "Work in small steps; earlier runs failed before they were done.",
        advice: &[
            "Make the steps smaller, so that each fits the time limit.",
            "Another backend runs next where one is free; configure one if there is none.",
        ],
        high: InterventionLevel::Redirect,
        profile: |schedule| &schedule.stuck,
        of_approach: false,
    };

    fn detect(&self, input: &DetectionInput<'_>) -> Option<Detection> {
        let newest = input.last.agent_failure.as_deref()?;
        let window = input.recent(self.window);
        let failed = window.iter().filter(|record| record.agent_failure.is_some()).count();
        let failed = u32::try_from(failed).unwrap_or(u32::MAX);
        if failed < self.iterations {
            return None;
        }
        let text = format!("the backend failed in {failed} of the last {} iterations: {}", window.len(), line(newest));
        Detection::of(
            DetectionKind::AgentFailure,
            DetectionSeverity::High,
            vec![DetectionEvidence::new("failed_runs", failed, self.iterations, text)],
        )
    }
}
