//! Outcomes of the loop's own work: work tree, checks, agent, commit, push.

use super::handover::{before_ready, ready, verify};
use super::hooks::{self, HookConsequence};
use super::judge::{self, JudgementOutcome};
use super::next_iteration::{next_iteration, run_agent, start_agent};
use super::remaining_work::{nobody_wants_more, only_verification_is_left, unpushed};
use super::schedule::{self, RefusalHandling};
use super::test_guard;
use super::waits::{declined, give_back, wait, wait_for_backend, wait_for_repository};
use super::{
    MAX_ATTEMPTS, MAX_LOST_STARTS, StepContext, ci, conflicts, existing_pull, plan, pushes, second_opinion,
    suggestions, task_criteria,
};
use crate::domain::knowledge;
use crate::domain::lifecycle::effect::{CheckPurpose, ForgeEffect, WorkEffect};
use crate::domain::loops::{
    AgentEnd, AgentRunFacts, Baseline, EscalationCause, FailedVerification, IterationChange, LoopLimit, LoopState,
    LoopStep, MAX_AGENT_FAILURES, MergeInProgress, PastLoops, Planning, PreparedTree, ProposedCheck, TestEvidence,
    WaitReason, WorkOutcome,
};
use crate::domain::model::hook::{HookEvent, HookObjection};
use crate::domain::model::ids::{Money, Sha};
use crate::domain::model::task::CheckReport;
use crate::domain::report;
use crate::domain::supervision::oversight::{AuditEntry, AuditEvent};
use crate::domain::trust::policy::ProgressReport;
use crate::domain::trust::protected::ProtectedPolicy;

/// Maximum number of characters of a problem in the reason of a pause.
const MOST_OF_PROBLEM: usize = 300;

/// Applies an outcome of work. An outdated outcome is ignored.
pub(super) fn outcome(turn: &mut StepContext, ticket: u64, outcome: WorkOutcome) {
    book(turn, &outcome);
    // A push is a fact: without it, our own commit would later be taken for somebody else's.
    if let WorkOutcome::Pushed { commit } = &outcome {
        turn.next.branch.pushed = Some(commit.clone());
    }
    if ticket != turn.next.run.ticket || turn.next.state != LoopState::Running {
        return turn.because("an outcome arrived late");
    }
    if let WorkOutcome::AgentEnded { run } | WorkOutcome::Planned { run } = &outcome {
        assistant_failed(turn, run.assistant_failure.as_deref());
    }
    if let WorkOutcome::ProposalsTried { assistant_failure, .. } = &outcome {
        assistant_failed(turn, assistant_failure.as_deref());
    }
    match outcome {
        WorkOutcome::Prepared { tree } => prepared(turn, *tree),
        WorkOutcome::Checked { report } => checked(turn, report),
        WorkOutcome::ProposalsTried { report, .. } => {
            turn.next.checks.proposed = ProposedCheck::all_of(report);
            task_criteria::ask_for_any(turn);
        }
        WorkOutcome::Verified { report, tests } => match turn.next.run.step {
            LoopStep::Verify => verified(turn, report, Some(*tests)),
            _ => turn.because("a verification that was not requested was ignored"),
        },
        WorkOutcome::Planned { run } => plan::ended(turn, *run),
        WorkOutcome::AgentEnded { run } => agent_ended(turn, *run),
        WorkOutcome::AgentLost { salvaged, cost, before_start } => {
            agent_lost(turn, salvaged.as_ref(), cost, before_start)
        }
        WorkOutcome::AskedAtEnd { .. } => turn.because("a cost that belongs to no work was added"),
        WorkOutcome::Committed { change } => committed(turn, *change),
        WorkOutcome::SuggestionsApplied { change, applied, failed } => {
            suggestions::applied(turn, applied, &failed);
            committed(turn, *change)
        }
        WorkOutcome::Restored { commit, retained_as } => restored(turn, commit, retained_as),
        WorkOutcome::Pushed { .. } => pushed(turn),
        WorkOutcome::PushRejected { remote, reason, refusal } => pushes::rejected(turn, remote, &reason, &refusal),
        WorkOutcome::PushBlocked { reason } => turn.push_blocked(&reason),
        WorkOutcome::Merged { other, conflicts, cause, up_to_date, base } => {
            conflicts::merged(turn, MergeInProgress { other, conflicts, cause, base }, up_to_date)
        }
        WorkOutcome::WorkFailed { reason, .. } if turn.next.run.step == LoopStep::Restore => {
            judge::restore_failed(turn, &reason)
        }
        WorkOutcome::WorkFailed { reason, .. } if turn.next.run.step == LoopStep::SecondOpinion => {
            second_opinion::missing(turn, reason)
        }
        WorkOutcome::WorkFailed { reason, .. } if turn.next.run.halting.is_some() => turn.halt_without(&reason),
        WorkOutcome::WorkFailed { reason, advice } => turn.fail(&reason, &advice),
        WorkOutcome::PutOff { until } => turn.stop_clock(until),
        WorkOutcome::RepositoryUnavailable { why } if turn.next.run.halting.is_some() => turn.halt_without(&why),
        WorkOutcome::RepositoryUnavailable { why } => wait_for_repository(turn, &why),
        WorkOutcome::HooksAnswered { event, objection } => hooks_answered(turn, event, objection),
        WorkOutcome::SecondOpinionGiven { run } => second_opinion::given(turn, *run),
        WorkOutcome::RepositoryFileBroken { path, problems } => {
            let first = problems.first().map(|problem| {
                let place = problem.strip_prefix(&format!("{path}:")).unwrap_or(problem);
                let first: String = place.chars().take(MOST_OF_PROBLEM).collect();
                if problems.len() > 1 {
                    format!(" ({first}, and {} more)", problems.len() - 1)
                } else {
                    format!(" ({first})")
                }
            });
            turn.stop(LoopState::Paused, &format!("`{path}` is not valid{}", first.unwrap_or_default()));
            let key = format!("repository-file/{}", turn.next.version);
            let view = report::repository_file(&turn.next, &path, &problems);
            turn.comment(&key, view);
        }
    }
}

/// Notes the first failure of an assistant in the loop, for the status comment and the audit log.
fn assistant_failed(turn: &mut StepContext, why: Option<&str>) {
    let Some(why) = why.filter(|_| turn.next.agent.assistant_failure.is_none()) else { return };
    let iteration = turn.next.spent.iterations;
    let words =
        format!("The assistant failed in iteration {iteration} ({why}); the loop continues with measured facts");
    turn.audit(vec![AuditEntry::new(iteration, AuditEvent::AssistantFailed, words.clone())]);
    turn.next.agent.assistant_failure = Some(words);
}

/// Adds the cost of an outcome to the loop, even if the outcome is outdated. Returns the cost.
pub(super) fn book(turn: &mut StepContext, outcome: &WorkOutcome) -> Money {
    let spent = &mut turn.next.spent;
    let cost = match outcome {
        WorkOutcome::AgentEnded { run } | WorkOutcome::Planned { run } => {
            spent.tokens_in = spent.tokens_in.saturating_add(run.tokens_in);
            spent.tokens_out = spent.tokens_out.saturating_add(run.tokens_out);
            run.cost.unwrap_or_default()
        }
        WorkOutcome::SecondOpinionGiven { run } => {
            spent.tokens_in = spent.tokens_in.saturating_add(run.tokens_in);
            spent.tokens_out = spent.tokens_out.saturating_add(run.tokens_out);
            turn.next.supervision.opinions.charge(run);
            run.cost
        }
        WorkOutcome::AgentLost { cost, .. }
        | WorkOutcome::AskedAtEnd { cost }
        | WorkOutcome::ProposalsTried { cost, .. } => *cost,
        WorkOutcome::Prepared { .. }
        | WorkOutcome::Checked { .. }
        | WorkOutcome::Verified { .. }
        | WorkOutcome::Committed { .. }
        | WorkOutcome::SuggestionsApplied { .. }
        | WorkOutcome::Restored { .. }
        | WorkOutcome::Pushed { .. }
        | WorkOutcome::PushRejected { .. }
        | WorkOutcome::PushBlocked { .. }
        | WorkOutcome::Merged { .. }
        | WorkOutcome::WorkFailed { .. }
        | WorkOutcome::PutOff { .. }
        | WorkOutcome::RepositoryUnavailable { .. }
        | WorkOutcome::HooksAnswered { .. }
        | WorkOutcome::RepositoryFileBroken { .. } => Money(0),
    };
    let cost = cost.max(Money(0));
    spent.cost = spent.cost.plus(cost);
    cost
}

fn prepared(turn: &mut StepContext, tree: PreparedTree) {
    turn.found_images(tree.images);
    let next = &mut turn.next;
    let first = next.branch.base.is_none();
    next.settings.policy = tree.policy;
    next.agent.sandbox = tree.sandbox;
    next.pull.proposals = tree.proposals;
    next.settings.overruled = tree.notes;
    next.agent.lacks = tree.lacks;
    next.branch.base_branch = tree.base_branch;
    if first {
        next.branch.base = Some(tree.base);
        // The repository's file can lower limits, options of a maintainer stand.
        if next.settings.options.max_iterations.is_none() {
            next.limits.iterations = next.limits.iterations.min(next.settings.policy.limits.iterations);
        }
        if next.settings.options.timeout_s.is_none() {
            let lowered = next.settings.policy.limits.timeout.as_millis();
            next.limits.time_ms = next.limits.time_ms.min(lowered);
        }
        if next.settings.options.budget.is_none() {
            next.limits.cost = next.limits.cost.min(next.settings.policy.limits.cost_usd.0);
        }
    }
    next.branch.head = Some(tree.head.clone());
    // The tree holds no merge any more; one that is still wanted is made again.
    next.branch.restart_merge();
    match tree.remote {
        // A push whose outcome was lost is known by its commit; other people's commits are never taken for ours.
        Some(remote) => {
            let ours = next.iterations.iter().any(|i| i.commit.as_ref() == Some(&remote));
            if ours || (next.branch.pushed.is_none() && remote == tree.head) {
                next.branch.pushed = Some(remote);
            }
        }
        // The person who resumes after a deletion wants the loop to continue, so it is pushed again.
        None => next.branch.pushed = None,
    }
    if first && turn.next.pull.existing.is_some() && !existing_pull::begins(turn, tree.problems.unwrap_or_default()) {
        return;
    }
    if !task_criteria::choose(turn, tree.detected) {
        return;
    }
    let adapts = turn.next.settings.policy.intelligence.adapts();
    turn.next.knowledge.estimate = tree.estimates.get(&turn.next.task_type()).copied().filter(|_| adapts);
    let asks_care = turn.next.knowledge.stated.asks_care();
    if turn.next.iterations.is_empty() && turn.next.knowledge.planning.is_none() {
        let required = turn.next.settings.policy.plans_first(&turn.next.task.labels) || asks_care;
        turn.next.knowledge.planning = required.then(Planning::default);
    }
    if asks_care {
        let next = &mut turn.next;
        let policy = &mut next.settings.policy;
        policy.protected.policy = policy.protected.policy.max(ProtectedPolicy::Restore);
        if next.iterations.is_empty() && next.settings.options.max_iterations.is_none() {
            next.limits.iterations = next.limits.iterations.min(policy.limits.careful_iterations());
        }
    }
    if first {
        turn.next.knowledge.past = Some(PastLoops::of(&tree.past, turn.next.task_type()));
    }
    turn.next.knowledge.experience = if adapts { tree.experience } else { Default::default() };
    if turn.next.checks.list.is_empty() {
        // The base stays the same, so its results do, too.
        if tree.proposes && turn.next.checks.proposed.is_empty() {
            let purpose = CheckPurpose::Proposals;
            return turn.work(LoopStep::Baseline, |ticket| WorkEffect::Check { ticket, purpose, commit: tree.head });
        }
        return task_criteria::ask_for_any(turn);
    }
    if turn.next.checks.baseline.is_none() {
        turn.push(ForgeEffect::Status { fresh: false });
        turn.work(LoopStep::Baseline, |ticket| WorkEffect::Check {
            ticket,
            purpose: CheckPurpose::Baseline,
            commit: tree.head,
        });
    } else if only_verification_is_left(&turn.next) {
        verify(turn);
    } else if let Some(commit) = unpushed(turn).filter(|_| turn.next.branch.merge.is_none()) {
        turn.work(LoopStep::Push, |ticket| WorkEffect::Push { ticket, commit });
    } else {
        next_iteration(turn);
    }
}

fn agent_ended(turn: &mut StepContext, run: AgentRunFacts) {
    let end = run.end;
    turn.found_images(run.images);
    let reads_messages = turn.next.settings.policy.intelligence.adapts();
    if turn.next.iterations.is_empty() {
        return turn.because("an agent run ended, but no iteration is running");
    }
    // An iteration that is given back leaves the session as it was; one that a broken run left may break the next as well.
    if !matches!(
        end,
        AgentEnd::Unavailable { .. } | AgentEnd::Declined { .. } | AgentEnd::Limited { .. } | AgentEnd::NoMoney { .. }
    ) {
        turn.next.agent.session = run.session.filter(|_| end == AgentEnd::Finished);
    }
    turn.next.keep_failed(run.failed_elsewhere);
    let Some(current) = turn.next.current_mut() else { return };
    current.cost = current.cost.plus(run.cost.unwrap_or_default().max(Money(0)));
    (current.tool_calls, current.tool_errors) = (run.tool_calls, run.tool_errors);
    current.tools = run.tools;
    current.refused_hosts = run.refused_hosts;
    current.refused_requests = run.refused_requests;
    current.denied_tools = run.denied_tools;
    current.killed = run.killed;
    current.tokens_in = current.tokens_in.saturating_add(run.tokens_in);
    current.tokens_out = current.tokens_out.saturating_add(run.tokens_out);
    current.agent_ms = current.agent_ms.saturating_add(run.duration_ms);
    current.served = run.served;
    // Where no report was written, the last message stands for it.
    let from_message = || reads_messages.then(|| knowledge::report_of(&run.message));
    current.report = run.report.or_else(from_message).unwrap_or_default();
    current.report.plan = None;
    current.message = run.message;
    current.agent_problem = match &end {
        AgentEnd::Finished => String::new(),
        AgentEnd::Failed { reason }
        | AgentEnd::Unavailable { reason }
        | AgentEnd::Declined { reason }
        | AgentEnd::Limited { reason, .. } => reason.clone(),
        AgentEnd::TimedOut { what } => format!("it was stopped: {what}"),
        AgentEnd::Cancelled => "it was stopped".into(),
        AgentEnd::OverBudget => "it was stopped at the cost limit".into(),
        AgentEnd::NoMoney { reason, .. } => reason.clone(),
    };
    let number = current.number;
    match end {
        AgentEnd::Unavailable { reason } => {
            let advice = "check that the agent is installed and logged in (`ralph-bot check`), then `/ralph resume`";
            give_back(turn);
            turn.fail(&format!("the agent cannot run: {reason}"), advice);
        }
        AgentEnd::Declined { reason } => {
            give_back(turn);
            declined(turn, &reason);
        }
        AgentEnd::Limited { until, reason } => match schedule::act_on_refusal(turn) {
            RefusalHandling::Waits => wait_for_backend(turn, until, &reason),
            RefusalHandling::Retried => next_iteration(turn),
            RefusalHandling::Stopped => {}
        },
        AgentEnd::NoMoney { reason, until: Some(at) } => wait(turn, WaitReason::Money, at, &reason),
        AgentEnd::NoMoney { reason, until: None } => {
            give_back(turn);
            turn.reach_limit(LoopLimit::Money, &reason);
        }
        AgentEnd::Failed { .. } | AgentEnd::TimedOut { .. } => {
            turn.next.run.wait = None;
            turn.next.agent.failures += 1;
            turn.work(LoopStep::Commit, |ticket| WorkEffect::Commit { ticket, iteration: number });
        }
        AgentEnd::Finished | AgentEnd::Cancelled | AgentEnd::OverBudget => {
            turn.next.agent.failures = 0;
            turn.next.agent.limited_tries = 0;
            turn.next.run.wait = None;
            turn.work(LoopStep::Commit, |ticket| WorkEffect::Commit { ticket, iteration: number });
        }
    }
}

/// Handles the loss of a run, whose `cost` is already recorded. The loop repeats the iteration. The attempt counts fully if its
/// agent had started.
fn agent_lost(turn: &mut StepContext, salvaged: Option<&Sha>, cost: Money, before_start: bool) {
    if turn.next.run.step == LoopStep::Plan {
        return plan::missed(turn, "the service stopped during the run".to_owned());
    }
    let salvage_note = salvaged.map_or(String::new(), |sha| format!("; its changes are kept as {}", sha.short()));
    let cost_note = if cost > Money(0) { format!("; {cost} is booked for the lost run") } else { String::new() };
    let Some(current) = turn.next.current_mut() else {
        return turn.because("an agent run was lost, but no iteration is running");
    };
    let number = current.number;
    current.interrupted += u32::from(!before_start);
    let exhausted = match (current.interrupted, current.attempt) {
        (MAX_ATTEMPTS.., _) => Some(format!("{MAX_ATTEMPTS} times")),
        (started, MAX_LOST_STARTS..) => {
            Some(format!("{MAX_LOST_STARTS} times, {started} of them after its agent had started"))
        }
        _ => None,
    };
    if let Some(times) = exhausted {
        let why = format!("iteration {number} was interrupted {times}");
        return turn.fail(&why, "look for the cause in the service's log, then `/ralph resume`");
    }
    current.attempt += 1;
    turn.because(format!("the service stopped during iteration {number}; it runs again{salvage_note}{cost_note}"));
    run_agent(turn);
}

fn committed(turn: &mut StepContext, change: IterationChange) {
    let merging = turn.next.branch.merging().is_some();
    let known = turn.next.iterations.iter().rev().nth(1).map(|last| last.refused.clone()).unwrap_or_default();
    let Some(current) = turn.next.current_mut() else {
        return turn.because("a commit was made, but no iteration is running");
    };
    current.commit = change.commit.clone();
    current.tree = Some(change.tree);
    (current.stat, current.restored, current.findings) = (change.stat, change.restored, change.findings);
    current.set_aside = change.set_aside;
    current.refused.clone_from(&change.refused);
    (current.change_bytes, current.binary_bytes) = (change.bytes, change.binary_bytes);
    current.objective_cosine = change.objective_cosine;
    if let Some(blocked) = change.blocked {
        // Nothing of it is kept: the next run starts where this one did, with the same guidance.
        (current.commit, current.tree) = (None, None);
        turn.next.agent.session = None;
        let text = format!("The last change was rejected: {blocked}. Do the task without it.");
        turn.tell_next_run(text);
        let advice = "the change was not pushed; `/ralph resume` tries again and gives the agent the reason";
        return turn.pause_and_ask(&blocked, EscalationCause::BlockedChange, advice);
    }
    // The previous run knew the other ones: a check or the agent writes such files each time, and the rest may be complete.
    for refused in change.refused.into_iter().filter(|refused| !known.contains(refused)) {
        turn.tell_next_run(format!("{refused}. Do the task without it."));
    }
    if conflicts::is_unresolved(turn, &change.conflict_markers) {
        return;
    }
    let Some(current) = turn.next.current_mut() else { return };
    current.branch_stat = change.branch_stat;
    current.merged = merging && change.commit.is_some();
    if let Some(findings) = change.branch_findings {
        test_guard::measured(turn, findings);
    }
    match change.commit {
        Some(commit) => {
            turn.next.branch.head = Some(commit.clone());
            if merging {
                conflicts::finish_merge(turn);
            }
            turn.work(LoopStep::Push, |ticket| WorkEffect::Push { ticket, commit });
        }
        // Nothing is checked for good that the forge does not have: an earlier push may have been refused.
        None => match turn.next.branch.head.clone().filter(|head| turn.next.branch.base.as_ref() != Some(head)) {
            Some(head) if turn.next.branch.pushed.as_ref() != Some(&head) => {
                turn.work(LoopStep::Push, |ticket| WorkEffect::Push { ticket, commit: head });
            }
            _ => run_checks(turn),
        },
    }
}

/// Pushes the restored files of the best iteration before the loop stops.
fn restored(turn: &mut StepContext, commit: Option<Sha>, retained_as: Option<String>) {
    turn.next.agent.session = None;
    let Some(halting) = turn.next.run.halting.as_mut() else { return turn.halt() };
    (halting.restored, halting.retained_as) = (true, retained_as);
    let best = halting.iteration;
    suggestions::undone(turn, best);
    if let Some(newest) = turn.next.iterations.iter_mut().rev().find(|iteration| !iteration.discarded) {
        newest.restored_to = Some(best);
    }
    let Some(commit) = commit.or_else(|| turn.next.branch.head.clone()) else { return turn.halt() };
    hooks::put_back(&mut turn.next, &commit);
    turn.next.branch.head = Some(commit.clone());
    turn.work(LoopStep::Push, |ticket| WorkEffect::Push { ticket, commit });
}

fn pushed(turn: &mut StepContext) {
    if turn.next.run.halting.is_some() {
        return turn.halt();
    }
    suggestions::pushed(turn);
    if turn.next.pull.opened.is_none() {
        turn.push(ForgeEffect::Pull { ready: false, reviewers: Vec::new() });
    }
    run_checks(turn);
}

fn run_checks(turn: &mut StepContext) {
    let Some(commit) = turn.next.branch.head.clone() else {
        return turn.because("there is nothing to check");
    };
    turn.work(LoopStep::Check, |ticket| WorkEffect::Check { ticket, purpose: CheckPurpose::Iteration, commit });
}

fn checked(turn: &mut StepContext, report: CheckReport) {
    match turn.next.run.step {
        LoopStep::Baseline => {
            // With existing work (`/ralph resume --check`), passing checks are a result, not a missing task.
            let (all_hold, may_hold) = (report.all_hold(), report.may_hold());
            // Checks of a head with work in it (`/ralph resume --check`) say nothing about the base.
            let at_base = turn.next.branch.head == turn.next.branch.base;
            let found = turn.next.pull.found_branch().map(|found| &found.head);
            // The commits of the author of a pull request are the reference, not the loop's work.
            let at_start = found.map_or(at_base, |found| turn.next.branch.head.as_ref() == Some(found));
            let base = turn.next.branch.base.clone().filter(|_| at_start);
            turn.next.checks.baseline = Some(Baseline { report, base });
            // Other checks measure the progress from here on; earlier measurements are not comparable.
            turn.next.checks.measured_after = turn.next.iterations.last().map_or(0, |last| last.number);
            turn.next.supervision.state = None;
            if may_hold && at_base && turn.next.pull.existing.is_none() {
                task_criteria::hold_before_any_change(turn);
            } else if all_hold && nobody_wants_more(&turn.next) {
                verify(turn);
            } else {
                next_iteration(turn);
            }
        }
        LoopStep::Check => iteration_checked(turn, report),
        LoopStep::Verify => verified(turn, report, None),
        _ => turn.because("checks that were not requested were ignored"),
    }
}

fn iteration_checked(turn: &mut StepContext, mut checks: CheckReport) {
    turn.next.mark_unexplained(&mut checks);
    let all_hold = checks.all_hold();
    let now = turn.now;
    let Some(current) = judge::set_checks(&mut turn.next, checks) else {
        return turn.because("checks finished, but no iteration is running");
    };
    current.ended_at = Some(now);
    let number = current.number;
    test_guard::contradicted(turn);
    // The result in the tree is verified in a fresh checkout.
    let verifies = all_hold && nobody_wants_more(&turn.next);
    if let Some(current) = turn.next.current_mut().filter(|_| verifies) {
        // The same iteration may have been measured before, with another result.
        current.record = None;
    }
    let review = if verifies { None } else { judge::judge(turn) };
    if turn.next.settings.policy.progress == ProgressReport::Comments
        && let Some(view) = report::iteration(&turn.next)
    {
        turn.comment(&format!("iteration/{number}"), view);
    }
    turn.push(ForgeEffect::Pull { ready: false, reviewers: Vec::new() });
    turn.push(ForgeEffect::Status { fresh: false });
    if turn.next.agent.failures >= MAX_AGENT_FAILURES {
        let why = format!("the agent failed {MAX_AGENT_FAILURES} times in a row");
        return turn.fail(&why, "read its last messages below, fix the cause, then `/ralph resume`");
    }
    if turn.next.state == LoopState::Running && task_criteria::pass_without_change(turn) {
        return;
    }
    let goes_on = verifies
        || (review.is_none_or(|review| judge::act(turn, &review, false) != JudgementOutcome::Stopped)
            && !schedule::acts(turn));
    if goes_on && !hooks::ask(turn, HookEvent::AfterIteration) {
        after_iteration(turn);
    }
}

/// Verifies an iteration whose checks passed, else starts the next one.
fn after_iteration(turn: &mut StepContext) {
    // Guidance that came meanwhile is work to be done, however the checks stand.
    if turn.next.current().is_some_and(|current| current.checks.all_hold()) && nobody_wants_more(&turn.next) {
        verify(turn);
    } else {
        test_guard::go_on(turn, false);
    }
}

/// Handles the outcome of the verification. Without `tests`, as in outcomes of an older version, the findings about the commit
/// are kept.
fn verified(turn: &mut StepContext, mut report: CheckReport, tests: Option<TestEvidence>) {
    let Some(head) = turn.next.branch.head.clone() else { return };
    // The result of an iteration whose work was undone does not count.
    let returned = std::mem::take(&mut turn.next.supervision.opinions.returned);
    let found = tests.is_some_and(|tests| test_guard::verified(turn, &report, tests));
    if !report.all_hold() {
        tell_failures(turn, &report);
        let failing = report.outcomes.iter().filter(|outcome| !outcome.holds);
        let checks = failing.map(|outcome| outcome.name.clone()).collect();
        turn.next.checks.guard.failed = Some(FailedVerification { commit: head, checks });
        judge::set_checks(&mut turn.next, report);
        let review = judge::judge(turn);
        if review.is_none_or(|review| judge::act(turn, &review, false) != JudgementOutcome::Stopped) {
            test_guard::go_on(turn, false);
        }
        return;
    }
    for outcome in &mut report.outcomes {
        outcome.flaky |=
            turn.next.is_known_as_flaky(&outcome.name) || turn.next.failed_in_fresh_checkout().contains(&outcome.name);
    }
    let open = found || !turn.next.open_findings().is_empty();
    turn.next.branch.verified = Some(head).filter(|_| !open);
    if let Some(current) = turn.next.current_mut().filter(|_| !returned) {
        current.checks = report;
    }
    let review = if returned { None } else { judge::judge(turn) };
    let onward = review.map_or(JudgementOutcome::Proceed, |review| judge::act(turn, &review, true));
    if onward == JudgementOutcome::Stopped {
        return;
    }
    if open {
        turn.push(ForgeEffect::Pull { ready: false, reviewers: Vec::new() });
        return test_guard::go_on(turn, true);
    }
    // Requests of people during the checks are work that comes before the review.
    if onward == JudgementOutcome::Iterate || turn.next.requests.has_open() {
        return next_iteration(turn);
    }
    if task_criteria::pass_without_change(turn) || task_criteria::asks_about_flaky(turn) {
        return;
    }
    if !ci::asks_about_red(turn) && !second_opinion::ask(turn) {
        before_ready(turn);
    }
}

/// Adds the failures in a fresh checkout to the next prompt.
fn tell_failures(turn: &mut StepContext, report: &CheckReport) {
    let failing = |flaky: bool| {
        let failing = report.outcomes.iter().filter(|outcome| !outcome.holds && outcome.flaky == flaky);
        failing.map(|outcome| format!("`{}` ({})", outcome.command, outcome.why)).collect::<Vec<_>>().join("; ")
    };
    let (missing, flaky) = (failing(false), failing(true));
    if !missing.is_empty() {
        turn.tell_next_run(format!(
            "The checks passed in the work tree, but not in a fresh checkout of the commit: {missing}. Something they need is not committed (ignored files, generated files, absolute paths)."
        ));
    }
    if !flaky.is_empty() {
        turn.tell_next_run(format!(
            "A check does not give the same result twice in fresh checkouts of the commit: {flaky}. Find what makes it a matter of chance (time, order, concurrency, network, random numbers) and fix that."
        ));
    }
}

fn hooks_answered(turn: &mut StepContext, event: HookEvent, objection: Option<HookObjection>) {
    match (hooks::answered(turn, event, objection), event) {
        (HookConsequence::Proceed, HookEvent::BeforeAgent) => start_agent(turn),
        (HookConsequence::Proceed, HookEvent::AfterIteration) => after_iteration(turn),
        (HookConsequence::Proceed, HookEvent::BeforeReady) => ready(turn),
        (HookConsequence::Iterate(text), _) => {
            turn.tell_next_run(text);
            test_guard::go_on(turn, false);
        }
        (HookConsequence::Proceed, HookEvent::AfterEnd) | (HookConsequence::Stay, _) => {}
    }
}
