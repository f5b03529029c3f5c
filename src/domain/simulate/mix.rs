//! What a simulation is made of: how agents behave, how often each sort of task comes, what people do, what things cost.
//! Every figure is an assumption, and can be given by file.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::chance::Chance;

/// A sort of task, or of agent at a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Regime {
    /// It gets there.
    Converging,
    /// It gets there, in small steps.
    Slow,
    /// It stops at some point until something is done about it.
    StuckUntilRedirected,
    /// It stops at some point, and nothing helps.
    StuckForGood,
    /// It goes to and fro from some point on.
    Oscillating,
    /// From some point on it spoils what it had.
    Regressing,
    /// It says that it is done when it is not, and now and then weakens the checks.
    Deceptive,
}

impl Regime {
    /// Whether it needs no intervention.
    pub fn is_healthy(self) -> bool {
        matches!(self, Self::Converging | Self::Slow)
    }
}

/// What holds an agent up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Snag {
    /// The same error, whatever is tried.
    Wall,
    /// Work on something else.
    Drift,
    /// Iterations that change nothing.
    Silent,
    /// Runs that fail before they are done.
    Crashing,
    /// One thing mended, another broken, and back.
    Seesaw,
    /// Each change spoils more than it mends.
    Rot,
    /// Checks that were weakened.
    Shortcut,
}

/// How an agent goes forward where nothing holds it up.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Pace {
    /// Mean progress of an iteration that makes some, 0..1.
    pub mean: f64,
    /// Spread of it from task to task, and again from iteration to iteration (sigma of a log-normal), 0..2.
    pub spread: f64,
    /// Share of iterations without progress, 0..1.
    pub idle: f64,
}

impl Default for Pace {
    fn default() -> Self {
        Self { mean: 0.18, spread: 0.4, idle: 0.2 }
    }
}

/// Chance that something ends a snag, 0..1 each; chances of what is done at the same time add up as independent ones.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Frees {
    /// In each iteration, by itself.
    pub alone: f64,
    /// A new WARN.
    pub warn: f64,
    /// A new REDIRECT.
    pub redirect: f64,
    /// A session that starts afresh.
    pub fresh: f64,
    /// A person's guidance.
    pub person: f64,
    /// Each iteration by the strong model.
    pub strong: f64,
    /// Each iteration that takes on only the first failing check, or one change.
    pub narrow: f64,
    /// Each iteration with the whole of the memory's share (half the context) rather than the least.
    pub memory: f64,
}

/// How agents behave.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AgentSettings {
    /// All regimes but the slow one.
    pub pace: Pace,
    /// The slow one.
    pub slow: Pace,
    /// Fewest and most tests of a task.
    pub tests: (u32, u32),
    /// Chance that one or two tests fail by accident in a run, 0..1.
    pub flaky: f64,
    /// Chance that an agent's run fails by accident, 0..1.
    pub failure: f64,
    /// Chance that an iteration without progress shows the same error as before, 0..1.
    pub same_error: f64,
    /// Least and greatest completion at which a snag comes.
    pub snag_at: (f64, f64),
    /// Chance that a second snag comes later in the task, 0..1.
    pub second_snag: f64,
    /// Which snags hold up the regime that is stuck until it is redirected, by weight.
    pub snags: BTreeMap<Snag, f64>,
    /// What ends each snag.
    pub frees: BTreeMap<Snag, Frees>,
    /// Least and greatest swing of an agent that goes to and fro, 0..1.
    pub swing: (f64, f64),
    /// Least and greatest loss of an iteration that spoils, 0..1.
    pub rot: (f64, f64),
    /// Chance that unfinished work is called done: usually, and in the deceptive regime, 0..1.
    pub false_claim: (f64, f64),
    /// Chance in an iteration of the deceptive regime that checks are weakened, 0..1.
    pub tamper: f64,
    /// Chance that weakened checks are noticed, 0..1.
    pub tamper_seen: f64,
    /// What is left of an iteration's progress where a healthy agent is warned, redirected, and started afresh, 0..1.
    pub disturbed: (f64, f64, f64),
    /// Progress goes with this power of the effort; cost goes with the effort itself.
    pub effort_power: f64,
    /// Progress of the cheap and the strong model against the default.
    pub model_pace: (f64, f64),
    /// Cost of the cheap and the strong model against the default.
    pub model_cost: (f64, f64),
    /// Progress of an iteration that takes on only the first failing check, one change, everything.
    pub breadth_pace: (f64, f64, f64),
    /// What a prompt that says it is urgent does to progress, and to false claims and weakened checks.
    pub urgency: (f64, f64),
    /// Progress where memory has its whole share of the context.
    pub memory_pace: f64,
}

impl Default for AgentSettings {
    fn default() -> Self {
        let frees =
            |alone, warn, redirect, fresh, person| Frees { alone, warn, redirect, fresh, person, ..Frees::default() };
        Self {
            pace: Pace::default(),
            slow: Pace { mean: 0.075, spread: 0.3, idle: 0.2 },
            tests: (12, 80),
            flaky: 0.05,
            failure: 0.02,
            same_error: 0.7,
            snag_at: (0.0, 0.8),
            second_snag: 0.3,
            snags: BTreeMap::from([
                (Snag::Wall, 0.55),
                (Snag::Drift, 0.2),
                (Snag::Silent, 0.15),
                (Snag::Crashing, 0.1),
            ]),
            frees: BTreeMap::from([
                (Snag::Wall, Frees { strong: 0.06, memory: 0.05, ..frees(0.03, 0.1, 0.35, 0.3, 0.8) }),
                (Snag::Drift, Frees { narrow: 0.1, ..frees(0.05, 0.3, 0.4, 0.3, 0.9) }),
                (Snag::Silent, frees(0.05, 0.3, 0.4, 0.4, 0.8)),
                (Snag::Crashing, Frees { strong: 0.2, ..frees(0.1, 0.05, 0.15, 0.4, 0.6) }),
                (Snag::Seesaw, Frees { narrow: 0.15, memory: 0.05, ..frees(0.04, 0.15, 0.4, 0.2, 0.85) }),
                (Snag::Rot, Frees { narrow: 0.05, ..frees(0.05, 0.15, 0.2, 0.45, 0.7) }),
                (Snag::Shortcut, frees(0.05, 0.4, 0.6, 0.3, 0.95)),
            ]),
            swing: (0.06, 0.25),
            rot: (0.01, 0.1),
            false_claim: (0.03, 0.3),
            tamper: 0.08,
            tamper_seen: 0.9,
            disturbed: (0.85, 0.5, 0.5),
            effort_power: 0.5,
            model_pace: (0.75, 1.25),
            model_cost: (0.4, 2.0),
            breadth_pace: (0.85, 0.9, 1.1),
            urgency: (1.03, 1.5),
            memory_pace: 0.95,
        }
    }
}

/// What people do who are asked.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Person {
    /// Chance that somebody answers; where nobody does, the loop ends, 0..1.
    pub answers: f64,
    /// Chance that a hopeless task is seen to be one, and ended, 0..1.
    pub sees_hopeless: f64,
    /// Answers that a loop gets; when it asks once more, it is ended.
    pub patience: u32,
}

impl Default for Person {
    fn default() -> Self {
        Self { answers: 0.9, sees_hopeless: 0.7, patience: 2 }
    }
}

/// What things are worth, in usual iterations.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Prices {
    /// A task that is done.
    pub done: f64,
    /// A task that is called done and is not.
    pub false_done: f64,
    /// A person who is asked.
    pub person: f64,
}

impl Default for Prices {
    fn default() -> Self {
        Self { done: 40.0, false_done: -40.0, person: -4.0 }
    }
}

/// What a simulation is made of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Mix {
    /// Its name.
    pub name: String,
    /// How often each sort of task comes, by weight.
    pub regimes: BTreeMap<Regime, f64>,
    /// How agents behave.
    pub agent: AgentSettings,
    /// What people do.
    pub person: Person,
    /// What things are worth.
    pub prices: Prices,
    /// Iterations that any loop may take, 1..1000.
    pub max_iterations: u32,
    /// Share of tasks whose checks say nothing but whether they hold, 0..1.
    pub uncounted: f64,
}

impl Default for Mix {
    fn default() -> Self {
        Self {
            name: "everyday".to_owned(),
            regimes: weights([40.0, 12.0, 20.0, 10.0, 6.0, 6.0, 6.0]),
            agent: AgentSettings::default(),
            person: Person::default(),
            prices: Prices::default(),
            max_iterations: 25,
            uncounted: 0.0,
        }
    }
}

/// Weights in the order of the regimes.
fn weights(weights: [f64; 7]) -> BTreeMap<Regime, f64> {
    use Regime::*;
    let regimes = [Converging, Slow, StuckUntilRedirected, StuckForGood, Oscillating, Regressing, Deceptive];
    regimes.into_iter().zip(weights).collect()
}

/// Names of the mixes that thresholds are tuned on.
pub const TUNED_ON: [&str; 3] = ["everyday", "rough", "bleak"];
/// Names of the mixes that thresholds are not tuned on. The first three were looked at meanwhile; the others were drawn by
/// chance, and played once, after tuning was over. `drawn-101` to `drawn-112` were tuned on as well, `drawn-201` to
/// `drawn-212` were looked at meanwhile, and so were `drawn-1` to `drawn-9`, for earlier versions.
pub const HELD_OUT: [&str; 9] =
    ["gentle", "hopeless", "shifty", "drawn-16", "drawn-17", "drawn-18", "drawn-19", "drawn-20", "drawn-21"];
/// Purpose of the chance that draws mixes.
const DRAWN: u64 = 0x006d_6978_6573;
/// How far the assumptions of a drawn mix lie from the everyday ones (sigma of a log-normal).
const DRAWN_SPREAD: f64 = 0.5;

impl Mix {
    /// A mix that is built in.
    pub fn named(name: &str) -> Option<Self> {
        let base = Self { name: name.to_owned(), ..Self::default() };
        let agent = AgentSettings::default();
        let sooner = |frees: Frees, by: f64| Frees {
            alone: (frees.alone * by).min(1.0),
            warn: (frees.warn * by).min(1.0),
            redirect: (frees.redirect * by).min(1.0),
            fresh: (frees.fresh * by).min(1.0),
            ..frees
        };
        let frees = |by: f64| agent.frees.iter().map(|(snag, frees)| (*snag, sooner(*frees, by))).collect();
        Some(match name {
            "everyday" => base,
            // Less of everything goes well, and agents listen less.
            "rough" => Self {
                regimes: weights([22.0, 14.0, 26.0, 16.0, 8.0, 7.0, 7.0]),
                agent: AgentSettings { frees: frees(0.8), flaky: 0.1, same_error: 0.8, ..agent.clone() },
                ..base
            },
            // A quarter of the tasks cannot be done.
            "bleak" => Self {
                regimes: weights([30.0, 10.0, 20.0, 25.0, 5.0, 5.0, 5.0]),
                person: Person { sees_hopeless: 0.6, ..Person::default() },
                ..base
            },
            // Most go well, with few tests, so that progress comes in lumps.
            "gentle" => Self {
                regimes: weights([58.0, 20.0, 10.0, 4.0, 3.0, 2.0, 3.0]),
                agent: AgentSettings {
                    pace: Pace { mean: 0.15, spread: 0.5, idle: 0.3 },
                    slow: Pace { mean: 0.07, spread: 0.3, idle: 0.25 },
                    tests: (5, 40),
                    same_error: 0.85,
                    ..agent.clone()
                },
                ..base
            },
            // Many tasks cannot be done, and people do not always see it.
            "hopeless" => Self {
                regimes: weights([25.0, 8.0, 22.0, 30.0, 5.0, 5.0, 5.0]),
                agent: AgentSettings { snag_at: (0.1, 0.9), second_snag: 0.5, ..agent.clone() },
                person: Person { sees_hopeless: 0.5, ..Person::default() },
                ..base
            },
            // Noisy tests and agents that go astray in every way but the plain one.
            "shifty" => Self {
                regimes: weights([25.0, 10.0, 15.0, 8.0, 16.0, 13.0, 13.0]),
                agent: AgentSettings {
                    flaky: 0.15,
                    failure: 0.05,
                    frees: frees(1.2),
                    snags: BTreeMap::from([
                        (Snag::Wall, 0.3),
                        (Snag::Drift, 0.3),
                        (Snag::Silent, 0.2),
                        (Snag::Crashing, 0.2),
                    ]),
                    tamper: 0.12,
                    ..agent.clone()
                },
                ..base
            },
            _ => return base.drawn(name.strip_prefix("drawn-")?.parse().ok()?),
        })
    }

    /// This mix with every weight, chance and price changed by chance; what would not hold stays as it is. `None` for a mix
    /// that cannot be written as JSON.
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
        let (mut chance, mut found) = (Chance::of(seed, DRAWN), Vec::new());
        let mut whole = serde_json::to_value(&self).ok()?;
        leaves(&whole, &mut Vec::new(), &mut found);
        let mut drawn = self;
        for path in found {
            let (mut changed, factor) = (whole.clone(), chance.factor(DRAWN_SPREAD));
            let Some(value) = changed.pointer_mut(&format!("/{path}")) else { continue };
            let times = |number: &Value| {
                let before = number.as_f64().unwrap_or_default();
                // What is a part of one stays one.
                Value::from(if (0.0..=1.0).contains(&before) { (before * factor).min(1.0) } else { before * factor })
            };
            *value = match &*value {
                Value::Array(items) => items.iter().map(times).collect(),
                number => times(number),
            };
            if let Some(mix) =
                serde_json::from_value::<Self>(changed.clone()).ok().filter(|mix| mix.faults().is_empty())
            {
                (drawn, whole) = (mix, changed);
            }
        }
        Some(drawn)
    }

    /// This mix under other assumptions, each with what is assumed.
    pub fn variants(&self) -> Vec<(&'static str, Self)> {
        type Change = fn(&mut Mix);
        let changes: [(&str, Change); 9] = [
            ("agents listen half as much", |mix| {
                for frees in mix.agent.frees.values_mut() {
                    (frees.warn, frees.redirect, frees.fresh) =
                        (frees.warn / 2.0, frees.redirect / 2.0, frees.fresh / 2.0);
                }
            }),
            ("a fresh session helps as little as none", |mix| {
                mix.agent.frees.values_mut().for_each(|frees| frees.fresh = 0.0);
            }),
            ("nobody answers", |mix| mix.person.answers = 0.0),
            ("a person costs three times as much", |mix| mix.prices.person *= 3.0),
            ("a task done is worth half", |mix| mix.prices.done /= 2.0),
            ("healthy agents pause twice as often", |mix| {
                for pace in [&mut mix.agent.pace, &mut mix.agent.slow] {
                    pace.idle = (pace.idle * 2.0).min(0.95);
                }
            }),
            ("no check counts its tests", |mix| mix.uncounted = 1.0),
            ("agents never free themselves", |mix| mix.agent.frees.values_mut().for_each(|frees| frees.alone = 0.0)),
            ("effort pays in full, and the strong model more than it costs", |mix| {
                mix.agent.effort_power = 1.0;
                mix.agent.model_pace.1 = mix.agent.model_cost.1 * 1.1;
            }),
        ];
        let changed = |(name, change): (&'static str, Change)| {
            let mut mix = self.clone();
            change(&mut mix);
            (name, mix)
        };
        changes.into_iter().map(changed).collect()
    }

    /// What is wrong with it, one sentence each.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let total: f64 = self.regimes.values().sum();
        if self.regimes.values().any(|weight| !(0.0..=1e9).contains(weight)) || total <= 0.0 {
            faults.push("`regimes` needs weights from 0, and one above".to_owned());
        }
        let snags: f64 = self.agent.snags.values().sum();
        if self.agent.snags.values().any(|weight| !(0.0..=1e9).contains(weight)) || snags <= 0.0 {
            faults.push("`agent.snags` needs weights from 0, and one above".to_owned());
        }
        if !(1..=1000).contains(&self.max_iterations) {
            faults.push(format!("`max_iterations` is {}; it must be between 1 and 1000", self.max_iterations));
        }
        if self.agent.tests.0 < 1 || self.agent.tests.0 > self.agent.tests.1 || self.agent.tests.1 > 100_000 {
            faults.push("`agent.tests` needs a least and a greatest number of tests, from 1".to_owned());
        }
        if !(0.0..=1.0).contains(&self.uncounted) {
            faults.push(format!("`uncounted` is {}; it must be between 0 and 1", self.uncounted));
        }
        let ranges = [("snag_at", self.agent.snag_at), ("swing", self.agent.swing), ("rot", self.agent.rot)];
        for (name, (least, most)) in ranges {
            if !(0.0..=1.0).contains(&least) || !(least..=1.0).contains(&most) {
                faults.push(format!("`agent.{name}` needs a least and a greatest value, 0 to 1"));
            }
        }
        for (name, pace) in [("pace", self.agent.pace), ("slow", self.agent.slow)] {
            let sound = (1e-6..=1.0).contains(&pace.mean)
                && (0.0..=2.0).contains(&pace.spread)
                && (0.0..1.0).contains(&pace.idle);
            if !sound {
                faults.push(format!(
                    "`agent.{name}` needs a mean above 0, a spread of 0 to 2, and an idle share below 1"
                ));
            }
        }
        faults
    }
}
