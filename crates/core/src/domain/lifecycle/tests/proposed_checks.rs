//! Tests of proposed checks: the trial at the base, the list, and acceptance by number.

use super::*;
use crate::domain::report::view::NeedsCriteriaView;

/// Loop without checks whose tree has commands to propose.
fn trying() -> LoopRun {
    let mut run = LoopRun::with(|start| start.options.checks.clear());
    run.tell(TimerInput::SlotGranted).prepared(|tree| tree.proposes = true);
    run.is(LoopState::Running, LoopStep::Baseline);
    let proposals = |effect: &Effect| matches!(effect, Effect::Work(WorkEffect::Check { purpose: CheckPurpose::Proposals, commit, .. }) if *commit == sha(1));
    assert!(run.has(proposals), "{:?}", run.effects);
    run
}

fn outcome(command: &str, exit_code: i32) -> CheckOutcome {
    let why = if exit_code == 0 { String::new() } else { format!("exit code {exit_code}") };
    CheckOutcome {
        command: command.into(),
        holds: exit_code == 0,
        why,
        exit_code: Some(exit_code),
        ..Default::default()
    }
}

/// Loop that waits for one of three proposed checks.
fn proposed() -> LoopRun {
    let mut run = trying();
    let outcomes = vec![outcome("make lint", 0), outcome("sh check.sh", 1), outcome("bundle exec rake", 127)];
    run.tell(LoopInput::Outcome {
        ticket: run.current.run.ticket,
        outcome: WorkOutcome::ProposalsTried {
            report: CheckReport { outcomes },
            cost: Money(7),
            assistant_failure: None,
        },
    });
    run
}

fn request(run: &LoopRun) -> NeedsCriteriaView {
    let view = run.effects.iter().find_map(|effect| match effect {
        Effect::Forge(ForgeEffect::Comment { view, .. }) => match &**view {
            View::NeedsCriteria(view) => Some(view.clone()),
            _ => None,
        },
        _ => None,
    });
    view.expect("a request for a check")
}

fn run_with(checks: &[&str]) -> LoopCommand {
    let checks = checks.iter().map(|check| (*check).to_owned()).collect();
    let options = RunOptions { checks, ..RunOptions::default() };
    LoopCommand::Run(command::Run { options, guidance: String::new() })
}

#[test]
fn tried_commands_are_listed_with_their_results() {
    let mut run = proposed();
    run.is(LoopState::NeedsCriteria, LoopStep::Idle);
    assert_eq!(run.current.spent.cost, Money(7));
    let listed: Vec<String> =
        request(&run).proposed.iter().map(|one| format!("{}: {}", one.command, one.result)).collect();
    assert_eq!(
        listed,
        [
            "make lint: passes",
            "sh check.sh: fails (exit code 1)",
            "bundle exec rake: fails (a program that it calls is not installed)",
        ]
    );
    // The base is the same, so the list is shown again without another run.
    run.command(run_with(&[])).tell(TimerInput::SlotGranted).prepared(|tree| tree.proposes = true);
    run.is(LoopState::NeedsCriteria, LoopStep::Idle);
    assert_eq!(request(&run).proposed.len(), 3);
}

#[test]
fn proposal_is_accepted_by_number_after_a_restart() {
    let mut run = proposed();
    let stored = serde_json::to_string(&run.current).expect("it serializes");
    run.current = serde_json::from_str(&stored).expect("it deserializes");
    run.command(run_with(&["2"])).is(LoopState::Queued, LoopStep::Idle);
    run.working().is(LoopState::Running, LoopStep::Agent);
    let checks: Vec<&str> = run.current.checks.list.iter().map(|check| check.command.as_str()).collect();
    assert_eq!((checks, run.current.checks.source), (vec!["sh check.sh"], Some(CheckSource::Detected)));
}

#[test]
fn proposal_that_passes_at_the_base_does_not_close_the_loop() {
    let mut run = proposed();
    run.command(run_with(&["1"])).tell(TimerInput::SlotGranted).prepared(|_| {}).checked(true);
    run.is(LoopState::NeedsCriteria, LoopStep::Idle);
    assert_eq!(request(&run).holding, ["make lint"]);
    run.command(run_with(&["1", "test -f done.txt"])).working().is(LoopState::Running, LoopStep::Agent);
    let checks: Vec<&str> = run.current.checks.list.iter().map(|check| check.command.as_str()).collect();
    assert_eq!(
        (checks, run.current.checks.source),
        (vec!["make lint", "test -f done.txt"], Some(CheckSource::Command))
    );
}

#[test]
fn check_number_without_a_proposal_is_rejected() {
    for (mut run, number, reason) in [
        (proposed(), "4", "There is no proposed check 4; the list has the numbers 1 to 3."),
        (proposed(), "0", "There is no proposed check 0; the list has the numbers 1 to 3."),
        (LoopRun::in_state(LoopState::NeedsCriteria), "1", "names no command, because no check was proposed here"),
        (LoopRun::in_state(LoopState::Paused), "1", "names no command, because no check was proposed here"),
    ] {
        let before = run.current.clone();
        let command = match before.state {
            LoopState::Paused => LoopCommand::Resume(command::Resume {
                options: RunOptions { checks: vec![number.into()], ..RunOptions::default() },
                guidance: String::new(),
            }),
            _ => run_with(&[number]),
        };
        run.command(command);
        assert_eq!((run.current.state, &run.current.checks), (before.state, &before.checks));
        let said = format!("{:?}", run.effects);
        assert!(said.contains(reason), "{said}");
    }
}
