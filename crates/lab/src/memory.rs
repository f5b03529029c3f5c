//! `lab memory`: measures the value of memory. An agent plays tasks of many families, each with one working approach, under
//! three conditions: without memory, with memory, and with wrong learnings in memory. A seed makes runs reproducible.
//!
//! The agent is simulated, but its memory runs the service's code: extraction, merging, promotion, ranking and credit. Only
//! the store's search is missing: every active learning is a candidate for a prompt.

mod page;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use clap::Args;
use ralph_bot::domain::checks::criteria::TaskType;
use ralph_bot::domain::knowledge::memory::{
    AddedLearning, Content, Credit, IterationFacts, Learning, LearningCandidate, LearningEvidence, LearningQuery,
    LearningState, LoopEnding, LoopFacts, MemorySettings, Source, credit, credit_of_iteration, from_iteration,
    from_loop, rank, take_in,
};
use ralph_bot::domain::model::dispersion::Dispersion;
use ralph_bot::domain::model::ids::{ForgeName, LoopId, Money, RepoId, RepoRef, Timestamp};
use serde::Serialize;

use crate::{print, write_page};

/// Number of seeds.
const SEEDS: u64 = 10;
/// Number of task families.
const FAMILIES: usize = 20;
/// Number of approaches per family.
const APPROACHES: usize = 6;
/// Number of words that describe a family's tasks.
const SUBJECTS: usize = 6;
/// Maximum number of iterations per loop.
const MAX_ITERATIONS: u32 = 15;
/// Probability that the agent follows its prompt's advice, 0..1.
const COMPLIANCE: f64 = 0.8;
/// Number of iterations without gain after which the agent abandons an approach.
const MAX_BARREN: u32 = 2;
/// Time between two loops, in milliseconds.
const LOOP_MS: i64 = 6 * 3_600_000;

const VERBS: [&str; 12] = [
    "rewrite",
    "trace",
    "mock",
    "isolate",
    "inline",
    "regenerate",
    "bisect",
    "stub",
    "reorder",
    "serialize",
    "pin",
    "instrument",
];
const OBJECTS: [&str; 20] = [
    "parser",
    "scheduler",
    "cache",
    "session",
    "migration",
    "router",
    "encoder",
    "worker",
    "ledger",
    "template",
    "socket",
    "importer",
    "throttle",
    "webhook",
    "index",
    "renderer",
    "lockfile",
    "uploader",
    "clock",
    "pipeline",
];
const PARTS: [&str; 12] = [
    "fixture",
    "boundary",
    "timeout",
    "ordering",
    "snapshot",
    "allocation",
    "handshake",
    "rounding",
    "escaping",
    "retry",
    "checksum",
    "teardown",
];

/// Arguments of `lab memory`.
#[derive(Debug, Clone, Args)]
pub struct LabMemoryArgs {
    /// Tasks per seed
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub tasks: u32,
    /// First of the ten seeds
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Write the first part of docs/research/memory.md to this file
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Plays ten seeds and prints the figures.
///
/// # Errors
/// The output cannot be written.
pub fn run(args: &LabMemoryArgs) -> anyhow::Result<()> {
    let results = play_seeds(seeds(args.seed), args.tasks, &MemorySettings::default());
    let mut text = String::new();
    if args.json {
        for result in &results {
            text.push_str(&serde_json::to_string(result)?);
            text.push('\n');
        }
    } else {
        text = table(&results);
    }
    print(&text)?;
    match &args.markdown {
        Some(file) => write_page(file, &page::markdown(args, &results)),
        None => Ok(()),
    }
}

/// Returns the seeds to play, starting at `first`.
fn seeds(first: u64) -> RangeInclusive<u64> {
    first..=first.saturating_add(SEEDS - 1)
}

/// Memory of the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryCondition {
    /// No memory.
    Off,
    /// Learnings from the agent's own loops.
    On,
    /// Learnings from its own loops, plus wrong learnings that look well proven: in each family, they claim that the worst
    /// approach works and the best one does not.
    Poisoned,
}

impl MemoryCondition {
    const ALL: [Self; 3] = [Self::Off, Self::On, Self::Poisoned];
}

/// Results of a seed under one condition.
#[derive(Debug, Clone, PartialEq)]
struct MemoryFigures {
    /// Iterations per task; the maximum for unfinished tasks.
    iterations: Vec<u32>,
    /// Number of finished tasks.
    done: usize,
    /// Number of wrong learnings that prompts would still contain at the end.
    poison_remaining: usize,
}

impl MemoryFigures {
    /// Mean number of iterations per task.
    fn mean(&self) -> f64 {
        let sum: u32 = self.iterations.iter().sum();
        f64::from(sum) / self.iterations.len().max(1) as f64
    }

    /// Share of another condition's iterations that this condition saves; negative if it needs more.
    fn gain_over(&self, other: &Self) -> f64 {
        if other.mean() > 0.0 { 1.0 - self.mean() / other.mean() } else { 0.0 }
    }
}

/// Family of similar tasks.
struct TaskFamily {
    subject: String,
    approaches: Vec<String>,
    /// Index of the working approach.
    best: usize,
    /// Index of the approach that works half as well.
    fair: usize,
    /// Index of the worst approach.
    worst: usize,
}

/// Plays `tasks` tasks under a condition.
fn play(seed: u64, tasks: u32, condition: MemoryCondition, settings: &MemorySettings) -> MemoryFigures {
    let families = families(seed);
    let mut memory = Vec::new();
    if condition == MemoryCondition::Poisoned {
        memory.extend(families.iter().flat_map(poison));
    }
    let wrong: Vec<String> = memory.iter().map(|learning: &Learning| learning.id.clone()).collect();
    let mut figures = MemoryFigures { iterations: Vec::new(), done: 0, poison_remaining: 0 };
    let mut now = Timestamp(LOOP_MS);
    for task in 0..tasks {
        let mut random = random_of(seed, task, 0);
        let family = &families[random.usize(..FAMILIES)];
        let learns = condition != MemoryCondition::Off;
        let (memory, used) = (&mut memory, BTreeSet::new());
        let mut run = SimulatedLoop { family, seed, task, memory, settings, random, now, learns, used };
        let (iterations, done) = run.play();
        figures.iterations.push(iterations);
        figures.done += usize::from(done);
        now = now.plus_ms(LOOP_MS);
    }
    let remains = |learning: &&Learning| wrong.contains(&learning.id) && learning.is_worth_telling(settings, now);
    figures.poison_remaining = memory.iter().filter(remains).count();
    figures
}

/// Results of one seed under each condition.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct SeedFigures {
    /// Seed; `None` for the mean of all.
    seed: Option<u64>,
    /// Mean iterations per task without memory, with memory, and with wrong learnings in memory.
    iterations: [f64; 3],
    /// Share of finished tasks, in the same order, 0..1.
    done: [f64; 3],
    /// Share of iterations saved by memory, at most 1.
    gain: f64,
    /// Share of additional iterations caused by wrong learnings, relative to memory without them; negative if none.
    loss: f64,
    /// Mean number of wrong learnings that prompts would still contain at the end.
    poison_remaining: f64,
}

/// Plays `tasks` tasks per seed under each condition. The last item is the mean of all.
fn play_seeds(seeds: RangeInclusive<u64>, tasks: u32, settings: &MemorySettings) -> Vec<SeedFigures> {
    let of_seed = |seed| {
        let all = MemoryCondition::ALL.map(|condition| play(seed, tasks, condition, settings));
        let [off, on, poisoned] = &all;
        SeedFigures {
            seed: Some(seed),
            iterations: all.each_ref().map(MemoryFigures::mean),
            done: all.each_ref().map(|figures| figures.done as f64 / f64::from(tasks.max(1))),
            gain: on.gain_over(off),
            loss: -poisoned.gain_over(on),
            poison_remaining: poisoned.poison_remaining as f64,
        }
    };
    let mut results: Vec<SeedFigures> = seeds.map(of_seed).collect();
    let count = results.len().max(1) as f64;
    let mean = |value: &dyn Fn(&SeedFigures) -> f64| results.iter().map(value).sum::<f64>() / count;
    let three = |value: &dyn Fn(&SeedFigures) -> [f64; 3]| [0, 1, 2].map(|at| mean(&|one| value(one)[at]));
    let (iterations, done) = (three(&|one| one.iterations), three(&|one| one.done));
    // Ratios of sums, not means of ratios.
    let share = |fewer: f64, than: f64| if than > 0.0 { 1.0 - fewer / than } else { 0.0 };
    results.push(SeedFigures {
        seed: None,
        iterations,
        done,
        gain: share(iterations[1], iterations[0]),
        loss: -share(iterations[2], iterations[1]),
        poison_remaining: mean(&|one| one.poison_remaining),
    });
    results
}

/// Formats the results as a Markdown table.
fn table(results: &[SeedFigures]) -> String {
    let mut text = String::from(
        "| seed | iterations per task: no memory | memory | poisoned | saved by memory | lost to poison | tasks done: no memory | memory | poisoned | wrong learnings still in prompts |\n|---|---|---|---|---|---|---|---|---|---|\n",
    );
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    for SeedFigures { seed, iterations: [off, on, poisoned], done, gain, loss, poison_remaining } in results {
        let seed = seed.map_or_else(|| "all".to_owned(), |seed| seed.to_string());
        let [done_off, done_on, done_poisoned] = done.map(percent);
        let (gain, loss, wrong) = (percent(*gain), percent(*loss), 2 * FAMILIES);
        // Writing into a String never fails.
        let _ = writeln!(
            text,
            "| {seed} | {off:.2} | {on:.2} | {poisoned:.2} | {gain} | {loss} | {done_off} | {done_on} | {done_poisoned} | {poison_remaining} of {wrong} |"
        );
    }
    text
}

/// Returns the random numbers of a task's iteration, which are the same under every condition. Iteration 0 precedes the
/// first one.
fn random_of(seed: u64, task: u32, iteration: u32) -> fastrand::Rng {
    let stream = (u64::from(task) << 8) + u64::from(iteration) + 1;
    fastrand::Rng::with_seed(seed ^ stream.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// Loop of the simulated agent.
struct SimulatedLoop<'a> {
    family: &'a TaskFamily,
    seed: u64,
    task: u32,
    memory: &'a mut Vec<Learning>,
    settings: &'a MemorySettings,
    random: fastrand::Rng,
    now: Timestamp,
    learns: bool,
    /// Learnings that its prompts contained so far.
    used: BTreeSet<String>,
}

impl SimulatedLoop<'_> {
    /// Plays the loop. Returns the number of iterations and whether the task was finished.
    fn play(&mut self) -> (u32, bool) {
        let mut abandoned = vec![false; APPROACHES];
        let (mut completion, mut barren) = (0.0, 0);
        let (mut current, mut error) = (None, None);
        for iteration in 1..=MAX_ITERATIONS {
            self.random = random_of(self.seed, self.task, iteration);
            let recalled = self.recall();
            let approach = current.unwrap_or_else(|| self.choose(&recalled, &abandoned));
            let before = completion;
            completion = f64::min(completion + self.gain(approach), 1.0);
            let gain = completion - before;
            let error_after = (completion < 1.0).then(|| format!("{} fails", self.family.approaches[approach]));
            let repeated_error = error_after.clone().filter(|_| gain < 0.05);
            self.learn_from(iteration, approach, (before, completion), (error.take(), repeated_error), &recalled);
            error = error_after;
            if completion >= 1.0 {
                self.end(iteration, approach, true);
                return (iteration, true);
            }
            barren = if gain < 0.05 { barren + 1 } else { 0 };
            current = Some(approach);
            if barren >= MAX_BARREN {
                abandoned[approach] = true;
                if abandoned.iter().all(|abandoned| *abandoned) {
                    abandoned.fill(false);
                }
                (current, barren) = (None, 0);
            }
        }
        self.end(MAX_ITERATIONS, current.unwrap_or(0), false);
        (MAX_ITERATIONS, false)
    }

    /// Draws the gain in completion from an iteration with an approach.
    fn gain(&mut self, approach: usize) -> f64 {
        let (chance, lowest, highest) = match approach {
            best if best == self.family.best => (0.85, 0.25, 0.5),
            fair if fair == self.family.fair => (0.5, 0.1, 0.3),
            _ => (0.2, 0.02, 0.12),
        };
        let (random, share) = (self.random.f64(), self.random.f64());
        if random < chance { lowest + (highest - lowest) * share } else { 0.0 }
    }

    /// Chooses the next approach: the prompt's first strategy that was not abandoned, otherwise an approach without a
    /// warning.
    fn choose(&mut self, recalled: &[Learning], abandoned: &[bool]) -> usize {
        let follows = self.random.f64() < COMPLIANCE;
        let (first, approaches) = (self.random.usize(..APPROACHES), &self.family.approaches);
        let names = |learning: &&Learning, at: usize| learning.content.gist() == approaches[at];
        let open: Vec<usize> = (0..APPROACHES).map(|n| (first + n) % APPROACHES).filter(|at| !abandoned[*at]).collect();
        if follows {
            let strategies = recalled.iter().filter(|learning| matches!(learning.content, Content::Strategy { .. }));
            for strategy in strategies {
                if let Some(at) = open.iter().find(|at| names(&strategy, **at)) {
                    return *at;
                }
            }
            let warned = |at: usize| {
                let mut against = recalled.iter().filter(|one| matches!(one.content, Content::Antipattern { .. }));
                against.any(|learning| names(&learning, at))
            };
            if let Some(at) = open.iter().find(|at| !warned(**at)) {
                return *at;
            }
        }
        open.first().copied().unwrap_or(first)
    }

    fn recall(&mut self) -> Vec<Learning> {
        if !self.learns {
            return Vec::new();
        }
        let text = format!("the {} is broken", self.family.subject);
        let query = LearningQuery { text, task_type: TaskType::TestFix, repository: repository(), embedding: None };
        let found = self.memory.iter().filter(|learning| learning.is_worth_telling(self.settings, self.now));
        let found =
            found.map(|learning| LearningCandidate { learning: learning.clone(), by_words: None, by_vector: None });
        let recalled: Vec<Learning> =
            rank(&query, found.collect(), self.settings, self.now).into_iter().map(|one| one.learning).collect();
        self.used.extend(recalled.iter().map(|learning| learning.id.clone()));
        recalled
    }

    fn learn_from(
        &mut self,
        iteration: u32,
        approach: usize,
        (before, after): (f64, f64),
        (error_before, error_after): (Option<String>, Option<String>),
        recalled: &[Learning],
    ) {
        if !self.learns {
            return;
        }
        let facts = IterationFacts {
            loop_id: self.id(),
            iteration,
            repository: repository(),
            task_type: TaskType::TestFix,
            about: self.family.subject.clone(),
            approach: self.family.approaches[approach].clone(),
            tools: Vec::new(),
            resolution: Vec::new(),
            completion_before: before,
            completion_after: after,
            error_before,
            error_after,
            verified: after >= 1.0,
            tampered: false,
            agent_failed: false,
            redirected: None,
            followed: None,
        };
        // Like the store, give credit before this iteration adds learnings.
        for known in recalled {
            let outcome = credit_of_iteration(known, &facts.approach, facts.gained());
            if let Some((outcome, learning)) = outcome.zip(self.memory.iter_mut().find(|one| one.id == known.id)) {
                credit(learning, outcome, self.settings, self.now);
            }
        }
        for learning in from_iteration(&facts, self.settings, self.now) {
            self.store(learning);
        }
    }

    fn end(&mut self, iterations: u32, approach: usize, done: bool) {
        if !self.learns {
            return;
        }
        let merged = self.random.f64() < 0.85;
        let facts = LoopFacts {
            loop_id: self.id(),
            repository: repository(),
            task_type: TaskType::TestFix,
            about: self.family.subject.clone(),
            ended: match (done, merged) {
                (false, _) => LoopEnding::Failed,
                (true, true) => LoopEnding::Merged,
                (true, false) => LoopEnding::Verified,
            },
            approach: self.family.approaches[approach].clone(),
            tools: Vec::new(),
            resolution: Vec::new(),
            iterations,
            minutes: f64::from(iterations) * 6.0,
            cost: Money(0),
            comments: Vec::new(),
            guidelines: Vec::new(),
        };
        for learning in from_loop(&facts, self.settings, self.now) {
            self.store(learning);
        }
        let outcome = if done { Credit::LoopSucceeded } else { Credit::LoopFailed };
        for learning in self.memory.iter_mut().filter(|one| self.used.contains(&one.id)) {
            credit(learning, outcome, self.settings, self.now);
        }
    }

    /// Stores a learning like the store; only learnings of the same family can be merged.
    fn store(&mut self, new: Learning) {
        let subject = |learning: &Learning| learning.about.split(' ').next().map(str::to_owned);
        let near = |known: &&Learning| known.id == new.id || subject(known) == subject(&new);
        let near: Vec<Learning> = self.memory.iter().filter(near).cloned().collect();
        let changed = match take_in(new, &near, self.settings, self.now) {
            AddedLearning::Known(_) => Vec::new(),
            AddedLearning::Merged(merged) => vec![merged],
            AddedLearning::New { learning, lowered } => {
                self.memory.push(learning);
                lowered
            }
        };
        for learning in changed {
            if let Some(known) = self.memory.iter_mut().find(|known| known.id == learning.id) {
                *known = learning;
            }
        }
    }

    fn id(&self) -> LoopId {
        LoopId::new(format!("r-{}", self.task))
    }
}

fn families(seed: u64) -> Vec<TaskFamily> {
    let mut random = fastrand::Rng::with_seed(seed);
    let family = |n: usize| {
        let mut parts: Vec<&str> = PARTS.to_vec();
        random.shuffle(&mut parts);
        let object = OBJECTS[n % OBJECTS.len()];
        let subject: Vec<&str> = std::iter::once(object).chain(parts[..SUBJECTS].iter().copied()).collect();
        let mut verbs: Vec<&str> = VERBS.to_vec();
        random.shuffle(&mut verbs);
        let approaches =
            verbs.iter().take(APPROACHES).zip(&parts).map(|(verb, part)| format!("{verb} {object} {part}"));
        let mut order: Vec<usize> = (0..APPROACHES).collect();
        random.shuffle(&mut order);
        TaskFamily {
            subject: subject.join(" "),
            approaches: approaches.collect(),
            best: order[0],
            fair: order[1],
            worst: order[2],
        }
    };
    (0..FAMILIES).map(family).collect()
}

/// Returns wrong learnings that look well proven.
fn poison(family: &TaskFamily) -> [Learning; 2] {
    let strategy = Content::Strategy {
        approach: family.approaches[family.worst].clone(),
        tools: Vec::new(),
        resolution: String::new(),
        iterations: Dispersion::of(1.0),
    };
    let antipattern = Content::Antipattern {
        pattern: family.approaches[family.best].clone(),
        consequence: String::new(),
        alternative: String::new(),
    };
    [strategy, antipattern].map(|content| {
        let source = Source { loop_id: LoopId::new("r-0"), iteration: None };
        let learning = Learning::new(&repository(), TaskType::TestFix, content, 0.95, source, Timestamp(0));
        let evidence = LearningEvidence { successes: 8.0, failures: 0.0 };
        Learning { state: LearningState::Active, seen: 9, merged: true, evidence, ..learning.about(&family.subject) }
    })
}

fn repository() -> RepoRef {
    RepoRef { forge: ForgeName::new("simulated"), id: RepoId(1), owner: "team".into(), name: "app".into() }
}
