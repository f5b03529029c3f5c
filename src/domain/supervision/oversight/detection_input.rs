//! Inputs of detections: the history, the task, the view of control, and queries that several detections share.

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

/// View of control on an iteration.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ControlView {
    /// Alarms that stand, by type, each with its severity: info is low, warning medium, critical and emergency critical.
    pub alarms: Vec<(AlarmKind, DetectionSeverity)>,
    /// Trend of the gap.
    pub trend: Trend,
    /// Iterations still needed; `None` if it cannot be estimated.
    pub forecast: Option<f64>,
}

impl ControlView {
    /// Severity of an alarm that stands.
    pub fn alarm(&self, kind: AlarmKind) -> Option<DetectionSeverity> {
        self.alarms.iter().filter(|(alarm, _)| *alarm == kind).map(|(_, severity)| *severity).max()
    }
}

/// Bytes of other people's text in evidence.
const MAX_LINE: usize = 200;
/// Records over which a loop's present direction is read.
const IMPROVING_OVER: u32 = 3;

/// Everything that a detection may look at.
#[derive(Clone, Copy)]
pub(super) struct DetectionInput<'a> {
    /// All iterations, oldest first; at least one.
    pub history: &'a [Record],
    /// Whether iterations were left out, because their checks were weakened.
    pub partial: bool,
    /// The newest.
    pub last: &'a Record,
    pub facts: &'a TaskFacts,
    pub control: &'a ControlView,
    pub settings: &'a OversightSettings,
    /// Kinds that a REDIRECT was given for, with the iteration after which.
    pub redirected: &'a BTreeMap<DetectionKind, u32>,
}

impl<'a> DetectionInput<'a> {
    /// The last records, at most so many.
    pub fn recent(&self, records: u32) -> &'a [Record] {
        &self.history[self.history.len().saturating_sub(records as usize)..]
    }

    /// Completion gained an iteration over the last so many records; 0 where there is only one.
    pub fn rate(&self, records: u32) -> f64 {
        match self.recent(records) {
            [first, .., last] => {
                (last.completion.get() - first.completion.get()) / (self.recent(records).len() - 1) as f64
            }
            _ => 0.0,
        }
    }

    /// Whether the loop makes progress: one of the last two iterations was better than all before it, by completion, failing
    /// tests or errors, or had a new error where nothing is counted. Also `true` with fewer than three iterations.
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

    /// Whether nothing is counted, so that completion cannot show the way between checks.
    pub fn is_all_or_nothing(&self) -> bool {
        Record::is_all_or_nothing(self.history)
    }

    /// The loop's pace, and how long it has stood still.
    pub fn progress_rate(&self) -> ProgressRate {
        ProgressRate::of(self.history, self.facts.experience.step_threshold(self.settings.step_threshold()))
    }

    /// Whether completion goes up at present, be it only back to where it was.
    pub fn improving(&self) -> bool {
        self.progressing() || self.rate(IMPROVING_OVER) >= self.settings.min_progress
    }

    /// Whether a count is lower in the last two iterations than in those of the window before.
    fn fewer(&self, count: impl Fn(&Record) -> Option<f64>) -> bool {
        let window = self.recent(self.settings.stuck.window);
        let (before, new) = window.split_at(window.len().saturating_sub(2));
        let least = |records: &[Record]| records.iter().filter_map(&count).fold(f64::NAN, f64::min);
        least(new) < least(before)
    }
}

/// Number of the newest iteration; its place where the record has none.
pub(super) fn number(history: &[Record]) -> u32 {
    match history.last() {
        // A cast from a float saturates.
        Some(record) if record.iteration >= 1.0 => record.iteration as u32,
        _ => u32::try_from(history.len()).unwrap_or(u32::MAX),
    }
}

/// Returns the outcome of the check `name`; `at` is the index to try first.
pub(super) fn check<'a>(record: &'a Record, at: usize, name: &str) -> Option<&'a CheckFact> {
    match record.checks.get(at) {
        Some(check) if check.name == name => Some(check),
        _ => record.checks.iter().find(|check| check.name == name),
    }
}

/// Text of others on one line, at most 200 bytes. `; ` becomes `, `, because it separates the pieces of evidence.
pub(super) fn line(text: &str) -> String {
    let start = &text[..text.floor_char_boundary(MAX_LINE)];
    visible(start).0.split_whitespace().collect::<Vec<_>>().join(" ").replace("; ", ", ")
}

/// A share as a percentage for people.
pub(super) fn percent(share: f64) -> String {
    let tenths = (share * 1_000.0).round() / 10.0;
    format!("{tenths} %")
}

/// Names some files that each of these iterations changed, after `; `; empty if they changed none.
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
