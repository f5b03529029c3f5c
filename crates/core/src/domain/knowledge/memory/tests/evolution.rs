//! Tests of learnings from the first sighting to a prompt and on to the archive.

use crate::domain::model::dispersion::Dispersion;
use proptest::prelude::*;

use super::*;
use crate::domain::model::ids::Money;
use crate::domain::model::settings::Settings as _;

fn iteration() -> IterationFacts {
    IterationFacts {
        loop_id: LoopId::new("r-1"),
        iteration: 2,
        repository: repository(),
        task_type: TaskType::TestFix,
        about: "src/pool.rs".into(),
        approach: "hold one connection in the fixture".into(),
        tools: vec!["Bash".into(), "Edit".into()],
        resolution: vec!["close it in teardown".into()],
        completion_before: 0.4,
        completion_after: 0.4,
        error_before: Some("pool timed out".into()),
        error_after: Some("pool timed out".into()),
        verified: false,
        tampered: false,
        agent_failed: false,
        redirected: None,
        followed: None,
    }
}

fn ended(how: LoopEnding) -> LoopFacts {
    LoopFacts {
        loop_id: LoopId::new("r-1"),
        repository: repository(),
        task_type: TaskType::TestFix,
        about: "src/pool.rs".into(),
        ended: how,
        approach: "hold one connection in the fixture".into(),
        tools: Vec::new(),
        resolution: Vec::new(),
        iterations: 4,
        minutes: 12.0,
        cost: Money::from_usd(0.5),
        comments: Vec::new(),
        guidelines: Vec::new(),
    }
}

fn kinds(learnings: &[Learning]) -> Vec<LearningKind> {
    learnings.iter().map(Learning::kind).collect()
}

#[test]
fn iteration_yields_strategy_or_antipattern() {
    let settings = MemorySettings::default();
    let redirected = Some(RedirectedApproach { from: "sleep in the test".into(), to: "wait for the event".into() });
    type FactsEdit = fn(&mut IterationFacts);
    let cases: [(&str, FactsEdit, &[LearningKind]); 8] = [
        ("the same error again", |_| {}, &[LearningKind::Antipattern]),
        ("another error", |facts| facts.error_after = Some("assertion failed".into()), &[]),
        ("a large gain", |facts| facts.completion_after = 0.7, &[LearningKind::Strategy]),
        ("a small gain", |facts| facts.completion_after = 0.5, &[]),
        ("verified", |facts| (facts.verified, facts.completion_after) = (true, 1.0), &[LearningKind::Strategy]),
        (
            "gained by weakened checks",
            |facts| (facts.tampered, facts.verified, facts.completion_after) = (true, true, 1.0),
            &[],
        ),
        ("the agent failed", |facts| facts.agent_failed = true, &[]),
        ("no words", |facts| facts.approach = " ".into(), &[]),
    ];
    for (name, change, expected) in cases {
        let mut facts = iteration();
        change(&mut facts);
        let learnt = from_iteration(&facts, &settings, Timestamp(5));
        assert_eq!(kinds(&learnt), expected, "{name}");
        assert!(learnt.iter().all(|one| one.state == LearningState::Candidate && one.check().is_ok()), "{name}");
    }
    let facts = IterationFacts { redirected, error_after: None, ..iteration() };
    let learnt = from_iteration(&facts, &settings, Timestamp(5));
    assert_eq!(learnt[0].line(), "avoid: sleep in the test; the overseer had it given up; instead: wait for the event");
}

#[test]
fn loop_end_yields_learnings_by_outcome() {
    let settings = MemorySettings::default();
    let cases = [
        (
            LoopEnding::Merged,
            vec![(LearningKind::Strategy, LearningState::Active), (LearningKind::Estimate, LearningState::Candidate)],
        ),
        (
            LoopEnding::Verified,
            vec![
                (LearningKind::Strategy, LearningState::Candidate),
                (LearningKind::Estimate, LearningState::Candidate),
            ],
        ),
        (
            LoopEnding::ClosedUnmerged,
            vec![
                (LearningKind::Antipattern, LearningState::Candidate),
                (LearningKind::Estimate, LearningState::Candidate),
            ],
        ),
        (LoopEnding::Failed, vec![(LearningKind::Estimate, LearningState::Candidate)]),
        (LoopEnding::Stopped, vec![]),
    ];
    for (how, expected) in cases {
        let learnt = from_loop(&ended(how), &settings, Timestamp(5));
        assert_eq!(learnt.iter().map(|one| (one.kind(), one.state)).collect::<Vec<_>>(), expected, "{how:?}");
    }
    let mut facts = ended(LoopEnding::Stopped);
    // Review comments become rules only if a maintainer accepts them.
    facts.comments = vec!["Do not unwrap in handlers".into()];
    facts.guidelines = vec!["Run cargo fmt first".into(), "Keep the API as it is".into()];
    let learnt = from_loop(&facts, &settings, Timestamp(5));
    assert_eq!(kinds(&learnt), [LearningKind::Convention, LearningKind::Convention]);
    let rule = remembered(&repository(), "Never touch vendor/", &LoopId::new("r-9"), Timestamp(5));
    assert!(rule.is_worth_telling(&settings, Timestamp(5)), "what a maintainer told to remember is told at once");
}

#[test]
fn second_sighting_promotes_candidate() {
    let settings = MemorySettings::default();
    let first = learning(strategy("hold one connection in the fixture"), 0.7);
    assert_eq!(absorb(&first, &first, &settings, Timestamp(9)), first, "the same source again");
    let second = Learning { sources: vec![source("r-2")], ..first.clone() };
    let merged = absorb(&first, &second, &settings, Timestamp(9));
    assert_eq!((merged.state, merged.seen, merged.sources.len()), (LearningState::Active, 2, 2));
    let Content::Strategy { iterations, .. } = merged.content else { unreachable!("it was a strategy") };
    assert_eq!(iterations.samples, 2);
    let unsure = Learning { confidence: 0.5, ..first.clone() };
    let merged = absorb(&unsure, &Learning { confidence: 0.5, ..second }, &settings, Timestamp(9));
    assert_eq!(merged.state, LearningState::Candidate, "seen twice, and not sure enough");
    // Three sightings at 0.9 and one at 0.5: the confidence falls by at most a fifth of the difference.
    let often = Learning { seen: 3, confidence: 0.9, ..first };
    let once = Learning { confidence: 0.5, sources: vec![source("r-7")], ..unsure };
    assert!((absorb(&often, &once, &settings, Timestamp(0)).confidence - 0.82).abs() < 1e-9);
}

#[test]
fn sources_are_bounded_and_counted() {
    let mut stored = learning(strategy("a b c"), 0.7);
    for n in 0..100 {
        assert!(stored.add_source(&source(&format!("r-x{n}"))));
    }
    assert_eq!((stored.seen, stored.sources.len()), (101, 32));
}

#[test]
fn learnings_merge_within_repository_kind_and_type() {
    let settings = MemorySettings::default();
    let original = learning(strategy("Reproduce the failing parser test first"), 0.7);
    let reworded = learning(strategy("reproduce the failing parser tests first!"), 0.7);
    assert_ne!(original.id, reworded.id);
    assert!(are_same(&original, &reworded, &settings));
    let elsewhere = RepoRef { id: RepoId(8), ..repository() };
    let others = [
        Learning { repository: elsewhere, ..reworded.clone() },
        Learning { task_type: TaskType::Lint, ..reworded.clone() },
        learning(strategy("Delete the parser"), 0.7),
        learning(antipattern("Reproduce the failing parser test first"), 0.7),
    ];
    for other in &others {
        assert!(!are_same(&original, other, &settings), "{other:?}");
    }
    assert!(contradicts(&original, &others[3], &settings) && !contradicts(&original, &reworded, &settings));
}

#[test]
fn contradiction_lowers_rarer_learning_more() {
    let settings = MemorySettings::default();
    let (mut often, mut once) = (active(strategy("a b c"), 0.9), learning(antipattern("a b c"), 0.7));
    often.seen = 9;
    contradict(&mut often, &mut once, &settings, Timestamp(1));
    assert!((often.confidence - 0.9 * 0.94).abs() < 1e-9, "{}", often.confidence);
    assert!((once.confidence - 0.7 * 0.46).abs() < 1e-9, "{}", once.confidence);
}

#[test]
fn unused_learning_decays() {
    let settings = MemorySettings::default();
    let learning = active(strategy("a b c"), 0.8);
    let at = |days: i64| learning.confidence_at(Timestamp(days * DAY), &settings);
    assert_eq!([at(0), at(179), at(180), at(359), at(360), at(i64::MAX / DAY)], [0.8, 0.8, 0.4, 0.4, 0.2, 0.0]);
    assert!(learning.is_worth_telling(&settings, Timestamp(179 * DAY)));
    assert!(!learning.is_worth_telling(&settings, Timestamp(180 * DAY)));
    assert!(!learning.is_spent(&settings, Timestamp(360 * DAY)) && learning.is_spent(&settings, Timestamp(540 * DAY)));
    let used = Learning { last_used_at: Some(Timestamp(100 * DAY)), ..learning };
    assert_eq!(used.confidence_at(Timestamp(279 * DAY), &settings), 0.8);
    assert_eq!(used.confidence_at(Timestamp(-5), &settings), 0.8, "a clock that went back");
}

#[test]
fn wrong_learning_is_archived_despite_history() {
    let settings = MemorySettings::default();
    let evidence = LearningEvidence { successes: 1e9, failures: 0.0 };
    let mut wrong = Learning { evidence, seen: 99, merged: true, ..active(strategy("delete the lock file"), 1.0) };
    let mut loops = 0;
    while wrong.is_worth_telling(&settings, Timestamp(loops)) {
        loops += 1;
        let outcome = credit_of_iteration(&wrong, "I will delete the lock file", false).expect("it was followed");
        credit(&mut wrong, outcome, &settings, Timestamp(loops));
        credit(&mut wrong, Credit::LoopFailed, &settings, Timestamp(loops));
    }
    assert!((1..=2).contains(&loops), "{loops}");
    for _ in 0..20 {
        credit(&mut wrong, Credit::IterationFailed, &settings, Timestamp(9));
    }
    assert_eq!(wrong.state, LearningState::Archived);
}

#[test]
fn iteration_credits_followed_learning() {
    let (does, avoids) = (active(strategy("bisect the parser"), 0.9), active(antipattern("bisect the parser"), 0.9));
    let rule = active(Content::Convention { rule: "bisect the parser".into(), seen_in: String::new() }, 0.9);
    let cases = [
        (&does, "bisecting the parser", true, Some(Credit::IterationHelped)),
        (&does, "bisecting the parser", false, Some(Credit::IterationFailed)),
        (&does, "rewrote the scheduler", true, None),
        (&avoids, "bisecting the parser", true, Some(Credit::IterationFailed)),
        (&avoids, "bisecting the parser", false, Some(Credit::IterationHelped)),
        (&avoids, "rewrote the scheduler", true, Some(Credit::HeededWell)),
        (&avoids, "rewrote the scheduler", false, Some(Credit::HeededInVain)),
        (&rule, "bisecting the parser", true, None),
    ];
    for (learning, approach, gained, expected) in cases {
        assert_eq!(credit_of_iteration(learning, approach, gained), expected, "{approach} {gained}");
    }
}

#[test]
fn verified_iteration_counts_as_gain() {
    let cases =
        [(0.4, 0.46, false, true), (0.4, 0.42, false, false), (0.98, 1.0, true, true), (0.6, 0.4, false, false)];
    for (completion_before, completion_after, verified, gained) in cases {
        let facts = IterationFacts { completion_before, completion_after, verified, ..iteration() };
        assert_eq!(facts.gained(), gained, "{completion_before} to {completion_after}");
    }
}

#[test]
fn warning_heeded_without_gain_loses_confidence() {
    let settings = MemorySettings::default();
    let mut wrong = active(antipattern("pin the clock"), 0.95);
    let mut iterations = 0;
    while wrong.is_worth_telling(&settings, Timestamp(0)) {
        iterations += 1;
        let outcome = credit_of_iteration(&wrong, "rewrote the scheduler", false).expect("it was heeded");
        credit(&mut wrong, outcome, &settings, Timestamp(0));
    }
    assert!((3..=10).contains(&iterations), "{iterations}");
}

#[test]
fn repeated_sighting_restores_confidence() {
    let settings = MemorySettings::default();
    let mut known = Learning { seen: 40, ..active(strategy("bisect the parser"), 0.8) };
    for _ in 0..2 {
        credit(&mut known, Credit::IterationFailed, &settings, Timestamp(0));
    }
    assert!(!known.is_worth_telling(&settings, Timestamp(0)));
    let sighting =
        |n: u32| Learning { sources: vec![source(&format!("r-9{n}"))], ..learning(strategy("bisect the parser"), 0.9) };
    for n in 0..3 {
        known = absorb(&known, &sighting(n), &settings, Timestamp(0));
    }
    assert!(known.is_worth_telling(&settings, Timestamp(0)), "{}", known.confidence);
}

#[test]
fn checksum_detects_any_change() {
    let learning = active(strategy("a b c"), 0.8);
    let text = serde_json::to_string(&learning).expect("it serializes");
    let read: Learning = serde_json::from_str(&text).expect("it reads");
    assert_eq!((read.checksum(), read.checksum().len()), (learning.checksum(), 64));
    let others = [
        Learning { confidence: 0.81, ..learning.clone() },
        Learning { state: LearningState::Archived, ..learning.clone() },
        Learning { about: "x".into(), ..learning.clone() },
        Learning { seen: 2, ..learning.clone() },
    ];
    assert!(others.iter().all(|other| other.checksum() != learning.checksum()));
    assert!(Learning { id: "l-0".into(), ..learning.clone() }.check().is_err());
    assert!(Learning { confidence: f64::NAN, ..learning.clone() }.check().is_err());
    assert!(Learning { evidence: LearningEvidence { successes: -1.0, failures: 0.0 }, ..learning }.check().is_err());
}

#[test]
fn estimates_have_mean_and_deviation() {
    let spread =
        [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0, f64::NAN].into_iter().fold(Dispersion::default(), Dispersion::with);
    assert_eq!((spread.samples, spread.mean), (8, 5.0));
    assert!((spread.deviation() - (32.0f64 / 7.0).sqrt()).abs() < 1e-12);
    assert_eq!((Dispersion::default().deviation(), Dispersion::of(3.0).deviation()), (0.0, 0.0));
    let settings = MemorySettings::default();
    let estimate = |n: u32| {
        let facts = LoopFacts { loop_id: LoopId::new(format!("r-{n}")), iterations: n, ..ended(LoopEnding::Failed) };
        from_loop(&facts, &settings, Timestamp(5)).remove(0)
    };
    let both = absorb(&estimate(2), &estimate(4), &settings, Timestamp(5));
    assert_eq!(both.state, LearningState::Active);
    assert!(!both.is_worth_telling(&settings, Timestamp(5)), "two loops are no estimate");
    let three = absorb(&both, &estimate(6), &settings, Timestamp(5));
    assert!(three.is_worth_telling(&settings, Timestamp(5)));
    assert_eq!(three.line(), "test-fix tasks took 4.0 ± 2.0 iterations, 12 ± 0 minutes and $0.50 ± 0.00 (3 loops)");
}

#[test]
fn reflection_is_made_without_model() {
    let facts = ReflectionFacts {
        iteration: 3,
        approach: "raise the timeout".into(),
        error_before: Some("pool timed out".into()),
        error_after: Some("pool timed out".into()),
        next_steps: vec!["raise it more".into()],
        completion_before: 0.4,
        completion_after: 0.4,
        ..ReflectionFacts::default()
    };
    let same = Reflection::of(&facts);
    assert_eq!((same.failed.as_str(), same.outcome), ("pool timed out", ReflectionOutcome::Same));
    assert!(same.next.starts_with("another approach"), "{}", same.next);
    let better =
        Reflection::of(&ReflectionFacts { completion_after: 0.6, error_after: Some("other".into()), ..facts.clone() });
    assert_eq!((better.outcome, better.next.as_str()), (ReflectionOutcome::Better, "raise it more"));
    let done = Reflection::of(&ReflectionFacts { completion_after: 1.0, error_after: None, ..facts.clone() });
    assert_eq!((done.outcome, done.failed.as_str()), (ReflectionOutcome::Done, ""));
    let failed = Reflection::of(&ReflectionFacts { agent_failure: Some("killed".into()), ..facts });
    assert_eq!(failed.failed, "the agent's run failed: killed");
    let why = "the change did not fix the cause: the error is the same as before";
    let next = "another approach: find out where the error comes from before changing more";
    assert_eq!(same.insight(), format!("pool timed out; {why}; {next}"));
    assert_eq!(
        (better.insight().as_str(), done.insight().as_str()),
        ("other; the first error is a different one now; raise it more", "raise it more")
    );
    assert_eq!(relevant(vec![same; 3], "the parser", 2).len(), 2);
    let windows = [(TaskType::TestFix, 1), (TaskType::Migration, 1), (TaskType::TestFix, 9)].map(|(t, n)| window(t, n));
    assert_eq!(windows, [2, 3, 5]);
}

#[test]
fn uplift_has_confidence_interval() {
    // Newcombe (1998), table II, (a): 56/70 and 48/80 give 0.0524 to 0.3339.
    let uplift = Uplift { with: Tally { succeeded: 56, loops: 70 }, without: Tally { succeeded: 48, loops: 80 } };
    let (low, high) = uplift.interval().expect("both sides have loops");
    assert!((low - 0.0524).abs() < 1e-4 && (high - 0.3339).abs() < 1e-4, "{low} {high}");
    assert_eq!(uplift.words(), "+20 points (+5 to +33)");
    let none = Uplift { with: Tally::default(), ..uplift };
    assert_eq!((none.difference(), none.words().as_str()), (None, "0 with, 80 without"));
}

#[test]
fn invalid_settings_report_problem() {
    assert!(MemorySettings::default().validate().is_empty());
    let wrong = MemorySettings { archive_below: 0.8, promote_confidence: 2.0, ..MemorySettings::default() };
    let keys: Vec<String> = wrong.validate().into_iter().map(|problem| problem.key).collect();
    assert!(keys.iter().any(|key| key == "memory.archive_below"), "{keys:?}");
    assert!(keys.iter().any(|key| key == "memory.promote_confidence"), "{keys:?}");
}

proptest! {
    #[test]
    fn dispersion_is_independent_of_order(
        left in prop::collection::vec(-1e6f64..1e6, 0..20), right in prop::collection::vec(-1e6f64..1e6, 0..20),
    ) {
        let of = |samples: &[f64]| samples.iter().fold(Dispersion::default(), |sum, sample| sum.with(*sample));
        let (left_plus_right, right_plus_left) = (of(&left).plus(of(&right)), of(&right).plus(of(&left)));
        prop_assert_eq!(left_plus_right.samples as usize, left.len() + right.len());
        prop_assert!((left_plus_right.mean - right_plus_left.mean).abs() < 1e-3);
        prop_assert!((left_plus_right.deviation() - right_plus_left.deviation()).abs() < 1.0);
    }

    #[test]
    fn confidence_stays_in_range(outcomes in prop::collection::vec(0..5u8, 0..60), start in 0.0..=1.0f64) {
        let settings = MemorySettings::default();
        let (mut one, mut other) = (active(strategy("a b c"), start), active(antipattern("a b c"), start));
        for (at, outcome) in (0..).zip(outcomes) {
            let now = Timestamp(i64::from(at) * 40 * DAY);
            match outcome {
                0 => credit(&mut one, Credit::LoopSucceeded, &settings, now),
                1 => credit(&mut one, Credit::IterationFailed, &settings, now),
                2 => contradict(&mut one, &mut other, &settings, now),
                3 => one = absorb(&one, &Learning { sources: vec![source(&format!("r-{at}x"))], ..other.clone() }, &settings, now),
                _ => credit(&mut one, Credit::IterationHelped, &settings, now),
            }
            prop_assert!((0.0..=1.0).contains(&one.confidence) && (0.0..=1.0).contains(&one.success_rate()));
            prop_assert!(one.check().is_ok());
        }
    }
}

#[test]
fn redirect_with_a_gain_becomes_a_learning() {
    let followed = Some(FollowedRedirect { way: "find the cause first".into(), cause: "The loop is stuck".into() });
    let learnt = |completion_after: f64, tampered: bool| {
        let facts = IterationFacts {
            followed: followed.clone(),
            completion_before: 0.4,
            completion_after,
            tampered,
            verified: false,
            error_after: None,
            ..iteration()
        };
        let all = from_iteration(&facts, &MemorySettings::default(), Timestamp(1));
        all.into_iter().map(|learning| learning.line()).find(|line| line.contains("find the cause first"))
    };
    let line = learnt(0.45, false).expect("learnt");
    assert!(line.contains("find the cause first, after: the loop is stuck"), "{line}");
    assert_eq!((learnt(0.4, false), learnt(0.45, true)), (None, None), "no gain, and weakened checks");
}

#[test]
fn irrelevant_reflections_do_not_use_the_window() {
    let reflection = |iteration: u32, approach: &str, failed: &str| {
        Reflection::of(&ReflectionFacts {
            iteration,
            approach: approach.to_owned(),
            error_after: Some(failed.to_owned()),
            ..ReflectionFacts::default()
        })
    };
    let all = || {
        vec![
            reflection(1, "escape commas in the csv writer", "csv_quotes: left \"a,b\" right \"a\""),
            reflection(2, "quote csv fields with line feeds", "csv_quotes: field count differs"),
            reflection(3, "upgrade the container image", "connection to the registry refused"),
            reflection(4, "retry the download", "connection to the registry refused"),
        ]
    };
    let situation = "Fields with commas break the csv export\ncheck csv_quotes fails\nsrc/csv/writer.rs";
    let numbers = |situation: &str, count| -> Vec<u32> {
        relevant(all(), situation, count).iter().map(|one| one.iteration).collect()
    };
    assert_eq!(numbers(situation, 3), [1, 2, 4], "the newest is always included");
    assert_eq!(numbers(situation, 2), [2, 4]);
    assert_eq!(numbers("registry connection", 9), [3, 4]);
    assert_eq!(numbers("取り込みが壊れる", 3), [2, 3, 4], "without a common word, the newest are included");
    assert_eq!(relevant(Vec::new(), situation, 3), []);
}
