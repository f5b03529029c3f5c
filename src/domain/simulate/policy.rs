//! What decides about a loop: simple rules, the whole pipeline with or without a part, and one who knows everything.

use std::borrow::Cow;

use super::agent::{Agent, Order, TASK};
use super::mix::Mix;
use crate::domain::checks::criteria::TaskType;
use crate::domain::model::record::Record;
use crate::domain::supervision::TaskFacts;
use crate::domain::supervision::experience::{Earlier, Experience};
use crate::domain::supervision::oversight::{Decision, Kind, Level};
use crate::domain::supervision::{Evidence, Supervision, SupervisionSettings};
use crate::domain::trust::policy::PolicyLimits;

/// Completion that must be gained for a rule to see progress, 0..1.
const PROGRESS: f64 = 0.01;

/// A way to decide about loops.
#[derive(Debug, Clone, PartialEq)]
pub enum Policy {
    /// On until the checks hold, at most so many iterations.
    Fixed(u32),
    /// On until the agent says that it is done.
    Claim,
    /// No better than before for so many iterations: a fresh start, then a person, then the end.
    Stall(u32),
    /// Fresh starts after 1, 1, 2, 1, 1, 2, 4, ... times so many iterations.
    Luby(u32),
    /// Control, oversight and strategy.
    Ours(Box<Ours>),
    /// Knows what holds an agent up, and its pace, so many iterations late, and never what is hopeless.
    Late(u32),
    /// Knows what nobody can.
    Oracle,
}

/// The pipeline, and what of it is taken away or added.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Ours {
    /// Its settings.
    pub settings: SupervisionSettings,
    /// It is told what a finished task is worth; else it takes its default for it.
    pub told: bool,
    /// It is told how long such a task usually takes, by which a burn is told.
    pub estimated: bool,
    /// Sessions never start afresh.
    pub without_fresh: bool,
    /// The loop ends where a person would be asked.
    pub without_person: bool,
    /// What control, the overseer and strategy tell the agent is left out; only pauses remain.
    pub without_words: bool,
    /// Each loop is the first of its repository; else the earlier ones of the simulation were in it too.
    pub without_experience: bool,
}

/// What comes after an iteration.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Next {
    /// On, like this.
    On(Order),
    /// A person is asked; where they let it go on, it goes on like this.
    Ask(Order),
    /// The loop ends without result.
    Stop,
}

/// A policy at a loop.
#[derive(Debug, Clone)]
pub(super) struct Player<'a> {
    policy: &'a Policy,
    facts: TaskFacts,
    supervision: Supervision,
    /// Best completion, and after which iteration it was reached.
    best: (f64, u32),
    /// What the stall rule has done already.
    stage: u32,
    /// Iterations until the next fresh start, and how many there were.
    luby: (u32, u32),
    weakened: bool,
    /// Iterations that something has held it up before anything was done about it, and how often that was.
    late: (u32, u32),
    /// Iterations after which something was first done about the loop.
    disturbed_after: Option<usize>,
    /// Iterations that the loop may take, and what a finished task is worth.
    stakes: (u32, f64),
}

impl<'a> Player<'a> {
    pub(super) fn new(policy: &'a Policy, mix: &Mix, experience: &Experience) -> Self {
        let mut facts = facts(mix.max_iterations, matches!(policy, Policy::Ours(ours) if ours.estimated));
        if matches!(policy, Policy::Ours(ours) if !ours.without_experience) {
            facts.experience = experience.clone();
        }
        let luby = if let Policy::Luby(unit) = policy { (*unit, 1) } else { (0, 0) };
        Self {
            policy,
            facts,
            supervision: Supervision::default(),
            best: (0.0, 0),
            stage: 0,
            luby,
            weakened: false,
            late: (0, 0),
            disturbed_after: None,
            stakes: (mix.max_iterations, mix.prices.done),
        }
    }

    /// Whether a loop begins at all.
    pub(super) fn begins(&self, agent: &Agent<'_>, limit: u32) -> bool {
        *self.policy != Policy::Oracle || !agent.is_hopeless() && agent.needs() <= f64::from(limit)
    }

    /// Whether the loop is taken for done after its newest iteration.
    pub(super) fn accepts(&self, record: &Record, agent: &Agent<'_>) -> bool {
        match self.policy {
            Policy::Claim => record.completion_signal,
            Policy::Ours(_) => record.is_finished() && !self.weakened,
            Policy::Late(_) | Policy::Oracle => agent.is_done(),
            Policy::Fixed(_) | Policy::Stall(_) | Policy::Luby(_) => record.is_finished(),
        }
    }

    /// What comes after the newest iteration. It is asked before [`Player::accepts`].
    pub(super) fn after(&mut self, history: &[Record], agent: &Agent<'_>) -> Next {
        let Some(last) = history.last() else { return Next::Stop };
        let iteration = history.len() as u32;
        match self.policy {
            Policy::Fixed(limit) if iteration >= *limit => Next::Stop,
            Policy::Fixed(_) | Policy::Claim => Next::On(Order::default()),
            Policy::Stall(patience) => self.stall(*patience, last, iteration),
            Policy::Luby(unit) => {
                self.luby.0 = self.luby.0.saturating_sub(1);
                let fresh = self.luby.0 == 0;
                if fresh {
                    self.luby = (unit * luby(self.luby.1 + 1), self.luby.1 + 1);
                }
                Next::On(Order { fresh, ..Order::default() })
            }
            Policy::Ours(ours) => self.review(ours, history),
            Policy::Late(delay) => self.late(*delay, agent, iteration),
            Policy::Oracle => oracle(agent),
        }
    }

    /// A person lets it go on.
    pub(super) fn resumed(&mut self, iteration: u32) {
        self.best.1 = iteration;
        if let Policy::Ours(ours) = self.policy {
            self.supervision.resume(iteration, "a person", &ours.settings);
        }
    }

    /// What the loop was like, now that it has ended, as later ones are told.
    pub(super) fn leaves(&self, history: &[Record]) -> Option<Earlier> {
        let Policy::Ours(ours) = self.policy else { return None };
        Some(Earlier::of(history, self.disturbed_after, ours.settings.oversight.stride()))
    }

    /// The rule to beat, in three lines.
    fn stall(&mut self, patience: u32, last: &Record, iteration: u32) -> Next {
        if last.completion > self.best.0 + PROGRESS {
            self.best = (last.completion, iteration);
        }
        if iteration - self.best.1 < patience {
            return Next::On(Order::default());
        }
        self.best.1 = iteration;
        self.stage += 1;
        match self.stage {
            1 => Next::On(Order { fresh: true, ..Order::default() }),
            2 => Next::Ask(Order::default()),
            _ => Next::Stop,
        }
    }

    /// As soon as it sees that something holds the agent up, three times another approach, then a person, then the end; the
    /// end also where the rest does not fit or is not worth it.
    fn late(&mut self, delay: u32, agent: &Agent<'_>, iteration: u32) -> Next {
        if agent.snag().is_none() {
            self.late = (0, 0);
            let (limit, worth) = self.stakes;
            let (needs, left) = (agent.needs(), f64::from(limit.saturating_sub(iteration)));
            let in_vain = iteration >= delay && needs > left.min(worth);
            return if in_vain { Next::Stop } else { Next::On(Order::default()) };
        }
        self.late.0 += 1;
        if self.late.0 < delay {
            return Next::On(Order::default());
        }
        self.late.1 += 1;
        let anew = Order { warn: true, redirect: true, fresh: true, restore: true, ..Order::default() };
        match self.late.1 {
            1..=3 => Next::On(anew),
            4 => Next::Ask(anew),
            _ => Next::Stop,
        }
    }

    fn review(&mut self, ours: &Ours, history: &[Record]) -> Next {
        let mut settings = Cow::Borrowed(&ours.settings);
        if ours.told {
            settings.to_mut().strategy.outlook.task_worth = self.stakes.1;
        }
        let reviewed = self.supervision.review(history, &self.facts, Evidence::default(), &settings);
        let Some(review) = reviewed else { return Next::Stop };
        self.weakened = review.verdict.detections.iter().any(|found| found.kind == Kind::TestTampering);
        if review.interferes() {
            self.disturbed_after.get_or_insert(history.len());
        }
        let new = |level| review.verdict.interventions.iter().any(|done| done.fresh && done.level == level);
        let actuation = &review.control.actuation;
        let words = !ours.without_words;
        let order = Order {
            warn: words && new(Level::Warn),
            redirect: words && new(Level::Redirect),
            fresh: !ours.without_fresh && review.fresh_session(),
            guided: false,
            restore: review.verdict.restore.is_some(),
            effort: actuation.effort,
            model: review.model(),
            breadth: actuation.breadth,
            tone: actuation.tone,
            memory_share: actuation.memory_share,
        };
        match review.decision() {
            _ if review.gives_up.is_some() => Next::Stop,
            Decision::Abort => Next::Stop,
            Decision::Pause if ours.without_person => Next::Stop,
            Decision::Pause => Next::Ask(order),
            Decision::Continue | Decision::ContinueWithDirectives => Next::On(order),
        }
    }
}

/// What a real loop says of the task where no loop came before: limits of time and money in the proportion that the
/// defaults have to the limit of iterations, and, where that is asked for, how long such a task usually takes.
fn facts(max_iterations: u32, estimated: bool) -> TaskFacts {
    let limits = PolicyLimits::default();
    let scale = f64::from(max_iterations) / f64::from(limits.iterations);
    TaskFacts {
        task: TASK.to_owned(),
        max_iterations: f64::from(max_iterations),
        timeout_minutes: Some(limits.timeout_s as f64 / 60.0 * scale),
        max_cost_usd: Some(limits.cost.usd() * scale),
        estimated_iterations: estimated.then(|| f64::from(TaskType::TestFix.usual_iterations().1)),
        ..TaskFacts::default()
    }
}

/// Steps in where and only where something holds the agent up, by what promises most.
fn oracle(agent: &Agent<'_>) -> Next {
    if agent.snag().is_none() {
        return Next::On(Order::default());
    }
    let frees = agent.frees();
    let both = 1.0 - (1.0 - frees.alone) * (1.0 - frees.redirect) * (1.0 - frees.fresh) * (1.0 - frees.warn);
    if frees.person > 0.5 && both < 0.15 {
        return Next::Ask(Order::default());
    }
    Next::On(Order { warn: true, redirect: true, fresh: true, restore: true, ..Order::default() })
}

/// 1, 1, 2, 1, 1, 2, 4, ...: the n-th from 1.
fn luby(n: u32) -> u32 {
    let mut power = 1;
    while power * 2 - 1 < n {
        power *= 2;
    }
    if power * 2 - 1 == n { power } else { luby(n + 1 - power) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn luby_is_the_sequence_of_luby() {
        let first: Vec<u32> = (1..=15).map(luby).collect();
        assert_eq!(first, [1, 1, 2, 1, 1, 2, 4, 1, 1, 2, 1, 1, 2, 4, 8]);
    }
}
