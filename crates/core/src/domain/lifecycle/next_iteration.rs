//! Start of iterations. Limits and pauses take precedence, then a plan, then a pending merge, then the agent.

use super::{StepContext, hooks, plan_gate, refusals};
use crate::domain::lifecycle::effect::{ForgeEffect, WorkEffect};
use crate::domain::loops::{
    Guidance, Iteration, IterationKind, LoopLimit, LoopStep, MergeWith, iterations_used, named_paths,
};
use crate::domain::model::hook::HookEvent;

/// Starts the next iteration, unless a pause, a limit, a plan or a merge takes precedence.
pub(super) fn next_iteration(turn: &mut StepContext) {
    if let Some(why) = turn.next.run.pause_wanted.take() {
        return turn.pause_at_best(&why);
    }
    if refusals::pauses_without_pull(turn) {
        return;
    }
    let limits = turn.next.limits;
    match turn.next.exhausted_limit(turn.now) {
        None => {}
        Some(limit @ LoopLimit::Iterations) => {
            let open = match turn.next.open_paths() {
                paths if paths.is_empty() => String::new(),
                paths => format!(", and the tests in {} are weaker than before", named_paths(&paths)),
            };
            return turn.reach_limit(limit, &format!("{}{open}", iterations_used(limits.iterations)));
        }
        Some(limit @ LoopLimit::Time) => return turn.reach_limit(limit, "the time limit is reached"),
        Some(limit) => return turn.reach_limit(limit, &format!("the budget of {} is used", limits.cost)),
    }
    if turn.next.knowledge.lacks_approval() {
        return match turn.next.knowledge.waiting_plan().cloned() {
            Some(plan) => plan_gate::ask(turn, &plan),
            None => run_agent(turn),
        };
    }
    if let Some(wanted) = turn.next.branch.merge_wanted().cloned() {
        let other = match wanted {
            MergeWith::Base => None,
            MergeWith::Pushed(commit) => Some(commit),
        };
        return turn.work(LoopStep::Merge, |ticket| WorkEffect::Merge { ticket, other });
    }
    if !apply_suggestions(turn) {
        begin_iteration(turn);
    }
}

/// Starts an iteration that applies the suggested changes. Returns whether there are any.
fn apply_suggestions(turn: &mut StepContext) -> bool {
    if turn.next.requests.suggestions.is_empty() {
        return false;
    }
    let changes = turn.next.requests.suggestions.clone();
    if let Some(iteration) = open_own_iteration(turn, IterationKind::Suggestions) {
        // The agent's knowledge of these files is outdated.
        turn.next.agent.session = None;
        turn.work(LoopStep::Commit, |ticket| WorkEffect::ApplySuggestions { ticket, iteration, changes });
    }
    true
}

/// Opens an iteration and runs its agent, unless the overseer paused the loop.
pub(super) fn begin_iteration(turn: &mut StepContext) {
    // The overseer's pause lasts until a person resumes the loop, independently of later inputs.
    if turn.next.run.halting.is_some()
        || turn.next.supervision.state.as_ref().is_some_and(|known| known.overseer.is_held())
    {
        return turn.halt();
    }
    let guidance = std::mem::take(&mut turn.next.requests.guidance);
    if open_iteration(turn, guidance).is_some() {
        run_agent(turn);
    }
}

/// Opens the next iteration, with `guidance` for its prompt. Returns its number; `None` if the loop failed.
fn open_iteration(turn: &mut StepContext, guidance: Vec<Guidance>) -> Option<u32> {
    let Some(parent) = turn.next.branch.head.clone() else {
        turn.fail("the loop has no commit to work on", "this is a defect of the service; please report it");
        return None;
    };
    let number = turn.next.spent.iterations.saturating_add(1);
    turn.next.spent.iterations = number;
    turn.next.iterations.push(Iteration::new(number, turn.now, parent, guidance));
    turn.because(format!("iteration {number} starts"));
    turn.push(ForgeEffect::Status { fresh: false });
    Some(number)
}

/// Opens the next iteration for work that the service does without an agent. Guidance is kept for a later iteration.
pub(super) fn open_own_iteration(turn: &mut StepContext, kind: IterationKind) -> Option<u32> {
    let number = open_iteration(turn, Vec::new())?;
    let current = turn.next.current_mut()?;
    current.kind = kind;
    kind.summary().clone_into(&mut current.report.summary);
    Some(number)
}

/// Runs the agent for the current iteration or for a plan, if the hooks allow it.
pub(super) fn run_agent(turn: &mut StepContext) {
    if !hooks::ask(turn, HookEvent::BeforeAgent) {
        start_agent(turn);
    }
}

/// Runs the agent for the current iteration, or for a plan if one is required first.
pub(super) fn start_agent(turn: &mut StepContext) {
    if turn.next.knowledge.lacks_approval() {
        return plan_gate::start(turn);
    }
    let Some((iteration, attempt)) = turn.next.current().map(|current| (current.number, current.attempt)) else {
        return turn.because("there is no iteration to run an agent for");
    };
    turn.work(LoopStep::Agent, |ticket| WorkEffect::Agent { ticket, iteration, attempt });
}
