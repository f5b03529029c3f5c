//! End of an iteration: its record, the judgement of supervision, and the consequences for the loop.
//!
//! The judgement is stored with the loop before anything acts on it. A loop that has to pause is paused in the same step, and no
//! later effect can run an agent.

use super::StepContext;
use super::work_texts::described;
use crate::domain::knowledge::intelligence::ClaimSums;
use crate::domain::knowledge::memory;
use crate::domain::lifecycle::effect::{ChannelEffect, Effect, ForgeEffect, StoreEffect};
use crate::domain::loops::{
    BranchFinding, ControlFigures, EndedLoop, EscalationCause, Iteration, IterationJudgement, IterationKind,
    JudgedDetection, Loop, LoopLimit, LoopState, LoopStopReason, NextRunPlan, error_signature,
};
use crate::domain::model::ids::{Money, Ratio, Sha};
use crate::domain::model::record::{CheckFact, Record, TreeChange};
use crate::domain::model::stated_facts::StatedFacts;
use crate::domain::model::task::{CheckOutcome, CheckReport, CheckRule, TamperFinding};
use crate::domain::report;
use crate::domain::report::notice::Notice;
use crate::domain::report::view;
use crate::domain::supervision::TaskFacts;
use crate::domain::supervision::control::out_of_range;
use crate::domain::supervision::experience::EarlierLoop;
use crate::domain::supervision::oversight::{self, AuditEntry, DetectionKind, InterventionLevel, modeled_similarity};
use crate::domain::supervision::replay::Trace;
use crate::domain::supervision::strategy::Approach;
use crate::domain::supervision::{ReviewContext, Supervision, SupervisionReview, SupervisionSettings};

/// Amount that failing lint and type checks together subtract from quality.
const LINT_WEIGHT: f64 = 0.5;
/// Amount that each finding of a weakened check subtracts from quality.
const TAMPER_WEIGHT: f64 = 0.15;
/// Words in commands of checks that concern quality, not function.
const LINTERS: [&str; 14] = [
    "lint",
    "clippy",
    "eslint",
    "tsc",
    "mypy",
    "pyright",
    "ruff",
    "flake8",
    "prettier",
    "rustfmt",
    "cargo fmt",
    "gofmt",
    "go vet",
    "shellcheck",
];
/// Words in titles and labels of security-sensitive tasks.
const SECURITY: [&str; 8] =
    ["security", "vulnerability", "cve", "auth", "authentication", "authorization", "crypto", "secret"];
/// Words in titles and labels of tasks that break compatibility.
const BREAKING: [&str; 3] = ["breaking", "breaking-change", "incompatible"];

/// Maximum number of failed approaches from earlier loops that a loop stores.
const MAX_FAILED: usize = 20;

impl Loop {
    /// Returns the facts about the task: stated facts, and guesses for the others.
    pub fn facts(&self) -> TaskFacts {
        let guessed = self.guessed_facts();
        let flag = |of: fn(&StatedFacts) -> Option<bool>| self.knowledge.stated.get(of).map(|(holds, _)| holds);
        let count =
            |of: fn(&StatedFacts) -> Option<u32>| self.knowledge.stated.get(of).map(|(count, _)| f64::from(count));
        TaskFacts {
            complexity: self
                .knowledge
                .stated
                .get(|facts| facts.complexity)
                .map(|(complexity, _)| f64::from(complexity)),
            security_sensitive: flag(|facts| facts.security_sensitive).unwrap_or(guessed.security_sensitive),
            breaking_changes: flag(|facts| facts.breaking_changes).unwrap_or(guessed.breaking_changes),
            scope: self.knowledge.stated.scope().map(|(places, _)| places).unwrap_or_default(),
            estimated_iterations: count(|facts| facts.estimated_iterations).or(guessed.estimated_iterations),
            ..guessed
        }
    }

    /// Returns guesses for the facts about the task, based on its text, its limits and earlier loops.
    pub fn guessed_facts(&self) -> TaskFacts {
        let words = |text: &str, known: &[&str]| {
            let text = text.to_lowercase();
            text.split(|c: char| !(c.is_alphanumeric() || c == '-')).any(|word| known.contains(&word))
        };
        let named = |known: &[&str]| {
            words(self.task.text.title(), known) || self.task.labels.iter().any(|label| words(label, known))
        };
        let minutes = self.limits.time_ms as f64 / 60_000.0;
        let dollars = (self.limits.cost.0 > 0).then(|| self.limits.cost.usd());
        let usual = |resource| self.knowledge.past.as_ref().and_then(|past| past.usual(resource));
        TaskFacts {
            task: self.task.text.agent_text(),
            max_iterations: self.limits.iterations.as_f64(),
            timeout_minutes: Some(minutes),
            max_cost_usd: dollars,
            complexity: None,
            security_sensitive: named(&SECURITY),
            breaking_changes: named(&BREAKING),
            scope: Vec::new(),
            estimated_iterations: usual(|past| past.iterations),
            typical_iterations: Some(f64::from(self.task_type().usual_iterations().1)),
            estimated_minutes: usual(|past| past.time_ms).map(|ms| ms / 60_000.0),
            estimated_cost_usd: usual(|past| past.cost).map(|micros| Money(micros as i64).usd()),
            experience: self.knowledge.experience.clone(),
        }
    }

    /// Returns the records of the iterations that were measured by the current checks, oldest first.
    pub fn records(&self) -> Vec<Record> {
        self.measured().filter_map(|iteration| iteration.record.clone()).collect()
    }

    /// Returns the trace of the loop for a replay.
    pub fn trace(&self) -> Trace {
        Trace { facts: self.facts(), records: self.records() }
    }

    /// Returns the statistics of this loop for later loops of the repository.
    pub fn as_earlier(&self) -> EarlierLoop {
        let threshold = self.settings.policy.supervision().oversight.step_threshold();
        EarlierLoop::of(&self.records(), self.disturbed_after(), threshold)
    }

    /// Returns the resources that this loop used, for later loops of the repository; `None` if the loop did no work or did not
    /// finish its task.
    pub fn as_ended(&self) -> Option<EndedLoop> {
        let spent = &self.spent;
        let finished = match self.state {
            LoopState::Review | LoopState::Merged => true,
            LoopState::Closed => self.branch.verified.is_some(),
            _ => false,
        };
        (finished && spent.iterations > 0).then(|| EndedLoop {
            task_type: self.task_type(),
            iterations: spent.iterations,
            time_ms: spent.time_ms.max(0),
            cost: spent.cost,
        })
    }

    /// Returns the number of records before the first intervention or guidance; `None` if there was none.
    fn disturbed_after(&self) -> Option<usize> {
        let judged = self.measured().filter(|iteration| iteration.record.is_some()).map(|it| it.judged.as_ref());
        let was_reported = |found: &JudgedDetection| found.fresh && found.level >= InterventionLevel::Warn;
        let mut judged = judged.map(|judged| judged.is_some_and(|judged| judged.found.iter().any(was_reported)));
        judged.position(|reported| reported).map(|before| before + 1)
    }

    /// Returns the newest failing outcomes, in the order in which to work on them.
    pub fn failing(&self) -> Vec<&CheckOutcome> {
        let outcomes = self.latest_checks().map_or(&[][..], |report| &report.outcomes);
        let mut failing: Vec<_> = outcomes.iter().filter(|outcome| !outcome.holds).collect();
        let order = self.supervision.course.as_ref().map_or(&[][..], |course| &course.checks);
        failing.sort_by_key(|outcome| order.iter().position(|name| *name == outcome.name).unwrap_or(order.len()));
        failing
    }

    /// Returns the latest judgement of supervision; `None` if there is none yet.
    pub fn judged(&self) -> Option<&IterationJudgement> {
        self.retained_iterations().rev().find_map(|iteration| iteration.judged.as_ref())
    }

    /// Returns the record of an iteration, and the number of its values that were out of range.
    fn record(&self, iteration: &Iteration) -> (Record, u32) {
        let outcomes = &iteration.checks.outcomes;
        let failed = outcomes.iter().filter(|outcome| !outcome.holds).count();
        let baseline = |name: &str| {
            let report = self.checks.baseline_report()?;
            report.outcomes.iter().find(|outcome| outcome.name == name).map(|outcome| outcome.holds)
        };
        let tests = iteration.checks.tests();
        let count = |of: fn(crate::domain::model::task::TestCounts) -> u64| tests.map(|tests| of(tests) as f64);
        let ended = iteration.ended_at.unwrap_or(iteration.started_at);
        let error_signature = error_signature(&iteration.checks);
        let weakened = self.weakened(iteration);
        let mut record = Record {
            iteration: f64::from(iteration.number),
            completion: iteration.completion,
            quality: quality(outcomes, weakened.len()),
            errors: failed as f64 + f64::from(iteration.tool_errors),
            tests_passing: iteration.checks.passing_tests().map(|passing| passing as f64),
            tests_failing: count(|tests| tests.failing),
            tests_skipped: count(|tests| tests.skipped),
            failures: iteration.checks.uncounted_failures(),
            coverage: outcomes
                .iter()
                .find(|outcome| self.checks.list.iter().any(|c| c.name == outcome.name && is_coverage(&c.rule)))
                .and_then(|outcome| outcome.measured)
                .or_else(|| outcomes.iter().find_map(|outcome| outcome.coverage)),
            reflection: Some(memory::reflection(self, iteration, error_signature.as_deref()).insight())
                .filter(|insight| !insight.is_empty()),
            error_signature,
            blockers: iteration.report.blockers.clone(),
            tree: iteration.tree.as_ref().map(ToString::to_string),
            change: tree_change(iteration),
            checks: outcomes
                .iter()
                .map(|outcome| CheckFact {
                    name: outcome.name.clone(),
                    passed: outcome.holds,
                    baseline: baseline(&outcome.name),
                })
                .collect(),
            tampering: weakened.iter().map(|f| format!("{}: {}", f.path, f.evidence)).collect(),
            agent_failure: Some(iteration.agent_problem.clone()).filter(|problem| !problem.is_empty()),
            duration_s: ended.since(iteration.started_at) as f64 / 1000.0,
            tool_calls: f64::from(iteration.tool_calls),
            tokens_in: iteration.tokens_in as f64,
            tokens_out: iteration.tokens_out as f64,
            cost_usd: iteration.cost.usd(),
            completion_signal: iteration.report.completion_signal,
            ..described(&iteration.report, &iteration.stat)
        };
        let modeled = |cosine| modeled_similarity(&self.task.text.agent_text(), &record, cosine);
        record.objective_similarity = iteration.objective_cosine.map(modeled);
        record.cleaned()
    }

    /// Returns the findings of weakened checks that count against an iteration. These are the open findings of the branch that
    /// the task cannot require. If the branch was not measured, they are the findings in the iteration's own change.
    fn weakened<'a>(&'a self, iteration: &'a Iteration) -> Vec<&'a TamperFinding> {
        let Some(branch) = &iteration.branch_findings else {
            return iteration.findings.iter().filter(|finding| finding.blocks()).collect();
        };
        let counts = |finding: &&BranchFinding| {
            finding.blocks() && !finding.needs_decision() && self.checks.guard.accepted_by(finding).is_none()
        };
        branch.iter().filter(counts).map(|finding| &finding.found).collect()
    }

    /// Stores approaches that failed in earlier loops.
    pub(super) fn keep_failed(&mut self, approaches: Vec<String>) {
        for approach in approaches {
            if self.knowledge.failed_elsewhere.len() < MAX_FAILED
                && !self.knowledge.failed_elsewhere.contains(&approach)
            {
                self.knowledge.failed_elsewhere.push(approach);
            }
        }
    }

    /// Returns the approaches that failed, in the agent's words: those without a gain in this loop, and those that failed in
    /// earlier loops.
    fn failed_approaches(&self) -> Vec<String> {
        let mut failed = self.knowledge.failed_elsewhere.clone();
        let start = self.checks.completion_at_start().get();
        let by_other_checks = |iteration: &&Iteration| iteration.number <= self.checks.measured_after;
        let (before, now): (Vec<_>, Vec<_>) =
            self.retained_iterations().filter(|i| i.ended_at.is_some()).partition(by_other_checks);
        for iterations in [before, now] {
            let mut best = start;
            for iteration in iterations {
                let completion = iteration.completion.get();
                if completion <= best && iteration.agent_problem.is_empty() {
                    failed.push(iteration.report.approach.clone());
                }
                best = best.max(completion);
            }
        }
        failed
    }

    /// Returns the commit after an iteration, or, for 0, the commit before the first iteration.
    fn commit_of(&self, iteration: u32) -> Option<Sha> {
        match self.retained_iterations().find(|known| known.number == iteration) {
            Some(known) => Some(known.commit.clone().unwrap_or_else(|| known.parent.clone())),
            None => self.retained_iterations().next().map(|first| first.parent.clone()),
        }
    }
}

/// Sets the checks of the current iteration, and the completion that they measure. Returns the iteration, if there is one. If a
/// check fails, the commit no longer counts as verified.
pub(super) fn set_checks(next: &mut Loop, checks: CheckReport) -> Option<&mut Iteration> {
    if !checks.all_hold() && next.branch.verified == next.branch.head {
        next.branch.verified = None;
    }
    let claimed = next.current()?.report.completion_percentage.map(|percent| Ratio::new(percent / 100.0));
    // Weighted by how far earlier claims of the agent were true.
    let believed = claimed.map(|claimed| ClaimSums::of(next).believed(claimed));
    let completion = checks.completion(next.checks.baseline_report(), believed);
    let current = next.current_mut()?;
    (current.completion, current.checks) = (completion, checks);
    Some(current)
}

fn tree_change(iteration: &Iteration) -> TreeChange {
    match (iteration.kind, &iteration.tree, &iteration.commit) {
        (IterationKind::Merge | IterationKind::TestsPutBack | IterationKind::Suggestions, _, _) => TreeChange::Service,
        (IterationKind::Agent, None, _) => TreeChange::Unknown,
        (IterationKind::Agent, Some(_), None) => TreeChange::Nothing,
        (IterationKind::Agent, Some(_), Some(_)) => TreeChange::Agent,
    }
}

fn is_coverage(rule: &CheckRule) -> bool {
    matches!(rule, CheckRule::Coverage { .. })
}

/// Returns the quality, 0..1: 1 minus half the share of failing lint and type checks, minus 0.15 for each finding of a weakened
/// check.
fn quality(outcomes: &[CheckOutcome], findings: usize) -> f64 {
    let is_lint = |outcome: &&CheckOutcome| {
        let words = format!("{} {}", outcome.name, outcome.command).to_lowercase();
        LINTERS.iter().any(|linter| words.contains(linter))
    };
    let lints: Vec<_> = outcomes.iter().filter(is_lint).collect();
    let failing = lints.iter().filter(|outcome| !outcome.holds).count();
    let share = if lints.is_empty() { 0.0 } else { failing as f64 / lints.len() as f64 };
    (1.0 - LINT_WEIGHT * share - TAMPER_WEIGHT * findings as f64).max(0.0)
}

/// Next action of the loop after an iteration was judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JudgementOutcome {
    /// The loop continues as the checks require.
    Proceed,
    /// Another iteration follows, even if every check passes.
    Iterate,
    /// The loop stopped or is stopping; the caller returns.
    Stopped,
}

/// Judges the iteration that just ended, and stores the judgement with the loop. [`act`] carries the judgement out.
pub(super) fn judge(turn: &mut StepContext) -> Option<SupervisionReview> {
    let (record, wrong) = turn.next.current().map(|current| turn.next.record(current))?;
    if let Some(warning) = out_of_range(wrong, u64::from(turn.next.spent.iterations)) {
        turn.because(warning);
    }
    let settings = turn.next.settings.policy.supervision();
    let facts = turn.next.facts();
    let mut supervision = known(turn, &facts, &settings);
    if let Some(current) = turn.next.current_mut() {
        current.record = Some(record);
    }
    let history = turn.next.records();
    let reviews: Vec<String> = turn.next.requests.guidance.iter().map(|guidance| guidance.text.clone()).collect();
    let failed = turn.next.failed_approaches();
    let review = turn.next.current().and_then(|current| {
        let evidence = ReviewContext {
            checks: Some(&current.checks),
            change: Some(&current.stat),
            reviews: &reviews,
            failed: &failed,
        };
        supervision.review(&history, &facts, evidence, &settings)
    });
    turn.next.supervision.state = Some(supervision);
    let review = review?;
    let judged = judged(&review);
    turn.because(format!(
        "control signal {:.2}, {}, strategy {:?}",
        judged.signal,
        judged.trend.word(),
        judged.approach
    ));
    // An alarm that stops the loop is shown as the reason of its pause.
    let told = judged.issues.iter().filter(|issue| !review.before.stops() || review.after.contains(issue));
    told.for_each(|issue| turn.because(issue.text.clone()));
    turn.next.supervision.course = Some(NextRunPlan::of(&review));
    if review.fresh_session() {
        turn.next.agent.session = None;
    }
    if review.leaves_backend() {
        let served = turn.next.current().map(|current| current.served.backend.clone());
        turn.next.agent.wanted.other_than = served.filter(|name| !name.is_empty());
    }
    let iteration = turn.next.current().map_or(0, |current| current.number);
    let of_control = judged.control.iter().flat_map(|figures| figures.audit(iteration));
    let entries: Vec<AuditEntry> = review.verdict.audit.iter().cloned().chain(of_control).collect();
    if let Some(current) = turn.next.current_mut() {
        current.judged = Some(judged);
    }
    if !entries.is_empty() {
        turn.audit(entries);
    }
    Some(review)
}

/// Returns the state of supervision. It is rebuilt from the records if the stored state is unreadable or invalid.
fn known(turn: &mut StepContext, facts: &TaskFacts, settings: &SupervisionSettings) -> Supervision {
    let records = turn.next.records();
    match turn.next.supervision.state.take() {
        Some(known) if known.is_sound(records.len()) => known,
        None if records.is_empty() => Supervision::default(),
        _ => {
            turn.because("the stored state of supervision does not fit the records; it was rebuilt from them");
            Supervision::rebuilt(&records, facts, settings)
        }
    }
}

fn judged(review: &SupervisionReview) -> IterationJudgement {
    let control = &review.control;
    let found =
        review.verdict.detections.iter().zip(&review.verdict.interventions).map(|(detection, done)| JudgedDetection {
            kind: detection.kind,
            severity: detection.severity,
            basis: Some(done.basis),
            level: done.level,
            fresh: done.fresh,
            evidence: detection.evidence_text(),
            recommendations: detection.recommendations.clone(),
        });
    let moved = control.actuation.movements.iter();
    IterationJudgement {
        p: control.metrics.p,
        i: control.metrics.i,
        d: control.metrics.d,
        signal: control.control_signal,
        urgency: control.urgency,
        trend: control.metrics.trend,
        profile: control.gains.profile.clone(),
        forecast: control.metrics.forecast,
        health: review.verdict.health,
        found: found.collect(),
        approach: review.plan.approach,
        way: review.plan.name.clone(),
        reasoning: review.plan.reasoning.clone(),
        moved: moved.map(|m| format!("{} from {} to {}: {}", m.actuator.word(), m.from, m.to, m.cause)).collect(),
        stops: review
            .gives_up
            .clone()
            .or_else(|| (review.decision() >= oversight::OversightDecision::Pause).then(|| reason(review))),
        issues: review.after.iter().chain(&review.before.issues).cloned().collect(),
        control: Some(ControlFigures::of(control)),
    }
}

/// Carries out the decision of a review. `finished` is true if every check passed in a fresh checkout.
pub(super) fn act(turn: &mut StepContext, review: &SupervisionReview, finished: bool) -> JudgementOutcome {
    let verdict = &review.verdict;
    let used_up = turn.next.exhausted_limit(turn.now).is_some();
    // A reached limit also stops the loop, and its comment states how to continue.
    let at_limit = !finished && used_up;
    if let Some(why) = review.gives_up.as_ref().filter(|_| !finished && !used_up) {
        turn.reach_limit(LoopLimit::Outlook, why);
        return JudgementOutcome::Stopped;
    }
    match review.decision() {
        oversight::OversightDecision::Abort => {
            turn.stop_at_best(LoopStopReason::Aborted { why: reason(review) });
            JudgementOutcome::Stopped
        }
        oversight::OversightDecision::Pause if !at_limit => {
            let best = verdict.restore.and_then(|iteration| Some((iteration, turn.next.commit_of(iteration)?)));
            match best {
                Some((iteration, to)) if turn.next.branch.head.as_ref() != Some(&to) => {
                    turn.put_best_back(iteration, to, LoopStopReason::Held);
                }
                _ => turn.stop_at_best(LoopStopReason::Held),
            }
            JudgementOutcome::Stopped
        }
        oversight::OversightDecision::Pause => JudgementOutcome::Proceed,
        oversight::OversightDecision::Continue | oversight::OversightDecision::ContinueWithDirectives => {
            if !used_up {
                warn_channels(turn);
            }
            let tampered = verdict.redirect().is_some_and(|redirect| redirect.kind == DetectionKind::TestTampering);
            if finished && tampered && review.fresh_session() && !used_up {
                return JudgementOutcome::Iterate;
            }
            JudgementOutcome::Proceed
        }
    }
}

/// Notifies the channels that receive warnings that the agent was warned or has to change its approach. On the forge, the status
/// comment shows this.
fn warn_channels(turn: &mut StepContext) {
    if !turn.next.settings.policy.supervision().oversight.auto_escalate {
        return;
    }
    let new = |found: &&JudgedDetection| {
        matches!(found.level, InterventionLevel::Warn | InterventionLevel::Redirect) && found.fresh
    };
    let found = turn.next.judged().and_then(|judged| {
        judged.found.iter().filter(new).max_by_key(|found| found.level).map(|new| judged.named(new))
    });
    if let Some(notice) = found.map(|found| Notice::warned(&turn.next, found, turn.now)) {
        turn.push(ChannelEffect::Warn { notice: Box::new(notice) });
    }
}

/// Returns the reason for stopping, one sentence without a full stop.
fn reason(review: &SupervisionReview) -> String {
    let verdict = &review.verdict;
    match verdict.headline().filter(|done| done.level >= InterventionLevel::Pause) {
        Some(done) => done.reason.clone(),
        None if review.plan.approach == Approach::Escalate => review.plan.reasoning.clone(),
        None => match review.before.issues.first().filter(|_| review.before.stops()) {
            Some(issue) => issue.text.clone(),
            None => review.control.summary.clone(),
        },
    }
}

/// Pauses the loop for the reason of the last judgement, and asks people. `restored` describes the restored state.
pub(super) fn pause(turn: &mut StepContext, restored: &str) {
    let found = turn
        .next
        .judged()
        .and_then(IterationJudgement::headline)
        .filter(|found| found.level >= InterventionLevel::Pause)
        .cloned();
    let escalates = turn.next.settings.policy.supervision().oversight.auto_escalate;
    let Some(found) = found else {
        let why = turn.next.judged().and_then(|judged| judged.stops.clone()).unwrap_or_default();
        turn.stop(LoopState::Paused, &format!("{why}{restored}"));
        let cause = EscalationCause::NoWayForward;
        let advice = "give guidance with `/ralph resume`, or end it with `/ralph abort`";
        if escalates {
            return turn.escalate(cause, advice);
        }
        let view = report::escalation(&turn.next, &cause, advice, turn.now);
        return turn.comment(&format!("paused/{}", turn.next.version), report::at_home(view));
    };
    turn.stop(LoopState::Paused, &format!("{}{restored}", found.reason()));
    let view = report::intervention(&turn.next, &found, view::EscalationSeverity::Critical, turn.now);
    if escalates {
        turn.tell_escalation(found.kind.into(), view);
    } else {
        turn.comment(&format!("paused/{}", turn.next.version), report::at_home(view));
    }
}

/// Ends the loop and keeps its work.
pub(super) fn abort(turn: &mut StepContext, why: &str) {
    turn.push(ForgeEffect::Pull { ready: false, reviewers: Vec::new() });
    turn.end(LoopState::Aborted, why);
    if !turn.next.settings.policy.supervision().oversight.auto_escalate {
        return;
    }
    // Without a detection that stops a loop it was control, by its own figures.
    let found = turn
        .next
        .judged()
        .and_then(IterationJudgement::headline)
        .filter(|found| found.level >= InterventionLevel::Pause)
        .cloned();
    let (cause, view) = match found {
        Some(found) => {
            (found.kind.into(), report::intervention(&turn.next, &found, view::EscalationSeverity::Emergency, turn.now))
        }
        None => (EscalationCause::Emergency, report::emergency(&turn.next, turn.now)),
    };
    turn.push(Effect::escalate(cause, view));
}

/// Pauses or ends the loop although the files of could not restore the best iteration.
pub(super) fn restore_failed(turn: &mut StepContext, why: &str) {
    if turn.next.run.halting.as_ref().is_some_and(|halting| halting.then != LoopStopReason::Held) {
        return turn.halt_without(why);
    }
    let settings = turn.next.settings.policy.supervision();
    let number = turn.next.current().map_or(0, |current| current.number);
    let mut supervision = turn.next.supervision.state.take().unwrap_or_default();
    let verdict = oversight::restore_failed(&mut supervision.overseer, number, why, &settings.oversight);
    turn.next.supervision.state = Some(supervision);
    turn.next.run.halting = None;
    turn.audit(verdict.audit.clone());
    abort(turn, &format!("cannot restore the best iteration: {why}"));
}

/// Resets supervision after a person resumed the loop, so that the same findings do not pause it again.
pub(super) fn resumed(turn: &mut StepContext, by: &str) {
    turn.next.run.halting = None;
    turn.next.checks.guard.begin_anew();
    turn.repeat_ci_failures();
    let Some(supervision) = turn.next.supervision.state.as_mut() else { return };
    let settings = turn.next.settings.policy.supervision();
    let iteration = turn.next.spent.iterations;
    let entry = supervision.resume(iteration, by, &settings);
    turn.audit(vec![entry]);
}

/// Rebuilds supervision from the remaining iterations after one was discarded, so that the same findings do not pause the loop
/// again.
pub(super) fn retried(turn: &mut StepContext, by: &str) {
    let (records, facts) = (turn.next.records(), turn.next.facts());
    turn.next.supervision.state =
        Some(Supervision::rebuilt(&records, &facts, &turn.next.settings.policy.supervision()));
    turn.next.supervision.course = None;
    resumed(turn, by);
}

impl StepContext {
    /// Adds entries to the audit log.
    pub(super) fn audit(&mut self, entries: Vec<AuditEntry>) {
        self.push(StoreEffect::Audit { entries });
    }
}
