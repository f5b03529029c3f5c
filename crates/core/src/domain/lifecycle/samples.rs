//! Sample loops in several states, for tests.

use crate::domain::lifecycle::start;
use crate::domain::loops::{
    Baseline, Guidance, GuidanceSource, Iteration, IterationJudgement, Loop, LoopStart, LoopTask, NextRunPlan,
    RunOptions, TaskText,
};
use crate::domain::model::ids::IssueRef;
use crate::domain::model::ids::{
    AccountKind, ForgeName, LoopId, Money, Number, RepoId, RepoRef, Sha, Timestamp, User, UserId,
};
use crate::domain::model::quantity::IterationLimit;
use crate::domain::model::record::{CheckFact, Record};
use crate::domain::model::task::{
    AgentReport, Check, CheckOutcome, CheckReport, CheckRule, CheckSource, DiffStat, FileStat, TestCounts,
};
use crate::domain::supervision::control::{Breadth, ModelTier, Trend, Urgency};
use crate::domain::supervision::oversight::{Directive, DirectiveLevel, Health};
use crate::domain::supervision::strategy::Approach;
use crate::domain::trust::policy::Policy;

/// Current time in all samples.
pub const NOW: Timestamp = Timestamp(10_000_000);

/// Returns a commit by its number.
pub fn sha(n: u32) -> Sha {
    Sha::new(format!("{n:040x}"))
}

/// Returns the outcomes of two checks, tests and types. `failing` is the number of failing tests. The check of types passes
/// unless `types_fail` is set.
pub fn checks(failing: u64, types_fail: bool) -> CheckReport {
    let outcome = |name: &str, command: &str, holds: bool, output: &str| CheckOutcome {
        name: name.into(),
        command: command.into(),
        holds,
        why: if holds { String::new() } else { "exited with 1".into() },
        exit_code: Some(i32::from(!holds)),
        duration_ms: 900,
        output: output.into(),
        ..CheckOutcome::default()
    };
    let output = "tests/test_parse.py::test_empty FAILED\nE   IndexError: list index out of range\nsrc/parse.py:41: IndexError\n";
    let mut tests = outcome("tests", "pytest -q", failing == 0, if failing == 0 { "" } else { output });
    tests.tests = Some(TestCounts { passing: 20 - failing, failing, skipped: 0 });
    let types = outcome("types", "mypy src", !types_fail, "src/parse.py:12: error: Missing return statement\n");
    CheckReport { outcomes: vec![tests, types] }
}

/// Returns a loop before its first iteration, with eight failing tests.
pub fn fresh() -> Loop {
    let user = User { id: UserId(7), login: "maja".into(), kind: AccountKind::User };
    let repo = RepoRef { forge: ForgeName::new("f"), id: RepoId(7), owner: "acme".into(), name: "app".into() };
    let task = LoopTask {
        text: TaskText::new(
            "Parser fails on empty input",
            "`parse(\"\")` raises IndexError. It should return an empty list.",
            None,
        ),
        url: "https://forge.test/acme/app/issues/42".into(),
        hash: "0123456789abcdef".into(),
        author: Some(user.clone()),
        author_trusted: true,
        unconfirmed_editor: None,
        edited_after: false,
        labels: vec!["bug".into()],
    };
    let mut current = start(
        LoopStart {
            request: String::new(),
            existing: None,
            id: LoopId::new("r-42-k7m2qa"),
            place: IssueRef { repo, issue: Number(42) },
            by: user,
            task,
            options: RunOptions::default(),
            policy: Policy::default(),
            plan: None,
            comment: None,
            hidden_removed: 0,
            round: 1,
        },
        Timestamp(0),
    )
    .next;
    let check = |name: &str, command: &str| Check {
        name: name.into(),
        command: command.into(),
        rule: CheckRule::ExitCode,
        source: CheckSource::RepositoryFile,
        timeout_s: Some(300),
        counts: None,
        junit: None,
    };
    current.checks.list = vec![check("tests", "pytest -q"), check("types", "mypy src")];
    current.limits.iterations = IterationLimit::of(10);
    current.branch.base_branch = "main".into();
    current.checks.baseline = Some(Baseline { report: checks(8, false), base: None });
    begin(&mut current);
    current
}

/// Starts the next iteration.
pub fn begin(current: &mut Loop) {
    current.spent.iterations += 1;
    let number = current.spent.iterations;
    current.iterations.push(Iteration::new(number, NOW, sha(100 + number - 1), Vec::new()));
}

/// Ends the current iteration with this report and these checks, and starts the next.
pub fn ended(current: &mut Loop, report: AgentReport, checks: CheckReport) {
    let number = current.spent.iterations;
    let completion = current.checks.completion_by(&checks);
    let baseline = current.checks.baseline_report().cloned().unwrap_or_default();
    let held = |name: &str| baseline.outcomes.iter().find(|o| o.name == name).map(|o| o.holds);
    let fact = |o: &CheckOutcome| CheckFact { name: o.name.clone(), passed: o.holds, baseline: held(&o.name) };
    let iteration = current.current_mut().expect("an iteration is under way");
    let tests = checks.tests();
    iteration.record = Some(Record {
        iteration: f64::from(number),
        completion,
        blockers: report.blockers.clone(),
        summary: report.summary.clone(),
        tests_passing: tests.map(|tests| tests.passing as f64),
        tests_failing: tests.map(|tests| tests.failing as f64),
        error_signature: (!checks.all_hold()).then(|| "IndexError: list index out of range".to_owned()),
        files: vec!["src/parse.py".into()],
        checks: checks.outcomes.iter().map(fact).collect(),
        completion_signal: report.completion_signal,
        duration_s: 240.0,
        cost_usd: 0.2,
        ..Record::default()
    });
    iteration.ended_at = Some(NOW);
    iteration.commit = Some(sha(100 + number));
    iteration.stat = DiffStat {
        files: vec![FileStat { path: "src/parse.py".into(), added: 9, removed: 3, binary: false, change: None }],
    };
    (iteration.completion, iteration.checks, iteration.report) = (completion, checks, report);
    current.spent.cost = current.spent.cost.plus(Money::from_usd(0.2));
    current.spent.tokens_in += 24_000;
    current.spent.time_ms += 240_000;
    begin(current);
}

/// Returns a report with an approach and a blocker.
pub fn agent_report(approach: &str, blocker: &str, done: bool) -> AgentReport {
    AgentReport {
        approach: approach.into(),
        summary: format!("I tried to {approach}."),
        blockers: Some(blocker.to_owned()).filter(|blocker| !blocker.is_empty()).into_iter().collect(),
        completion_signal: done,
        completion_percentage: Some(if done { 100.0 } else { 50.0 }),
        ..AgentReport::default()
    }
}

/// Sets the judgement of supervision on the last iteration that ended.
pub fn judged(current: &mut Loop, approach: Approach, trend: Trend, urgency: Urgency) {
    let last = current.iterations.iter_mut().rev().find(|i| i.ended_at.is_some()).expect("one has ended");
    last.judged = Some(IterationJudgement {
        p: 0.4,
        i: 1.2,
        d: 0.05,
        signal: 0.9,
        urgency,
        trend,
        profile: "stuck".into(),
        forecast: None,
        health: Health::Critical,
        found: Vec::new(),
        approach,
        way: "find the cause first".into(),
        reasoning: "the same error in 3 of the last 5 iterations".into(),
        moved: Vec::new(),
        stops: None,
        issues: Vec::new(),
        control: None,
    });
}

/// Returns a loop after three iterations with the same error, then a REDIRECT.
pub fn stuck() -> Loop {
    let mut current = fresh();
    for (approach, done) in [("guard the index", true), ("catch the error", false), ("catch the error", true)] {
        ended(
            &mut current,
            agent_report(approach, "The fixture for empty input is not in the repository", done),
            checks(8, false),
        );
    }
    judged(&mut current, Approach::Pivot, Trend::Stable, Urgency::Critical);
    current.supervision.course = Some(NextRunPlan {
        directives: vec![Directive {
            level: DirectiveLevel::Override,
            text: "Stop the present approach; it does not work. Take one that was not tried. Evidence: the same error \
             in 3 of the last 5 iterations: IndexError: list index out of range."
                .into(),
        }],
        advice: vec![
            "Urgency is critical: 47 % is open, and there is no progress.".into(),
            "1 of 2 checks fail: `tests`.".into(),
            "Before changing anything, read the failing check and the code it calls, and write down the cause.".into(),
        ],
        effort: 1.0,
        model: ModelTier::Default,
        breadth: Breadth::Usual,
        memory_share: 0.2,
        checks: vec!["tests".into()],
        blockers: vec!["The fixture for empty input is not in the repository".into()],
    });
    current
}

/// Returns a loop in its second-to-last iteration, whose best state is an earlier one.
pub fn late() -> Loop {
    let mut current = fresh();
    current.limits.iterations = IterationLimit::of(11);
    for failing in [8, 7, 6, 5, 4, 3, 2, 1] {
        ended(&mut current, agent_report("mend one case after the other", "", false), checks(failing, false));
    }
    ended(&mut current, agent_report("rewrite the parser", "", true), checks(4, true));
    judged(&mut current, Approach::Persist, Trend::Regressing, Urgency::High);
    current
}

/// Adds guidance of a maintainer to the current iteration.
pub fn guide(current: &mut Loop, text: &str) {
    let guidance = Guidance {
        who: "maja".into(),
        source: GuidanceSource::Command,
        text: text.to_owned(),
        path: None,
        remember: false,
    };
    current.current_mut().expect("an iteration is under way").guidance.push(guidance);
}
