//! Test tampering: an iteration's change weakened the checks that measure it. Only this detection also applies to finished
//! work.

use super::DetectionKind;
use super::basis::Basis;
use super::definition::{DetectionDefinition, DetectionRow, detection_settings};
use super::detection::{Detection, DetectionEvidence, DetectionSeverity};
use super::detection_input::{DetectionInput, line, number};
use super::intervention::InterventionLevel;
use crate::domain::model::record::Record;

/// Maximum number of findings listed in the evidence; the rest are only counted.
const MAX_NAMED: usize = 3;

detection_settings! {
    /// Whether weakened checks are looked for.
    TestTamperingSettings {
        /// Number of tests that ran before and are now skipped, at which the detection is raised; 0 ignores skipped
        /// tests.
        #[schemars(skip)]
        pub skipped: u32 = 1, in 0..=1_000_000;
        /// Number of iterations with weakened checks above which the detection is critical, after a REDIRECT was given.
        #[schemars(skip)]
        pub repeats: u32 = 3, in 1..=100;
    }
}

impl DetectionDefinition for TestTamperingSettings {
    const ROW: DetectionRow = DetectionRow {
        title: "Checks were weakened",
        pattern: "tests were deleted, skipped or weakened",
        signals: &[("weakened_checks", Basis::Measured), ("skipped_tests", Basis::Measured)],
        effect: "",
        order: "Put the checks back as they were. They are not yours to change.",
        advice: &[
            "Put the tests and the configuration of checks back as they were.",
            "Make the checks pass by changing what they test.",
        ],
        high: InterventionLevel::Redirect,
        profile: |schedule| &schedule.sensitive,
        of_approach: true,
    };

    fn detect(&self, input: &DetectionInput<'_>) -> Option<Detection> {
        let findings = &input.last.tampering;
        let count = u32::try_from(findings.len()).unwrap_or(u32::MAX);
        let named: Vec<String> = findings.iter().take(MAX_NAMED).map(|finding| line(finding)).collect();
        let evidence = (count > 0).then(|| {
            let more = if findings.len() > MAX_NAMED {
                format!(" and {} more", findings.len() - MAX_NAMED)
            } else {
                String::new()
            };
            DetectionEvidence::new("weakened_checks", count, 1, format!("{}{more}", named.join("; ")))
        });
        let skipped = skipped(input);
        let times = input.history.iter().filter(|record| !record.tampering.is_empty()).count();
        let again =
            input.redirected.get(&DetectionKind::TestTampering).is_some_and(|then| *then < number(input.history))
                && times > self.repeats as usize;
        let severity = if again { DetectionSeverity::Critical } else { DetectionSeverity::High };
        Detection::of(DetectionKind::TestTampering, severity, evidence.into_iter().chain(skipped).collect())
    }
}

/// Returns evidence that tests are skipped now that ran earlier.
fn skipped(input: &DetectionInput<'_>) -> Option<DetectionEvidence> {
    let least = input.settings.test_tampering.skipped;
    let ran = |record: &Record| Some(record.tests_passing? + record.tests_failing?);
    let (now, skipped) = (ran(input.last)?, input.last.tests_skipped?);
    let most = input.history.iter().filter_map(ran).fold(now, f64::max);
    let fewest = input.history.iter().filter_map(|record| record.tests_skipped).fold(skipped, f64::min);
    let count = (most - now).min(skipped - fewest);
    let text = format!("{count} tests that ran before are skipped");
    (least > 0 && count >= f64::from(least)).then(|| DetectionEvidence::new("skipped_tests", count, least, text))
}
