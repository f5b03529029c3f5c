//! Guard of tests: handles findings about tests in the branch. Decides which findings the agent has to fix and which questions a maintainer gets. While
//! a finding is open, the loop does not reach `review`.

use super::StepContext;
use super::next_iteration::next_iteration;
use crate::domain::checks::criteria;
use crate::domain::lifecycle::effect::ForgeEffect;
use crate::domain::loops::{
    BaseCounts, BaseTestsRun, BranchFinding, ChangedTestFile, EscalationCause, IterationKind, Loop, LoopState,
    RewrittenFile, TestEvidence, named_paths,
};
use crate::domain::model::task::{CheckOutcome, CheckReport, TamperFinding, TamperKind, TestCounts};
use crate::domain::report;

/// Consequence of open findings after an iteration.
#[derive(Debug, Clone, PartialEq, Eq)]
enum GuardAction {
    /// No finding is open.
    Pass,
    /// The next prompt mentions the findings.
    TellAgent,
    /// The loop asks a maintainer.
    Ask,
}

/// Stores the findings of the branch at the newest commit. A finding that a person pushed remains attributed to them.
pub(super) fn measured(turn: &mut StepContext, mut findings: Vec<BranchFinding>) {
    let earlier = turn.next.branch_findings().unwrap_or_default();
    for finding in &mut findings {
        finding.pushed |= earlier.iter().any(|known| known.pushed && known.is_same(finding));
    }
    // A discarded or undone iteration says nothing about the branch.
    let standing = turn.next.standing().next().map(|iteration| iteration.number);
    if let Some(iteration) = turn.next.iterations.iter_mut().find(|iteration| Some(iteration.number) == standing) {
        iteration.branch_findings = Some(findings);
    }
}

/// Stores the evidence about tests from the fresh checkout. Returns whether a finding is open.
pub(super) fn verified(turn: &mut StepContext, report: &CheckReport, evidence: TestEvidence) -> bool {
    let TestEvidence { mut findings, base_tests, base_checks, rewritten } = evidence;
    findings.extend(rewritten.into_iter().map(written_meanwhile));
    if let (Some(base), Some(counted)) = (turn.next.branch.base.clone(), &base_checks) {
        turn.next.checks.guard.base = Some(BaseCounts::of(base, counted));
    }
    let mut changes = String::new();
    if report.all_hold() {
        let base = base_tests.as_ref().map(|run| &run.report);
        findings.extend(fewer_tests(&turn.next, base, report));
        if let Some(run) = base_tests {
            let needed = only_with_changed_tests(&run);
            if !needed.is_empty() {
                changes = run.diff;
            }
            findings.extend(needed);
        }
    }
    let open = findings.iter().any(|one| one.blocks() && turn.next.checks.guard.accepted_by(one).is_none());
    measured(turn, findings);
    if let Some(current) = turn.next.current_mut() {
        current.test_changes = changes;
    }
    open
}

/// Adds a finding for each check of the newest iteration that ran fewer tests than at the base. These are checks that exited 0
/// and failed only because of their test runner's report, so that no verification follows that would find the loss.
pub(super) fn contradicted(turn: &mut StepContext) {
    let Some(mut report) = turn.next.current().map(|current| current.checks.clone()) else { return };
    report.outcomes.retain(|outcome| outcome.contradicted);
    let fewer = fewer_tests(&turn.next, None, &report);
    if !fewer.is_empty() {
        let known = turn.next.branch_findings().unwrap_or_default().to_vec();
        measured(turn, [known, fewer].concat());
    }
}

/// Returns a finding for each check that runs fewer tests than at the base. If the base's tests ran with the branch's program,
/// that run is compared, because it judged the branch's tests.
fn fewer_tests(next: &Loop, with_base: Option<&CheckReport>, now: &CheckReport) -> Vec<BranchFinding> {
    let Some(at_base) = next.base_counts() else { return Vec::new() };
    let is_counted =
        |outcome: &CheckOutcome| outcome.tests.is_some() && !outcome.incomplete && outcome.objection.is_none();
    // Who skips a test runs it no more.
    let ran = |tests: TestCounts| tests.passing + tests.failing;
    let fell = |own: &CheckOutcome| {
        let of_base = with_base.and_then(|report| report.outcomes.iter().find(|outcome| outcome.name == own.name));
        let outcome = of_base.filter(|outcome| is_counted(outcome)).unwrap_or(own);
        // A passed check whose tests were not counted completely is not evidence: the exit code decides.
        if !outcome.contradicted && !is_counted(outcome) {
            return None;
        }
        let then = at_base.tests.get(&outcome.name).copied()?;
        let passes = then.passing > 0 || outcome.tests.is_some_and(|now| now.passing > 0);
        // A counter that never saw a test pass does not count all of them, unless it says now that there are none.
        let then = Some(then).filter(|_| passes || outcome.contradicted)?;
        let skipped = outcome.tests.map_or(0, |now| now.skipped);
        let (then, more_skipped) = (ran(then), skipped.saturating_sub(then.skipped));
        let now = outcome.tests.map_or(0, ran);
        let words = match outcome.tests {
            None => "none now".to_owned(),
            Some(_) if more_skipped > 0 => format!("{now} now, {more_skipped} more skipped"),
            Some(_) => format!("{now} now"),
        };
        let evidence = format!("{then} {} counted at the base, {words}", criteria::counted_unit(&outcome.command));
        (now < then).then(|| finding(&outcome.command, TamperKind::TestCountFell, evidence, now.to_string()))
    };
    now.outcomes.iter().filter_map(fell).collect()
}

/// Returns a finding for each test file whose change, or whose addition, makes a check pass.
fn only_with_changed_tests(run: &BaseTestsRun) -> Vec<BranchFinding> {
    let only_new = run.files.iter().all(|file| file.is_new);
    let fails = |outcome: &&CheckOutcome| !(outcome.holds || only_new && measures_less(outcome));
    let Some(first) = run.report.outcomes.iter().find(fails) else { return Vec::new() };
    let of = |file: &ChangedTestFile| {
        let without = match (file.regions.join(", "), file.is_new) {
            (names, true) if names.is_empty() => "without this new file".to_owned(),
            (names, false) if names.is_empty() => "with the base's version".to_owned(),
            (names, true) => format!("without the new {names}"),
            (names, false) => format!("with the base's version of {names}"),
        };
        let evidence = format!("{without}, `{}` fails: {}", first.command, first.why);
        finding(&file.path, TamperKind::OnlyChangedTests, evidence, file.mark.clone())
    };
    run.files.iter().map(of).collect()
}

/// Whether a check fails only because its number, such as coverage or a count of tests, is smaller without the new tests, while
/// no other test fails.
fn measures_less(outcome: &CheckOutcome) -> bool {
    let none_fails = outcome.tests.is_none_or(|tests| tests.failing == 0) && outcome.failing_tests.is_empty();
    let passes = outcome.tests.is_some_and(|tests| tests.passing > 0);
    let measures = outcome.measured.is_some() && outcome.exit_code == Some(0) || outcome.coverage.is_some() && passes;
    none_fails && measures && !outcome.contradicted && !outcome.incomplete
}

fn written_meanwhile(file: RewrittenFile) -> BranchFinding {
    let evidence = "differs from the commit after the checks, but not at the base".to_owned();
    finding(&file.path, TamperKind::TestsRewritten, evidence, file.digest)
}

fn finding(path: &str, kind: TamperKind, evidence: String, mark: String) -> BranchFinding {
    BranchFinding { found: TamperFinding::new(path, kind, evidence), mark, pushed: false }
}

/// Continues after an iteration as open findings require; without any, starts the next iteration. `finished` is true if every
/// check passed in a fresh checkout.
pub(super) fn go_on(turn: &mut StepContext, finished: bool) {
    count(&mut turn.next);
    let used_up = turn.next.exhausted_limit(turn.now).is_some();
    let waits = turn.next.run.pause_wanted.is_some() || turn.next.requests.has_open();
    let only_a_person = turn.next.open_findings().iter().all(|finding| finding.needs_decision());
    match action(&turn.next, finished) {
        GuardAction::Ask if !waits && (finished || !used_up) => ask(turn),
        GuardAction::TellAgent if !waits && finished && used_up && only_a_person => ask(turn),
        GuardAction::TellAgent => {
            turn.next.checks.guard.told |= finished && !used_up && only_a_person;
            next_iteration(turn);
        }
        _ => next_iteration(turn),
    }
}

/// Counts an agent iteration that ended with an open finding. The same iteration is counted only once.
fn count(next: &mut Loop) {
    let open = next.open_findings().iter().any(|finding| !finding.needs_decision());
    let Some(last) = next.current().filter(|last| last.kind == IterationKind::Agent).map(|last| last.number) else {
        return;
    };
    if open && last > next.checks.guard.counted {
        next.checks.guard.counted = last;
        next.checks.guard.tries += 1;
    }
}

fn action(next: &Loop, finished: bool) -> GuardAction {
    let open = next.open_findings();
    let guard = &next.checks.guard;
    if open.is_empty() {
        return GuardAction::Pass;
    }
    if open.iter().all(|finding| finding.needs_decision()) {
        let asks = finished && (guard.told || open.iter().all(|finding| finding.pushed));
        return if asks { GuardAction::Ask } else { GuardAction::TellAgent };
    }
    if guard.tries < next.settings.policy.tampering.iterations {
        return GuardAction::TellAgent;
    }
    GuardAction::Ask
}

/// Pauses the loop and asks a maintainer about the open findings.
fn ask(turn: &mut StepContext) {
    let why = question(&turn.next);
    turn.stop(LoopState::Paused, &why);
    turn.close_open_iteration(&why);
    turn.push(ForgeEffect::Pull { ready: false, reviewers: Vec::new() });
    let view = report::test_question(&turn.next, turn.now);
    if turn.next.settings.policy.supervision().oversight.auto_escalate {
        turn.tell_escalation(EscalationCause::TestFindings, view);
    } else {
        turn.next.run.escalated = Some(EscalationCause::TestFindings);
        turn.comment(&format!("paused/{}", turn.next.version), report::at_home(view));
    }
}

fn question(next: &Loop) -> String {
    let open = next.open_findings();
    let paths = named_paths(&next.open_paths());
    if open.iter().all(|finding| finding.pushed) {
        format!("tests that a person pushed are weaker than the base's: {paths}")
    } else if open.iter().all(|finding| finding.found.kind == TamperKind::AnswersHardCoded) {
        format!("every check passes, but the program returns only what its tests expect: {paths}")
    } else if open.iter().all(|finding| finding.found.kind == TamperKind::TestsNotJudged) {
        format!("every check passes, but the service could not run the base's version of changed tests: {paths}")
    } else if open.iter().all(|finding| finding.needs_decision()) {
        format!("every check passes, but only with the changes to {paths}")
    } else if open.iter().any(|finding| finding.may_be_asked_for(&next.task.text.agent_text())) {
        format!("tests or checks are weaker than the base's, which the task may ask for: {paths}")
    } else {
        format!("tests are weaker than the base's, and the agent did not restore them: {paths}")
    }
}
