//! The settings of control, with their defaults.

use std::collections::BTreeMap;

use super::bounds::{MAX_INTEGRAL, MAX_WINDOW};
use super::complexity::ComplexitySettings;
use super::laws::ActuatorSettings;
use super::profile::{GainPatch, ProfileSchedule};
use crate::domain::model::settings::config_section;

/// Value of `base_profile` by which the task decides.
pub const AUTO: &str = "auto";

config_section! {
    /// Settings of control.
    pub struct ControlSettings {
        /// Iterations that are looked back on.
        pub window: u32 = 5, in 2..=MAX_WINDOW;
        /// Share of the integral that remains after an iteration; smaller values forget faster.
        pub decay: f64 = 0.9, in 0.0..=1.0;
        /// Changes below it are noise.
        pub deadband: f64 = 0.05, in 0.0..=0.5;
        /// Whether the gains follow the course of the loop; else those of the beginning stay.
        pub adaptive_gains: bool = true;
        /// Part of the way to the profile aimed at that the gains go in an iteration.
        pub transition_smoothing: f64 = 0.3, in 0.0..=1.0;
        /// Gain profiles by name: changes of those that are built in, and others. A profile of your own needs all three gains.
        pub profiles: BTreeMap<String, GainPatch> => section;
        /// Profile that a loop begins with and returns to; `auto` chooses by the task.
        pub base_profile: String = AUTO.to_owned();
        /// Profile names by purpose.
        pub schedule: ProfileSchedule;
        /// Estimate of a task's complexity if it is not stated.
        pub complexity: ComplexitySettings => section;
        /// Whether `pause` and `abort` take effect without the overseer.
        pub auto_intervene: bool = false;
        /// stuck_loop: changes of P in a row.
        pub stuck_iterations: u32 = 3, in 1..=MAX_WINDOW, at_most window;
        /// stuck_loop: a change of P below it is none. No windup is seen while P falls at least as fast.
        pub min_progress_rate: f64 = 0.02, in 0.0..=1.0;
        /// stuck_loop: critical where P is above it.
        pub stuck_critical: f64 = 0.5, in 0.0..=1.0;
        /// oscillation: changes of sign within the window.
        pub oscillation_count: u32 = 2, in 1..=MAX_WINDOW, below window;
        /// regression: raised where D without deadband is above it.
        pub regression_rate: f64 = 0.1, in 0.0..=1.0, below regression_critical;
        /// regression: critical where D without deadband, or the loss against the best iteration, is above it.
        pub regression_critical: f64 = 0.2, in 0.0..=1.0;
        /// regression: completion lost against the best iteration that counts as sliding.
        pub slide_drop: f64 = 0.1, in 0.0..=1.0, below regression_critical;
        /// regression: iterations in a row that it must slide.
        pub slide_iterations: u32 = 3, in 1..=MAX_WINDOW;
        /// resource_burn: part of the iterations, the time or the money that may be used.
        pub max_iterations_percent: f64 = 0.8, in 0.0..=1.0, below emergency_percent;
        /// resource_burn: part from which it is an emergency.
        pub emergency_percent: f64 = 0.95, in 0.0..=1.0;
        /// resource_burn: whether it is raised only where the forecast does not fit in what is left.
        pub resource_forecast: bool = true;
        /// quality_degradation: fall of quality within the window.
        pub quality_drop: f64 = 0.15, in 0.0..=1.0, below quality_critical;
        /// quality_degradation: critical above it.
        pub quality_critical: f64 = 0.3, in 0.0..=1.0;
        /// integral_windup: I above it.
        pub integral_windup_limit: f64 = 4.0, in 0.0..=MAX_INTEGRAL;
        /// derivative_spike: change of P in one iteration.
        pub derivative_spike: f64 = 0.2, in 0.0..=1.0;
        /// Effects of the control signal.
        pub actuators: ActuatorSettings => section;
    }
}

impl ControlSettings {
    /// The window as a length, whatever was written.
    pub(super) fn window_len(&self) -> usize {
        self.window.clamp(2, MAX_WINDOW) as usize
    }
}
