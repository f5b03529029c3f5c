//! State machine of a loop: `step(loop, input, now) -> Decision`. It is pure: the same inputs at the same times give the same
//! loop, so that a loop can be rebuilt from its log.
//!
//! Invariants: the spent money and time never decrease, and the number of iterations only if the agent never ran. The outcome of
//! work counts only if it has the ticket of the work that the loop is waiting for. Every state but the last three can be left.
//! Nothing is pushed or run in a state other than `running`. The state `review` is reached only if all checks passed in a fresh
//! checkout of that commit.

mod budget_notice;
mod channel_notices;
mod ci;
mod commands;
mod conflicts;
mod course;
pub mod effect;
mod existing_pull;
mod found_images;
mod handover;
mod hooks;
mod judge;
mod merges;
mod next_iteration;
mod people;
mod plan;
mod plan_gate;
mod pushes;
mod refusals;
mod remaining_work;
#[cfg(any(test, feature = "testing"))]
pub mod samples;
mod schedule;
mod second_opinion;
mod stopping;
mod suggestions;
mod task_criteria;
mod test_guard;
#[cfg(test)]
mod tests;
mod waits;
mod work;
mod work_texts;

pub use channel_notices::notices;

use crate::domain::knowledge::memory::judged_anew;
use crate::domain::lifecycle::effect::{Effect, ForgeEffect, Mark, StoreEffect, TimerEffect, WorkEffect};
use crate::domain::loops::TimerKind;
use crate::domain::loops::{
    CommandInput, CommentRef, EscalationCause, ForgeInput, Guidance, GuidanceSource, Loop, LoopInput, LoopLimit,
    LoopPull, LoopStart, LoopState, LoopStep, LoopStopReason, TimerInput,
};
use crate::domain::model::ids::{Number, Timestamp};
use crate::domain::report;
use crate::domain::report::view::View;
use crate::domain::supervision::oversight::{AuditEntry, AuditEvent, EscalationLevel};

/// Maximum number of attempts of one iteration before the loop fails. An attempt counts once its agent has started, also if a crash
/// ends it.
pub const MAX_ATTEMPTS: u32 = 3;
/// Maximum number of attempts of one iteration, including those that were lost before their agents started. Each costs the time
/// until the lease of the lost host expires.
pub const MAX_LOST_STARTS: u32 = 10;
/// First wait for a limited backend that states no time, in milliseconds. It doubles up to `LONGEST_WAIT_MS`.
pub const FIRST_WAIT_MS: i64 = 60_000;
/// Maximum wait before the next call of a limited backend, in milliseconds.
pub const LONGEST_WAIT_MS: i64 = 3_600_000;

/// Minimum length of a wait for a backend about which people are notified, in milliseconds.
pub const LONG_WAIT_MS: i64 = 3_600_000;

/// Result of a step: the new state of the loop, the effects, and the reasons.
#[derive(Debug, Clone, PartialEq)]
pub struct StepDecision {
    /// Loop after the step.
    pub next: Loop,
    /// Effects, in order.
    pub effects: Vec<Effect>,
    /// Reasons, one sentence each.
    pub reasons: Vec<String>,
    /// Number of the iteration that was judged in the step; `None` if none was.
    pub judged: Option<u32>,
    /// Whether the step ended the loop.
    pub ended: bool,
    /// Whether the input is a command that the loop rejected. If so, the first reason explains it.
    pub refused: bool,
}

/// Creates a loop.
pub fn start(start: LoopStart, now: Timestamp) -> StepDecision {
    people::start(start, now)
}

/// Applies one input to an existing loop.
pub fn step(current: &Loop, input: LoopInput, now: Timestamp) -> StepDecision {
    let mut turn = StepContext { next: current.clone(), effects: Vec::new(), reasons: Vec::new(), refused: false, now };
    turn.next.version += 1;
    turn.next.updated_at = now.max(current.updated_at);
    if current.state.is_open() {
        turn.take(input);
    } else {
        people::after_the_end(&mut turn, &input);
    }
    let mut decision = turn.done();
    decision.judged = judged_anew(current, &decision.next).map(|iteration| iteration.number);
    decision.ended = current.state.is_open() && !decision.next.state.is_open();
    decision
}

/// Rebuilds a loop from its log; `None` if the log does not start with a start.
pub fn replay(log: impl IntoIterator<Item = (Timestamp, LoopInput)>) -> Option<Loop> {
    let mut log = log.into_iter();
    let (at, LoopInput::Command(CommandInput::Start(first))) = log.next()? else { return None };
    Some(log.fold(start(*first, at).next, |current, (at, input)| step(&current, input, at).next))
}

/// Returns the reason why a person no longer has permission, and a remedy.
fn lost_authority(who: &str, hidden_teams: &[String]) -> (String, &'static str) {
    if hidden_teams.is_empty() {
        let why = format!("{who} no longer has permission to give commands here");
        return (why, "a person with permission must take over the loop: `/ralph resume`");
    }
    let teams = hidden_teams.join(", ");
    let why = format!(
        "the bot cannot check whether {who} may give commands here: the members of {teams} are hidden from the bot"
    );
    (why, "make the bot's account a member of the team or an owner of the organization, then `/ralph resume`")
}

/// State of a step while it is computed.
struct StepContext {
    next: Loop,
    effects: Vec<Effect>,
    reasons: Vec<String>,
    refused: bool,
    now: Timestamp,
}

impl StepContext {
    fn done(mut self) -> StepDecision {
        schedule::set_timer(&mut self);
        budget_notice::notify(&mut self);
        if self.next.pull.existing.is_some() {
            self.effects.retain(|effect| !effect.changes_pull());
        }
        let changed = self.effects.iter().any(|effect| matches!(effect, Effect::Forge(ForgeEffect::Status { .. })));
        if changed && self.next.branch.pushed.is_some() {
            self.push(ForgeEffect::CommitStatus);
        }
        StepDecision {
            next: self.next,
            effects: self.effects,
            reasons: self.reasons,
            judged: None,
            ended: false,
            refused: self.refused,
        }
    }

    /// Adds an effect.
    fn push(&mut self, effect: impl Into<Effect>) {
        self.effects.push(effect.into());
    }

    fn take(&mut self, input: LoopInput) {
        match input {
            LoopInput::Command(input) => self.commanded(input),
            LoopInput::Forge(input) => self.reported(input),
            LoopInput::Timer(TimerInput::SlotGranted) => self.slot_granted(),
            LoopInput::Timer(TimerInput::TimerDue { timer }) => self.timer(timer),
            LoopInput::Timer(TimerInput::ClockSet { by_ms }) => self.clock_set(by_ms),
            LoopInput::Timer(TimerInput::NoHost { labels }) => waits::no_host(self, labels),
            LoopInput::Outcome { ticket, outcome } => work::outcome(self, ticket, outcome),
        }
    }

    fn commanded(&mut self, input: CommandInput) {
        match input {
            CommandInput::Start(_) => self.because("there is a loop already"),
            CommandInput::Given { by, command, comment } => commands::apply(self, by, command, comment),
            CommandInput::RunLabelRemoved { by } => people::label_removed(self, by.as_ref()),
            CommandInput::RunLabelAdded { by, plan } => people::label_added(self, by, plan),
            CommandInput::Reviewed { by, items, suggestions } => people::reviewed(self, by, items, suggestions),
        }
    }

    fn reported(&mut self, input: ForgeInput) {
        match input {
            ForgeInput::Rendered { html } => {
                self.next.task.text.read_page(&html);
                self.because("the forge rendered the task's text");
            }
            ForgeInput::IssueEnded { how } => {
                self.stop_at_best(LoopStopReason::Ended {
                    state: LoopState::Closed,
                    why: format!("the {} was {how}", self.next.pull.subject()),
                });
            }
            ForgeInput::PullOpened { number, url } => {
                self.next.pull.opened = Some(LoopPull { number, url });
                self.push(ForgeEffect::Status { fresh: false });
            }
            ForgeInput::TestsFound { commit, findings } => existing_pull::tests_found(self, commit, findings),
            ForgeInput::PullMerged => self.end(LoopState::Merged, "the pull request was merged"),
            ForgeInput::PullClosed => self.end(LoopState::Closed, "the pull request was closed"),
            ForgeInput::PullGone => self.end(LoopState::Closed, "the pull request was deleted"),
            ForgeInput::RepositoryBack => waits::repository_back(self),
            ForgeInput::PullRetargeted { base } => self.retargeted(base),
            ForgeInput::Inspected(seen) => {
                ci::inspected(self, &seen);
                merges::looked(self, &seen);
            }
            ForgeInput::MergeAnswered { commit, answer } => merges::answered(self, &commit, answer),
            ForgeInput::MergeWithdrawn => merges::withdrawn(self),
            ForgeInput::ChangeRefused { change, detail } => refusals::refused(self, change, detail),
            ForgeInput::ChangeMade { change } => refusals::made(self, change),
            // Asked before a push only; where nothing runs, the next push asks again.
            ForgeInput::AuthorityLost { .. }
                if !matches!(self.next.state, LoopState::Running | LoopState::Queued | LoopState::Waiting) =>
            {
                self.because("the person lost the permission, but no work is running");
            }
            // The loop stops for every person who lost the permission.
            ForgeInput::AuthorityLost { who, hidden_teams } => {
                let (why, advice) = lost_authority(&who, &hidden_teams);
                if self.next.run.halting.is_some() {
                    return self.halt_without(&why);
                }
                self.stop(LoopState::Paused, &why);
                self.escalate(EscalationCause::Authority, advice);
            }
        }
    }

    /// Changes the base branch, which is used for merges from now on.
    fn retargeted(&mut self, base: String) {
        if self.next.branch.base_branch == base {
            return self.because("the pull request already has this base");
        }
        self.next.settings.options.base = Some(base.clone());
        self.next.branch.base_branch = base;
        if let Some(commit) = self.next.branch.pushed.clone().filter(|_| self.next.state == LoopState::Review) {
            self.push(ForgeEffect::Inspect { commit, base_moved: true });
        }
    }

    fn because(&mut self, reason: impl Into<String>) {
        self.reasons.push(reason.into());
    }

    /// Changes the state. Updates the running time, the timers, the label and the status comment accordingly.
    fn go(&mut self, state: LoopState, why: &str) {
        let changed = self.next.state != state;
        if changed {
            merges::changed(self, self.next.state, state, why);
        }
        if self.next.state == LoopState::Running && state != LoopState::Running {
            self.next.spent.time_ms = self.next.spent.time_at(self.now);
            self.next.spent.since = None;
            self.push(TimerEffect::Clear { kind: TimerKind::Deadline });
        }
        if state == LoopState::Running && self.next.spent.since.is_none() {
            self.start_clock(self.now);
        }
        if self.next.state == LoopState::Waiting && state != LoopState::Waiting {
            self.push(TimerEffect::Clear { kind: TimerKind::Reactivate });
        }
        if state != LoopState::Running {
            self.next.run.idle();
        }
        self.next.run.queued_at = (state == LoopState::Queued).then_some(self.now);
        self.next.state = state;
        self.next.why = why.to_owned();
        self.because(format!("{}: {why}", state.as_str()));
        if changed {
            self.push(ForgeEffect::StateLabel { state: Some(state) });
            hooks::inform(self, state);
        }
        self.push(ForgeEffect::Status { fresh: false });
    }

    /// Stops counting the running time until `until`, for a wait that the loop did not cause. The loop keeps its slot. Otherwise
    /// it would exceed the limit of running loops when the deferred work continues by itself.
    fn stop_clock(&mut self, until: Timestamp) {
        // Tries that come to nothing are part of the wait.
        if self.next.run.defer() {
            self.next.spent.time_ms = self.next.spent.time_at(self.now);
        }
        self.start_clock(until.max(self.now));
        self.because("its work is deferred; until then its time does not count");
    }

    fn start_clock(&mut self, at: Timestamp) {
        self.next.spent.since = Some(at);
        let time_left = (self.next.limits.time_ms - self.next.spent.time_ms).max(0);
        self.push(TimerEffect::Set { kind: TimerKind::Deadline, at: at.plus_ms(time_left) });
    }

    /// Excludes the amount by which the clock was changed from the running time.
    fn clock_set(&mut self, by_ms: i64) {
        if let Some(since) = self.next.spent.since {
            self.start_clock(since.plus_ms(by_ms));
            self.because("the machine's clock was changed; the difference does not count as running time");
        }
        if let Some(current) = self.next.iterations.last_mut().filter(|iteration| iteration.ended_at.is_none()) {
            current.started_at = current.started_at.plus_ms(by_ms);
        }
    }

    /// Stops running work, and changes to a state that only a person can end.
    fn stop(&mut self, state: LoopState, why: &str) {
        self.drop_work();
        self.go(state, why);
    }

    /// Cancels running work, so that its outcome will be ignored.
    fn drop_work(&mut self) {
        self.next.run.cancel();
        self.push(StoreEffect::CancelWork);
    }

    /// Puts the loop into the queue for a slot.
    fn queue(&mut self, why: &str) {
        self.next.run.escalated = None;
        self.push(TimerEffect::Clear { kind: TimerKind::Remind });
        self.push(ForgeEffect::CloseEscalations { why: why.to_owned() });
        self.go(LoopState::Queued, why);
    }

    /// Continues a loop in review with another iteration, unless a limit is reached.
    fn another_round(&mut self, why: &str) {
        match self.next.exhausted_limit(self.now) {
            None => self.queue(why),
            Some(which) => self.reach_limit(which, &format!("{why}, but the limit of {which} is used up")),
        }
    }

    /// Requests work and waits for its outcome.
    fn work(&mut self, step: LoopStep, effect: impl FnOnce(u64) -> WorkEffect) {
        let effect = effect(self.next.run.begin(step));
        self.push(effect);
    }

    fn slot_granted(&mut self) {
        if self.next.state != LoopState::Queued {
            return self.because("a slot was granted to a loop that does not wait for one");
        }
        waits::forget_repository(&mut self.next);
        self.go(LoopState::Running, "the loop started");
        self.work(LoopStep::Prepare, |ticket| WorkEffect::Prepare { ticket });
    }

    fn timer(&mut self, timer: TimerKind) {
        match timer {
            TimerKind::Deadline if self.next.state == LoopState::Running => {
                let time_left = self.next.limits.time_ms - self.next.spent.time_at(self.now);
                if time_left <= 0 {
                    return self.reach_limit(LoopLimit::Time, "the time limit is reached");
                }
                self.push(TimerEffect::Set { kind: TimerKind::Deadline, at: self.now.plus_ms(time_left) });
                self.because("the time limit is not reached");
            }
            TimerKind::Reactivate if self.next.state == LoopState::Waiting => {
                self.go(LoopState::Queued, "the wait is over");
            }
            TimerKind::Remind if self.next.state.waits_for_plan() => plan_gate::remind(self),
            TimerKind::Remind if report::wants_person(self.next.state) => {
                let Some(cause) = self.next.run.escalated.clone() else {
                    return self.because("there is no open escalation");
                };
                let view = report::reminder(&self.next, &cause, self.now);
                let level = EscalationLevel::Critical;
                self.push(ForgeEffect::Escalate { cause, view: Box::new(view), level, reminder: true });
            }
            TimerKind::Schedule if self.next.state.is_open() => schedule::at_time(self),
            _ => self.because("a timer came late"),
        }
    }

    /// Ends the loop at a limit, at its best state.
    fn reach_limit(&mut self, which: LoopLimit, why: &str) {
        self.stop_at_best(LoopStopReason::Limit { which, why: why.to_owned() });
    }

    fn end_at_limit(&mut self, which: LoopLimit, why: &str) {
        self.next.run.halting = None;
        self.stop(LoopState::LimitReached, why);
        // The words about it depend on which limit it was.
        self.next.run.escalated = Some(EscalationCause::Limit(which));
        self.close_open_iteration(why);
        self.push(ForgeEffect::Pull { ready: false, reviewers: Vec::new() });
        let view = report::completion(&self.next, self.now);
        self.comment(&format!("limit/{}", self.next.version), view);
        let advice =
            "raise the limit if the last iterations made progress; otherwise add guidance or narrow the task first";
        self.escalate(EscalationCause::Limit(which), advice);
    }

    /// Fails the loop. A person has to fix the cause before it can continue.
    fn fail(&mut self, why: &str, advice: &str) {
        self.stop_at_best(LoopStopReason::Failed { why: why.to_owned(), advice: advice.to_owned() });
    }

    /// Closes an interrupted iteration with the facts that are known. If nothing of the iteration was recorded, its guidance had
    /// no effect and is kept for the next iteration.
    fn close_open_iteration(&mut self, why: &str) {
        let now = self.now;
        let Some(open) = self.next.current_mut().filter(|i| i.ended_at.is_none()) else { return };
        open.ended_at = Some(now);
        if open.agent_problem.is_empty() {
            open.agent_problem = why.to_owned();
        }
        if open.tree.is_none() && !open.discarded {
            let guidance = open.guidance.clone();
            self.next.requests.guidance.splice(0..0, guidance);
        }
    }

    /// Adds a fact to the next prompt, without repetition.
    fn tell_next_run(&mut self, text: String) {
        let fact = Guidance { who: String::new(), source: GuidanceSource::Service, text, path: None, remember: false };
        if !self.next.requests.guidance.contains(&fact) {
            self.next.requests.guidance.push(fact);
        }
    }

    fn escalate(&mut self, cause: EscalationCause, advice: &str) {
        let view = report::escalation(&self.next, &cause, advice, self.now);
        let reason = format!("people are asked: {}", self.next.why);
        self.audit(vec![AuditEntry::new(self.next.spent.iterations, AuditEvent::Escalated, reason)]);
        self.tell_escalation(cause, view);
    }

    /// Notifies people outside of the loop's issue, and sets a timer to remind them once if no answer arrives.
    fn tell_escalation(&mut self, cause: EscalationCause, view: View) {
        self.next.run.escalated = Some(cause.clone());
        self.push(Effect::escalate(cause, view));
        let remind_after = self.next.settings.policy.remind_after_ms();
        self.push(TimerEffect::Set { kind: TimerKind::Remind, at: self.now.plus_ms(remind_after) });
    }

    /// Ends the loop.
    fn end(&mut self, state: LoopState, why: &str) {
        self.stop(state, why);
        self.close_open_iteration(why);
        self.push(TimerEffect::Clear { kind: TimerKind::Remind });
        self.push(ForgeEffect::CloseEscalations { why: why.to_owned() });
        self.push(ForgeEffect::DropRunLabel);
        let view = report::completion(&self.next, self.now);
        self.comment("end", view);
        let delete_branch =
            self.next.settings.policy.delete_branch && state != LoopState::Aborted && self.next.pull.existing.is_none();
        self.push(WorkEffect::Release { delete_branch });
    }

    fn comment(&mut self, key: &str, view: View) {
        let on = self.next.issue.issue;
        self.comment_on(on, key, view);
    }

    fn comment_on(&mut self, on: Number, key: &str, view: View) {
        self.push(ForgeEffect::Comment { key: key.to_owned(), on, view: Box::new(view) });
    }

    /// Marks the comment of a command as executed, for a command whose answer is a separate comment.
    fn carried_out(&mut self, comment: Option<CommentRef>, why: &str) {
        self.because(why);
        if let Some(id) = comment.and_then(|comment| comment.id) {
            self.push(ForgeEffect::React { comment: id, mark: Mark::Done });
        }
    }

    /// Answers a command: with its result if `ok`, else with the reason for rejecting it.
    fn answer(&mut self, comment: Option<CommentRef>, ok: bool, lines: Vec<String>) {
        self.because(lines.join(" "));
        self.refused |= !ok;
        let Some(comment) = comment else { return };
        if let Some(id) = comment.id {
            self.push(ForgeEffect::React { comment: id, mark: if ok { Mark::Done } else { Mark::Wrong } });
        }
        // Where nothing can be reacted to, words are the only sign.
        if !ok || comment.id.is_none() {
            let key = format!("reply/{}/{}", comment.on, self.next.version);
            self.comment_on(comment.on, &key, report::reply(ok, lines));
        }
    }
}
