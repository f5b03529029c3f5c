//! Tests of claims, the best state, and usual budgets.

use crate::domain::loops::Estimate;
use proptest::prelude::*;

use crate::domain::checks::criteria::TaskType;
use crate::domain::knowledge::intelligence::*;
use crate::domain::lifecycle::samples::*;
use crate::domain::model::ids::Ratio;
use crate::domain::model::record::{CheckFact, Record};
use crate::domain::model::task::{AgentReport, CheckOutcome, CheckReport};

fn claim(percent: f64, done: bool) -> AgentReport {
    AgentReport { completion_percentage: Some(percent), completion_signal: done, ..AgentReport::default() }
}

#[test]
fn claims_are_scored_against_measurements() {
    let none = ClaimSums::default();
    assert_eq!((none.brier(), none.bias(), none.weight()), (None, None, 0.5));
    let mut honest = ClaimSums::default();
    let mut boaster = ClaimSums::default();
    for measured in [0.2, 0.5, 0.8] {
        honest.add(&claim(measured * 100.0, false), Ratio::new(measured), false);
        boaster.add(&claim(100.0, true), Ratio::new(measured), false);
    }
    assert!(honest.brier().unwrap() < 1e-12);
    assert!((boaster.brier().unwrap() - (0.64 + 0.25 + 0.04) / 3.0).abs() < 1e-12);
    assert!((boaster.bias().unwrap() - 0.5).abs() < 1e-12);
    assert_eq!((boaster.done, boaster.false_done), (3, 3));
    assert!(honest.weight() > 0.6 && boaster.weight() < 0.15, "{} {}", honest.weight(), boaster.weight());
    assert_eq!(honest.plus(boaster).scored, 6);
    let words = boaster.words().unwrap();
    assert_eq!(
        words,
        "The agent's claimed completion is 50 points too high on average (Brier score 0.31); 3 of 3 claims to be done were \
         wrong."
    );
    assert_eq!(none.words(), None);
    assert!(boaster.believed(Ratio::new(1.0)).get() < 0.15);
    let mut nonsense = ClaimSums::default();
    nonsense.add(&claim(f64::NAN, false), Ratio::new(0.5), false);
    nonsense.add(&AgentReport::default(), Ratio::new(0.5), false);
    assert_eq!(nonsense, ClaimSums::default());
    let stored: ClaimSums = serde_json::from_str(&serde_json::to_string(&boaster).unwrap()).unwrap();
    assert_eq!(stored, boaster);
}

#[test]
fn claims_exclude_discarded_iterations() {
    let mut current = stuck();
    assert_eq!((ClaimSums::of(&current).scored, ClaimSums::of(&current).false_done), (3, 2));
    current.iterations[0].discarded = true;
    assert_eq!((ClaimSums::of(&current).scored, ClaimSums::of(&current).false_done), (2, 1));
}

fn state(iteration: u32, completion: f64, passed: &[bool]) -> StateCandidate {
    let fact = |(at, passed): (usize, &bool)| CheckFact {
        name: format!("check {at}"),
        passed: *passed,
        baseline: Some(at == 0),
    };
    let checks = passed.iter().enumerate().map(fact).collect();
    let record =
        Record { iteration: f64::from(iteration), completion: Ratio::new(completion), checks, ..Record::default() };
    StateCandidate { iteration, commit: sha(iteration), record, checks: CheckReport::default(), verified: false }
}

fn failing_tests(names: &[&str]) -> CheckReport {
    let failing_tests = names.iter().map(|name| (*name).to_owned()).collect();
    let outcome = CheckOutcome { name: "check 0".to_owned(), exit_code: Some(1), failing_tests, ..Default::default() };
    CheckReport { outcomes: vec![outcome] }
}

#[test]
fn best_state_has_no_hidden_regression() {
    let carried = |candidates: &[StateCandidate]| best(candidates).map(|best| best.iteration);
    assert_eq!(carried(&[]), None);
    let by_checks = [state(1, 0.9, &[true, false, false]), state(2, 0.6, &[true, true, false])];
    assert_eq!(carried(&by_checks), Some(2));
    let by_completion = [state(1, 0.7, &[true, false]), state(2, 0.6, &[true, false])];
    assert_eq!(carried(&by_completion), Some(1));
    let latest = [state(1, 0.6, &[true, false]), state(2, 0.6, &[true, false])];
    assert_eq!(carried(&latest), Some(2));
    // More checks pass, but a check that passed before the first iteration now fails.
    let lost = [state(1, 0.3, &[true, false, false]), state(2, 0.7, &[false, true, true])];
    assert_eq!(carried(&lost), Some(1));
    let mut fewer_tests = [state(1, 0.5, &[true, false]), state(2, 0.8, &[true, true])];
    (fewer_tests[0].record.tests_passing, fewer_tests[1].record.tests_passing) = (Some(90.0), Some(60.0));
    assert_eq!(carried(&fewer_tests), Some(1));
    let mut tampered = [state(1, 0.5, &[true, false]), state(2, 0.9, &[true, true])];
    tampered[1].record.tampering = vec!["test.py: skipped".into()];
    assert_eq!(carried(&tampered), Some(1));
    let mut verified = [state(1, 1.0, &[true, true]), state(2, 1.0, &[true, true])];
    verified[0].verified = true;
    assert_eq!(carried(&verified), Some(1));
    let mut uncounted = [state(1, 0.0, &[false]), state(2, 0.0, &[false]), state(3, 0.0, &[false])];
    uncounted[0].checks = failing_tests(&["a", "b"]);
    uncounted[1].checks = failing_tests(&["a"]);
    uncounted[2].checks = failing_tests(&["a", "b", "c"]);
    assert_eq!(carried(&uncounted), Some(2), "nothing is counted: the names of failing tests stand in");
    uncounted[2].checks = failing_tests(&["d"]);
    assert_eq!(carried(&uncounted), Some(3), "other tests fail, which is not known to be worse");
    let only = best(&[state(1, 0.5, &[false, true])]).unwrap();
    assert_eq!(only.broke, ["`check 0` passed before the first iteration and fails now"]);
}

#[test]
fn best_commit_of_loop_is_selected() {
    let best = best_state(&late()).unwrap();
    assert_eq!((best.iteration, best.commit, best.broke.len()), (8, sha(108), 0));
    assert_eq!(best_state(&fresh()), None);
}

#[test]
fn usual_iterations_follow_finished_loops() {
    let estimate = |mean, deviation, samples| Estimate { mean, deviation, samples };
    assert_eq!(usual(TaskType::TestFix, None), (2, 5));
    assert_eq!(usual(TaskType::TestFix, Some(&estimate(3.5, 0.75, 40))), (2, 5));
    assert_eq!(usual(TaskType::Feature, Some(&estimate(f64::NAN, 1.0, 4))), (10, 30));
    assert_eq!(usual(TaskType::Feature, Some(&estimate(6.0, 1.0, 0))), (10, 30));
    let (low, high) = usual(TaskType::Feature, Some(&estimate(6.0, 1.0, 200)));
    assert!(low <= 3 && (8..=13).contains(&high), "{low} {high}");
}

proptest! {
    #[test]
    fn budgets_and_weights_stay_in_range(mean in any::<f64>(), deviation in any::<f64>(), samples in any::<u32>(),
                                         percent in any::<f64>(), measured in 0.0..=1.0f64, done in any::<bool>()) {
        for kind in TaskType::ALL {
            let estimate = Estimate { mean, deviation, samples };
            let (low, high) = usual(kind, Some(&estimate));
            prop_assert!(low >= 1 && low <= high);
        }
        let mut claims = ClaimSums::default();
        claims.add(&claim(percent, done), Ratio::new(measured), false);
        prop_assert!((0.0..=1.0).contains(&claims.weight()));
    }

    #[test]
    fn best_state_is_an_undominated_candidate(
        completions in prop::collection::vec((0.0..=1.0f64, any::<bool>(), any::<bool>()), 1..8)
    ) {
        let all: Vec<StateCandidate> = (1..).zip(&completions).map(|(n, (c, a, b))| state(n, *c, &[*a, *b])).collect();
        let chosen = best(&all).unwrap();
        let of = |n: u32| &all[n as usize - 1];
        let held = |c: &StateCandidate| c.record.checks.iter().filter(|check| check.passed).count();
        prop_assert_eq!(&of(chosen.iteration).commit, &chosen.commit);
        for other in all.iter().filter(|other| other.record.checks[0].passed) {
            prop_assert!(chosen.broke.is_empty());
            prop_assert!(held(other) <= held(of(chosen.iteration)));
        }
    }
}
