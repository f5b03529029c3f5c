//! Validates whether an iteration may start, and how it ended.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{StateAssessment, StrategyPlan, StrategySettings, WorkPriority};
use crate::domain::model::record::Record;
use crate::domain::supervision::oversight::DetectionSeverity;

/// Problem found by a validation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IterationIssue {
    /// Severity of the problem.
    pub severity: DetectionSeverity,
    /// Message, a sentence without a full stop.
    pub text: String,
    /// Advice for the agent in one sentence; `None` if there is none.
    pub advice: Option<String>,
}

impl IterationIssue {
    fn new(severity: DetectionSeverity, text: String) -> Self {
        Self { severity, text, advice: None }
    }
}

/// Result of the validation before an iteration.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PreValidation {
    /// Problems.
    pub issues: Vec<IterationIssue>,
}

impl PreValidation {
    /// Whether a problem requires a pause instead of the next iteration.
    pub fn stops(&self) -> bool {
        self.issues.iter().any(|issue| issue.severity == DetectionSeverity::Critical)
    }
}

/// Validates whether the next iteration may start. `forecast` is control's estimate of the remaining iterations; `None` if
/// unknown.
pub fn validate_before(
    plan: &StrategyPlan,
    assessment: &StateAssessment,
    forecast: Option<f64>,
    settings: &StrategySettings,
) -> PreValidation {
    let mut found = PreValidation::default();
    found.issues.extend(unaddressed(plan, assessment));
    if assessment.budget_used > settings.budget_critical {
        let fits = forecast.is_some_and(|forecast| forecast <= assessment.iterations_left);
        let severity = if fits { DetectionSeverity::Low } else { DetectionSeverity::Critical };
        let forecast = match forecast {
            Some(forecast) => format!("{forecast} more iterations are needed"),
            None => "the number of further iterations is unknown".to_owned(),
        };
        let used = assessment.budget_used * 100.0;
        found.issues.push(IterationIssue::new(severity, format!("{used:.0} % of the budget is used, and {forecast}")));
    }
    found
}

/// Returns an issue if the plan does not address an open blocker.
fn unaddressed(plan: &StrategyPlan, assessment: &StateAssessment) -> Option<IterationIssue> {
    let planned: BTreeSet<&String> = plan
        .priorities
        .iter()
        .filter_map(|priority| match priority {
            WorkPriority::Blocker(text) => Some(text),
            WorkPriority::Check(_) | WorkPriority::Review(_) => None,
        })
        .collect();
    let mut unplanned = assessment.blockers.iter().map(|blocker| &blocker.text).filter(|text| !planned.contains(text));
    let first = unplanned.next()?;
    let more = match unplanned.count() {
        0 => String::new(),
        others => format!(" and {others} more"),
    };
    Some(IterationIssue::new(DetectionSeverity::Medium, format!("the plan does not address a blocker: {first}{more}")))
}

/// Returns the problems with the end of an iteration.
pub fn validate_after(record: &Record, settings: &StrategySettings) -> Vec<IterationIssue> {
    let mut found = Vec::new();
    // No advice here, because the agent receives the statistics of its claims (`intelligence::ClaimSums`).
    if record.completion_signal && !record.is_finished() {
        found.push(IterationIssue::new(
            DetectionSeverity::Medium,
            "the agent reports completion, but checks fail".to_owned(),
        ));
    }
    let failed_checks = record.checks.iter().filter(|check| !check.passed).count();
    let tool_errors = record.errors - failed_checks as f64;
    if tool_errors > f64::from(settings.tool_errors) {
        let text = format!("{tool_errors} errors of the agent's tools");
        let advice = format!(
            "Failed tool calls in the last iteration: {tool_errors}. Read the errors before you call tools again."
        );
        found.push(IterationIssue { advice: Some(advice), ..IterationIssue::new(DetectionSeverity::Medium, text) });
    }
    if record.quality < settings.min_quality {
        let text = format!("quality is {:.2}", record.quality);
        let advice = "Quality dropped: fix what linters and type checks report, and leave checks and tests as strict as \
                      they were.";
        found.push(IterationIssue {
            advice: Some(advice.to_owned()),
            ..IterationIssue::new(DetectionSeverity::Medium, text)
        });
    }
    found
}
