//! Gate before the first iteration: a plan is made and waits for an approval, and only then the loop implements.

use super::StepContext;
use crate::domain::lifecycle::effect::Effect;
use crate::domain::loops::{LoopState, LoopStep, ProposedPlan};

/// Runs the agent for a plan.
pub(super) fn start(turn: &mut StepContext) {
    let attempt = turn.next.planning.as_ref().map_or(0, |planning| planning.runs.len()) as u32 + 1;
    turn.because("a plan is made first");
    turn.effects.push(Effect::Status { fresh: false });
    turn.work(LoopStep::Plan, |ticket| Effect::Plan { ticket, attempt });
}

/// Waits for the approval of a plan.
pub(super) fn ask(turn: &mut StepContext, plan: &ProposedPlan) {
    let hash = plan.short_hash();
    let (state, why) = match plan.plan.questions.len() {
        0 => (LoopState::NeedsApproval, format!("the plan `{hash}` waits to be approved")),
        1 => (LoopState::NeedsAnswer, format!("the plan `{hash}` asks a question")),
        count => (LoopState::NeedsAnswer, format!("the plan `{hash}` asks {count} questions")),
    };
    turn.go(state, &why);
}
