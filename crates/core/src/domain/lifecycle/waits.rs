//! Waits that end without a person: for a backend, for the budget of the next day, and for a repository that accepts no changes.

use super::{FIRST_WAIT_MS, LONG_WAIT_MS, LONGEST_WAIT_MS, StepContext};
use crate::domain::lifecycle::effect::{ChannelEffect, ForgeEffect, TimerEffect};
use crate::domain::loops::TimerKind;
use crate::domain::loops::{EscalationCause, Loop, LoopState, LoopStep, LoopWait, WaitReason};
use crate::domain::model::ids::Timestamp;
use crate::domain::report;
use crate::domain::report::notice::Notice;
use crate::domain::supervision::oversight::EscalationLevel;

/// Uncounts an iteration that never ran, and keeps its guidance for the next one.
pub(super) fn give_back(turn: &mut StepContext) {
    if let Some(current) = turn.next.iterations.pop() {
        turn.next.spent.iterations = turn.next.spent.iterations.saturating_sub(1);
        turn.next.requests.guidance.splice(0..0, current.guidance);
    }
}

/// Waits for a backend until the time that its provider stated. Without such a time, the wait increases with each attempt.
pub(super) fn wait_for_backend(turn: &mut StepContext, until: Option<Timestamp>, reason: &str) {
    let doubled = FIRST_WAIT_MS.saturating_mul(1 << turn.next.agent.limited_tries.min(16));
    let backoff = turn.now.plus_ms(doubled.min(LONGEST_WAIT_MS));
    turn.next.agent.limited_tries += 1;
    // A time in the past is not a valid end.
    let at = until.filter(|at| *at > turn.now).unwrap_or(backoff);
    wait(turn, WaitReason::Backend, at, &format!("no agent is available: {reason}"));
}

/// Waits until a time, after which the loop continues by itself. People are notified once per wait. If a wait for a backend is
/// long, the person who started the loop is mentioned once, because they may be able to change something.
pub(super) fn wait(turn: &mut StepContext, on: WaitReason, at: Timestamp, why: &str) {
    give_back(turn);
    if let Some(why) = turn.next.run.pause_wanted.take() {
        return turn.pause_at_best(&why);
    }
    let known = turn.next.run.wait.filter(|wait| wait.on == on);
    let mut wait = known.unwrap_or(LoopWait { on, since: turn.now, told: false });
    let tells = on == WaitReason::Backend && !wait.told && at.since(wait.since) > LONG_WAIT_MS;
    wait.told |= tells;
    turn.next.run.wait = Some(wait);
    turn.drop_work();
    turn.go(LoopState::Waiting, &format!("{why}; the wait ends at {}", report::moment(at)));
    turn.push(TimerEffect::Set { kind: TimerKind::Reactivate, at });
    if known.is_none() || tells {
        let view = report::waiting(&turn.next, why, at, tells);
        turn.comment(&format!("waiting/{}", turn.next.version), view);
    }
}

/// Shows in the status comment that the current work waits for a host with these labels. The wait ends with the work's start.
pub(super) fn no_host(turn: &mut StepContext, labels: Vec<String>) {
    if turn.next.run.step == LoopStep::Idle || turn.next.run.labels_without_host == labels {
        return turn.because("the loop does not wait for a host, or shows it already");
    }
    turn.because(format!("no host has the labels {}", labels.join(", ")));
    turn.next.run.labels_without_host = labels;
    turn.push(ForgeEffect::Status { fresh: false });
}

/// Pauses the loop until the repository accepts changes. The loop occupies no slot meanwhile, because the wait may take weeks.
/// Channels are notified, because the forge may show nothing.
pub(super) fn wait_for_repository(turn: &mut StepContext, why: &str) {
    turn.stop(LoopState::Paused, why);
    turn.close_open_iteration(why);
    turn.next.run.wait = Some(LoopWait { on: WaitReason::Repository, since: turn.now, told: true });
    let notice = Notice::unavailable(&turn.next, EscalationLevel::Warning, turn.now);
    turn.push(ChannelEffect::Warn { notice: Box::new(notice) });
}

/// Continues a loop that was paused because its repository accepted no changes.
pub(super) fn repository_back(turn: &mut StepContext) {
    let waits = turn.next.run.wait.is_some_and(|wait| wait.on == WaitReason::Repository);
    if turn.next.state != LoopState::Paused || !waits {
        return turn.because("the loop does not wait for its repository");
    }
    forget_repository(&mut turn.next);
    turn.queue("the repository accepts changes again");
}

/// Ends the wait for a repository, because the loop continues or a person keeps it paused.
pub(super) fn forget_repository(next: &mut Loop) {
    next.run.wait = next.run.wait.filter(|wait| wait.on != WaitReason::Repository);
}

/// Pauses the loop because every agent declined its task; waiting would not change that.
pub(super) fn declined(turn: &mut StepContext, reason: &str) {
    let advice = "reword the task, or enable another backend, then `/ralph resume`";
    turn.pause_and_ask(&format!("no agent took the task: {reason}"), EscalationCause::Failed, advice);
}
