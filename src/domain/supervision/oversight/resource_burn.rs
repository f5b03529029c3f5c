//! Resource burn: more iterations, money, time or calls of tools than the work is worth.

use super::detection::{Detection, DetectionEvidence, DetectionKind, DetectionSeverity};
use super::detection_input::{DetectionInput, number, percent};
use crate::domain::model::record::Record;

/// Records over which the gain is read that control's alarm is held against.
const ALARM_OVER: u32 = 5;

pub(super) fn detect(input: &DetectionInput<'_>) -> Option<Detection> {
    let settings = &input.settings.resource_burn;
    let mut evidence = Vec::new();
    let mut worst = 0.0_f64;
    for (signal, used, estimate, multiplier, unit) in uses(input) {
        let Some(estimate) = estimate.filter(|estimate| *estimate > 0.0) else { continue };
        let ratio = used / estimate;
        if ratio > multiplier {
            worst = worst.max(ratio);
            let text = format!("{} of {} {unit} used, {}", round(used), round(estimate), percent(ratio));
            evidence.push(DetectionEvidence::new(signal, ratio, multiplier, text));
        }
    }
    let calls = sum(input.history, |record| record.tool_calls);
    let average = sum(input.history, |record| record.completion) / input.history.len() as f64;
    if calls >= f64::from(settings.tool_calls) && !input.is_all_or_nothing() && average < settings.tool_calls_completion
    {
        let text = format!("{} calls of tools at an average completion of {}", round(calls), percent(average));
        evidence.push(DetectionEvidence::new("tool_calls", calls, settings.tool_calls, text));
    }
    // A loop that still gets better is left to its limits.
    let slow = input.rate(ALARM_OVER) < settings.alarm_below;
    if slow && input.control.alarm("resource_burn").is_some() {
        evidence.push(DetectionEvidence::new("alarm", 1, 1, "control raised the alarm resource_burn".to_owned()));
    }
    let severity =
        if worst >= settings.critical_multiplier { DetectionSeverity::Critical } else { DetectionSeverity::High };
    let nearly_done = input.last.completion > settings.nearly_done;
    Detection::of(DetectionKind::ResourceBurn, if nearly_done { severity.lowered() } else { severity }, evidence)
}

/// Whether a critical burn bought so little that the loop should end.
pub(super) fn is_hopeless(input: &DetectionInput<'_>) -> bool {
    let settings = &input.settings.resource_burn;
    let efficiency = input.last.completion / f64::from(number(input.history));
    efficiency < settings.abort_efficiency && input.last.completion < settings.abort_completion
}

type Use = (&'static str, f64, Option<f64>, f64, &'static str);

/// Each resource: signal, what was used, the estimate, the multiple that is too much, the unit.
fn uses(input: &DetectionInput<'_>) -> [Use; 3] {
    let (facts, settings) = (input.facts, &input.settings.resource_burn);
    let iterations = f64::from(number(input.history));
    let cost = sum(input.history, |record| record.cost_usd);
    let minutes = sum(input.history, |record| record.duration_s) / 60.0;
    [
        (
            "iterations",
            iterations,
            facts.estimated_iterations.or(Some(facts.max_iterations)),
            settings.iteration_multiplier,
            "iterations",
        ),
        ("cost", cost, facts.estimated_cost_usd.or(facts.max_cost_usd), settings.cost_multiplier, "dollars"),
        ("time", minutes, facts.estimated_minutes.or(facts.timeout_minutes), settings.time_multiplier, "minutes"),
    ]
}

fn sum(history: &[Record], figure: impl Fn(&Record) -> f64) -> f64 {
    history.iter().map(figure).sum()
}

fn round(figure: f64) -> f64 {
    (figure * 100.0).round() / 100.0
}
