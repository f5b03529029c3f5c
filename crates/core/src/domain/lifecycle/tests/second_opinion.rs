//! Second opinions: they lead to at most one further iteration, never end a loop, and never make it wait forever.

use super::*;
use crate::domain::model::opinion::{
    OpinionAnswer, OpinionEnd, OpinionFinding, OpinionRun, OpinionSeverity, OpinionVerdict,
};
use crate::domain::supervision::oversight::AuditEvent;
use crate::domain::trust::policy::ReviewPolicy;

pub(super) fn review() -> Option<ReviewPolicy> {
    Some(ReviewPolicy { backend: "judge".into(), timeout_s: 60 })
}

/// Returns a loop whose work is verified and is being reviewed by another model.
fn read_by_another(change: impl FnOnce(&mut LoopStart)) -> LoopRun {
    let mut run = LoopRun::with(|start| {
        start.policy.review = review();
        change(start);
    });
    run.working().iteration(true).checked(true).is(LoopState::Running, LoopStep::SecondOpinion);
    run
}

pub(super) fn answer(verdict: OpinionVerdict, texts: &[&str]) -> OpinionEnd {
    let finding = |text: &&str| OpinionFinding {
        file: "src/lib.rs".into(),
        line: Some(7),
        severity: OpinionSeverity::Major,
        text: (*text).into(),
    };
    let findings = texts.iter().map(finding).collect();
    OpinionEnd::Answered(OpinionAnswer { verdict, summary: "Mostly good.".into(), findings })
}

impl LoopRun {
    fn opinion(&mut self, end: OpinionEnd) -> &mut Self {
        let commit = self.current.branch.head.clone().expect("a head");
        let run = OpinionRun { cost: Money(2_000_000), ..OpinionRun::free(commit, "judge", end) };
        self.tell(LoopInput::Outcome {
            ticket: self.current.run.ticket,
            outcome: WorkOutcome::SecondOpinionGiven { run: Box::new(run) },
        })
    }

    fn audited(&self) -> Vec<String> {
        let entries = self.effects.iter().filter_map(|effect| match effect {
            Effect::Store(StoreEffect::Audit { entries }) => Some(entries),
            _ => None,
        });
        let opinions = entries.flatten().filter(|entry| entry.event == AuditEvent::SecondOpinion);
        opinions.map(|entry| entry.reason.clone()).collect()
    }

    fn body(&self) -> report::view::PullView {
        report::pull(&self.current, self.now)
    }
}

#[test]
fn findings_lead_to_exactly_one_iteration() {
    let mut run = read_by_another(|_| {});
    run.opinion(answer(OpinionVerdict::Changes, &["an empty list panics", "a name misleads"]));
    run.is(LoopState::Running, LoopStep::Agent);
    assert_eq!(run.audited(), ["second opinion of judge: 2 findings, given to iteration 2"]);
    let guidance = &run.current.current().expect("an iteration").guidance;
    let guidance: Vec<_> = guidance.iter().map(|one| (one.source, one.path.as_deref(), one.text.as_str())).collect();
    let place = Some("src/lib.rs:7");
    let source = GuidanceSource::SecondOpinion;
    assert_eq!(guidance, [(source, place, "major: an empty list panics"), (source, place, "major: a name misleads")]);
    // The next commit is read as well, but its findings are only listed.
    run.iteration(true).checked(true).is(LoopState::Running, LoopStep::SecondOpinion);
    run.opinion(answer(OpinionVerdict::Changes, &["a name misleads"])).is(LoopState::Review, LoopStep::Idle);
    assert!(run.has(|effect| matches!(effect, Effect::Forge(ForgeEffect::Pull { ready: true, .. }))));
    let opinion = run.body().opinion.expect("shown");
    assert_eq!((opinion.remarks.len(), opinion.iteration, opinion.older), (1, Some(2), None));
    assert_eq!(run.current.spent.cost, Money(2 * 1_000_000 + 2 * 2_000_000));
    let judge = run.body().spent_on.into_iter().find(|line| line.backend == "judge").expect("its cost");
    assert_eq!(judge.cost, Money(4_000_000));
    assert_eq!(replay(run.log.clone()).as_ref(), Some(&run.current));
}

#[test]
fn accepted_work_is_handed_over_with_its_findings() {
    let mut run = read_by_another(|_| {});
    run.opinion(answer(OpinionVerdict::Sound, &["a name misleads"])).is(LoopState::Review, LoopStep::Idle);
    assert_eq!(run.body().opinion.expect("shown").remarks[0].place, "src/lib.rs:7");
    assert_eq!(run.current.spent.iterations, 1);
}

#[test]
fn missing_second_opinion_is_reported_and_does_not_stop_the_loop() {
    let mut run = read_by_another(|_| {});
    run.opinion(OpinionEnd::Missing("judge: rate limit".into())).is(LoopState::Review, LoopStep::Idle);
    assert_eq!(run.audited(), ["no second opinion: judge: rate limit"]);
    assert_eq!(run.body().opinion.expect("shown").missing, "judge: rate limit");
    let mut run = read_by_another(|_| {});
    let (reason, advice) = ("the disk is full".into(), "mend it".into());
    run.tell(LoopInput::Outcome {
        ticket: run.current.run.ticket,
        outcome: WorkOutcome::WorkFailed { reason, advice },
    })
    .is(LoopState::Review, LoopStep::Idle);
    assert_eq!(run.body().opinion.expect("shown").missing, "the disk is full");
}

#[test]
fn lost_run_is_repeated_once() {
    let mut run = read_by_another(|_| {});
    run.opinion(OpinionEnd::Lost).is(LoopState::Running, LoopStep::SecondOpinion);
    assert!(run.has(|effect| matches!(effect, Effect::Work(WorkEffect::SecondOpinion { .. }))));
    assert!(run.audited()[0].starts_with("the second opinion of judge was lost"), "{:?}", run.audited());
    let mut answered = read_by_another(|_| {});
    answered
        .opinion(OpinionEnd::Lost)
        .opinion(answer(OpinionVerdict::Sound, &[]))
        .is(LoopState::Review, LoopStep::Idle);
    assert_eq!(answered.body().opinion.expect("shown").lost, 1);
    assert_eq!(replay(answered.log.clone()).as_ref(), Some(&answered.current));
    run.opinion(OpinionEnd::Lost).is(LoopState::Review, LoopStep::Idle);
    assert!(run.body().opinion.expect("shown").missing.contains("stopped 2 times"), "{:?}", run.audited());
    assert_eq!(run.current.spent.cost, Money(1_000_000 + 2 * 2_000_000));
}

#[test]
fn late_and_foreign_opinions_change_only_the_cost() {
    let mut run = read_by_another(|_| {});
    let commit = run.current.branch.head.clone().expect("a head");
    let foreign = OpinionRun::free(sha(77), "judge", answer(OpinionVerdict::Changes, &["x"]));
    run.tell(LoopInput::Outcome {
        ticket: run.current.run.ticket,
        outcome: WorkOutcome::SecondOpinionGiven { run: Box::new(foreign) },
    });
    run.is(LoopState::Running, LoopStep::SecondOpinion);
    run.command(LoopCommand::Pause(command::Pause { now: true, reason: String::new() }));
    let late = OpinionRun { cost: Money(500), ..OpinionRun::free(commit, "judge", OpinionEnd::Lost) };
    let before = run.current.spent.cost;
    run.tell(LoopInput::Outcome {
        ticket: run.current.run.ticket - 1,
        outcome: WorkOutcome::SecondOpinionGiven { run: Box::new(late) },
    });
    run.is(LoopState::Paused, LoopStep::Idle);
    assert_eq!(run.current.spent.cost, before.plus(Money(500)));
    // After the pause, the same commit is verified and asked about again.
    run.command(resume()).working().checked(true).is(LoopState::Running, LoopStep::SecondOpinion);
}

#[test]
fn findings_without_an_iteration_left_are_listed() {
    let mut run = read_by_another(|start| start.policy.limits.iterations = IterationLimit::of(1));
    run.opinion(answer(OpinionVerdict::Changes, &["x"])).is(LoopState::Review, LoopStep::Idle);
    assert_eq!(run.body().opinion.expect("shown").remarks.len(), 1);
}

#[test]
fn guidance_during_the_opinion_comes_first() {
    let mut run = read_by_another(|_| {});
    run.command(guide("use a set"));
    run.opinion(answer(OpinionVerdict::Sound, &[])).is(LoopState::Running, LoopStep::Agent);
    let guidance = &run.current.current().expect("an iteration").guidance;
    assert_eq!(guidance.iter().map(|one| one.text.as_str()).collect::<Vec<_>>(), ["use a set"]);
    run.iteration(true).checked(true).is(LoopState::Running, LoopStep::SecondOpinion);
}

#[test]
fn failed_iteration_of_an_opinion_hands_over_the_verified_work() {
    let mut run = read_by_another(|start| start.policy.limits.iterations = IterationLimit::of(2));
    let verified = run.current.branch.head.clone();
    run.opinion(answer(OpinionVerdict::Changes, &["x"])).iteration(false);
    run.is(LoopState::Running, LoopStep::Restore);
    let ticket = run.current.run.ticket;
    run.tell(LoopInput::Outcome {
        ticket,
        outcome: WorkOutcome::Restored { commit: Some(sha(500)), retained_as: None },
    })
    .pushed();
    run.is(LoopState::Running, LoopStep::Verify);
    run.checked(true).is(LoopState::Review, LoopStep::Idle);
    assert_eq!(
        (run.current.branch.verified.as_ref(), run.current.branch.pushed.as_ref()),
        (Some(&sha(500)), Some(&sha(500)))
    );
    assert_ne!(run.current.branch.head, verified);
    let opinion = run.body().opinion.expect("shown");
    assert_eq!((opinion.older, opinion.remarks.len()), (None, 1), "it is about the same files");
    assert_eq!(replay(run.log.clone()).as_ref(), Some(&run.current));
}

#[test]
fn unavailable_agent_after_an_opinion_hands_over_the_verified_work() {
    let mut run = read_by_another(|_| {});
    run.opinion(answer(OpinionVerdict::Changes, &["x"]));
    run.agent(AgentEnd::Unavailable { reason: "not there".into() }).is(LoopState::Running, LoopStep::Verify);
    run.checked(true).is(LoopState::Review, LoopStep::Idle);
    assert!(run.current.requests.guidance.is_empty(), "{:?}", run.guidance());
}

#[test]
fn limit_during_requested_guidance_is_reported_as_limit() {
    let mut run = read_by_another(|start| start.policy.limits.iterations = IterationLimit::of(2));
    run.opinion(answer(OpinionVerdict::Changes, &["x"])).command(guide("also y"));
    run.iteration(false).is(LoopState::Running, LoopStep::Restore);
    let ticket = run.current.run.ticket;
    run.tell(LoopInput::Outcome {
        ticket,
        outcome: WorkOutcome::Restored { commit: Some(sha(500)), retained_as: None },
    })
    .pushed();
    run.is(LoopState::LimitReached, LoopStep::Idle);
}

#[test]
fn time_limit_during_an_opinion_hands_over_the_verified_work() {
    let mut run = read_by_another(|_| {});
    run.now = run.now.plus_ms(run.current.limits.time_ms);
    run.tell(TimerInput::TimerDue { timer: TimerKind::Deadline }).is(LoopState::Review, LoopStep::Idle);
    assert!(run.body().opinion.expect("shown").missing.contains("time limit"));
    assert!(run.has(|effect| matches!(effect, Effect::Store(StoreEffect::CancelWork))));
}
