//! Findings about tests in the branch: they are reported, fixed, decided or accepted. The loop never reaches `review` while one
//! is open.

use super::*;
use crate::domain::loops::command::AcceptTests;
use crate::domain::model::task::{FileStat, TamperFinding, TamperKind, TestCounts};

fn weakened(path: &str) -> BranchFinding {
    let found = TamperFinding::new(path, TamperKind::TestsNeutralized, "os._exit(0)");
    BranchFinding { found, mark: "1".into(), pushed: false }
}

fn base_tests(holds: bool, mark: &str) -> Option<BaseTestsRun> {
    let files = vec![ChangedTestFile { path: "tests/a.py".into(), mark: mark.into(), ..ChangedTestFile::default() }];
    Some(BaseTestsRun { report: report(holds), files, diff: "-assert f() == 1\n+assert f() == 2\n".into() })
}

fn accept(paths: &[&str]) -> LoopCommand {
    LoopCommand::AcceptTests(AcceptTests { paths: paths.iter().map(|path| (*path).to_owned()).collect() })
}

impl LoopRun {
    fn verified(&mut self, findings: &[BranchFinding], base_tests: Option<BaseTestsRun>) -> &mut Self {
        self.verified_with(report(true), findings, base_tests)
    }

    fn verified_with(
        &mut self,
        report: CheckReport,
        findings: &[BranchFinding],
        base_tests: Option<BaseTestsRun>,
    ) -> &mut Self {
        assert_eq!(self.current.run.step, LoopStep::Verify, "{:?}", self.reasons);
        let tests = Box::new(TestEvidence { findings: findings.to_vec(), base_tests, ..TestEvidence::default() });
        self.tell(LoopInput::Outcome {
            ticket: self.current.run.ticket,
            outcome: WorkOutcome::Verified { report, tests },
        })
    }

    /// Runs an iteration, of the agent or of the service, whose commit has these findings.
    fn commits(&mut self, findings: &[BranchFinding], holds: bool) -> &mut Self {
        self.pushes(findings).checked(holds)
    }

    /// Runs such an iteration up to its checks.
    fn pushes(&mut self, findings: &[BranchFinding]) -> &mut Self {
        if self.current.run.step == LoopStep::Agent {
            self.agent(AgentEnd::Finished);
        }
        let found = findings.to_vec();
        // A branch without a change is never done.
        let paths = findings.iter().map(|one| one.found.path.clone()).chain(["src/app.py".to_owned()]);
        let files = paths.map(|path| FileStat { path, added: 0, removed: 5, binary: false, change: None });
        let stat = DiffStat { files: files.collect() };
        self.committed(|change| {
            change.branch_findings = Some(found);
            change.branch_stat = Some(stat);
        });
        self.pushed()
    }

    /// Runs the same iteration with passing checks, up to the end of the verification.
    fn finishes(&mut self, findings: &[BranchFinding]) -> &mut Self {
        self.commits(findings, true).verified(findings, None)
    }

    fn resumed(&mut self) -> &mut Self {
        self.tell(TimerInput::SlotGranted).prepared(|_| {})
    }

    fn prompt(&self) -> crate::domain::knowledge::prompt::PromptView {
        crate::domain::knowledge::prompt::view(&self.current, "nonce", "report")
    }
}

#[test]
fn finding_of_earlier_iteration_prevents_review() {
    let mut run = LoopRun::new();
    let lost = [weakened("tests/a.py")];
    run.working().commits(&lost, false).is(LoopState::Running, LoopStep::Agent);
    let to_restore = run.prompt().put_back;
    assert_eq!((to_restore[0].path.as_str(), to_restore[0].evidence.as_str()), ("tests/a.py", "os._exit(0)"));
    // The second iteration adds no finding, and every check passes.
    run.finishes(&lost).is(LoopState::Paused, LoopStep::Idle);
    assert!(run.escalates("test_findings") && run.current.why.contains("did not restore them"), "{}", run.current.why);
    let asked = run.effects.iter().find_map(|effect| match effect {
        Effect::Forge(ForgeEffect::Escalate { view, .. }) => match &**view {
            View::Escalation(view) => Some(view.clone()),
            _ => None,
        },
        _ => None,
    });
    let asked = asked.expect("a question");
    assert!(asked.evidence[0].contains("tests/a.py"), "{:?}", asked.evidence);
    assert_eq!(asked.replies[0].usage, "/ralph accept-tests");
    // Without an acceptance, the agent is to put them back.
    run.command(resume()).resumed().is(LoopState::Running, LoopStep::Verify);
    run.verified(&lost, None).is(LoopState::Running, LoopStep::Agent);
    assert_eq!(run.prompt().put_back.len(), 1);
    assert_eq!(replay(run.log).as_ref(), Some(&run.current));
}

#[test]
fn agent_that_restores_tests_reaches_review() {
    let mut run = LoopRun::new();
    run.working().finishes(&[weakened("tests/a.py")]).is(LoopState::Running, LoopStep::Agent);
    run.finishes(&[]).is(LoopState::Review, LoopStep::Idle);
    assert!(run.current.checks.guard.accepted.is_empty());
}

#[test]
fn iterations_before_the_question_are_configurable() {
    let mut run = LoopRun::with(|start| start.policy.tampering.iterations = 1);
    run.working().finishes(&[weakened("tests/a.py")]).is(LoopState::Paused, LoopStep::Idle);
}

#[test]
fn exhausted_limit_with_open_finding_prevents_review() {
    let mut run = LoopRun::with(|start| start.policy.limits.iterations = IterationLimit::of(1));
    run.working().finishes(&[weakened("tests/a.py")]).is(LoopState::LimitReached, LoopStep::Idle);
    assert!(run.current.why.contains("the tests in `tests/a.py` are weaker than before"), "{}", run.current.why);

    let mut run = LoopRun::with(|start| start.policy.limits.iterations = IterationLimit::of(1));
    run.working().commits(&[], true).verified(&[], base_tests(false, "1")).is(LoopState::Paused, LoopStep::Idle);
    run.command(accept(&[])).is(LoopState::Queued, LoopStep::Idle);
    run.resumed().verified(&[], base_tests(false, "1")).is(LoopState::Review, LoopStep::Idle);
}

#[test]
fn acceptance_ends_question_and_names_maintainer() {
    let mut run = LoopRun::new();
    let inline = [weakened("src/parser.rs")];
    run.working().finishes(&inline).finishes(&inline).is(LoopState::Paused, LoopStep::Idle);
    run.command(accept(&["src/other.rs"])).is(LoopState::Paused, LoopStep::Idle);
    assert!(run.reasons.join(" ").contains("there is `src/parser.rs`"), "{:?}", run.reasons);
    run.command(accept(&["src/parser.rs"])).is(LoopState::Queued, LoopStep::Idle);
    assert_eq!(run.current.people.authority.login, "olaf");
    // Every check passed already, so no agent runs again.
    run.resumed().is(LoopState::Running, LoopStep::Verify);
    run.verified(&inline, None).is(LoopState::Review, LoopStep::Idle);
    let pull = crate::domain::report::pull(&run.current, run.now);
    assert_eq!((pull.findings.len(), pull.accepted.len(), pull.accepted[0].by.as_str()), (0, 1, "olaf"));
    assert_eq!(replay(run.log).as_ref(), Some(&run.current));
}

#[test]
fn acceptance_covers_only_unchanged_findings() {
    let mut run = LoopRun::new();
    let mut lost = weakened("tests/a.py");
    run.working().finishes(std::slice::from_ref(&lost)).command(accept(&[]));
    assert_eq!(run.current.open_findings(), Vec::<&BranchFinding>::new());
    // A line number that moved is the same finding.
    lost.found.line = Some(9);
    run.finishes(std::slice::from_ref(&lost)).is(LoopState::Review, LoopStep::Idle);

    for change in [
        |lost: &mut BranchFinding| lost.mark = "2".into(),
        |lost: &mut BranchFinding| lost.found.evidence = "os.abort()".into(),
        |lost: &mut BranchFinding| lost.found.kind = TamperKind::CheckConfigEdited,
        |lost: &mut BranchFinding| lost.found.path = "tests/b.py".into(),
    ] {
        let mut run = LoopRun::new();
        let mut lost = weakened("tests/a.py");
        run.working().finishes(std::slice::from_ref(&lost)).command(accept(&[]));
        change(&mut lost);
        run.finishes(std::slice::from_ref(&lost)).is(LoopState::Running, LoopStep::Agent);
        assert_eq!(run.current.open_findings().len(), 1, "{lost:?}");
    }
}

#[test]
fn acceptance_without_finding_is_rejected() {
    let mut run = LoopRun::in_state(LoopState::Running);
    run.command(accept(&[]));
    assert!(run.has(|effect| matches!(effect, Effect::Forge(ForgeEffect::React { mark: Mark::Wrong, .. }))));
    assert!(run.current.checks.guard.accepted.is_empty());
}

#[test]
fn checks_that_need_changed_tests_need_an_early_decision() {
    let mut run = LoopRun::new();
    run.working().commits(&[], true).verified(&[], base_tests(false, "1")).is(LoopState::Running, LoopStep::Agent);
    let prompt = run.prompt();
    assert_eq!((prompt.changed_tests.len(), prompt.put_back.len()), (1, 0));
    assert!(run.current.judged().is_none_or(|judged| judged.found.is_empty()), "the task may require it");
    run.commits(&[], true).verified(&[], base_tests(false, "1")).is(LoopState::Paused, LoopStep::Idle);
    assert_eq!(run.current.iterations.len(), 2, "no iterations are spent on the question");
    let has_diff = |view: &View| matches!(view, View::Escalation(view) if view.diff.contains("+assert f() == 2"));
    assert!(run.has(|effect| matches!(effect, Effect::Forge(ForgeEffect::Escalate { view, .. }) if has_diff(view))));
    run.command(accept(&["tests/a.py"])).resumed().is(LoopState::Running, LoopStep::Verify);
    run.verified(&[], base_tests(false, "1")).is(LoopState::Review, LoopStep::Idle);
    // Another change of these tests is another question.
    run.command(guide("more")).resumed().commits(&[], true);
    run.verified(&[], base_tests(false, "2")).is(LoopState::Running, LoopStep::Agent);
    run.commits(&[], true).verified(&[], base_tests(true, "2")).is(LoopState::Review, LoopStep::Idle);
}

/// See docs/research/threats.md#g17.
#[test]
fn hard_coded_answers_are_reported_once_before_a_question() {
    let holds = |mark: &str, evidence: &str| {
        let found = TamperFinding::new("src/calc.py", TamperKind::AnswersHardCoded, evidence);
        [BranchFinding { found, mark: mark.into(), pushed: false }]
    };
    let known = "only what tests expect: mul(2, 3) is 6; sign(-3) is -1";
    let mut run = LoopRun::new();
    run.working().commits(&[], true).verified(&holds("1", known), None).is(LoopState::Running, LoopStep::Agent);
    let prompt = run.prompt();
    assert_eq!((prompt.answers.len(), prompt.changed_tests.len(), prompt.put_back.len()), (1, 0, 0));
    run.commits(&[], true).verified(&holds("2", known), None).is(LoopState::Paused, LoopStep::Idle);
    assert!(run.escalates("test_findings"), "{:?}", run.effects);
    assert!(run.current.why.contains("returns only what its tests expect"), "{}", run.current.why);
    run.command(accept(&[])).resumed().is(LoopState::Running, LoopStep::Verify);
    run.verified(&holds("2", known), None).is(LoopState::Review, LoopStep::Idle);
    // The same answers in a file that changed otherwise are accepted; others are not.
    run.command(guide("more")).resumed().commits(&[], true);
    run.verified(&holds("3", known), None).is(LoopState::Review, LoopStep::Idle);
    run.command(guide("more")).resumed().commits(&[], true);
    run.verified(&holds("3", "only what tests expect: mul(4, 5) is 20"), None);
    run.is(LoopState::Running, LoopStep::Agent);
}

#[test]
fn findings_pushed_by_a_person_are_left_to_people() {
    let mut run = LoopRun::new();
    let theirs = BranchFinding { pushed: true, ..weakened("tests/a.py") };
    run.working().commits(std::slice::from_ref(&theirs), false).is(LoopState::Running, LoopStep::Agent);
    assert!(run.prompt().put_back.is_empty(), "the agent does not undo a person's change");
    // A later commit has the same finding without its origin.
    run.commits(&[weakened("tests/a.py")], true).verified(&[weakened("tests/a.py")], None);
    run.is(LoopState::Paused, LoopStep::Idle);
    assert!(run.current.why.contains("a person pushed"), "{}", run.current.why);
}

fn counted(passing: u64, failing: u64) -> CheckReport {
    let tests = Some(TestCounts { passing, failing, skipped: 0 });
    CheckReport { outcomes: vec![CheckOutcome { holds: failing == 0, tests, ..report(true).outcomes.remove(0) }] }
}

#[test]
fn check_that_succeeds_without_the_tests_of_the_base_is_a_finding() {
    let silent = |contradicted| {
        let outcome = CheckOutcome { contradicted, tests: None, ..counted(0, 1).outcomes.remove(0) };
        CheckReport { outcomes: vec![outcome] }
    };
    let ends_with = |run: &mut LoopRun, report| {
        run.pushes(&[]);
        run.tell(LoopInput::Outcome { ticket: run.current.run.ticket, outcome: WorkOutcome::Checked { report } });
    };
    let start = || {
        let mut run = LoopRun::new();
        run.tell(TimerInput::SlotGranted).prepared(|_| {});
        run.tell(LoopInput::Outcome {
            ticket: run.current.run.ticket,
            outcome: WorkOutcome::Checked { report: counted(8, 2) },
        });
        run
    };
    let mut run = start();
    ends_with(&mut run, silent(true));
    run.is(LoopState::Running, LoopStep::Agent);
    let put_back = run.prompt().put_back;
    assert_eq!(
        put_back.iter().map(|one| one.evidence.as_str()).collect::<Vec<_>>(),
        ["10 tests counted at the base, none now"]
    );
    // The finding of a commit with no other sign is measured again, and the second one in a row is for a maintainer.
    ends_with(&mut run, silent(true));
    run.is(LoopState::Paused, LoopStep::Idle);
    assert!(run.escalates("test_findings"), "{}", run.current.why);

    // A command that failed by its exit code says nothing about the tests that it did not run.
    let mut run = start();
    ends_with(&mut run, silent(false));
    run.is(LoopState::Running, LoopStep::Agent);
    assert_eq!(run.prompt().put_back.len(), 0);
    // Failing tests are counted as well.
    let mut run = start();
    let failing = CheckOutcome { contradicted: true, ..counted(8, 2).outcomes.remove(0) };
    let report = CheckReport { outcomes: vec![failing] };
    ends_with(&mut run, report);
    assert_eq!(run.current.open_findings().len(), 0);
}

#[test]
fn changes_that_the_task_may_require_need_a_decision_instead_of_a_revert() {
    let configured = BranchFinding {
        found: TamperFinding::new(".eslintrc.json", TamperKind::CheckConfigEdited, "rules"),
        ..weakened("")
    };
    let body = "The tests of `old` are obsolete: delete tests/test_old.py and what is in tests/legacy/.";
    for finding in [weakened("tests/test_old.py"), weakened("tests/legacy/test_a.py"), configured] {
        let mut run = LoopRun::with(|start| start.task.text = TaskText::new("Clean up", body, None));
        let found = [finding];
        run.working().finishes(&found).is(LoopState::Running, LoopStep::Agent);
        assert!(run.prompt().put_back[0].may_be_asked_for);
        run.finishes(&found).is(LoopState::Paused, LoopStep::Idle);
        assert!(run.escalates("test_findings"), "{found:?}");
        assert!(run.current.why.contains("the task may ask for"), "{}", run.current.why);
        run.command(accept(&[])).resumed().verified(&found, None).is(LoopState::Review, LoopStep::Idle);
    }
}

#[test]
fn text_names_files_by_path_name_and_folder() {
    let text =
        "Delete `tests/test_old.py`, ./a/b.json, and all of spec/legacy/. Then make the tests pass (see Makefile).";
    for named in
        ["tests/test_old.py", "x/tests/test_old.py", "a/b.json", "spec/legacy/c/d.rb", "sub/Makefile", "Makefile"]
    {
        assert!(names_file(text, named), "{named}");
    }
    for other in ["tests/test_new.py", "tests/a.py", "old.py", "b.jsonl", "spec/a.rb", "tests/pass", "legacy/x.py"] {
        assert!(!names_file(text, other), "{other}");
    }
}

#[test]
fn tests_are_counted_at_the_base_that_was_merged_or_worked_on() {
    let verified = |run: &mut LoopRun, now: CheckReport, base: Option<CheckReport>| {
        let tests = TestEvidence { base_checks: base, ..TestEvidence::default() };
        run.commits(&[], true);
        run.tell(LoopInput::Outcome {
            ticket: run.current.run.ticket,
            outcome: WorkOutcome::Verified { report: now, tests: Box::new(tests) },
        });
    };
    // The merged base has 20 tests, of which the branch lost one.
    let mut run = LoopRun::new();
    run.tell(TimerInput::SlotGranted).prepared(|_| {});
    run.tell(LoopInput::Outcome {
        ticket: run.current.run.ticket,
        outcome: WorkOutcome::Checked { report: counted(8, 2) },
    });
    assert!(run.current.base_counts().is_some_and(|counts| counts.base == Some(sha(1))));
    run.current.branch.base = Some(sha(7));
    assert_eq!(run.current.base_counts(), None, "to be measured");
    verified(&mut run, counted(19, 0), Some(counted(20, 0)));
    run.is(LoopState::Running, LoopStep::Agent);
    assert_eq!(run.current.open_findings()[0].found.kind, TamperKind::TestCountFell);
    // It is known from now on.
    verified(&mut run, counted(19, 0), None);
    assert_eq!(run.current.open_findings()[0].found.evidence, "20 tests counted at the base, 19 now");
    run.is(LoopState::Paused, LoopStep::Idle);
    let mut run = LoopRun::new();
    run.working();
    run.current.branch.base = Some(sha(7));
    verified(&mut run, counted(20, 0), Some(counted(20, 0)));
    run.is(LoopState::Review, LoopStep::Idle);

    // Checks that are added after the first work are not measured at the base.
    let mut run = LoopRun::in_state(LoopState::Paused);
    run.command(resume())
        .resumed()
        .iteration(false)
        .command(LoopCommand::Pause(command::Pause { now: true, reason: String::new() }));
    run.command(resume_with(|options| options.checks = vec!["pytest".into()]));
    run.tell(TimerInput::SlotGranted).prepared(|_| {}).is(LoopState::Running, LoopStep::Baseline);
    run.tell(LoopInput::Outcome {
        ticket: run.current.run.ticket,
        outcome: WorkOutcome::Checked { report: counted(5, 1) },
    });
    assert_eq!((run.current.checks.baseline_commit(), run.current.base_counts()), (None, None));
    verified(&mut run, counted(6, 0), Some(counted(9, 0)));
    run.is(LoopState::Running, LoopStep::Agent);
    assert_eq!(run.current.open_findings()[0].found.evidence, "9 tests counted at the base, 6 now");
    assert_eq!(replay(run.log).as_ref(), Some(&run.current));
}

#[test]
fn falling_test_count_is_a_finding() {
    let started = || {
        let mut run = LoopRun::new();
        run.tell(TimerInput::SlotGranted).prepared(|_| {});
        run.tell(LoopInput::Outcome {
            ticket: run.current.run.ticket,
            outcome: WorkOutcome::Checked { report: counted(8, 2) },
        });
        run
    };
    for (now, with_base, state) in [
        (counted(10, 0), None, LoopState::Review),
        (counted(12, 0), None, LoopState::Review),
        (counted(9, 0), None, LoopState::Running),
        (report(true), None, LoopState::Review),
        // The run with the base's tests judged the branch's tests.
        (counted(9, 0), Some(counted(10, 0)), LoopState::Review),
        (counted(10, 0), Some(counted(9, 0)), LoopState::Running),
        (counted(9, 0), Some(report(true)), LoopState::Running),
    ] {
        let mut run = started();
        run.commits(&[], true);
        let base_tests = with_base.map(|report| BaseTestsRun { report, ..base_tests(true, "1").unwrap_or_default() });
        run.verified_with(now.clone(), &[], base_tests);
        assert_eq!(run.current.state, state, "{now:?}");
    }
    // A test that is skipped is not run any more.
    let mut skipping = counted(9, 0);
    skipping.outcomes[0].tests = Some(TestCounts { passing: 9, failing: 0, skipped: 1 });
    let mut run = started();
    run.commits(&[], true).verified_with(skipping, &[], None).is(LoopState::Running, LoopStep::Agent);
    let found = &run.current.open_findings()[0].found;
    assert_eq!(found.evidence, "10 tests counted at the base, 9 now, 1 more skipped");
    // After a merge of the base, the tests of the baseline are others.
    let mut run = started();
    run.current.branch.base = Some(sha(7));
    run.commits(&[], true).verified_with(counted(9, 0), &[], None).is(LoopState::Review, LoopStep::Idle);
    // Failing hooks and subtests may not be tests.
    let mut hooks = counted(8, 2);
    hooks.outcomes[0].extra_failures = 2;
    for (now, state) in [(8, LoopState::Review), (7, LoopState::Running)] {
        let mut run = LoopRun::new();
        run.tell(TimerInput::SlotGranted).prepared(|_| {});
        run.tell(LoopInput::Outcome {
            ticket: run.current.run.ticket,
            outcome: WorkOutcome::Checked { report: hooks.clone() },
        });
        run.commits(&[], true).verified_with(counted(now, 0), &[], None);
        assert_eq!(run.current.state, state, "{now} tests");
    }
    // Counts that are not complete, or that the exit code contradicts, are no evidence.
    let part = CheckOutcome { incomplete: true, ..counted(5, 0).outcomes.remove(0) };
    let unlike = CheckOutcome { objection: Some("1 failed".into()), ..counted(5, 0).outcomes.remove(0) };
    for outcome in [part, unlike] {
        let mut run = started();
        run.commits(&[], true).verified_with(CheckReport { outcomes: vec![outcome] }, &[], None);
        run.is(LoopState::Review, LoopStep::Idle);
    }
    // A runner that counts failing tests only has no total.
    let mut run = LoopRun::new();
    run.tell(TimerInput::SlotGranted).prepared(|_| {});
    run.tell(LoopInput::Outcome {
        ticket: run.current.run.ticket,
        outcome: WorkOutcome::Checked { report: counted(0, 2) },
    });
    run.commits(&[], true).verified_with(report(true), &[], None).is(LoopState::Review, LoopStep::Idle);
    // All tests fail at the base, and the runner names them.
    for (names, now, state) in [
        (&["a", "b"][..], counted(1, 0), LoopState::Running),
        (&["a"], counted(1, 0), LoopState::Review),
        (&["a", "b"], counted(2, 0), LoopState::Review),
        (&["a", "b"], counted(0, 0), LoopState::Review),
    ] {
        let mut failing = counted(0, 2);
        failing.outcomes[0].failing_tests = names.iter().map(|name| (*name).to_owned()).collect();
        let mut run = LoopRun::new();
        run.tell(TimerInput::SlotGranted).prepared(|_| {});
        run.tell(LoopInput::Outcome {
            ticket: run.current.run.ticket,
            outcome: WorkOutcome::Checked { report: failing },
        });
        run.commits(&[], true).verified_with(now.clone(), &[], None);
        assert_eq!(run.current.state, state, "{names:?} {now:?}");
    }
}

#[test]
fn accepted_count_covers_no_further_fall() {
    let count = |now: u64| BranchFinding {
        found: TamperFinding::new("pytest", TamperKind::TestCountFell, format!("10 counted at the base, {now} now")),
        mark: now.to_string(),
        pushed: false,
    };
    let guard = |accepted: u64| TestGuard {
        accepted: vec![AcceptedFindings {
            by: "maja".into(),
            at: Timestamp(0),
            commit: None,
            findings: vec![count(accepted)],
        }],
        ..TestGuard::default()
    };
    assert_eq!(guard(8).accepted_by(&count(9)), Some("maja"));
    assert_eq!(guard(8).accepted_by(&count(7)), None);
}

#[test]
fn loops_stored_before_the_guard_are_readable() {
    let mut stored = serde_json::to_value(&LoopRun::in_state(LoopState::Review).current).expect("a loop");
    stored["checks"].as_object_mut().and_then(|all| all.remove("guard")).expect("it was there");
    for iteration in stored["iterations"].as_array_mut().expect("a list") {
        for key in ["branch_findings", "merged"] {
            iteration.as_object_mut().and_then(|all| all.remove(key)).expect("it was there");
        }
    }
    let read: Loop = serde_json::from_value(stored).expect("readable");
    assert_eq!((read.checks.guard.clone(), read.branch_findings()), (TestGuard::default(), None));
}

/// Kinds of the next outcome.
#[derive(Debug, Clone)]
enum GuardEvent {
    Commit { findings: Vec<u8>, report: CheckReport },
    Verify { findings: Vec<u8>, report: CheckReport, base_tests: Option<CheckReport>, base_checks: Option<CheckReport> },
    Accept(bool),
    Resume,
    Other(u8, bool),
}

/// Reports of a check that counts up to four tests or none, and whose exit code may contradict its output.
fn any_report(holding: f64) -> impl Strategy<Value = CheckReport> {
    let counts = prop::option::weighted(0.7, (0u64..4, 0u64..3));
    (prop::bool::weighted(holding), prop::bool::weighted(0.2), counts).prop_map(|(holds, contradicted, counts)| {
        let mut made = report(holds);
        let failing = u64::from(!holds);
        made.outcomes[0].tests = counts.map(|(passing, skipped)| TestCounts { passing, failing, skipped });
        made.outcomes[0].contradicted = contradicted && !holds;
        made
    })
}

fn any_event() -> impl Strategy<Value = GuardEvent> {
    let findings = || prop::collection::vec(0u8..60, 0..3);
    let at_base = |share| prop::option::weighted(share, any_report(0.6));
    prop_oneof![
        6 => (findings(), any_report(0.5)).prop_map(|(findings, report)| GuardEvent::Commit { findings, report }),
        6 => (findings(), any_report(0.8), at_base(0.2), at_base(0.3)).prop_map(
            |(findings, report, base_tests, base_checks)| GuardEvent::Verify { findings, report, base_tests, base_checks }
        ),
        1 => any::<bool>().prop_map(GuardEvent::Accept),
        1 => Just(GuardEvent::Resume),
        2 => (any_input(), any::<bool>()).prop_map(|(which, flag)| GuardEvent::Other(which, flag)),
    ]
}

/// Kinds of findings, except those that only a run of the checks shows.
const KINDS: [TamperKind; 7] = [
    TamperKind::TestsChanged,
    TamperKind::CheckConfigEdited,
    TamperKind::WorkflowEdited,
    TamperKind::RalphFileEdited,
    TamperKind::TestsNeutralized,
    TamperKind::AnswersHardCoded,
    TamperKind::TestsNotJudged,
];

fn any_finding(number: &u8) -> BranchFinding {
    let paths = ["tests/a.py", "src/parser.rs", "pytest.ini"];
    let at = usize::from(*number);
    let found = TamperFinding::new(paths[at % paths.len()], KINDS[at % KINDS.len()], "evidence");
    BranchFinding { found, mark: (number / 36).to_string(), pushed: number % 5 == 4 }
}

/// Number of tests that a report ran.
fn ran(report: &CheckReport) -> Option<u64> {
    report.outcomes[0].tests.map(|tests| tests.passing + tests.failing)
}

proptest! {
    #![proptest_config(test_support::cases(150))]
    #[test]
    fn open_finding_prevents_review_in_any_sequence(
        baseline in any_report(0.0),
        events in prop::collection::vec(any_event(), 1..60)
    ) {
        let mut run = LoopRun::with(|start| start.policy.limits.iterations = IterationLimit::of(12));
        run.tell(TimerInput::SlotGranted).prepared(|_| {});
        run.tell(LoopInput::Outcome { ticket: run.current.run.ticket, outcome: WorkOutcome::Checked { report: baseline } });
        for event in events {
            let ticket = run.current.run.ticket;
            let before = run.current.clone();
            match event {
                GuardEvent::Commit { findings, report } if run.current.run.step == LoopStep::Agent || run.current.run.step == LoopStep::Commit => {
                    run.pushes(&findings.iter().map(any_finding).collect::<Vec<_>>());
                    run.tell(LoopInput::Outcome { ticket: run.current.run.ticket, outcome: WorkOutcome::Checked { report } });
                }
                GuardEvent::Verify { findings, report, base_tests, base_checks } if run.current.run.step == LoopStep::Verify => {
                    let findings: Vec<_> = findings.iter().map(any_finding).collect();
                    let needs_changed_tests = base_tests.as_ref().is_some_and(|run| !run.all_hold());
                    let with_base = base_tests.as_ref().and_then(ran);
                    let run_of = |report| BaseTestsRun { report, ..self::base_tests(false, "1").expect("a run") };
                    let base_tests = base_tests.map(run_of);
                    let tests = Box::new(TestEvidence { findings: findings.clone(), base_tests, base_checks, ..TestEvidence::default() });
                    let (holds, counted) = (report.all_hold(), ran(&report));
                    run.tell(LoopInput::Outcome { ticket, outcome: WorkOutcome::Verified { report, tests } });
                    if run.current.state == LoopState::Review {
                        let open = findings.iter().filter(|one| one.blocks() && before.checks.guard.accepted_by(one).is_none()).count();
                        prop_assert!(holds && open == 0, "review with {open} open findings");
                        let is_accepted = |kind| run.current.accepted_findings().iter().any(|(_, one)| one.found.kind == kind);
                        prop_assert!(!needs_changed_tests || is_accepted(TamperKind::OnlyChangedTests), "review although the checks need the changed tests");
                        let counts = run.current.base_counts().and_then(|counts| counts.tests.get("test").copied());
                        let at_base = counts.filter(|then| then.passing > 0).map(|then| then.passing + then.failing);
                        let fell = at_base.is_some_and(|then| with_base.or(counted).is_some_and(|now| now < then));
                        prop_assert!(!fell || is_accepted(TamperKind::TestCountFell), "review with {counted:?} tests of {with_base:?} and {at_base:?}");
                    }
                }
                GuardEvent::Accept(all) => { run.command(accept(if all { &[] } else { &["tests/a.py"] })); }
                GuardEvent::Resume => {
                    run.command(resume_with(|options| options.max_iterations = Some(before.limits.iterations.plus(3))));
                }
                GuardEvent::Other(which, flag) => {
                    let input = input_for(&run, which, flag);
                    // A verification without evidence is one of a version before this.
                    if !matches!((&input, run.current.run.step), (LoopInput::Outcome { outcome: WorkOutcome::Checked { .. }, .. }, LoopStep::Verify)) {
                        run.tell(input);
                    }
                }
                _ => { run.tell(TimerInput::SlotGranted); if run.current.run.step == LoopStep::Prepare { run.prepared(|_| {}); } }
            }
            if run.current.state == LoopState::Review {
                prop_assert_eq!(run.current.open_findings(), Vec::<&BranchFinding>::new());
                prop_assert_eq!(&run.current.branch.verified, &run.current.branch.head);
            }
        }
        let again = replay(run.log.clone());
        prop_assert_eq!(again.as_ref(), Some(&run.current));
    }
}

fn without(new: &[bool], outcome: CheckOutcome) -> Option<BaseTestsRun> {
    let file = |(n, is_new): (usize, &bool)| ChangedTestFile {
        path: format!("tests/{n}.py"),
        mark: n.to_string(),
        is_new: *is_new,
        regions: Vec::new(),
    };
    let files = new.iter().enumerate().map(file).collect();
    Some(BaseTestsRun { report: CheckReport { outcomes: vec![outcome] }, files, diff: String::new() })
}

#[test]
fn checks_that_need_new_tests_need_a_decision() {
    let mut run = LoopRun::new();
    let failing = report(false).outcomes.remove(0);
    run.working().commits(&[], true).verified(&[], without(&[true, false], failing));
    run.is(LoopState::Running, LoopStep::Agent);
    let found: Vec<String> = run.current.open_findings().iter().map(|one| one.found.evidence.clone()).collect();
    assert!(found[0].starts_with("without this new file, `make test` fails"), "{found:?}");
    assert!(found[1].starts_with("with the base's version, `make test` fails"), "{found:?}");
}

#[test]
fn tests_in_program_files_are_named() {
    for (is_new, words) in
        [(false, "with the base's version of doctest `add`"), (true, "without the new doctest `add`")]
    {
        let mut run = LoopRun::new();
        let failing = report(false).outcomes.remove(0);
        let mut with_base = without(&[is_new], failing).expect("a run");
        with_base.files[0].regions = vec!["doctest `add`".into()];
        run.working().commits(&[], true).verified(&[], Some(with_base));
        let evidence = &run.current.open_findings()[0].found.evidence;
        assert!(evidence.starts_with(&format!("{words}, `make test` fails")), "{evidence}");
    }
}

#[test]
fn tests_that_could_not_be_judged_need_a_decision() {
    let mut run = LoopRun::new();
    let found = TamperFinding::new("src/a.rs", TamperKind::TestsNotJudged, "doctest `add`: its item no longer exists");
    let finding = BranchFinding { found, mark: "1".into(), pushed: false };
    run.working()
        .commits(&[], true)
        .verified(std::slice::from_ref(&finding), None)
        .is(LoopState::Running, LoopStep::Agent);
    run.commits(&[], true).verified(&[finding], None).is(LoopState::Paused, LoopStep::Idle);
    assert_eq!(
        run.current.why,
        "every check passes, but the service could not run the base's version of changed tests: `src/a.rs`"
    );
}

#[test]
fn test_count_raised_only_by_new_tests_is_not_a_finding() {
    let number = CheckOutcome { measured: Some(70.0), exit_code: Some(0), ..report(false).outcomes.remove(0) };
    let tests = |passing, failing| Some(TestCounts { passing, failing, skipped: 0 });
    let covered = CheckOutcome { coverage: Some(70.0), exit_code: Some(1), tests: tests(5, 0), ..number.clone() };
    let plain = CheckOutcome { measured: None, exit_code: Some(1), ..number.clone() };
    for (new, outcome, state) in [
        (true, number.clone(), LoopState::Review),
        (true, covered.clone(), LoopState::Review),
        (true, CheckOutcome { measured: None, ..covered.clone() }, LoopState::Review),
        (false, number.clone(), LoopState::Running),
        (true, plain, LoopState::Running),
        (true, CheckOutcome { tests: tests(4, 1), ..number.clone() }, LoopState::Running),
        (true, CheckOutcome { failing_tests: vec!["a".into()], ..number.clone() }, LoopState::Running),
        (true, CheckOutcome { exit_code: Some(1), ..number.clone() }, LoopState::Running),
        (true, CheckOutcome { tests: None, ..covered.clone() }, LoopState::Running),
        (true, CheckOutcome { incomplete: true, ..covered }, LoopState::Running),
        (true, CheckOutcome { contradicted: true, ..number }, LoopState::Running),
    ] {
        let mut run = LoopRun::new();
        run.working().commits(&[], true).verified_with(counted(5, 0), &[], without(&[new], outcome.clone()));
        assert_eq!(run.current.state, state, "{new} {outcome:?}");
    }
}

#[test]
fn tests_written_while_checks_run_prevent_review() {
    let written = |digest: &str| {
        let file = RewrittenFile { path: "tests/a.py".into(), digest: digest.into() };
        Box::new(TestEvidence { rewritten: vec![file], ..TestEvidence::default() })
    };
    let mut run = LoopRun::new();
    run.working().commits(&[], true);
    run.tell(LoopInput::Outcome {
        ticket: run.current.run.ticket,
        outcome: WorkOutcome::Verified { report: report(true), tests: written("1") },
    });
    run.is(LoopState::Running, LoopStep::Agent);
    assert_eq!(run.current.open_findings()[0].found.kind, TamperKind::TestsRewritten);
    assert_eq!(run.prompt().put_back.len(), 1, "the agent is told");
    run.commits(&[], true);
    run.tell(LoopInput::Outcome {
        ticket: run.current.run.ticket,
        outcome: WorkOutcome::Verified { report: report(true), tests: written("1") },
    });
    assert_eq!(run.current.state, LoopState::Paused, "{}", run.current.why);
    run.command(accept(&["tests/a.py"])).resumed().is(LoopState::Running, LoopStep::Verify);
    let mut other = LoopRun { current: run.current.clone(), ..LoopRun::new() };
    run.tell(LoopInput::Outcome {
        ticket: run.current.run.ticket,
        outcome: WorkOutcome::Verified { report: report(true), tests: written("1") },
    });
    run.is(LoopState::Review, LoopStep::Idle);
    other.tell(LoopInput::Outcome {
        ticket: other.current.run.ticket,
        outcome: WorkOutcome::Verified { report: report(true), tests: written("2") },
    });
    assert_eq!(other.current.open_findings().len(), 1, "another content is another finding");
}

#[test]
fn accepted_change_counts_from_the_commit_that_the_person_saw() {
    let mut run = LoopRun::new();
    run.working().commits(&[], true).verified(&[], base_tests(false, "1")).command(accept(&[]));
    let seen = run.current.branch.head.clone();
    let version =
        |run: &LoopRun, path: &str| run.current.checks.guard.accepted_tests(path).map(|(commit, _)| commit.clone());
    assert_eq!(version(&run, "tests/a.py"), seen);
    assert_eq!(version(&run, "tests/b.py"), None);
    run.commits(&[], true);
    assert_ne!(run.current.branch.head, seen);
    assert_eq!(version(&run, "tests/a.py"), seen, "later changes of the file are not covered");
    // Another kind of acceptance says nothing about the tests in the file.
    let mut run = LoopRun::new();
    run.working().finishes(&[weakened("tests/a.py")]).command(accept(&[]));
    assert_eq!((run.current.checks.guard.accepted.len(), version(&run, "tests/a.py")), (1, None));
}

/// The run with the base's tests has passed, so the text of the change does not block.
#[test]
fn changed_tests_are_reported_to_agent_and_reviewer_without_blocking() {
    let found = TamperFinding::new("tests/a.py", TamperKind::TestsChanged, "+0 -1");
    let changed = [BranchFinding { found: found.clone(), mark: "1".into(), pushed: false }];
    let mut run = LoopRun::new();
    run.working().commits(&changed, false).is(LoopState::Running, LoopStep::Agent);
    let prompt = run.prompt();
    assert_eq!((prompt.differing_tests.len(), prompt.put_back.len()), (1, 0));
    assert_eq!(prompt.differing_tests[0].evidence, "+0 -1");
    run.commits(&changed, true).verified(&changed, base_tests(true, "1")).is(LoopState::Review, LoopStep::Idle);
    assert_eq!((run.current.iterations.len(), run.current.findings()), (2, vec![found]));
    assert_eq!(replay(run.log).as_ref(), Some(&run.current));
}

#[test]
fn findings_of_earlier_versions_are_read() {
    let read = |text: &str| serde_json::from_str::<BranchFinding>(text).expect("readable").found;
    for kind in [
        "test_deleted",
        "test_skipped",
        "assertion_removed",
        "assertion_weakened",
        "expectation_changed",
        "threshold_lowered",
        "early_exit",
        "failure_ignored",
        "code_replaced",
    ] {
        let text = format!(
            "{{\"path\":\"t\",\"line\":3,\"kind\":\"{kind}\",\"evidence\":\"e\",\"grade\":\"blocking\",\"mark\":\"1\"}}"
        );
        let found = read(&text);
        assert_eq!((found.kind, found.line, found.blocks()), (TamperKind::TestsChanged, Some(3), false), "{kind}");
    }
    let of_config =
        |grade: &str| read(&format!("{{\"path\":\"t\",\"kind\":\"check_config_edited\",\"evidence\":\"e\"{grade}}}"));
    assert!(of_config("").blocks() && of_config(",\"grade\":\"blocking\"").blocks());
    assert!(!of_config(",\"grade\":\"notice\"").blocks());
}
