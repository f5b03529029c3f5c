//! Simulations as a whole: they repeat, their agents behave as they are said to, and ours is worth having.

use super::agent::TASK;
use super::*;
use crate::domain::model::record::Record;
use crate::domain::supervision::TaskFacts;
use crate::domain::supervision::oversight::{Kind, Level};
use crate::domain::supervision::{Evidence, Preset, Supervision};

fn all_mixes() -> impl Iterator<Item = Mix> {
    TUNED_ON.iter().chain(&HELD_OUT).map(|name| Mix::named(name).unwrap())
}

/// A mix of one sort of task.
fn only(regime: Regime) -> Mix {
    Mix { regimes: [(regime, 1.0)].into(), ..Mix::default() }
}

fn share(played: &[Played], holds: fn(&Played) -> bool) -> f64 {
    played.iter().filter(|played| holds(played)).count() as f64 / played.len() as f64
}

fn ours() -> Policy {
    Policy::Ours(Box::default())
}

#[test]
fn the_same_seed_is_the_same_simulation() {
    let mix = Mix::default();
    for (name, policy) in contenders(&SupervisionSettings::default()) {
        let played = play_all(&mix, &policy, 3, 40);
        assert_eq!(played, play_all(&mix, &policy, 3, 40), "{name}");
        assert_ne!(played, play_all(&mix, &policy, 4, 40), "{name}");
    }
}

#[test]
fn mixes_are_sound_and_read_back_as_they_were_written() {
    for mix in all_mixes() {
        assert_eq!(mix.faults(), Vec::<String>::new(), "{}", mix.name);
        let text = serde_json::to_string(&mix).unwrap();
        assert_eq!(serde_json::from_str::<Mix>(&text).unwrap(), mix);
        for (name, variant) in mix.variants() {
            assert_eq!(variant.faults(), Vec::<String>::new(), "{name}");
            assert_ne!(variant, mix, "{name}");
        }
    }
    assert_eq!(serde_json::from_str::<Mix>("{}").unwrap(), Mix::default());
    assert_eq!(Mix::named("unknown"), None);
    let wrong = Mix {
        regimes: [(Regime::Slow, 0.0)].into(),
        max_iterations: 0,
        agent: AgentSettings {
            tests: (9, 3),
            swing: (0.5, 0.1),
            pace: Pace { mean: f64::NAN, ..Pace::default() },
            snags: [(Snag::Wall, f64::NAN)].into(),
            ..AgentSettings::default()
        },
        ..Mix::default()
    };
    insta::assert_snapshot!(wrong.faults().join("\n"), @r"
    `regimes` needs weights from 0, and one above
    `agent.snags` needs weights from 0, and one above
    `max_iterations` is 0; it must be between 1 and 1000
    `agent.tests` needs a least and a greatest number of tests, from 1
    `agent.swing` needs a least and a greatest value, 0 to 1
    `agent.pace` needs a mean above 0, a spread of 0 to 2, and an idle share below 1
    ");
}

#[test]
fn each_sort_of_task_is_what_it_is_said_to_be() {
    let play = |regime, policy: &Policy| play_all(&only(regime), policy, 5, 200);
    let long = Policy::Fixed(25);
    assert!(share(&play(Regime::Converging, &long), |p| p.done) > 0.97);
    let slow = play(Regime::Slow, &long);
    assert!(share(&slow, |p| p.done) > 0.6 && share(&play(Regime::Slow, &Policy::Fixed(10)), |p| p.done) < 0.2);
    assert_eq!(share(&play(Regime::StuckForGood, &Policy::Stall(3)), |p| p.done || p.false_done), 0.0);
    let (left, helped) = (play(Regime::StuckUntilRedirected, &long), play(Regime::StuckUntilRedirected, &ours()));
    assert!(share(&helped, |p| p.done) > share(&left, |p| p.done) + 0.2);
    for regime in [Regime::Oscillating, Regime::Regressing] {
        assert!(share(&play(regime, &long), |p| p.done) < share(&play(regime, &ours()), |p| p.done), "{regime:?}");
    }
    let claims = play(Regime::Deceptive, &Policy::Claim);
    assert!(share(&claims, |p| p.false_done) > 0.5);
    assert!(
        share(&play(Regime::Deceptive, &ours()), |p| p.false_done)
            < share(&play(Regime::Deceptive, &long), |p| p.false_done)
    );
    let oracle = play(Regime::StuckForGood, &Policy::Oracle);
    assert!(oracle.iter().all(|played| played.iterations == 0 && played.cost == 0.0));
}

#[test]
fn what_holds_an_agent_up_is_found_by_the_detection_for_it() {
    let found = |snag: Snag, kind: Kind| {
        let regime = match snag {
            Snag::Seesaw => Regime::Oscillating,
            Snag::Rot => Regime::Regressing,
            Snag::Shortcut => Regime::Deceptive,
            _ => Regime::StuckUntilRedirected,
        };
        let mut mix = only(regime);
        mix.agent.snags = [(snag, 1.0)].into();
        mix.agent.frees.clear();
        (0..20).any(|task| {
            let mut agent = Agent::of(&mix, seed_of(2, task));
            let (facts, settings) = (
                TaskFacts { task: TASK.to_owned(), max_iterations: 60.0, ..TaskFacts::default() },
                SupervisionSettings::default(),
            );
            let (mut supervision, mut history) = (Supervision::default(), Vec::<Record>::new());
            (0..25).any(|_| {
                history.push(agent.iterate(&Order::default()).0);
                let review = supervision.review(&history, &facts, Evidence::default(), &settings).unwrap();
                review.verdict.interventions.iter().any(|done| done.kind == kind && done.level >= Level::Warn)
            })
        })
    };
    for (snag, kind) in [
        (Snag::Wall, Kind::Stuck),
        (Snag::Drift, Kind::Deviation),
        (Snag::Silent, Kind::NoChange),
        (Snag::Crashing, Kind::AgentFailure),
        (Snag::Seesaw, Kind::Oscillation),
        (Snag::Rot, Kind::Regression),
        (Snag::Shortcut, Kind::TestTampering),
    ] {
        assert!(found(snag, kind), "{snag:?} is not found as {kind}", kind = kind.name());
    }
}

#[test]
fn ours_is_ahead_of_the_simple_rules_on_every_mix() {
    // What chance draws may be worth nobody's while; the page shows it.
    for mix in all_mixes().filter(|mix| !mix.name.starts_with("drawn")) {
        let play = |policy: &Policy| play_all(&mix, policy, 11, 300);
        let worth = |policy: &Policy| play(policy).iter().map(|played| played.worth(&mix)).sum::<f64>() / 300.0;
        let (ours, oracle) = (worth(&ours()), worth(&Policy::Oracle));
        for (name, policy) in contenders(&SupervisionSettings::default()) {
            if !matches!(policy, Policy::Ours(_) | Policy::Late(_) | Policy::Oracle) {
                let worth = worth(&policy);
                assert!(ours > worth && worth < oracle, "{}: {name} is worth {worth:.2}, ours {ours:.2}", mix.name);
            }
        }
        assert!(ours < oracle);
    }
}

#[test]
fn loops_whose_tests_are_not_counted_are_left_alone_too() {
    let mix = Mix { uncounted: 1.0, ..Mix::default() };
    let play = |policy: &Policy| play_all(&mix, policy, 11, 300);
    let (ours, limit) = (play(&ours()), play(&Policy::Fixed(25)));
    assert!(share(&ours, |p| p.done) > share(&limit, |p| p.done) + 0.1);
    let disturbed = share(&ours, |p| p.healthy && p.disturbed) / share(&ours, |p| p.healthy);
    assert!(disturbed < 0.05, "{disturbed}");
}

#[test]
fn an_agent_answers_as_often_as_the_mix_says() {
    let mix = |frees: Frees| {
        let mut mix = only(Regime::StuckUntilRedirected);
        mix.agent.second_snag = 0.0;
        mix.agent.frees = mix.agent.snags.keys().map(|snag| (*snag, frees)).collect();
        mix
    };
    let freed = |order: &Order, frees: Frees| {
        let mix = mix(frees);
        let is_freed = |task: &u64| {
            let mut agent = Agent::of(&mix, seed_of(2, *task));
            while agent.snag().is_none() {
                agent.iterate(&Order::default());
            }
            agent.iterate(order);
            agent.snag().is_none()
        };
        (0..200).filter(is_freed).count()
    };
    type Case = (Order, fn(f64) -> Frees);
    let cases: [Case; 3] = [
        (Order { warn: true, ..Order::default() }, |warn| Frees { warn, ..Frees::default() }),
        (Order { redirect: true, ..Order::default() }, |redirect| Frees { redirect, ..Frees::default() }),
        (Order { fresh: true, ..Order::default() }, |fresh| Frees { fresh, ..Frees::default() }),
    ];
    for (order, frees) in cases {
        assert_eq!([freed(&order, frees(0.0)), freed(&order, frees(1.0))], [0, 200], "{order:?}");
        assert!((70..=130).contains(&freed(&order, frees(0.5))), "{order:?}");
        assert_eq!(freed(&Order::default(), frees(1.0)), 0, "nobody told it");
    }
    // So it is worth as much to tell it.
    let done = |redirect| share(&play_all(&mix(Frees { redirect, ..Frees::default() }), &ours(), 5, 100), |p| p.done);
    assert!(done(0.0) == 0.0 && done(1.0) > 0.8, "{} and {}", done(0.0), done(1.0));
}

#[test]
fn a_part_that_is_taken_away_is_away_and_one_that_is_added_is_there() {
    let settings = SupervisionSettings::default();
    let changed = changes(&settings);
    let mut names: Vec<&str> = changed.iter().map(|change| change.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), changed.len());
    let of =
        |name: &str| changed.iter().find(|change| change.name == name).unwrap_or_else(|| panic!("{name}: {names:?}"));
    let mix = Mix::default();
    assert!(play_all(&mix, &of("without people").policy, 1, 100).iter().all(|played| played.asked == 0));
    // What the settings leave out is added, and plays another game; what they have on is taken away.
    let plain = play_all(&mix, &ours(), 1, 200);
    for name in ["the usual iterations", "effort", "model tier", "breadth", "tone", "memory share", "all actuators"] {
        let with = of(&format!("with {name}"));
        assert!(with.added && play_all(&mix, &with.policy, 1, 200) != plain, "{name}");
    }
    let all_on = SupervisionSettings::of(Preset::Seed);
    assert!(changes(&all_on).iter().any(|change| change.name == "without effort" && !change.added));
    let alarm = (of("with the alarm of a burn"), of("the same without forecast"));
    assert!(alarm.0.added && !alarm.1.added && alarm.1.against.as_ref() == Some(&alarm.0.policy));
    let Policy::Ours(without) = &of("without PID control").policy else { panic!("it is ours") };
    let mix = only(Regime::StuckForGood);
    let mut agent = Agent::of(&mix, 1);
    let mut supervision = Supervision::default();
    let mut history = Vec::new();
    for _ in 0..25 {
        history.push(agent.iterate(&Order::default()).0);
        let facts = TaskFacts { max_iterations: 30.0, ..TaskFacts::default() };
        let review = supervision.review(&history, &facts, Evidence::default(), &without.settings).unwrap();
        let control = review.control;
        let alarms: Vec<_> = control.alarms.iter().map(|alarm| alarm.kind).collect();
        assert_eq!((alarms, control.actuation.effort), (vec![], 1.0), "iteration {}", control.iteration);
    }
}

#[test]
fn figures_of_a_policy_against_itself_close_no_gap() {
    let mix = Mix::default();
    let (ten, oracle) = (play_all(&mix, &Policy::Fixed(10), 1, 100), play_all(&mix, &Policy::Oracle, 1, 100));
    let own = figures("ten", &ten, &ten, &oracle, &mix);
    assert_eq!((own.gap.value, own.disturbed.value, own.asked.value), (0.0, 0.0, 0.0));
    assert_eq!(figures("oracle", &oracle, &ten, &oracle, &mix).gap, Figure { value: 1.0, low: 1.0, high: 1.0 });
    assert_eq!(lost(&ten, &ten, &mix), Figure::default());
    assert!(lost(&oracle, &ten, &mix).low > 0.0);
    let none = figures("none", &[], &[], &[], &mix);
    assert!(none.gap.value == 0.0 && none.iterations_each.value == 0.0);
}
