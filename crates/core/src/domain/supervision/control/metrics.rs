//! Figures of an iteration: P, I and D, and the velocity, trend and forecast derived from them.
//!
//! P is the current error, I the accumulated error, and D the change of the error. **D > 0 means that the loop is getting
//! worse.**

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::bounds::{MAX_INTEGRAL, MIN_INTEGRAL};
use super::settings::ControlSettings;

/// Amount added to P by a complete loss of quality.
const QUALITY_WEIGHT: f64 = 0.2;
/// Amount added to P by each error.
const ERROR_WEIGHT: f64 = 0.05;
/// Maximum amount added to P by errors.
const MAX_ERROR_PENALTY: f64 = 0.3;
/// Amount added to I by each iteration with a recurring blocker.
const BLOCKER_WEIGHT: f64 = 0.1;
/// Amount subtracted from I by each learning.
const LEARNING_CREDIT: f64 = 0.05;

/// Stored figures of a past iteration.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ControlSample {
    /// Completion, 0..1.
    pub completion: f64,
    /// Quality, 0..1.
    pub quality: f64,
    /// P, 0..1.
    pub p: f64,
}

/// Trend of the error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Trend {
    /// D < 0.
    Improving,
    /// D = 0.
    #[default]
    Stable,
    /// D > 0.
    Regressing,
    /// P rises and falls repeatedly.
    Oscillating,
}

impl Trend {
    /// Returns the display name.
    pub fn word(self) -> &'static str {
        match self {
            Self::Improving => "improving",
            Self::Stable => "stable",
            Self::Regressing => "getting worse",
            Self::Oscillating => "going back and forth",
        }
    }
}

/// Figures of one iteration.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ControlMetrics {
    /// `1 - completion`, 0..1.
    pub gap: f64,
    /// Current error, 0..1.
    pub p: f64,
    /// Accumulated error, -1..5.
    pub i: f64,
    /// Change of the error per iteration, -1..1; 0 if it is within the deadband.
    pub d: f64,
    /// Change of the error per iteration without deadband, -1..1.
    pub d_raw: f64,
    /// Share of the gap closed per iteration: `-d_raw`.
    pub velocity: f64,
    /// Trend of the error.
    pub trend: Trend,
    /// Number of iterations still needed at this velocity: 0 if the gap is closed, `None` if the gap does not shrink.
    pub forecast: Option<u64>,
}

/// Returns 0 if `|x| < band`, else `x`.
pub(super) fn deadband(x: f64, band: f64) -> f64 {
    if x.abs() < band { 0.0 } else { x }
}

/// Returns `P = deadband(min(1, gap + 0.2 (1 - quality) + min(0.05 errors, 0.3)))`, 0..1.
pub(super) fn proportional(gap: f64, quality: f64, errors: f64, band: f64) -> f64 {
    let penalty = QUALITY_WEIGHT * (1.0 - quality) + (ERROR_WEIGHT * errors).min(MAX_ERROR_PENALTY);
    deadband((gap + penalty).min(1.0), band)
}

/// Returns `I = clamp(decay I + P + 0.1 recurrences - 0.05 learnings, -1, 5)`. `recurrences` is the sum of the counts of
/// this iteration's recurring blockers. A blocker's count is the number of iterations that named it so far.
pub(super) fn integral(before: f64, decay: f64, p: f64, recurrences: u32, learnings: usize) -> f64 {
    let blockers = BLOCKER_WEIGHT * f64::from(recurrences);
    let credit = LEARNING_CREDIT * learnings as f64;
    (decay * before + p + blockers - credit).clamp(MIN_INTEGRAL, MAX_INTEGRAL)
}

/// Returns the changes of P between consecutive samples, oldest first.
pub(super) fn changes(history: &[ControlSample]) -> impl DoubleEndedIterator<Item = f64> {
    history.windows(2).map(|pair| pair[1].p - pair[0].p)
}

/// Returns the weighted mean of the changes within a window of samples. The i-th change has the weight i. 0 with fewer than two
/// samples.
pub(super) fn derivative(window: &[ControlSample]) -> f64 {
    let (sum, weights) = changes(window).zip(1_u32..).fold((0.0, 0.0), |(sum, weights), (change, weight)| {
        let weight = f64::from(weight);
        (sum + weight * change, weights + weight)
    });
    if weights > 0.0 { sum / weights } else { 0.0 }
}

/// Counts how often P changes direction, ignoring changes of P up to `band`.
pub(super) fn sign_changes(history: &[ControlSample], band: f64) -> usize {
    let signs: Vec<bool> =
        changes(history).filter(|change| *change != 0.0 && change.abs() >= band).map(|change| change > 0.0).collect();
    signs.windows(2).filter(|pair| pair[0] != pair[1]).count()
}

/// Returns `ceil(gap / velocity)`: 0 if the gap is 0, `None` if the gap does not shrink.
pub(super) fn forecast(gap: f64, velocity: f64) -> Option<u64> {
    if gap <= 0.0 {
        Some(0)
    } else if velocity <= 0.0 {
        None
    } else {
        Some((gap / velocity).ceil() as u64)
    }
}

/// Returns the last `len` samples of a history.
pub(super) fn last(history: &[ControlSample], len: usize) -> &[ControlSample] {
    &history[history.len().saturating_sub(len)..]
}

/// Returns the figures after the iteration of the last sample in `history`.
pub(super) fn measure(history: &[ControlSample], integral: f64, settings: &ControlSettings) -> ControlMetrics {
    let (gap, p) = history.last().map_or((0.0, 0.0), |now| (1.0 - now.completion, now.p));
    let window = settings.window_len();
    let d_raw = derivative(last(history, window));
    let d = deadband(d_raw.clamp(-1.0, 1.0), settings.deadband);
    let velocity = 0.0 - d_raw;
    let turns = sign_changes(last(history, window + 1), settings.deadband);
    let trend = if turns >= settings.oscillation_count.max(1) as usize {
        Trend::Oscillating
    } else if d < 0.0 {
        Trend::Improving
    } else if d > 0.0 {
        Trend::Regressing
    } else {
        Trend::Stable
    };
    ControlMetrics { gap, p, i: integral, d, d_raw, velocity, trend, forecast: forecast(gap, velocity) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(ps: &[f64]) -> Vec<ControlSample> {
        ps.iter().map(|p| ControlSample { completion: 1.0 - p, quality: 1.0, p: *p }).collect()
    }

    #[test]
    fn proportional_adds_penalties_and_ignores_noise() {
        assert_eq!(proportional(0.5, 0.5, 2.0, 0.05), 0.7);
        assert_eq!(proportional(0.9, 1.0, 1e12, 0.05), 1.0);
        assert_eq!(proportional(0.03, 0.95, 0.0, 0.05), 0.0);
    }

    #[test]
    fn integral_decays_and_is_clamped() {
        assert_eq!(integral(1.0, 0.9, 0.5, 2, 1), 0.9 + 0.5 + 0.2 - 0.05);
        assert_eq!(integral(5.0, 0.9, 1.0, u32::MAX, 0), MAX_INTEGRAL);
        assert_eq!(integral(0.0, 0.9, 0.0, 0, usize::MAX), MIN_INTEGRAL);
    }

    #[test]
    fn derivative_weighs_latest_change_most() {
        assert_eq!(derivative(&samples(&[0.5])), 0.0);
        let weighed = derivative(&samples(&[0.5, 0.25, 1.0]));
        assert!((weighed - (-0.25 + 2.0 * 0.75) / 3.0).abs() < 1e-12, "{weighed}");
    }

    #[test]
    fn small_changes_are_not_sign_changes() {
        assert_eq!(sign_changes(&samples(&[0.5, 0.25, 0.5, 0.25]), 0.05), 2);
        assert_eq!(sign_changes(&samples(&[0.5, 0.49, 0.5, 0.49]), 0.05), 0);
        assert_eq!(sign_changes(&samples(&[0.5, 0.25, 0.26, 0.01, 0.25]), 0.05), 1);
    }

    #[test]
    fn forecast_needs_progress() {
        assert_eq!(forecast(0.5, 0.2), Some(3));
        assert_eq!(forecast(0.0, -1.0), Some(0));
        assert_eq!(forecast(0.5, 0.0), None);
        assert_eq!(forecast(1.0, 1e-300), Some(u64::MAX));
    }
}
