//! Tests that simulations are reproducible, agents behave as documented, and the pipeline beats the simple rules.

use ralph_bot::config::Env;
use ralph_bot::domain::model::record::Record;
use ralph_bot::domain::supervision::oversight::{DetectionKind, InterventionLevel};
use ralph_bot::domain::supervision::{ReviewContext, Supervision, SupervisionPreset, TaskFacts};

use super::agent::TASK;
use super::policy::EarlierLoops;
use super::*;

/// Returns the number of tasks per mix and policy; CI sets a higher number with `RALPH_TEST_LAB_TASKS`.
fn tasks() -> u64 {
    let set = Env::of_process().get("RALPH_TEST_LAB_TASKS").map(|tasks| tasks.parse().expect("a number of tasks"));
    set.unwrap_or(100)
}

fn all_mixes() -> impl Iterator<Item = Mix> {
    TUNED_ON.iter().chain(&HELD_OUT).map(|name| Mix::named(name).unwrap())
}

/// Returns a mix with only one kind of task.
fn only(kind: TaskKind) -> Mix {
    Mix { kinds: [(kind, 1.0)].into(), ..Mix::default() }
}

fn share(played: &[TaskResult], holds: fn(&TaskResult) -> bool) -> f64 {
    played.iter().filter(|played| holds(played)).count() as f64 / played.len() as f64
}

fn ours() -> TaskPolicy {
    TaskPolicy::Pipeline(Box::default())
}

#[test]
fn same_seed_gives_the_same_simulation() {
    let mix = Mix::default();
    for (name, policy) in contenders(&SupervisionSettings::default()) {
        let played = play_all(&mix, &policy, 3, 40);
        assert_eq!(played, play_all(&mix, &policy, 3, 40), "{name}");
        assert_ne!(played, play_all(&mix, &policy, 4, 40), "{name}");
    }
}

#[test]
fn mixes_are_valid_and_survive_serialization() {
    for mix in all_mixes() {
        assert_eq!(mix.problems(), Vec::<String>::new(), "{}", mix.name);
        let text = serde_json::to_string(&mix).unwrap();
        assert_eq!(serde_json::from_str::<Mix>(&text).unwrap(), mix);
        for (name, variant) in mix.variants() {
            assert_eq!(variant.problems(), Vec::<String>::new(), "{name}");
            assert_ne!(variant, mix, "{name}");
        }
    }
    assert_eq!(serde_json::from_str::<Mix>("{}").unwrap(), Mix::default());
    assert_eq!(Mix::named("unknown"), None);
    let wrong = Mix {
        kinds: [(TaskKind::Slow, 0.0)].into(),
        max_iterations: 0,
        agent: AgentModel {
            tests: (9, 3),
            swing: (0.5, 0.1),
            pace: ProgressModel { mean: f64::NAN, ..ProgressModel::default() },
            obstacles: [(Obstacle::Wall, f64::NAN)].into(),
            ..AgentModel::default()
        },
        ..Mix::default()
    };
    insta::assert_snapshot!(wrong.problems().join("\n"), @r"
    `kinds` needs weights from 0, and one above
    `agent.obstacles` needs weights from 0, and one above
    `max_iterations` is 0; it must be between 1 and 1000
    `agent.tests` needs a least and a greatest number of tests, from 1
    `agent.swing` needs a least and a greatest value, 0 to 1
    `agent.pace` needs a mean above 0, a spread of 0 to 2, and an idle share below 1
    ");
}

#[test]
fn kinds_of_tasks_behave_as_documented() {
    let play = |kind, policy: &TaskPolicy| play_all(&only(kind), policy, 5, 200);
    let long = TaskPolicy::Limit(25);
    assert!(share(&play(TaskKind::Converging, &long), |p| p.done) > 0.97);
    let slow = play(TaskKind::Slow, &long);
    assert!(share(&slow, |p| p.done) > 0.6 && share(&play(TaskKind::Slow, &TaskPolicy::Limit(10)), |p| p.done) < 0.2);
    assert_eq!(share(&play(TaskKind::StuckForGood, &TaskPolicy::Stall(3)), |p| p.done || p.false_done), 0.0);
    let (unsupervised, supervised) =
        (play(TaskKind::StuckUntilRedirected, &long), play(TaskKind::StuckUntilRedirected, &ours()));
    assert!(share(&supervised, |p| p.done) > share(&unsupervised, |p| p.done) + 0.2);
    for kind in [TaskKind::Oscillating, TaskKind::Regressing] {
        assert!(share(&play(kind, &long), |p| p.done) < share(&play(kind, &ours()), |p| p.done), "{kind:?}");
    }
    let claims = play(TaskKind::Deceptive, &TaskPolicy::Claim);
    assert!(share(&claims, |p| p.false_done) > 0.5);
    assert!(
        share(&play(TaskKind::Deceptive, &ours()), |p| p.false_done)
            < share(&play(TaskKind::Deceptive, &long), |p| p.false_done)
    );
    let oracle = play(TaskKind::StuckForGood, &TaskPolicy::Oracle);
    assert!(oracle.iter().all(|played| played.iterations == 0 && played.cost == 0.0));
}

#[test]
fn obstacles_are_found_by_their_detection() {
    let found = |obstacle: Obstacle, detection: DetectionKind| {
        let kind = match obstacle {
            Obstacle::Seesaw => TaskKind::Oscillating,
            Obstacle::Rot => TaskKind::Regressing,
            Obstacle::Shortcut => TaskKind::Deceptive,
            _ => TaskKind::StuckUntilRedirected,
        };
        let mut mix = only(kind);
        mix.agent.obstacles = [(obstacle, 1.0)].into();
        mix.agent.release.clear();
        (0..20).any(|task| {
            let mut agent = SimulatedAgent::new(&mix, task_seed(2, task));
            let (facts, settings) = (
                TaskFacts { task: TASK.to_owned(), max_iterations: 60.0, ..TaskFacts::default() },
                SupervisionSettings::default(),
            );
            let (mut supervision, mut history) = (Supervision::default(), Vec::<Record>::new());
            (0..25).any(|_| {
                history.push(agent.iterate(&Instructions::default()).0);
                let review = supervision.review(&history, &facts, ReviewContext::default(), &settings).unwrap();
                review
                    .verdict
                    .interventions
                    .iter()
                    .any(|done| done.kind == detection && done.level >= InterventionLevel::Warn)
            })
        })
    };
    for (obstacle, detection) in [
        (Obstacle::Wall, DetectionKind::Stuck),
        (Obstacle::Drift, DetectionKind::Deviation),
        (Obstacle::Silent, DetectionKind::NoChange),
        (Obstacle::Crashing, DetectionKind::AgentFailure),
        (Obstacle::Seesaw, DetectionKind::Oscillation),
        (Obstacle::Rot, DetectionKind::Regression),
        (Obstacle::Shortcut, DetectionKind::TestTampering),
    ] {
        assert!(found(obstacle, detection), "{obstacle:?} is not found as {}", detection.name());
    }
}

#[test]
fn pipeline_beats_the_simple_rules_on_every_mix() {
    // Random mixes may be so bad that no policy is worth its cost; the page shows this.
    for mix in all_mixes().filter(|mix| !mix.name.starts_with("drawn")) {
        let play = |policy: &TaskPolicy| play_all(&mix, policy, 11, tasks());
        let worth =
            |policy: &TaskPolicy| play(policy).iter().map(|played| played.worth(&mix)).sum::<f64>() / tasks() as f64;
        let (ours, oracle) = (worth(&ours()), worth(&TaskPolicy::Oracle));
        for (name, policy) in contenders(&SupervisionSettings::default()) {
            if !matches!(policy, TaskPolicy::Pipeline(_) | TaskPolicy::LateOracle(_) | TaskPolicy::Oracle) {
                let worth = worth(&policy);
                assert!(ours > worth && worth < oracle, "{}: {name} is worth {worth:.2}, ours {ours:.2}", mix.name);
            }
        }
        assert!(ours < oracle);
    }
}

#[test]
fn healthy_loops_without_test_counts_are_rarely_disturbed() {
    let mix = Mix { uncounted: 1.0, ..Mix::default() };
    let play = |policy: &TaskPolicy| play_all(&mix, policy, 11, tasks());
    let (ours, limit) = (play(&ours()), play(&TaskPolicy::Limit(25)));
    assert!(share(&ours, |p| p.done) > share(&limit, |p| p.done) + 0.1);
    let disturbed = share(&ours, |p| p.healthy && p.disturbed) / share(&ours, |p| p.healthy);
    assert!(disturbed < 0.05, "{disturbed}");
}

/// See the assumptions of `AgentModel::effort_power` and `release_power`.
#[test]
fn more_effort_ends_obstacles_earlier_and_normal_effort_is_most_efficient() {
    let mix = only(TaskKind::Converging);
    let efficiency = |effort: f64| {
        let instructions = Instructions { effort, ..Instructions::default() };
        let (mut gained, mut spent) = (0.0, 0.0);
        for task in 0..200 {
            let mut agent = SimulatedAgent::new(&mix, task_seed(3, task));
            let (record, cost) = agent.iterate(&instructions);
            (gained, spent) = (gained + record.completion.get(), spent + cost);
        }
        gained / spent
    };
    assert!(efficiency(1.0) > efficiency(0.5) && efficiency(1.0) > efficiency(2.0));
    let freed = |effort: f64, release_power: Option<f64>| {
        let mut mix = only(TaskKind::StuckUntilRedirected);
        mix.agent.second_obstacle = 0.0;
        mix.agent.release_power = release_power;
        let is_freed = |task: &u64| {
            let mut agent = SimulatedAgent::new(&mix, task_seed(2, *task));
            while agent.obstacle().is_none() {
                agent.iterate(&Instructions::default());
            }
            agent.iterate(&Instructions { redirect: true, effort, ..Instructions::default() });
            agent.obstacle().is_none()
        };
        (0..400).filter(is_freed).count()
    };
    assert!(freed(0.5, None) + 20 < freed(1.0, None) && freed(1.0, None) + 20 < freed(2.0, None));
    assert_eq!(freed(0.5, Some(0.0)), freed(2.0, Some(0.0)));
}

#[test]
fn conformal_limit_cuts_off_few_finishable_loops() {
    let mut earlier = EarlierLoops::default();
    for iterations in 1..=49 {
        earlier.finished(iterations);
    }
    assert_eq!(earlier.limit(60), 60, "49 loops are too few");
    earlier.finished(50);
    assert_eq!((earlier.limit(60), earlier.limit(20)), (49, 20));
    earlier.finished(1000);
    assert_eq!(earlier.limit(60), 49, "later loops do not calibrate");
    let mix = Mix::default();
    let (conformal, limit) =
        (play_all(&mix, &TaskPolicy::Conformal, 3, 1000), play_all(&mix, &TaskPolicy::Limit(25), 3, 1000));
    let lost = share(&limit, |p| p.done) - share(&conformal, |p| p.done);
    assert!((0.0..0.06).contains(&lost), "{lost}");
    assert!(conformal.iter().map(|p| p.iterations).sum::<u32>() < limit.iter().map(|p| p.iterations).sum());
}

#[test]
fn interventions_end_obstacles_with_the_configured_probability() {
    let mix = |chances: ReleaseChances| {
        let mut mix = only(TaskKind::StuckUntilRedirected);
        mix.agent.second_obstacle = 0.0;
        mix.agent.release = mix.agent.obstacles.keys().map(|obstacle| (*obstacle, chances)).collect();
        mix
    };
    let freed = |instructions: &Instructions, chances: ReleaseChances| {
        let mix = mix(chances);
        let is_freed = |task: &u64| {
            let mut agent = SimulatedAgent::new(&mix, task_seed(2, *task));
            while agent.obstacle().is_none() {
                agent.iterate(&Instructions::default());
            }
            agent.iterate(instructions);
            agent.obstacle().is_none()
        };
        (0..200).filter(is_freed).count()
    };
    type Case = (Instructions, fn(f64) -> ReleaseChances);
    let cases: [Case; 3] = [
        (Instructions { warn: true, ..Instructions::default() }, |warn| ReleaseChances {
            warn,
            ..ReleaseChances::default()
        }),
        (Instructions { redirect: true, ..Instructions::default() }, |redirect| ReleaseChances {
            redirect,
            ..ReleaseChances::default()
        }),
        (Instructions { fresh: true, ..Instructions::default() }, |fresh| ReleaseChances {
            fresh,
            ..ReleaseChances::default()
        }),
    ];
    for (instructions, chances) in cases {
        assert_eq!(
            [freed(&instructions, chances(0.0)), freed(&instructions, chances(1.0))],
            [0, 200],
            "{instructions:?}"
        );
        assert!((70..=130).contains(&freed(&instructions, chances(0.5))), "{instructions:?}");
        assert_eq!(freed(&Instructions::default(), chances(1.0)), 0, "without intervention");
    }
    // Tasks finish accordingly.
    let done = |redirect| {
        share(&play_all(&mix(ReleaseChances { redirect, ..ReleaseChances::default() }), &ours(), 5, 100), |p| p.done)
    };
    assert!(done(0.0) == 0.0 && done(1.0) > 0.8, "{} and {}", done(0.0), done(1.0));
}

#[test]
fn part_variants_remove_or_add_their_part() {
    let settings = SupervisionSettings::default();
    let changed = part_variants(&settings);
    let mut names: Vec<&str> = changed.iter().map(|change| change.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), changed.len());
    let figures_with =
        |name: &str| changed.iter().find(|change| change.name == name).unwrap_or_else(|| panic!("{name}: {names:?}"));
    let mix = Mix::default();
    assert!(play_all(&mix, &figures_with("without people").policy, 1, 100).iter().all(|played| played.asked == 0));
    // Parts that the settings disable are added and change the results; enabled parts are removed.
    let plain = play_all(&mix, &ours(), 1, 200);
    for name in ["the usual iterations", "model tier", "tone", "memory share"] {
        let with = figures_with(&format!("with {name}"));
        assert!(with.added && play_all(&mix, &with.policy, 1, 200) != plain, "{name}");
    }
    for name in ["effort", "breadth", "all actuators", "interventions as the actuators' cause"] {
        let without = figures_with(&format!("without {name}"));
        assert!(!without.added && play_all(&mix, &without.policy, 1, 200) != plain, "{name}");
    }
    let all_on = SupervisionSettings::of(SupervisionPreset::Pinned);
    assert!(part_variants(&all_on).iter().any(|change| change.name == "without tone" && !change.added));
    let alarm = (figures_with("with the alarm of a burn"), figures_with("the same without forecast"));
    assert!(alarm.0.added && !alarm.1.added && alarm.1.baseline.as_ref() == Some(&alarm.0.policy));
    let TaskPolicy::Pipeline(without) = &figures_with("without PID control").policy else { panic!("it is ours") };
    let mix = only(TaskKind::StuckForGood);
    let mut agent = SimulatedAgent::new(&mix, 1);
    let mut supervision = Supervision::default();
    let mut history = Vec::new();
    for _ in 0..25 {
        history.push(agent.iterate(&Instructions::default()).0);
        let facts = TaskFacts { max_iterations: 30.0, ..TaskFacts::default() };
        let review = supervision.review(&history, &facts, ReviewContext::default(), &without.settings).unwrap();
        let control = review.control;
        let alarms: Vec<_> = control.alarms.iter().map(|alarm| alarm.kind).collect();
        assert_eq!((alarms, control.actuation.effort), (vec![], 1.0), "iteration {}", control.iteration);
    }
}

#[test]
fn policy_compared_with_itself_closes_no_gap() {
    let mix = Mix::default();
    let (ten, oracle) = (play_all(&mix, &TaskPolicy::Limit(10), 1, 100), play_all(&mix, &TaskPolicy::Oracle, 1, 100));
    let ten_figures = policy_figures("ten", &ten, &ten, &oracle, &mix);
    assert_eq!((ten_figures.gap.value, ten_figures.disturbed.value, ten_figures.asked.value), (0.0, 0.0, 0.0));
    assert_eq!(
        policy_figures("oracle", &oracle, &ten, &oracle, &mix).gap,
        IntervalEstimate { value: 1.0, low: 1.0, high: 1.0 }
    );
    assert_eq!(worth_difference(&ten, &ten, &mix), IntervalEstimate::default());
    assert!(worth_difference(&oracle, &ten, &mix).low > 0.0);
    let baseline_figures = policy_figures("none", &[], &[], &[], &mix);
    assert!(baseline_figures.gap.value == 0.0 && baseline_figures.iterations_each.value == 0.0);
}
