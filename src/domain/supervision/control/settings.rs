//! The settings of control, with their defaults.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::actuators::ActuatorSettings;
use super::complexity::ComplexitySettings;
use super::gains::{GainPatch, Schedule};

/// Value of `base_profile` by which the task decides.
pub const AUTO: &str = "auto";

/// How a loop is controlled.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ControlSettings {
    /// Iterations that are looked back on, 2..100.
    pub window: u32,
    /// What is left of the integral after an iteration, 0..1; smaller forgets faster.
    pub decay: f64,
    /// Changes below it are noise, 0..0.5.
    pub deadband: f64,
    /// Whether the gains follow the course of the loop; else those of the beginning stay.
    pub adaptive_gains: bool,
    /// Part of the way to the profile aimed at that the gains go in an iteration, 0..1.
    pub transition_smoothing: f64,
    /// Gain profiles by name: changes of those that are built in, and others. A profile of your own needs all three gains.
    pub profiles: BTreeMap<String, GainPatch>,
    /// Profile that a loop begins with and returns to; `auto` chooses by the task.
    pub base_profile: String,
    /// Which profile is for what.
    pub schedule: Schedule,
    /// How the complexity of a task is estimated where nobody states it.
    pub complexity: ComplexitySettings,
    /// Whether `pause` and `abort` take effect without the overseer.
    pub auto_intervene: bool,
    /// stuck_loop: changes of P in a row, 1..window.
    pub stuck_iterations: u32,
    /// stuck_loop: a change of P below it is none, 0..1. No windup is seen while P falls at least as fast.
    pub min_progress_rate: f64,
    /// stuck_loop: critical where P is above it, 0..1.
    pub stuck_critical: f64,
    /// oscillation: changes of sign within the window, 1..window - 1.
    pub oscillation_count: u32,
    /// regression: raised where D without deadband is above it, 0..1.
    pub regression_rate: f64,
    /// regression: critical where D without deadband, or the loss against the best iteration, is above it, 0..1.
    pub regression_critical: f64,
    /// regression: completion lost against the best iteration that counts as sliding, 0..1.
    pub slide_drop: f64,
    /// regression: iterations in a row that it must slide, 1..100.
    pub slide_iterations: u32,
    /// resource_burn: part of the iterations, the time or the money that may be used, 0..1.
    pub max_iterations_percent: f64,
    /// resource_burn: part from which it is an emergency, 0..1.
    pub emergency_percent: f64,
    /// resource_burn: whether it is raised only where the forecast does not fit in what is left.
    pub resource_forecast: bool,
    /// quality_degradation: fall of quality within the window, 0..1.
    pub quality_drop: f64,
    /// quality_degradation: critical above it, 0..1.
    pub quality_critical: f64,
    /// integral_windup: I above it, 0..5.
    pub integral_windup_limit: f64,
    /// derivative_spike: change of P in one iteration, 0..1.
    pub derivative_spike: f64,
    /// What the control signal changes.
    pub actuators: ActuatorSettings,
}

impl Default for ControlSettings {
    fn default() -> Self {
        Self {
            window: 5,
            decay: 0.9,
            deadband: 0.05,
            adaptive_gains: true,
            transition_smoothing: 0.3,
            profiles: BTreeMap::new(),
            base_profile: AUTO.to_owned(),
            schedule: Schedule::default(),
            complexity: ComplexitySettings::default(),
            auto_intervene: false,
            stuck_iterations: 3,
            min_progress_rate: 0.02,
            stuck_critical: 0.5,
            oscillation_count: 2,
            regression_rate: 0.1,
            regression_critical: 0.2,
            slide_drop: 0.1,
            slide_iterations: 3,
            max_iterations_percent: 0.8,
            emergency_percent: 0.95,
            resource_forecast: true,
            quality_drop: 0.15,
            quality_critical: 0.3,
            integral_windup_limit: 4.0,
            derivative_spike: 0.2,
            actuators: ActuatorSettings::default(),
        }
    }
}

/// Longest window that is kept, iterations.
pub(super) const MAX_WINDOW: u32 = 100;

impl ControlSettings {
    /// The window as a length, whatever was written.
    pub(super) fn window_len(&self) -> usize {
        self.window.clamp(2, MAX_WINDOW) as usize
    }
}
