//! Settings of the actuators: how each follows the control signal.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::bounds::MAX_WINDOW;
use crate::domain::model::settings::config_section;

/// Cause on which effort and breadth depend. Model, tone and memory share always follow the control signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ActuatorCause {
    /// The control signal and the gain profile. They also change in healthy loops, so most runs differ from the usual.
    Signal,
    /// An active REDIRECT or pause of the overseer. Without one, runs have their usual settings.
    #[default]
    Intervention,
}

config_section! {
    /// Laws of the actuators; a disabled actuator stays at its neutral position.
    pub struct ActuatorSettings {
        /// Cause on which effort and breadth depend.
        #[schemars(skip)]
        pub cause: ActuatorCause;
        /// Time and turns of the agent's run: one and a half times the usual ones while a REDIRECT is active.
        pub effort: EffortLaw => section;
        /// Tier of the model, by the control signal and the gain profile.
        pub model: ModelLaw => section;
        /// Amount of work of one iteration: only the first failing check while a REDIRECT for `oscillation` or `resource_burn`
        /// is active.
        pub breadth: BreadthLaw;
        /// Whether the prompt states the urgency, by the control signal.
        pub tone: ToneLaw;
        /// Share of the context reserved for memory, by I.
        pub memory: MemoryLaw => section;
    }
}

config_section! {
    /// Law of the effort, a factor for the time and turns of a run: `intervention` while an intervention is active, otherwise 1.
    /// With [`ActuatorCause::Signal`] it is `clamp(offset + slope u, min, max)`.
    pub struct EffortLaw {
        /// Whether the actuator is used.
        pub enabled: bool = true;
        /// Factor at u = 0.
        #[schemars(skip)]
        pub offset: f64 = 0.5, in 0.0..=10.0;
        /// Amount that is added to the factor at u = 1.
        #[schemars(skip)]
        pub slope: f64 = 1.0, in -10.0..=10.0;
        /// Minimum factor.
        #[schemars(skip)]
        pub min: f64 = 0.5, in 0.1..=10.0, at_most max;
        /// Maximum factor.
        #[schemars(skip)]
        pub max: f64 = 1.5, in 0.1..=10.0;
        /// Factor while an intervention is active.
        #[schemars(skip)]
        pub intervention: f64 = 1.5, in 0.1..=10.0;
    }
}

config_section! {
    /// Selection of the model tier.
    pub struct ModelLaw {
        /// Whether the actuator is used.
        pub enabled: bool = false;
        /// Value of u above which, in two consecutive iterations, the strong model is used. The profile `recovery` always uses it.
        #[schemars(skip)]
        pub strong_above: f64 = 0.8, in 0.0..=1.0;
        /// Number of consecutive iterations.
        #[schemars(skip)]
        pub strong_iterations: u32 = 2, in 1..=MAX_WINDOW;
        /// Profiles that use the strong model.
        #[schemars(skip)]
        pub strong_profiles: Vec<String> = names(&["recovery"]);
        /// Value of u below which the profile `cautious` uses the cheap model.
        #[schemars(skip)]
        pub cheap_below: f64 = 0.3, in 0.0..=1.0, at_most strong_above;
        /// Profiles that can use the cheap model.
        #[schemars(skip)]
        pub cheap_profiles: Vec<String> = names(&["cautious"]);
    }
}

config_section! {
    /// Amount of work of one iteration, by the gain profile for the active intervention; profiles that are in no list use the
    /// default. With [`ActuatorCause::Signal`] it depends on the current target profile.
    pub struct BreadthLaw {
        /// Whether the actuator is used.
        pub enabled: bool = true;
        /// Profiles in which the agent works only on the first failing check.
        #[schemars(skip)]
        pub first_failure: Vec<String> = names(&["cautious", "damped"]);
        /// Profiles in which the agent makes one change per iteration.
        #[schemars(skip)]
        pub one_change: Vec<String>;
        /// Profiles in which the agent works on everything that remains.
        #[schemars(skip)]
        pub everything: Vec<String> = names(&["aggressive"]);
    }
}

config_section! {
    /// Whether the prompt states the urgency.
    pub struct ToneLaw {
        /// Whether the actuator is used.
        pub enabled: bool = false;
    }
}

config_section! {
    /// Law of the memory share: `share = base + (max - base) max(I, 0) / 5`.
    pub struct MemoryLaw {
        /// Whether the actuator is used.
        pub enabled: bool = false;
        /// Share of the context at I = 0.
        #[schemars(skip)]
        pub base: f64 = 0.2, in 0.0..=1.0, at_most max;
        /// Share of the context at the maximum of I.
        #[schemars(skip)]
        pub max: f64 = 0.5, in 0.0..=1.0;
    }
}

fn names(profiles: &[&str]) -> Vec<String> {
    profiles.iter().map(|name| (*name).to_owned()).collect()
}
