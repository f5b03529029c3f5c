//! Inputs of people: start, commands, labels, reviews.

use super::{Decision, Turn, judge, work};
use crate::domain::checks::criteria;
use crate::domain::lifecycle::effect::{Effect, Mark};
use crate::domain::loops::TimerKind;
use crate::domain::loops::{
    BackendRequest, CommentRef, Guidance, GuidanceSource, Loop, LoopInput, LoopLimits, LoopStart, LoopState, LoopStep,
    LoopUsage, MergeWith,
};
use crate::domain::model::ids::{Money, Sha, Timestamp, User};
use crate::domain::model::task::{Check, CheckSource};
use crate::domain::report;
use crate::domain::supervision::experience::Experience;
use crate::domain::supervision::oversight::{AuditEntry, AuditEvent};
use crate::domain::trust::command::{Command, RunOptions};

/// A loop that comes to be: queued, or held back until a maintainer confirms the text.
pub(super) fn start(start: LoopStart, now: Timestamp) -> Decision {
    let LoopStart { id, place, by, task, options, policy, comment, hidden_removed, round } = start;
    let limits = LoopLimits {
        iterations: policy.limits.iterations,
        time_ms: i64::try_from(policy.limits.timeout_s).unwrap_or(i64::MAX / 2000).saturating_mul(1000),
        cost: policy.limits.cost,
    };
    let again = if round > 1 { format!("-{round}") } else { String::new() };
    let branch = format!("{}{}-{}{again}", policy.branch_prefix, place.issue, report::slug(&task.title));
    let confirmed = options.confirm.as_deref().is_some_and(|hash| confirms(hash, &task.hash));
    let needs_confirm = (task.unconfirmed_editor.is_some() || options.confirm.is_some()) && !confirmed;
    let next = Loop {
        id,
        place,
        state: LoopState::Queued,
        step: LoopStep::Idle,
        ticket: 0,
        task,
        authority: by.clone(),
        requested_by: by,
        options: RunOptions::default(),
        policy,
        limits,
        spent: LoopUsage::default(),
        checks: Vec::new(),
        checks_from: None,
        branch,
        base_branch: String::new(),
        base: None,
        head: None,
        pushed: None,
        baseline: None,
        measured_after: 0,
        iterations: Vec::new(),
        guidance: Vec::new(),
        pull: None,
        merge_wanted: None,
        merging: None,
        pause_wanted: None,
        verified: None,
        ci_seen: None,
        reviews_seen: Vec::new(),
        why: String::new(),
        escalated: None,
        failed_elsewhere: Vec::new(),
        sandbox: String::new(),
        overruled: Vec::new(),
        limited_tries: 0,
        wait: None,
        hidden_removed,
        agent_failures: 0,
        put_off: None,
        supervision: None,
        course: None,
        session: None,
        halting: None,
        schedule: None,
        wanted: BackendRequest::default(),
        estimate: None,
        experience: Experience::default(),
        created_at: now,
        updated_at: now,
        queued_at: None,
        version: 1,
    };
    let mut turn = Turn { next, effects: Vec::new(), reasons: Vec::new(), now };
    apply_options(&mut turn.next, &options);
    // The state is new to the forge, whatever it is: `go` sees no change from the queued one, so the label is set here.
    if needs_confirm {
        turn.go(LoopState::NeedsConfirm, "the text was changed by somebody without write access");
        let view = report::needs_confirm(&turn.next);
        turn.comment("confirm", view);
    } else {
        turn.effects.push(Effect::StateLabel { state: Some(LoopState::Queued) });
        turn.go(LoopState::Queued, "it waits for a free slot");
    }
    if let Some(comment) = comment.and_then(|c| c.id) {
        turn.effects.push(Effect::React { comment, mark: Mark::Done });
    }
    turn.done()
}

/// Whether what somebody typed after `--confirm` names this hash: its first 8 characters at least.
fn confirms(typed: &str, hash: &str) -> bool {
    typed.len() >= 8 && hash.starts_with(&typed.to_ascii_lowercase())
}

/// Takes options over; what they name replaces what was there.
fn apply_options(target: &mut Loop, options: &RunOptions) {
    if let Some(iterations) = options.max_iterations {
        target.limits.iterations = iterations;
    }
    if let Some(seconds) = options.timeout_s {
        target.limits.time_ms = i64::try_from(seconds).unwrap_or(i64::MAX / 2000).saturating_mul(1000);
    }
    if let Some(budget) = options.budget {
        target.limits.cost = budget;
    }
    if !options.checks.is_empty() {
        target.checks = from_commands(&options.checks);
        target.checks_from = Some(CheckSource::Command);
        target.baseline = None;
    }
    let kept = std::mem::take(&mut target.options);
    target.options = RunOptions {
        checks: if options.checks.is_empty() { kept.checks } else { options.checks.clone() },
        backend: options.backend.clone().or(kept.backend),
        base: options.base.clone().or(kept.base),
        max_iterations: options.max_iterations.or(kept.max_iterations),
        timeout_s: options.timeout_s.or(kept.timeout_s),
        budget: options.budget.or(kept.budget),
        confirm: None,
    };
}

/// Checks that a maintainer named in a command.
pub(super) fn from_commands(commands: &[String]) -> Vec<Check> {
    commands.iter().map(|command| criteria::plain(command, CheckSource::Command)).collect()
}

/// Returns the reason why the options cannot be applied to this loop; `None` if they can.
fn refused_options(current: &Loop, options: &RunOptions, now: Timestamp) -> Option<String> {
    if let Some(iterations) = options.max_iterations.filter(|n| *n <= current.spent.iterations) {
        let used = current.spent.iterations;
        return Some(format!(
            "--max-iterations {iterations} leaves nothing to do: {used} were used; give more than that."
        ));
    }
    if let Some(seconds) = options
        .timeout_s
        .filter(|s| i64::try_from(*s).is_ok_and(|s| s.saturating_mul(1000) <= current.spent.time_at(now)))
    {
        let used = current.spent.time_at(now) / 1000;
        return Some(format!("--timeout {seconds}s leaves nothing: {used} s were used; give more than that."));
    }
    if let Some(budget) = options.budget.filter(|b| *b <= current.spent.cost) {
        return Some(format!(
            "--budget {budget} leaves nothing: {} were used; give more than that.",
            current.spent.cost
        ));
    }
    if options.base.as_ref().is_some_and(|base| current.base.is_some() && *base != current.base_branch) {
        return Some("--base cannot change once work has begun; abort, and start a new loop.".to_owned());
    }
    None
}

/// A command from somebody with permission.
pub(super) fn command(turn: &mut Turn, by: User, command: Command, comment: Option<CommentRef>) {
    if let Some(said) = said(&command) {
        let reason = format!("{}: {said}", by.login);
        turn.audit(vec![AuditEntry::new(turn.next.spent.iterations, AuditEvent::Answered, reason)]);
    }
    match command {
        Command::Run { options } => run(turn, by, options, comment),
        Command::Resume { options, guidance } => resume(turn, by, &options, guidance, comment),
        Command::Abort { reason } => {
            let why = with_reason(&format!("{} ended it", by.login), &reason);
            turn.answer(comment, true, vec![why.clone()]);
            turn.end(LoopState::Aborted, &why);
        }
        Command::Pause { now, reason } => pause(turn, &by, now, &reason, comment),
        Command::Guide { remember, text } => guide(turn, &by, remember, &text, comment),
        Command::Budget { limit } => budget(turn, limit, comment),
        Command::Status => {
            turn.effects.push(Effect::Status { fresh: true });
            turn.carried_out(comment, "the status was asked for");
        }
        Command::Retry => retry(turn, by, comment),
        Command::Help => {
            let key = format!("help/{}", turn.next.version);
            let on = comment.map_or(turn.next.place.issue, |c| c.on);
            let view = report::help(&turn.next.policy);
            turn.comment_on(on, &key, view);
            turn.carried_out(comment, "help was asked for");
        }
    }
}

/// Returns the audit text of a command that changes the loop; a resume has an entry of its own.
fn said(command: &Command) -> Option<String> {
    Some(match command {
        Command::Abort { reason } => with_reason("abort", reason),
        Command::Pause { now, reason } => with_reason(if *now { "pause --now" } else { "pause" }, reason),
        Command::Guide { remember, text } => with_reason(if *remember { "guide --remember" } else { "guide" }, text),
        Command::Budget { limit } => format!("budget {limit}"),
        Command::Retry => "retry".to_owned(),
        Command::Run { .. } | Command::Resume { .. } | Command::Status | Command::Help => return None,
    })
}

fn with_reason(what: &str, reason: &str) -> String {
    if reason.trim().is_empty() { what.to_owned() } else { format!("{what}: {}", reason.trim()) }
}

/// `/ralph run` on a loop that exists: answers what it waits for, otherwise it is a wrong command.
fn run(turn: &mut Turn, by: User, options: RunOptions, comment: Option<CommentRef>) {
    match turn.next.state {
        LoopState::NeedsConfirm => {
            let Some(typed) = options.confirm.as_deref() else {
                return turn.answer(comment, false, vec!["The text has to be confirmed: add `--confirm HASH`.".into()]);
            };
            if !confirms(typed, &turn.next.task.hash) {
                let lines = vec![format!("`{typed}` is not the hash of the text shown; nothing was started.")];
                return turn.answer(comment, false, lines);
            }
            turn.next.task.unconfirmed_editor = None;
        }
        LoopState::NeedsCriteria if options.checks.is_empty() && turn.next.checks.is_empty() => {
            let lines = vec!["There is still no check: add `--check \"COMMAND\"`, or the repository's file.".into()];
            // The file may have come meanwhile, so it is looked for again all the same.
            turn.answer(comment, true, lines);
        }
        LoopState::NeedsCriteria => {}
        state => {
            let line = format!("A loop is {} here already; `/ralph resume` or `/ralph abort` it.", state.as_str());
            return turn.answer(comment, false, vec![line]);
        }
    }
    if let Some(problem) = refused_options(&turn.next, &options, turn.now) {
        return turn.answer(comment, false, vec![problem]);
    }
    apply_options(&mut turn.next, &options);
    turn.next.authority = by;
    turn.answer(comment, true, vec!["It goes on.".into()]);
    turn.queue("a maintainer supplied what was missing");
}

fn resume(turn: &mut Turn, by: User, options: &RunOptions, guidance: String, comment: Option<CommentRef>) {
    let state = turn.next.state;
    if !matches!(state, LoopState::Paused | LoopState::LimitReached | LoopState::Failed | LoopState::Waiting) {
        let line = match state {
            LoopState::Running | LoopState::Queued => {
                "It is under way; there is nothing to resume. `/ralph guide TEXT` reaches the next iteration."
            }
            LoopState::Review => "It is in review: ask for changes on the pull request, or `/ralph guide TEXT`.",
            _ => "It waits for `/ralph run`; see its last comment.",
        };
        return turn.answer(comment, false, vec![line.into()]);
    }
    if options.confirm.is_some() {
        let line = "There is no text to be confirmed; leave `--confirm` out.";
        return turn.answer(comment, false, vec![line.into()]);
    }
    if let Some(problem) = refused_options(&turn.next, options, turn.now) {
        return turn.answer(comment, false, vec![problem]);
    }
    let mut wanted = turn.next.clone();
    apply_options(&mut wanted, options);
    if let Some(problem) = spent_limit(&wanted, turn.now) {
        return turn.answer(comment, false, vec![problem]);
    }
    turn.next = wanted;
    add_guidance(turn, &by, guidance, false);
    turn.next.agent_failures = 0;
    turn.next.limited_tries = 0;
    turn.next.wait = None;
    let why = format!("{} resumed it", by.login);
    judge::resumed(turn, &by.login);
    turn.next.authority = by;
    turn.answer(comment, true, vec![why.clone()]);
    turn.queue(&why);
}

/// Returns the limit of the loop that is used up, if any.
pub(super) fn used_up(current: &Loop, now: Timestamp) -> Option<&'static str> {
    let (spent, limits) = (&current.spent, &current.limits);
    if spent.iterations >= limits.iterations {
        Some("iterations")
    } else if spent.time_at(now) >= limits.time_ms {
        Some("time")
    } else if limits.cost > Money(0) && spent.cost >= limits.cost {
        Some("money")
    } else {
        None
    }
}

/// Returns the reason why the loop cannot continue within its limits, with the option that raises the limit.
fn spent_limit(current: &Loop, now: Timestamp) -> Option<String> {
    let limits = &current.limits;
    Some(match used_up(current, now)? {
        "iterations" => {
            let more = limits.iterations.saturating_add(5);
            format!("All {} iterations are used: `/ralph resume --max-iterations {more}`.", limits.iterations)
        }
        "time" => {
            let minutes = limits.time_ms / 60_000;
            format!("Its {minutes} minutes are used: `/ralph resume --timeout {}m`.", minutes + 60)
        }
        _ => {
            let more = Money(limits.cost.0.saturating_mul(2)).usd();
            format!("Its {} are used: `/ralph resume --budget {more:.2}`.", limits.cost)
        }
    })
}

fn add_guidance(turn: &mut Turn, by: &User, text: String, remember: bool) {
    if !text.trim().is_empty() {
        let source = GuidanceSource::Command;
        turn.next.guidance.push(Guidance { who: by.login.clone(), source, text, path: None, remember });
    }
}

fn pause(turn: &mut Turn, by: &User, now: bool, reason: &str, comment: Option<CommentRef>) {
    let why = with_reason(&format!("{} paused it", by.login), reason);
    match turn.next.state {
        LoopState::Running if !now && turn.next.step != LoopStep::Idle => {
            turn.next.pause_wanted = Some(why);
            turn.answer(comment, true, vec!["It pauses after the running iteration.".into()]);
            turn.effects.push(Effect::Status { fresh: false });
        }
        LoopState::Running | LoopState::Queued | LoopState::Waiting => {
            turn.answer(comment, true, vec![why.clone()]);
            turn.stop(LoopState::Paused, &why);
            turn.close_open_iteration(&why);
        }
        LoopState::Paused => turn.answer(comment, true, vec!["It is paused already.".into()]),
        state => {
            let line = format!("It is {}; there is nothing to pause.", state.as_str().replace('_', " "));
            turn.answer(comment, false, vec![line]);
        }
    }
}

fn guide(turn: &mut Turn, by: &User, remember: bool, text: &str, comment: Option<CommentRef>) {
    add_guidance(turn, by, text.to_owned(), remember);
    let kept = if remember { ", to be remembered for the repository" } else { "" };
    turn.answer(comment, true, vec![format!("{} gave guidance for the next iteration{kept}", by.login)]);
    if turn.next.state == LoopState::Review {
        turn.next.authority = by.clone();
        turn.queue("a maintainer gave guidance on finished work");
    } else {
        turn.effects.push(Effect::Status { fresh: false });
    }
}

fn budget(turn: &mut Turn, limit: Money, comment: Option<CommentRef>) {
    if limit <= turn.next.spent.cost {
        let line = format!("{limit} is not more than the {} used already; give more, or pause.", turn.next.spent.cost);
        return turn.answer(comment, false, vec![line]);
    }
    turn.next.limits.cost = limit;
    // The repository's file, read later, does not lower what a maintainer has said.
    turn.next.options.budget = Some(limit);
    let done = turn.next.kept().filter(|i| i.cost > Money(0)).count() as i64;
    let left = limit.0 - turn.next.spent.cost.0;
    let estimate = match done {
        0 => "no iteration has cost anything yet".to_owned(),
        n => format!("about {} more iterations at the cost so far", left / (turn.next.spent.cost.0 / n).max(1)),
    };
    let line = format!("The budget is {limit}: {estimate}.");
    turn.carried_out(comment, &line);
    let key = format!("budget/{}", turn.next.version);
    let on = comment.map_or(turn.next.place.issue, |c| c.on);
    turn.comment_on(on, &key, report::reply(true, vec![line]));
    turn.effects.push(Effect::Status { fresh: false });
}

/// Throws the last iteration's commits away and does it again.
fn retry(turn: &mut Turn, by: User, comment: Option<CommentRef>) {
    let state = turn.next.state;
    if !matches!(
        state,
        LoopState::Running | LoopState::Paused | LoopState::LimitReached | LoopState::Failed | LoopState::Review
    ) {
        let line = format!("It is {}; there is nothing to retry.", state.as_str().replace('_', " "));
        return turn.answer(comment, false, vec![line]);
    }
    let Some(last) = turn.next.iterations.iter_mut().rev().find(|i| !i.discarded) else {
        return turn.answer(comment, false, vec!["No iteration has run yet.".into()]);
    };
    last.discarded = true;
    let (number, parent, guidance) = (last.number, last.parent.clone(), last.guidance.clone());
    if let Some(problem) = spent_limit(&turn.next, turn.now) {
        if let Some(last) = turn.next.iterations.iter_mut().find(|i| i.number == number) {
            last.discarded = false;
        }
        return turn.answer(comment, false, vec![problem]);
    }
    turn.next.head = Some(parent);
    turn.next.verified = None;
    turn.next.merging = None;
    // It remembers what was thrown away.
    turn.next.session = None;
    turn.next.agent_failures = 0;
    turn.next.guidance.splice(0..0, guidance);
    let why = format!("{} threw iteration {number} away", by.login);
    judge::retried(turn, &by.login);
    turn.next.authority = by;
    turn.drop_work();
    turn.close_open_iteration(&why);
    turn.answer(comment, true, vec![why.clone()]);
    turn.queue(&why);
}

/// Taking the label off pauses.
pub(super) fn label_removed(turn: &mut Turn, by: Option<&User>) {
    match turn.next.state {
        // A text that waits to be confirmed goes on waiting: from paused it could be resumed unconfirmed.
        LoopState::Running | LoopState::Queued | LoopState::Waiting | LoopState::NeedsCriteria => {
            let why = match by {
                Some(by) => format!("{} took the label off", by.login),
                None => "the label was taken off".to_owned(),
            };
            turn.stop(LoopState::Paused, &why);
            turn.close_open_iteration(&why);
        }
        state => turn.because(format!("the label went while it is {}", state.as_str())),
    }
}

/// Setting it again goes on, where its removal had paused.
pub(super) fn label_added(turn: &mut Turn, by: User) {
    if turn.next.state == LoopState::Paused && spent_limit(&turn.next, turn.now).is_none() {
        let why = format!("{} set the label again", by.login);
        judge::resumed(turn, &by.login);
        turn.next.authority = by;
        turn.queue(&why);
    } else {
        turn.because(format!("the label came while it is {}", turn.next.state.as_str()));
    }
}

/// A review by somebody with permission: what it asks for becomes the guidance of a new round.
pub(super) fn reviewed(turn: &mut Turn, by: User, items: Vec<(String, Guidance)>) {
    let mut new = 0;
    for (key, guidance) in items {
        if !turn.next.reviews_seen.contains(&key) {
            turn.next.reviews_seen.push(key);
            turn.next.guidance.push(guidance);
            new += 1;
        }
    }
    if new == 0 {
        return turn.because("the review holds nothing new");
    }
    turn.next.verified = None;
    if turn.next.state == LoopState::Review {
        let why = format!("{} asked for changes", by.login);
        turn.next.authority = by;
        another_round(turn, &why);
    } else {
        turn.because("what the review asks for is kept for the next iteration");
    }
}

/// Handles the state of CI on the pull request's head, and whether it can be merged.
pub(super) fn inspected(turn: &mut Turn, commit: &Sha, failed: Vec<Guidance>, pending: u32, conflict: bool) {
    if turn.next.state != LoopState::Review || turn.next.pushed.as_ref() != Some(commit) {
        return turn.because("CI spoke of another commit than the one under review");
    }
    if conflict && turn.next.merge_wanted.is_none() {
        turn.next.merge_wanted = Some(MergeWith::Base);
        return another_round(turn, "the branch conflicts with its base");
    }
    if failed.is_empty() || pending > 0 || turn.next.ci_seen.as_ref() == Some(commit) {
        return turn.because("nothing to do about CI");
    }
    turn.next.ci_seen = Some(commit.clone());
    turn.next.guidance.extend(failed);
    turn.next.verified = None;
    another_round(turn, "CI failed on the pull request");
}

fn another_round(turn: &mut Turn, why: &str) {
    match used_up(&turn.next, turn.now) {
        None => turn.queue(why),
        Some(which) => turn.reach_limit(which, &format!("{why}, but nothing is left of its {which}")),
    }
}

/// An input to a loop that has ended changes nothing; a command is told so, once.
pub(super) fn after_the_end(turn: &mut Turn, input: &LoopInput) {
    let state = turn.next.state;
    turn.because(format!("the loop is {}", state.as_str()));
    if let LoopInput::Command { comment, .. } = input {
        let line = format!("This loop is {}. Set the label again to start a new one.", state.as_str());
        turn.answer(*comment, false, vec![line]);
    }
    if matches!(input, LoopInput::PullOpened { .. }) {
        turn.effects.push(Effect::ClearTimer { kind: TimerKind::Remind });
    }
    let late = work::book(turn, input);
    if late > Money(0) {
        turn.because(format!("{late} more were spent"));
        turn.effects.push(Effect::Status { fresh: false });
        if turn.next.pull.is_some() {
            turn.effects.push(Effect::Pull { ready: false, reviewers: Vec::new() });
        }
    }
}
