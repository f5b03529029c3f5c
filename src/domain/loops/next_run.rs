//! What the next run of an agent is to be like.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::domain::supervision::Review;
use crate::domain::supervision::control::{Breadth, ModelTier};
use crate::domain::supervision::strategy::Priority;

/// What supervision wants of the next run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NextRunPlan {
    /// Warnings and orders of the overseer.
    pub directives: Vec<String>,
    /// Further sentences of control and strategy.
    pub advice: Vec<String>,
    /// Factor of the usual time and turns.
    pub effort: f64,
    /// Tier of the model.
    pub model: ModelTier,
    /// How much to take on.
    pub breadth: Breadth,
    /// Part of the context that memory gets, 0..1.
    pub memory_share: f64,
    /// Names of the failing checks, those that most others wait for first.
    #[serde(default)]
    pub checks: Vec<String>,
}

impl NextRunPlan {
    /// What a review comes to for the next run.
    pub(in crate::domain) fn of(review: &Review) -> Self {
        let control = &review.control;
        let mut advice = control.prompt_adjustments.clone();
        advice.extend(review.plan.adjustments.iter().cloned());
        advice.extend(review.after.iter().filter_map(|issue| issue.advice.clone()));
        let checks = review.plan.priorities.iter().filter_map(|priority| match priority {
            Priority::Check(name) => Some(name.clone()),
            Priority::Blocker(_) | Priority::Review(_) => None,
        });
        Self {
            directives: review.verdict.directives.clone(),
            advice,
            effort: control.actuation.effort,
            model: review.model(),
            breadth: control.actuation.breadth,
            memory_share: control.actuation.memory_share,
            checks: checks.collect(),
        }
    }

    /// Time limit of a run that usually gets `usual`.
    pub fn wall(&self, usual: Duration) -> Duration {
        usual.mul_f64(self.sound_effort())
    }

    /// Turns of a run that usually gets `usual`, at least one.
    pub fn turns(&self, usual: u32) -> u32 {
        (f64::from(usual) * self.sound_effort()).round().max(1.0) as u32
    }

    /// As far as a valid law goes, whatever was stored.
    fn sound_effort(&self) -> f64 {
        if self.effort.is_nan() { 1.0 } else { self.effort.clamp(0.1, 10.0) }
    }
}
