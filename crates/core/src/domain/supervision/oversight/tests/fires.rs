//! Tests with traces that contain a problem. The intended signal must detect each with the thresholds of the preset
//! `pinned`, and with the defaults if they are equal.

use super::*;
use crate::domain::model::record::CheckFact;
use crate::domain::supervision::control::{AlarmKind, Trend};

/// Kinds with equal thresholds in the defaults, which must therefore detect these traces as well.
const SAME_BY_DEFAULT: [DetectionKind; 5] = [
    DetectionKind::Deviation,
    DetectionKind::TestTampering,
    DetectionKind::NoChange,
    DetectionKind::AgentFailure,
    DetectionKind::TokenGrowth,
];

/// Asserts that the signal detects the kind at the end of the trace, and not before the iteration `from`.
fn fires(it: ReviewedLoop, kind: DetectionKind, signal: &str, from: usize, records: &[Record]) {
    if SAME_BY_DEFAULT.contains(&kind) {
        let (facts, control, state) = (it.facts.clone(), it.control.clone(), OverseerState::default());
        found(
            ReviewedLoop { facts, control, state, settings: OversightSettings::default() },
            kind,
            signal,
            from,
            records,
        );
    }
    found(it, kind, signal, from, records);
}

fn found(mut it: ReviewedLoop, kind: DetectionKind, signal: &str, from: usize, records: &[Record]) {
    let verdicts = it.run(records);
    let last = verdicts.last().expect("a trace has records");
    let found = last.detections.iter().find(|found| found.kind == kind);
    let found = found.unwrap_or_else(|| panic!("{kind} by {signal} is not found: {:?}", last.detections));
    assert!(
        found.evidence.iter().any(|evidence| evidence.signal == signal),
        "{signal} is none of {:?}",
        found.evidence
    );
    assert!(!found.recommendations.is_empty() && found.cause.starts_with(kind.name()));
    let row = kind.row();
    assert!(row.signals.iter().any(|(name, _)| *name == signal), "the row of {kind} has no signal {signal}");
    let first = verdicts.iter().position(|verdict| severity(verdict, kind).is_some()).unwrap_or_default() + 1;
    assert_eq!(first, from, "{kind} by {signal} is first found at {first}");
}

fn error(text: &str) -> Option<String> {
    Some(text.to_owned())
}

#[test]
fn stuck_fires_on_its_patterns() {
    let reviewed_loop = ReviewedLoop::default;
    fires(
        reviewed_loop(),
        DetectionKind::Stuck,
        "same_error",
        3,
        &flat(3, |_, r| r.error_signature = error("E0308: mismatched types")),
    );
    let moved =
        flat(3, |at, r| r.error_signature = error(&format!("/tmp/t{at}/src/a.rs:{}:9: E0308 mismatched", at * 17)));
    fires(reviewed_loop(), DetectionKind::Stuck, "same_error", 3, &moved);
    let others = flat(5, |at, r| r.error_signature = error(["ab", "cd", "ef", "gh", "ij"][at]));
    fires(reviewed_loop(), DetectionKind::Stuck, "no_progress", 5, &others);
    let creeping = trace(&[0.3, 0.305, 0.31, 0.315, 0.32, 0.325], |_, _| {});
    fires(reviewed_loop(), DetectionKind::Stuck, "no_progress", 5, &creeping);
    fires(
        reviewed_loop(),
        DetectionKind::Stuck,
        "same_reflection",
        3,
        &flat(3, |_, r| r.reflection = Some("The mock is wrong.".to_owned())),
    );
    fires(
        ReviewedLoop::with_alarm(AlarmKind::StuckLoop, DetectionSeverity::Medium),
        DetectionKind::Stuck,
        "alarm",
        3,
        &flat(3, |_, _| {}),
    );
    let alternating = flat(5, |at, r| r.error_signature = error(["left", "right"][at % 2]));
    fires(reviewed_loop(), DetectionKind::Stuck, "same_error", 5, &alternating);
}

fn tree(record: &mut Record, hash: &str) {
    record.tree = Some(hash.to_owned());
    record.files = vec!["src/parse.rs".to_owned()];
}

#[test]
fn oscillation_fires_on_its_patterns() {
    let reviewed_loop = ReviewedLoop::default;
    // The changed file is always the same; only its content differs.
    fires(reviewed_loop(), DetectionKind::Oscillation, "undo_redo", 4, &flat(4, |at, r| tree(r, ["a", "b"][at % 2])));
    fires(
        reviewed_loop(),
        DetectionKind::Oscillation,
        "undo_redo",
        5,
        &flat(5, |at, r| tree(r, ["a", "b", "c"][at % 3])),
    );
    let sets = [["src/auth.ts", "src/login.ts"], ["src/api.ts", "src/routes.ts"]];
    let churn = flat(4, |at, r| r.files = sets[at % 2].map(str::to_owned).to_vec());
    fires(reviewed_loop(), DetectionKind::Oscillation, "undo_redo", 4, &churn);
    fires(
        reviewed_loop(),
        DetectionKind::Oscillation,
        "sign_changes",
        5,
        &trace(&[0.3, 0.5, 0.3, 0.5, 0.3], |_, _| {}),
    );
    fires(
        reviewed_loop(),
        DetectionKind::Oscillation,
        "sign_changes",
        5,
        &trace(&[0.6, 0.4, 0.62, 0.4, 0.61], |_, _| {}),
    );
    let control = ControlView { trend: Trend::Oscillating, ..ControlView::default() };
    fires(ReviewedLoop { control, ..reviewed_loop() }, DetectionKind::Oscillation, "trend", 3, &flat(3, |_, _| {}));
}

#[test]
fn deviation_fires_on_its_patterns() {
    let reviewed_loop = || ReviewedLoop::on("Fix the authentication tests of the login service");
    let docs = |_: usize, r: &mut Record| {
        r.summary = "Rewrote the introduction of the manual and added badges".to_owned();
        r.files = vec!["README.md".to_owned(), "docs/manual/introduction.md".to_owned()];
    };
    fires(reviewed_loop(), DetectionKind::Deviation, "objective", 3, &flat(3, docs));
    fires(
        reviewed_loop(),
        DetectionKind::Deviation,
        "objective",
        3,
        &flat(3, |at, r| {
            if at > 0 {
                docs(at, r)
            }
        }),
    );
    let files = flat(3, |_, r| r.files = vec!["src/colors/palette.ts".to_owned(), "src/colors/theme.ts".to_owned()]);
    fires(reviewed_loop(), DetectionKind::Deviation, "objective", 3, &files);
    let learnings = flat(3, |_, r| r.learnings = vec!["The palette needs more contrast".to_owned()]);
    fires(reviewed_loop(), DetectionKind::Deviation, "objective", 3, &learnings);
    fires(
        reviewed_loop(),
        DetectionKind::Deviation,
        "objective",
        3,
        &flat(3, |_, r| r.objective_similarity = Some(0.2)),
    );
    let creep = flat(3, |at, r| {
        r.summary = "Fixed authentication tests of the login service".to_owned();
        r.files = (0..5).map(|n| format!("web/page{at}{n}.ts")).chain(["src/login/session.ts".to_owned()]).collect();
    });
    fires(ReviewedLoop::on("Fix the tests of src/login/"), DetectionKind::Deviation, "scope", 3, &creep);
    let mut named = reviewed_loop();
    named.facts.scope = vec!["src/login".to_owned()];
    fires(named, DetectionKind::Deviation, "scope", 3, &creep);
}

#[test]
fn resource_burn_fires_on_its_patterns() {
    let facts = |facts: TaskFacts| ReviewedLoop { facts, ..ReviewedLoop::default() };
    let defaults = TaskFacts::default;
    let seed: Vec<f64> = (1..=22).map(|n| 0.0205 * f64::from(n)).collect();
    fires(facts(defaults()), DetectionKind::ResourceBurn, "iterations", 21, &trace(&seed, |_, _| {}));
    let estimated = TaskFacts { estimated_iterations: Some(3.0), ..defaults() };
    fires(facts(estimated), DetectionKind::ResourceBurn, "iterations", 7, &trace(&seed[..8], |_, _| {}));
    let typical = TaskFacts { typical_iterations: Some(5.0), max_iterations: 60.0, ..defaults() };
    fires(facts(typical), DetectionKind::ResourceBurn, "typical", 11, &trace(&seed[..12], |_, _| {}));
    let cost = TaskFacts { max_cost_usd: Some(5.0), max_iterations: 30.0, ..defaults() };
    fires(facts(cost), DetectionKind::ResourceBurn, "cost", 6, &trace(&seed[..6], |_, r| r.cost_usd = 2.0));
    let time = TaskFacts { estimated_minutes: Some(60.0), timeout_minutes: Some(600.0), ..defaults() };
    fires(facts(time), DetectionKind::ResourceBurn, "time", 3, &trace(&seed[..3], |_, r| r.duration_s = 3_000.0));
    fires(
        facts(defaults()),
        DetectionKind::ResourceBurn,
        "tool_calls",
        5,
        &trace(&seed[..5], |_, r| r.tool_calls = 1_000.0),
    );
    let alarm = ReviewedLoop::with_alarm(AlarmKind::ResourceBurn, DetectionSeverity::Critical);
    fires(alarm, DetectionKind::ResourceBurn, "alarm", 1, &trace(&seed[..1], |_, _| {}));
}

fn tests(record: &mut Record, passing: f64, failing: f64) {
    (record.tests_passing, record.tests_failing) = (Some(passing), Some(failing));
}

fn checks(record: &mut Record, outcomes: &[(&str, bool, Option<bool>)]) {
    let fact = |(name, passed, baseline): &(&str, bool, Option<bool>)| CheckFact {
        name: (*name).to_owned(),
        passed: *passed,
        baseline: *baseline,
    };
    record.checks = outcomes.iter().map(fact).collect();
}

#[test]
fn regression_fires_on_its_patterns() {
    let reviewed_loop = ReviewedLoop::default;
    let rising = [0.3, 0.35, 0.4, 0.45, 0.5];
    fires(
        reviewed_loop(),
        DetectionKind::Regression,
        "tests",
        2,
        &flat(2, |at, r| tests(r, [10.0, 1.0][at], [0.0, 9.0][at])),
    );
    let one = trace(&rising[..3], |at, r| tests(r, [10.0, 9.0, 9.0][at], [0.0, 1.0, 1.0][at]));
    fires(reviewed_loop(), DetectionKind::Regression, "tests", 3, &one);
    let step = trace(&rising[..2], |at, r| r.coverage = Some([85.0, 72.5][at]));
    fires(reviewed_loop(), DetectionKind::Regression, "coverage", 2, &step);
    let bleeding = trace(&rising, |at, r| r.coverage = Some(85.0 - 3.0 * at as f64));
    fires(reviewed_loop(), DetectionKind::Regression, "coverage", 5, &bleeding);
    fires(reviewed_loop(), DetectionKind::Regression, "completion", 3, &trace(&[0.6, 0.58, 0.56], |_, _| {}));
    fires(
        reviewed_loop(),
        DetectionKind::Regression,
        "completion",
        5,
        &trace(&[0.6, 0.595, 0.59, 0.585, 0.58], |_, _| {}),
    );
    let lost = trace(&rising[..2], |_, r| checks(r, &[("build", false, Some(true)), ("test", false, Some(false))]));
    fires(reviewed_loop(), DetectionKind::Regression, "baseline_check", 2, &lost);
    let reached = trace(&rising[..3], |at, r| checks(r, &[("lint", at == 0, Some(false)), ("test", false, None)]));
    fires(reviewed_loop(), DetectionKind::Regression, "check", 3, &reached);
    let failures: [&[&str]; 3] = [&["test: a"], &["test: a", "test: b"], &["test: a", "test: c"]];
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    fires(
        reviewed_loop(),
        DetectionKind::Regression,
        "failures",
        3,
        &trace(&rising[..3], |at, r| r.failures = owned(failures[at])),
    );
    let repaired: [&[&str]; 3] = [&["test: a"], &["test: b", "test: c"], &["test: b", "test: c"]];
    let verdicts = reviewed_loop().run(&trace(&rising[..3], |at, r| r.failures = owned(repaired[at])));
    assert!(signals(&verdicts, DetectionKind::Regression).is_empty(), "what failed first was repaired");
    let alarm = ReviewedLoop::with_alarm(AlarmKind::Regression, DetectionSeverity::Critical);
    fires(alarm, DetectionKind::Regression, "alarm", 1, &trace(&rising[..1], |_, _| {}));
}

#[test]
fn test_tampering_fires_on_its_patterns() {
    let weakened = |found: &'static [&'static str]| {
        move |at: usize, r: &mut Record| {
            r.tampering = if at == 1 { found.iter().map(|f| (*f).to_owned()).collect() } else { vec![] }
        }
    };
    let all: [(&[&str], &[f64]); 5] = [
        (&["tests/a.rs: a test was removed"], &[0.3, 0.4]),
        (&["tests/a.rs: a test was skipped", "ci.yml was edited"], &[0.3, 0.3]),
        (&["a", "b", "c", "d", "e"], &[0.5, 0.6]),
        (&["jest.config.js: threshold lowered"], &[0.9, 1.0]),
        (&["an assertion was removed"], &[0.9, 0.2]),
    ];
    for (found, completions) in all {
        fires(
            ReviewedLoop::default(),
            DetectionKind::TestTampering,
            "weakened_checks",
            2,
            &trace(completions, weakened(found)),
        );
    }
    let counted = |passing: f64, skipped: f64| {
        move |at: usize, r: &mut Record| {
            let (passing, skipped) = if at == 0 { (20.0, 1.0) } else { (passing, skipped) };
            (r.tests_passing, r.tests_failing, r.tests_skipped) = (Some(passing), Some(4.0), Some(skipped));
        }
    };
    let now = || ReviewedLoop { settings: OversightSettings::default(), ..ReviewedLoop::default() };
    fires(now(), DetectionKind::TestTampering, "skipped_tests", 2, &trace(&[0.3, 0.4], counted(19.0, 2.0)));
    // New skipped tests and removed tests do not reduce the tests that ran.
    for (passing, skipped) in [(20.0, 3.0), (18.0, 1.0), (25.0, 0.0)] {
        let verdicts = now().run(&trace(&[0.3, 0.4], counted(passing, skipped)));
        assert!(signals(&verdicts, DetectionKind::TestTampering).is_empty(), "{passing} {skipped}");
    }
}

#[test]
fn no_change_fires_on_its_patterns() {
    let reviewed_loop = ReviewedLoop::default;
    let same = |at: usize, r: &mut Record| r.tree = Some(["a", "b", "b", "b"][at].to_owned());
    fires(reviewed_loop(), DetectionKind::NoChange, "unchanged", 2, &flat(3, |_, r| r.tree = Some("a".to_owned())));
    fires(
        reviewed_loop(),
        DetectionKind::NoChange,
        "unchanged",
        4,
        &trace(&[0.3, 0.4, 0.4, 0.4], |at, r| {
            same(at, r);
            r.files = vec!["a.rs".to_owned()];
        }),
    );
    fires(
        reviewed_loop(),
        DetectionKind::NoChange,
        "unchanged",
        3,
        &flat(3, |_, r| r.summary = "I looked around.".to_owned()),
    );
    fires(
        reviewed_loop(),
        DetectionKind::NoChange,
        "unchanged",
        3,
        &trace(&[0.5, 0.5, 0.5, 0.5], |_, r| tests(r, 5.0, 5.0)),
    );
    let after_work = trace(&[0.1, 0.3, 0.5, 0.5, 0.5], |at, r| {
        r.tree = Some(at.min(2).to_string());
        r.files = if at < 3 { vec!["a.rs".to_owned()] } else { Vec::new() };
    });
    fires(reviewed_loop(), DetectionKind::NoChange, "unchanged", 5, &after_work);
}

#[test]
fn agent_failure_fires_on_its_patterns() {
    let reviewed_loop = ReviewedLoop::default;
    let failed = |which: &'static [usize]| {
        move |at: usize, r: &mut Record| {
            r.agent_failure = which.contains(&at).then(|| format!("timed out after {at} s"))
        }
    };
    let rising: Vec<f64> = (1..=8).map(|n| 0.05 * f64::from(n)).collect();
    fires(reviewed_loop(), DetectionKind::AgentFailure, "failed_runs", 3, &trace(&rising[..3], failed(&[0, 1, 2])));
    fires(reviewed_loop(), DetectionKind::AgentFailure, "failed_runs", 5, &trace(&rising[..5], failed(&[0, 2, 4])));
    fires(reviewed_loop(), DetectionKind::AgentFailure, "failed_runs", 5, &trace(&rising[..5], failed(&[2, 3, 4])));
    fires(reviewed_loop(), DetectionKind::AgentFailure, "failed_runs", 5, &trace(&rising[..5], failed(&[1, 3, 4])));
    fires(reviewed_loop(), DetectionKind::AgentFailure, "failed_runs", 8, &trace(&rising, failed(&[0, 4, 6, 7])));
}

#[test]
fn token_growth_fires_on_its_patterns() {
    let used = |thousands: &'static [f64]| move |at: usize, r: &mut Record| r.tokens_in = 1_000.0 * thousands[at];
    let fired = |from: usize, thousands: &'static [f64]| {
        fires(
            ReviewedLoop::default(),
            DetectionKind::TokenGrowth,
            "tokens",
            from,
            &flat(thousands.len(), used(thousands)),
        );
    };
    fired(6, &[60.0, 70.0, 80.0, 150.0, 160.0, 170.0]);
    fired(8, &[60.0, 60.0, 60.0, 80.0, 90.0, 150.0, 150.0, 170.0]);
    // A run that failed immediately is not evidence.
    let failed = flat(7, |at, r| {
        r.tokens_out = [60_000.0, 70_000.0, 80_000.0, 150_000.0, 500.0, 160_000.0, 170_000.0][at];
        r.agent_failure = (at == 4).then(|| "crashed".to_owned());
    });
    fires(ReviewedLoop::default(), DetectionKind::TokenGrowth, "tokens", 7, &failed);
}

/// Returns the texts of the evidence for a kind at the end of a trace.
fn evidence_of(mut it: ReviewedLoop, kind: DetectionKind, records: &[Record]) -> String {
    let last = it.run(records).pop().expect("a trace has records");
    let found = last.detections.iter().find(|found| found.kind == kind).expect("it is found");
    found.evidence.iter().map(|evidence| evidence.text.as_str()).collect::<Vec<_>>().join("\n")
}

#[test]
fn evidence_contains_blockers_files_and_efficiency() {
    let reviewed_loop = ReviewedLoop::default;
    let blocked = flat(3, |_, r| {
        r.error_signature = error("E0308: mismatched types");
        r.blockers = vec!["The schema is\nnot here".to_owned()];
    });
    let text = evidence_of(reviewed_loop(), DetectionKind::Stuck, &blocked);
    assert!(
        text.contains("E0308") && text.ends_with("; the agent names the blocker: The schema is not here"),
        "{text}"
    );
    let sets = [["src/auth.ts", "src/login.ts"], ["src/api.ts", "src/routes.ts"]];
    let churn = flat(4, |at, r| r.files = sets[at % 2].map(str::to_owned).to_vec());
    let text = evidence_of(reviewed_loop(), DetectionKind::Oscillation, &churn);
    let files = "; iteration 3 changed src/auth.ts, src/login.ts, iteration 4 changed src/api.ts, src/routes.ts";
    assert!(text.contains(files), "{text}");
    let strange = flat(3, |_, r| {
        r.objective_similarity = Some(0.2);
        r.files = ["a.md", "b.md", "c.md", "d.md"].map(str::to_owned).to_vec();
    });
    let text = evidence_of(reviewed_loop(), DetectionKind::Deviation, &strange);
    assert!(text.contains("iteration 1 changed a.md, b.md, c.md and others"), "{text}");
    let facts = TaskFacts { estimated_iterations: Some(3.0), ..TaskFacts::default() };
    let burn: Vec<f64> = (1..=8).map(|n| 0.0205 * f64::from(n)).collect();
    let text =
        evidence_of(ReviewedLoop { facts, ..reviewed_loop() }, DetectionKind::ResourceBurn, &trace(&burn, |_, _| {}));
    assert!(text.ends_with(", for 16.4 % of completion, 2.1 % per iteration"), "{text}");
}

#[test]
fn model_and_words_decide_together_about_the_objective() {
    let task = "Fix the failing authentication tests in the login service";
    let similarity = |summary: &str, cosine| {
        let record = Record { summary: summary.to_owned(), ..Record::default() };
        modeled_similarity(task, &record, cosine)
    };
    let synonyms = "Repaired credential verification at sign-on";
    assert!(similarity(synonyms, 0.5) > 0.5 && similarity(synonyms, 0.1) < 0.5);
    let same_words = "The login service checks the authentication token";
    assert!(similarity(same_words, 0.1) > 0.5, "{}", similarity(same_words, 0.1));
    assert!(similarity("認証を直した", 0.2) > 0.5, "words of different scripts do not count");
    assert_eq!((similarity(synonyms, f64::NAN), similarity(synonyms, -1.0)), (0.0, 0.0));
    let texts = |summary: &str| compared_texts(task, &Record { summary: summary.to_owned(), ..Record::default() });
    assert!(texts(same_words).is_some_and(|texts| texts.objective == task && texts.work.starts_with(same_words)));
    assert_eq!(texts(""), None);
}
