//! Judged loops: they are warned, redirected, paused, restored or ended. Healthy loops are not disturbed.

use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::domain::checks::criteria::TaskType;
use crate::domain::knowledge::prompt;
use crate::domain::loops::{EndedLoop, EscalationCause, PastLoops};
use crate::domain::model::quantity;
use crate::domain::model::task::{FileStat, TamperFinding, TamperKind, TestCounts};
use crate::domain::supervision::control::{AlarmKind, ModelTier};
use crate::domain::supervision::experience::{EarlierLoop, Experience};
use crate::domain::supervision::oversight::{AuditEvent, DetectionKind, EscalationLevel, InterventionLevel};
use crate::domain::supervision::strategy::Approach;
use crate::domain::trust::limits::Limits;
use crate::domain::trust::policy::Intelligence;

/// Returns the outcome of a check that counts its tests.
fn counted(passing: u64, failing: u64, output: &str) -> CheckReport {
    let mut report = report(failing == 0);
    report.outcomes[0].tests = Some(TestCounts { passing, failing, skipped: 0 });
    report.outcomes[0].output = output.into();
    report
}

/// Returns two checks, lint and test, one of which passed before.
fn two(lint: bool, test: bool) -> CheckReport {
    let mut both = report(test);
    let mut other = report(lint).outcomes.remove(0);
    (other.name, other.command) = ("lint".into(), "make lint".into());
    both.outcomes.push(other);
    both
}

impl LoopRun {
    /// Runs a whole iteration that changes a file, leaves a session and ends with these checks.
    fn works(&mut self, checks: CheckReport) -> &mut Self {
        self.works_by(|_| {}, checks)
    }

    /// Runs the same iteration with a modified agent run.
    fn works_by(&mut self, change: impl FnOnce(&mut AgentRunFacts), checks: CheckReport) -> &mut Self {
        assert_eq!(self.current.run.step, LoopStep::Agent, "{:?} {}", self.current.state, self.current.why);
        let mut run = AgentRunFacts {
            message: "did it".into(),
            cost: Some(Money(1_000_000)),
            tokens_in: 10,
            tokens_out: 5,
            tool_calls: 1,
            session: super::waits::session("s"),
            ..AgentRunFacts::ending(AgentEnd::Finished)
        };
        change(&mut run);
        self.tell(LoopInput::Outcome {
            ticket: self.current.run.ticket,
            outcome: WorkOutcome::AgentEnded { run: Box::new(run) },
        });
        let file = FileStat { path: "src/parser.rs".into(), added: 3, removed: 1, binary: false, change: None };
        self.committed(|c| c.stat.files.push(file)).pushed();
        self.tell(LoopInput::Outcome {
            ticket: self.current.run.ticket,
            outcome: WorkOutcome::Checked { report: checks },
        })
    }

    /// Runs a whole iteration that changes nothing and ends with these checks.
    fn idles(&mut self, checks: CheckReport) -> &mut Self {
        self.agent(AgentEnd::Finished).committed(|c| (c.commit, c.tree) = (None, sha(1)));
        self.tell(LoopInput::Outcome {
            ticket: self.current.run.ticket,
            outcome: WorkOutcome::Checked { report: checks },
        })
    }

    /// Returns the text about the strategy in the latest iteration comment.
    fn strategy_by_comment(&self) -> &str {
        &self.iteration_comment().strategy
    }

    fn started() -> Self {
        // Thresholds that stay where they are when defaults move.
        let mut run = Self::with(|s| {
            s.policy.limits.iterations = IterationLimit::of(40);
            s.policy.thresholds.insert("preset".to_owned(), "pinned".into());
        });
        run.tell(TimerInput::SlotGranted).prepared(|_| {});
        run.tell(LoopInput::Outcome {
            ticket: run.current.run.ticket,
            outcome: WorkOutcome::Checked { report: counted(2, 8, "") },
        });
        run
    }

    fn next_prompt(&self) -> prompt::PromptView {
        prompt::view(&self.current, "n0nce", "/report.json")
    }

    fn audit(&self) -> Vec<AuditEvent> {
        let entries = |effect: &Effect| match effect {
            Effect::Store(StoreEffect::Audit { entries }) => entries.iter().map(|entry| entry.event).collect(),
            _ => Vec::new(),
        };
        self.effects.iter().flat_map(entries).collect()
    }

    fn levels(&self) -> Vec<InterventionLevel> {
        self.current.judged().map_or_else(Vec::new, |judged| judged.found.iter().map(|found| found.level).collect())
    }
}

const ERROR: &str = "error[E0308]: mismatched types\n --> src/parser.rs:12:5\n";

#[test]
fn stuck_loop_is_redirected_then_paused_then_resumed() {
    let mut run = LoopRun::started();
    let mut redirected = None;
    for n in 1..20 {
        let line = 10 + n;
        run.works(counted(3, 7, &ERROR.replace(":12:", &format!(":{line}:"))));
        if redirected.is_none() && run.levels().contains(&InterventionLevel::Redirect) {
            redirected = Some(n);
            run.is(LoopState::Running, LoopStep::Agent);
            let prompt = run.next_prompt();
            assert!(
                prompt.directives[0].text.contains("mismatched types"),
                "the evidence is told: {:?}",
                prompt.directives
            );
            assert_eq!(run.current.judged().map(|judged| judged.approach), Some(Approach::Pivot));
            assert!(prompt.strategy.iter().any(|text| text.contains("write down the cause")), "{:?}", prompt.strategy);
            assert!(run.audit().contains(&AuditEvent::Intervened));
            let next = "different approach: find the cause first (reason: the overseer redirected the loop: The loop is stuck: ";
            assert!(run.strategy_by_comment().starts_with(next), "{}", run.strategy_by_comment());
            assert_eq!(run.current.agent.session, None, "a long session decays");
            let warns = |e: &Effect| matches!(e, Effect::Channel(ChannelEffect::Warn { notice }) if notice.cause == "redirect_stuck" && notice.what_happened.contains("mismatched types"));
            assert!(
                run.has(warns) && !run.has(|e| matches!(e, Effect::Forge(ForgeEffect::Escalate { .. }))),
                "{:?}",
                run.effects
            );
        } else if redirected == Some(n - 1) {
            assert_eq!(run.next_prompt().directives, Vec::new(), "once per cause");
            assert!(!run.has(|e| matches!(e, Effect::Channel(ChannelEffect::Warn { .. }))), "{:?}", run.effects);
        }
        if run.current.state != LoopState::Running {
            break;
        }
        assert_eq!(run.current.agent.session.is_none(), redirected == Some(n), "iteration {n}");
    }
    assert!(redirected.is_some());
    run.is(LoopState::Paused, LoopStep::Idle);
    assert!(run.escalates("stuck") && !run.has(|e| e.ticket().is_some()), "{:?}", run.effects);
    assert!(run.audit().contains(&AuditEvent::Escalated));
    // It stays paused until a person resumes it, also after a restart.
    let stored: Loop = serde_json::from_str(&serde_json::to_string(&run.current).unwrap()).unwrap();
    assert_eq!(stored, run.current);
    run.tell(TimerInput::SlotGranted).is(LoopState::Paused, LoopStep::Idle);
    let guidance = "Look at the lexer.".to_owned();
    run.command(LoopCommand::Resume(command::Resume { options: RunOptions::default(), guidance }))
        .is(LoopState::Queued, LoopStep::Idle);
    assert!(run.audit().contains(&AuditEvent::Resumed));
    assert!(run.has(|e| matches!(e, Effect::Forge(ForgeEffect::CloseEscalations { .. }))));
    run.working().is(LoopState::Running, LoopStep::Agent);
    assert_eq!(run.next_prompt().guidance[0].text, "Look at the lexer.");
    // The cause of the pause counts as seen: the next iteration does not stop it again.
    run.works(counted(4, 6, ERROR)).is(LoopState::Running, LoopStep::Agent);
    assert_eq!(replay(run.log).as_ref(), Some(&run.current));
}

/// Runs a loop with the preset `pinned` and these thresholds on the same error until it stops.
fn stopped_under(thresholds: serde_json::Value) -> LoopRun {
    let mut run = LoopRun::with(|s| {
        s.policy.limits.iterations = IterationLimit::of(10);
        s.policy.thresholds = thresholds.as_object().cloned().unwrap();
        s.policy.thresholds.insert("preset".to_owned(), "pinned".into());
    });
    run.tell(TimerInput::SlotGranted).prepared(|_| {});
    run.tell(LoopInput::Outcome {
        ticket: run.current.run.ticket,
        outcome: WorkOutcome::Checked { report: counted(2, 8, "") },
    });
    while run.current.run.step == LoopStep::Agent {
        run.works(counted(3, 7, ERROR));
    }
    run
}

#[test]
fn pause_without_escalation_is_reported_on_issue() {
    let quiet = |stuck: bool| {
        stopped_under(json!({
            "oversight": { "auto_escalate": false, "stuck": { "enabled": stuck } },
            "strategy": { "escalation_threshold": 4 },
        }))
    };
    for (stuck, why) in [(true, "The loop is stuck"), (false, "no progress for 4 iterations")] {
        let run = quiet(stuck);
        run.is(LoopState::Paused, LoopStep::Idle);
        assert!(run.current.why.starts_with(why), "{}", run.current.why);
        assert!(!run.has(|e| matches!(e, Effect::Forge(ForgeEffect::Escalate { .. }))), "{:?}", run.effects);
        let home_issue = run.current.issue.issue;
        let is_notice = |e: &Effect| match e {
            Effect::Forge(ForgeEffect::Comment { key, on: at, view }) => {
                let at_home = matches!(&**view, View::Escalation(inner) if inner.at_home);
                key.starts_with("paused/") && *at == home_issue && at_home
            }
            _ => false,
        };
        assert!(run.has(is_notice), "{:?}", run.effects);
    }
}

#[test]
fn abort_by_control_is_an_emergency() {
    let settings = |outside: bool| {
        json!({
            "control": { "auto_intervene": true, "stuck_iterations": 5, "max_iterations_percent": 0.2, "emergency_percent": 0.3 },
            "oversight": { "auto_escalate": outside, "stuck": { "enabled": false }, "resource_burn": { "enabled": false } },
            "strategy": { "escalation_threshold": 90, "budget_critical": 1.0 },
        })
    };
    let run = stopped_under(settings(true));
    run.is(LoopState::Aborted, LoopStep::Idle);
    assert!(run.has(
        |e| matches!(e, Effect::Forge(ForgeEffect::Escalate { cause, level: EscalationLevel::Emergency, .. }) if *cause == EscalationCause::Emergency)
    ));
    let quiet = stopped_under(settings(false));
    quiet.is(LoopState::Aborted, LoopStep::Idle);
    assert!(!quiet.has(|e| matches!(e, Effect::Forge(ForgeEffect::Escalate { .. }))));
}

#[test]
fn pause_by_control_asks_person() {
    let settings = |alone: bool| {
        json!({
            "control": { "auto_intervene": alone },
            "oversight": { "stuck": { "enabled": false }, "resource_burn": { "enabled": false } },
            "strategy": { "escalation_threshold": 90, "budget_critical": 1.0 },
        })
    };
    // The alarm of a stuck loop is critical where much is left, and no emergency.
    let run = stopped_under(settings(true));
    run.is(LoopState::Paused, LoopStep::Idle);
    assert!(run.current.spent.iterations < 10 && run.escalates("no_way_forward"), "{:?}", run.effects);
    assert_eq!(run.current.why, "No progress in 3 iterations: P stays at 0.93.");
    let advised = stopped_under(settings(false));
    assert!(advised.escalates("limit_iterations"), "without it control only advises: {}", advised.current.why);
}

#[test]
fn repeated_reflection_is_a_stuck_signal() {
    let mut run = LoopRun::started();
    for _ in 1..=4 {
        run.works(counted(3, 7, ERROR));
    }
    let records = run.current.records();
    let taught: Vec<&str> = records.iter().filter_map(|record| record.reflection.as_deref()).collect();
    let again = "error[E0308]: mismatched types --> src/parser.rs:#; the change did not fix the cause: the error is the same as before; \
                 another approach: find out where the error comes from before changing more";
    assert_eq!(taught[1..], [again; 3], "{}", taught[0]);
    let found = run.current.judged().and_then(|judged| judged.found.first()).expect("it is stuck");
    assert!(found.evidence.contains("the agent drew the same conclusion 3 times: "), "{}", found.evidence);
}

#[test]
fn failed_approach_is_not_proposed_again() {
    let chosen_approach = |failed_elsewhere: &[&str], tries: &str| {
        let mut run = LoopRun::started();
        while run.current.judged().is_none_or(|judged| judged.way.is_empty()) {
            let report = AgentReport { approach: tries.to_owned(), ..AgentReport::default() };
            let failed_elsewhere = failed_elsewhere.iter().map(|text| (*text).to_owned()).collect();
            let ended =
                AgentRunFacts { report: Some(report), failed_elsewhere, ..AgentRunFacts::ending(AgentEnd::Finished) };
            run.tell(LoopInput::Outcome {
                ticket: run.current.run.ticket,
                outcome: WorkOutcome::AgentEnded { run: Box::new(ended) },
            });
            run.committed(|_| {}).pushed();
            run.tell(LoopInput::Outcome {
                ticket: run.current.run.ticket,
                outcome: WorkOutcome::Checked { report: counted(3, 7, ERROR) },
            });
        }
        let strategy = run.next_prompt().strategy;
        let chosen_approach = run.current.judged().map(|judged| judged.way.clone()).unwrap_or_default();
        assert!(
            strategy.iter().any(|text| text.starts_with(&format!("{chosen_approach}: "))),
            "{chosen_approach}: {strategy:?}"
        );
        assert_eq!(replay(run.log).as_ref(), Some(&run.current));
        chosen_approach
    };
    assert_eq!(chosen_approach(&[], "guessing"), "find the cause first");
    assert_eq!(chosen_approach(&["Find the cause first, with prints"], "guessing"), "minimal reproduction");
    assert_eq!(chosen_approach(&["find the cause first"], "A minimal reproduction"), "revert and redo");
}

#[test]
fn coverage_printed_by_any_check_is_measured() {
    let mut run = LoopRun::started();
    let mut checks = counted(3, 7, ERROR);
    checks.outcomes[0].coverage = Some(81.5);
    run.works(checks);
    assert_eq!(run.current.records()[0].coverage, Some(81.5));
}

#[test]
fn impossible_figures_are_clamped_and_reported() {
    let mut run = LoopRun::started();
    let mut checks = counted(3, 7, ERROR);
    checks.outcomes[0].measured = Some(250.0);
    run.current.checks.list[0].name.clone_from(&checks.outcomes[0].name);
    run.current.checks.list[0].rule = CheckRule::Coverage { pattern: String::new(), min: Percent(80.0) };
    run.works(checks);
    assert_eq!(run.current.records()[0].coverage, Some(100.0));
    let warning = "One figure of iteration 1 was out of range and was clamped.";
    assert!(run.reasons.iter().any(|reason| reason == warning), "{:?}", run.reasons);
}

#[test]
fn failing_backend_is_avoided() {
    let mut run = LoopRun::started();
    for (fails, n) in [true, false, true, true].into_iter().zip(1..) {
        assert_eq!(run.current.agent.wanted.other_than, None);
        let end = match fails {
            true => AgentEnd::Failed { reason: "it crashed".into() },
            false => AgentEnd::Finished,
        };
        let served = ServedBy { backend: "mine".into(), ..ServedBy::default() };
        let facts = AgentRunFacts { served, ..AgentRunFacts::ending(end) };
        run.tell(LoopInput::Outcome {
            ticket: run.current.run.ticket,
            outcome: WorkOutcome::AgentEnded { run: Box::new(facts) },
        });
        run.committed(|_| {}).pushed();
        run.tell(LoopInput::Outcome {
            ticket: run.current.run.ticket,
            outcome: WorkOutcome::Checked { report: counted(2 + n, 8 - n, "") },
        });
    }
    assert_eq!(run.current.agent.wanted.other_than.as_deref(), Some("mine"));
    assert!(
        run.next_prompt().directives[0].text.contains("failed in 3 of the last 4"),
        "{:?}",
        run.next_prompt().directives
    );
}

#[test]
fn effort_scales_run_limits() {
    let mut run = LoopRun::started();
    run.works(counted(3, 7, ERROR));
    let course = run.current.supervision.course.expect("a course");
    let all = |effort| {
        let course = NextRunPlan { effort, ..course.clone() };
        (course.wall(Duration::from_secs(600)).as_secs(), course.turns(10))
    };
    assert_eq!((all(0.5), all(1.0), all(1.25)), ((300, 5), (600, 10), (750, 13)));
    // Any stored value.
    assert_eq!((all(-3.0), all(f64::INFINITY), all(f64::NAN)), ((60, 1), (6000, 100), (600, 10)));
}

#[test]
fn healthy_loop_is_not_disturbed() {
    let mut run = LoopRun::started();
    for passing in 3..10 {
        let errors = ["mismatched types", "missing field", "unresolved import", "unused variable"];
        run.works(counted(passing, 10 - passing, &format!("error: {}", errors[passing as usize % 4])));
        run.is(LoopState::Running, LoopStep::Agent);
        let prompt = run.next_prompt();
        assert!(prompt.directives.is_empty() && prompt.warnings.is_empty(), "{prompt:?}");
        assert!(run.levels().iter().all(|level| *level == InterventionLevel::Log), "{:?}", run.current.judged());
    }
    run.works(counted(10, 0, "")).is(LoopState::Running, LoopStep::Verify);
    run.tell(LoopInput::Outcome {
        ticket: run.current.run.ticket,
        outcome: WorkOutcome::Checked { report: counted(10, 0, "") },
    })
    .is(LoopState::Review, LoopStep::Idle);
    assert_eq!(run.current.judged().map(|judged| judged.forecast), Some(Some(0)));
}

#[test]
fn regression_restores_best_iteration_then_pauses() {
    let mut run = LoopRun::with(|s| s.policy.limits.iterations = IterationLimit::of(40));
    run.tell(TimerInput::SlotGranted).prepared(|_| {});
    run.tell(LoopInput::Outcome {
        ticket: run.current.run.ticket,
        outcome: WorkOutcome::Checked { report: two(true, false) },
    });
    run.works(two(true, false));
    let best = run.current.branch.head.clone().expect("a commit");
    for _ in 0..8 {
        run.works(two(false, false));
        if run.current.run.step != LoopStep::Agent {
            break;
        }
    }
    run.is(LoopState::Running, LoopStep::Restore);
    assert!(
        run.has(|e| matches!(e, Effect::Work(WorkEffect::Restore { iteration: 1, to, .. }) if *to == best)),
        "{:?}",
        run.effects
    );
    // A restart in between changes nothing: no agent runs before a person says so.
    let stored: Loop = serde_json::from_str(&serde_json::to_string(&run.current).unwrap()).unwrap();
    assert_eq!(stored, run.current);
    let last = run.current.branch.head.clone();
    run.current.agent.session = super::waits::session("s");
    run.tell(LoopInput::Outcome {
        ticket: run.current.run.ticket,
        outcome: WorkOutcome::Restored { commit: Some(sha(900)), retained_as: None },
    })
    .is(LoopState::Running, LoopStep::Push);
    assert_eq!(run.current.agent.session, None, "it remembers what is not there any more");
    assert_ne!(run.current.branch.head, last);
    run.pushed().is(LoopState::Paused, LoopStep::Idle);
    assert!(run.escalates("regression"));
    assert_eq!(run.current.latest_checks().map(CheckReport::held), Some(1), "what was put back is what is shown");
    run.command(resume()).working().is(LoopState::Running, LoopStep::Agent);
    assert_eq!(run.current.current().map(|i| i.parent.clone()), Some(sha(900)));
}

#[test]
fn limit_publishes_best_iteration() {
    let at_limit = || {
        let mut run = LoopRun::with(|s| s.policy.limits.iterations = IterationLimit::of(2));
        run.tell(TimerInput::SlotGranted).prepared(|_| {});
        run.tell(LoopInput::Outcome {
            ticket: run.current.run.ticket,
            outcome: WorkOutcome::Checked { report: two(false, false) },
        });
        run.works(two(true, false));
        let best = run.current.branch.head.clone().expect("a commit");
        run.works(two(false, false)).is(LoopState::Running, LoopStep::Restore);
        assert!(
            run.has(|e| matches!(e, Effect::Work(WorkEffect::Restore { iteration: 1, to, .. }) if *to == best)),
            "{:?}",
            run.effects
        );
        run
    };
    let mut run = at_limit();
    run.tell(LoopInput::Outcome {
        ticket: run.current.run.ticket,
        outcome: WorkOutcome::Restored { commit: Some(sha(900)), retained_as: None },
    })
    .is(LoopState::Running, LoopStep::Push);
    run.pushed().is(LoopState::LimitReached, LoopStep::Idle);
    assert_eq!(run.current.why, "all 2 iterations are used; the files of iteration 1, the best one, were restored");
    assert!(run.escalates("limit_iterations"));
    assert_eq!(run.current.latest_checks().map(CheckReport::held), Some(1));
    // A failed restoration must not discard work.
    let mut run = at_limit();
    let ticket = run.current.run.ticket;
    run.tell(LoopInput::Outcome {
        ticket,
        outcome: WorkOutcome::WorkFailed { reason: "the disk is full".into(), advice: String::new() },
    });
    run.is(LoopState::LimitReached, LoopStep::Idle);
    assert_eq!(run.current.why, "all 2 iterations are used");
    // Time that runs out meanwhile changes nothing: the best iteration is put back first.
    let mut run = at_limit();
    run.now = run.now.plus_ms(run.current.limits.time_ms + 1);
    run.tell(TimerInput::TimerDue { timer: TimerKind::Deadline }).is(LoopState::Running, LoopStep::Restore);
    let retained_as = Some("refs/ralph/keep/r-42/undone-abc".to_owned());
    run.tell(LoopInput::Outcome {
        ticket: run.current.run.ticket,
        outcome: WorkOutcome::Restored { commit: Some(sha(900)), retained_as },
    });
    run.pushed().is(LoopState::LimitReached, LoopStep::Idle);
    assert!(run.current.why.ends_with("the later work is kept as `refs/ralph/keep/r-42/undone-abc`"));
}

#[test]
fn failed_restoration_aborts_and_keeps_work() {
    let mut run = LoopRun::with(|s| s.policy.limits.iterations = IterationLimit::of(40));
    run.tell(TimerInput::SlotGranted).prepared(|_| {});
    run.tell(LoopInput::Outcome {
        ticket: run.current.run.ticket,
        outcome: WorkOutcome::Checked { report: two(true, false) },
    });
    run.works(two(true, false));
    while run.current.run.step == LoopStep::Agent {
        run.works(two(false, false));
    }
    let ticket = run.current.run.ticket;
    run.tell(LoopInput::Outcome {
        ticket,
        outcome: WorkOutcome::WorkFailed { reason: "the commit is gone".into(), advice: String::new() },
    });
    run.is(LoopState::Aborted, LoopStep::Idle);
    assert!(run.escalates("regression") && run.audit().contains(&AuditEvent::RestoreFailed));
    assert!(
        run.current.why.contains("the commit is gone")
            && run.has(|e| matches!(e, Effect::Forge(ForgeEffect::Pull { .. })))
    );
}

#[test]
fn weakened_checks_are_restored_before_review() {
    let mut run = LoopRun::started();
    let finding = TamperFinding::new("tests/parser.rs", TamperKind::TestsNeutralized, "exit(0)");
    let stat_of = |path: &str| {
        let file = FileStat { path: path.into(), added: 1, removed: 0, binary: false, change: None };
        Some(DiffStat { files: vec![file] })
    };
    run.agent(AgentEnd::Finished).committed(|c| {
        c.findings.push(finding);
        c.branch_stat = stat_of("tests/parser.rs");
    });
    run.pushed();
    assert_eq!(run.current.findings().len(), 1);
    run.tell(LoopInput::Outcome {
        ticket: run.current.run.ticket,
        outcome: WorkOutcome::Checked { report: counted(10, 0, "") },
    })
    .is(LoopState::Running, LoopStep::Verify);
    run.tell(LoopInput::Outcome {
        ticket: run.current.run.ticket,
        outcome: WorkOutcome::Checked { report: counted(10, 0, "") },
    })
    .is(LoopState::Running, LoopStep::Agent);
    assert!(run.next_prompt().directives[0].text.contains("Put the checks back"), "{:?}", run.next_prompt().directives);
    run.agent(AgentEnd::Finished).committed(|c| c.branch_stat = stat_of("src/parser.rs")).pushed();
    run.tell(LoopInput::Outcome {
        ticket: run.current.run.ticket,
        outcome: WorkOutcome::Checked { report: counted(10, 0, "") },
    })
    .is(LoopState::Running, LoopStep::Verify);
    run.tell(LoopInput::Outcome {
        ticket: run.current.run.ticket,
        outcome: WorkOutcome::Checked { report: counted(10, 0, "") },
    })
    .is(LoopState::Review, LoopStep::Idle);
    assert_eq!(run.current.findings(), [], "what was put back is no matter for those who review");
    assert_eq!(run.current.branch_stat().map(|stat| stat.files.len()), Some(1));
}

#[test]
fn control_signal_changes_next_run() {
    let mut run = LoopRun::started();
    for _ in 0..4 {
        run.works(counted(3, 7, ERROR));
    }
    let course = run.current.supervision.course.clone().expect("a course");
    assert!(course.effort > 1.0, "much is open and nothing moves: {course:?}");
    assert_eq!(course.model, ModelTier::Strong);
    assert!(run.next_prompt().strategy.iter().any(|text| text.starts_with("Urgency is ")), "{course:?}");
    assert!(!run.current.judged().expect("judged").moved.is_empty());
    let mut easy = LoopRun::started();
    for passing in [6, 8, 9] {
        easy.works(counted(passing, 10 - passing, ""));
    }
    let calmer = easy.current.supervision.course.expect("a course");
    assert!(calmer.effort < course.effort && calmer.model != ModelTier::Strong, "{calmer:?}");
}

#[test]
fn blocking_check_comes_first() {
    let mut run = LoopRun::started();
    let mut checks = two(false, false);
    (checks.outcomes[1].name, checks.outcomes[1].command) = ("build".into(), "make build".into());
    run.works(checks);
    let failing = |run: &LoopRun| run.next_prompt().failing.into_iter().map(|check| check.name).collect::<Vec<_>>();
    assert_eq!(failing(&run), ["build", "test"]);
    if let Some(course) = run.current.supervision.course.as_mut() {
        course.breadth = crate::domain::supervision::control::Breadth::FirstFailure;
    }
    assert_eq!(failing(&run), ["build"]);
    // A loop of an earlier version has no order and is described in the order of its checks.
    let mut stored = serde_json::to_value(&run.current).unwrap();
    stored["supervision"]["course"].as_object_mut().and_then(|course| course.remove("checks")).expect("it was there");
    run.current = serde_json::from_value(stored).unwrap();
    assert_eq!(failing(&run), ["test"]);
}

#[test]
fn warning_is_reported_once_with_evidence() {
    let mut run = LoopRun::started();
    let mut notified = Vec::new();
    let warnings = ["a", "b", "c"].map(|error| {
        run.idles(counted(2, 8, &format!("error: {error}"))).is(LoopState::Running, LoopStep::Agent);
        notified.push(run.effects.iter().find_map(|effect| match effect {
            Effect::Channel(ChannelEffect::Warn { notice }) => Some((notice.level, notice.cause.clone())),
            _ => None,
        }));
        run.next_prompt().directives
    });
    assert_eq!(notified, [None, Some((EscalationLevel::Warning, "warn_no_change".to_owned())), None]);
    let [none, one, again] = &warnings;
    assert!(none.is_empty() && again.is_empty(), "{warnings:?}");
    let evidence = "WARNING: Iterations changed nothing while checks fail. Evidence: 2 iterations changed nothing.\n- ";
    assert!(one.len() == 1 && one[0].to_string().starts_with(evidence), "{one:?}");
    assert!(run.levels().contains(&InterventionLevel::Warn), "it stands");
}

#[test]
fn run_problem_is_recorded_and_in_next_prompt() {
    let mut run = LoopRun::started();
    let failing = |error: &str| counted(3, 7, &format!("error: {error}"));
    run.works_by(|run| run.tool_errors = 6, failing("a"));
    let warning = "Failed tool calls in the last iteration: 6. Read the errors before you call tools again.";
    assert!(run.next_prompt().strategy.iter().any(|text| text == warning), "{:?}", run.next_prompt().strategy);
    assert!(run.reasons.iter().any(|reason| reason == "6 errors of the agent's tools"), "{:?}", run.reasons);
    let done = AgentReport { completion_signal: true, ..AgentReport::default() };
    run.works_by(|run| (run.tool_errors, run.report) = (5, Some(done)), failing("b"));
    assert!(run.next_prompt().strategy.iter().all(|text| !text.contains("Calls of tools")));
    let claim = "the agent reports completion, but checks fail";
    assert!(run.reasons.iter().any(|reason| reason == claim), "{:?}", run.reasons);
}

#[test]
fn memory_share_extends_the_history_in_the_prompt() {
    let mut run = LoopRun::started();
    for passing in 3..12 {
        run.works(counted(passing, 30 - passing, &format!("error: {}", "x".repeat(passing as usize))));
    }
    let history_of = |run: &mut LoopRun, share: f64| {
        run.current.supervision.course.as_mut().expect("a course").memory_share = share;
        run.next_prompt().history.iter().map(|past| past.n).collect::<Vec<_>>()
    };
    assert_eq!(history_of(&mut run, 0.2), [5, 6, 7, 8, 9]);
    assert_eq!(history_of(&mut run, 0.3), [3, 4, 5, 6, 7, 8, 9]);
}

#[test]
fn cost_and_time_are_compared_with_earlier_loops() {
    let burnt = |loops: usize, minutes: i64| {
        let mut run = LoopRun::with(|s| {
            s.policy.limits = Limits {
                iterations: IterationLimit::of(40),
                timeout: quantity::Duration::seconds(20_000),
                cost_usd: quantity::Usd(Money(100_000_000)),
                ..Limits::default()
            };
            s.policy.intelligence = Intelligence::Facts;
        });
        let kind = run.current.task_type();
        let ended = |task_type| EndedLoop { task_type, iterations: 4, time_ms: 498_000, cost: Money(1_900_000) };
        run.tell(TimerInput::SlotGranted).prepared(|tree| tree.past = vec![ended(kind); loops]);
        run.tell(LoopInput::Outcome {
            ticket: run.current.run.ticket,
            outcome: WorkOutcome::Checked { report: counted(0, 20, "") },
        });
        for n in 1..=4 {
            run.now = run.now.plus_ms(minutes * 60_000);
            run.works(counted(n, 20 - n, &format!("error: {}", "x".repeat(n as usize))));
        }
        let found = run.current.judged().map(|judged| judged.found.clone()).expect("it was judged");
        found.into_iter().map(|found| (found.kind, found.evidence)).collect::<Vec<_>>()
    };
    assert_eq!(burnt(2, 5), [], "two loops of the type are too few, and its limits are far away");
    let cost = "4 of 1.9 dollars used, 210.5 %";
    let end = "for 20 % of completion, 5 % per iteration";
    assert_eq!(burnt(3, 0), [(DetectionKind::ResourceBurn, format!("{cost}, {end}"))]);
    let both = format!("{cost}; 20.27 of 8.3 minutes used, 244.2 %, {end}");
    assert_eq!(burnt(3, 5), [(DetectionKind::ResourceBurn, both)]);
}

/// Before three loops of the type have finished, the usual iterations of the type apply.
#[test]
fn iterations_are_compared_with_the_usual_ones_of_the_type() {
    let ended = |iterations: u32| EndedLoop {
        task_type: TaskType::TestFix,
        iterations,
        time_ms: 60_000,
        cost: Money(1_000_000),
    };
    for (kind, past, usual) in [
        (TaskType::TestFix, vec![], 5.0),
        (TaskType::Refactor, vec![], 10.0),
        (TaskType::Feature, vec![], 30.0),
        (TaskType::TestFix, vec![ended(30), ended(30)], 5.0),
        (TaskType::TestFix, vec![ended(1), ended(2), ended(10)], 5.0),
        (TaskType::TestFix, vec![ended(4); 9], 4.0),
        (TaskType::Refactor, vec![ended(4); 9], 10.0),
    ] {
        let mut current = LoopRun::with(|s| s.policy.task_type = Some(kind)).current;
        assert_eq!(current.task_type(), kind);
        current.knowledge.past = Some(PastLoops::of(&past, kind));
        let facts = current.facts();
        let known = past.len() >= 3 && kind == TaskType::TestFix;
        assert_eq!(facts.estimated_iterations, known.then_some(usual), "{kind:?} {past:?}");
        assert!(known || facts.typical_iterations == Some(usual), "{kind:?} {past:?}: {facts:?}");
        assert_eq!(facts.estimated_minutes, known.then_some(1.0), "{kind:?} {past:?}");
    }
}

#[test]
fn only_finished_loops_are_counted() {
    let mut current = LoopRun::with(|_| {}).current;
    current.spent.iterations = 3;
    current.branch.verified = None;
    let mut counts = |state: LoopState| {
        current.state = state;
        current.as_ended().is_some()
    };
    assert!(counts(LoopState::Merged) && counts(LoopState::Review));
    for state in [LoopState::LimitReached, LoopState::Failed, LoopState::Aborted, LoopState::Closed, LoopState::Paused]
    {
        assert!(!counts(state), "{state:?}");
    }
}

#[test]
fn experience_is_read_and_recorded() {
    let earlier = EarlierLoop { mean: 0.1, variance: 0.01, paced: 7, seen: 9, idle: 2 };
    let prepared = |intelligence: Intelligence| {
        let mut run = LoopRun::with(|s| {
            s.policy.limits = Limits {
                iterations: IterationLimit::of(60),
                cost_usd: quantity::Usd(Money(1_000_000_000)),
                ..Limits::default()
            };
            s.policy.intelligence = intelligence;
        });
        run.tell(TimerInput::SlotGranted).prepared(|tree| tree.experience = Experience::of([earlier]));
        run.tell(LoopInput::Outcome {
            ticket: run.current.run.ticket,
            outcome: WorkOutcome::Checked { report: counted(0, 20, "") },
        });
        run
    };
    let mut run = prepared(Intelligence::Facts);
    assert_eq!(run.current.facts().experience, Experience::of([earlier]));
    assert!(prepared(Intelligence::Off).current.facts().experience.is_empty());
    assert!(LoopRun::started().current.facts().experience.is_empty());
    for passing in [2, 4, 6, 8] {
        run.works(counted(passing, 20 - passing, &format!("error: {}", "x".repeat(passing as usize))));
    }
    let statistics = run.current.as_earlier();
    assert_eq!((statistics.seen, statistics.idle, statistics.paced), (4, 0, 3), "{statistics:?}");
    assert!((statistics.mean - 0.1).abs() < 1e-9);
    while run.current.judged().is_some_and(|judged| judged.found.is_empty()) {
        run.works(counted(8, 12, "error: the same"));
    }
    // How long it would have stood still had nothing been said is not known.
    assert_eq!((run.current.as_earlier().seen, run.current.as_earlier().idle), (4, 0));
    let mut stored = serde_json::to_value(&run.current).unwrap();
    assert_eq!(serde_json::from_value::<Loop>(stored.clone()).unwrap(), run.current);
    stored["knowledge"].as_object_mut().and_then(|stored| stored.remove("experience")).expect("it was there");
    assert!(
        serde_json::from_value::<Loop>(stored).unwrap().knowledge.experience.is_empty(),
        "a loop of an earlier version"
    );
}

#[test]
fn unreadable_supervision_state_is_rebuilt() {
    let without = |part: &'static str| {
        move |stored: &mut Value| {
            stored.as_object_mut().and_then(|stored| stored.remove(part)).expect("it was there");
        }
    };
    let damages: [Box<dyn Fn(&mut Value)>; 7] = [
        Box::new(|stored| *stored = json!({ "control": 3 })),
        Box::new(|stored| *stored = json!("x")),
        Box::new(|stored| *stored = json!(null)),
        Box::new(without("control")),
        Box::new(without("overseer")),
        Box::new(without("strategy")),
        Box::new(|stored| stored["overseer"] = json!({})),
    ];
    for damage in damages {
        let mut run = LoopRun::started();
        run.works(counted(3, 7, "error: a")).works(counted(4, 6, "error: b"));
        let sound = run.current.supervision.state.clone().expect("known");
        let mut stored = serde_json::to_value(&run.current).unwrap();
        damage(&mut stored["supervision"]["state"]);
        run.current = serde_json::from_value(stored).expect("the rest of the loop is whole");
        assert_eq!(run.current.supervision.state, None);
        run.works(counted(5, 5, "error: c"));
        assert!(run.reasons.iter().any(|reason| reason.contains("was rebuilt")), "{:?}", run.reasons);
        let again = run.current.supervision.state.clone().expect("known again");
        assert_eq!(again.control.rounds(), sound.control.rounds() + 1);
    }
}

#[test]
fn discarded_iteration_is_not_judged() {
    let mut run = LoopRun::started();
    run.works(counted(3, 7, "error: a")).works(counted(10, 0, "")).checked(true).is(LoopState::Review, LoopStep::Idle);
    assert_eq!(run.current.records().len(), 2);
    run.command(LoopCommand::Retry(command::Retry)).is(LoopState::Queued, LoopStep::Idle);
    assert_eq!(run.current.supervision.state.as_ref().map(|known| known.control.rounds()), Some(1));
    assert_eq!(run.current.records().len(), 1);
    run.working().works(counted(5, 5, "error: c")).is(LoopState::Running, LoopStep::Agent);
    assert!(run.reasons.iter().all(|reason| !reason.contains("was rebuilt")));
}

#[test]
fn limit_takes_precedence_over_pause() {
    let mut run = LoopRun::with(|s| s.policy.limits.iterations = IterationLimit::of(3));
    run.tell(TimerInput::SlotGranted).prepared(|_| {});
    run.tell(LoopInput::Outcome {
        ticket: run.current.run.ticket,
        outcome: WorkOutcome::Checked { report: counted(2, 8, "") },
    });
    run.works(counted(2, 8, ERROR)).works(counted(2, 8, ERROR)).works(counted(2, 8, ERROR));
    run.is(LoopState::LimitReached, LoopStep::Idle);
    assert!(run.escalates("limit_iterations"));
    // With a higher limit the forecast is recomputed, and the loop continues.
    run.command(resume_with(|o| o.max_iterations = Some(IterationLimit::of(20))))
        .working()
        .is(LoopState::Running, LoopStep::Agent);
    assert_eq!(run.current.facts().max_iterations, 20.0);
}

#[test]
fn raised_limit_renews_forecast() {
    let burns = |run: &LoopRun| {
        let found = run.current.judged().map_or(&[][..], |judged| &judged.found);
        found.iter().any(|found| found.evidence.starts_with("the controller raised the alarm \"resource burn\""))
    };
    // An iteration takes four seconds and a dollar.
    let cases: [(Limits, RunOptions); 2] = [
        (
            Limits {
                timeout: quantity::Duration::seconds(50),
                cost_usd: quantity::Usd(Money(90_000_000)),
                ..Limits::default()
            },
            RunOptions { timeout_s: Some(3600), ..RunOptions::default() },
        ),
        (
            Limits { cost_usd: quantity::Usd(Money(12_000_000)), ..Limits::default() },
            RunOptions { budget: Some(Money(90_000_000)), ..RunOptions::default() },
        ),
    ];
    for (limits, options) in cases {
        let mut run = LoopRun::with(|s| {
            s.policy.limits = Limits { iterations: IterationLimit::of(40), ..limits };
            // So many iterations are usual for its type.
            s.policy.task_type = Some(TaskType::Feature);
            let thresholds = json!({ "preset": "pinned", "oversight": { "stuck": { "enabled": false } } });
            s.policy.thresholds = thresholds.as_object().cloned().unwrap();
        });
        run.tell(TimerInput::SlotGranted).prepared(|_| {});
        run.tell(LoopInput::Outcome {
            ticket: run.current.run.ticket,
            outcome: WorkOutcome::Checked { report: counted(0, 100, "") },
        });
        let work = |run: &mut LoopRun, n: u64| {
            run.works(counted(n, 100 - n, &format!("error: {}", "x".repeat(n as usize))));
        };
        let mut n = 0;
        while !burns(&run) {
            n += 1;
            work(&mut run, n);
            run.is(LoopState::Running, LoopStep::Agent);
        }
        assert!(n > 8, "{n} iterations");
        run.command(LoopCommand::Pause(command::Pause { now: true, reason: String::new() }));
        run.command(LoopCommand::Resume(command::Resume { options, guidance: String::new() })).working();
        work(&mut run, n + 1);
        assert!(!burns(&run), "{:?}", run.current.judged());
    }
}

#[test]
fn new_checks_reset_measurement() {
    let mut run = LoopRun::started();
    run.works(counted(6, 4, "error: a")).works(counted(8, 2, "error: b"));
    run.command(LoopCommand::Pause(command::Pause { now: true, reason: String::new() }));
    run.command(resume_with(|o| o.checks = vec!["make test".to_owned()]))
        .tell(TimerInput::SlotGranted)
        .prepared(|_| {});
    run.is(LoopState::Running, LoopStep::Baseline);
    run.tell(LoopInput::Outcome {
        ticket: run.current.run.ticket,
        outcome: WorkOutcome::Checked { report: counted(50, 50, "error: c") },
    });
    assert_eq!((run.current.records().len(), run.current.completion().get()), (0, 0.0));
    run.works(counted(55, 45, "error: d")).works(counted(60, 40, "error: e"));
    let percent: Vec<f64> =
        run.current.records().iter().map(|record| (record.completion.get() * 100.0).round()).collect();
    assert_eq!(percent, [10.0, 20.0]);
    let found = run.current.judged().map(|judged| judged.found.clone()).expect("it was judged");
    assert_eq!(found, [], "eight of ten tests of other checks are no better state than this");
    run.is(LoopState::Running, LoopStep::Agent);
}

#[test]
fn record_of_incomplete_run_has_failures_and_no_passing_tests() {
    let mut run = LoopRun::started();
    let mut checks = counted(3, 1, "");
    checks.outcomes[0].incomplete = true;
    checks.outcomes[0].errors = vec!["it does not compile".into()];
    run.works_by(|_| {}, checks.clone());
    let record = run.current.records().remove(0);
    assert_eq!((record.tests_passing, record.tests_failing), (None, Some(1.0)));
    assert_eq!(record.failures, ["test: it does not compile"]);
    checks.outcomes[0].failing_tests = vec!["a".into(), "b".into()];
    run.works_by(|_| {}, checks);
    assert_eq!(run.current.records().remove(1).failures, ["test: a", "test: b"]);
}

#[test]
fn records_contain_measured_facts() {
    let mut run = LoopRun::started();
    let mut checks = counted(3, 7, "\u{1b}[31mFAILED tests/test_a.py::test_b - AssertionError: 3 != 4\u{1b}[0m\n");
    checks.outcomes.push(CheckOutcome {
        name: "lint".into(),
        command: "ruff check .".into(),
        ..report(false).outcomes.remove(0)
    });
    run.works_by(|run| run.tool_errors = 4, checks);
    let record = run.current.records().remove(0);
    assert_eq!(
        (record.iteration, record.errors, record.tests_passing, record.tests_failing),
        (1.0, 6.0, Some(3.0), Some(7.0)),
        "two checks and four tools failed"
    );
    assert_eq!((record.tests_skipped, record.tokens_out, record.duration_s), (Some(0.0), 5.0, 4.0));
    assert_eq!(record.quality, 0.5, "the only lint check fails");
    assert!(record.error_signature.as_deref().is_some_and(|text| text.contains("AssertionError")), "{record:?}");
    assert_eq!((record.files, record.tool_calls, record.tokens_in), (vec!["src/parser.rs".to_owned()], 1.0, 10.0));
    assert_eq!(record.tree, run.current.iterations[0].tree.as_ref().map(ToString::to_string));
    assert_eq!(record.cost_usd, 1.0);
    assert_eq!(record.checks[0].baseline, Some(false));
}

#[test]
fn audit_names_author_of_command() {
    let mut run = LoopRun::started();
    for command in [
        guide("look here"),
        LoopCommand::Budget(command::Budget { limit: Money(90_000_000) }),
        LoopCommand::Retry(command::Retry),
    ] {
        run.command(command);
        let entries: Vec<_> =
            run.effects.iter().filter(|e| matches!(e, Effect::Store(StoreEffect::Audit { .. }))).collect();
        assert!(format!("{entries:?}").contains("olaf: "), "{entries:?}");
    }
    run.command(LoopCommand::Status(command::Status));
    assert!(run.audit().is_empty(), "a question changes nothing");
}

/// Starts a loop of at most 20 iterations whose progress is too slow for them, and lets it run up to 10 iterations.
fn hopeless(gives_up: bool) -> (LoopRun, u64) {
    let mut run = LoopRun::with(|s| {
        s.policy.limits.iterations = IterationLimit::of(20);
        s.policy.limits.cost_usd = Usd::dollars(100);
        if gives_up {
            let thresholds = json!({ "strategy": { "outlook": { "enabled": true } } });
            s.policy.thresholds = thresholds.as_object().cloned().unwrap();
        }
    });
    run.tell(TimerInput::SlotGranted).prepared(|_| {});
    run.tell(LoopInput::Outcome {
        ticket: run.current.run.ticket,
        outcome: WorkOutcome::Checked { report: counted(2, 198, "") },
    });
    let mut n = 0;
    while run.current.state == LoopState::Running && n < 10 {
        n += 1;
        creep(&mut run, n);
    }
    (run, n)
}

/// Ends the n-th iteration with two more percent of the tests.
fn creep(run: &mut LoopRun, n: u64) {
    let errors = ["mismatched types", "missing field", "unresolved import", "unused variable"];
    run.works(counted(2 + 4 * n, 198 - 4 * n, &format!("error: {}", errors[n as usize % 4])));
}

#[test]
fn hopeless_loop_continues_by_default() {
    let (run, n) = hopeless(false);
    run.is(LoopState::Running, LoopStep::Agent);
    assert_eq!(n, 10);
}

#[test]
fn hopeless_loop_with_outlook_stops_at_limit_and_can_be_resumed() {
    let (mut run, n) = hopeless(true);
    run.is(LoopState::LimitReached, LoopStep::Idle);
    assert!((4..10).contains(&n), "{n} iterations");
    assert!(run.current.why.starts_with("at its rate the rest takes "), "{}", run.current.why);
    assert!(run.escalates("limit_outlook") && !run.has(|e| e.ticket().is_some()), "{:?}", run.effects);
    assert_eq!(run.current.judged().and_then(|judged| judged.stops.clone()), Some(run.current.why.clone()));
    let options = RunOptions { max_iterations: Some(IterationLimit::of(30)), ..RunOptions::default() };
    run.command(LoopCommand::Resume(command::Resume { options, guidance: String::new() }))
        .is(LoopState::Queued, LoopStep::Idle);
    run.working();
    for more in 1..4 {
        creep(&mut run, n + more);
        run.is(LoopState::Running, LoopStep::Agent);
    }
    assert_eq!(replay(run.log).as_ref(), Some(&run.current));
}

/// Also for a loop whose checks come from a command.
#[test]
fn stated_complexity_selects_the_gains_of_exploration() {
    let early = |complexity: u32| {
        let mut run = LoopRun::with(|start| {
            start.task.author_trusted = true;
            start.task.text.set_body(&format!("```ralph\ntask: {{ complexity: {complexity} }}\n```"));
        });
        run.working().works(counted(1, 9, ERROR));
        let judged = run.current.judged().expect("judged").clone();
        (run.current.facts().complexity, judged.profile)
    };
    assert_eq!(early(8), (Some(8.0), "exploration".to_owned()));
    let (stated, profile) = early(4);
    assert_eq!(stated, Some(4.0));
    assert_ne!(profile, "exploration");
}

/// The text of an issue whose author may not write states neither facts nor an estimate.
#[test]
fn facts_in_an_outsiders_issue_are_ignored() {
    let stated = |author_trusted: bool| {
        let mut run = LoopRun::with(|start| {
            start.task.author_trusted = author_trusted;
            start.task.text.set_body("```ralph\ntask: { complexity: 8, security_sensitive: true, scope: [src/auth], estimated_iterations: 3 }\n```");
        });
        run.working();
        run.current.clone()
    };
    let (trusted, outsider) = (stated(true), stated(false));
    assert!(!trusted.knowledge.stated.issue.is_empty());
    assert_eq!((trusted.facts().complexity, trusted.facts().security_sensitive), (Some(8.0), true));
    assert!(outsider.knowledge.stated.is_empty(), "{:?}", outsider.knowledge.stated);
    let facts = outsider.facts();
    assert_eq!((facts.complexity, facts.security_sensitive, facts.estimated_iterations), (None, false, None));
    assert!(facts.scope.is_empty(), "{:?}", facts.scope);
}

#[test]
fn disabled_control_records_values_without_advice() {
    let run = stopped_under(json!({
        "control": { "enabled": false, "auto_intervene": true },
        "oversight": { "stuck": { "enabled": false }, "resource_burn": { "enabled": false } },
        "strategy": { "escalation_threshold": 90, "budget_critical": 1.0 },
    }));
    // The same loop is paused by its alarms where control is on.
    assert!(run.escalates("limit_iterations"), "{}", run.current.why);
    let judged: Vec<_> = run.current.iterations.iter().filter_map(|iteration| iteration.judged.as_ref()).collect();
    assert_eq!(judged.len(), 10);
    for judged in judged {
        let figures = judged.control.as_ref().expect("figures");
        assert!(judged.p > 0.9 && figures.alarms.is_empty(), "{judged:?}");
    }
    assert_eq!(run.current.supervision.course.as_ref().map(|course| course.effort), Some(1.0));
}

/// An open-ended loop runs until its checks pass, its time or money is used, or a person ends it.
#[test]
fn unlimited_loop_ends_by_budget_time_or_person() {
    let unlimited = || {
        let mut run = LoopRun::with(|s| {
            s.policy.limits.iterations = IterationLimit::UNLIMITED;
            s.policy.limits.cost_usd = Usd::dollars(200);
        });
        run.tell(TimerInput::SlotGranted).prepared(|_| {});
        run.tell(LoopInput::Outcome {
            ticket: run.current.run.ticket,
            outcome: WorkOutcome::Checked { report: counted(2, 198, "") },
        });
        // More iterations than the default limit.
        for n in 1..=15 {
            creep(&mut run, n);
            run.is(LoopState::Running, LoopStep::Agent);
        }
        run
    };
    let mut run = unlimited();
    let View::Status(status) = report::status(&run.current, "claude", run.now) else { panic!("a status") };
    assert_eq!((status.iteration, status.max_iterations), (16, None));
    let judged = run.current.judged().expect("judged").clone();
    assert!(judged.control.expect("figures").alarms.iter().all(|alarm| alarm.kind != AlarmKind::ResourceBurn));
    assert_eq!(replay(run.log.clone()).as_ref(), Some(&run.current));

    run.current.spent.cost = run.current.limits.cost;
    creep(&mut run, 16);
    run.is(LoopState::LimitReached, LoopStep::Idle);
    assert_eq!(run.current.exhausted_limit(run.now), Some(LoopLimit::Money));

    let mut run = unlimited();
    run.current.spent.time_ms = run.current.limits.time_ms;
    creep(&mut run, 16);
    run.is(LoopState::LimitReached, LoopStep::Idle);
    assert_eq!(run.current.exhausted_limit(run.now), Some(LoopLimit::Time));

    let mut run = unlimited();
    run.command(LoopCommand::Iterations(command::Iterations { limit: IterationLimit::of(17) }));
    creep(&mut run, 16);
    creep(&mut run, 17);
    run.is(LoopState::LimitReached, LoopStep::Idle);
    assert_eq!(run.current.exhausted_limit(run.now), Some(LoopLimit::Iterations));
}

#[test]
fn people_are_notified_once_at_each_part_of_the_budget() {
    let notices = |run: &LoopRun| -> Vec<String> {
        let warned = run.effects.iter().filter_map(|effect| match effect {
            Effect::Channel(ChannelEffect::Warn { notice }) => Some(notice.cause.clone()),
            _ => None,
        });
        warned.filter(|cause| cause.starts_with("budget")).collect()
    };
    let mut run = LoopRun::with(|s| {
        s.policy.limits = Limits {
            iterations: IterationLimit::of(40),
            cost_usd: quantity::Usd(Money(10_000_000)),
            ..Limits::default()
        };
    });
    run.tell(TimerInput::SlotGranted).prepared(|_| {});
    let mut told = Vec::new();
    for cost in [6_900_000, 7_000_000, 8_000_000, 9_000_000, 9_500_000] {
        run.current.spent.cost = Money(cost);
        run.tell(TimerInput::ClockSet { by_ms: 0 });
        told.push(notices(&run));
    }
    let once = |part: &str| vec![part.to_owned()];
    assert_eq!(told, [vec![], once("budget_70"), vec![], once("budget_90"), vec![]]);
    let View::Status(status) = report::status(&run.current, "claude", run.now) else { panic!("a status") };
    assert!(
        status.notes.iter().any(|note| note.starts_with("At least 90 % of the loop's budget")),
        "{:?}",
        status.notes
    );
    // Time counts as well, and a loop that does not run reports nothing.
    let mut run = LoopRun::with(|_| {});
    run.tell(TimerInput::SlotGranted).prepared(|_| {});
    run.now = run.now.plus_ms(run.current.limits.time_ms * 3 / 4);
    run.tell(TimerInput::ClockSet { by_ms: 0 });
    assert_eq!(notices(&run), once("budget_70"));
    run.current.state = LoopState::Paused;
    run.current.spent.cost = run.current.limits.cost;
    run.tell(TimerInput::ClockSet { by_ms: 0 });
    assert_eq!(notices(&run), [""; 0]);
}

#[test]
fn similarity_from_the_embedding_model_reaches_the_record() {
    let similarity = |cosine: Option<f64>| {
        let mut run = LoopRun::new();
        run.working()
            .agent(AgentEnd::Finished)
            .committed(|change| change.objective_cosine = cosine)
            .pushed()
            .checked(false);
        run.current.records().last().expect("a record").objective_similarity
    };
    assert_eq!(similarity(None), None);
    let (near, far) = (similarity(Some(0.9)), similarity(Some(0.0)));
    assert!(near > far && near.is_some_and(|near| near > 0.5), "{near:?} {far:?}");
}
