//! Table of a replay, for people.

use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};
use serde::Serialize;
use serde_json::Value;

use crate::domain::model::record::Record;
use crate::domain::supervision::SupervisionReview;
use crate::domain::supervision::oversight::{Health, InterventionLevel};
use crate::domain::supervision::replay::{EndKind, PredictedEnd, ReplayLine, ReplaySummary};

/// Formats the table, with totals if `with_summary`.
pub(super) fn text(reviews: &[(Record, SupervisionReview)], with_summary: bool) -> String {
    let bold = Style::new().bold();
    let mut text = format!(
        "{bold}{:>4} {:>5} {:>5} {:>5} {:>6} {:>5}  {:<11} {:<12} {:>4}  {:<8}  detections: action{bold:#}\n",
        "", "done", "P", "I", "D", "u", "trend", "profile", "left", "strategy",
    );
    for (record, review) in reviews {
        row(&mut text, record, review);
    }
    if with_summary {
        summary(&mut text, &ReplaySummary::of(reviews));
    }
    text
}

fn row(text: &mut String, record: &Record, review: &SupervisionReview) {
    let line = ReplayLine::from(review);
    let style = match line.status {
        Health::Healthy => Style::new(),
        Health::Warning => AnsiColor::Yellow.on_default(),
        Health::Critical | Health::Paused | Health::Aborted => AnsiColor::Red.on_default(),
    };
    let more = match line.forecast {
        Some(more) if more < 10_000 => more.to_string(),
        _ => "-".to_owned(),
    };
    let strategy = word(&line.strategy);
    let tail = match found(&line) {
        found if found.is_empty() => strategy,
        found => format!("{strategy:<8}  {style}{found}{style:#}"),
    };
    let _ = writeln!(
        text,
        "{:>4} {:>3.0} % {:>5.2} {:>5.2} {:>+6.2} {:>5.2}  {:<11} {:<12} {more:>4}  {tail}",
        line.iteration,
        record.completion.get() * 100.0,
        line.p,
        line.i,
        line.d,
        line.control_signal,
        word(&line.trend),
        line.profile.chars().take(12).collect::<String>(),
    );
}

/// Formats detections with their actions, and alarms without a detection in parentheses.
fn found(line: &ReplayLine) -> String {
    let done = |at: usize| line.interventions.get(at).map_or(InterventionLevel::Log, |done| done.level);
    let detections = line.detections.iter().enumerate();
    let mut parts: Vec<String> = detections
        .map(|(at, found)| format!("{} {}: {}", word(&found.severity), found.kind.name(), done(at).name()))
        .collect();
    parts.extend(line.alarms.iter().map(|alarm| format!("({} {})", word(&alarm.severity), word(&alarm.kind))));
    match line.status {
        Health::Paused | Health::Aborted => parts.push(word(&line.status)),
        Health::Healthy | Health::Warning | Health::Critical => {}
    }
    parts.join(", ")
}

fn summary(text: &mut String, summary: &ReplaySummary) {
    let ReplaySummary { iterations, alarms, severities, actions, detections, interventions, ended } = summary;
    let _ = writeln!(text, "\n{iterations} iterations; {}", end_words(*ended));
    for (name, counts) in [
        ("alarms raised", counts(alarms)),
        ("severities", counts(severities)),
        ("recommended", counts(actions)),
        ("detections", counts(detections)),
        ("interventions", counts(interventions)),
    ] {
        let _ = writeln!(text, "{name:>17}: {}", if counts.is_empty() { "none" } else { &counts });
    }
}

/// Describes the end of a loop.
pub(super) fn end_words(ended: Option<PredictedEnd>) -> String {
    match ended {
        Some(PredictedEnd { iteration, by: EndKind::Finished }) => format!("finished with iteration {iteration}"),
        Some(PredictedEnd { iteration, by: EndKind::Pause }) => format!("paused after iteration {iteration}"),
        Some(PredictedEnd { iteration, by: EndKind::Abort }) => format!("ended after iteration {iteration}"),
        None => "would continue".to_owned(),
    }
}

fn counts(counts: &impl Serialize) -> String {
    let Ok(Value::Object(counts)) = serde_json::to_value(counts) else { return String::new() };
    counts.iter().map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>().join(", ")
}

/// Serialized form of a unit variant.
pub(super) fn word(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(Value::String(word)) => word,
        _ => String::new(),
    }
}
