//! Assumptions of a simulation: behavior of agents and people, frequency of each kind of task, and values. A file can set
//! each of them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::random::RandomStream;

/// Kind of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskKind {
    /// The agent finishes it.
    Converging,
    /// The agent finishes it in small steps.
    Slow,
    /// Progress stops at some point until an intervention.
    StuckUntilRedirected,
    /// Progress stops at some point, and no intervention helps.
    StuckForGood,
    /// Completion alternates from some point on.
    Oscillating,
    /// Completion falls from some point on.
    Regressing,
    /// The agent claims completion too early and sometimes weakens the checks.
    Deceptive,
}

impl TaskKind {
    /// Whether the task needs no intervention.
    pub fn is_healthy(self) -> bool {
        matches!(self, Self::Converging | Self::Slow)
    }
}

/// Obstacle that stops an agent's progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Obstacle {
    /// The same error after every attempt.
    Wall,
    /// Work on something other than the task.
    Drift,
    /// Iterations that change nothing.
    Silent,
    /// Agent runs that fail.
    Crashing,
    /// Alternation between two states, each of which breaks a fix of the other.
    Seesaw,
    /// Changes that break more than they fix.
    Rot,
    /// Weakened checks.
    Shortcut,
}

/// Progress of an agent without obstacles.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProgressModel {
    /// Mean increase of completion in an iteration with progress, 0..1.
    pub mean: f64,
    /// Sigma of the log-normal factors by which progress varies between tasks and between iterations, 0..2.
    pub spread: f64,
    /// Share of iterations without progress, 0..1.
    pub idle: f64,
}

impl Default for ProgressModel {
    fn default() -> Self {
        Self { mean: 0.18, spread: 0.4, idle: 0.2 }
    }
}

/// Probabilities that an intervention ends an obstacle, each 0..1. Simultaneous interventions act independently.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ReleaseChances {
    /// Each iteration without intervention.
    pub alone: f64,
    /// A new warning.
    pub warn: f64,
    /// A new redirect.
    pub redirect: f64,
    /// A fresh session.
    pub fresh: f64,
    /// Guidance from a person.
    pub person: f64,
    /// Each iteration with the strong model.
    pub strong: f64,
    /// Each iteration limited to the first failing check or to one change.
    pub narrow: f64,
    /// Each iteration with the largest share of memory in the context; proportionally less for smaller shares.
    pub memory: f64,
}

/// Behavior of agents.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AgentModel {
    /// Progress in all kinds of tasks except slow ones.
    pub pace: ProgressModel,
    /// Progress in slow tasks.
    pub slow: ProgressModel,
    /// Minimum and maximum number of tests of a task.
    pub tests: (u32, u32),
    /// Probability that one or two tests fail randomly in an iteration, 0..1.
    pub flaky: f64,
    /// Probability that an agent run fails randomly, 0..1.
    pub failure: f64,
    /// Probability that an iteration without progress has the previous iteration's error, 0..1.
    pub same_error: f64,
    /// Minimum and maximum completion at which an obstacle appears.
    pub obstacle_at: (f64, f64),
    /// Probability of a second obstacle later in the task, 0..1.
    pub second_obstacle: f64,
    /// Obstacles of tasks that are stuck until an intervention, by weight.
    pub obstacles: BTreeMap<Obstacle, f64>,
    /// Probability that each obstacle ends, by intervention.
    pub release: BTreeMap<Obstacle, ReleaseChances>,
    /// Minimum and maximum amplitude of completion in oscillating tasks, 0..1.
    pub swing: (f64, f64),
    /// Minimum and maximum loss of completion in an iteration of a regressing task, 0..1.
    pub rot: (f64, f64),
    /// Probability that an agent claims completion of unfinished work, usually and in deceptive tasks, 0..1.
    pub false_claim: (f64, f64),
    /// Probability that an iteration of a deceptive task weakens checks, 0..1.
    pub tamper: f64,
    /// Probability that weakened checks are detected, 0..1.
    pub tamper_seen: f64,
    /// Factors of progress in an iteration that warns, redirects or restarts an agent without obstacles, 0..1.
    pub disturbed: (f64, f64, f64),
    /// Exponent of progress as a function of effort, 0..1. A share of `1 - effort_power` of a usual iteration's cost does not
    /// depend on effort, so that the usual effort is the best constant one.
    pub effort_power: f64,
    /// Exponent of the rate at which obstacles end as a function of effort; `effort_power` if unset.
    pub release_power: Option<f64>,
    /// Progress of the cheap and the strong model relative to the default.
    pub model_pace: (f64, f64),
    /// Cost of the cheap and the strong model relative to the default.
    pub model_cost: (f64, f64),
    /// Progress of an iteration limited to the first failing check, limited to one change, and unlimited.
    pub breadth_pace: (f64, f64, f64),
    /// Factors of an urgent prompt: on progress, and on false claims and weakened checks.
    pub urgency: (f64, f64),
    /// Factor of progress with the largest share of memory in the context.
    pub memory_pace: f64,
}

impl Default for AgentModel {
    fn default() -> Self {
        let release = |alone, warn, redirect, fresh, person| ReleaseChances {
            alone,
            warn,
            redirect,
            fresh,
            person,
            ..ReleaseChances::default()
        };
        Self {
            pace: ProgressModel::default(),
            slow: ProgressModel { mean: 0.075, spread: 0.3, idle: 0.2 },
            tests: (12, 80),
            flaky: 0.05,
            failure: 0.02,
            same_error: 0.7,
            obstacle_at: (0.0, 0.8),
            second_obstacle: 0.3,
            obstacles: BTreeMap::from([
                (Obstacle::Wall, 0.55),
                (Obstacle::Drift, 0.2),
                (Obstacle::Silent, 0.15),
                (Obstacle::Crashing, 0.1),
            ]),
            release: BTreeMap::from([
                (Obstacle::Wall, ReleaseChances { strong: 0.06, memory: 0.05, ..release(0.03, 0.1, 0.35, 0.3, 0.8) }),
                (Obstacle::Drift, ReleaseChances { narrow: 0.1, ..release(0.05, 0.3, 0.4, 0.3, 0.9) }),
                (Obstacle::Silent, release(0.05, 0.3, 0.4, 0.4, 0.8)),
                (Obstacle::Crashing, ReleaseChances { strong: 0.2, ..release(0.1, 0.05, 0.15, 0.4, 0.6) }),
                (
                    Obstacle::Seesaw,
                    ReleaseChances { narrow: 0.15, memory: 0.05, ..release(0.04, 0.15, 0.4, 0.2, 0.85) },
                ),
                (Obstacle::Rot, ReleaseChances { narrow: 0.05, ..release(0.05, 0.15, 0.2, 0.45, 0.7) }),
                (Obstacle::Shortcut, release(0.05, 0.4, 0.6, 0.3, 0.95)),
            ]),
            swing: (0.06, 0.25),
            rot: (0.01, 0.1),
            false_claim: (0.03, 0.3),
            tamper: 0.08,
            tamper_seen: 0.9,
            disturbed: (0.85, 0.5, 0.5),
            effort_power: 0.5,
            release_power: None,
            model_pace: (0.75, 1.25),
            model_cost: (0.4, 2.0),
            breadth_pace: (0.85, 0.9, 1.1),
            urgency: (1.03, 1.5),
            memory_pace: 0.95,
        }
    }
}

/// Behavior of people who receive a question.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PersonModel {
    /// Probability of an answer, 0..1; without an answer, the loop ends.
    pub answers: f64,
    /// Probability that a person recognizes a hopeless task and ends it, 0..1.
    pub sees_hopeless: f64,
    /// Maximum number of answers per loop; the next question ends the loop.
    pub patience: u32,
}

impl Default for PersonModel {
    fn default() -> Self {
        Self { answers: 0.9, sees_hopeless: 0.7, patience: 2 }
    }
}

/// Values, in usual iterations.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Values {
    /// Value of a finished task.
    pub done: f64,
    /// Value of a task that was accepted although it is unfinished.
    pub false_done: f64,
    /// Value of a question to a person.
    pub person: f64,
}

impl Default for Values {
    fn default() -> Self {
        Self { done: 40.0, false_done: -40.0, person: -4.0 }
    }
}

/// Assumptions of a simulation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Mix {
    /// Name of the mix.
    pub name: String,
    /// Frequency of each kind of task, as weights.
    pub kinds: BTreeMap<TaskKind, f64>,
    /// Behavior of agents.
    pub agent: AgentModel,
    /// Behavior of people.
    pub person: PersonModel,
    /// Values of results.
    pub values: Values,
    /// Maximum number of iterations of any loop, 1..1000.
    pub max_iterations: u32,
    /// Share of tasks whose checks do not count tests, 0..1.
    pub uncounted: f64,
}

impl Default for Mix {
    fn default() -> Self {
        Self {
            name: "everyday".to_owned(),
            kinds: weights([40.0, 12.0, 20.0, 10.0, 6.0, 6.0, 6.0]),
            agent: AgentModel::default(),
            person: PersonModel::default(),
            values: Values::default(),
            max_iterations: 25,
            uncounted: 0.0,
        }
    }
}

/// Weights in the order of [`TaskKind`].
fn weights(weights: [f64; 7]) -> BTreeMap<TaskKind, f64> {
    use TaskKind::*;
    let kinds = [Converging, Slow, StuckUntilRedirected, StuckForGood, Oscillating, Regressing, Deceptive];
    kinds.into_iter().zip(weights).collect()
}

/// Names of the mixes used for tuning thresholds.
pub const TUNED_ON: [&str; 3] = ["everyday", "rough", "bleak"];
/// Names of the mixes not used for tuning thresholds. The results of the first three were known during tuning; the others
/// are random and were played once, after tuning. `drawn-101` to `drawn-112` were also used for tuning; the results of
/// `drawn-201` to `drawn-212` and, for earlier versions, `drawn-1` to `drawn-9` were known during tuning.
pub const HELD_OUT: [&str; 9] =
    ["gentle", "hopeless", "shifty", "drawn-28", "drawn-29", "drawn-30", "drawn-31", "drawn-32", "drawn-33"];
/// Purpose of the random stream for drawing mixes.
const DRAWN: u64 = 0x006d_6978_6573;
/// Sigma of the log-normal factors by which a drawn mix differs from `everyday`.
const DRAWN_SPREAD: f64 = 0.5;

impl Mix {
    /// Returns a built-in mix; `None` for an unknown name.
    pub fn named(name: &str) -> Option<Self> {
        let base = Self { name: name.to_owned(), ..Self::default() };
        let agent = AgentModel::default();
        let scaled = |chances: ReleaseChances, by: f64| ReleaseChances {
            alone: (chances.alone * by).min(1.0),
            warn: (chances.warn * by).min(1.0),
            redirect: (chances.redirect * by).min(1.0),
            fresh: (chances.fresh * by).min(1.0),
            ..chances
        };
        let release =
            |by: f64| agent.release.iter().map(|(obstacle, chances)| (*obstacle, scaled(*chances, by))).collect();
        Some(match name {
            "everyday" => base,
            // Fewer tasks go well, and interventions help less.
            "rough" => Self {
                kinds: weights([22.0, 14.0, 26.0, 16.0, 8.0, 7.0, 7.0]),
                agent: AgentModel { release: release(0.8), flaky: 0.1, same_error: 0.8, ..agent.clone() },
                ..base
            },
            // A quarter of the tasks are hopeless.
            "bleak" => Self {
                kinds: weights([30.0, 10.0, 20.0, 25.0, 5.0, 5.0, 5.0]),
                person: PersonModel { sees_hopeless: 0.6, ..PersonModel::default() },
                ..base
            },
            // Most tasks go well; they have few tests, so progress comes in large steps.
            "gentle" => Self {
                kinds: weights([58.0, 20.0, 10.0, 4.0, 3.0, 2.0, 3.0]),
                agent: AgentModel {
                    pace: ProgressModel { mean: 0.15, spread: 0.5, idle: 0.3 },
                    slow: ProgressModel { mean: 0.07, spread: 0.3, idle: 0.25 },
                    tests: (5, 40),
                    same_error: 0.85,
                    ..agent.clone()
                },
                ..base
            },
            // Many tasks are hopeless, and people do not always recognize it.
            "hopeless" => Self {
                kinds: weights([25.0, 8.0, 22.0, 30.0, 5.0, 5.0, 5.0]),
                agent: AgentModel { obstacle_at: (0.1, 0.9), second_obstacle: 0.5, ..agent.clone() },
                person: PersonModel { sees_hopeless: 0.5, ..PersonModel::default() },
                ..base
            },
            // Flaky tests, and many obstacles other than walls.
            "shifty" => Self {
                kinds: weights([25.0, 10.0, 15.0, 8.0, 16.0, 13.0, 13.0]),
                agent: AgentModel {
                    flaky: 0.15,
                    failure: 0.05,
                    release: release(1.2),
                    obstacles: BTreeMap::from([
                        (Obstacle::Wall, 0.3),
                        (Obstacle::Drift, 0.3),
                        (Obstacle::Silent, 0.2),
                        (Obstacle::Crashing, 0.2),
                    ]),
                    tamper: 0.12,
                    ..agent.clone()
                },
                ..base
            },
            _ => return base.drawn(name.strip_prefix("drawn-")?.parse().ok()?),
        })
    }

    /// Multiplies each weight, probability and value by a random factor, except if the result would be invalid. `None` if
    /// the mix cannot be written as JSON.
    fn drawn(self, seed: u64) -> Option<Self> {
        fn leaves(value: &Value, path: &mut Vec<String>, found: &mut Vec<String>) {
            match value {
                Value::Object(map) => {
                    for (key, value) in map {
                        path.push(key.clone());
                        leaves(value, path, found);
                        path.pop();
                    }
                }
                Value::Array(items) if items.iter().all(Value::is_f64) => found.push(path.join("/")),
                Value::Number(number) if number.is_f64() => found.push(path.join("/")),
                _ => {}
            }
        }
        let (mut random, mut found) = (RandomStream::new(seed, DRAWN), Vec::new());
        let mut current = serde_json::to_value(&self).ok()?;
        leaves(&current, &mut Vec::new(), &mut found);
        let mut drawn = self;
        for path in found {
            let (mut changed, factor) = (current.clone(), random.log_normal(DRAWN_SPREAD));
            let Some(value) = changed.pointer_mut(&format!("/{path}")) else { continue };
            let times = |number: &Value| {
                let before = number.as_f64().unwrap_or_default();
                // Shares and probabilities are at most 1.
                Value::from(if (0.0..=1.0).contains(&before) { (before * factor).min(1.0) } else { before * factor })
            };
            *value = match &*value {
                Value::Array(items) => items.iter().map(times).collect(),
                number => times(number),
            };
            if let Some(mix) =
                serde_json::from_value::<Self>(changed.clone()).ok().filter(|mix| mix.problems().is_empty())
            {
                (drawn, current) = (mix, changed);
            }
        }
        Some(drawn)
    }

    /// Returns variants of this mix, each with one changed assumption and its description.
    pub fn variants(&self) -> Vec<(&'static str, Self)> {
        type Adjustment = fn(&mut Mix);
        let changes: [(&str, Adjustment); 10] = [
            ("interventions help half as much", |mix| {
                for chances in mix.agent.release.values_mut() {
                    (chances.warn, chances.redirect, chances.fresh) =
                        (chances.warn / 2.0, chances.redirect / 2.0, chances.fresh / 2.0);
                }
            }),
            ("a fresh session has no effect", |mix| {
                mix.agent.release.values_mut().for_each(|chances| chances.fresh = 0.0);
            }),
            ("no answers", |mix| mix.person.answers = 0.0),
            ("a person costs three times as much", |mix| mix.values.person *= 3.0),
            ("a task done is worth half", |mix| mix.values.done /= 2.0),
            ("healthy agents make no progress twice as often", |mix| {
                for pace in [&mut mix.agent.pace, &mut mix.agent.slow] {
                    pace.idle = (pace.idle * 2.0).min(0.95);
                }
            }),
            ("no check counts tests", |mix| mix.uncounted = 1.0),
            ("obstacles never end without intervention", |mix| {
                mix.agent.release.values_mut().for_each(|chances| chances.alone = 0.0)
            }),
            ("more effort does not end obstacles sooner", |mix| mix.agent.release_power = Some(0.0)),
            ("progress is proportional to effort, and the strong model pays off", |mix| {
                mix.agent.effort_power = 1.0;
                mix.agent.model_pace.1 = mix.agent.model_cost.1 * 1.1;
            }),
        ];
        let changed = |(name, change): (&'static str, Adjustment)| {
            let mut mix = self.clone();
            change(&mut mix);
            (name, mix)
        };
        changes.into_iter().map(changed).collect()
    }

    /// Returns the problems of the mix, one sentence each.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let total: f64 = self.kinds.values().sum();
        if self.kinds.values().any(|weight| !(0.0..=1e9).contains(weight)) || total <= 0.0 {
            problems.push("`kinds` needs weights from 0, and one above".to_owned());
        }
        let obstacles: f64 = self.agent.obstacles.values().sum();
        if self.agent.obstacles.values().any(|weight| !(0.0..=1e9).contains(weight)) || obstacles <= 0.0 {
            problems.push("`agent.obstacles` needs weights from 0, and one above".to_owned());
        }
        if !(1..=1000).contains(&self.max_iterations) {
            problems.push(format!("`max_iterations` is {}; it must be between 1 and 1000", self.max_iterations));
        }
        if self.agent.tests.0 < 1 || self.agent.tests.0 > self.agent.tests.1 || self.agent.tests.1 > 100_000 {
            problems.push("`agent.tests` needs a least and a greatest number of tests, from 1".to_owned());
        }
        if !(0.0..=1.0).contains(&self.uncounted) {
            problems.push(format!("`uncounted` is {}; it must be between 0 and 1", self.uncounted));
        }
        let ranges = [("obstacle_at", self.agent.obstacle_at), ("swing", self.agent.swing), ("rot", self.agent.rot)];
        for (name, (least, most)) in ranges {
            if !(0.0..=1.0).contains(&least) || !(least..=1.0).contains(&most) {
                problems.push(format!("`agent.{name}` needs a least and a greatest value, 0 to 1"));
            }
        }
        for (name, pace) in [("pace", self.agent.pace), ("slow", self.agent.slow)] {
            let sound = (1e-6..=1.0).contains(&pace.mean)
                && (0.0..=2.0).contains(&pace.spread)
                && (0.0..1.0).contains(&pace.idle);
            if !sound {
                problems.push(format!(
                    "`agent.{name}` needs a mean above 0, a spread of 0 to 2, and an idle share below 1"
                ));
            }
        }
        problems
    }
}
