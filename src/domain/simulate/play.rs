//! One task under one policy, from the first iteration to the end.

use serde::{Deserialize, Serialize};

use super::agent::{Agent, Order};
use super::chance::Chance;
use super::mix::{Mix, Regime};
use super::policy::{Next, Player, Policy};
use crate::domain::model::record::Record;
use crate::domain::supervision::experience::Experience;

/// What came of a task.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Played {
    /// What sort of task it was.
    pub regime: Regime,
    /// It was called done, and was.
    pub done: bool,
    /// It was called done, and was not.
    pub false_done: bool,
    /// Iterations that it took.
    pub iterations: u32,
    /// What they cost, in usual iterations.
    pub cost: f64,
    /// Times that a person was asked.
    pub asked: u32,
    /// Nothing held the agent up, and left alone it would have been done within the limit.
    pub healthy: bool,
    /// A loop whose agent nothing held up was warned, redirected, started afresh, held for a person, or given up.
    pub disturbed: bool,
}

impl Played {
    /// What it was worth, in usual iterations.
    pub fn worth(&self, mix: &Mix) -> f64 {
        let prices = &mix.prices;
        let of = |holds: bool, price: f64| if holds { price } else { 0.0 };
        of(self.done, prices.done) + of(self.false_done, prices.false_done) + prices.person * f64::from(self.asked)
            - self.cost
    }

    /// Whether nothing could have come of it.
    pub fn is_hopeless(&self) -> bool {
        self.regime == Regime::StuckForGood
    }
}

/// Plays the task of a seed, as the next loop of a repository that had these before.
pub fn play(mix: &Mix, policy: &Policy, seed: u64, experience: &mut Experience) -> Played {
    let mut agent = Agent::of(mix, seed);
    let mut player = Player::new(policy, mix, experience);
    let mut people = Chance::of(seed, u64::MAX);
    let mut played = Played {
        regime: agent.regime,
        done: false,
        false_done: false,
        iterations: 0,
        cost: 0.0,
        asked: 0,
        healthy: agent.regime.is_healthy() && is_done_alone(agent.clone(), mix.max_iterations),
        disturbed: false,
    };
    if !player.begins(&agent, mix.max_iterations) {
        return played;
    }
    let mut history: Vec<Record> = Vec::new();
    let mut order = Order::default();
    while played.iterations < mix.max_iterations {
        let (record, cost) = agent.iterate(&order);
        played.iterations += 1;
        played.cost += cost;
        history.push(record.cleaned().0);
        let next = player.after(&history, &agent);
        if history.last().is_some_and(|last| player.accepts(last, &agent)) {
            (played.done, played.false_done) = (agent.is_done(), !agent.is_done());
            break;
        }
        // A loop whose limit is reached ends; nobody is asked for it.
        let untroubled = played.regime.is_healthy() && played.iterations < mix.max_iterations;
        order = match next {
            Next::Stop => {
                played.disturbed |= untroubled && matches!(policy, Policy::Ours(_) | Policy::Stall(_));
                break;
            }
            Next::On(order) => {
                played.disturbed |= untroubled && order.interferes();
                order
            }
            Next::Ask(_) if played.iterations == mix.max_iterations => break,
            Next::Ask(order) => {
                played.asked += 1;
                played.disturbed |= untroubled;
                // Luck is drawn whether or not it is needed.
                let (answers, sees) = (people.part() < mix.person.answers, people.part() < mix.person.sees_hopeless);
                if !answers || played.asked > mix.person.patience || agent.is_hopeless() && sees {
                    break;
                }
                player.resumed(played.iterations);
                Order { guided: true, ..order }
            }
        };
    }
    if let Some(earlier) = player.leaves(&history) {
        experience.add(earlier);
    }
    played
}

/// Whether an agent that is left alone is done within so many iterations.
fn is_done_alone(mut agent: Agent<'_>, iterations: u32) -> bool {
    (0..iterations).any(|_| agent.iterate(&Order::default()).0.is_finished())
}
