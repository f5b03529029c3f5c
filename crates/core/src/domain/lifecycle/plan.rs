//! Outcomes of agent runs that make a plan before the first iteration.

use ralph_types::failure::Failure;

use super::next_iteration::next_iteration;
use super::schedule::{self, RefusalHandling};
use super::waits::{declined, wait, wait_for_backend};
use super::{StepContext, plan_gate, report};
use crate::domain::loops::{AgentEnd, AgentRunFacts, LoopLimit, LoopStep, PlanRun, Planning, ProposedPlan, WaitReason};
use crate::domain::model::ids::Money;
use crate::domain::model::plan::TaskPlan;
use crate::domain::supervision::oversight::{AuditEntry, AuditEvent};
use crate::domain::trust::{outbound, sanitize};

/// Maximum number of consecutive runs that make no plan.
pub(super) const MAX_FAILED_PLANS: u32 = 3;

/// Handles the end of an agent run for a plan. The run's changes to the tree were discarded.
pub(super) fn ended(turn: &mut StepContext, run: AgentRunFacts) {
    if turn.next.run.step != LoopStep::Plan {
        return turn.because("a plan that was not requested was ignored");
    }
    let plan = plan_of(&run);
    let ran = PlanRun { served: run.served, cost: run.cost.unwrap_or_default().max(Money(0)) };
    planning(turn).runs.push(ran);
    let reason = match run.end {
        AgentEnd::Finished => match plan {
            Ok(plan) => return proposed(turn, plan),
            Err(problem) => problem.to_string(),
        },
        AgentEnd::Unavailable { reason } => {
            let advice = "check that the agent is installed and logged in (`ralph-bot check`), then `/ralph plan`";
            return turn.fail(&format!("the agent cannot make a plan: {reason}"), advice);
        }
        AgentEnd::Declined { reason } => return declined(turn, &reason),
        AgentEnd::Limited { until, reason } => match schedule::act_on_refusal(turn) {
            RefusalHandling::Waits => return wait_for_backend(turn, until, &reason),
            RefusalHandling::Retried => return next_iteration(turn),
            RefusalHandling::Stopped => return,
        },
        AgentEnd::NoMoney { reason, until: Some(at) } => return wait(turn, WaitReason::Money, at, &reason),
        AgentEnd::NoMoney { reason, until: None } => return turn.reach_limit(LoopLimit::Money, &reason),
        AgentEnd::Failed { reason } => reason,
        AgentEnd::TimedOut { what } => format!("it was stopped: {what}"),
        AgentEnd::Cancelled => "it was stopped".to_owned(),
        AgentEnd::OverBudget => "it was stopped at the cost limit".to_owned(),
    };
    missed(turn, reason);
}

/// Handles a run that made no plan. The run is repeated a limited number of times, with the reason in the prompt.
pub(super) fn missed(turn: &mut StepContext, reason: String) {
    turn.next.run.wait = None;
    turn.because(format!("no plan was made: {reason}"));
    let planning = planning(turn);
    planning.failed += 1;
    planning.problem.clone_from(&reason);
    if planning.failed < MAX_FAILED_PLANS {
        return next_iteration(turn);
    }
    planning.failed = 0;
    let why = format!("the agent made no plan in {MAX_FAILED_PLANS} runs, the last reason: {reason}");
    turn.fail(&why, "the work is unchanged; fix the cause, then `/ralph plan` with wishes, or `/ralph abort`");
}

/// Posts a new plan and waits for its approval.
fn proposed(turn: &mut StepContext, plan: TaskPlan) {
    (turn.next.run.wait, turn.next.agent.limited_tries) = (None, 0);
    let at = turn.now;
    let planning = planning(turn);
    let number = planning.proposed.as_ref().map_or(0, |earlier| earlier.number) + 1;
    let new = ProposedPlan { number, hash: plan.hash(), plan, at };
    (planning.failed, planning.another) = (0, false);
    planning.problem.clear();
    planning.proposed = Some(new.clone());
    let entry = format!("plan {number} was proposed, hash {}", new.hash);
    turn.audit(vec![AuditEntry::new(turn.next.spent.iterations, AuditEvent::Planned, entry)]);
    plan_gate::ask(turn, &new);
    let view = report::plan(&turn.next, &new);
    turn.comment(&report::plan_key(&new), view);
}

/// Returns the plan of a run without text that its comment would not display. The error is the reason why there is no valid plan.
fn plan_of(run: &AgentRunFacts) -> Result<TaskPlan, Failure> {
    let reported = run.report.as_ref().and_then(|report| report.plan.clone());
    let plan = reported.or_else(|| TaskPlan::in_message(&run.message));
    let plan = plan.ok_or("the agent wrote no `plan` to its report")?;
    let plan = plan.cleaned(|text| outbound::for_people(&sanitize::without_comments(text).0), sanitize::visible);
    plan.problem().map_or(Ok(plan), |problem| Err(Failure::new(problem)))
}

fn planning(turn: &mut StepContext) -> &mut Planning {
    turn.next.knowledge.planning.get_or_insert_default()
}
