//! A plan before the first iteration: it is made, waits for an approval, and only then the loop implements.

use super::next_iteration::{next_iteration, run_agent};
use super::schedule::{self, RefusalHandling};
use super::waits::{wait, wait_for_backend};
use super::{StepContext, report};
use crate::domain::lifecycle::effect::Effect;
use crate::domain::loops::{
    AgentEnd, AgentRunFacts, LoopLimit, LoopState, LoopStep, PlanRun, Planning, ProposedPlan, WaitReason,
};
use crate::domain::model::ids::Money;
use crate::domain::model::plan::TaskPlan;
use crate::domain::supervision::oversight::{AuditEntry, AuditEvent};
use crate::domain::trust::sanitize;

/// Maximum number of runs in a row that make no plan.
pub(super) const MAX_FAILED_PLANS: u32 = 3;

/// Has a plan made, or waits until the newest one is approved.
pub(super) fn comes_first(turn: &mut StepContext) {
    match turn.next.waiting_plan().cloned() {
        Some(plan) => ask(turn, &plan),
        None => run_agent(turn),
    }
}

/// Runs the agent for a plan.
pub(super) fn start(turn: &mut StepContext) {
    let attempt = turn.next.planning.as_ref().map_or(0, |planning| planning.runs.len()) as u32 + 1;
    turn.because("a plan is made first");
    turn.effects.push(Effect::Status { fresh: false });
    turn.work(LoopStep::Plan, |ticket| Effect::Plan { ticket, attempt });
}

/// Handles the end of a run that was to make a plan. What it changed in the tree was discarded.
pub(super) fn ended(turn: &mut StepContext, run: AgentRunFacts) {
    if turn.next.step != LoopStep::Plan {
        return turn.because("a plan that was not requested was ignored");
    }
    let plan = plan_of(&run);
    let ran = PlanRun { served: run.served, cost: run.cost.unwrap_or_default().max(Money(0)) };
    planning(turn).runs.push(ran);
    let reason = match run.end {
        AgentEnd::Finished => match plan {
            Ok(plan) => return proposed(turn, plan),
            Err(problem) => problem,
        },
        AgentEnd::Unavailable { reason } => {
            let advice = "check that the agent is installed and logged in (`ralph-bot check`), then `/ralph plan`";
            return turn.fail(&format!("the agent cannot make a plan: {reason}"), advice);
        }
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

/// Handles a run that made no plan: it is repeated a limited number of times, and told why.
pub(super) fn missed(turn: &mut StepContext, reason: String) {
    turn.next.wait = None;
    turn.because(format!("no plan was made: {reason}"));
    let planning = planning(turn);
    planning.failed += 1;
    planning.problem.clone_from(&reason);
    if planning.failed < MAX_FAILED_PLANS {
        return next_iteration(turn);
    }
    planning.failed = 0;
    let why = format!("the agent made no plan in {MAX_FAILED_PLANS} runs, at last because of this: {reason}");
    turn.fail(&why, "nothing was changed; fix the cause, then `/ralph plan` with wishes, or `/ralph abort`");
}

/// Posts a new plan and waits for its approval.
fn proposed(turn: &mut StepContext, plan: TaskPlan) {
    (turn.next.wait, turn.next.limited_tries) = (None, 0);
    let at = turn.now;
    let planning = planning(turn);
    let number = planning.proposed.as_ref().map_or(0, |earlier| earlier.number) + 1;
    let new = ProposedPlan { number, hash: plan.hash(), plan, at };
    (planning.failed, planning.another) = (0, false);
    planning.problem.clear();
    planning.proposed = Some(new.clone());
    let entry = format!("plan {number} was proposed, hash {}", new.hash);
    turn.audit(vec![AuditEntry::new(turn.next.spent.iterations, AuditEvent::Planned, entry)]);
    ask(turn, &new);
    let view = report::plan(&turn.next, &new);
    turn.comment(&format!("plan/{number}"), view);
}

/// Waits for the approval of a plan.
fn ask(turn: &mut StepContext, plan: &ProposedPlan) {
    let hash = plan.short_hash();
    let (state, why) = match plan.plan.questions.len() {
        0 => (LoopState::NeedsApproval, format!("the plan `{hash}` waits to be approved")),
        1 => (LoopState::NeedsAnswer, format!("the plan `{hash}` asks a question")),
        count => (LoopState::NeedsAnswer, format!("the plan `{hash}` asks {count} questions")),
    };
    turn.go(state, &why);
}

/// Returns the plan of a run without text that people would not see in its comment, or what is wrong with it.
fn plan_of(run: &AgentRunFacts) -> Result<TaskPlan, String> {
    let reported = run.report.as_ref().and_then(|report| report.plan.clone());
    let plan = reported.or_else(|| TaskPlan::in_message(&run.message));
    let plan = plan
        .ok_or("the agent wrote no `plan` to its report")?
        .cleaned(|text| sanitize::for_prompt(text).text, sanitize::visible);
    plan.problem().map_or(Ok(plan), Err)
}

fn planning(turn: &mut StepContext) -> &mut Planning {
    turn.next.planning.get_or_insert_default()
}
