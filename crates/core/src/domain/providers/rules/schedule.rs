//! Schedule: rules with triggers and actions, evaluated after each iteration, and at the times of their cron patterns.
//!
//! A condition that stays true fires once, and can fire again after it was false. No times of `cron` and no iterations are
//! missed, because every evaluation considers all changes since the previous one.

mod cron;
mod state;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::models::{INVALID_NAME, valid_model_name};
use super::{CompiledCondition, RuleFacts, RuleOutcome, RuleProblem};
use crate::domain::model::ids::Timestamp;
use crate::domain::model::settings::{did_you_mean, shortened};

use cron::Cron;
use state::ElapsedSinceLook;
pub use state::ScheduleState;

/// Maximum length of a reason, in characters.
const REASON_MAX: usize = 300;

/// Triggers of a rule; any one of them is sufficient.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Trigger {
    /// A condition such as `cost > 10.0`; fires when it becomes true.
    pub when: Option<String>,
    /// Number of the iteration after which the rule fires.
    pub at_iteration: Option<u32>,
    /// Number of iterations after each of which the rule fires.
    pub every_iterations: Option<u32>,
    /// Text in the error of a failed run, or in the message of a backend that refused a run, such as `rate_limit`; ignores
    /// case, and `_` also matches a space.
    pub on_error: Option<String>,
    /// Cron pattern with five fields, in UTC: `0 9 * * MON-FRI`. Fires while a loop is queued, running, waiting or paused.
    pub cron: Option<String>,
}

/// Action of a rule, as written in the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ActionName {
    /// Pauses the loop until a person resumes it.
    Pause,
    /// Ends the loop.
    Abort,
    /// Changes to another backend.
    SwitchBackend,
    /// Requests another model.
    SetModel,
    /// Notifies people.
    Escalate,
}

/// Rule of a schedule, as written in the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScheduleEntry {
    /// Triggers.
    pub trigger: Trigger,
    /// Action.
    pub action: ActionName,
    /// Backend for `switch_backend`; the next one if omitted.
    #[serde(default)]
    pub backend: Option<String>,
    /// Model for `set_model`.
    #[serde(default)]
    pub model: Option<String>,
    /// Reason, shown to people; the trigger by default.
    #[serde(default)]
    pub reason: Option<String>,
}

/// Action of a rule, with its argument.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScheduledAction {
    /// Pauses the loop until a person resumes it.
    Pause,
    /// Ends the loop.
    Abort,
    /// Continues with this backend, or with the next one if it is `None`.
    SwitchBackend(Option<String>),
    /// Requests this model.
    SetModel(String),
    /// Notifies people.
    Escalate,
}

impl ScheduledAction {
    /// Whether the action prevents the next iteration.
    pub fn stops(&self) -> bool {
        matches!(self, Self::Pause | Self::Abort)
    }
}

/// Rule that fires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FiredRule {
    /// 0-based index of the rule.
    pub rule: usize,
    /// Action.
    pub action: ScheduledAction,
    /// Reason, shown to people: the configured one, or else the trigger.
    pub reason: String,
    /// Trigger that fired, such as `cost > 10`, `iteration 5` or `0 9 * * *`.
    pub trigger: String,
}

/// Result of evaluating a schedule.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Look {
    /// Rules that fire, in the order of the schedule.
    pub firings: Vec<FiredRule>,
    /// Rules that could not be evaluated and have no effect, one sentence each.
    pub broken: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
struct CompiledEntry {
    /// Key under which the state of the rule's condition is stored.
    key: String,
    when: Option<CompiledCondition>,
    at_iteration: Option<u32>,
    every_iterations: Option<u32>,
    /// Error text to search for, as normalized by [`compared`].
    on_error: Option<String>,
    cron: Option<Cron>,
    action: ScheduledAction,
    reason: Option<String>,
}

/// Compiled rules that pause, end or change a loop.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Schedule {
    entries: Vec<CompiledEntry>,
}

impl Schedule {
    /// Compiles rules. `key` is the path of the section (`schedule`). `backends` has the names of all configured backends.
    ///
    /// # Errors
    /// All problems of the rules, each with its path.
    pub fn compile(entries: &[ScheduleEntry], key: &str, backends: &[&str]) -> Result<Self, Vec<RuleProblem>> {
        let mut compiled = Vec::new();
        let mut problems = Vec::new();
        for (index, entry) in entries.iter().enumerate() {
            let key = format!("{key}[{index}]");
            let before = problems.len();
            let action = action_of(entry, &key, backends, &mut problems);
            let trigger = trigger_of(&entry.trigger, &key, &mut problems);
            if let Some(reason) = entry.reason.as_ref().filter(|reason| reason.chars().count() > REASON_MAX) {
                let length = reason.chars().count();
                let message = format!("has {length} characters; at most {REASON_MAX} are allowed");
                problems.push(RuleProblem::whole(format!("{key}.reason"), message));
            }
            if let (Some(action), (when, cron), true) = (action, trigger, problems.len() == before) {
                let Trigger { at_iteration, every_iterations, ref on_error, .. } = entry.trigger;
                compiled.push(CompiledEntry {
                    key: format!("{action:?} {}", entry.trigger.when.as_deref().unwrap_or_default()),
                    when,
                    at_iteration,
                    every_iterations,
                    on_error: on_error.as_deref().map(compared),
                    cron,
                    action,
                    reason: entry.reason.clone(),
                });
            }
        }
        if problems.is_empty() { Ok(Self { entries: compiled }) } else { Err(problems) }
    }

    /// Returns the rules that fire now, considering all changes since the last evaluation. `state` is stored with the loop; each
    /// schedule has its own.
    pub fn look(&self, facts: &RuleFacts, now: Timestamp, state: &mut ScheduleState) -> Look {
        let since = state.advance(facts, now);
        let mut look = Look::default();
        let mut held = Vec::new();
        for (index, entry) in self.entries.iter().enumerate() {
            let was_true = state.holds(&entry.key);
            let mut fired = None;
            if let Some(when) = &entry.when {
                let is_true = match when.evaluate(facts) {
                    RuleOutcome::Holds => true,
                    RuleOutcome::Fails => false,
                    RuleOutcome::Broken(reason) => {
                        let sentence = format!("rule {} of the schedule (`{}`)", index + 1, when.text());
                        look.broken.push(format!("{sentence} has no effect: {reason}"));
                        was_true
                    }
                };
                if is_true {
                    held.push(entry.key.clone());
                    fired = (!was_true).then(|| when.text().to_owned());
                }
            }
            if let Some(trigger) = fired.or_else(|| entry.trigger_reason(facts, &since)) {
                let reason = entry.reason.clone().unwrap_or_else(|| trigger.clone());
                look.firings.push(FiredRule { rule: index, action: entry.action.clone(), reason, trigger });
            }
        }
        state.remember(held);
        look
    }

    /// Returns the rules whose cron pattern matched since the last evaluation. Other triggers wait for the end of an iteration.
    pub fn look_at_time(&self, now: Timestamp, state: &mut ScheduleState) -> Look {
        let since = state.advance_time(now);
        let firing = |(rule, entry): (usize, &CompiledEntry)| {
            let trigger = entry.time_reason(since, now)?;
            let reason = entry.reason.clone().unwrap_or_else(|| trigger.clone());
            Some(FiredRule { rule, action: entry.action.clone(), reason, trigger })
        };
        Look { firings: self.entries.iter().enumerate().filter_map(firing).collect(), broken: Vec::new() }
    }

    /// Returns the first time after the last evaluation that a cron pattern of these rules matches; `None` if no rule has one.
    pub fn next_time(entries: &[ScheduleEntry], now: Timestamp, state: &ScheduleState) -> Option<Timestamp> {
        let patterns = entries.iter().filter_map(|entry| Cron::compile(entry.trigger.cron.as_deref()?).ok());
        patterns.filter_map(|cron| cron.next_after(state.moment(now))).min()
    }

    /// Returns the rules that fire for a run that every backend refused. Only `on_error` is evaluated, because no iteration has
    /// ended.
    pub fn look_at_refusal(&self, facts: &RuleFacts, state: &mut ScheduleState) -> Look {
        let errors = Some(facts.refused.join("\n")).filter(|errors| state.meets(Some(errors)));
        let firing = |(rule, entry): (usize, &CompiledEntry)| {
            let trigger = entry.is_in(errors.as_deref()?)?;
            let reason = entry.reason.clone().unwrap_or_else(|| trigger.clone());
            Some(FiredRule { rule, action: entry.action.clone(), reason, trigger })
        };
        Look { firings: self.entries.iter().enumerate().filter_map(firing).collect(), broken: Vec::new() }
    }
}

impl CompiledEntry {
    /// Returns the trigger of this rule that fired since the last evaluation; `None` if none did.
    fn trigger_reason(&self, facts: &RuleFacts, since: &ElapsedSinceLook) -> Option<String> {
        let iterations = since.iteration..facts.iteration;
        if let Some(at) = self.at_iteration.filter(|at| iterations.contains(&(at - 1))) {
            return Some(format!("iteration {at}"));
        }
        if let Some(every) = self.every_iterations.filter(|every| facts.iteration / every > since.iteration / every) {
            return Some(format!("every {every} iterations"));
        }
        if let Some(trigger) = facts.error_text().filter(|_| since.new_error).and_then(|errors| self.is_in(&errors)) {
            return Some(trigger);
        }
        self.time_reason(since.moment, since.now)
    }

    /// Returns the cron pattern of this rule if it matches a time after `since` and not after `now`.
    fn time_reason(&self, since: Timestamp, now: Timestamp) -> Option<String> {
        let cron = self.cron.as_ref().filter(|cron| cron.came(since, now))?;
        Some(format!("{} (UTC)", cron.text()))
    }

    /// Returns the trigger `on_error` if `errors` contains its text, else `None`.
    fn is_in(&self, errors: &str) -> Option<String> {
        let words = self.on_error.as_deref().filter(|words| compared(errors).contains(words))?;
        Some(format!("an error with \"{}\"", shortened(words)))
    }
}

/// Normalizes an error text for comparison, because backends write both `rate_limit_error` and `Rate limit`.
fn compared(text: &str) -> String {
    text.to_lowercase().replace('_', " ")
}

fn action_of(
    entry: &ScheduleEntry,
    key: &str,
    backends: &[&str],
    problems: &mut Vec<RuleProblem>,
) -> Option<ScheduledAction> {
    let mut wrong = |field: &str, message: String| problems.push(RuleProblem::whole(format!("{key}.{field}"), message));
    if entry.backend.is_some() && entry.action != ActionName::SwitchBackend {
        wrong("backend", "is only for the action switch_backend".to_owned());
    }
    if entry.model.is_some() && entry.action != ActionName::SetModel {
        wrong("model", "is only for the action set_model".to_owned());
    }
    match entry.action {
        ActionName::Pause => Some(ScheduledAction::Pause),
        ActionName::Abort => Some(ScheduledAction::Abort),
        ActionName::Escalate => Some(ScheduledAction::Escalate),
        ActionName::SwitchBackend => {
            if let Some(name) = entry.backend.as_deref().filter(|name| !backends.contains(name)) {
                let near = did_you_mean(name, backends.iter().copied());
                wrong("backend", format!("there is no backend `{}`{near}", shortened(name)));
            }
            Some(ScheduledAction::SwitchBackend(entry.backend.clone()))
        }
        ActionName::SetModel => match &entry.model {
            Some(model) if valid_model_name(model) => Some(ScheduledAction::SetModel(model.clone())),
            Some(_) => {
                wrong("model", INVALID_NAME.to_owned());
                None
            }
            None => {
                wrong("model", "is required by the action set_model".to_owned());
                None
            }
        },
    }
}

fn trigger_of(
    trigger: &Trigger,
    key: &str,
    problems: &mut Vec<RuleProblem>,
) -> (Option<CompiledCondition>, Option<Cron>) {
    let key = format!("{key}.trigger");
    let (mut rule, mut cron) = (None, None);
    if *trigger == Trigger::default() {
        let message = "is empty; set one of when, at_iteration, every_iterations, on_error and cron";
        problems.push(RuleProblem::whole(key.clone(), message));
    }
    if let Some(when) = &trigger.when {
        match CompiledCondition::compile(when, &format!("{key}.when")) {
            Ok(compiled) => rule = Some(compiled),
            Err(problem) => problems.push(problem),
        }
    }
    for (field, value) in [("at_iteration", trigger.at_iteration), ("every_iterations", trigger.every_iterations)] {
        if value == Some(0) {
            problems.push(RuleProblem::whole(format!("{key}.{field}"), "is 0; iterations are counted from 1"));
        }
    }
    if trigger.on_error.as_ref().is_some_and(|words| words.trim().is_empty()) {
        problems.push(RuleProblem::whole(format!("{key}.on_error"), "is empty; it needs a text of the error"));
    }
    if let Some(text) = &trigger.cron {
        match Cron::compile(text) {
            Ok(compiled) => cron = Some(compiled),
            Err(message) => problems.push(RuleProblem::whole(format!("{key}.cron"), message.to_string())),
        }
    }
    (rule, cron)
}
