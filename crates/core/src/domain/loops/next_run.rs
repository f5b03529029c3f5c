//! Plan of supervision for the next agent run.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::domain::supervision::SupervisionReview;
use crate::domain::supervision::control::{Breadth, ModelTier};
use crate::domain::supervision::oversight::Directive;
use crate::domain::supervision::strategy::WorkPriority;

/// Plan of supervision for the next agent run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NextRunPlan {
    /// Directives of the overseer.
    pub directives: Vec<Directive>,
    /// Advice of control and strategy.
    pub advice: Vec<String>,
    /// Factor for the usual time and number of turns of a run.
    pub effort: f64,
    /// Model tier.
    pub model: ModelTier,
    /// Amount of work that the agent should do.
    pub breadth: Breadth,
    /// Share of the context reserved for memory, 0..1.
    pub memory_share: f64,
    /// Names of the failing checks. Those that most others depend on come first.
    #[serde(default)]
    pub checks: Vec<String>,
    /// Open blockers in the agent's words, the most frequent one first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blockers: Vec<String>,
}

impl NextRunPlan {
    /// Creates the plan that follows from a review.
    pub(in crate::domain) fn of(review: &SupervisionReview) -> Self {
        let control = &review.control;
        let mut advice = control.prompt_adjustments.clone();
        advice.extend(review.plan.adjustments.iter().cloned());
        advice.extend(review.after.iter().filter_map(|issue| issue.advice.clone()));
        let (mut checks, mut blockers) = (Vec::new(), Vec::new());
        for priority in &review.plan.priorities {
            match priority {
                WorkPriority::Check(name) => checks.push(name.clone()),
                WorkPriority::Blocker(text) => blockers.push(text.clone()),
                // The prompt has the comments themselves.
                WorkPriority::Review(_) => {}
            }
        }
        Self {
            directives: review.verdict.directives.clone(),
            advice,
            effort: control.actuation.effort,
            model: review.model(),
            breadth: control.actuation.breadth,
            memory_share: control.actuation.memory_share,
            checks,
            blockers,
        }
    }

    /// Returns the time limit of the run. `usual` is the limit without supervision.
    pub fn wall(&self, usual: Duration) -> Duration {
        usual.mul_f64(self.sound_effort())
    }

    /// Returns the maximum number of turns of the run, at least 1. `usual` is the maximum without supervision.
    pub fn turns(&self, usual: u32) -> u32 {
        (f64::from(usual) * self.sound_effort()).round().max(1.0) as u32
    }

    /// Returns `effort`, clamped to the valid range.
    fn sound_effort(&self) -> f64 {
        if self.effort.is_nan() { 1.0 } else { self.effort.clamp(0.1, 10.0) }
    }
}
