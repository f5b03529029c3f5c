//! Conditions of the alarms.

use super::{AlarmFinding, AlarmKind, AlarmSeverity};
use crate::domain::supervision::control::metrics::{ControlMetrics, ControlSample, Trend, changes, last, sign_changes};
use crate::domain::supervision::control::resources::{Resource, Resources};
use crate::domain::supervision::control::settings::ControlSettings;

/// Tolerance of a forecast for rounding errors. A loop with a forecast end exactly at its limit is within the limit.
const ROUNDING: f64 = 1e-9;

/// Inputs of the conditions.
pub(in crate::domain::supervision::control) struct AlarmFacts<'a> {
    pub(in crate::domain::supervision::control) metrics: &'a ControlMetrics,
    /// The last `window` + 1 samples, newest last.
    pub(in crate::domain::supervision::control) history: &'a [ControlSample],
    pub(in crate::domain::supervision::control) resources: &'a Resources,
    /// Best completion so far, 0..1.
    pub(in crate::domain::supervision::control) best: f64,
    /// Number of consecutive iterations with a completion at least `slide_drop` below the best one.
    pub(in crate::domain::supervision::control) slide: u32,
}

/// Evaluates all conditions and returns the true ones. Returns none for finished work.
pub(in crate::domain::supervision::control) fn check(
    facts: &AlarmFacts<'_>,
    settings: &ControlSettings,
) -> Vec<AlarmFinding> {
    if facts.metrics.gap <= 0.0 {
        return Vec::new();
    }
    let conditions =
        [stuck_loop, oscillation, regression, resource_burn, quality_degradation, integral_windup, derivative_spike];
    conditions.into_iter().filter_map(|condition| condition(facts, settings)).collect()
}

fn finding(kind: AlarmKind, severity: AlarmSeverity, message: String, context: &[(&str, f64)]) -> Option<AlarmFinding> {
    let context = context.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
    Some(AlarmFinding { kind, severity, message, context })
}

fn warning_or_critical(critical: bool) -> AlarmSeverity {
    if critical { AlarmSeverity::Critical } else { AlarmSeverity::Warning }
}

/// True if each of the last changes of P is below the minimum progress.
fn stuck_loop(facts: &AlarmFacts<'_>, settings: &ControlSettings) -> Option<AlarmFinding> {
    let needed = settings.stuck_iterations.max(1) as usize;
    let mut latest = changes(facts.history).rev().take(needed);
    let known = facts.history.len() > needed;
    if !known || latest.any(|change| change.abs() >= settings.min_progress_rate) {
        return None;
    }
    let p = facts.metrics.p;
    let message = format!("No progress in {needed} iterations: P stays at {p:.2}.");
    let severity = warning_or_critical(p > settings.stuck_critical);
    finding(AlarmKind::StuckLoop, severity, message, &[("iterations", needed as f64), ("p", p)])
}

/// True if the trend is oscillating.
fn oscillation(facts: &AlarmFacts<'_>, settings: &ControlSettings) -> Option<AlarmFinding> {
    if facts.metrics.trend != Trend::Oscillating {
        return None;
    }
    let turns = sign_changes(last(facts.history, settings.window_len() + 1), settings.deadband);
    let message = format!("P changed its direction {turns} times in the last {} iterations.", settings.window_len());
    finding(AlarmKind::Oscillation, AlarmSeverity::Warning, message, &[("turns", turns as f64)])
}

/// True if D is above its threshold, or if completion stayed below its best value for several iterations.
fn regression(facts: &AlarmFacts<'_>, settings: &ControlSettings) -> Option<AlarmFinding> {
    let rate = facts.metrics.d_raw;
    let lost = facts.best - (1.0 - facts.metrics.gap);
    let fast = rate > settings.regression_rate;
    let slow = lost > settings.slide_drop && facts.slide >= settings.slide_iterations;
    let message = if fast {
        format!("P rises by {:.0} points per iteration.", rate * 100.0)
    } else if slow {
        let (points, best, slide) = (lost * 100.0, facts.best * 100.0, facts.slide);
        format!("Completion is {points:.0} points below its best, {best:.0} %, for {slide} iterations.")
    } else {
        return None;
    };
    let critical = settings.regression_critical;
    let severity = warning_or_critical(rate > critical || slow && lost > critical);
    finding(AlarmKind::Regression, severity, message, &[("d_raw", rate), ("best", facts.best), ("lost", lost)])
}

/// True if too much of a resource is used and the forecast exceeds the rest.
fn resource_burn(facts: &AlarmFacts<'_>, settings: &ControlSettings) -> Option<AlarmFinding> {
    let Resources { iterations, seconds, usd } = facts.resources;
    let ControlMetrics { gap, velocity, forecast, .. } = *facts.metrics;
    let more = if velocity > 0.0 { (gap / velocity - ROUNDING).ceil() } else { f64::INFINITY };
    let burns = |resource: &Resource| {
        resource.part() > settings.max_iterations_percent && !(settings.resource_forecast && resource.fits(more))
    };
    let (name, resource) = [("iterations", iterations), ("seconds", seconds), ("dollars", usd)]
        .into_iter()
        .filter(|(_, resource)| burns(resource))
        .max_by(|a, b| a.1.part().total_cmp(&b.1.part()))?;
    let (used, limit) = (resource.used, resource.limit.unwrap_or_default());
    let needs = forecast.map_or_else(|| "no end is in sight".to_owned(), |more| format!("{more} more are forecast"));
    let message = match name {
        "dollars" => format!("{used:.2} of {limit:.2} dollars are used and, in iterations, {needs}."),
        "seconds" => format!("{used:.0} of {limit:.0} seconds are used and, in iterations, {needs}."),
        _ => format!("{used:.0} of {limit:.0} iterations are used and {needs}."),
    };
    let emergency = resource.part() >= settings.emergency_percent;
    let severity = if emergency { AlarmSeverity::Emergency } else { AlarmSeverity::Critical };
    finding(AlarmKind::ResourceBurn, severity, message, &[("used", used), ("limit", limit)])
}

/// True if quality is far below its maximum within the window.
fn quality_degradation(facts: &AlarmFacts<'_>, settings: &ControlSettings) -> Option<AlarmFinding> {
    let window = last(facts.history, settings.window_len());
    let now = window.last()?.quality;
    let best = window.iter().map(|sample| sample.quality).fold(now, f64::max);
    let drop = best - now;
    if drop <= settings.quality_drop {
        return None;
    }
    let message = format!("Quality fell from {best:.2} to {now:.2} within {} iterations.", window.len());
    let severity = warning_or_critical(drop > settings.quality_critical);
    finding(AlarmKind::QualityDegradation, severity, message, &[("from", best), ("to", now)])
}

/// True if I is high and P does not fall. At the start of a task, I is also high, which is normal while P falls.
fn integral_windup(facts: &AlarmFacts<'_>, settings: &ControlSettings) -> Option<AlarmFinding> {
    let ControlMetrics { i, velocity, .. } = *facts.metrics;
    if i <= settings.integral_windup_limit || velocity >= settings.min_progress_rate {
        return None;
    }
    let message = format!("Errors accumulate without progress: I is {i:.2}.");
    finding(AlarmKind::IntegralWindup, AlarmSeverity::Warning, message, &[("i", i), ("velocity", velocity)])
}

/// True if P changed abruptly, in either direction.
fn derivative_spike(facts: &AlarmFacts<'_>, settings: &ControlSettings) -> Option<AlarmFinding> {
    let change = changes(facts.history).next_back()?;
    if change.abs() <= settings.derivative_spike {
        return None;
    }
    let (way, severity) =
        if change > 0.0 { ("worse", AlarmSeverity::Warning) } else { ("better", AlarmSeverity::Info) };
    let message = format!("P changed by {:+.0} points in one iteration, for the {way}.", change * 100.0);
    finding(AlarmKind::DerivativeSpike, severity, message, &[("change", change)])
}
