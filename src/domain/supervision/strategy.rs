//! Strategy: what the next iteration is to be, decided by rules from what the last ones came to. No model is asked.
//!
//! [`validate_after`] looks at how the last iteration ended, [`assess`] says where the loop stands, [`plan`] chooses an
//! approach, and [`validate_before`] looks whether the next iteration may start.

mod assess;
mod outlook;
mod plan;
mod validate;

use serde::{Deserialize, Serialize};

use crate::domain::model::settings::{Settings, config_section};

pub use assess::{FailingCheck, LastChange, OpenBlocker, Phase, StateAssessment, assess};
pub use outlook::Outlook;
pub use plan::{Approach, PlanInput, StrategyPlan, WorkPriority, plan};
pub use validate::{IterationIssue, PreValidation, validate_after, validate_before};

config_section! {
    /// Thresholds of strategy.
    pub struct StrategySettings {
        /// Share of the budget, less than which the loop is in its early phase.
        pub early: f64 = 0.2, in 0.0..=1.0, below late;
        /// Share of the budget, more than which the loop is in its late phase.
        pub late: f64 = 0.8, in 0.0..=1.0;
        /// Completion, more than which only what still fails is worked on.
        pub near_completion: f64 = 0.8, in 0.0..=1.0;
        /// Completion that counts as progress.
        pub min_progress: f64 = 0.02, in 0.0..=1.0, below near_completion;
        /// Iterations without progress after which a person is asked.
        pub escalation_threshold: u32 = 12, in 1..=100;
        /// Iterations in which a blocker is named before it becomes the goal.
        pub blocker_count: u32 = 2, in 1..=100, at_most escalation_threshold;
        /// Iterations that an approach is given before the next one.
        pub patience: u32 = 2, in 1..=100, at_most escalation_threshold;
        /// Share of the budget, more than which the loop goes on only where the forecast fits.
        pub budget_critical: f64 = 1.0, in 0.0..=1.0;
        /// Errors of the agent's tools in an iteration, of more than which the next prompt tells.
        pub tool_errors: u32 = 5, in 0..=10_000;
        /// Quality, of less than which the next prompt tells.
        pub min_quality: f64 = 0.5, in 0.0..=1.0;
        /// Condition under which the remaining work is not worth its cost.
        pub outlook: OutlookSettings => section;
    }
}

config_section! {
    /// Rules for giving up before a limit is reached.
    pub struct OutlookSettings {
        /// Whether a loop gives up, as at a limit, when the rest is not worth its likely cost.
        pub enabled: bool = true;
        /// Value of a finished task, in typical iterations.
        pub task_worth: f64 = 40.0, in 0.0..=1_000_000.0;
        /// Steps forward after the first iteration by which the pace is known.
        pub steps: u32 = 3, in 1..=100;
        /// Benefit of the doubt for the loop, in standard deviations of its forecast.
        pub benefit: f64 = 1.0, in -10.0..=10.0;
        /// Iterations after a REDIRECT during which the pace is not judged.
        pub after_redirect: u32 = 3, in 0..=100;
        /// Iterations without a step since a person let the loop go on, after which it gives up; 0 is never.
        pub guided: u32 = 3, in 0..=100;
        /// Iterations after the first from which on earlier loops of the repository have a say; 0 leaves them out.
        pub learnt_after: u32 = 4, in 0..=100;
        /// Iterations within which a loop shows which of them it is like: more than these are not lost on one that is not worth
        /// its cost.
        pub learnt_within: u32 = 3, in 0..=100;
    }
}

impl Settings for StrategySettings {
    const GROUP: &'static str = "strategy";
}

/// Approaches that are remembered; there are fewer names than this.
const MAX_TRIED: usize = 50;

/// State that strategy keeps of a loop.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StrategyState {
    /// Approaches that were tried, oldest first.
    pub tried: Vec<Tried>,
    /// After which iteration a person last let the loop go on.
    pub resumed: Option<u32>,
}

/// An approach that was tried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tried {
    /// Its name.
    pub name: String,
    /// Rule, or cause of the redirect, that the attempt belongs to.
    pub cause: String,
    /// From which iteration on.
    pub since: u32,
}

impl StrategyState {
    /// Whether an approach was tried.
    pub fn has_tried(&self, name: &str) -> bool {
        self.tried.iter().any(|tried| tried.name == name)
    }

    fn remember(&mut self, name: &str, cause: &str, since: u32) {
        if !self.has_tried(name) {
            if self.tried.len() >= MAX_TRIED {
                self.tried.remove(0);
            }
            self.tried.push(Tried { name: name.to_owned(), cause: cause.to_owned(), since });
        }
    }
}

#[cfg(test)]
mod tests;
