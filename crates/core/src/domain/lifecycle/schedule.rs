//! Schedule of the operator: rules that act on conditions, evaluated after each iteration, or at times, evaluated by a timer. Also
//! has the facts that these rules and the rules of `models` can use.

use super::StepContext;
use super::waits::give_back;
use crate::domain::checks::criteria::{TaskType, task_type};
use crate::domain::knowledge::intelligence::usual;
use crate::domain::lifecycle::effect::TimerEffect;
use crate::domain::loops::{EscalationCause, Loop, LoopState, LoopStopReason, TimerKind, WaitReason};
use crate::domain::model::ids::{Money, Timestamp};
use crate::domain::providers::rules::{FiredRule, Look, RuleFacts, Schedule, ScheduleState, ScheduledAction};

/// An hour, in milliseconds.
const HOUR_MS: i64 = 3_600_000;

impl Loop {
    /// Returns the facts that rules can use. `backend` is the backend that ran last or is about to run.
    pub fn rule_facts(&self, backend: &str, now: Timestamp) -> RuleFacts {
        let judged = self.judged();
        let failed = |problem: &str| !problem.is_empty();
        let ended: Vec<_> = self.retained_iterations().filter(|i| i.ended_at.is_some()).collect();
        let recent = ended.iter().filter(|i| i.ended_at.is_some_and(|at| now.since(at) <= HOUR_MS));
        let default = RuleFacts::default();
        RuleFacts {
            iteration: self.spent.iterations,
            max_iterations: self.limits.iterations.count().unwrap_or(u32::MAX),
            elapsed_minutes: u64::try_from(self.spent.time_at(now) / 60_000).unwrap_or_default(),
            consec_errors: self.agent.failures,
            error_count: u32::try_from(ended.iter().filter(|i| failed(&i.agent_problem)).count()).unwrap_or(u32::MAX),
            refused: self.refused(),
            last_error: ended.last().map(|i| i.agent_problem.clone()).filter(|problem| failed(problem)),
            cost: self.spent.cost,
            cost_hour: recent.fold(Money(0), |sum, iteration| sum.plus(iteration.cost)),
            tokens: self.spent.tokens_in.saturating_add(self.spent.tokens_out),
            completion: self.completion().get(),
            control_signal: judged.map_or(default.control_signal, |judged| judged.signal),
            urgency: judged.map_or(default.urgency, |judged| judged.urgency),
            trend: judged.map_or(default.trend, |judged| judged.trend),
            task_type: self.task_type(),
            backend: backend.to_owned(),
            context_pct: ended.last().and_then(|i| i.served.context_pct).unwrap_or_default(),
        }
    }

    /// Returns the messages of the backends that refused the last run.
    fn refused(&self) -> Vec<String> {
        let Some(last) = self.retained_iterations().next_back() else { return Vec::new() };
        // A run that every backend refused has no iteration that could end with its error.
        let waits_for = Some(&last.agent_problem).filter(|words| last.ended_at.is_none() && !words.is_empty());
        last.served.switched.iter().chain(waits_for).cloned().collect()
    }

    /// Returns the task type: as stated in a file, or else derived from title, labels and checks.
    pub fn task_type(&self) -> TaskType {
        let by_words = || task_type(self.task.text.title(), &self.task.labels, &self.checks.list);
        self.settings.policy.task_type.unwrap_or_else(by_words)
    }

    /// Returns the usual minimum and maximum number of iterations of such a task, based on its type and earlier loops.
    pub fn usual_iterations(&self) -> (u32, u32) {
        usual(self.task_type(), self.knowledge.estimate.as_ref())
    }
}

/// Applies the schedule after an iteration. Returns whether it stopped the loop.
pub(super) fn acts(turn: &mut StepContext) -> bool {
    if turn.next.settings.policy.schedule.is_empty() {
        return false;
    }
    let now = turn.now;
    let (look, backend) = look(turn, |schedule, facts, state| schedule.look(facts, now, state));
    for broken in look.broken {
        turn.because(format!("could not evaluate a rule: {broken}"));
    }
    look.firings.into_iter().any(|firing| act(turn, firing, &backend))
}

/// Sets the timer for the next cron pattern of the schedule if the loop can still act on it, else removes the timer.
pub(super) fn set_timer(turn: &mut StepContext) {
    let (now, state) = (turn.now, turn.next.state);
    let live = matches!(state, LoopState::Queued | LoopState::Running | LoopState::Waiting | LoopState::Paused);
    let Loop { settings, agent, created_at, .. } = &mut turn.next;
    let schedule = &mut agent.schedule;
    let known = schedule.clone().unwrap_or_else(|| ScheduleState::begun(*created_at));
    let at = if live { Schedule::next_time(&settings.policy.schedule, now, &known) } else { None };
    if at.is_none() && schedule.is_none() {
        return;
    }
    if schedule.insert(known).set_timer(at) {
        turn.push(match at {
            Some(at) => TimerEffect::Set { kind: TimerKind::Schedule, at },
            None => TimerEffect::Clear { kind: TimerKind::Schedule },
        });
    }
}

/// Applies the rules whose cron pattern matched, in any state in which the loop can continue.
pub(super) fn at_time(turn: &mut StepContext) {
    let now = turn.now;
    let (look, backend) = look(turn, |schedule, _, state| schedule.look_at_time(now, state));
    let before = turn.next.agent.wanted.clone();
    for firing in look.firings {
        let paused = turn.next.state == LoopState::Paused && firing.action == ScheduledAction::Pause;
        if !paused && act(turn, firing, &backend) {
            return;
        }
    }
    let waits =
        turn.next.state == LoopState::Waiting && turn.next.run.wait.is_some_and(|wait| wait.on == WaitReason::Backend);
    if waits && turn.next.agent.wanted != before {
        turn.go(LoopState::Queued, "the schedule requested another backend or model");
    }
}

/// Effect of the schedule on a run that every backend refused.
pub(super) enum RefusalHandling {
    /// The loop waits.
    Waits,
    /// A rule requested another backend or model, so the run is retried at once.
    Retried,
    /// The loop stopped.
    Stopped,
}

/// Applies the schedule to a run that every backend refused, once per wait. The iteration then does not count.
pub(super) fn act_on_refusal(turn: &mut StepContext) -> RefusalHandling {
    if turn.next.settings.policy.schedule.is_empty()
        || turn.next.run.wait.is_some_and(|wait| wait.on == WaitReason::Backend)
    {
        return RefusalHandling::Waits;
    }
    let (look, backend) = look(turn, Schedule::look_at_refusal);
    let before = turn.next.agent.wanted.clone();
    for firing in look.firings {
        if firing.action.stops() {
            give_back(turn);
        }
        if act(turn, firing, &backend) {
            return RefusalHandling::Stopped;
        }
    }
    // Once in a row: two rules must not send the loop to and fro between backends that all refuse.
    if turn.next.agent.wanted == before || turn.next.agent.limited_tries > 0 {
        return RefusalHandling::Waits;
    }
    turn.next.agent.limited_tries += 1;
    give_back(turn);
    RefusalHandling::Retried
}

/// Evaluates the schedule on the loop's current state. Returns the resulting action, and the backend that ran last.
fn look(turn: &mut StepContext, how: impl FnOnce(&Schedule, &RuleFacts, &mut ScheduleState) -> Look) -> (Look, String) {
    let backend = turn.next.current().map(|i| i.served.backend.clone()).unwrap_or_default();
    // They were checked with the configuration; the names of backends are not known here.
    let names: Vec<&str> =
        turn.next.settings.policy.schedule.iter().filter_map(|entry| entry.backend.as_deref()).collect();
    let Ok(schedule) = Schedule::compile(&turn.next.settings.policy.schedule, "schedule", &names) else {
        turn.because("the schedule that the loop started with can no longer be read");
        return (Look::default(), backend);
    };
    let facts = turn.next.rule_facts(&backend, turn.now);
    let mut state = turn.next.agent.schedule.take().unwrap_or_else(|| ScheduleState::begun(turn.next.created_at));
    let look = how(&schedule, &facts, &mut state);
    turn.next.agent.schedule = Some(state);
    (look, backend)
}

fn act(turn: &mut StepContext, firing: FiredRule, backend: &str) -> bool {
    let why = format!("{} (by the schedule: {})", firing.reason, firing.trigger);
    match firing.action {
        ScheduledAction::Pause => {
            let advice = "a rule of the service's schedule paused it; `/ralph resume` continues";
            turn.pause_and_ask(&why, EscalationCause::Schedule, advice);
            return true;
        }
        ScheduledAction::Abort => {
            turn.stop_at_best(LoopStopReason::Ended { state: LoopState::Aborted, why });
            return true;
        }
        ScheduledAction::Escalate => {
            turn.next.why.clone_from(&why);
            turn.escalate(EscalationCause::Schedule, "the loop continues; `/ralph pause` pauses it");
        }
        ScheduledAction::SwitchBackend(to) => {
            turn.next.agent.wanted.other_than = to.is_none().then(|| backend.to_owned());
            turn.next.agent.wanted.backend = to;
        }
        ScheduledAction::SetModel(model) => {
            let of = turn
                .next
                .agent
                .wanted
                .backend
                .clone()
                .or_else(|| Some(backend.to_owned()).filter(|name| !name.is_empty()));
            (turn.next.agent.wanted.model, turn.next.agent.wanted.model_of) = (Some(model), of);
        }
    }
    turn.because(why);
    false
}
