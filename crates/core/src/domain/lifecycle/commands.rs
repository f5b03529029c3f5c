//! Commands of people: applies their definitions with the operations of a step.

use super::{StepContext, judge, merges, refusals};
use crate::domain::lifecycle::effect::ForgeEffect;
use crate::domain::loops::command::{CommandRecord, CommandTarget, LoopCommand};
use crate::domain::loops::{CommentRef, Loop, LoopState, LoopStopReason};
use crate::domain::model::ids::{Timestamp, User};
use crate::domain::report;
use crate::domain::supervision::oversight::{AuditEntry, AuditEvent};

/// Applies a command of a person with permission.
pub(super) fn apply(turn: &mut StepContext, by: User, command: LoopCommand, comment: Option<CommentRef>) {
    if let Some(text) = command.recorded(CommandRecord::SessionAndAudit) {
        let reason = format!("{}: {text}", by.login);
        turn.audit(vec![AuditEntry::new(turn.next.spent.iterations, AuditEvent::Answered, reason)]);
    }
    command.apply(&mut CommandStep { turn, by, comment });
}

/// Step in which a command is applied.
struct CommandStep<'a> {
    turn: &'a mut StepContext,
    by: User,
    comment: Option<CommentRef>,
}

impl CommandTarget for CommandStep<'_> {
    fn current(&mut self) -> &mut Loop {
        &mut self.turn.next
    }

    fn now(&self) -> Timestamp {
        self.turn.now
    }

    fn author(&self) -> &User {
        &self.by
    }

    fn accept(&mut self, text: String) {
        self.turn.answer(self.comment, true, vec![text]);
    }

    fn reject(&mut self, reason: String) {
        self.turn.answer(self.comment, false, vec![reason]);
    }

    fn reply(&mut self, name: &str, text: String) {
        self.turn.carried_out(self.comment, &text);
        self.post(name, report::reply(true, vec![text]));
    }

    fn post_help(&mut self) {
        let view = report::help(&self.turn.next.settings.policy);
        self.post("help", view);
        self.turn.carried_out(self.comment, "help was requested");
    }

    fn update_status(&mut self, fresh: bool) {
        self.turn.push(ForgeEffect::Status { fresh });
        if fresh {
            self.turn.carried_out(self.comment, "the status was requested");
        }
    }

    fn queue(&mut self, reason: &str) {
        self.turn.next.people.authority = self.by.clone();
        self.turn.queue(reason);
        refusals::repeat(self.turn);
    }

    fn repeat_refused(&mut self) {
        refusals::repeat(self.turn);
    }

    fn stop_work(&mut self, reason: &str) {
        self.turn.drop_work();
        self.turn.close_open_iteration(reason);
    }

    fn pause(&mut self, reason: &str) {
        self.turn.pause_at_best(reason);
    }

    fn merge_when_ready(&mut self) {
        let on = self.comment.map_or(self.turn.next.issue.issue, |comment| comment.on);
        merges::wish(self.turn, self.by.clone(), on);
    }

    fn withdraw_merge(&mut self, reason: &str) {
        merges::withdraw(self.turn, reason);
    }

    fn abort(&mut self, reason: &str) {
        self.turn.stop_at_best(LoopStopReason::Ended { state: LoopState::Aborted, why: reason.to_owned() });
    }

    fn reset_supervision(&mut self) {
        judge::resumed(self.turn, &self.by.login);
    }

    fn rebuild_supervision(&mut self) {
        judge::retried(self.turn, &self.by.login);
    }
}

impl CommandStep<'_> {
    /// Posts a separate comment on the issue or pull request where the command was given.
    fn post(&mut self, name: &str, view: report::view::View) {
        let on = self.comment.map_or(self.turn.next.issue.issue, |comment| comment.on);
        let key = format!("{name}/{}", self.turn.next.version);
        self.turn.comment_on(on, &key, view);
    }
}
