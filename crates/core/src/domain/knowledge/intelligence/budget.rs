//! Usual number of iterations of a task, from the range of its type and from finished loops.

use crate::domain::checks::criteria::TaskType;
use crate::domain::loops::Estimate;

/// Weight of the type's range, in number of loops.
const PRIOR_SAMPLES: f64 = 5.0;
/// Distance from the mean to either end of a range, in standard deviations.
const SPREAD: f64 = 2.0;
/// Maximum plausible number of iterations.
const MOST: f64 = 1000.0;

/// Returns the usual minimum and maximum number of iterations: the task type's range, corrected by finished loops. The range
/// has the weight of `PRIOR_SAMPLES` loops, whose mean is the middle of the range and whose standard deviation is a quarter
/// of its width. Implausible estimates are ignored.
pub fn usual(kind: TaskType, estimate: Option<&Estimate>) -> (u32, u32) {
    let (low, high) = kind.usual_iterations();
    let known = estimate.filter(|e| e.samples > 0 && e.mean.is_finite() && e.mean > 0.0 && e.deviation >= 0.0);
    let Some(estimate) = known else { return (low, high) };
    let (low, high) = (f64::from(low), f64::from(high));
    let (prior_mean, prior_deviation) = ((low + high) / 2.0, (high - low) / (2.0 * SPREAD));
    let (samples, seen) = (f64::from(estimate.samples), estimate.mean.min(MOST));
    let all = PRIOR_SAMPLES + samples;
    let mean = (PRIOR_SAMPLES * prior_mean + samples * seen) / all;
    // Variance of two combined groups: the variance within each, plus the distance of each mean from the common mean.
    let varies = |deviation: f64, at: f64| deviation.min(MOST).powi(2) + (at - mean).powi(2);
    let variance =
        (PRIOR_SAMPLES * varies(prior_deviation, prior_mean) + samples * varies(estimate.deviation, seen)) / all;
    let spread = SPREAD * variance.sqrt();
    // Casts from floats saturate.
    let least = (mean - spread).round().max(1.0) as u32;
    (least, ((mean + spread).round() as u32).max(least))
}
