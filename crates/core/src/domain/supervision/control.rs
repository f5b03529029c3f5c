//! Layer 1, control: a PID controller over a loop's iterations. [`ControlState::step`] takes an iteration's record and
//! returns a [`ControlDecision`]; after the overseer's review, [`ControlState::actuate`] adds the actuator positions. The same
//! records and interventions give the same decisions.
//!
//! Invariants: All figures of a decision are finite for any record. The state stays below [`MAX_STATE`] regardless of the
//! length of the loop and its texts. An unreadable state is rebuilt from the records. Control recommends, and the overseer
//! decides.

mod actuators;
mod advice;
mod alarms;
mod blockers;
mod bounds;
mod complexity;
mod gains;
mod laws;
mod metrics;
mod profile;
mod resources;
mod settings;
mod signal;
mod state;
#[cfg(test)]
mod tests;
mod validate;

use serde::{Deserialize, Serialize};

pub use actuators::{Actuation, Actuator, Breadth, ModelTier, Movement, StandingIntervention};
pub use advice::ControlAction;
pub use alarms::{Alarm, AlarmKind, AlarmSeverity};
pub use blockers::{Blocker, Blockers};
pub use bounds::{MAX_INTEGRAL, MIN_INTEGRAL};
pub use complexity::{ComplexitySettings, complexity};
pub use gains::{ProfileTransition, ScheduledGains};
pub use laws::{ActuatorCause, ActuatorSettings, BreadthLaw, EffortLaw, MemoryLaw, ModelLaw, ToneLaw};
pub use metrics::{ControlMetrics, ControlSample, Trend};
pub use profile::{BUILT_IN, Gains, ProfileSchedule};
pub use settings::{AUTO, ControlSettings};
pub use signal::{Terms, Urgency};
pub use state::{ControlState, MAX_STATE, out_of_range};

/// Result of control for one iteration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ControlDecision {
    /// 1-based number of the iteration.
    pub iteration: u64,
    /// Recommended action.
    pub action: ControlAction,
    /// Whether the action takes effect without the overseer: `auto_intervene` is set and the action is `pause` or `abort`.
    pub takes_effect: bool,
    /// Control signal u, 0..1.
    pub control_signal: f64,
    /// Urgency corresponding to u.
    pub urgency: Urgency,
    /// Terms whose sum is u before clamping.
    pub terms: Terms,
    /// Gains in use, with the target profile.
    pub gains: ScheduledGains,
    /// Change of the target profile in this iteration; `None` if unchanged.
    pub transition: Option<ProfileTransition>,
    /// P, I and D, with trend and forecast.
    pub metrics: ControlMetrics,
    /// Active alarms, most severe first.
    pub alarms: Vec<Alarm>,
    /// Alarms raised in this iteration.
    pub raised: Vec<AlarmKind>,
    /// Alarms cleared in this iteration.
    pub cleared: Vec<AlarmKind>,
    /// State of the loop in one sentence: its most severe alarm, or its urgency without alarms.
    pub summary: String,
    /// Sentences for the next prompt; empty before [`ControlState::actuate`].
    pub prompt_adjustments: Vec<String>,
    /// Actuator positions for the next iteration; neutral before [`ControlState::actuate`].
    pub actuation: Actuation,
    /// Problems with the record, such as values out of range; one sentence each.
    pub warnings: Vec<String>,
}

impl ControlDecision {
    /// Returns the decision without advice: no action and no alarms. The figures remain.
    fn without_advice(self) -> Self {
        Self {
            action: ControlAction::Continue,
            takes_effect: false,
            alarms: Vec::new(),
            raised: Vec::new(),
            cleared: Vec::new(),
            ..self
        }
    }
}
