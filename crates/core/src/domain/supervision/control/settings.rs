//! Settings of control, with their defaults.

use super::bounds::{MAX_INTEGRAL, MAX_WINDOW};
use super::complexity::ComplexitySettings;
use super::laws::ActuatorSettings;
use super::profile::ProfileSchedule;
use crate::domain::model::settings::config_section;

/// Value of `base_profile` that lets the task determine the profile.
pub const AUTO: &str = "auto";

config_section! {
    /// Settings of control.
    pub struct ControlSettings {
        /// Whether control advises: its alarms, its sentences in prompts and its actuators. Otherwise its figures are only recorded.
        pub enabled: bool = true;
        /// Number of past iterations that are considered.
        #[schemars(skip)]
        pub window: u32 = 5, in 2..=MAX_WINDOW;
        /// Share of the integral that remains after an iteration; smaller values forget faster.
        #[schemars(skip)]
        pub decay: f64 = 0.9, in 0.0..=1.0;
        /// Absolute value below which a figure counts as 0.
        #[schemars(skip)]
        pub deadband: f64 = 0.05, in 0.0..=0.5;
        /// Whether the gains adapt to the loop; otherwise the initial ones are kept.
        #[schemars(skip)]
        pub adaptive_gains: bool = true;
        /// Share of the distance to the target profile that the gains move per iteration.
        #[schemars(skip)]
        pub transition_smoothing: f64 = 0.3, in 0.0..=1.0;
        /// Profile that a loop starts with and returns to; `auto` chooses by the task.
        pub base_profile: String = AUTO.to_owned();
        /// Profile names by purpose.
        #[schemars(skip)]
        pub schedule: ProfileSchedule;
        /// Whether the profile `windup` is not used while P falls by at least `min_progress_rate` per iteration.
        #[schemars(skip)]
        pub windup_guard: bool = true;
        /// Estimate of a task's complexity if it is not stated.
        #[schemars(skip)]
        pub complexity: ComplexitySettings => section;
        /// Whether `pause` and `abort` take effect without the overseer.
        pub auto_intervene: bool = false;
        /// stuck_loop: number of consecutive changes of P that must be small.
        pub stuck_iterations: u32 = 3, in 1..=MAX_WINDOW, at_most window;
        /// stuck_loop: change of P below which there is no progress. integral_windup is not raised while P falls at least
        /// this fast.
        #[schemars(skip)]
        pub min_progress_rate: f64 = 0.02, in 0.0..=1.0;
        /// stuck_loop: P above which the alarm is critical.
        #[schemars(skip)]
        pub stuck_critical: f64 = 0.5, in 0.0..=1.0;
        /// oscillation: number of sign changes within the window at which the alarm is raised.
        #[schemars(skip)]
        pub oscillation_count: u32 = 2, in 1..=MAX_WINDOW, below window;
        /// regression: D, without deadband, above which the alarm is raised.
        #[schemars(skip)]
        pub regression_rate: f64 = 0.1, in 0.0..=1.0, below regression_critical;
        /// regression: D, without deadband, or loss of completion against the best iteration, above which the alarm is
        /// critical.
        #[schemars(skip)]
        pub regression_critical: f64 = 0.2, in 0.0..=1.0;
        /// regression: loss of completion against the best iteration that counts as sliding.
        #[schemars(skip)]
        pub slide_drop: f64 = 0.1, in 0.0..=1.0, below regression_critical;
        /// regression: number of consecutive sliding iterations after which the alarm is raised.
        #[schemars(skip)]
        pub slide_iterations: u32 = 3, in 1..=MAX_WINDOW;
        /// resource_burn: share of the iterations, the time or the money above which the alarm is raised.
        pub max_iterations_percent: f64 = 0.8, in 0.0..=1.0, below emergency_percent;
        /// resource_burn: share above which the alarm is an emergency.
        #[schemars(skip)]
        pub emergency_percent: f64 = 0.95, in 0.0..=1.0;
        /// resource_burn: whether the alarm is raised only if the forecast exceeds the remaining budget.
        #[schemars(skip)]
        pub resource_forecast: bool = true;
        /// quality_degradation: decrease of quality within the window above which the alarm is raised.
        #[schemars(skip)]
        pub quality_drop: f64 = 0.15, in 0.0..=1.0, below quality_critical;
        /// quality_degradation: decrease above which the alarm is critical.
        #[schemars(skip)]
        pub quality_critical: f64 = 0.3, in 0.0..=1.0;
        /// integral_windup: I above which the alarm is raised.
        #[schemars(skip)]
        pub integral_windup_limit: f64 = 4.0, in 0.0..=MAX_INTEGRAL;
        /// derivative_spike: change of P in one iteration above which the alarm is raised.
        #[schemars(skip)]
        pub derivative_spike: f64 = 0.2, in 0.0..=1.0;
        /// Effects of the control signal.
        pub actuators: ActuatorSettings => section;
    }
}

impl ControlSettings {
    /// Returns the window length, clamped to its valid range.
    pub(super) fn window_len(&self) -> usize {
        self.window.clamp(2, MAX_WINDOW) as usize
    }
}
