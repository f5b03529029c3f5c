//! A stochastic agent at a task: it goes forward, is held up, answers to what is done about it, and leaves records like
//! those of a real loop.

use super::chance::Chance;
use super::mix::{Frees, Mix, Pace, Regime, Snag};
use crate::domain::model::record::{CheckFact, Record};
use crate::domain::model::task::{CheckOutcome, CheckReport, TestCounts};
use crate::domain::supervision::control::{Breadth, ModelTier, Urgency};

/// Seconds and calls of tools of a usual iteration.
const USUAL: (f64, f64) = (300.0, 40.0);
/// Cost of a run that failed, in usual iterations.
const FAILED_COST: f64 = 0.5;
/// Share of an accident's loss that is not made up for in the same iteration: tests that fail by accident, at most.
const FLAKY_TESTS: usize = 2;
/// Completion from which on false claims are made.
const CLAIMS_FROM: f64 = 0.3;
/// Chance that work which is finished is called so.
const RIGHT_CLAIM: f64 = 0.9;
/// Share of the context that memory has at least and at most.
const MEMORY: (f64, f64) = (0.2, 0.5);
/// The task in words.
pub(super) const TASK: &str = "Make the failing tests of the parser pass in src/parser/mod.rs";

/// What an iteration is told and given.
#[derive(Debug, Clone, PartialEq)]
pub struct Order {
    /// The prompt opens with a new warning.
    pub warn: bool,
    /// The prompt opens with a new directive to go about it otherwise.
    pub redirect: bool,
    /// The session starts afresh.
    pub fresh: bool,
    /// A person gave guidance.
    pub guided: bool,
    /// The best state is put back before it.
    pub restore: bool,
    /// Factor of the usual time and turns.
    pub effort: f64,
    /// Tier of the model.
    pub model: ModelTier,
    /// How much it takes on.
    pub breadth: Breadth,
    /// How urgent the prompt says it is.
    pub tone: Urgency,
    /// Part of the context that memory has, 0..1.
    pub memory_share: f64,
}

impl Default for Order {
    fn default() -> Self {
        Self {
            warn: false,
            redirect: false,
            fresh: false,
            guided: false,
            restore: false,
            effort: 1.0,
            model: ModelTier::Default,
            breadth: Breadth::Usual,
            tone: Urgency::Normal,
            memory_share: MEMORY.0,
        }
    }
}

impl Order {
    /// Whether it interferes with how the agent goes about its work.
    pub fn interferes(&self) -> bool {
        self.warn || self.redirect || self.fresh
    }
}

/// An agent at a task.
#[derive(Debug, Clone)]
pub struct Agent<'a> {
    mix: &'a Mix,
    seed: u64,
    /// What sort of task it is.
    pub regime: Regime,
    pace: Pace,
    tests: u32,
    /// Whether the tests are counted.
    counted: bool,
    /// Checks before the first iteration.
    start: CheckReport,
    done: f64,
    best: f64,
    /// Snags to come, the next one last, each with the completion at which it comes.
    ahead: Vec<(f64, Snag)>,
    /// What holds it up now.
    snag: Option<Snag>,
    /// Where it was when the snag came.
    snagged_at: f64,
    high: bool,
    swing: f64,
    quality: f64,
    weakened: bool,
    error: u64,
    tree: u64,
    iteration: u32,
}

impl<'a> Agent<'a> {
    /// The agent at the task of a seed.
    pub fn of(mix: &'a Mix, seed: u64) -> Self {
        let mut chance = Chance::of(seed, 0);
        let settings = &mix.agent;
        let regimes = mix.regimes.iter().map(|(regime, weight)| (*regime, *weight));
        let regime = chance.weighed(regimes).unwrap_or(Regime::Converging);
        let mut pace = if regime == Regime::Slow { settings.slow } else { settings.pace };
        pace.mean *= chance.factor(pace.spread);
        let tests = settings.tests.0 + chance.below((settings.tests.1 - settings.tests.0 + 1) as usize) as u32;
        let stuck = chance.weighed(settings.snags.iter().map(|(snag, weight)| (*snag, *weight))).unwrap_or(Snag::Wall);
        let snag = match regime {
            Regime::Converging | Regime::Slow | Regime::Deceptive => None,
            Regime::StuckUntilRedirected => Some(stuck),
            Regime::StuckForGood => Some(Snag::Wall),
            Regime::Oscillating => Some(Snag::Seesaw),
            Regime::Regressing => Some(Snag::Rot),
        };
        let at = chance.between(settings.snag_at);
        let again = chance.part() < settings.second_snag;
        let second = chance.between((at, 1.0));
        let mut ahead: Vec<_> = snag.map(|snag| (at, snag)).into_iter().collect();
        if again && regime != Regime::StuckForGood {
            ahead.splice(0..0, snag.map(|snag| (second, snag)));
        }
        let swing = chance.between(settings.swing);
        let counted = chance.part() >= mix.uncounted;
        Self {
            mix,
            seed,
            regime,
            pace,
            tests,
            counted,
            start: checks(0, tests, true, counted),
            done: 0.0,
            best: 0.0,
            ahead,
            snag: None,
            snagged_at: 0.0,
            high: false,
            swing,
            quality: 1.0,
            weakened: false,
            error: 0,
            tree: seed,
            iteration: 0,
        }
    }

    /// Whether the task is really done.
    pub fn is_done(&self) -> bool {
        self.done >= 1.0
    }

    /// What holds it up, as nobody else can see.
    pub fn snag(&self) -> Option<Snag> {
        if self.weakened { Some(Snag::Shortcut) } else { self.snag }
    }

    /// Whether nothing helps.
    pub fn is_hopeless(&self) -> bool {
        self.regime == Regime::StuckForGood
    }

    /// What ends the snag that holds it up.
    pub fn frees(&self) -> Frees {
        self.snag().and_then(|snag| self.mix.agent.frees.get(&snag)).copied().unwrap_or_default()
    }

    /// Iterations that the rest takes on average where nothing holds it up.
    pub fn needs(&self) -> f64 {
        (1.0 - self.done).max(0.0) / (self.pace.mean * (1.0 - self.pace.idle))
    }

    /// Takes an iteration, and says what it came to and what it cost in usual iterations.
    pub fn iterate(&mut self, order: &Order) -> (Record, f64) {
        self.iteration += 1;
        let mut chance = Chance::of(self.seed, u64::from(self.iteration));
        // All luck is drawn first, so that it is the same whatever is done with it.
        let freed = chance.part();
        let fails = chance.part() < self.mix.agent.failure;
        let (idles, step) = (chance.part() < self.pace.idle, chance.factor(self.pace.spread));
        let mut traces = Chance::of(self.seed, u64::from(self.iteration) | 1 << 32);
        let held_up = self.snag().is_some();
        if order.restore && self.best > self.done {
            self.done = self.best;
        }
        self.answer(order, freed);
        let crashed = fails || self.snag == Some(Snag::Crashing) && traces.part() < 0.85;
        let before = self.done;
        if !crashed {
            let step = if idles { 0.0 } else { self.pace.mean * step * self.speed(order, held_up) };
            self.go(step, &mut traces);
            self.shift(order, &mut traces);
        }
        self.best = self.best.max(self.done);
        let moved = !crashed && (self.done != before || self.snag != Some(Snag::Silent) && !self.is_done());
        let cost = self.cost(order) * if crashed { FAILED_COST } else { 1.0 };
        (self.record(order, crashed, moved, cost, &mut traces), cost)
    }

    /// What is done about a snag ends it, or does not.
    fn answer(&mut self, order: &Order, luck: f64) {
        let Some(snag) = self.snag() else { return };
        let frees = self.frees();
        let when = |done: bool, chance: f64| if done { 1.0 - chance } else { 1.0 };
        let narrow = matches!(order.breadth, Breadth::FirstFailure | Breadth::OneChange);
        let memory = (order.memory_share - MEMORY.0) / (MEMORY.1 - MEMORY.0);
        let stays = (1.0 - frees.alone)
            * when(order.warn, frees.warn)
            * when(order.redirect, frees.redirect)
            * when(order.fresh, frees.fresh)
            * when(order.guided, frees.person)
            * when(order.model == ModelTier::Strong, frees.strong)
            * when(narrow, frees.narrow)
            * (1.0 - frees.memory * memory.clamp(0.0, 1.0));
        if order.redirect || order.fresh {
            // Another way meets another error, as often as not.
            self.error += u64::from(luck > 0.5);
        }
        if luck < stays {
            return;
        }
        match snag {
            Snag::Shortcut => self.weakened = false,
            _ if self.is_hopeless() => {}
            _ => {
                self.snag = None;
                self.quality = 1.0;
            }
        }
    }

    /// Factor of the usual progress.
    fn speed(&self, order: &Order, held_up: bool) -> f64 {
        let settings = &self.mix.agent;
        let disturbed = |done: bool, left: f64| if done && !held_up { left } else { 1.0 };
        let (warned, redirected, afresh) = settings.disturbed;
        let memory = ((order.memory_share - MEMORY.0) / (MEMORY.1 - MEMORY.0)).clamp(0.0, 1.0);
        let model = match order.model {
            ModelTier::Cheap => settings.model_pace.0,
            ModelTier::Default => 1.0,
            ModelTier::Strong => settings.model_pace.1,
        };
        let breadth = match order.breadth {
            Breadth::FirstFailure => settings.breadth_pace.0,
            Breadth::OneChange => settings.breadth_pace.1,
            Breadth::Usual => 1.0,
            Breadth::Everything => settings.breadth_pace.2,
        };
        let tone = if order.tone >= Urgency::High { settings.urgency.0 } else { 1.0 };
        order.effort.max(0.0).powf(settings.effort_power)
            * model
            * breadth
            * tone
            * (1.0 + (settings.memory_pace - 1.0) * memory)
            * disturbed(order.warn, warned)
            * disturbed(order.redirect, redirected)
            * disturbed(order.fresh, afresh)
    }

    /// Cost in usual iterations.
    fn cost(&self, order: &Order) -> f64 {
        let (cheap, strong) = self.mix.agent.model_cost;
        order.effort
            * match order.model {
                ModelTier::Cheap => cheap,
                ModelTier::Default => 1.0,
                ModelTier::Strong => strong,
            }
    }

    /// Moves by a step, up to the next snag, or as the snag has it.
    fn go(&mut self, step: f64, chance: &mut Chance) {
        match self.snag {
            None => {
                if step > 0.0 {
                    self.error += 1;
                }
                self.done = (self.done + step).min(1.0);
                if let Some((at, snag)) = self.ahead.last().copied()
                    && self.done >= at
                {
                    self.ahead.pop();
                    self.done = at;
                    (self.snag, self.snagged_at) = (Some(snag), at);
                }
            }
            // Now and then one test more or less passes, which leads nowhere.
            Some(Snag::Wall | Snag::Drift) => {
                let one = 1.0 / f64::from(self.tests);
                self.done = match chance.part() {
                    luck if luck < 0.12 => self.snagged_at + one,
                    luck if luck < 0.2 => self.snagged_at - one,
                    luck if luck < 0.5 => self.snagged_at,
                    _ => self.done,
                };
                self.done = self.done.clamp(0.0, 1.0 - one);
            }
            Some(Snag::Seesaw) => {
                self.high = !self.high;
                let swing = if self.high { self.swing } else { -self.swing } / 2.0;
                self.done = (self.snagged_at + swing).clamp(0.0, 0.99);
            }
            Some(Snag::Rot) => {
                self.done = (self.done - chance.between(self.mix.agent.rot)).max(0.0);
                self.quality = (self.quality - 0.03).max(0.3);
            }
            Some(Snag::Silent | Snag::Crashing | Snag::Shortcut) => {}
        }
    }

    /// Weakens checks, where it is that sort of agent.
    fn shift(&mut self, order: &Order, chance: &mut Chance) {
        let settings = &self.mix.agent;
        let pressed = if order.tone >= Urgency::High { settings.urgency.1 } else { 1.0 };
        let weakens = chance.part() < settings.tamper * pressed;
        self.weakened |= weakens && self.regime == Regime::Deceptive && !self.is_done();
    }

    fn record(&mut self, order: &Order, crashed: bool, moved: bool, cost: f64, chance: &mut Chance) -> Record {
        let settings = &self.mix.agent;
        let seesaw = self.snag == Some(Snag::Seesaw);
        // Most of a seesaw's turns bring back the very state of two iterations ago.
        self.tree = match moved {
            true if seesaw && chance.part() < 0.6 => self.seed ^ (u64::from(self.high) + 1),
            true => self.tree.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(u64::from(self.iteration)),
            false => self.tree,
        };
        let flaky = if chance.part() < settings.flaky { 1 + chance.below(FLAKY_TESTS) as u32 } else { 0 };
        let whole = if self.weakened { self.tests - self.tests / 10 } else { self.tests };
        let passing = if self.weakened || self.is_done() { whole } else { (self.done * f64::from(self.tests)) as u32 };
        let passing = passing.saturating_sub(flaky).min(whole);
        let failing = whole - passing;
        let checks = checks(passing, failing, self.quality > 0.8, self.counted);
        let count = |tests: u32| self.counted.then_some(f64::from(tests));
        let pressed = if order.tone >= Urgency::High { settings.urgency.1 } else { 1.0 };
        let false_claim = match self.regime {
            Regime::Deceptive => settings.false_claim.1,
            _ => settings.false_claim.0,
        };
        let claim = if self.is_done() { RIGHT_CLAIM } else { false_claim * pressed };
        let claims = chance.part() < claim && (self.done >= CLAIMS_FROM || self.weakened);
        let other = chance.part() >= settings.same_error;
        let drifts = self.snag == Some(Snag::Drift);
        let error = format!("assertion failed in case_{}: left != right", letters(self.error * 7 + u64::from(other)));
        let named = chance.part();
        let held_up = self.snag.is_some();
        let files: Vec<String> = match moved {
            true if drifts => (0..5).map(|_| format!("docs/pages/topic{}.md", chance.below(40))).collect(),
            true if seesaw => vec![format!("src/parser/{}.rs", if self.high { "scan" } else { "tree" })],
            true => (0..2).map(|_| format!("src/parser/part{}.rs", chance.below(9))).collect(),
            false => Vec::new(),
        };
        let summary = match (drifts, chance.below(3)) {
            (true, _) => "Reworded the introduction of the handbook and its table of contents",
            (_, 0) => "Changed the parser so that more of its failing tests pass",
            (_, 1) => "Worked on src/parser/mod.rs, tests still fail",
            _ => "Mended a case of the parser",
        };
        Record {
            iteration: f64::from(self.iteration),
            completion: checks.completion(Some(&self.start), None).get(),
            quality: self.quality,
            errors: f64::from(u8::from(failing > 0) + u8::from(crashed)) + f64::from(chance.below(2) as u8),
            tests_passing: count(passing),
            tests_failing: count(failing),
            tests_skipped: count(self.tests - whole),
            coverage: Some(80.0 + chance.normal().clamp(-2.0, 2.0)).filter(|_| self.counted),
            error_signature: (failing > 0).then_some(error),
            blockers: (held_up && named < 0.3)
                .then(|| "the tokens of the scanner are not understood".to_owned())
                .into_iter()
                .collect(),
            learnings: (!held_up && named > 0.7)
                .then(|| format!("learnt about case {}", letters(self.error)))
                .into_iter()
                .collect(),
            reflection: (named < 0.4).then(|| match held_up {
                true => "the approach does not lead anywhere".to_owned(),
                false => format!("case {} needs another token", letters(self.error)),
            }),
            summary: summary.to_owned(),
            files,
            tree: Some(format!("{:016x}", self.tree)),
            checks: checks
                .outcomes
                .into_iter()
                .map(|check| CheckFact { passed: check.holds, baseline: Some(check.name != "test"), name: check.name })
                .collect(),
            tampering: (self.weakened && chance.part() < settings.tamper_seen)
                .then(|| "tests were taken out of src/parser/tests.rs".to_owned())
                .into_iter()
                .collect(),
            agent_failure: crashed.then(|| "the run ended before it was done".to_owned()),
            duration_s: USUAL.0 * order.effort,
            tool_calls: USUAL.1 * order.effort,
            tokens_in: 0.0,
            tokens_out: 0.0,
            cost_usd: cost,
            completion_signal: claims && !crashed,
            objective_similarity: None,
        }
    }
}

/// The checks of a task: it builds, its tests, and a lint.
fn checks(passing: u32, failing: u32, tidy: bool, counted: bool) -> CheckReport {
    let check = |name: &str, holds, tests| CheckOutcome { name: name.to_owned(), holds, tests, ..Default::default() };
    let counts = TestCounts { passing: passing.into(), failing: failing.into(), skipped: 0 };
    CheckReport {
        outcomes: vec![
            check("build", true, None),
            check("test", failing == 0, counted.then_some(counts)),
            check("lint", tidy, None),
        ],
    }
}

/// A number in letters: digits in errors are taken to be noise.
fn letters(mut number: u64) -> String {
    let mut text = String::new();
    loop {
        text.push(char::from(b'a' + (number % 26) as u8));
        number /= 26;
        if number == 0 {
            return text;
        }
    }
}
