//! Second opinion about verified work. It is requested once for each commit that is to be handed over. Its findings lead to at
//! most one further iteration per loop. It never ends or blocks a loop: a failure is only mentioned in the pull request.

use super::next_iteration::next_iteration;
use super::{StepContext, handover, test_guard};
use crate::domain::lifecycle::effect::{ForgeEffect, WorkEffect};
use crate::domain::loops::{Guidance, GuidanceSource, LoopState, LoopStep, LoopStopReason, VerifiedState};
use crate::domain::model::opinion::{OpinionEnd, OpinionFinding, OpinionRun, OpinionVerdict};
use crate::domain::supervision::oversight::{AuditEntry, AuditEvent};

/// Maximum number of runs about one commit. The loop repeats a run that was lost because the service stopped.
const MAX_RUNS: u32 = 2;

/// Requests a second opinion about the head. Returns `false` if none is configured, or if there already is one.
pub(super) fn ask(turn: &mut StepContext) -> bool {
    let Some(head) = turn.next.branch.head.clone().filter(|_| turn.next.settings.policy.review.is_some()) else {
        return false;
    };
    // Requests of people in the meantime change the work first.
    if turn.next.supervision.opinions.is_about(&head) || turn.next.requests.has_open() {
        return false;
    }
    turn.next.supervision.opinions.lost = 0;
    turn.work(LoopStep::SecondOpinion, |ticket| WorkEffect::SecondOpinion { ticket, commit: head });
    true
}

/// Handles the end of a run. Requests another one if the run was lost, else continues with the result.
pub(super) fn given(turn: &mut StepContext, mut run: OpinionRun) {
    if turn.next.run.step != LoopStep::SecondOpinion || turn.next.branch.head.as_ref() != Some(&run.commit) {
        return turn.because("a second opinion that was not requested was ignored");
    }
    if run.end == OpinionEnd::Lost {
        turn.next.supervision.opinions.lost += 1;
        if turn.next.supervision.opinions.lost < MAX_RUNS {
            let cost = run.cost;
            let message = format!(
                "the second opinion of {} was lost, because the service stopped; about {cost} are counted for it, and the service requests it again",
                run.backend
            );
            turn.because(message.clone());
            turn.audit(vec![AuditEntry::new(turn.next.spent.iterations, AuditEvent::SecondOpinion, message)]);
            return turn
                .work(LoopStep::SecondOpinion, |ticket| WorkEffect::SecondOpinion { ticket, commit: run.commit });
        }
        run.end = OpinionEnd::Missing(format!("the service stopped {MAX_RUNS} times during its run"));
    }
    let wants_changes = matches!(&run.end, OpinionEnd::Answered(answer) if answer.verdict == OpinionVerdict::Changes);
    let iterates = wants_changes && can_iterate(turn);
    let message = words(&run, iterates.then(|| turn.next.spent.iterations.saturating_add(1)));
    turn.because(message.clone());
    turn.audit(vec![AuditEntry::new(turn.next.spent.iterations, AuditEvent::SecondOpinion, message)]);
    let (commit, remarks) = (run.commit.clone(), if iterates { remarks(&run) } else { Vec::new() });
    turn.next.supervision.opinions.last = Some(run);
    turn.next.supervision.opinions.before = None;
    if !iterates {
        return handover::before_ready(turn);
    }
    turn.next.supervision.opinions.iteration = Some(turn.next.spent.iterations.saturating_add(1));
    let iteration = turn.next.current().map_or(0, |current| current.number);
    turn.next.supervision.opinions.before = Some(VerifiedState { iteration, commit });
    turn.next.requests.guidance.extend(remarks);
    turn.next.branch.verified = None;
    if turn.next.pull.opened.is_some() {
        turn.push(ForgeEffect::Pull { ready: false, reviewers: Vec::new() });
    }
    test_guard::go_on(turn, false);
}

/// Continues without an opinion about the head. `why` is the reason, one sentence.
pub(super) fn missing(turn: &mut StepContext, why: String) {
    let (Some(commit), Some(review)) = (turn.next.branch.head.clone(), &turn.next.settings.policy.review) else {
        return next_iteration(turn);
    };
    let run = OpinionRun::free(commit, &review.backend, OpinionEnd::Missing(why));
    given(turn, run);
}

/// Whether findings may lead to another iteration: there was none because of an opinion yet, no pause is requested, and no limit
/// is reached.
fn can_iterate(turn: &StepContext) -> bool {
    let next = &turn.next;
    next.supervision.opinions.iteration.is_none()
        && next.run.pause_wanted.is_none()
        && next.exhausted_limit(turn.now).is_none()
}

/// Describes a run for the audit log. `iteration` is the iteration that works on the findings, if there is one.
fn words(run: &OpinionRun, iteration: Option<u32>) -> String {
    match &run.end {
        OpinionEnd::Answered(answer) => {
            let count = answer.findings.len();
            let findings = if count == 1 { "1 finding".to_owned() } else { format!("{count} findings") };
            let given = iteration.map_or(String::new(), |n| format!(", given to iteration {n}"));
            format!("second opinion of {}: {findings}{given}", run.backend)
        }
        OpinionEnd::Missing(why) => format!("no second opinion: {why}"),
        OpinionEnd::Lost => "no second opinion: its run was lost".to_owned(),
    }
}

/// Returns the findings as guidance for the next prompt.
fn remarks(run: &OpinionRun) -> Vec<Guidance> {
    let OpinionEnd::Answered(answer) = &run.end else { return Vec::new() };
    let remark = |finding: &OpinionFinding| Guidance {
        who: run.backend.clone(),
        source: GuidanceSource::SecondOpinion,
        text: format!("{}: {}", finding.severity.as_str(), finding.text),
        path: Some(finding.place()).filter(|place| !place.is_empty()),
        remember: false,
    };
    answer.findings.iter().map(remark).collect()
}

/// Hands over the work that was verified before a second opinion, if the loop would otherwise stop at a limit or fail while it
/// works on the findings. Returns whether it does.
pub(super) fn hands_over_instead(turn: &mut StepContext, then: &LoopStopReason) -> bool {
    let (LoopStopReason::Limit { why, .. } | LoopStopReason::Failed { why, .. }) = then else { return false };
    if turn.next.run.step == LoopStep::SecondOpinion {
        turn.drop_work();
        turn.next.run.step = LoopStep::SecondOpinion;
        missing(turn, why.clone());
        return true;
    }
    let Some(before) = turn.next.supervision.opinions.before.take() else { return false };
    let only_from_opinion =
        |guidance: &Guidance| matches!(guidance.source, GuidanceSource::SecondOpinion | GuidanceSource::Service);
    let later = || turn.next.iterations.iter().filter(|iteration| iteration.number > before.iteration);
    let is_asked = later()
        .flat_map(|iteration| &iteration.guidance)
        .chain(&turn.next.requests.guidance)
        .any(|g| !only_from_opinion(g));
    let moved = turn.next.checks.measured_after > before.iteration
        || turn.next.branch.merge.is_some()
        || later().any(|i| i.merged);
    let is_asked = is_asked || !turn.next.requests.suggestions.is_empty() || later().any(|i| !i.applied.is_empty());
    if is_asked || moved || turn.next.state != LoopState::Running || turn.next.run.halting.is_some() {
        return false;
    }
    turn.drop_work();
    turn.close_open_iteration(why);
    turn.next.requests.guidance.clear();
    turn.next.agent.session = None;
    turn.because(format!("{why}; the loop hands over the work that was verified before the second opinion"));
    let reason = LoopStopReason::Verified { why: why.clone() };
    if turn.next.branch.head.as_ref() == Some(&before.commit) {
        turn.finish(reason, "");
    } else {
        turn.put_best_back(before.iteration, before.commit, reason);
    }
    true
}

/// Verifies the state before the second opinion again. `words` states that its files were restored; empty if they were unchanged.
pub(super) fn returned(turn: &mut StepContext, words: &str) {
    let Some(head) = turn.next.branch.head.clone() else { return next_iteration(turn) };
    turn.because(format!("the loop verifies the work from before the second opinion again{words}"));
    // The files are those that the opinion is about.
    if let Some(last) = turn.next.supervision.opinions.last.as_mut().filter(|_| !words.is_empty()) {
        last.commit = head;
    }
    turn.next.supervision.opinions.returned = true;
    handover::verify(turn);
}
