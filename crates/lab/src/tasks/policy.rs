//! Policies for loops: simple rules, the pipeline with or without a part, and oracles.

use std::borrow::Cow;

use ralph_bot::domain::checks::criteria::TaskType;
use ralph_bot::domain::model::record::Record;
use ralph_bot::domain::supervision::experience::{EarlierLoop, Experience};
use ralph_bot::domain::supervision::oversight::{DetectionKind, InterventionLevel, OversightDecision};
use ralph_bot::domain::supervision::{ReviewContext, Supervision, SupervisionSettings, TaskFacts};
use ralph_bot::domain::trust::limits::Limits;

use super::agent::{Instructions, SimulatedAgent, TASK};
use super::mix::Mix;

/// Smallest increase of completion that counts as progress for the stall rule, 0..1.
const PROGRESS: f64 = 0.01;

/// Policy for loops.
#[derive(Debug, Clone, PartialEq)]
pub enum TaskPolicy {
    /// Continues until the checks pass, for at most this many iterations.
    Limit(u32),
    /// Continues until the agent reports that it is done.
    Claim,
    /// Intervenes after this many iterations without progress: first a fresh session, then a question, then the end.
    Stall(u32),
    /// Continues until the checks pass, at most for the limit that earlier loops calibrate ([`EarlierLoops::limit`]).
    Conformal,
    /// Starts fresh sessions after 1, 1, 2, 1, 1, 2, 4, ... times this many iterations.
    Luby(u32),
    /// Control, oversight and strategy.
    Pipeline(Box<PipelineVariant>),
    /// Knows obstacles and the agent's rate of progress after this many iterations, but not which tasks are hopeless.
    LateOracle(u32),
    /// Knows everything from the start; an upper bound.
    Oracle,
}

/// Number of finished loops that calibrate the limit. Later loops do not: the limit would cut them off, and lower itself.
const CALIBRATION: usize = 50;
/// Promised share of loops that the calibrated limit cuts off although they would finish, 0..1.
const MISCOVERAGE: f64 = 0.05;

/// Earlier loops of the simulated repository.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct EarlierLoops {
    /// Statistics for the pipeline.
    pub experience: Experience,
    /// Iterations of the first finished loops, at most [`CALIBRATION`].
    finished: Vec<u32>,
}

impl EarlierLoops {
    /// Adds a loop that finished its task after this number of iterations.
    pub(super) fn finished(&mut self, iterations: u32) {
        if self.finished.len() < CALIBRATION {
            self.finished.push(iterations);
        }
    }

    /// Returns the conformal limit on iterations: the ceil((n + 1) 0.95)-th smallest number of iterations of the n
    /// calibration loops; `most` until they are complete.
    pub(super) fn limit(&self, most: u32) -> u32 {
        let mut sorted = self.finished.clone();
        sorted.sort_unstable();
        let rank = ((sorted.len() + 1) as f64 * (1.0 - MISCOVERAGE)).ceil() as usize;
        let limit = sorted.get(rank - 1).filter(|_| sorted.len() == CALIBRATION);
        limit.map_or(most, |limit| most.min(*limit))
    }
}

/// Pipeline with parts removed or added.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PipelineVariant {
    /// Settings of the pipeline.
    pub settings: SupervisionSettings,
    /// Whether it stops if the rest is not worth its cost (`strategy.outlook`), and knows the value of a finished task.
    pub gives_up: bool,
    /// Whether it has an estimate of the task's iterations, which the resource burn detection needs.
    pub has_estimate: bool,
    /// Whether it never starts a fresh session.
    pub without_fresh_sessions: bool,
    /// Whether the loop ends instead of asking a person.
    pub without_people: bool,
    /// Whether the agent receives no warnings and directives, so that only pauses remain.
    pub without_directives: bool,
    /// Whether earlier loops calibrate its limit ([`EarlierLoops::limit`]).
    pub conformal: bool,
    /// Whether each loop is the first in its repository; otherwise, the simulation's earlier loops are known.
    pub without_experience: bool,
}

/// Decision after an iteration.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum NextStep {
    /// Continue with these instructions.
    Continue(Instructions),
    /// Ask a person; continue with these instructions if the person approves.
    Ask(Instructions),
    /// End the loop without a result.
    Stop,
}

/// State of a policy in one loop.
#[derive(Debug, Clone)]
pub(super) struct PolicyRun<'a> {
    policy: &'a TaskPolicy,
    facts: TaskFacts,
    supervision: Supervision,
    /// Best completion, and the iteration that reached it.
    best: (f64, u32),
    /// Number of interventions of the stall rule so far.
    stage: u32,
    /// Iterations until the next fresh session, and 1-based index of the current term of the sequence.
    luby: (u32, u32),
    tampering_detected: bool,
    /// Number of consecutive iterations with an obstacle, and of the late oracle's interventions against it.
    late: (u32, u32),
    /// Number of iterations before the first intervention.
    first_intervention: Option<usize>,
    /// Maximum number of iterations, and value of a finished task.
    stakes: (u32, f64),
    /// Number of iterations after which the loop ends.
    limit: u32,
}

impl<'a> PolicyRun<'a> {
    pub(super) fn new(policy: &'a TaskPolicy, mix: &Mix, earlier: &EarlierLoops) -> Self {
        let calibrated = match policy {
            TaskPolicy::Conformal => true,
            TaskPolicy::Pipeline(ours) => ours.conformal,
            _ => false,
        };
        let limit = if calibrated { earlier.limit(mix.max_iterations) } else { mix.max_iterations };
        let mut facts = facts(limit, matches!(policy, TaskPolicy::Pipeline(ours) if ours.has_estimate));
        if matches!(policy, TaskPolicy::Pipeline(ours) if !ours.without_experience) {
            facts.experience = earlier.experience.clone();
        }
        let luby = if let TaskPolicy::Luby(unit) = policy { (*unit, 1) } else { (0, 0) };
        Self {
            policy,
            facts,
            supervision: Supervision::default(),
            best: (0.0, 0),
            stage: 0,
            luby,
            tampering_detected: false,
            late: (0, 0),
            first_intervention: None,
            stakes: (mix.max_iterations, mix.values.done),
            limit,
        }
    }

    /// Whether the policy starts a loop for the task.
    pub(super) fn starts(&self, agent: &SimulatedAgent<'_>, limit: u32) -> bool {
        *self.policy != TaskPolicy::Oracle || !agent.is_hopeless() && agent.iterations_needed() <= f64::from(limit)
    }

    /// Whether the policy accepts the work after the last iteration.
    pub(super) fn accepts(&self, record: &Record, agent: &SimulatedAgent<'_>) -> bool {
        match self.policy {
            TaskPolicy::Claim => record.completion_signal,
            TaskPolicy::Pipeline(_) => record.is_finished() && !self.tampering_detected,
            TaskPolicy::LateOracle(_) | TaskPolicy::Oracle => agent.is_done(),
            TaskPolicy::Limit(_) | TaskPolicy::Conformal | TaskPolicy::Stall(_) | TaskPolicy::Luby(_) => {
                record.is_finished()
            }
        }
    }

    /// Decides after the last iteration; call it before [`PolicyRun::accepts`].
    pub(super) fn next_step(&mut self, history: &[Record], agent: &SimulatedAgent<'_>) -> NextStep {
        let Some(last) = history.last() else { return NextStep::Stop };
        let iteration = history.len() as u32;
        match self.policy {
            TaskPolicy::Limit(limit) if iteration >= *limit => NextStep::Stop,
            TaskPolicy::Conformal if iteration >= self.limit => NextStep::Stop,
            TaskPolicy::Limit(_) | TaskPolicy::Claim | TaskPolicy::Conformal => {
                NextStep::Continue(Instructions::default())
            }
            TaskPolicy::Stall(limit) => self.stall(*limit, last, iteration),
            TaskPolicy::Luby(unit) => {
                self.luby.0 = self.luby.0.saturating_sub(1);
                let fresh = self.luby.0 == 0;
                if fresh {
                    self.luby = (unit * luby(self.luby.1 + 1), self.luby.1 + 1);
                }
                NextStep::Continue(Instructions { fresh, ..Instructions::default() })
            }
            TaskPolicy::Pipeline(ours) => self.review(ours, history),
            TaskPolicy::LateOracle(delay) => self.late(*delay, agent, iteration),
            TaskPolicy::Oracle => oracle(agent),
        }
    }

    /// Records that a person approved the loop.
    pub(super) fn resumed(&mut self, iteration: u32) {
        self.best.1 = iteration;
        if let TaskPolicy::Pipeline(ours) = self.policy {
            self.supervision.resume(iteration, "a person", &ours.settings);
        }
    }

    /// Returns the statistics of the ended loop for later loops of the repository; `None` if the policy does not use them.
    pub(super) fn earlier_loop(&self, history: &[Record]) -> Option<EarlierLoop> {
        let TaskPolicy::Pipeline(ours) = self.policy else { return None };
        Some(EarlierLoop::of(history, self.first_intervention, ours.settings.oversight.step_threshold()))
    }

    /// Stall rule: the baseline that the pipeline must beat.
    fn stall(&mut self, limit: u32, last: &Record, iteration: u32) -> NextStep {
        if last.completion.get() > self.best.0 + PROGRESS {
            self.best = (last.completion.get(), iteration);
        }
        if iteration - self.best.1 < limit {
            return NextStep::Continue(Instructions::default());
        }
        self.best.1 = iteration;
        self.stage += 1;
        match self.stage {
            1 => NextStep::Continue(Instructions { fresh: true, ..Instructions::default() }),
            2 => NextStep::Ask(Instructions::default()),
            _ => NextStep::Stop,
        }
    }

    /// Late oracle: three redirects against an obstacle, then a question, then the end. Also ends the loop if the remaining
    /// work exceeds the limit or costs more than the task is worth.
    fn late(&mut self, delay: u32, agent: &SimulatedAgent<'_>, iteration: u32) -> NextStep {
        if agent.obstacle().is_none() {
            self.late = (0, 0);
            let (limit, worth) = self.stakes;
            let (needed, remaining) = (agent.iterations_needed(), f64::from(limit.saturating_sub(iteration)));
            let hopeless = iteration >= delay && needed > remaining.min(worth);
            return if hopeless { NextStep::Stop } else { NextStep::Continue(Instructions::default()) };
        }
        self.late.0 += 1;
        if self.late.0 < delay {
            return NextStep::Continue(Instructions::default());
        }
        self.late.1 += 1;
        let redirect =
            Instructions { warn: true, redirect: true, fresh: true, restore: true, ..Instructions::default() };
        match self.late.1 {
            1..=3 => NextStep::Continue(redirect),
            4 => NextStep::Ask(redirect),
            _ => NextStep::Stop,
        }
    }

    fn review(&mut self, ours: &PipelineVariant, history: &[Record]) -> NextStep {
        let mut settings = Cow::Borrowed(&ours.settings);
        if ours.gives_up {
            let outlook = &mut settings.to_mut().strategy.outlook;
            (outlook.enabled, outlook.task_value) = (true, self.stakes.1);
        }
        let reviewed = self.supervision.review(history, &self.facts, ReviewContext::default(), &settings);
        let Some(review) = reviewed else { return NextStep::Stop };
        self.tampering_detected =
            review.verdict.detections.iter().any(|found| found.kind == DetectionKind::TestTampering);
        if review.interferes() {
            self.first_intervention.get_or_insert(history.len());
        }
        let new = |level| review.verdict.interventions.iter().any(|done| done.fresh && done.level == level);
        let actuation = &review.control.actuation;
        let directives = !ours.without_directives;
        let instructions = Instructions {
            warn: directives && new(InterventionLevel::Warn),
            redirect: directives && new(InterventionLevel::Redirect),
            fresh: !ours.without_fresh_sessions && review.fresh_session(),
            guided: false,
            restore: review.verdict.restore.is_some(),
            effort: actuation.effort,
            model: review.model(),
            breadth: actuation.breadth,
            tone: actuation.tone,
            memory_share: actuation.memory_share,
        };
        match review.decision() {
            _ if review.gives_up.is_some() || history.len() as u32 >= self.limit => NextStep::Stop,
            OversightDecision::Abort => NextStep::Stop,
            OversightDecision::Pause if ours.without_people => NextStep::Stop,
            OversightDecision::Pause => NextStep::Ask(instructions),
            OversightDecision::Continue | OversightDecision::ContinueWithDirectives => NextStep::Continue(instructions),
        }
    }
}

/// Facts about the task that a real loop has without earlier loops: the default limits of time and cost, scaled to the
/// iteration limit, and the usual number of iterations if `estimated`.
fn facts(max_iterations: u32, estimated: bool) -> TaskFacts {
    let limits = Limits::default();
    let scale = f64::from(max_iterations) / limits.iterations.as_f64();
    TaskFacts {
        task: TASK.to_owned(),
        max_iterations: f64::from(max_iterations),
        timeout_minutes: Some(limits.timeout.as_seconds() as f64 / 60.0 * scale),
        max_cost_usd: Some(limits.cost_usd.0.usd() * scale),
        estimated_iterations: estimated.then(|| f64::from(TaskType::TestFix.usual_iterations().1)),
        ..TaskFacts::default()
    }
}

/// Oracle: intervenes only against an obstacle, with the intervention that most likely ends it.
fn oracle(agent: &SimulatedAgent<'_>) -> NextStep {
    if agent.obstacle().is_none() {
        return NextStep::Continue(Instructions::default());
    }
    let chances = agent.release_chances();
    let both = 1.0 - (1.0 - chances.alone) * (1.0 - chances.redirect) * (1.0 - chances.fresh) * (1.0 - chances.warn);
    if chances.person > 0.5 && both < 0.15 {
        return NextStep::Ask(Instructions::default());
    }
    NextStep::Continue(Instructions {
        warn: true,
        redirect: true,
        fresh: true,
        restore: true,
        ..Instructions::default()
    })
}

/// Returns the n-th term (1-based) of the Luby sequence 1, 1, 2, 1, 1, 2, 4, ...
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
    fn luby_returns_the_luby_sequence() {
        let first: Vec<u32> = (1..=15).map(luby).collect();
        assert_eq!(first, [1, 1, 2, 1, 1, 2, 4, 1, 1, 2, 1, 1, 2, 4, 8]);
    }
}
