//! Plan of the next iteration, determined by the first matching rule.

use serde::{Deserialize, Serialize};

use super::{StateAssessment, StrategySettings, StrategyState};
use crate::domain::model::signature::normalize;
use crate::domain::supervision::oversight::{Basis, Intervention};

/// Alternative approaches, each with a name and an instruction for the agent.
const PIVOTS: [(&str, &str); 7] = [
    (
        "find the cause first",
        "Before changing anything, read the failing check and the code it calls, and write down the cause.",
    ),
    ("minimal reproduction", "Write the smallest input that shows the first failure, and work with that alone."),
    ("revert and redo", "Revert the last changes to the files concerned, and redo them in a different way."),
    ("observe at run time", "Print the values where they go wrong, run, read, fix; then remove the printing."),
    (
        "follow an example",
        "Find a place in this repository that does something similar and works, and do it the same way.",
    ),
    ("different layer", "Solve it in the caller, the data or the interface, not where it was tried so far."),
    ("smallest step", "Make one failing test pass with the least code, however plain; then the next."),
];

/// Approach of the next iteration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Approach {
    /// Continue as before.
    Persist,
    /// A different approach.
    Pivot,
    /// Smaller steps.
    Simplify,
    /// Wait for a person.
    Escalate,
}

/// Inputs of a plan.
#[derive(Debug, Clone, Copy)]
pub struct PlanInput<'a> {
    /// Assessment of the loop's current state.
    pub assessment: &'a StateAssessment,
    /// Active REDIRECT, if any
    /// ([`OversightVerdict::redirect`](crate::domain::supervision::oversight::OversightVerdict::redirect)).
    pub redirect: Option<&'a Intervention>,
    /// Whether the loop is stuck.
    pub stuck: bool,
    /// Whether the loop oscillates.
    pub oscillating: bool,
    /// Open review comments, oldest first.
    pub reviews: &'a [String],
    /// Reflections and antipatterns that describe failures. An approach named in one of them is not proposed.
    pub failed: &'a [String],
}

/// Item to work on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "text", rename_all = "snake_case")]
pub enum WorkPriority {
    /// Failing check, by name.
    Check(String),
    /// Blocker in the agent's words.
    Blocker(String),
    /// Review comment.
    Review(String),
}

/// Plan of the next iteration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StrategyPlan {
    /// Approach of the plan.
    pub approach: Approach,
    /// Name of the approach; empty if the loop continues as before.
    pub name: String,
    /// Reason of the plan.
    pub reasoning: String,
    /// Priorities, most important first.
    pub priorities: Vec<WorkPriority>,
    /// Additional sentences for the prompt.
    pub adjustments: Vec<String>,
}

impl StrategyPlan {
    fn new(approach: Approach, name: &str, reasoning: String, adjustments: &[&str]) -> Self {
        let adjustments = adjustments.iter().map(|text| (*text).to_owned()).collect();
        Self { approach, name: name.to_owned(), reasoning, priorities: Vec::new(), adjustments }
    }
}

/// Plans the next iteration, and stores the proposed approach in the state.
pub fn plan(state: &mut StrategyState, situation: &PlanInput<'_>, settings: &StrategySettings) -> StrategyPlan {
    let rules = [no_progress, redirected, blocked, stuck, oscillating, nearly_done];
    let first = rules.iter().find_map(|rule| rule(state, situation, settings));
    let mut plan = first.unwrap_or_else(|| {
        StrategyPlan::new(Approach::Persist, "", "the loop makes progress or has just started".to_owned(), &[])
    });
    plan.priorities = priorities(situation);
    if plan.approach == Approach::Persist && situation.assessment.progress > settings.near_completion {
        plan.priorities.retain(|priority| matches!(priority, WorkPriority::Check(_)));
    }
    plan
}

type RuleResult = Option<StrategyPlan>;

fn no_progress(_: &mut StrategyState, situation: &PlanInput<'_>, _: &StrategySettings) -> RuleResult {
    let without = situation.assessment.without_progress;
    let reasoning = format!("no progress for {without} iterations");
    (without >= situation.assessment.escalates_after).then(|| StrategyPlan::new(Approach::Escalate, "", reasoning, &[]))
}

fn redirected(state: &mut StrategyState, situation: &PlanInput<'_>, settings: &StrategySettings) -> RuleResult {
    let redirect = situation.redirect?;
    let because = format!("the overseer redirected the loop: {}", redirect.reason);
    let plan = pivot(state, situation, settings, redirect.kind.name(), &because);
    // Text alone does not stop a loop, neither through the overseer nor for lack of another approach.
    (plan.approach != Approach::Escalate || redirect.basis != Basis::Words).then_some(plan)
}

/// Plans to resolve a repeatedly named blocker. Each blocker is planned for only once.
fn blocked(state: &mut StrategyState, situation: &PlanInput<'_>, settings: &StrategySettings) -> RuleResult {
    let iteration = situation.assessment.iteration;
    let repeated = situation.assessment.blockers.iter().filter(|blocker| blocker.seen >= settings.blocker_count);
    let mut named = repeated.map(|blocker| (format!("blocker: {}", normalize(&blocker.text)), blocker));
    let current = |state: &StrategyState, name: &str| {
        state
            .tried
            .last()
            .is_some_and(|tried| tried.name == name && iteration < tried.since.saturating_add(settings.patience))
    };
    let (name, blocker) = named.find(|(name, _)| !state.has_tried(name) || current(state, name))?;
    state.remember(&name, "blocker", iteration);
    let reasoning = format!("this blocked the work in {} iterations: {}", blocker.seen, blocker.text);
    let step = format!("First resolve this blocker: {}", blocker.text);
    Some(StrategyPlan::new(Approach::Pivot, &name, reasoning, &[&step]))
}

fn stuck(state: &mut StrategyState, situation: &PlanInput<'_>, settings: &StrategySettings) -> RuleResult {
    situation.stuck.then(|| pivot(state, situation, settings, "stuck", "the loop is stuck"))
}

fn oscillating(_: &mut StrategyState, situation: &PlanInput<'_>, _: &StrategySettings) -> RuleResult {
    let step = "Make one change at a time, and run the first failing check after each.";
    let reasoning = "the loop oscillates".to_owned();
    situation.oscillating.then(|| StrategyPlan::new(Approach::Simplify, "one change at a time", reasoning, &[step]))
}

fn nearly_done(_: &mut StrategyState, situation: &PlanInput<'_>, settings: &StrategySettings) -> RuleResult {
    let progress = situation.assessment.progress;
    let step = "Work only on what still fails, and leave everything else as it is.";
    let reasoning = format!("{:.0} % are done", progress * 100.0);
    (progress > settings.near_completion).then(|| StrategyPlan::new(Approach::Persist, "", reasoning, &[step]))
}

/// Plans the approach for a cause. Keeps the current approach until its iterations are used up or a new REDIRECT requests
/// another one. Then selects the first approach that was neither tried nor reported as failed. Without such an approach,
/// plans to ask a person. The prompt contains the approach's name, so that the agent can refer to it.
fn pivot(
    state: &mut StrategyState,
    situation: &PlanInput<'_>,
    settings: &StrategySettings,
    cause: &str,
    because: &str,
) -> StrategyPlan {
    let iteration = situation.assessment.iteration;
    let again = situation.redirect.is_some_and(|redirect| redirect.fresh);
    let present = state
        .tried
        .last()
        .filter(|tried| !again && tried.cause == cause && iteration < tried.since.saturating_add(settings.patience));
    let present = present.and_then(|tried| PIVOTS.iter().find(|(name, _)| *name == tried.name));
    let failed = |name: &str| situation.failed.iter().any(|text| text.to_lowercase().contains(name));
    let next = || PIVOTS.iter().find(|(name, _)| !state.has_tried(name) && !failed(name));
    let tried: Vec<&str> = state.tried.iter().map(|tried| tried.name.as_str()).collect();
    let before = if tried.is_empty() { String::new() } else { format!("; tried before: {}", tried.join(", ")) };
    match present.or_else(next) {
        Some((name, step)) => {
            let reasoning = format!("{because}{before}");
            state.remember(name, cause, iteration);
            StrategyPlan::new(Approach::Pivot, name, reasoning, &[&format!("{name}: {step}")])
        }
        None => StrategyPlan::new(Approach::Escalate, "", format!("{because}, and no approach is left{before}"), &[]),
    }
}

fn priorities(situation: &PlanInput<'_>) -> Vec<WorkPriority> {
    let checks = situation.assessment.failing.iter().map(|check| WorkPriority::Check(check.name.clone()));
    let blockers = situation.assessment.blockers.iter().map(|blocker| WorkPriority::Blocker(blocker.text.clone()));
    let reviews = situation.reviews.iter().map(|text| WorkPriority::Review(text.clone()));
    checks.chain(blockers).chain(reviews).collect()
}
