//! Waits that end by themselves: for a backend, and for the budget of the next day.

use super::{FIRST_WAIT_MS, LONG_WAIT_MS, LONGEST_WAIT_MS, StepContext};
use crate::domain::lifecycle::effect::Effect;
use crate::domain::loops::TimerKind;
use crate::domain::loops::{LoopState, LoopWait, WaitReason};
use crate::domain::model::ids::Timestamp;
use crate::domain::report;

/// Removes an iteration that never ran from the count; its guidance is kept for the next one.
pub(super) fn give_back(turn: &mut StepContext) {
    if let Some(current) = turn.next.iterations.pop() {
        turn.next.spent.iterations = turn.next.spent.iterations.saturating_sub(1);
        turn.next.guidance.splice(0..0, current.guidance);
    }
}

/// Waits for a backend until the time that its provider stated, else for an increasing time.
pub(super) fn wait_for_backend(turn: &mut StepContext, until: Option<Timestamp>, reason: &str) {
    let doubled = FIRST_WAIT_MS.saturating_mul(1 << turn.next.limited_tries.min(16));
    let backoff = turn.now.plus_ms(doubled.min(LONGEST_WAIT_MS));
    turn.next.limited_tries += 1;
    // A moment that has passed already is no answer.
    let at = until.filter(|at| *at > turn.now).unwrap_or(backoff);
    wait(turn, WaitReason::Backend, at, &format!("no backend is available: {reason}"));
}

/// Waits until a time, after which the loop continues by itself. People are notified once per wait; the person who started
/// the loop is mentioned once if the wait for a backend is long, because they may be able to change something.
pub(super) fn wait(turn: &mut StepContext, on: WaitReason, at: Timestamp, why: &str) {
    give_back(turn);
    if let Some(why) = turn.next.pause_wanted.take() {
        return turn.pause_at_best(&why);
    }
    let known = turn.next.wait.filter(|wait| wait.on == on);
    let mut wait = known.unwrap_or(LoopWait { on, since: turn.now, told: false });
    let tells = on == WaitReason::Backend && !wait.told && at.since(wait.since) > LONG_WAIT_MS;
    wait.told |= tells;
    turn.next.wait = Some(wait);
    turn.drop_work();
    turn.go(LoopState::Waiting, &format!("{why}; the wait ends at {}", report::moment(at)));
    turn.effects.push(Effect::SetTimer { kind: TimerKind::Reactivate, at });
    if known.is_none() || tells {
        let view = report::waiting(&turn.next, at, tells);
        turn.comment(&format!("waiting/{}", turn.next.version), view);
    }
}
