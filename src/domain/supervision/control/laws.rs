//! Settings of the actuators: the law by which each follows the control signal.

use super::bounds::MAX_WINDOW;
use crate::domain::model::settings::config_section;

config_section! {
    /// The laws of the actuators; each can be switched off, and then stays at its neutral place.
    pub struct ActuatorSettings {
        /// Time and turns of the agent's run.
        pub effort: EffortLaw => section;
        /// Tier of the model.
        pub model: ModelLaw => section;
        /// Amount of work of one iteration.
        pub breadth: BreadthLaw;
        /// Whether the prompt says how urgent it is.
        pub tone: ToneLaw;
        /// Part of the context that memory gets.
        pub memory: MemoryLaw => section;
    }
}

config_section! {
    /// `factor = clamp(offset + slope u, min, max)`, of the budget of a run.
    pub struct EffortLaw {
        /// Whether it is used.
        pub enabled: bool = false;
        /// Factor at u = 0.
        pub offset: f64 = 0.5, in 0.0..=10.0;
        /// Amount added at u = 1.
        pub slope: f64 = 1.0, in -10.0..=10.0;
        /// Least factor.
        pub min: f64 = 0.5, in 0.1..=10.0, at_most max;
        /// Greatest factor.
        pub max: f64 = 1.5, in 0.1..=10.0;
    }
}

config_section! {
    /// Selection of the model tier.
    pub struct ModelLaw {
        /// Whether it is used.
        pub enabled: bool = false;
        /// u above it, `strong_iterations` times in a row, is for the strong model.
        pub strong_above: f64 = 0.8, in 0.0..=1.0;
        /// Iterations in a row.
        pub strong_iterations: u32 = 2, in 1..=MAX_WINDOW;
        /// Profiles that are for the strong model.
        pub strong_profiles: Vec<String> = names(&["recovery"]);
        /// u below it, in one of `cheap_profiles`, is for the cheap model.
        pub cheap_below: f64 = 0.3, in 0.0..=1.0, at_most strong_above;
        /// Profiles that are for the cheap model.
        pub cheap_profiles: Vec<String> = names(&["cautious"]);
    }
}

config_section! {
    /// Amount of work of one iteration, by profile; profiles that are in no list use the default.
    pub struct BreadthLaw {
        /// Whether it is used.
        pub enabled: bool = false;
        /// Profiles with only the first failing check.
        pub first_failure: Vec<String> = names(&["cautious", "damped"]);
        /// Profiles with one change at a time.
        pub one_change: Vec<String> = names(&["conservative"]);
        /// Profiles with everything that is open.
        pub everything: Vec<String> = names(&["aggressive"]);
    }
}

config_section! {
    /// Whether the prompt says how urgent it is.
    pub struct ToneLaw {
        /// Whether it is used.
        pub enabled: bool = false;
    }
}

config_section! {
    /// `share = base + (max - base) max(I, 0) / 5`.
    pub struct MemoryLaw {
        /// Whether it is used.
        pub enabled: bool = false;
        /// Share of the context without trouble.
        pub base: f64 = 0.2, in 0.0..=1.0, at_most max;
        /// Share with the most trouble.
        pub max: f64 = 0.5, in 0.0..=1.0;
    }
}

fn names(profiles: &[&str]) -> Vec<String> {
    profiles.iter().map(|name| (*name).to_owned()).collect()
}
