//! Advice of control: the recommended action, the summary, and the sentences for the next prompt.

use serde::{Deserialize, Serialize};

use super::actuators::{Actuation, Breadth};
use super::alarms::{Alarm, AlarmSeverity};
use super::blockers::Blocker;
use super::metrics::{ControlMetrics, Trend};
use super::signal::Urgency;
use crate::domain::model::record::Record;

/// Maximum number of names in a sentence.
const MAX_NAMES: usize = 5;
/// Maximum length of a name in a sentence, in characters.
const MAX_NAME: usize = 120;

/// Recommended action. Control only recommends; the overseer decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControlAction {
    /// Continue.
    Continue,
    /// Continue with adjustments.
    Adjust,
    /// Wait for a person.
    Pause,
    /// End the loop and keep the work.
    Abort,
}

/// Returns `abort` for an emergency, `pause` for a critical alarm, `adjust` for a warning or u > 0.5, and otherwise
/// `continue`. An acknowledged alarm causes at most `adjust`. Finished work (`gap` is 0) always returns `continue`.
pub(super) fn action(gap: f64, urgency: Urgency, alarms: &[Alarm]) -> ControlAction {
    if gap <= 0.0 {
        return ControlAction::Continue;
    }
    let asked = |alarm: &Alarm| match alarm.severity {
        AlarmSeverity::Info => ControlAction::Continue,
        AlarmSeverity::Warning => ControlAction::Adjust,
        AlarmSeverity::Critical | AlarmSeverity::Emergency if alarm.acknowledged => ControlAction::Adjust,
        AlarmSeverity::Critical => ControlAction::Pause,
        AlarmSeverity::Emergency => ControlAction::Abort,
    };
    let of_signal = if urgency >= Urgency::High { ControlAction::Adjust } else { ControlAction::Continue };
    alarms.iter().map(asked).max().unwrap_or(ControlAction::Continue).max(of_signal)
}

/// Describes the loop's state in one sentence, by its most severe alarm or, without alarms, by its urgency.
pub(super) fn summary(metrics: &ControlMetrics, urgency: Urgency, alarms: &[Alarm]) -> String {
    let open = metrics.gap > 0.0;
    match alarms.first().filter(|alarm| open && alarm.severity > AlarmSeverity::Info) {
        Some(worst) => worst.message.clone(),
        None if !open => "The work is finished.".to_owned(),
        None => format!("Urgency is {}: {}", urgency.word(), standing(metrics)),
    }
}

/// Describes completion and trend in one sentence.
fn standing(metrics: &ControlMetrics) -> String {
    let percent = metrics.gap * 100.0;
    let forecast = metrics.forecast.filter(|more| *more < 1000);
    match (metrics.trend, forecast) {
        (Trend::Oscillating, _) => format!("{percent:.0} % is open, and the work oscillates."),
        (Trend::Regressing, _) => {
            format!("{percent:.0} % is open, growing by {:.0} points per iteration.", metrics.d_raw * 100.0)
        }
        (_, Some(1)) => format!("{percent:.0} % is open, one iteration at this rate."),
        (_, Some(more)) => format!("{percent:.0} % is open, {more} iterations at this rate."),
        (_, None) => format!("{percent:.0} % is open, and there is no progress."),
    }
}

/// Returns the sentences for the next prompt: urgency, remaining work, recurring blockers, and advice. Empty for finished
/// work.
pub(super) fn prompt(
    metrics: &ControlMetrics,
    record: &Record,
    recurring: &[&Blocker],
    alarms: &[Alarm],
    actuation: &Actuation,
) -> Vec<String> {
    if metrics.gap <= 0.0 {
        return Vec::new();
    }
    let mut sentences = Vec::new();
    if actuation.tone > Urgency::Normal {
        sentences.push(format!("Urgency is {}: {}", actuation.tone.word(), standing(metrics)));
    }
    sentences.extend(remains(record));
    for blocker in recurring.iter().take(MAX_NAMES) {
        sentences.push(format!("This blocked the work in {} iterations: {}", blocker.count, quoted(&blocker.name)));
    }
    let adverse = alarms.iter().filter(|alarm| alarm.severity > AlarmSeverity::Info);
    sentences.extend(adverse.map(|alarm| alarm.kind.advice().to_owned()));
    let breadth = match actuation.breadth {
        Breadth::FirstFailure => "Work on the first failing check only, and leave the rest for later.",
        Breadth::OneChange => "Make one change, and check it before anything else.",
        Breadth::Everything => "Work on everything that is open at once.",
        Breadth::Usual => return sentences,
    };
    sentences.push(breadth.to_owned());
    sentences
}

/// Returns the names of checks and tests known to fail.
fn remains(record: &Record) -> Vec<String> {
    let failing: Vec<_> = record.checks.iter().filter(|check| !check.passed).collect();
    let mut sentences = Vec::new();
    if !failing.is_empty() {
        let names: Vec<_> = failing.iter().take(MAX_NAMES).map(|check| quoted(&check.name)).collect();
        let more = if failing.len() > MAX_NAMES { " and others" } else { "" };
        let (count, all) = (failing.len(), record.checks.len());
        sentences.push(format!("{count} of {all} checks fail: {}{more}.", names.join(", ")));
    }
    let count = |tests: Option<f64>| tests.filter(|count| count.is_finite() && *count > 0.0).unwrap_or(0.0);
    let (passing, failing) = (count(record.tests_passing), count(record.tests_failing));
    if failing > 0.0 {
        sentences.push(format!("{failing:.0} of {:.0} tests fail.", passing + failing));
    }
    if let Some(error) = record.error_signature.as_deref().filter(|error| !error.trim().is_empty()) {
        sentences.push(format!("The first error is {}", quoted(error)));
    }
    sentences
}

/// Returns an untrusted name on one line, shortened, in quotes.
fn quoted(text: &str) -> String {
    let short: String = text.chars().take(MAX_NAME).map(|c| if c.is_control() { ' ' } else { c }).collect();
    format!("`{}`", short.trim().replace('`', "'"))
}
