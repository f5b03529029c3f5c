//! Gain profiles, and the profile for each purpose.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Maximum absolute value of a gain.
const MAX_GAIN: f64 = 10.0;

/// Weights of P, I and D.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Gains {
    /// Weight of P, 0..10.
    pub kp: f64,
    /// Weight of I, 0..10.
    pub ki: f64,
    /// Weight of D, -10..10.
    pub kd: f64,
}

impl Gains {
    const fn new(kp: f64, ki: f64, kd: f64) -> Self {
        Self { kp, ki, kd }
    }

    /// Whether each gain is within its valid range.
    pub(super) fn in_range(self) -> bool {
        let range = 0.0..=MAX_GAIN;
        range.contains(&self.kp) && range.contains(&self.ki) && range.contains(&self.kd.abs())
    }

    /// Interpolates: returns `k + part (target - k)` for each gain `k`.
    pub(super) fn towards(self, target: Self, part: f64) -> Self {
        let step = |from: f64, to: f64| from + part * (to - from);
        Self { kp: step(self.kp, target.kp), ki: step(self.ki, target.ki), kd: step(self.kd, target.kd) }
    }
}

const STANDARD: Gains = Gains::new(0.5, 0.15, 0.25);

/// Profiles by name. They never change, because the preset `pinned` has the same gains.
pub const BUILT_IN: [(&str, Gains); 7] = [
    ("conservative", Gains::new(0.3, 0.05, 0.4)),
    ("standard", STANDARD),
    ("aggressive", Gains::new(0.8, 0.25, 0.1)),
    ("recovery", Gains::new(1.0, 0.4, -0.1)),
    ("cautious", Gains::new(0.2, 0.02, 0.5)),
    ("damped", Gains::new(0.3, 0.1, 0.5)),
    ("exploration", Gains::new(0.3, 0.1, 0.2)),
];

/// Returns the gains of a profile. An unknown name, which valid settings do not contain, returns the gains of `standard`.
pub(super) fn gains_of(name: &str) -> Gains {
    BUILT_IN.iter().find(|(known, _)| *known == name).map_or(STANDARD, |(_, gains)| *gains)
}

/// Profile names by purpose.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ProfileSchedule {
    /// Used if D > 0.1.
    pub regressing: String,
    /// Used if the trend is oscillating.
    pub oscillating: String,
    /// Used if P < 0.15 and more than half is done.
    pub near_completion: String,
    /// Used if P > 0.7 and |D| < 0.02 after the third iteration.
    pub stuck: String,
    /// Used if I > 3; with `windup_guard` only without progress.
    pub windup: String,
    /// Used in the first fifth of the iterations of a task of complexity 7 or more.
    pub early: String,
    /// Used for tasks that concern security or break compatibility.
    pub sensitive: String,
    /// Used for tasks of complexity 3 or less.
    pub simple: String,
    /// Used for all other tasks.
    pub otherwise: String,
}

impl Default for ProfileSchedule {
    fn default() -> Self {
        Self {
            regressing: "conservative".to_owned(),
            oscillating: "damped".to_owned(),
            near_completion: "cautious".to_owned(),
            stuck: "recovery".to_owned(),
            windup: "recovery".to_owned(),
            early: "exploration".to_owned(),
            sensitive: "conservative".to_owned(),
            simple: "aggressive".to_owned(),
            otherwise: "standard".to_owned(),
        }
    }
}
