//! Refused pushes: pauses of the loop, and removed commits.

use super::*;
use crate::domain::loops::{PushRefusal, SecretLocation};

fn secret() -> PushRefusal {
    let place = SecretLocation { kind: "API key".into(), commit: "8728dbe67".into(), path: "a.txt:4".into() };
    PushRefusal::Secrets { places: vec![place] }
}

impl LoopRun {
    fn push_refused(&mut self, refusal: PushRefusal) -> &mut Self {
        let (ticket, remote) = (self.current.run.ticket, self.current.branch.pushed.clone());
        self.tell(LoopInput::Outcome {
            ticket,
            outcome: WorkOutcome::PushRejected { remote, reason: "no".into(), refusal },
        })
    }
}

#[test]
fn push_refused_by_a_rule_pauses_and_is_repeated_after_resume() {
    let large = PushRefusal::TooLarge { files: vec!["big.bin".into()] };
    for (refusal, cause) in [
        (PushRefusal::Ruleset { rules: Vec::new() }, "push_refused"),
        (PushRefusal::ProtectedBranch, "push_refused"),
        (PushRefusal::WorkflowFiles { path: "x.yml".into() }, "push_refused"),
        (PushRefusal::Quota, "push_refused"),
        (large, "blocked_change"),
    ] {
        let mut run = LoopRun::in_state(LoopState::Running);
        run.agent(AgentEnd::Finished).committed(|_| {});
        let head = run.current.branch.head.clone();
        run.push_refused(refusal.clone()).is(LoopState::Paused, LoopStep::Idle);
        assert!(run.escalates(cause), "{refusal:?}");
        assert_eq!(run.current.branch.head, head, "{refusal:?}: nothing is taken back");
    }
    let mut run = LoopRun::in_state(LoopState::Running);
    run.agent(AgentEnd::Finished).committed(|_| {}).push_refused(PushRefusal::ProtectedBranch);
    run.command(LoopCommand::Resume(command::Resume { options: RunOptions::default(), guidance: String::new() }));
    run.working().is(LoopState::Running, LoopStep::Push);
    run.push_refused(PushRefusal::Other).is(LoopState::Failed, LoopStep::Idle);
}

#[test]
fn commit_with_a_secret_is_removed_twice_before_the_loop_pauses() {
    let mut run = LoopRun::in_state(LoopState::Running);
    for _ in 0..2 {
        run.agent(AgentEnd::Finished).committed(|_| {}).push_refused(secret()).is(LoopState::Queued, LoopStep::Idle);
        assert_eq!(run.current.branch.head, Some(sha(1)), "the branch is as before");
        assert!(run.guidance().iter().any(|text| text.contains("`a.txt:4` of commit 8728dbe67")));
        assert!(!run.escalates("blocked_change"));
        run.working().is(LoopState::Running, LoopStep::Agent);
    }
    run.agent(AgentEnd::Finished).committed(|_| {}).push_refused(secret()).is(LoopState::Paused, LoopStep::Idle);
    assert!(run.escalates("blocked_change") && run.current.why.contains("`a.txt:4` of commit 8728dbe67"));
    assert_eq!(replay(run.log).as_ref(), Some(&run.current));
}

#[test]
fn secret_in_one_of_several_commits_pauses() {
    let mut run = LoopRun::in_state(LoopState::Running);
    run.agent(AgentEnd::Finished).committed(|_| {}).push_refused(PushRefusal::Quota);
    run.command(LoopCommand::Resume(command::Resume { options: RunOptions::default(), guidance: "more".into() }));
    run.working();
    run.current.iterations.last_mut().expect("an iteration").parent = sha(55);
    run.push_refused(secret()).is(LoopState::Paused, LoopStep::Idle);
    assert!(run.escalates("blocked_change"), "no history is rewritten");
}
