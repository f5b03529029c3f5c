//! Plan gate before the first iteration: the agent makes a plan, and only after its approval does the loop implement.

use super::{StepContext, report};
use crate::domain::lifecycle::effect::{ChannelEffect, ForgeEffect, TimerEffect, WorkEffect};
use crate::domain::loops::{LoopState, LoopStep, ProposedPlan, TimerKind};
use crate::domain::report::notice::{Notice, Occasion};

/// Runs the agent to make a plan.
pub(super) fn start(turn: &mut StepContext) {
    let attempt = turn.next.knowledge.planning.as_ref().map_or(0, |planning| planning.runs.len()) as u32 + 1;
    turn.because("a plan is made first");
    turn.push(ForgeEffect::Status { fresh: false });
    turn.work(LoopStep::Plan, |ticket| WorkEffect::Plan { ticket, attempt });
}

/// Waits for the approval of a plan. Channels are notified once per plan, and people are reminded once if no answer arrives.
pub(super) fn ask(turn: &mut StepContext, plan: &ProposedPlan) {
    let hash = plan.short_hash();
    let (state, why) = match plan.plan.questions.len() {
        0 => (LoopState::NeedsApproval, format!("the plan `{hash}` needs an approval")),
        1 => (LoopState::NeedsAnswer, format!("the plan `{hash}` has a question")),
        count => (LoopState::NeedsAnswer, format!("the plan `{hash}` has {count} questions")),
    };
    turn.go(state, &why);
    let planning = turn.next.knowledge.planning.get_or_insert_default();
    let (is_new, remind) = (planning.notified != plan.number, planning.reminded != plan.number);
    planning.notified = plan.number;
    if is_new {
        notify(turn, plan, Occasion::Raised);
    }
    if remind {
        let at = turn.now.plus_ms(turn.next.settings.policy.remind_after_ms());
        turn.push(TimerEffect::Set { kind: TimerKind::Remind, at });
    }
}

/// Reminds people of an unanswered plan, once per plan.
pub(super) fn remind(turn: &mut StepContext) {
    let Some(plan) = turn.next.knowledge.waiting_plan().cloned() else {
        return turn.because("no plan needs an approval");
    };
    let planning = turn.next.knowledge.planning.get_or_insert_default();
    if planning.reminded == plan.number {
        return turn.because("people were already reminded of the plan");
    }
    planning.reminded = plan.number;
    turn.because(format!("no answer yet about the plan `{}`", plan.short_hash()));
    let view = report::plan_reminder(&turn.next, &plan);
    turn.comment(&format!("plan-reminder/{}", plan.number), view);
    notify(turn, &plan, Occasion::Reminder);
}

/// Notifies channels that a plan is waiting for a person.
fn notify(turn: &mut StepContext, plan: &ProposedPlan, occasion: Occasion) {
    let notice = Notice::plan(occasion, &turn.next, plan, turn.now);
    turn.push(ChannelEffect::Warn { notice: Box::new(notice) });
}
