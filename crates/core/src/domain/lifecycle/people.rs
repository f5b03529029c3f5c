//! Inputs of people other than commands: the start of a loop, labels, and reviews.

use super::waits::forget_repository;
use super::{StepContext, StepDecision, judge, refusals, work};
use crate::domain::lifecycle::effect::{ForgeEffect, Mark, TimerEffect};
use crate::domain::loops::command::LoopCommand;
use crate::domain::loops::{
    AgentState, CommandInput, ForgeInput, Guidance, Loop, LoopBranch, LoopChecks, LoopInput, LoopKnowledge, LoopLimits,
    LoopPeople, LoopPull, LoopRequests, LoopSettings, LoopStart, LoopState, LoopUsage, Planning, PullState, RunOptions,
    RunState, SuggestedChange, SupervisionState, TimerKind, remark_of,
};
use crate::domain::model::ids::{Money, Timestamp, User};
use crate::domain::report;
use crate::domain::trust::outbound::Masker;
use crate::domain::trust::policy::Policy;

/// Creates a loop. It is queued, or waits until a maintainer confirms the text.
pub(super) fn start(start: LoopStart, now: Timestamp) -> StepDecision {
    let LoopStart { id, place, by, task, options, plan, request, existing, policy, comment, hidden_removed, round } =
        start;
    let limits = initial_limits(&policy);
    let guidance = Guidance::of_command(&by.login, request).into_iter().collect();
    let again = if round > 1 { format!("-{round}") } else { String::new() };
    // A branch is public, and its name would hide a token from later searches.
    let title = Masker::default().mask(task.text.title());
    let own_branch = || format!("{}{}-{}{again}", policy.branch_prefix, place.issue, report::slug(&title));
    let branch = existing.as_ref().map_or_else(own_branch, |pull| pull.branch.clone());
    let base_branch = existing.as_ref().map(|pull| pull.base_branch.clone());
    let pull = existing.as_ref().map(|_| LoopPull { number: place.issue, url: task.url.clone() });
    let confirmed = options.confirms(&task.hash);
    let unseen = task.unconfirmed_editor.is_none() && task.has_unconfirmed_parts();
    let edited = task.unconfirmed_editor.is_some() || task.edited_after;
    let edited_after = task.edited_after;
    let needs_confirm = (edited || unseen || options.confirm.is_some()) && !confirmed;
    let planning = match plan {
        Some(wishes) => Some(Planning::asked_by(&by.login, wishes)),
        None => policy.plans_first(&task.labels).then(Planning::default),
    };
    let next = Loop {
        id,
        issue: place,
        state: LoopState::Queued,
        why: String::new(),
        task,
        people: LoopPeople { authority: by.clone(), requested_by: by },
        settings: LoopSettings {
            options: RunOptions { base: base_branch.clone(), ..RunOptions::default() },
            policy,
            overruled: Vec::new(),
        },
        limits,
        spent: LoopUsage::default(),
        checks: LoopChecks::default(),
        branch: LoopBranch {
            name: branch,
            base_branch: base_branch.unwrap_or_default(),
            base: None,
            head: None,
            pushed: None,
            verified: None,
            merge: None,
        },
        pull: PullState { opened: pull, existing, ..PullState::default() },
        run: RunState::default(),
        agent: AgentState::default(),
        iterations: Vec::new(),
        requests: LoopRequests { guidance, ..LoopRequests::default() },
        supervision: SupervisionState::default(),
        knowledge: LoopKnowledge { planning, hidden_removed, ..LoopKnowledge::default() },
        created_at: now,
        updated_at: now,
        version: 1,
    };
    let mut turn = StepContext { next, effects: Vec::new(), reasons: Vec::new(), refused: false, now };
    options.apply_to(&mut turn.next);
    let doubt = needs_confirm.then(|| doubt_about_text(edited_after, unseen, turn.next.pull.subject()));
    queue(&mut turn, doubt.as_deref());
    if let Some(comment) = comment.and_then(|c| c.id) {
        turn.push(ForgeEffect::React { comment, mark: Mark::Done });
    }
    turn.done()
}

fn initial_limits(policy: &Policy) -> LoopLimits {
    LoopLimits {
        iterations: policy.limits.iterations,
        time_ms: policy.limits.timeout.as_millis(),
        cost: policy.limits.cost_usd.0,
    }
}

/// Returns the reason why a maintainer has to confirm the text of a task.
fn doubt_about_text(edited_after: bool, unseen: bool, subject: &str) -> String {
    match (edited_after, unseen) {
        (true, _) => "the text was edited after it was approved".to_owned(),
        (false, true) => {
            format!("the author has no write access, and the {subject} has parts that people do not see as text")
        }
        (false, false) => "the text was changed by a person without write access".to_owned(),
    }
}

/// Puts a new loop into the queue for a slot. If there is a doubt about its text, the loop waits for a confirmation first.
fn queue(turn: &mut StepContext, doubt: Option<&str>) {
    // `go` sees no change from the initial state `queued`, so the label is set here.
    if let Some(why) = doubt {
        turn.go(LoopState::NeedsConfirm, why);
        let view = report::needs_confirm(&turn.next);
        turn.comment("confirm", view);
    } else {
        turn.push(ForgeEffect::StateLabel { state: Some(LoopState::Queued) });
        turn.go(LoopState::Queued, "the loop waits for a free slot");
    }
}

/// Pauses a loop whose label was removed.
pub(super) fn label_removed(turn: &mut StepContext, by: Option<&User>) {
    match turn.next.state {
        // `needs_confirm` stays: a paused loop could be resumed without the confirmation.
        LoopState::Running
        | LoopState::Queued
        | LoopState::Waiting
        | LoopState::NeedsCriteria
        | LoopState::NeedsApproval
        | LoopState::NeedsAnswer => {
            let why = match by {
                Some(by) => format!("{} removed the label", by.login),
                None => "the label was removed".to_owned(),
            };
            turn.pause_at_best(&why);
        }
        state => {
            // The person who removed it does not want the loop to continue by itself.
            forget_repository(&mut turn.next);
            turn.because(format!("the label was removed while the loop is {}", state.words()));
        }
    }
}

/// Resumes a paused loop whose label was set again. The label for a plan also requests a plan, unless the loop has started to
/// implement.
pub(super) fn label_added(turn: &mut StepContext, by: User, plan: bool) {
    if plan && turn.next.iterations.is_empty() {
        turn.next.knowledge.planning.get_or_insert_default();
    }
    if turn.next.state == LoopState::Paused && turn.next.exhausted_limit(turn.now).is_none() {
        let why = format!("{} set the label again", by.login);
        judge::resumed(turn, &by.login);
        turn.next.people.authority = by;
        turn.queue(&why);
        refusals::repeat(turn);
    } else {
        turn.because(format!("the label was set while the loop is {}", turn.next.state.words()));
    }
}

/// Turns the requests in a review by a person with permission into guidance for further iterations.
pub(super) fn reviewed(
    turn: &mut StepContext,
    by: User,
    items: Vec<(String, Guidance)>,
    mut suggestions: Vec<SuggestedChange>,
) {
    let mut new = 0;
    for (key, guidance) in items {
        if !turn.next.pull.reviews_seen.contains(&key) {
            if let Some(comment) = remark_of(&key) {
                turn.push(ForgeEffect::ReactToRemark { comment, mark: Mark::Seen });
            }
            match suggestions.iter().position(|change| remark_of(&key) == Some(change.comment)) {
                Some(at) => turn.next.requests.suggestions.push(suggestions.swap_remove(at)),
                None => turn.next.requests.guidance.push(guidance),
            }
            turn.next.pull.reviews_seen.push(key);
            new += 1;
        }
    }
    if new == 0 {
        return turn.because("the review contains nothing new");
    }
    turn.next.branch.verified = None;
    if turn.next.state == LoopState::Review {
        let why = format!("{} asked for changes", by.login);
        turn.next.people.authority = by;
        turn.another_round(&why);
    } else {
        turn.because("the requests of the review are kept for the next iteration");
    }
}

/// Handles an input of a loop that has ended: rejects commands, and adds costs that were reported late.
pub(super) fn after_the_end(turn: &mut StepContext, input: &LoopInput) {
    let state = turn.next.state;
    if let LoopInput::Command(CommandInput::Given { by, comment, command: LoopCommand::Guide(guide) }) = input
        && let Some(accepted) = guide.accepted(&by.login)
    {
        turn.answer(*comment, true, vec![accepted]);
    } else if let LoopInput::Command(CommandInput::Given { comment, .. }) = input {
        let line = format!("This loop is {}. Set the label again to start a new one.", state.words());
        turn.answer(*comment, false, vec![line]);
    } else {
        turn.because(format!("the loop is {}", state.words()));
    }
    match input {
        LoopInput::Command(_) | LoopInput::Timer(_) => {}
        LoopInput::Forge(input) => reported_late(turn, input),
        LoopInput::Outcome { outcome, .. } => {
            let late = work::book(turn, outcome);
            if late > Money(0) {
                turn.because(format!("{late} were reported after the end"));
                turn.push(ForgeEffect::Status { fresh: false });
                if turn.next.pull.opened.is_some() {
                    turn.push(ForgeEffect::Pull { ready: false, reviewers: Vec::new() });
                }
            }
        }
    }
}

fn reported_late(turn: &mut StepContext, input: &ForgeInput) {
    match input {
        ForgeInput::ChangeRefused { change, detail } => refusals::refused(turn, *change, detail.clone()),
        ForgeInput::ChangeMade { change } => refusals::made(turn, *change),
        ForgeInput::PullOpened { .. } => turn.push(TimerEffect::Clear { kind: TimerKind::Remind }),
        ForgeInput::Rendered { .. }
        | ForgeInput::IssueEnded { .. }
        | ForgeInput::TestsFound { .. }
        | ForgeInput::PullMerged
        | ForgeInput::PullClosed
        | ForgeInput::PullGone
        | ForgeInput::RepositoryBack
        | ForgeInput::PullRetargeted { .. }
        | ForgeInput::Inspected(_)
        | ForgeInput::MergeAnswered { .. }
        | ForgeInput::MergeWithdrawn
        | ForgeInput::AuthorityLost { .. } => {}
    }
}
