//! Whether an iteration may start, and what to make of how it ended.

use serde::{Deserialize, Serialize};

use super::{Approach, Priority, StateAssessment, StrategyPlan, StrategySettings, StrategyState};
use crate::domain::oversight::Severity;
use crate::domain::record::Record;

/// Something that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Issue {
    /// How bad it is.
    pub severity: Severity,
    /// What, in a sentence without a full stop.
    pub text: String,
}

impl Issue {
    fn new(severity: Severity, text: impl Into<String>) -> Self {
        Self { severity, text: text.into() }
    }
}

/// What has to be mended before an iteration starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Repair {
    /// Reset the work tree to the last good commit.
    ResetTree,
    /// Remove locks that are older than the run.
    RemoveLocks,
}

/// What is known of the surroundings before an iteration.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Readiness {
    /// Whether there is at least one check that can be run.
    pub verifiable: bool,
    /// Whether the work tree has changes that are in no commit.
    pub dirty: bool,
    /// Whether git's locks are in the work tree.
    pub locked: bool,
    /// Iterations still needed, by control; `None` where there is no telling.
    pub forecast: Option<f64>,
}

/// What was found before an iteration.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PreValidation {
    /// What is not as it should be.
    pub issues: Vec<Issue>,
    /// What is mended, in this order.
    pub repairs: Vec<Repair>,
}

impl PreValidation {
    /// Whether the loop has to pause instead.
    pub fn stops(&self) -> bool {
        self.issues.iter().any(|issue| issue.severity == Severity::Critical)
    }
}

/// What was found after an iteration.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PostValidation {
    /// What is not as it should be.
    pub issues: Vec<Issue>,
    /// Whether the agent's claim to be done was right; `None` where it made none.
    pub claim: Option<bool>,
}

/// Looks whether the next iteration may start.
pub fn validate_before(
    plan: &StrategyPlan,
    assessment: &StateAssessment,
    readiness: &Readiness,
    settings: &StrategySettings,
) -> PreValidation {
    let mut found = PreValidation::default();
    if plan.approach == Approach::Pivot && plan.reasoning.trim().is_empty() {
        found.issues.push(Issue::new(Severity::High, "the plan changes the approach without a reason"));
    }
    let is_planned = |text: &String| plan.priorities.contains(&Priority::Blocker(text.clone()));
    for blocker in assessment.blockers.iter().filter(|blocker| !is_planned(&blocker.text)) {
        found
            .issues
            .push(Issue::new(Severity::Medium, format!("nothing is planned about a blocker: {}", blocker.text)));
    }
    if assessment.budget_used > settings.budget_critical {
        let fits = readiness.forecast.is_some_and(|forecast| forecast <= assessment.iterations_left);
        let severity = if fits { Severity::Low } else { Severity::Critical };
        let forecast = match readiness.forecast {
            Some(forecast) => format!("{forecast} more iterations are needed"),
            None => "there is no telling how many more iterations are needed".to_owned(),
        };
        let used = assessment.budget_used * 100.0;
        found.issues.push(Issue::new(severity, format!("{used:.0} % of the budget are used, and {forecast}")));
    }
    if !readiness.verifiable {
        found.issues.push(Issue::new(Severity::Critical, "there is no check that could say when the task is done"));
    }
    if readiness.locked {
        found.repairs.push(Repair::RemoveLocks);
    }
    if readiness.dirty {
        found.repairs.push(Repair::ResetTree);
    }
    found
}

/// Looks at how an iteration ended, and keeps score of the agent's claims.
pub fn validate_after(state: &mut StrategyState, record: &Record, settings: &StrategySettings) -> PostValidation {
    let mut found = PostValidation::default();
    let finished = record.is_finished();
    if record.completion > settings.near_completion && !finished && !record.completion_signal {
        found.issues.push(Issue::new(Severity::Low, "the work is nearly complete and the agent does not say so"));
    }
    if record.completion_signal {
        state.claims = state.claims.saturating_add(1);
        state.right_claims = state.right_claims.saturating_add(u32::from(finished));
        found.claim = Some(finished);
        if !finished {
            found.issues.push(Issue::new(Severity::Medium, "the agent says that it is done and checks fail"));
        }
    }
    let failed_checks = record.checks.iter().filter(|check| !check.passed).count();
    let tool_errors = record.errors - failed_checks as f64;
    if tool_errors > f64::from(settings.tool_errors) {
        found.issues.push(Issue::new(Severity::Medium, format!("{tool_errors} errors of the agent's tools")));
    }
    if record.quality < settings.min_quality {
        found.issues.push(Issue::new(Severity::Medium, format!("quality is {:.2}", record.quality)));
    }
    found
}
