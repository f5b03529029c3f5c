//! Stops a loop at its best state. The files of the best iteration are restored before the loop pauses, reaches a limit, fails or
//! ends. Later work stays reachable.

use super::{StepContext, judge, second_opinion};
use crate::domain::knowledge::intelligence::{SelectedState, best_state};
use crate::domain::lifecycle::effect::{ForgeEffect, WorkEffect};
use crate::domain::loops::{
    EscalationCause, Loop, LoopState, LoopStep, LoopStopReason, StopAfterRestore, restored_words,
};
use crate::domain::model::ids::Sha;

/// Returns the best state if the branch is at a worse one, else `None`. Work that was not measured counts as worse, except when a
/// person only pauses the loop.
fn better_state(next: &Loop, then: &LoopStopReason) -> Option<SelectedState> {
    let best = best_state(next).filter(|best| next.branch.head.as_ref() != Some(&best.commit))?;
    let newest = next.retained_iterations().rev().find(|i| i.commit.is_some() || i.restored_to.is_some())?;
    let is_best = newest.restored_to == Some(best.iteration);
    let passed = newest.ended_at.is_some() && newest.record.is_none() && newest.checks.all_hold();
    let unknown = newest.restored_to.is_none() && newest.record.is_none();
    let goes_on = matches!(then, LoopStopReason::Paused { cause: None, .. });
    let stays = is_best || passed || unknown && goes_on;
    (!stays).then_some(best)
}

/// Returns the rank of a reason to stop. While files are being restored, a new reason replaces one of the same or a lower rank.
fn rank(reason: &LoopStopReason) -> u8 {
    match reason {
        LoopStopReason::Paused { .. } | LoopStopReason::Verified { .. } => 0,
        LoopStopReason::Held => 1,
        LoopStopReason::Limit { .. } => 2,
        LoopStopReason::Failed { .. } => 3,
        LoopStopReason::Aborted { .. } => 4,
        LoopStopReason::Ended { .. } => 5,
    }
}

impl StepContext {
    /// Stops the loop for the reason `then`. If the files of the branch are worse than the files of the best iteration, restores
    /// the best iteration's files first.
    pub(super) fn stop_at_best(&mut self, then: LoopStopReason) {
        if self.is_putting_back() {
            return self.stop_meanwhile(then);
        }
        if second_opinion::hands_over_instead(self, &then) {
            return;
        }
        // Before its first start and while it waits for people, a loop has no tree, or stopped at its best already.
        let has_tree = matches!(self.next.state, LoopState::Running | LoopState::Waiting | LoopState::Queued);
        let better = if has_tree { better_state(&self.next, &then) } else { None };
        let Some(SelectedState { iteration, commit, .. }) = better else { return self.finish(then, "") };
        self.drop_work();
        let why = then.why().to_owned();
        self.close_open_iteration(&why);
        if self.next.state != LoopState::Running {
            self.go(LoopState::Running, "the loop restores the best state before it stops");
        }
        self.put_best_back(iteration, commit, then);
    }

    /// Whether the files of the best iteration are being restored or pushed.
    fn is_putting_back(&self) -> bool {
        let busy = matches!(self.next.run.step, LoopStep::Restore | LoopStep::Push);
        self.next.run.halting.is_some() && self.next.state == LoopState::Running && busy
    }

    /// Handles another reason to stop while files are being restored. If a person ends the loop a second time, the loop stops at
    /// once.
    fn stop_meanwhile(&mut self, then: LoopStopReason) {
        let Some(halting) = self.next.run.halting.as_mut() else { return };
        let ended = |reason: &LoopStopReason| matches!(reason, LoopStopReason::Ended { .. });
        if ended(&halting.then) && ended(&then) {
            self.next.run.halting = None;
            return self.finish(then, "");
        }
        if rank(&then) >= rank(&halting.then) {
            halting.then = then;
        }
        self.because("the loop restores the best state and then stops");
    }

    /// Restores the files of an iteration, after which the loop stops for the reason `then`.
    pub(super) fn put_best_back(&mut self, iteration: u32, to: Sha, then: LoopStopReason) {
        self.because(match iteration {
            0 => "the state before the first iteration is restored".to_owned(),
            number => format!("the state of iteration {number} is restored"),
        });
        self.next.run.halting = Some(StopAfterRestore { iteration, then, restored: false, retained_as: None });
        self.work(LoopStep::Restore, |ticket| WorkEffect::Restore { ticket, iteration, to });
    }

    /// Stops the loop after the best iteration was restored and pushed, or could not be.
    pub(super) fn halt(&mut self) {
        let Some(halting) = self.next.run.halting.take() else { return judge::pause(self, "") };
        let later = halting.retained_as.map_or(String::new(), |name| format!("; the later work is kept as `{name}`"));
        let words = match halting.restored {
            true => {
                let again = match self.next.requests.suggestions.is_empty() {
                    true => "",
                    false => "; suggested changes are applied when the loop continues",
                };
                format!("; {}{later}{again}", restored_words(halting.iteration))
            }
            false => String::new(),
        };
        self.finish(halting.then, &words);
    }

    /// Stops the loop although the files could not be restored or pushed.
    pub(super) fn halt_without(&mut self, why: &str) {
        self.because(format!("could not restore the best iteration: {why}"));
        self.halt();
    }

    /// Stops the loop at once. `words` describes the restored state; may be empty.
    pub(super) fn finish(&mut self, then: LoopStopReason, words: &str) {
        match then {
            LoopStopReason::Held => judge::pause(self, words),
            LoopStopReason::Limit { which, why } => self.end_at_limit(which, &format!("{why}{words}")),
            LoopStopReason::Paused { why, cause, advice } => {
                let why = format!("{why}{words}");
                self.stop(LoopState::Paused, &why);
                self.close_open_iteration(&why);
                if !words.is_empty() {
                    self.push(ForgeEffect::Pull { ready: false, reviewers: Vec::new() });
                }
                if let Some(cause) = cause {
                    self.escalate(cause, &advice);
                }
            }
            LoopStopReason::Failed { why, advice } => {
                let why = format!("{why}{words}");
                self.stop(LoopState::Failed, &why);
                self.close_open_iteration(&why);
                self.escalate(EscalationCause::Failed, &advice);
            }
            LoopStopReason::Aborted { why } => judge::abort(self, &format!("{why}{words}")),
            LoopStopReason::Verified { .. } => second_opinion::returned(self, words),
            LoopStopReason::Ended { state, why } => self.end(state, &format!("{why}{words}")),
        }
    }

    /// Pauses the loop at its best state for a reason that requires no decision.
    pub(super) fn pause_at_best(&mut self, why: &str) {
        self.stop_at_best(LoopStopReason::Paused { why: why.to_owned(), cause: None, advice: String::new() });
    }

    /// Pauses the loop at its best state, and asks people.
    pub(super) fn pause_and_ask(&mut self, why: &str, cause: EscalationCause, advice: &str) {
        let (why, cause, advice) = (why.to_owned(), Some(cause), advice.to_owned());
        self.stop_at_best(LoopStopReason::Paused { why, cause, advice });
    }

    /// Pauses a loop whose commits cannot be pushed. The best state is not restored, because pushing it would include the same
    /// commits.
    pub(super) fn push_blocked(&mut self, reason: &str) {
        self.close_open_iteration(reason);
        if self.next.run.halting.is_some() {
            return self.halt_without(reason);
        }
        self.stop(LoopState::Paused, reason);
        let advice = "the commits were not pushed; `/ralph retry` discards the commits of the last iteration, `/ralph abort` ends the loop";
        self.escalate(EscalationCause::BlockedChange, advice);
    }
}
