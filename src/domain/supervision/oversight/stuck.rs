//! Stuck: the same error or the same insight again and again, no progress at all, or a standstill that is unlike the loop.

use super::detection::{Detection, DetectionEvidence, DetectionKind, DetectionSeverity};
use super::detection_input::{DetectionInput, percent};
use crate::domain::model::record::Record;
use crate::domain::model::signature::normalise;

/// Bytes of an error or a reflection that are compared; signatures are shorter.
const MAX_TEXT: usize = 400;

/// A loop that is getting somewhere is not stuck, whatever repeats, unless what it gained lately is no step of its own.
pub(super) fn detect(input: &DetectionInput<'_>) -> Option<Detection> {
    let settings = &input.settings.stuck;
    let pace = input.progress_rate();
    let stands = pace.chance < settings.standstill_chance;
    if input.progressing() && !stands {
        return None;
    }
    let slow = input.rate(settings.progress_window) < input.settings.min_progress;
    let mut evidence = Vec::new();
    let mut severity = DetectionSeverity::High;
    let error = if slow { repeated_error(input) } else { None };
    if let Some((error, times)) = &error {
        if *times >= settings.critical_error_count {
            severity = DetectionSeverity::Critical;
        }
        let text = format!("the same error in {times} of the last {} iterations: {error}", settings.window);
        evidence.push(DetectionEvidence::new("same_error", *times, settings.same_error_count, text));
    }
    if stands {
        let text = format!("no progress for {} iterations, which its own pace does not explain", pace.still);
        evidence.push(DetectionEvidence::new("standstill", pace.chance, settings.standstill_chance, text));
    }
    if let Some(gain) = gain_without_progress(input) {
        let text = format!("{} gained in {} iterations", percent(gain), settings.no_progress_iterations);
        evidence.push(DetectionEvidence::new("no_progress", gain, settings.no_progress_gain, text));
    }
    if slow && let Some(reflection) = repeated_reflection(input) {
        let times = settings.same_reflection_count;
        evidence.push(DetectionEvidence::new(
            "same_reflection",
            times,
            times,
            format!("{times} times the same reflection: {reflection}"),
        ));
    }
    // The alarm looks at few iterations; by itself it takes a plateau for the end of the road.
    let enough = evidence.len() >= settings.alarm_beside as usize;
    if slow && enough && input.control.alarm("stuck_loop").is_some() {
        evidence.push(DetectionEvidence::new("alarm", 1, 1, "control raised the alarm stuck_loop".to_owned()));
    }
    let detection = Detection::of(DetectionKind::Stuck, severity, evidence)?;
    Some(match error {
        Some((error, _)) => detection.about(&error),
        None => detection,
    })
}

/// The newest error, and how often it is in the window, where that is often.
fn repeated_error(input: &DetectionInput<'_>) -> Option<(String, u32)> {
    let settings = &input.settings.stuck;
    let (same, error) = occurrences(input.recent(settings.window), |record| record.error_signature.as_deref())?;
    (same >= settings.same_error_count).then_some((error, same))
}

/// The newest reflection, where it is the same as those before.
fn repeated_reflection(input: &DetectionInput<'_>) -> Option<String> {
    let times = input.settings.stuck.same_reflection_count;
    let (same, reflection) = occurrences(input.recent(times), |record| record.reflection.as_deref())?;
    (same >= times).then_some(reflection)
}

/// Counts the records with the text of the newest after normalisation (numbers and the like removed); returns the count
/// and the normalised text.
fn occurrences<'a>(records: &'a [Record], text: impl Fn(&'a Record) -> Option<&'a str>) -> Option<(u32, String)> {
    let beginning = |record| text(record).map(|text| &text[..text.floor_char_boundary(MAX_TEXT)]);
    let newest = beginning(records.last()?)?;
    let normal = normalise(newest);
    let same = |other: &str| other == newest || normalise(other) == normal;
    let count = records.iter().filter_map(beginning).filter(|other| same(other)).count();
    (!normal.is_empty()).then_some((u32::try_from(count).unwrap_or(u32::MAX), normal))
}

/// Returns the total gain of the last iterations if there are enough of them and the gain is too small.
fn gain_without_progress(input: &DetectionInput<'_>) -> Option<f64> {
    let settings = &input.settings.stuck;
    let unseen = input.is_all_or_nothing() && input.progress_rate().still < settings.no_progress_iterations;
    if unseen || input.recent(settings.no_progress_iterations).len() < settings.no_progress_iterations as usize {
        return None;
    }
    // From where they started, which is the record before them where there is one.
    let (start, after) = input.recent(settings.no_progress_iterations.saturating_add(1)).split_first()?;
    let best = after.iter().map(|record| record.completion).fold(start.completion, f64::max);
    let gain = best - start.completion;
    (gain < settings.no_progress_gain).then_some(gain)
}
