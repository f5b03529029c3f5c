//! Strategy: what the next iteration is to be, decided by rules from what the last ones came to. No model is asked.
//!
//! [`validate_after`] looks at how the last iteration ended, [`assess`] says where the loop stands, [`plan`] chooses an
//! approach, and [`validate_before`] looks whether the next iteration may start.

mod assess;
mod outlook;
mod plan;
mod validate;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::domain::model::settings::Settings;

pub use assess::{FailingCheck, LastChange, OpenBlocker, Phase, StateAssessment, assess};
pub use outlook::Outlook;
pub use plan::{Approach, Priority, Situation, StrategyPlan, plan};
pub use validate::{Issue, PreValidation, validate_after, validate_before};

/// Thresholds of strategy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct StrategySettings {
    /// Share of the budget, less than which the loop is in its early phase, 0..1.
    pub early: f64,
    /// Share of the budget, more than which the loop is in its late phase, 0..1.
    pub late: f64,
    /// Completion, more than which only what still fails is worked on, 0..1.
    pub near_completion: f64,
    /// Completion that counts as progress, 0..1.
    pub min_progress: f64,
    /// Iterations without progress after which a person is asked.
    pub escalation_threshold: u32,
    /// Iterations in which a blocker is named before it becomes the goal.
    pub blocker_count: u32,
    /// Iterations that an approach is given before the next one.
    pub patience: u32,
    /// Share of the budget, more than which the loop goes on only where the forecast fits, 0..1.
    pub budget_critical: f64,
    /// Errors of the agent's tools in an iteration, of more than which the next prompt tells.
    pub tool_errors: u32,
    /// Quality, of less than which the next prompt tells, 0..1.
    pub min_quality: f64,
    /// When the rest is not worth its cost.
    pub outlook: OutlookSettings,
}

/// When a loop gives up before a limit stops it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct OutlookSettings {
    /// Whether a loop gives up, as at a limit, when the rest is not worth its likely cost.
    pub enabled: bool,
    /// What a finished task is worth, in usual iterations.
    pub task_worth: f64,
    /// Steps forward after the first iteration by which the pace is known.
    pub steps: u32,
    /// Benefit of the doubt for the loop, in standard deviations of its forecast.
    pub benefit: f64,
    /// Iterations after a REDIRECT during which the pace is not judged.
    pub after_redirect: u32,
    /// Iterations without a step since a person let the loop go on, after which it gives up; 0 is never.
    pub guided: u32,
    /// Iterations after the first from which on earlier loops of the repository have a say; 0 leaves them out.
    pub learnt_after: u32,
    /// Iterations within which a loop shows which of them it is like: more than these are not lost on one that is not worth
    /// its cost.
    pub learnt_within: u32,
}

impl Default for OutlookSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            task_worth: 40.0,
            steps: 3,
            benefit: 1.0,
            after_redirect: 3,
            guided: 3,
            learnt_after: 4,
            learnt_within: 3,
        }
    }
}

impl Default for StrategySettings {
    fn default() -> Self {
        Self {
            early: 0.2,
            late: 0.8,
            near_completion: 0.8,
            min_progress: 0.02,
            escalation_threshold: 12,
            blocker_count: 2,
            patience: 2,
            budget_critical: 1.0,
            tool_errors: 5,
            min_quality: 0.5,
            outlook: OutlookSettings::default(),
        }
    }
}

impl Settings for StrategySettings {
    const GROUP: &'static str = "strategy";

    const RANGES: &'static [(&'static str, f64, f64)] = &[
        ("early", 0.0, 1.0),
        ("late", 0.0, 1.0),
        ("near_completion", 0.0, 1.0),
        ("min_progress", 0.0, 1.0),
        ("escalation_threshold", 1.0, 100.0),
        ("blocker_count", 1.0, 100.0),
        ("patience", 1.0, 100.0),
        ("budget_critical", 0.0, 1.0),
        ("tool_errors", 0.0, 10_000.0),
        ("min_quality", 0.0, 1.0),
        ("outlook.task_worth", 0.0, 1_000_000.0),
        ("outlook.steps", 1.0, 100.0),
        ("outlook.benefit", -10.0, 10.0),
        ("outlook.after_redirect", 0.0, 100.0),
        ("outlook.guided", 0.0, 100.0),
        ("outlook.learnt_after", 0.0, 100.0),
        ("outlook.learnt_within", 0.0, 100.0),
    ];

    const BELOW: &'static [(&'static str, &'static str)] = &[("early", "late"), ("min_progress", "near_completion")];

    // Later than that, a person is asked before a second approach or a blocker gets its turn.
    const AT_MOST: &'static [(&'static str, &'static str)] =
        &[("patience", "escalation_threshold"), ("blocker_count", "escalation_threshold")];
}

/// Approaches that are remembered; there are fewer names than this.
const MAX_TRIED: usize = 50;

/// What strategy remembers of a loop.
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
    /// What for: the rule, or the cause of the redirect.
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
