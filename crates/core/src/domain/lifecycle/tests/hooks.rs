//! Hooks: without the valid verdict `continue`, no agent runs and no review starts.

use super::*;
use crate::domain::model::hook::{HookEvent, HookName, HookObjection};

/// Returns a loop at the start of its work, with a hook for each of these events.
fn hooked(events: &[HookEvent]) -> LoopRun {
    let name = |event: &HookEvent| HookName { event: *event, name: "gate".into(), optional: false };
    let hooks: Vec<HookName> = events.iter().map(name).collect();
    let mut run = LoopRun::with(|_| {});
    run.tell(TimerInput::SlotGranted).prepared(|tree| tree.policy.hooks = hooks).checked(false);
    run
}

impl LoopRun {
    fn hooks(&mut self, event: HookEvent, objection: Option<HookObjection>) -> &mut Self {
        self.tell(LoopInput::Outcome {
            ticket: self.current.run.ticket,
            outcome: WorkOutcome::HooksAnswered { event, objection },
        })
    }

    fn runs_agent(&self) -> bool {
        self.has(|effect| matches!(effect, Effect::Work(WorkEffect::Agent { .. })))
    }
}

fn block() -> Option<HookObjection> {
    Some(HookObjection::Block { hook: "gate".into(), reason: "no license".into() })
}

fn ask() -> Option<HookObjection> {
    Some(HookObjection::Ask { hook: "gate".into(), question: "May it?".into() })
}

fn broken() -> Option<HookObjection> {
    Some(HookObjection::Broken { hook: "gate".into(), problem: "exit code 1".into() })
}

#[test]
fn agent_waits_for_its_hooks() {
    let mut run = hooked(&[HookEvent::BeforeAgent]);
    run.is(LoopState::Running, LoopStep::HooksBeforeAgent);
    assert!(!run.runs_agent());
    // Answers of another event and of earlier work change nothing.
    run.hooks(HookEvent::BeforeReady, None).is(LoopState::Running, LoopStep::HooksBeforeAgent);
    let ticket = run.current.run.ticket - 1;
    run.tell(LoopInput::Outcome {
        ticket,
        outcome: WorkOutcome::HooksAnswered { event: HookEvent::BeforeAgent, objection: None },
    });
    run.is(LoopState::Running, LoopStep::HooksBeforeAgent);
    run.hooks(HookEvent::BeforeAgent, None).is(LoopState::Running, LoopStep::Agent);
    assert!(run.runs_agent());
    // A repeated attempt asks again.
    run.tell(LoopInput::Outcome {
        ticket: run.current.run.ticket,
        outcome: WorkOutcome::AgentLost { salvaged: None, cost: Money(0), before_start: false },
    });
    run.is(LoopState::Running, LoopStep::HooksBeforeAgent);
    assert!(!run.runs_agent());
    run.hooks(HookEvent::BeforeAgent, None);
    assert!(run.has(|effect| matches!(effect, Effect::Work(WorkEffect::Agent { attempt: 2, iteration: 1, .. }))));
}

#[test]
fn objection_before_an_agent_pauses_without_using_an_iteration() {
    for (objection, says) in [(block(), "no license"), (ask(), "May it?"), (broken(), "exit code 1")] {
        let mut run = hooked(&[HookEvent::BeforeAgent]);
        run.current.requests.guidance.clear();
        run.hooks(HookEvent::BeforeAgent, objection.clone()).is(LoopState::Paused, LoopStep::Idle);
        assert!(run.current.why.contains(says) && run.escalates("hook"), "{}", run.current.why);
        assert_eq!((run.current.spent.iterations, run.current.iterations.len()), (0, 0));
        assert!(!run.runs_agent());
        run.command(resume()).tell(TimerInput::SlotGranted);
        let hooks = run.current.settings.policy.hooks.clone();
        run.prepared(|tree| tree.policy.hooks = hooks).is(LoopState::Running, LoopStep::HooksBeforeAgent);
        let answered = matches!(objection, Some(HookObjection::Ask { .. }));
        run.hooks(HookEvent::BeforeAgent, objection);
        assert_eq!(run.runs_agent(), answered, "resuming answers a question only");
    }
}

#[test]
fn review_waits_for_its_hooks() {
    let mut run = hooked(&[HookEvent::BeforeReady, HookEvent::AfterEnd]);
    run.iteration(true).checked(true).is(LoopState::Running, LoopStep::HooksBeforeReady);
    run.hooks(HookEvent::BeforeReady, block()).is(LoopState::Running, LoopStep::Agent);
    let given = &run.current.current().expect("an iteration").guidance;
    assert!(given.iter().any(|guidance| guidance.text.contains("no license")), "{given:?}");
    assert_eq!(run.current.branch.verified, None);
    run.iteration(true).checked(true).hooks(HookEvent::BeforeReady, broken()).is(LoopState::Paused, LoopStep::Idle);
    assert!(!run.has(|effect| matches!(effect, Effect::Work(WorkEffect::HooksAfterEnd { .. }))), "it can go on");
    run.command(resume()).tell(TimerInput::SlotGranted);
    let hooks = run.current.settings.policy.hooks.clone();
    run.prepared(|tree| tree.policy.hooks = hooks).checked(true).is(LoopState::Running, LoopStep::HooksBeforeReady);
    run.hooks(HookEvent::BeforeReady, None).is(LoopState::Review, LoopStep::Idle);
    assert!(run.has(|effect| matches!(effect, Effect::Work(WorkEffect::HooksAfterEnd { .. }))));
}

#[test]
fn iteration_that_a_hook_blocks_is_not_verified() {
    let mut run = hooked(&[HookEvent::AfterIteration]);
    run.iteration(true).is(LoopState::Running, LoopStep::HooksAfterIteration);
    run.hooks(HookEvent::AfterIteration, block()).is(LoopState::Running, LoopStep::Agent);
    run.iteration(true).hooks(HookEvent::AfterIteration, None).is(LoopState::Running, LoopStep::Verify);
    run.checked(true).is(LoopState::Review, LoopStep::Idle);
}

#[test]
fn pause_during_a_hook_drops_its_answer() {
    let mut run = hooked(&[HookEvent::BeforeAgent]);
    let ticket = run.current.run.ticket;
    run.command(LoopCommand::Pause(command::Pause { now: true, reason: String::new() }));
    run.tell(LoopInput::Outcome {
        ticket,
        outcome: WorkOutcome::HooksAnswered { event: HookEvent::BeforeAgent, objection: None },
    });
    run.is(LoopState::Paused, LoopStep::Idle);
    assert!(!run.runs_agent());
}
