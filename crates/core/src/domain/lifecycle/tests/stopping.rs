//! Loops that stop for any reason leave their branch at the best state.

use super::*;
use crate::domain::loops::LoopStopReason;
use crate::domain::model::hook::{HookEvent, HookName, HookObjection};

fn abort() -> LoopCommand {
    LoopCommand::Abort(command::Abort { reason: String::new() })
}

fn pause_now() -> LoopCommand {
    LoopCommand::Pause(command::Pause { now: true, reason: String::new() })
}

/// Returns the outcomes of two checks, of which `held` pass.
fn checks(held: usize) -> CheckReport {
    let one = |at: usize| CheckOutcome { name: format!("check {at}"), ..report(at < held).outcomes.remove(0) };
    CheckReport { outcomes: vec![one(0), one(1)] }
}

/// Returns the outcomes of two checks, of which `result % 3` pass. The bits of `result / 3` select the names of failing tests.
fn named_checks(result: usize) -> CheckReport {
    let mut report = checks(result % 3);
    let bits = result / 3;
    let names: Vec<String> = (0..2).filter(|bit| bits & (1 << bit) != 0).map(|bit| format!("test_{bit}")).collect();
    for outcome in report.outcomes.iter_mut().filter(|outcome| !outcome.holds) {
        outcome.failing_tests.clone_from(&names);
    }
    report
}

impl LoopRun {
    /// Returns a loop in its third iteration whose second was worse than its first.
    fn worsened() -> Self {
        let mut run = Self::with(|start| start.policy.limits.iterations = IterationLimit::of(9));
        run.tell(TimerInput::SlotGranted).prepared(|_| {});
        run.tell(LoopInput::Outcome {
            ticket: run.current.run.ticket,
            outcome: WorkOutcome::Checked { report: checks(0) },
        });
        run.measured(1).measured(0).is(LoopState::Running, LoopStep::Agent);
        run
    }

    fn measured(&mut self, held: usize) -> &mut Self {
        self.agent(AgentEnd::Finished).committed(|_| {}).pushed();
        self.tell(LoopInput::Outcome {
            ticket: self.current.run.ticket,
            outcome: WorkOutcome::Checked { report: checks(held) },
        })
    }

    fn restored(&mut self) -> &mut Self {
        self.is(LoopState::Running, LoopStep::Restore);
        let retained_as = Some("refs/ralph/keep/r-42/undone-1".to_owned());
        self.tell(LoopInput::Outcome {
            ticket: self.current.run.ticket,
            outcome: WorkOutcome::Restored { commit: Some(sha(900)), retained_as },
        });
        self.is(LoopState::Running, LoopStep::Push);
        self.pushed()
    }
}

#[test]
fn every_stop_restores_the_best_iteration() {
    type Stop = fn(&mut LoopRun);
    let stops: [(Stop, LoopState); 7] = [
        (|run| _ = run.command(pause_now()), LoopState::Paused),
        (|run| _ = run.command(abort()), LoopState::Aborted),
        (|run| _ = run.tell(CommandInput::RunLabelRemoved { by: None }), LoopState::Paused),
        (|run| _ = run.tell(ForgeInput::IssueEnded { how: "closed".into() }), LoopState::Closed),
        (|run| _ = run.agent(AgentEnd::Unavailable { reason: "gone".into() }), LoopState::Failed),
        (
            |run| {
                run.now = run.now.plus_ms(run.current.limits.time_ms);
                run.tell(TimerInput::TimerDue { timer: TimerKind::Deadline });
            },
            LoopState::LimitReached,
        ),
        (
            |run| {
                run.agent(AgentEnd::Limited { until: None, reason: "quota".into() });
                run.is(LoopState::Waiting, LoopStep::Idle);
                run.command(pause_now());
            },
            LoopState::Paused,
        ),
    ];
    for (stop, state) in stops {
        let mut run = LoopRun::worsened();
        stop(&mut run);
        run.restored().is(state, LoopStep::Idle);
        assert_eq!(run.current.latest_checks().map(CheckReport::held), Some(1), "{state:?}");
        let words = "; the files of iteration 1, the best one, were restored; the later work is kept as `refs/ralph/keep/r-42/undone-1`";
        assert!(run.current.why.ends_with(words), "{}", run.current.why);
        assert_eq!(
            (run.current.branch.pushed.clone(), run.current.branch.head.clone()),
            (Some(sha(900)), Some(sha(900)))
        );
        assert_eq!(replay(run.log).as_ref(), Some(&run.current), "{state:?}");
    }
}

#[test]
fn state_before_first_iteration_is_restored_if_it_was_better() {
    let mut run = LoopRun::with(|start| start.policy.limits.iterations = IterationLimit::of(1));
    run.tell(TimerInput::SlotGranted).prepared(|_| {});
    run.tell(LoopInput::Outcome {
        ticket: run.current.run.ticket,
        outcome: WorkOutcome::Checked { report: checks(1) },
    });
    run.measured(0).is(LoopState::Running, LoopStep::Restore);
    assert!(
        run.has(|effect| matches!(effect, Effect::Work(WorkEffect::Restore { iteration: 0, to, .. }) if *to == sha(1)))
    );
    run.restored().is(LoopState::LimitReached, LoopStep::Idle);
    assert_eq!(run.current.latest_checks().map(CheckReport::held), Some(1));
    let words = "; the files are as they were before the first iteration, which was better; the later work is kept as";
    assert!(run.current.why.contains(words), "{}", run.current.why);
    assert_eq!(replay(run.log).as_ref(), Some(&run.current));

    // Work that is neither better nor worse is kept.
    let mut run = LoopRun::with(|start| start.policy.limits.iterations = IterationLimit::of(1));
    run.tell(TimerInput::SlotGranted).prepared(|_| {});
    run.tell(LoopInput::Outcome {
        ticket: run.current.run.ticket,
        outcome: WorkOutcome::Checked { report: checks(1) },
    });
    run.measured(1).is(LoopState::LimitReached, LoopStep::Idle);

    // Checks that were named later measured the state of an iteration first.
    let mut run = LoopRun::worsened();
    run.command(pause_now()).restored().is(LoopState::Paused, LoopStep::Idle);
    let named = |options: &mut RunOptions| {
        (options.checks, options.max_iterations) = (vec!["sh other.sh".into()], Some(IterationLimit::of(4)));
    };
    run.command(resume_with(named)).tell(TimerInput::SlotGranted).prepared(|_| {});
    let start = run.current.branch.head.clone();
    run.tell(LoopInput::Outcome {
        ticket: run.current.run.ticket,
        outcome: WorkOutcome::Checked { report: checks(1) },
    });
    run.measured(0).is(LoopState::Running, LoopStep::Restore);
    assert!(run.has(|effect| matches!(effect, Effect::Work(WorkEffect::Restore { iteration: 3, to, .. }) if Some(to) == start.as_ref())));
}

/// Returns a loop of three iterations, the second of which is the best, with a hook that objects after the third.
fn objected(event: HookEvent, objection: HookObjection) -> LoopRun {
    let mut run = LoopRun::with(|start| start.policy.limits.iterations = IterationLimit::of(9));
    let hooks = vec![HookName { event, name: "gate".into(), optional: false }];
    run.tell(TimerInput::SlotGranted).prepared(|tree| tree.policy.hooks = hooks);
    run.tell(LoopInput::Outcome {
        ticket: run.current.run.ticket,
        outcome: WorkOutcome::Checked { report: checks(0) },
    });
    for held in [1, 0] {
        if event == HookEvent::BeforeAgent {
            run.tell(LoopInput::Outcome {
                ticket: run.current.run.ticket,
                outcome: WorkOutcome::HooksAnswered { event, objection: None },
            });
        }
        run.measured(held);
        if event == HookEvent::AfterIteration && held == 1 {
            run.tell(LoopInput::Outcome {
                ticket: run.current.run.ticket,
                outcome: WorkOutcome::HooksAnswered { event, objection: None },
            });
        }
    }
    run.tell(LoopInput::Outcome {
        ticket: run.current.run.ticket,
        outcome: WorkOutcome::HooksAnswered { event, objection: Some(objection) },
    });
    run
}

#[test]
fn pause_by_a_hook_restores_the_best_iteration() {
    let hook = || "gate".to_owned();
    let ask = || HookObjection::Ask { hook: hook(), question: "May it?".into() };
    let broken = || HookObjection::Broken { hook: hook(), problem: "exit code 1".into() };
    let block = HookObjection::Block { hook: hook(), reason: "no license".into() };
    let objections = [
        (HookEvent::BeforeAgent, ask()),
        (HookEvent::BeforeAgent, broken()),
        (HookEvent::BeforeAgent, block),
        (HookEvent::AfterIteration, ask()),
        (HookEvent::AfterIteration, broken()),
    ];
    for (event, objection) in objections {
        let mut run = objected(event, objection.clone());
        run.restored().is(LoopState::Paused, LoopStep::Idle);
        assert_eq!(run.current.latest_checks().map(CheckReport::held), Some(1), "{event:?} {objection:?}");
        assert!(run.current.why.contains("the files of iteration 1, the best one, were restored"));
        assert!(run.escalates("hook") && run.current.why.contains("`gate`"), "{}", run.current.why);
        let hooks = run.current.settings.policy.hooks.clone();
        run.command(resume()).tell(TimerInput::SlotGranted).prepared(|tree| tree.policy.hooks = hooks);
        if event == HookEvent::BeforeAgent {
            run.is(LoopState::Running, LoopStep::HooksBeforeAgent);
            // A question that was answered by resuming is not asked again about the state that was put back.
            let answered = matches!(objection, HookObjection::Ask { .. });
            run.tell(LoopInput::Outcome {
                ticket: run.current.run.ticket,
                outcome: WorkOutcome::HooksAnswered { event, objection: Some(objection) },
            });
            let expected = if answered { LoopState::Running } else { LoopState::Paused };
            assert_eq!(run.current.state, expected, "{}", run.current.why);
        }
        assert_eq!(replay(run.log).as_ref(), Some(&run.current), "{event:?}");
    }
}

#[test]
fn pause_after_iteration_restores_the_best_iteration() {
    let mut run = LoopRun::worsened();
    run.command(LoopCommand::Pause(command::Pause { now: false, reason: "lunch".into() })).measured(0);
    run.restored().is(LoopState::Paused, LoopStep::Idle);
    assert!(run.current.why.contains("lunch"), "{}", run.current.why);
    // Work continues from the best state, and stopping again restores nothing.
    run.command(resume()).working().is(LoopState::Running, LoopStep::Agent);
    run.command(pause_now()).is(LoopState::Paused, LoopStep::Idle);
}

#[test]
fn pause_keeps_best_or_unmeasured_work() {
    let mut run = LoopRun::worsened();
    run.measured(1).command(pause_now()).is(LoopState::Paused, LoopStep::Idle);
    // A commit whose checks have not run may be better.
    let mut run = LoopRun::worsened();
    run.agent(AgentEnd::Finished).committed(|_| {}).pushed().command(pause_now()).is(LoopState::Paused, LoopStep::Idle);
}

#[test]
fn later_stop_overrides_the_first_during_restoration() {
    let mut run = LoopRun::worsened();
    run.command(pause_now()).command(abort()).restored().is(LoopState::Aborted, LoopStep::Idle);
    let mut run = LoopRun::worsened();
    run.command(abort()).command(pause_now()).restored().is(LoopState::Aborted, LoopStep::Idle);
    // A second request to end it does not wait.
    let mut run = LoopRun::worsened();
    run.command(abort()).command(abort()).is(LoopState::Aborted, LoopStep::Idle);
}

#[test]
fn failed_restoration_does_not_prevent_stop() {
    let failed = |ticket| LoopInput::Outcome {
        ticket,
        outcome: WorkOutcome::WorkFailed { reason: "the disk is full".into(), advice: String::new() },
    };
    let mut run = LoopRun::worsened();
    run.command(abort());
    run.tell(failed(run.current.run.ticket)).is(LoopState::Aborted, LoopStep::Idle);
    let mut run = LoopRun::worsened();
    run.command(pause_now());
    run.tell(LoopInput::Outcome {
        ticket: run.current.run.ticket,
        outcome: WorkOutcome::Restored { commit: Some(sha(900)), retained_as: None },
    });
    run.tell(failed(run.current.run.ticket)).is(LoopState::Paused, LoopStep::Idle);
    let mut run = LoopRun::worsened();
    run.command(pause_now());
    run.tell(LoopInput::Outcome {
        ticket: run.current.run.ticket,
        outcome: WorkOutcome::Restored { commit: Some(sha(900)), retained_as: None },
    });
    run.tell(LoopInput::Outcome {
        ticket: run.current.run.ticket,
        outcome: WorkOutcome::PushRejected {
            remote: Some(sha(77)),
            reason: "moved".into(),
            refusal: Default::default(),
        },
    });
    run.is(LoopState::Paused, LoopStep::Idle);
    assert_eq!(run.current.branch.merge_wanted(), Some(&MergeWith::Pushed(sha(77))), "their work is not overwritten");
    let mut run = LoopRun::worsened();
    run.command(abort());
    run.tell(ForgeInput::AuthorityLost { who: "maja".into(), hidden_teams: Vec::new() })
        .is(LoopState::Aborted, LoopStep::Idle);
}

/// The same commit is verified again after a conflict was resolved elsewhere, and the verification fails.
#[test]
fn commit_that_fails_its_second_verification_is_not_preferred() {
    let mut run = LoopRun::worsened();
    let verify = |run: &mut LoopRun, held| {
        run.is(LoopState::Running, LoopStep::Verify);
        run.tell(LoopInput::Outcome {
            ticket: run.current.run.ticket,
            outcome: WorkOutcome::Checked { report: checks(held) },
        });
    };
    verify(run.measured(2), 2);
    run.is(LoopState::Review, LoopStep::Idle);
    let commit = run.current.branch.head.clone().expect("a commit");
    assert_eq!(run.current.branch.verified.as_ref(), Some(&commit));
    run.tell(ForgeInput::Inspected(CiInspection {
        commit: commit.clone(),
        failed: Vec::new(),
        progress: CiProgress::default(),
        pending: 0,
        conflict: true,
        on_base: Vec::new(),
    }));
    run.tell(TimerInput::SlotGranted).prepared(|_| {}).is(LoopState::Running, LoopStep::Merge);
    run.tell(LoopInput::Outcome {
        ticket: run.current.run.ticket,
        outcome: WorkOutcome::Merged {
            other: sha(500),
            conflicts: Vec::new(),
            cause: None,
            up_to_date: true,
            base: None,
        },
    });
    verify(&mut run, 0);
    run.is(LoopState::Running, LoopStep::Agent);
    assert_eq!(run.current.branch.verified, None, "the forge would show the commit as verified");
    run.agent(AgentEnd::Finished).committed(|_| {}).pushed().command(abort());
    run.restored().is(LoopState::Aborted, LoopStep::Idle);
    assert!(run.current.why.contains("the files of iteration 1, the best one"), "{}", run.current.why);
}

#[test]
fn iterations_before_a_merge_are_not_restored() {
    let mut run = LoopRun::worsened();
    run.current.iterations[1].merged = true;
    run.command(pause_now()).is(LoopState::Paused, LoopStep::Idle);
}

#[test]
fn stops_stored_by_older_versions_are_readable() {
    let old = r#"{"iteration":1,"then":{"limit":{"which":"time","why":"its time is spent"}}}"#;
    let read: StopAfterRestore = serde_json::from_str(old).expect("readable");
    assert_eq!((read.then.why(), read.restored), ("its time is spent", false));
    assert_eq!(serde_json::from_str::<LoopStopReason>("\"held\"").expect("readable"), LoopStopReason::Held);
}

proptest! {
    #![proptest_config(test_support::cases(400))]
    #[test]
    fn stopped_loop_has_its_best_state(
        start in (0usize..12).prop_filter("all checks pass", |result| result % 3 < 2),
        inputs in prop::collection::vec((any_input(), any::<bool>(), 0usize..12), 1..100)
    ) {
        let mut run = LoopRun::with(|start| start.policy.limits.iterations = IterationLimit::of(30));
        run.tell(TimerInput::SlotGranted).prepared(|_| {});
        run.tell(LoopInput::Outcome { ticket: run.current.run.ticket, outcome: WorkOutcome::Checked { report: named_checks(start) } });
        for (which, flag, result) in inputs {
            let before = run.current.clone();
            let ticket = run.current.run.ticket;
            let input = match (input_for(&run, which, flag || which > 18), run.current.run.step) {
                (LoopInput::Outcome { outcome: WorkOutcome::Checked { .. }, .. }, _) => LoopInput::Outcome { ticket, outcome: WorkOutcome::Checked { report: named_checks(result) } },
                (other, _) => other,
            };
            // No agent ends where none runs.
            let of_agent = matches!(input, LoopInput::Outcome { outcome: WorkOutcome::AgentLost { .. }, .. } | LoopInput::Outcome { outcome: WorkOutcome::AgentEnded { .. }, .. });
            if of_agent && run.current.run.step != LoopStep::Agent {
                continue;
            }
            // Work that could not be restored or pushed is kept, and so are commits of others.
            // A push that the filter blocks could not send the best state either: it is on the same commits.
            let cut_off = matches!(input, LoopInput::Outcome { outcome: WorkOutcome::WorkFailed { .. }, .. } | LoopInput::Outcome { outcome: WorkOutcome::PushRejected { .. }, .. } | LoopInput::Outcome { outcome: WorkOutcome::PushBlocked { .. }, .. } | LoopInput::Forge(ForgeInput::AuthorityLost { .. }));
            let discards = matches!(&input, LoopInput::Command(CommandInput::Given { command: LoopCommand::Retry(_) | LoopCommand::Abort(_), .. }));
            run.tell(input);
            let (now, was) = (&run.current, before.state);
            let stopped = matches!(now.state, LoopState::Paused | LoopState::LimitReached | LoopState::Failed | LoopState::Aborted);
            if !stopped || was != LoopState::Running || cut_off || discards || now.branch.merge.is_some() {
                continue;
            }
            let merged = now.measured().rev().find(|one| one.merged).map_or(0, |one| one.number);
            let ranked = now.measured().filter(|one| one.number >= merged && one.commit.is_some() && one.record.is_some());
            // The state that the current checks measured first is one of them.
            let begun = now.checks.baseline_report().filter(|_| merged == 0);
            let results: Vec<&CheckReport> = ranked.map(|one| &one.checks).collect();
            let others = results.iter().copied().chain(begun.filter(|_| !results.is_empty()));
            let newest = now.retained_iterations().rev().find(|one| one.commit.is_some() || one.restored_to.is_some());
            // The same commit may be measured again with another result; its own counts.
            let at = newest.and_then(|one| match one.restored_to {
                Some(best) if best == now.checks.measured_after => begun,
                Some(best) => now.retained_iterations().find(|other| other.number == best).map(|one| &one.checks),
                None if one.record.is_some() && one.number > now.checks.measured_after => Some(&one.checks),
                None => None,
            });
            let Some(at) = at else { continue };
            for other in others {
                let (passing, better) = (at.held(), other.held());
                prop_assert!(passing >= better, "{:?} with {passing} of {better}: {}", now.state, now.why);
                let worse = passing == better && at.is_worse_than(other);
                prop_assert!(!worse, "{:?}: {at:?} is worse than {other:?}: {}", now.state, now.why);
            }
        }
    }
}

/// A loop that waits for its repository occupies no slot, and continues by itself unless a person wants it to stay paused.
#[test]
fn loop_waits_for_its_repository_without_a_slot() {
    let unavailable = |run: &LoopRun| LoopInput::Outcome {
        ticket: run.current.run.ticket,
        outcome: WorkOutcome::RepositoryUnavailable { why: "acme/app is archived and accepts no changes".into() },
    };
    let warned = |run: &LoopRun| {
        run.has(|e| matches!(e, Effect::Channel(ChannelEffect::Warn { notice }) if notice.cause == "repository"))
    };
    let mut run = LoopRun::in_state(LoopState::Running);
    run.tell(unavailable(&run)).is(LoopState::Paused, LoopStep::Idle);
    assert!(warned(&run) && !run.current.state.holds_slot() && run.current.why.contains("archived"));
    run.tell(ForgeInput::RepositoryBack).is(LoopState::Queued, LoopStep::Idle);
    run.working();
    run.tell(unavailable(&run)).is(LoopState::Paused, LoopStep::Idle);
    run.tell(CommandInput::RunLabelRemoved { by: None }).is(LoopState::Paused, LoopStep::Idle);
    run.tell(ForgeInput::RepositoryBack).is(LoopState::Paused, LoopStep::Idle);

    // A loop that is paused for another reason is none of them.
    let mut run = LoopRun::in_state(LoopState::Paused);
    run.tell(ForgeInput::RepositoryBack).is(LoopState::Paused, LoopStep::Idle);
}

/// The checks pass, but the branch conflicts with its base, and no iteration is left to resolve that.
#[test]
fn last_comment_names_unsolved_detections() {
    let mut run = LoopRun::in_state(LoopState::Review);
    run.current.limits.iterations = IterationLimit::of(run.current.spent.iterations);
    let commit = run.current.branch.pushed.clone().expect("pushed");
    run.tell(ForgeInput::Inspected(CiInspection {
        commit,
        failed: Vec::new(),
        progress: CiProgress::default(),
        pending: 0,
        conflict: true,
        on_base: Vec::new(),
    }));
    run.is(LoopState::LimitReached, LoopStep::Idle);
    let View::Completion(view) = report::completion(&run.current, run.current.updated_at) else { panic!("a result") };
    assert_eq!(view.unsolved, ["The branch conflicts with `main`; the conflict is not resolved."]);
    assert_eq!(view.completion_percent, 100, "by the checks alone it would look complete");
}
