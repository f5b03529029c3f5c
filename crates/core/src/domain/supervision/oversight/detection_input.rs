//! Inputs of detections: the history, the task, and control's results. Also has queries shared by several detections.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::DetectionKind;
use super::OversightSettings;
use super::detection::DetectionSeverity;
use crate::domain::model::characters::visible;
use crate::domain::model::record::{CheckFact, Record};
use crate::domain::supervision::TaskFacts;
use crate::domain::supervision::control::{AlarmKind, Trend};
use crate::domain::supervision::progress_rate::ProgressRate;

/// Control's result for an iteration, as used by the overseer.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ControlView {
    /// Active alarms by kind, with their severity converted to a detection's severity. `Info` becomes `Low`, `Warning`
    /// becomes `Medium`, and `Critical` and `Emergency` become `Critical`.
    pub alarms: Vec<(AlarmKind, DetectionSeverity)>,
    /// Trend of the error.
    pub trend: Trend,
    /// Number of iterations still needed; `None` without an estimate.
    pub forecast: Option<f64>,
}

impl ControlView {
    /// Returns the severity of an active alarm; `None` if the alarm is not active.
    pub fn alarm(&self, kind: AlarmKind) -> Option<DetectionSeverity> {
        self.alarms.iter().filter(|(alarm, _)| *alarm == kind).map(|(_, severity)| *severity).max()
    }
}

/// Maximum length of untrusted text in evidence, in bytes.
const MAX_LINE: usize = 200;
/// Number of newest records used to compute the current direction of completion.
const IMPROVING_OVER: u32 = 3;

/// Inputs of a detection.
#[derive(Clone, Copy)]
pub(super) struct DetectionInput<'a> {
    /// Iterations to examine, oldest first; at least one.
    pub history: &'a [Record],
    /// Whether `history` lacks iterations with weakened checks.
    pub partial: bool,
    /// Newest iteration of `history`.
    pub last: &'a Record,
    pub facts: &'a TaskFacts,
    pub control: &'a ControlView,
    pub settings: &'a OversightSettings,
    /// Kinds that caused a REDIRECT, each with the iteration after which its last REDIRECT was given.
    pub redirected: &'a BTreeMap<DetectionKind, u32>,
}

impl<'a> DetectionInput<'a> {
    /// Returns at most `records` of the newest records.
    pub fn recent(&self, records: u32) -> &'a [Record] {
        &self.history[self.history.len().saturating_sub(records as usize)..]
    }

    /// Returns the mean gain of completion per iteration over the newest `records` records; 0 for a single record.
    pub fn rate(&self, records: u32) -> f64 {
        match self.recent(records) {
            [first, .., last] => {
                (last.completion.get() - first.completion.get()) / (self.recent(records).len() - 1) as f64
            }
            _ => 0.0,
        }
    }

    /// Whether the loop makes progress: one of the last two iterations was better than all previous ones in completion, failing
    /// tests or errors. If no check has counts, a new error is progress as well. Also true for fewer than three iterations.
    pub fn progressing(&self) -> bool {
        let (before, new) = self.history.split_at(self.history.len().saturating_sub(2));
        if before.is_empty() {
            return true;
        }
        let most = |records: &[Record]| records.iter().map(|record| record.completion.get()).fold(f64::NAN, f64::max);
        most(new) > most(before) + self.settings.min_progress
            || self.fewer(|record| Some(record.errors))
            || self.fewer(|record| record.tests_failing)
            || self.is_all_or_nothing() && self.progress_rate().still < 2
    }

    /// Whether no check has counts, so that completion changes only when a whole check passes or fails.
    pub fn is_all_or_nothing(&self) -> bool {
        Record::is_all_or_nothing(self.history)
    }

    /// Returns the loop's rate of progress, including the length of the current standstill.
    pub fn progress_rate(&self) -> ProgressRate {
        ProgressRate::of(self.history, self.facts.experience.step_threshold(self.settings.step_threshold()))
    }

    /// Whether completion currently increases, even if it only recovers from a loss.
    pub fn improving(&self) -> bool {
        self.progressing() || self.rate(IMPROVING_OVER) >= self.settings.min_progress
    }

    /// Whether the minimum of a count in the last two iterations is below its minimum in the previous iterations of the
    /// window.
    fn fewer(&self, count: impl Fn(&Record) -> Option<f64>) -> bool {
        let window = self.recent(self.settings.stuck.window);
        let (before, new) = window.split_at(window.len().saturating_sub(2));
        let least = |records: &[Record]| records.iter().filter_map(&count).fold(f64::NAN, f64::min);
        least(new) < least(before)
    }
}

/// Returns the newest iteration's number, or the length of the history if its record has none.
pub(super) fn number(history: &[Record]) -> u32 {
    match history.last() {
        // A cast from a float saturates.
        Some(record) if record.iteration >= 1.0 => record.iteration as u32,
        _ => u32::try_from(history.len()).unwrap_or(u32::MAX),
    }
}

/// Returns the outcome of the check `name` in a record. `at` is the check's probable index.
pub(super) fn check<'a>(record: &'a Record, at: usize, name: &str) -> Option<&'a CheckFact> {
    match record.checks.get(at) {
        Some(check) if check.name == name => Some(check),
        _ => record.checks.iter().find(|check| check.name == name),
    }
}

/// Returns untrusted text on one line, at most 200 bytes. Replaces `; ` with `, `, because `; ` separates pieces of
/// evidence.
pub(super) fn line(text: &str) -> String {
    let start = &text[..text.floor_char_boundary(MAX_LINE)];
    visible(start).0.split_whitespace().collect::<Vec<_>>().join(" ").replace("; ", ", ")
}

/// Formats a share, 0..1, as a percentage.
pub(super) fn percent(share: f64) -> String {
    let tenths = (share * 1_000.0).round() / 10.0;
    format!("{tenths} %")
}

/// Returns a clause, starting with `; `, with some of the files that each of these iterations changed. Empty if they changed
/// no files.
pub(super) fn named_files<'a>(records: impl Iterator<Item = &'a Record>) -> String {
    const NAMED: usize = 3;
    let of = |record: &Record| {
        let names: Vec<String> = record.files.iter().take(NAMED).map(|path| line(path)).collect();
        let more = if record.files.len() > NAMED { " and others" } else { "" };
        (!names.is_empty()).then(|| format!("iteration {:.0} changed {}{more}", record.iteration, names.join(", ")))
    };
    let each: Vec<String> = records.filter_map(of).collect();
    if each.is_empty() { String::new() } else { format!("; {}", each.join(", ")) }
}
