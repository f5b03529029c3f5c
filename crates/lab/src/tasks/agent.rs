//! Stochastic agent: makes progress, meets obstacles, reacts to interventions, and produces records like a real loop.

use ralph_bot::domain::model::record::{CheckFact, Record, TreeChange};
use ralph_bot::domain::model::task::{CheckOutcome, CheckReport, TestCounts};
use ralph_bot::domain::supervision::control::{Breadth, ModelTier, Urgency};

use super::mix::{Mix, Obstacle, ProgressModel, ReleaseChances, TaskKind};
use super::random::RandomStream;

/// Duration of a usual iteration, in seconds, and its number of tool calls.
const USUAL: (f64, f64) = (300.0, 40.0);
/// Cost of a failed run, in usual iterations.
const FAILED_COST: f64 = 0.5;
/// Maximum number of tests that fail randomly in an iteration.
const FLAKY_TESTS: usize = 2;
/// Minimum completion at which agents claim completion.
const CLAIMS_FROM: f64 = 0.3;
/// Probability that the agent claims completion after finishing the work.
const RIGHT_CLAIM: f64 = 0.9;
/// Minimum and maximum share of memory in the context.
const MEMORY: (f64, f64) = (0.2, 0.5);
/// Text of the task.
pub(super) const TASK: &str = "Make the failing tests of the parser pass in src/parser/mod.rs";

/// Instructions and resources of an iteration.
#[derive(Debug, Clone, PartialEq)]
pub struct Instructions {
    /// Whether the prompt starts with a new warning.
    pub warn: bool,
    /// Whether the prompt starts with a new directive to use another approach.
    pub redirect: bool,
    /// Whether the session is new.
    pub fresh: bool,
    /// Whether a person gave guidance.
    pub guided: bool,
    /// Whether the iteration starts from the best state.
    pub restore: bool,
    /// Factor of the usual duration and number of turns.
    pub effort: f64,
    /// Tier of the model.
    pub model: ModelTier,
    /// Scope of the iteration.
    pub breadth: Breadth,
    /// Urgency that the prompt conveys.
    pub tone: Urgency,
    /// Share of the context for memory, 0..1.
    pub memory_share: f64,
}

impl Default for Instructions {
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

impl Instructions {
    /// Whether the instructions change the agent's approach.
    pub fn interferes(&self) -> bool {
        self.warn || self.redirect || self.fresh
    }
}

/// Stochastic agent that works on one task.
#[derive(Debug, Clone)]
pub struct SimulatedAgent<'a> {
    mix: &'a Mix,
    seed: u64,
    /// Kind of the task.
    pub kind: TaskKind,
    progress: ProgressModel,
    tests: u32,
    /// Whether the checks count tests.
    counted: bool,
    /// Checks before the first iteration.
    baseline: CheckReport,
    completion: f64,
    best: f64,
    /// Future obstacles, next one last, each with the completion at which it appears.
    future_obstacles: Vec<(f64, Obstacle)>,
    /// Current obstacle.
    obstacle: Option<Obstacle>,
    /// Completion at which the current obstacle appeared.
    obstacle_at: f64,
    /// Whether an oscillating task is in its higher state.
    high: bool,
    swing: f64,
    quality: f64,
    weakened: bool,
    error: u64,
    tree: u64,
    iteration: u32,
}

impl<'a> SimulatedAgent<'a> {
    /// Creates the agent and its task from a seed.
    pub fn new(mix: &'a Mix, seed: u64) -> Self {
        let mut random = RandomStream::new(seed, 0);
        let model = &mix.agent;
        let kinds = mix.kinds.iter().map(|(kind, weight)| (*kind, *weight));
        let kind = random.weighted(kinds).unwrap_or(TaskKind::Converging);
        let mut progress = if kind == TaskKind::Slow { model.slow } else { model.pace };
        progress.mean *= random.log_normal(progress.spread);
        let tests = model.tests.0 + random.below((model.tests.1 - model.tests.0 + 1) as usize) as u32;
        let weighted = model.obstacles.iter().map(|(obstacle, weight)| (*obstacle, *weight));
        let stuck = random.weighted(weighted).unwrap_or(Obstacle::Wall);
        let obstacle = match kind {
            TaskKind::Converging | TaskKind::Slow | TaskKind::Deceptive => None,
            TaskKind::StuckUntilRedirected => Some(stuck),
            TaskKind::StuckForGood => Some(Obstacle::Wall),
            TaskKind::Oscillating => Some(Obstacle::Seesaw),
            TaskKind::Regressing => Some(Obstacle::Rot),
        };
        let first_at = random.uniform(model.obstacle_at);
        let has_second = random.unit() < model.second_obstacle;
        let second_at = random.uniform((first_at, 1.0));
        let mut future_obstacles: Vec<_> = obstacle.map(|obstacle| (first_at, obstacle)).into_iter().collect();
        if has_second && kind != TaskKind::StuckForGood {
            future_obstacles.splice(0..0, obstacle.map(|obstacle| (second_at, obstacle)));
        }
        let swing = random.uniform(model.swing);
        let counted = random.unit() >= mix.uncounted;
        Self {
            mix,
            seed,
            kind,
            progress,
            tests,
            counted,
            baseline: checks(0, tests, true, counted),
            completion: 0.0,
            best: 0.0,
            future_obstacles,
            obstacle: None,
            obstacle_at: 0.0,
            high: false,
            swing,
            quality: 1.0,
            weakened: false,
            error: 0,
            tree: seed,
            iteration: 0,
        }
    }

    /// Whether the task is finished.
    pub fn is_done(&self) -> bool {
        self.completion >= 1.0
    }

    /// Returns the current obstacle; only oracles may use it.
    pub fn obstacle(&self) -> Option<Obstacle> {
        if self.weakened { Some(Obstacle::Shortcut) } else { self.obstacle }
    }

    /// Whether no intervention can help.
    pub fn is_hopeless(&self) -> bool {
        self.kind == TaskKind::StuckForGood
    }

    /// Probabilities that the current obstacle ends; 0 without an obstacle.
    pub fn release_chances(&self) -> ReleaseChances {
        self.obstacle().and_then(|obstacle| self.mix.agent.release.get(&obstacle)).copied().unwrap_or_default()
    }

    /// Mean number of iterations to finish the task without obstacles.
    pub fn iterations_needed(&self) -> f64 {
        (1.0 - self.completion).max(0.0) / (self.progress.mean * (1.0 - self.progress.idle))
    }

    /// Runs an iteration. Returns its record and its cost in usual iterations.
    pub fn iterate(&mut self, instructions: &Instructions) -> (Record, f64) {
        self.iteration += 1;
        let mut random = RandomStream::new(self.seed, u64::from(self.iteration));
        // Draw all of these first, so that they are the same under every policy.
        let release = random.unit();
        let fails = random.unit() < self.mix.agent.failure;
        let (idles, step) = (random.unit() < self.progress.idle, random.log_normal(self.progress.spread));
        let mut details = RandomStream::new(self.seed, u64::from(self.iteration) | 1 << 32);
        let had_obstacle = self.obstacle().is_some();
        if instructions.restore && self.best > self.completion {
            self.completion = self.best;
        }
        self.react(instructions, release);
        let crashed = fails || self.obstacle == Some(Obstacle::Crashing) && details.unit() < 0.85;
        let before = self.completion;
        if !crashed {
            let step = if idles { 0.0 } else { self.progress.mean * step * self.speed(instructions, had_obstacle) };
            self.advance(step, &mut details);
            self.weaken_checks(instructions, &mut details);
        }
        self.best = self.best.max(self.completion);
        let moved =
            !crashed && (self.completion != before || self.obstacle != Some(Obstacle::Silent) && !self.is_done());
        let cost = self.cost(instructions) * if crashed { FAILED_COST } else { 1.0 };
        (self.record(instructions, crashed, moved, cost, &mut details), cost)
    }

    /// Ends the current obstacle with the probability given by the instructions; `random` is a uniform number in 0..1.
    fn react(&mut self, instructions: &Instructions, random: f64) {
        let Some(obstacle) = self.obstacle() else { return };
        let chances = self.release_chances();
        let when = |applies: bool, chance: f64| if applies { 1.0 - chance } else { 1.0 };
        let narrow = matches!(instructions.breadth, Breadth::FirstFailure | Breadth::OneChange);
        let memory = (instructions.memory_share - MEMORY.0) / (MEMORY.1 - MEMORY.0);
        let model = &self.mix.agent;
        let effort = instructions.effort.max(0.0).powf(model.release_power.unwrap_or(model.effort_power));
        let usual = (1.0 - chances.alone)
            * when(instructions.warn, chances.warn)
            * when(instructions.redirect, chances.redirect)
            * when(instructions.fresh, chances.fresh)
            * when(instructions.guided, chances.person)
            * when(instructions.model == ModelTier::Strong, chances.strong)
            * when(narrow, chances.narrow)
            * (1.0 - chances.memory * memory.clamp(0.0, 1.0));
        let stays = usual.powf(effort);
        if instructions.redirect || instructions.fresh {
            // Half of the other approaches lead to a different error.
            self.error += u64::from(random > 0.5);
        }
        if random < stays {
            return;
        }
        match obstacle {
            Obstacle::Shortcut => self.weakened = false,
            _ if self.is_hopeless() => {}
            _ => {
                self.obstacle = None;
                self.quality = 1.0;
            }
        }
    }

    /// Factor of the usual progress.
    fn speed(&self, instructions: &Instructions, had_obstacle: bool) -> f64 {
        let model = &self.mix.agent;
        let disturbed = |applies: bool, factor: f64| if applies && !had_obstacle { factor } else { 1.0 };
        let (warned, redirected, restarted) = model.disturbed;
        let memory = ((instructions.memory_share - MEMORY.0) / (MEMORY.1 - MEMORY.0)).clamp(0.0, 1.0);
        let tier = match instructions.model {
            ModelTier::Cheap => model.model_pace.0,
            ModelTier::Default => 1.0,
            ModelTier::Strong => model.model_pace.1,
        };
        let breadth = match instructions.breadth {
            Breadth::FirstFailure => model.breadth_pace.0,
            Breadth::OneChange => model.breadth_pace.1,
            Breadth::Usual => 1.0,
            Breadth::Everything => model.breadth_pace.2,
        };
        let tone = if instructions.tone >= Urgency::High { model.urgency.0 } else { 1.0 };
        instructions.effort.max(0.0).powf(model.effort_power)
            * tier
            * breadth
            * tone
            * (1.0 + (model.memory_pace - 1.0) * memory)
            * disturbed(instructions.warn, warned)
            * disturbed(instructions.redirect, redirected)
            * disturbed(instructions.fresh, restarted)
    }

    /// Cost in usual iterations.
    fn cost(&self, instructions: &Instructions) -> f64 {
        let (cheap, strong) = self.mix.agent.model_cost;
        let variable = self.mix.agent.effort_power.clamp(0.0, 1.0);
        (1.0 - variable + variable * instructions.effort)
            * match instructions.model {
                ModelTier::Cheap => cheap,
                ModelTier::Default => 1.0,
                ModelTier::Strong => strong,
            }
    }

    /// Changes the completion: by a step up to the next obstacle, or by the current obstacle's effect.
    fn advance(&mut self, step: f64, random: &mut RandomStream) {
        match self.obstacle {
            None => {
                if step > 0.0 {
                    self.error += 1;
                }
                self.completion = (self.completion + step).min(1.0);
                if let Some((at, obstacle)) = self.future_obstacles.last().copied()
                    && self.completion >= at
                {
                    self.future_obstacles.pop();
                    self.completion = at;
                    (self.obstacle, self.obstacle_at) = (Some(obstacle), at);
                }
            }
            // Occasionally, one test more or fewer passes, without a lasting effect.
            Some(Obstacle::Wall | Obstacle::Drift) => {
                let one = 1.0 / f64::from(self.tests);
                self.completion = match random.unit() {
                    unit if unit < 0.12 => self.obstacle_at + one,
                    unit if unit < 0.2 => self.obstacle_at - one,
                    unit if unit < 0.5 => self.obstacle_at,
                    _ => self.completion,
                };
                self.completion = self.completion.clamp(0.0, 1.0 - one);
            }
            Some(Obstacle::Seesaw) => {
                self.high = !self.high;
                let swing = if self.high { self.swing } else { -self.swing } / 2.0;
                self.completion = (self.obstacle_at + swing).clamp(0.0, 0.99);
            }
            Some(Obstacle::Rot) => {
                self.completion = (self.completion - random.uniform(self.mix.agent.rot)).max(0.0);
                self.quality = (self.quality - 0.03).max(0.3);
            }
            Some(Obstacle::Silent | Obstacle::Crashing | Obstacle::Shortcut) => {}
        }
    }

    /// Weakens checks with the model's probability, in deceptive tasks only.
    fn weaken_checks(&mut self, instructions: &Instructions, random: &mut RandomStream) {
        let model = &self.mix.agent;
        let urgency = if instructions.tone >= Urgency::High { model.urgency.1 } else { 1.0 };
        let weakens = random.unit() < model.tamper * urgency;
        self.weakened |= weakens && self.kind == TaskKind::Deceptive && !self.is_done();
    }

    fn record(
        &mut self,
        instructions: &Instructions,
        crashed: bool,
        moved: bool,
        cost: f64,
        random: &mut RandomStream,
    ) -> Record {
        let model = &self.mix.agent;
        let seesaw = self.obstacle == Some(Obstacle::Seesaw);
        // Most iterations of an oscillating task restore the tree from two iterations ago.
        self.tree = match moved {
            true if seesaw && random.unit() < 0.6 => self.seed ^ (u64::from(self.high) + 1),
            true => self.tree.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(u64::from(self.iteration)),
            false => self.tree,
        };
        let flaky = if random.unit() < model.flaky { 1 + random.below(FLAKY_TESTS) as u32 } else { 0 };
        let total = if self.weakened { self.tests - self.tests / 10 } else { self.tests };
        let passing =
            if self.weakened || self.is_done() { total } else { (self.completion * f64::from(self.tests)) as u32 };
        let passing = passing.saturating_sub(flaky).min(total);
        let failing = total - passing;
        let checks = checks(passing, failing, self.quality > 0.8, self.counted);
        let count = |tests: u32| self.counted.then_some(f64::from(tests));
        let urgency = if instructions.tone >= Urgency::High { model.urgency.1 } else { 1.0 };
        let false_claim = match self.kind {
            TaskKind::Deceptive => model.false_claim.1,
            _ => model.false_claim.0,
        };
        let claim_chance = if self.is_done() { RIGHT_CLAIM } else { false_claim * urgency };
        let claims = random.unit() < claim_chance && (self.completion >= CLAIMS_FROM || self.weakened);
        let other = random.unit() >= model.same_error;
        let drifts = self.obstacle == Some(Obstacle::Drift);
        let error = format!("assertion failed in case_{}: left != right", letters(self.error * 7 + u64::from(other)));
        let named = random.unit();
        let has_obstacle = self.obstacle.is_some();
        let files: Vec<String> = match moved {
            true if drifts => (0..5).map(|_| format!("docs/pages/topic{}.md", random.below(40))).collect(),
            true if seesaw => vec![format!("src/parser/{}.rs", if self.high { "scan" } else { "tree" })],
            true => (0..2).map(|_| format!("src/parser/part{}.rs", random.below(9))).collect(),
            false => Vec::new(),
        };
        let summary = match (drifts, random.below(3)) {
            (true, _) => "Reworded the introduction of the handbook and its table of contents",
            (_, 0) => "Changed the parser so that more of its failing tests pass",
            (_, 1) => "Worked on src/parser/mod.rs, tests still fail",
            _ => "Mended a case of the parser",
        };
        Record {
            iteration: f64::from(self.iteration),
            completion: checks.completion(Some(&self.baseline), None),
            quality: self.quality,
            errors: f64::from(u8::from(failing > 0) + u8::from(crashed)) + f64::from(random.below(2) as u8),
            tests_passing: count(passing),
            tests_failing: count(failing),
            tests_skipped: count(self.tests - total),
            coverage: Some(80.0 + random.normal().clamp(-2.0, 2.0)).filter(|_| self.counted),
            error_signature: (failing > 0).then_some(error),
            failures: Vec::new(),
            blockers: (has_obstacle && named < 0.3)
                .then(|| "the tokens of the scanner are not understood".to_owned())
                .into_iter()
                .collect(),
            learnings: (!has_obstacle && named > 0.7)
                .then(|| format!("learnt about case {}", letters(self.error)))
                .into_iter()
                .collect(),
            reflection: (named < 0.4).then(|| match has_obstacle {
                true => "the approach does not lead anywhere".to_owned(),
                false => format!("case {} needs another token", letters(self.error)),
            }),
            summary: summary.to_owned(),
            files,
            tree: Some(format!("{:016x}", self.tree)),
            change: if moved { TreeChange::Agent } else { TreeChange::Nothing },
            checks: checks
                .outcomes
                .into_iter()
                .map(|check| CheckFact { passed: check.holds, baseline: Some(check.name != "test"), name: check.name })
                .collect(),
            tampering: (self.weakened && random.unit() < model.tamper_seen)
                .then(|| "tests were taken out of src/parser/tests.rs".to_owned())
                .into_iter()
                .collect(),
            agent_failure: crashed.then(|| "the run ended before it was done".to_owned()),
            duration_s: USUAL.0 * instructions.effort,
            tool_calls: USUAL.1 * instructions.effort,
            tokens_in: 0.0,
            tokens_out: 0.0,
            cost_usd: cost,
            completion_signal: claims && !crashed,
            objective_similarity: None,
        }
    }
}

/// Returns the checks of a task: build, tests, and lint.
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

/// Writes a number in letters, because supervision ignores digits in error messages.
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
