//! Inputs of people other than commands: the start of a loop, labels, and reviews.

use super::waits::forget_repository;
use super::{StepContext, StepDecision, judge, refusals, work};
use crate::domain::lifecycle::effect::{ForgeEffect, Mark, TimerEffect};
use crate::domain::loops::command::LoopCommand;
use crate::domain::loops::{
    BackendRequest, CommandInput, ForgeInput, Guidance, Loop, LoopInput, LoopLimits, LoopPull, LoopStart, LoopState,
    LoopStep, LoopUsage, Planning, SecondOpinions, SuggestedChange, TaskStatements, TestGuard, remark_of,
};
use crate::domain::loops::{RunOptions, TimerKind};
use crate::domain::model::ids::{Money, Timestamp, User};
use crate::domain::model::image::TaskImages;
use crate::domain::report;
use crate::domain::supervision::experience::Experience;
use crate::domain::trust::policy::Policy;

/// Creates a loop. It is queued, or waits until a maintainer confirms the text.
pub(super) fn start(start: LoopStart, now: Timestamp) -> StepDecision {
    let LoopStart { id, place, by, task, options, plan, request, existing, policy, comment, hidden_removed, round } =
        start;
    let limits = initial_limits(&policy);
    let guidance = Guidance::of_command(&by.login, request).into_iter().collect();
    let again = if round > 1 { format!("-{round}") } else { String::new() };
    let own_branch = || format!("{}{}-{}{again}", policy.branch_prefix, place.issue, report::slug(&task.title));
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
        place,
        state: LoopState::Queued,
        step: LoopStep::Idle,
        ticket: 0,
        task,
        authority: by.clone(),
        requested_by: by,
        options: RunOptions { base: base_branch.clone(), ..RunOptions::default() },
        policy,
        limits,
        spent: LoopUsage::default(),
        checks: Vec::new(),
        checks_from: None,
        proposed: Vec::new(),
        branch,
        base_branch: base_branch.unwrap_or_default(),
        base: None,
        head: None,
        pushed: None,
        baseline: None,
        baseline_base: None,
        measured_after: 0,
        iterations: Vec::new(),
        guidance,
        suggestions: Vec::new(),
        applied: Vec::new(),
        pull,
        existing,
        merge_wanted: None,
        merging: None,
        pause_wanted: None,
        verified: None,
        failed_ci: None,
        merge_wish: None,
        merge_ordered: None,
        refused: Vec::new(),
        reviews_seen: Vec::new(),
        why: String::new(),
        escalated: None,
        failed_elsewhere: Vec::new(),
        sandbox: String::new(),
        overruled: Vec::new(),
        lacks: Vec::new(),
        assistant_failure: None,
        budget_notice: 0,
        limited_tries: 0,
        wait: None,
        hidden_removed,
        agent_failures: 0,
        put_off: None,
        hook_question: None,
        proposals: Vec::new(),
        opinions: SecondOpinions::default(),
        supervision: None,
        course: None,
        session: None,
        halting: None,
        schedule: None,
        wanted: BackendRequest::default(),
        planning,
        stated: TaskStatements::default(),
        estimate: None,
        past: None,
        experience: Experience::default(),
        images: TaskImages::default(),
        created_at: now,
        updated_at: now,
        queued_at: None,
        guard: TestGuard::default(),
        version: 1,
    };
    let mut turn = StepContext { next, effects: Vec::new(), reasons: Vec::new(), refused: false, now };
    options.apply_to(&mut turn.next);
    let doubt = needs_confirm.then(|| doubt_about_text(edited_after, unseen, turn.next.subject()));
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
            // Whoever removed it does not want the loop to continue by itself.
            forget_repository(&mut turn.next);
            turn.because(format!("the label was removed while the loop is {}", state.words()));
        }
    }
}

/// Resumes a paused loop whose label was set again. The label for a plan also requests a plan, unless the loop has started to
/// implement.
pub(super) fn label_added(turn: &mut StepContext, by: User, plan: bool) {
    if plan && turn.next.iterations.is_empty() {
        turn.next.planning.get_or_insert_default();
    }
    if turn.next.state == LoopState::Paused && turn.next.exhausted_limit(turn.now).is_none() {
        let why = format!("{} set the label again", by.login);
        judge::resumed(turn, &by.login);
        turn.next.authority = by;
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
        if !turn.next.reviews_seen.contains(&key) {
            if let Some(comment) = remark_of(&key) {
                turn.push(ForgeEffect::ReactToRemark { comment, mark: Mark::Seen });
            }
            match suggestions.iter().position(|change| remark_of(&key) == Some(change.comment)) {
                Some(at) => turn.next.suggestions.push(suggestions.swap_remove(at)),
                None => turn.next.guidance.push(guidance),
            }
            turn.next.reviews_seen.push(key);
            new += 1;
        }
    }
    if new == 0 {
        return turn.because("the review contains nothing new");
    }
    turn.next.verified = None;
    if turn.next.state == LoopState::Review {
        let why = format!("{} asked for changes", by.login);
        turn.next.authority = by;
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
                if turn.next.pull.is_some() {
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
