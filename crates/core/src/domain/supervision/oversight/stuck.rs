//! Stuck: the same error or reflection recurs, there is no progress, or a standstill is unusually long for this loop.

use super::DetectionKind;
use super::basis::Basis;
use super::definition::{DetectionDefinition, DetectionRow, detection_settings};
use super::detection::{Detection, DetectionEvidence, DetectionSeverity};
use super::detection_input::{DetectionInput, line, percent};
use super::intervention::InterventionLevel;
use crate::domain::model::record::Record;
use crate::domain::model::signature::normalize;
use crate::domain::supervision::control::AlarmKind;

/// Maximum compared length of an error or reflection, in bytes. Error signatures are shorter.
const MAX_TEXT: usize = 400;

detection_settings! {
    /// Conditions of a stuck loop.
    StuckSettings {
        /// Number of newest iterations in which the same error is counted.
        #[schemars(skip)]
        pub window: u32 = 10, in 2..=100;
        /// Number of newest iterations over which progress is averaged. If there is progress, a repeated error, a
        /// repeated reflection and the alarm of control do not count.
        #[schemars(skip)]
        pub progress_window: u32 = 7, in 2..=100;
        /// Number of occurrences of the same error at which the detection is raised.
        #[schemars(skip)]
        pub same_error_count: u32 = 5, in 2..=100, at_most critical_error_count;
        /// Number of occurrences of the same error at which the detection is critical.
        pub critical_error_count: u32 = 10, in 2..=100, at_most window;
        /// Limits `critical_error_count` to this share of the loop's maximum number of iterations, but not below
        /// `same_error_count` + 2. 0 does not limit it, which is the default if the file sets `critical_error_count`.
        #[schemars(skip)]
        pub limit_share: f64 = 0.7, in 0.0..=1.0;
        /// Number of newest iterations over which a gain of completion is expected.
        pub no_progress_iterations: u32 = 8, in 2..=100;
        /// Gain of completion over `no_progress_iterations` below which the detection is raised.
        #[schemars(skip)]
        pub no_progress_gain: f64 = 0.05, in 0.0..=1.0;
        /// Number of consecutive iterations with the same reflection at which the detection is raised.
        #[schemars(skip)]
        pub same_reflection_count: u32 = 4, in 2..=100;
        /// Minimum number of other signals for the alarm of control to count.
        #[schemars(skip)]
        pub alarm_signals: u32 = 2, in 0..=3;
        /// Probability of a standstill as long as the current one, at the loop's own rate of progress, below which the
        /// loop is stuck; 0 ignores standstills.
        pub standstill_chance: f64 = 0.005, in 0.0..=1.0;
        /// Share of iterations without a step forward that is expected of a loop without history.
        #[schemars(skip)]
        pub idle_share: f64 = 0.3, in 0.01..=0.9;
        /// Minimum size of a step forward, as a share of the loop's mean step.
        #[schemars(skip)]
        pub step_part: f64 = 0.4, in 0.0..=1.0;
        /// Number of iterations without a step that a blocker named by the agent during a standstill counts for.
        #[schemars(skip)]
        pub blocker_weight: f64 = 2.0, in 0.0..=10.0;
    }
}

impl StuckSettings {
    /// Returns the number of occurrences of the same error that is critical for this loop.
    fn critical_count(&self, input: &DetectionInput<'_>) -> u32 {
        let least = self.same_error_count.saturating_add(2);
        input.facts.within_limit(self.critical_error_count, self.limit_share, least)
    }
}

impl DetectionDefinition for StuckSettings {
    const ROW: DetectionRow = DetectionRow {
        title: "The loop is stuck",
        pattern: "the same error repeats, or the loop makes no progress for much longer than its usual pauses",
        signals: &[
            ("same_error", Basis::Measured),
            ("standstill", Basis::Derived),
            ("no_progress", Basis::Derived),
            ("alarm", Basis::Derived),
            ("same_reflection", Basis::Words),
        ],
        effect: "",
        order: "Stop the present approach; it does not work. Take one that was not tried.",
        advice: &[
            "Take a different approach; the previous ones do not work.",
            "Find the cause with a minimal reproduction before changing more.",
            "Split the task and do its smallest part first.",
        ],
        high: InterventionLevel::Redirect,
        profile: |schedule| &schedule.stuck,
        of_approach: true,
    };

    /// Detects a stuck loop. A loop with progress is not stuck, even if an error or reflection recurs, unless its latest
    /// gains are too small to be a step.
    fn detect(&self, input: &DetectionInput<'_>) -> Option<Detection> {
        let rate = input.progress_rate();
        let stands = rate.chance < self.standstill_chance;
        if input.progressing() && !stands {
            return None;
        }
        let slow = input.rate(self.progress_window) < input.settings.min_progress;
        let mut evidence = Vec::new();
        let mut severity = DetectionSeverity::High;
        let error = if slow { repeated_error(input) } else { None };
        if let Some((error, times)) = &error {
            if *times >= self.critical_count(input) {
                severity = DetectionSeverity::Critical;
            }
            let text = format!("the same error in {times} of the last {} iterations: {}", self.window, line(error));
            evidence.push(DetectionEvidence::new("same_error", *times, self.same_error_count, text));
        }
        if stands {
            let text = format!("no progress for {} iterations, longer than this loop's usual pauses", rate.still);
            evidence.push(DetectionEvidence::new("standstill", rate.chance, self.standstill_chance, text));
        }
        if let Some(gain) = gain_without_progress(input) {
            let text = format!("{} gained in {} iterations", percent(gain), self.no_progress_iterations);
            evidence.push(DetectionEvidence::new("no_progress", gain, self.no_progress_gain, text));
        }
        if slow && let Some(reflection) = repeated_reflection(input) {
            let times = self.same_reflection_count;
            evidence.push(DetectionEvidence::new(
                "same_reflection",
                times,
                times,
                format!("the agent drew the same conclusion {times} times: {}", line(&reflection)),
            ));
        }
        // The alarm considers few iterations, so it alone could mistake a plateau for a stuck loop.
        let enough = evidence.len() >= self.alarm_signals as usize;
        if slow && enough && input.control.alarm(AlarmKind::StuckLoop).is_some() {
            evidence.push(DetectionEvidence::new(
                "alarm",
                1,
                1,
                "the controller raised the alarm \"stuck loop\"".to_owned(),
            ));
        }
        if let (Some(blocker), Some(last)) = (input.last.blockers.last(), evidence.last_mut()) {
            last.text.push_str(&format!("; the agent names the blocker: {}", line(blocker)));
        }
        let detection = Detection::of(DetectionKind::Stuck, severity, evidence)?;
        Some(match error {
            Some((error, _)) => detection.about(&error),
            None => detection,
        })
    }
}

/// Returns the newest error and its number of occurrences in the window; `None` if below the threshold.
fn repeated_error(input: &DetectionInput<'_>) -> Option<(String, u32)> {
    let settings = &input.settings.stuck;
    let (same, error) = occurrences(input.recent(settings.window), |record| record.error_signature.as_deref())?;
    (same >= settings.same_error_count).then_some((error, same))
}

/// Returns the newest reflection if the previous reflections are the same; otherwise `None`.
fn repeated_reflection(input: &DetectionInput<'_>) -> Option<String> {
    let times = input.settings.stuck.same_reflection_count;
    let (same, reflection) = occurrences(input.recent(times), |record| record.reflection.as_deref())?;
    (same >= times).then_some(reflection)
}

/// Counts the records whose normalized text (for example without numbers) equals the newest record's text. Returns the count
/// and the normalized text.
fn occurrences<'a>(records: &'a [Record], text: impl Fn(&'a Record) -> Option<&'a str>) -> Option<(u32, String)> {
    let beginning = |record| text(record).map(|text| &text[..text.floor_char_boundary(MAX_TEXT)]);
    let newest = beginning(records.last()?)?;
    let normal = normalize(newest);
    let same = |other: &str| other == newest || normalize(other) == normal;
    let count = records.iter().filter_map(beginning).filter(|other| same(other)).count();
    (!normal.is_empty()).then_some((u32::try_from(count).unwrap_or(u32::MAX), normal))
}

/// Returns the total gain of completion in the last iterations if it is too small; `None` otherwise, or with too few
/// iterations.
fn gain_without_progress(input: &DetectionInput<'_>) -> Option<f64> {
    let settings = &input.settings.stuck;
    let unseen = input.is_all_or_nothing() && input.progress_rate().still < settings.no_progress_iterations;
    if unseen || input.recent(settings.no_progress_iterations).len() < settings.no_progress_iterations as usize {
        return None;
    }
    // The start is the record before these iterations, if there is one.
    let (start, after) = input.recent(settings.no_progress_iterations.saturating_add(1)).split_first()?;
    let best = after.iter().map(|record| record.completion.get()).fold(start.completion.get(), f64::max);
    let gain = best - start.completion.get();
    (gain < settings.no_progress_gain).then_some(gain)
}
