//! Plays one task under one policy, from the first iteration to the end.

use ralph_bot::domain::model::record::Record;

use super::agent::{Instructions, SimulatedAgent};
use super::mix::{Mix, TaskKind};
use super::policy::{EarlierLoops, NextStep, PolicyRun, TaskPolicy};
use super::random::RandomStream;

/// Result of a task.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TaskResult {
    /// Kind of the task.
    pub kind: TaskKind,
    /// Whether the task was accepted and finished.
    pub done: bool,
    /// Whether the task was accepted although it was unfinished.
    pub false_done: bool,
    /// Number of iterations.
    pub iterations: u32,
    /// Cost of the iterations, in usual iterations.
    pub cost: f64,
    /// Number of questions to people.
    pub asked: u32,
    /// Whether the agent has no obstacles and would finish within the limit without intervention.
    pub healthy: bool,
    /// Whether a loop without obstacles was warned, redirected, restarted, paused for a person, or given up.
    pub disturbed: bool,
}

impl TaskResult {
    /// Returns the value of the result minus its cost, in usual iterations.
    pub fn worth(&self, mix: &Mix) -> f64 {
        let values = &mix.values;
        let if_true = |condition: bool, value: f64| if condition { value } else { 0.0 };
        if_true(self.done, values.done)
            + if_true(self.false_done, values.false_done)
            + values.person * f64::from(self.asked)
            - self.cost
    }

    /// Whether no policy could have finished the task.
    pub fn is_hopeless(&self) -> bool {
        self.kind == TaskKind::StuckForGood
    }
}

/// Plays the task of a seed. `earlier` contains the repository's earlier loops, and this loop is added to it.
pub fn play(mix: &Mix, policy: &TaskPolicy, seed: u64, earlier: &mut EarlierLoops) -> TaskResult {
    let mut agent = SimulatedAgent::new(mix, seed);
    let mut run = PolicyRun::new(policy, mix, earlier);
    let mut people = RandomStream::new(seed, u64::MAX);
    let mut result = TaskResult {
        kind: agent.kind,
        done: false,
        false_done: false,
        iterations: 0,
        cost: 0.0,
        asked: 0,
        healthy: agent.kind.is_healthy() && is_done_without_intervention(agent.clone(), mix.max_iterations),
        disturbed: false,
    };
    if !run.starts(&agent, mix.max_iterations) {
        return result;
    }
    let mut history: Vec<Record> = Vec::new();
    let mut instructions = Instructions::default();
    while result.iterations < mix.max_iterations {
        let (record, cost) = agent.iterate(&instructions);
        result.iterations += 1;
        result.cost += cost;
        history.push(record.cleaned().0);
        let next_step = run.next_step(&history, &agent);
        if history.last().is_some_and(|last| run.accepts(last, &agent)) {
            (result.done, result.false_done) = (agent.is_done(), !agent.is_done());
            break;
        }
        // A loop at its limit ends without a question.
        let without_obstacles = result.kind.is_healthy() && result.iterations < mix.max_iterations;
        instructions = match next_step {
            NextStep::Stop => {
                let stops_early =
                    matches!(policy, TaskPolicy::Pipeline(_) | TaskPolicy::Stall(_) | TaskPolicy::Conformal);
                result.disturbed |= without_obstacles && stops_early;
                break;
            }
            NextStep::Continue(next) => {
                result.disturbed |= without_obstacles && next.interferes();
                next
            }
            NextStep::Ask(_) if result.iterations == mix.max_iterations => break,
            NextStep::Ask(next) => {
                result.asked += 1;
                result.disturbed |= without_obstacles;
                // Always draw both numbers, so that later ones do not depend on the policy.
                let (answers, sees) = (people.unit() < mix.person.answers, people.unit() < mix.person.sees_hopeless);
                if !answers || result.asked > mix.person.patience || agent.is_hopeless() && sees {
                    break;
                }
                run.resumed(result.iterations);
                Instructions { guided: true, ..next }
            }
        };
    }
    if result.done || result.false_done {
        earlier.finished(result.iterations);
    }
    if let Some(statistics) = run.earlier_loop(&history) {
        earlier.experience.add(statistics);
    }
    result
}

/// Whether the agent finishes within `iterations` without intervention.
fn is_done_without_intervention(mut agent: SimulatedAgent<'_>, iterations: u32) -> bool {
    (0..iterations).any(|_| agent.iterate(&Instructions::default()).0.is_finished())
}
