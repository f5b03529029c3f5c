//! Strategy: plans the next iteration with rules from the results of earlier ones, without a model.
//!
//! [`validate_after`] examines the end of the last iteration, [`assess`] determines the loop's state, [`plan`] chooses an
//! approach, and [`validate_before`] checks whether the next iteration may start.

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
        /// Share of the budget below which the loop is in its early phase.
        #[schemars(skip)]
        pub early: f64 = 0.2, in 0.0..=1.0, below late;
        /// Share of the budget above which the loop is in its late phase.
        #[schemars(skip)]
        pub late: f64 = 0.8, in 0.0..=1.0;
        /// Completion above which the agent only works on failing checks.
        #[schemars(skip)]
        pub near_completion: f64 = 0.8, in 0.0..=1.0;
        /// Minimum gain of completion that counts as progress.
        #[schemars(skip)]
        pub min_progress: f64 = 0.02, in 0.0..=1.0, below near_completion;
        /// Number of iterations without progress after which the loop asks a person.
        pub escalation_threshold: u32 = 12, in 1..=100;
        /// Maximum of `escalation_threshold`, as a share of the loop's maximum number of iterations. 0 means no
        /// maximum, and is the default if the file sets `escalation_threshold`.
        #[schemars(skip)]
        pub limit_share: f64 = 0.7, in 0.0..=1.0;
        /// Number of iterations that have to name a blocker before it becomes the goal.
        #[schemars(skip)]
        pub blocker_count: u32 = 2, in 1..=100, at_most escalation_threshold;
        /// Number of iterations before an approach is replaced by the next one.
        #[schemars(skip)]
        pub patience: u32 = 2, in 1..=100, at_most escalation_threshold;
        /// Share of the budget above which the loop continues only if the forecast fits.
        #[schemars(skip)]
        pub budget_critical: f64 = 1.0, in 0.0..=1.0;
        /// Number of failed tool calls in an iteration above which the next prompt mentions them.
        #[schemars(skip)]
        pub tool_errors: u32 = 5, in 0..=10_000;
        /// Quality below which the next prompt mentions it.
        #[schemars(skip)]
        pub min_quality: f64 = 0.5, in 0.0..=1.0;
        /// Condition under which the remaining work is not worth its cost.
        pub outlook: OutlookSettings => section;
    }
}

config_section! {
    /// Rules for giving up before a limit is reached.
    pub struct OutlookSettings {
        /// Whether a loop stops, as at a limit, when the remaining work is not worth its likely cost. By default, a loop
        /// continues to its limits.
        pub enabled: bool = false;
        /// Value of a finished task, in typical iterations.
        pub task_value: f64 = 40.0, in 0.0..=1_000_000.0;
        /// Minimum number of steps forward, after the first iteration, to measure the rate of progress.
        #[schemars(skip)]
        pub steps: u32 = 3, in 1..=100;
        /// Margin in favor of the loop, in standard deviations of its forecast.
        #[schemars(skip)]
        pub benefit: f64 = 1.0, in -10.0..=10.0;
        /// Number of iterations after a REDIRECT in which the rate of progress is not judged.
        #[schemars(skip)]
        pub after_redirect: u32 = 3, in 0..=100;
        /// Number of iterations without a step, since a person resumed the loop, after which it gives up; 0 means never.
        #[schemars(skip)]
        pub guided_iterations: u32 = 3, in 0..=100;
        /// First iteration (counted from the second) in which earlier loops of the repository are considered; 0: never.
        #[schemars(skip)]
        pub learned_after_iterations: u32 = 4, in 0..=100;
        /// Number of iterations in which a loop shows whether it resembles an earlier one that was not worth its cost.
        /// At most these iterations count as lost if it does.
        #[schemars(skip)]
        pub trial_iterations: u32 = 3, in 0..=100;
    }
}

impl Settings for StrategySettings {
    const GROUP: &'static str = "strategy";
}

/// Maximum number of stored approaches. It exceeds the number of existing approaches.
const MAX_TRIED: usize = 50;

/// State of strategy for a loop.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StrategyState {
    /// Tried approaches, oldest first.
    pub tried: Vec<Tried>,
    /// Iteration after which a person last resumed the loop.
    pub resumed: Option<u32>,
}

/// Tried approach.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tried {
    /// Name of the approach.
    pub name: String,
    /// Cause of the attempt: a rule, or the cause of a REDIRECT.
    pub cause: String,
    /// First iteration of the attempt.
    pub since: u32,
}

impl StrategyState {
    /// Whether the approach with this name was tried.
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
