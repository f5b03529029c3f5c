//! Chooses the target gain profile and moves the gains gradually towards it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::metrics::{ControlMetrics, Trend};
use super::profile::{Gains, gains_of};
use super::settings::{AUTO, ControlSettings};
use crate::domain::supervision::TaskFacts;

/// Maximum complexity of a simple task.
const SIMPLE: f64 = 3.0;
/// Minimum complexity of a task that starts with the early profile.
const COMPLEX: f64 = 7.0;
/// D above which the loop is regressing.
const REGRESSING: f64 = 0.1;
/// P below which the loop is near completion if completion is above `HALF`.
const NEAR: f64 = 0.15;
/// Completion above which more than half is done.
const HALF: f64 = 0.5;
/// P above which a loop without movement is stuck.
const FAR: f64 = 0.7;
/// Absolute value of D, without deadband, below which the loop does not move.
const UNMOVED: f64 = 0.02;
/// Number of iterations at the start during which a loop is never stuck.
const GRACE: u64 = 3;
/// Value of I above which the integral winds up.
const WINDUP: f64 = 3.0;

/// Gains in use, and their target profile.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScheduledGains {
    /// Name of the target profile.
    pub profile: String,
    /// Current gains.
    #[serde(flatten)]
    pub gains: Gains,
}

/// Change of the target profile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProfileTransition {
    /// Name of the previous profile.
    pub from: String,
    /// Name of the new profile.
    pub to: String,
    /// Reason, with figures.
    pub reason: String,
}

impl ControlSettings {
    /// Returns the name of the profile at the start of a loop, to which the gains later return.
    pub(super) fn base_profile(&self, facts: &TaskFacts, complexity: f64) -> &str {
        if self.base_profile != AUTO {
            &self.base_profile
        } else if facts.security_sensitive || facts.breaking_changes {
            &self.schedule.sensitive
        } else if complexity <= SIMPLE {
            &self.schedule.simple
        } else {
            &self.schedule.otherwise
        }
    }

    /// Returns the name of the target profile for these figures, and the reason. The first true condition decides.
    fn target<'a>(&'a self, task: &ProfileInput<'a>, metrics: &ControlMetrics) -> (&'a str, String) {
        let ControlMetrics { p, i, d, d_raw, velocity, gap, trend, .. } = *metrics;
        // I is also high in the middle of a task that makes good progress.
        let winds_up = i > WINDUP && !(self.windup_guard && velocity >= self.min_progress_rate);
        if d > REGRESSING {
            (&self.schedule.regressing, format!("the loop gets worse (D {d:.2})"))
        } else if trend == Trend::Oscillating {
            (&self.schedule.oscillating, "it goes back and forth".to_owned())
        } else if p < NEAR && 1.0 - gap > HALF {
            (&self.schedule.near_completion, format!("nearly done (P {p:.2})"))
        } else if p > FAR && d_raw.abs() < UNMOVED && task.iteration > GRACE {
            (&self.schedule.stuck, format!("no progress (P {p:.2}, change {d_raw:+.3} per iteration)"))
        } else if winds_up {
            (&self.schedule.windup, format!("errors accumulate (I {i:.2})"))
        } else if task.complexity >= COMPLEX && task.early {
            (&self.schedule.early, format!("a task of complexity {:.0} begins", task.complexity))
        } else if let Some(profile) = task.redirected {
            (profile, "the overseer redirected the loop".to_owned())
        } else {
            (task.base, "no special condition applies".to_owned())
        }
    }

    /// Moves the gains one step from `before` (`None` before the first iteration) towards the target profile. Returns the
    /// new gains, and the change of the target profile, if any.
    pub(super) fn scheduled(
        &self,
        before: Option<&ScheduledGains>,
        task: &ProfileInput<'_>,
        metrics: &ControlMetrics,
    ) -> (ScheduledGains, Option<ProfileTransition>) {
        let first = || ScheduledGains { profile: task.base.to_owned(), gains: gains_of(task.base) };
        let before = before.cloned().unwrap_or_else(first);
        if !self.adaptive_gains {
            return (before, None);
        }
        let (name, reason) = self.target(task, metrics);
        let gains = before.gains.towards(gains_of(name), self.transition_smoothing);
        let change =
            (before.profile != name).then(|| ProfileTransition { from: before.profile, to: name.to_owned(), reason });
        (ScheduledGains { profile: name.to_owned(), gains }, change)
    }
}

/// Inputs for the choice of a profile.
pub(super) struct ProfileInput<'a> {
    /// Name of the base profile.
    pub(super) base: &'a str,
    /// Name of the profile requested by a recent REDIRECT.
    pub(super) redirected: Option<&'a str>,
    /// Complexity of the task, 1..10.
    pub(super) complexity: f64,
    /// 1-based number of the iteration.
    pub(super) iteration: u64,
    /// Whether the loop has used little of its budget.
    pub(super) early: bool,
}
