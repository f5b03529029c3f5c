//! Does memory help? Tasks of many families, in each of which one approach works and others do not, played by an agent
//! without memory, with memory, and with memory full of wrong learnings. From a seed, so that it repeats.
//!
//! The agent is simulated; what it remembers goes through the real thing: extraction, merging, promotion, ranking and
//! credit. Only the store's look-up is not there: every learning that is believed comes into question for a prompt.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::ops::RangeInclusive;

use serde::Serialize;

use super::{
    Content, Credit, IterationFacts, Learning, LearningCandidate, LearningEvidence, LearningQuery, LearningState,
    LoopEnding, LoopFacts, MemorySettings, Source, Taken, credit, credit_of_iteration, from_iteration, from_loop, rank,
    take_in,
};
use crate::domain::checks::criteria::TaskType;
use crate::domain::model::ids::{ForgeName, LoopId, Money, RepoId, RepoRef, Timestamp};

/// Families of tasks.
const FAMILIES: usize = 20;
/// Approaches in each.
const APPROACHES: usize = 6;
/// Words that the tasks of a family are about.
const SUBJECTS: usize = 6;
/// Most iterations of a loop.
const MAX_ITERATIONS: u32 = 15;
/// Share of its prompts' advice that the agent follows.
const COMPLIANCE: f64 = 0.8;
/// Iterations without gain after which the agent gives an approach up.
const PATIENCE: u32 = 2;
/// Time from one loop to the next.
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
    "serialise",
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

/// What the agent remembers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// Nothing.
    Off,
    /// What it learnt.
    On,
    /// What it learnt, beside learnings that are wrong and look well proven: in each family, that the worst approach
    /// works, and that the best one does not.
    Poisoned,
}

impl Condition {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Off, Self::On, Self::Poisoned];
}

/// What the tasks came to.
#[derive(Debug, Clone, PartialEq)]
pub struct Figures {
    /// Iterations that each task took; the most that are allowed where it was never done.
    pub iterations: Vec<u32>,
    /// Tasks that were done.
    pub done: usize,
    /// Wrong learnings that a prompt would still carry at the end.
    pub poison_left: usize,
}

impl Figures {
    /// Mean iterations of a task.
    pub fn mean(&self) -> f64 {
        let sum: u32 = self.iterations.iter().sum();
        f64::from(sum) / self.iterations.len().max(1) as f64
    }

    /// Share of the iterations of another condition that this one saves; below 0 it takes more.
    pub fn gain_over(&self, other: &Self) -> f64 {
        if other.mean() > 0.0 { 1.0 - self.mean() / other.mean() } else { 0.0 }
    }
}

/// A sort of tasks.
struct Family {
    subject: String,
    approaches: Vec<String>,
    /// The approach that works, the one that works by half, and the worst.
    best: usize,
    fair: usize,
    worst: usize,
}

/// Plays so many tasks under a condition.
pub fn play(seed: u64, tasks: u32, condition: Condition, settings: &MemorySettings) -> Figures {
    let families = families(seed);
    let mut memory = Vec::new();
    if condition == Condition::Poisoned {
        memory.extend(families.iter().flat_map(poison));
    }
    let wrong: Vec<String> = memory.iter().map(|learning: &Learning| learning.id.clone()).collect();
    let mut figures = Figures { iterations: Vec::new(), done: 0, poison_left: 0 };
    let mut now = Timestamp(LOOP_MS);
    for task in 0..tasks {
        let mut luck = luck_of(seed, task, 0);
        let family = &families[luck.usize(..FAMILIES)];
        let learns = condition != Condition::Off;
        let (memory, carried) = (&mut memory, BTreeSet::new());
        let mut run = Loop { family, seed, task, memory, settings, luck, now, learns, carried };
        let (iterations, done) = run.play();
        figures.iterations.push(iterations);
        figures.done += usize::from(done);
        now = now.plus_ms(LOOP_MS);
    }
    let told = |learning: &&Learning| wrong.contains(&learning.id) && learning.is_worth_telling(settings, now);
    figures.poison_left = memory.iter().filter(told).count();
    figures
}

/// What one seed came to under each condition.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    /// The seed; `None` for all together.
    pub seed: Option<u64>,
    /// Mean iterations of a task without memory, with it, and with wrong learnings in it.
    pub iterations: [f64; 3],
    /// Share of the tasks that were done, in the same order, 0..1.
    pub done: [f64; 3],
    /// Share of the iterations that memory saves.
    pub gain: f64,
    /// Share of iterations more that wrong learnings cost, against memory without them; below 0 they cost none.
    pub loss: f64,
    /// Wrong learnings that a prompt would still carry at the end, mean.
    pub poison_left: f64,
}

/// Plays so many tasks from each seed under each condition; the last outcome is the mean of all.
pub fn outcomes(seeds: RangeInclusive<u64>, tasks: u32, settings: &MemorySettings) -> Vec<Outcome> {
    let of_seed = |seed| {
        let all = Condition::ALL.map(|condition| play(seed, tasks, condition, settings));
        let [off, on, poisoned] = &all;
        Outcome {
            seed: Some(seed),
            iterations: all.each_ref().map(Figures::mean),
            done: all.each_ref().map(|figures| figures.done as f64 / f64::from(tasks.max(1))),
            gain: on.gain_over(off),
            loss: -poisoned.gain_over(on),
            poison_left: poisoned.poison_left as f64,
        }
    };
    let mut outcomes: Vec<Outcome> = seeds.map(of_seed).collect();
    let count = outcomes.len().max(1) as f64;
    let mean = |value: &dyn Fn(&Outcome) -> f64| outcomes.iter().map(value).sum::<f64>() / count;
    let three = |value: &dyn Fn(&Outcome) -> [f64; 3]| [0, 1, 2].map(|at| mean(&|one| value(one)[at]));
    let (iterations, done) = (three(&|one| one.iterations), three(&|one| one.done));
    // Shares of the sums, not means of shares.
    let share = |fewer: f64, than: f64| if than > 0.0 { 1.0 - fewer / than } else { 0.0 };
    outcomes.push(Outcome {
        seed: None,
        iterations,
        done,
        gain: share(iterations[1], iterations[0]),
        loss: -share(iterations[2], iterations[1]),
        poison_left: mean(&|one| one.poison_left),
    });
    outcomes
}

/// Outcomes as a table in Markdown.
pub fn table(outcomes: &[Outcome]) -> String {
    let mut text = String::from(
        "| seed | iterations a task: no memory | memory | poisoned | saved by memory | lost through poison | tasks done: no memory | memory | poisoned | wrong learnings still told |\n|---|---|---|---|---|---|---|---|---|---|\n",
    );
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    for Outcome { seed, iterations: [off, on, poisoned], done, gain, loss, poison_left } in outcomes {
        let seed = seed.map_or_else(|| "all".to_owned(), |seed| seed.to_string());
        let [done_off, done_on, done_poisoned] = done.map(percent);
        let (gain, loss, wrong) = (percent(*gain), percent(*loss), 2 * FAMILIES);
        // Writing into a String never fails.
        let _ = writeln!(
            text,
            "| {seed} | {off:.2} | {on:.2} | {poisoned:.2} | {gain} | {loss} | {done_off} | {done_on} | {done_poisoned} | {poison_left} of {wrong} |"
        );
    }
    text
}

/// Luck of an iteration of a task, the same under every condition, whatever was done before it; 0 is before the first.
fn luck_of(seed: u64, task: u32, iteration: u32) -> fastrand::Rng {
    let place = (u64::from(task) << 8) + u64::from(iteration) + 1;
    fastrand::Rng::with_seed(seed ^ place.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

struct Loop<'a> {
    family: &'a Family,
    seed: u64,
    task: u32,
    memory: &'a mut Vec<Learning>,
    settings: &'a MemorySettings,
    luck: fastrand::Rng,
    now: Timestamp,
    learns: bool,
    /// Learnings that any of its prompts carried.
    carried: BTreeSet<String>,
}

impl Loop<'_> {
    /// Iterations, and whether it was done.
    fn play(&mut self) -> (u32, bool) {
        let mut given_up = vec![false; APPROACHES];
        let (mut completion, mut barren) = (0.0, 0);
        let (mut approach, mut error) = (None, None);
        for iteration in 1..=MAX_ITERATIONS {
            self.luck = luck_of(self.seed, self.task, iteration);
            // Each prompt carries what is believed by then.
            let told = self.recall();
            let tried = approach.unwrap_or_else(|| self.choose(&told, &given_up));
            let before = completion;
            completion = f64::min(completion + self.gain(tried), 1.0);
            let gain = completion - before;
            let error_after = (completion < 1.0).then(|| format!("{} fails", self.family.approaches[tried]));
            let same_again = error_after.clone().filter(|_| gain < 0.05);
            self.learn_from(iteration, tried, (before, completion), (error.take(), same_again), &told);
            error = error_after;
            if completion >= 1.0 {
                self.end(iteration, tried, true);
                return (iteration, true);
            }
            barren = if gain < 0.05 { barren + 1 } else { 0 };
            approach = Some(tried);
            if barren >= PATIENCE {
                given_up[tried] = true;
                if given_up.iter().all(|all| *all) {
                    given_up.fill(false);
                }
                (approach, barren) = (None, 0);
            }
        }
        self.end(MAX_ITERATIONS, approach.unwrap_or(0), false);
        (MAX_ITERATIONS, false)
    }

    /// Completion that an iteration of an approach gains.
    fn gain(&mut self, approach: usize) -> f64 {
        let (chance, least, most) = match approach {
            best if best == self.family.best => (0.85, 0.25, 0.5),
            fair if fair == self.family.fair => (0.5, 0.1, 0.3),
            _ => (0.2, 0.02, 0.12),
        };
        let (luck, share) = (self.luck.f64(), self.luck.f64());
        if luck < chance { least + (most - least) * share } else { 0.0 }
    }

    /// What the agent tries next: the first strategy of its prompt that it has not given up, else anything that its
    /// prompt does not warn of.
    fn choose(&mut self, carried: &[Learning], given_up: &[bool]) -> usize {
        let heeds = self.luck.f64() < COMPLIANCE;
        let (first, approaches) = (self.luck.usize(..APPROACHES), &self.family.approaches);
        let says = |learning: &&Learning, at: usize| learning.content.gist() == approaches[at];
        let open: Vec<usize> = (0..APPROACHES).map(|n| (first + n) % APPROACHES).filter(|at| !given_up[*at]).collect();
        if heeds {
            let strategies = carried.iter().filter(|learning| matches!(learning.content, Content::Strategy { .. }));
            for strategy in strategies {
                if let Some(at) = open.iter().find(|at| says(&strategy, **at)) {
                    return *at;
                }
            }
            let warned = |at: usize| {
                let mut against = carried.iter().filter(|one| matches!(one.content, Content::Antipattern { .. }));
                against.any(|learning| says(&learning, at))
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
        let told: Vec<Learning> =
            rank(&query, found.collect(), self.settings, self.now).into_iter().map(|one| one.learning).collect();
        self.carried.extend(told.iter().map(|learning| learning.id.clone()));
        told
    }

    fn learn_from(
        &mut self,
        iteration: u32,
        approach: usize,
        (before, after): (f64, f64),
        (error_before, error_after): (Option<String>, Option<String>),
        told: &[Learning],
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
        };
        // What the prompt carried is judged before this iteration adds to it, as in the store.
        for known in told {
            let said = credit_of_iteration(known, &facts.approach, facts.gained());
            if let Some((said, learning)) = said.zip(self.memory.iter_mut().find(|one| one.id == known.id)) {
                credit(learning, said, self.settings, self.now);
            }
        }
        for learning in from_iteration(&facts, self.settings, self.now) {
            self.keep(learning);
        }
    }

    fn end(&mut self, iterations: u32, approach: usize, done: bool) {
        if !self.learns {
            return;
        }
        let merged = self.luck.f64() < 0.85;
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
            self.keep(learning);
        }
        let outcome = if done { Credit::LoopSucceeded } else { Credit::LoopFailed };
        for learning in self.memory.iter_mut().filter(|one| self.carried.contains(&one.id)) {
            credit(learning, outcome, self.settings, self.now);
        }
    }

    /// Keeps what was learnt, as the store does it; those that it may be one with are those of its family.
    fn keep(&mut self, new: Learning) {
        let subject = |learning: &Learning| learning.about.split(' ').next().map(str::to_owned);
        let near = |known: &&Learning| known.id == new.id || subject(known) == subject(&new);
        let near: Vec<Learning> = self.memory.iter().filter(near).cloned().collect();
        let changed = match take_in(new, &near, self.settings, self.now) {
            Taken::Known(_) => Vec::new(),
            Taken::Merged(merged) => vec![merged],
            Taken::New { learning, lowered } => {
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

fn families(seed: u64) -> Vec<Family> {
    let mut luck = fastrand::Rng::with_seed(seed);
    let family = |n: usize| {
        let mut parts: Vec<&str> = PARTS.to_vec();
        luck.shuffle(&mut parts);
        let object = OBJECTS[n % OBJECTS.len()];
        let subject: Vec<&str> = std::iter::once(object).chain(parts[..SUBJECTS].iter().copied()).collect();
        let mut verbs: Vec<&str> = VERBS.to_vec();
        luck.shuffle(&mut verbs);
        let approaches =
            verbs.iter().take(APPROACHES).zip(&parts).map(|(verb, part)| format!("{verb} {object} {part}"));
        let mut order: Vec<usize> = (0..APPROACHES).collect();
        luck.shuffle(&mut order);
        Family {
            subject: subject.join(" "),
            approaches: approaches.collect(),
            best: order[0],
            fair: order[1],
            worst: order[2],
        }
    };
    (0..FAMILIES).map(family).collect()
}

/// Wrong learnings that look well proven.
fn poison(family: &Family) -> [Learning; 2] {
    let strategy = Content::Strategy {
        approach: family.approaches[family.worst].clone(),
        tools: Vec::new(),
        resolution: String::new(),
        iterations: crate::domain::model::dispersion::Dispersion::of(1.0),
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
