//! Tests with healthy traces, and traces that almost satisfy a detection's condition. They must cause no intervention above
//! LOG.

use super::*;
use crate::domain::model::record::CheckFact;
use crate::domain::supervision::control::{AlarmKind, Trend};
use crate::domain::supervision::{ReviewContext, Supervision};

/// Asserts that findings in a trace are at most recorded.
fn quiet(name: &str, it: ReviewedLoop, records: &[Record]) {
    let ReviewedLoop { facts, control, .. } = &it;
    let (facts, control, state) = (facts.clone(), control.clone(), OverseerState::default());
    still(name, ReviewedLoop { facts, control, state, settings: OversightSettings::default() }, records);
    still(name, it, records);
}

fn still(name: &str, mut it: ReviewedLoop, records: &[Record]) {
    for (at, verdict) in it.run(records).into_iter().enumerate() {
        let loud: Vec<_> = verdict.interventions.iter().filter(|done| done.level > InterventionLevel::Log).collect();
        assert!(loud.is_empty(), "{name}, iteration {}: {loud:?}", at + 1);
        assert_eq!((verdict.decision, verdict.health), (OversightDecision::Continue, Health::Healthy), "{name}");
    }
}

fn rising(length: u32, step: f64) -> Vec<f64> {
    (1..=length).map(|n| step * f64::from(n)).collect()
}

/// Sets the facts common to all agent runs: a new tree and a changed file.
fn work(at: usize, record: &mut Record) {
    record.tree = Some(format!("tree-{at}"));
    record.files = vec![format!("src/module{at}.rs")];
}

#[test]
fn loops_near_stuck_are_not_disturbed() {
    let error = |_: usize, r: &mut Record| r.error_signature = Some("assertion failed".to_owned());
    quiet("the same first error, ever fewer", ReviewedLoop::default(), &trace(&rising(10, 0.05), error));
    quiet(
        "the same error twice",
        ReviewedLoop::default(),
        &trace(&[0.3, 0.3, 0.4, 0.45], |at, r| {
            if at < 2 {
                error(at, r)
            }
        }),
    );
    quiet(
        "a long refactor: flat tests, errors shrink",
        ReviewedLoop::default(),
        &flat(12, |at, r| {
            work(at, r);
            error(at, r);
            (r.tests_passing, r.tests_failing) = (Some(0.0), None);
            r.errors = 60.0 - 5.0 * at as f64;
        }),
    );
    quiet(
        "the same reflection on the way up",
        ReviewedLoop::default(),
        &trace(&rising(6, 0.04), |_, r| {
            r.reflection = Some("Tests still fail.".to_owned());
        }),
    );
    quiet(
        "an alarm on the way up",
        ReviewedLoop::with_alarm(AlarmKind::StuckLoop, DetectionSeverity::Medium),
        &trace(&rising(6, 0.04), |_, _| {}),
    );
    quiet("a jump, then three small steps", ReviewedLoop::default(), &trace(&[0.1, 0.5, 0.5, 0.505, 0.56], work));
    quiet("finished work that stays so", ReviewedLoop::default(), &trace(&[0.9, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0], error));
}

#[test]
fn loops_near_oscillation_are_not_disturbed() {
    quiet(
        "one revert",
        ReviewedLoop::default(),
        &trace(&[0.3, 0.35, 0.3, 0.4, 0.45], |at, r| {
            work(at, r);
            r.tree = Some(["a", "b", "a", "c", "d"][at].to_owned());
        }),
    );
    quiet(
        "two files in turn, getting on",
        ReviewedLoop::default(),
        &trace(&rising(8, 0.04), |at, r| {
            work(at, r);
            r.files = vec![["src/a.rs", "src/b.rs"][at % 2].to_owned()];
        }),
    );
    quiet("small ups and downs", ReviewedLoop::default(), &trace(&[0.3, 0.36, 0.35, 0.42, 0.41, 0.48, 0.47], work));
    quiet("large steps with set-backs", ReviewedLoop::default(), &trace(&[0.1, 0.25, 0.2, 0.36, 0.31, 0.45], work));
    let control = ControlView { trend: Trend::Oscillating, ..ControlView::default() };
    quiet(
        "a trend that control misreads",
        ReviewedLoop { control, ..ReviewedLoop::default() },
        &trace(&rising(8, 0.05), work),
    );
}

#[test]
fn loops_near_deviation_are_not_disturbed() {
    let task = "Fix the login bug: users are logged out after a minute";
    let words = |at: usize, r: &mut Record| {
        work(at, r);
        r.summary = "Session tokens carry their expiry in seconds now".to_owned();
        r.files = vec!["src/auth/session.rs".to_owned(), "src/auth/clock.rs".to_owned()];
    };
    quiet("an objective met with other words", ReviewedLoop::on(task), &trace(&rising(8, 0.1), words));
    quiet(
        "the objective's own words, no progress yet",
        ReviewedLoop::on(task),
        &trace(&[0.3, 0.3, 0.3, 0.3], |at, r| {
            work(at, r);
            r.errors = 4.0 + at as f64;
            r.summary = "Fixed how users are logged out after login".to_owned();
        }),
    );
    quiet(
        "work over many files",
        ReviewedLoop::on("Rename Account to Customer in src/model/account.rs"),
        &trace(&rising(8, 0.06), |at, r| {
            work(at, r);
            r.files = (0..30).map(|n| format!("src/area{at}/view{n}.rs")).collect();
        }),
    );
    quiet("iterations that say nothing", ReviewedLoop::on(task), &flat(4, |at, r| r.errors = 9.0 - at as f64));
    quiet(
        "one excursion",
        ReviewedLoop::on(task),
        &trace(&[0.3, 0.3, 0.35, 0.4], |at, r| {
            work(at, r);
            r.objective_similarity = Some(if at == 1 { 0.1 } else { 0.8 });
        }),
    );
    quiet(
        "another script",
        ReviewedLoop::on("ログイン後にセッションが切れる問題を直す"),
        &flat(4, |at, r| {
            words(at, r);
            r.errors = 3.0 + at as f64;
        }),
    );
    quiet("no objective known", ReviewedLoop::default(), &flat(4, |at, r| words(at, r)));
}

#[test]
fn loops_near_resource_burn_are_not_disturbed() {
    let with_facts = |facts: TaskFacts| ReviewedLoop { facts, ..ReviewedLoop::default() };
    let facts = || TaskFacts { estimated_iterations: Some(10.0), max_iterations: 40.0, ..TaskFacts::default() };
    quiet("twice the estimate and no more", with_facts(facts()), &trace(&rising(20, 0.03), work));
    quiet(
        "dear, but within twice the limit",
        with_facts(TaskFacts { max_cost_usd: Some(10.0), ..facts() }),
        &trace(&rising(10, 0.05), |at, r| {
            work(at, r);
            r.cost_usd = 1.9;
        }),
    );
    quiet(
        "many calls that were worth it",
        with_facts(facts()),
        &trace(&rising(12, 0.08), |at, r| {
            work(at, r);
            r.tool_calls = 450.0;
        }),
    );
    quiet(
        "slow, but within its time",
        with_facts(TaskFacts { timeout_minutes: Some(100.0), ..facts() }),
        &trace(&rising(10, 0.05), |at, r| {
            work(at, r);
            r.duration_s = 1_100.0;
        }),
    );
    quiet("nothing estimated", ReviewedLoop::default(), &trace(&rising(18, 0.05), work));
}

#[test]
fn loops_near_regression_are_not_disturbed() {
    let tests = |r: &mut Record, passing: f64, failing: f64| {
        (r.tests_passing, r.tests_failing) = (Some(passing), Some(failing))
    };
    quiet(
        "two flaky runs",
        ReviewedLoop::default(),
        &trace(&rising(6, 0.05), |at, r| {
            let flaky = [1, 4].contains(&at);
            tests(r, if flaky { 9.0 } else { 10.0 }, if flaky { 1.0 } else { 0.0 });
        }),
    );
    quiet(
        "obsolete tests removed",
        ReviewedLoop::default(),
        &trace(&rising(6, 0.05), |at, r| tests(r, if at < 2 { 100.0 } else { 96.0 }, 0.0)),
    );
    quiet(
        "coverage dips and comes back",
        ReviewedLoop::default(),
        &trace(&rising(6, 0.05), |at, r| {
            r.coverage = Some([80.0, 76.0, 72.0, 78.0, 81.0, 80.0][at]);
        }),
    );
    quiet("one set-back", ReviewedLoop::default(), &trace(&[0.3, 0.4, 0.36, 0.45, 0.5], work));
    quiet(
        "a flaky check, and one that never passed",
        ReviewedLoop::default(),
        &trace(&rising(6, 0.05), |at, r| {
            let check = |name: &str, passed, baseline| CheckFact { name: name.to_owned(), passed, baseline };
            r.checks = vec![check("build", at % 3 != 1, Some(true)), check("test", false, Some(false))];
        }),
    );
    quiet(
        "a warning of control",
        ReviewedLoop::with_alarm(AlarmKind::Regression, DetectionSeverity::Medium),
        &trace(&rising(6, 0.05), work),
    );
}

#[test]
fn loops_near_test_tampering_are_not_disturbed() {
    let counted = |counts: [[f64; 3]; 2]| {
        move |at: usize, r: &mut Record| {
            work(at, r);
            let [passing, failing, skipped] = counts[usize::from(at > 0)];
            (r.tests_passing, r.tests_failing, r.tests_skipped) = (Some(passing), Some(failing), Some(skipped));
        }
    };
    for (name, counts) in [
        ("new tests, some of them skipped", [[20.0, 4.0, 1.0], [24.0, 2.0, 3.0]]),
        ("tests gone with what they tested", [[20.0, 0.0, 1.0], [18.0, 0.0, 1.0]]),
        ("a skipped test runs again", [[20.0, 4.0, 3.0], [22.0, 4.0, 1.0]]),
        ("some skipped from the first", [[20.0, 4.0, 5.0], [21.0, 3.0, 5.0]]),
        ("a failing test is mended", [[20.0, 4.0, 0.0], [24.0, 0.0, 0.0]]),
    ] {
        quiet(name, ReviewedLoop::default(), &trace(&rising(5, 0.05), counted(counts)));
    }
}

#[test]
fn loops_near_no_change_and_agent_failure_are_not_disturbed() {
    let mut renamed = rising(5, 0.05);
    renamed.push(0.5);
    quiet(
        "tests written, none weakened",
        ReviewedLoop::default(),
        &trace(&renamed, |at, r| r.files = vec![format!("tests/t{at}.rs")]),
    );
    quiet(
        "one idle iteration",
        ReviewedLoop::default(),
        &trace(&[0.3, 0.3, 0.4, 0.5], |at, r| {
            r.tree = Some(["a", "a", "b", "c"][at].to_owned());
            r.files = if at == 1 { Vec::new() } else { vec!["a.rs".to_owned()] };
        }),
    );
    quiet(
        "nothing to do any more",
        ReviewedLoop::default(),
        &trace(&[0.5, 1.0, 1.0, 1.0], |at, r| r.tree = Some(at.min(1).to_string())),
    );
    quiet(
        "a run that failed before it changed anything",
        ReviewedLoop::default(),
        &trace(&[0.3, 0.3, 0.4, 0.5], |at, r| {
            r.tree = Some(["a", "a", "b", "c"][at].to_owned());
            r.agent_failure = (at == 1).then(|| "crashed".to_owned());
        }),
    );
    quiet("files unknown, figures move", ReviewedLoop::default(), &trace(&rising(6, 0.03), |_, _| {}));
    quiet(
        "trees change although no file is named",
        ReviewedLoop::default(),
        &flat(4, |at, r| r.tree = Some(at.to_string())),
    );
    let failed = |which: &'static [usize]| {
        move |at: usize, r: &mut Record| {
            work(at, r);
            r.agent_failure = which.contains(&at).then(|| "crashed".to_owned());
        }
    };
    for (name, which) in [
        ("no failure", &[][..]),
        ("one", &[3]),
        ("two in a row", &[3, 4]),
        ("three far apart", &[0, 4, 9]),
        ("three, mended since", &[0, 1, 5]),
    ] {
        quiet(name, ReviewedLoop::default(), &trace(&rising(10, 0.05), failed(which)));
    }
}

#[test]
fn loops_near_token_growth_are_not_disturbed() {
    let mut it = ReviewedLoop { settings: OversightSettings::default(), ..ReviewedLoop::default() };
    // By default, findings of this detection are only recorded.
    it.settings.token_growth.observe = false;
    (it.settings.stuck.enabled, it.settings.no_change.enabled) = (false, false);
    let mut silent = |name: &str, completions: &[f64], thousands: &[f64]| {
        it.state = OverseerState::default();
        let records = trace(completions, |at, r| {
            work(at, r);
            r.tokens_in = 1_000.0 * thousands[at];
        });
        let verdicts = it.run(&records);
        assert!(signals(&verdicts, DetectionKind::TokenGrowth).is_empty(), "{name}: {verdicts:?}");
    };
    let growing = [60.0, 70.0, 80.0, 200.0, 300.0, 400.0];
    silent("more tokens and more done", &rising(6, 0.05), &growing);
    silent("too few iterations", &[0.3; 5], &growing);
    silent("two long iterations", &[0.3; 6], &[60.0, 70.0, 80.0, 900.0, 900.0, 70.0]);
    silent("few tokens", &[0.3; 6], &[6.0, 7.0, 8.0, 20.0, 30.0, 40.0]);
    silent("less than twice as many", &[0.3; 6], &[100.0, 100.0, 100.0, 190.0, 190.0, 190.0]);
    silent("tokens unknown", &[0.3; 6], &[0.0; 6]);
    silent("unknown at first", &[0.3; 7], &[0.0, 0.0, 0.0, 0.0, 200.0, 300.0, 400.0]);
    silent("fewer and fewer", &[0.3; 6], &[900.0, 800.0, 700.0, 200.0, 200.0, 200.0]);
}

#[test]
fn uneven_token_use_is_not_growth() {
    let mut found = 0;
    let loops = 500;
    for seed in 0..loops {
        let mut noise = TraceNoise(u64::wrapping_mul(seed, 0x9e37_79b9_7f4a_7c15) | 1);
        let tokens: Vec<f64> =
            (0..20).map(|_| 200_000.0 * (0.5 * (noise.next() + noise.next() + noise.next())).exp()).collect();
        let mut it = ReviewedLoop { settings: OversightSettings::default(), ..ReviewedLoop::default() };
        let verdicts = it.run(&flat(20, |at, r| r.tokens_in = tokens[at]));
        found += u32::from(!signals(&verdicts, DetectionKind::TokenGrowth).is_empty());
    }
    assert!(found * 10 < loops as u32, "{found} of {loops} standing loops with uneven iterations");
}

/// Pseudo-random number generator (xorshift) with the same results on every machine.
struct TraceNoise(u64);

impl TraceNoise {
    /// Returns a uniformly distributed number between -1 and 1.
    fn next(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }
}

/// Returns a trace that gains 5 % per iteration in all figures, with noise of 2 percentage points.
fn noisy(seed: u64, bell: bool) -> Vec<Record> {
    let mut noise = TraceNoise(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    // The sum of three uniform numbers with this weight has a standard deviation of 1.
    let mut draw = move || if bell { noise.next() + noise.next() + noise.next() } else { noise.next() };
    let mut record = |n: u32| {
        let completion = (0.05 * f64::from(n) + 0.02 * draw()).clamp(0.0, 0.99);
        let passing = (completion * 60.0).round();
        let mut record = Record { iteration: f64::from(n), completion: Ratio::new(completion), ..Record::default() };
        work(n as usize, &mut record);
        (record.tests_passing, record.tests_failing) = (Some(passing), Some(60.0 - passing));
        record.errors = (20.0 - f64::from(n) + 2.0 * draw()).max(1.0).round();
        record.coverage = Some(75.0 + draw());
        record.quality = (0.95 + 0.02 * draw()).min(1.0);
        record.summary = format!("Handled another case of the parser in step {n}");
        record.error_signature = Some(format!("assertion failed in case {}", n / 2));
        record.reflection = Some("Go on with the next case.".to_owned());
        record.checks = vec![
            CheckFact { name: "build".to_owned(), passed: true, baseline: Some(true) },
            CheckFact { name: "test".to_owned(), passed: false, baseline: Some(false) },
        ];
        (record.tool_calls, record.duration_s, record.cost_usd) = (60.0, 300.0, 0.3);
        record
    };
    (1..=19).map(&mut record).collect()
}

#[test]
fn noisy_loops_are_not_disturbed() {
    for seed in 0..500 {
        quiet(&format!("seed {seed}"), ReviewedLoop::on("Let the parser read nested lists"), &noisy(seed, false));
        quiet(&format!("bell {seed}"), ReviewedLoop::on("Let the parser read nested lists"), &noisy(seed, true));
    }
}

/// Returns a loop that gains 5 percentage points per iteration, plus or minus 2, for at most 30 iterations.
fn walking(seed: u64) -> Vec<Record> {
    let mut noise = TraceNoise(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut draw = move || noise.next();
    let mut completion = 0.0;
    let mut record = |n: u32| {
        completion += 0.05 + 0.02 * draw();
        let failing = (60.0 * (1.0 - completion)).round().max(0.0);
        let done = failing == 0.0;
        let error = ["missing field", "unresolved import", "mismatched types", "assertion failed"][n as usize / 2 % 4];
        let mut record =
            Record { iteration: f64::from(n), completion: Ratio::new(1.0 - failing / 60.0), ..Record::default() };
        work(n as usize, &mut record);
        (record.tests_passing, record.tests_failing) = (Some(40.0 + 60.0 - failing), Some(failing));
        record.errors = if done { 0.0 } else { 1.0 + draw().abs().round() };
        record.coverage = Some(75.0 + draw());
        record.quality = (0.95 + 0.02 * draw()).min(1.0);
        record.summary = format!("Let the parser read another case of nested lists, the {n}th");
        record.error_signature = (!done).then(|| format!("{error} in case {n}"));
        record.checks = vec![
            CheckFact { name: "build".to_owned(), passed: true, baseline: Some(true) },
            CheckFact { name: "test".to_owned(), passed: done, baseline: Some(false) },
        ];
        (record.tool_calls, record.duration_s, record.cost_usd) =
            (60.0 + 10.0 * draw(), 300.0 + 60.0 * draw(), 0.3 + 0.1 * draw());
        record
    };
    let mut records: Vec<Record> = (1..=30).map(&mut record).collect();
    let end = records.iter().position(Record::is_finished).map_or(records.len(), |last| last + 1);
    records.truncate(end);
    records
}

/// Returns the first iteration in which the pipeline disturbs a healthy loop, with the kind of disturbance.
fn disturbed(records: &[Record]) -> Option<String> {
    let facts = TaskFacts {
        task: "Let the parser read nested lists".to_owned(),
        max_iterations: 30.0,
        estimated_iterations: Some(30.0),
        timeout_minutes: Some(240.0),
        max_cost_usd: Some(20.0),
        ..TaskFacts::default()
    };
    let (settings, mut supervision) = (SupervisionSettings::default(), Supervision::default());
    (1..=records.len()).find_map(|upto| {
        let review = supervision.review(&records[..upto], &facts, ReviewContext::default(), &settings)?;
        let alone = (review.decision(), &review.gives_up) == (OversightDecision::Continue, &None);
        (!alone).then(|| format!("iteration {upto}: {:?} {:?}", review.gives_up, review.verdict))
    })
}

#[test]
fn pipeline_does_not_disturb_a_noisy_loop() {
    for seed in 1..=113 {
        let records = walking(seed);
        assert!(records.len() < 30 && records.last().is_some_and(Record::is_finished), "seed {seed}");
        assert_eq!(disturbed(&records), None, "seed {seed}");
    }
}
