//! What the operator decides about backends: who does what, in which order, how far each is used, how they take turns.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::domain::model::ids::Money;
use crate::domain::model::quantity::{Duration, dollars, seconds as duration};
use crate::domain::model::settings::{Problem, did_you_mean};

/// A day, in seconds.
const DAY_S: u64 = 24 * 3600;
/// Longest duration of these settings, in seconds: a month.
const LONGEST_S: u64 = 31 * DAY_S;

/// Everything that the choice of a backend depends on.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BackendsSettings {
    /// The backends by name.
    pub backends: BTreeMap<String, BackendSettings>,
    /// Which backend comes first, by role.
    pub order: Orders,
    /// How backends take turns.
    pub rotation: RotationSettings,
    /// How long a backend is left alone.
    pub parking: ParkingSettings,
}

/// What a backend is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Runs the agent that works on a tree.
    Agent,
    /// Answers short questions: plans, reflections, summaries.
    Assistant,
}

impl Role {
    /// Name in the store and in metrics.
    pub fn word(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Assistant => "assistant",
        }
    }
}

/// What is decided for one backend.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BackendSettings {
    /// Whether it is used.
    pub enabled: bool,
    /// What it is used for.
    pub roles: Vec<Role>,
    /// How far it is used before another one gets the work.
    pub thresholds: Thresholds,
}

impl Default for BackendSettings {
    fn default() -> Self {
        Self { enabled: true, roles: vec![Role::Agent], thresholds: Thresholds::default() }
    }
}

/// How far a backend is used before another one gets the work. What is left out does not limit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Thresholds {
    /// Calls within `window`.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_requests_per_window: Option<u32>,
    /// The time within which calls are counted.
    #[serde(rename = "window", with = "duration")]
    #[schemars(schema_with = "duration::schema")]
    pub window_s: u64,
    /// Money within an hour. A call that alone costs more is made when nothing was spent within the hour.
    #[serde(with = "dollars")]
    #[schemars(schema_with = "dollars::schema")]
    pub max_cost_per_hour: Option<Money>,
    /// Money within 24 hours, by the same rule.
    #[serde(with = "dollars")]
    #[schemars(schema_with = "dollars::schema")]
    pub max_cost_per_day: Option<Money>,
    /// Percent of the context window, from which on a session is not resumed but begun anew. Claude Code and codex tell their
    /// window, `internal` has one; of gemini, opencode, kimi and programs of your own it is known where `context_window` is
    /// set alone, and a session goes on until it is too long for the model otherwise.
    #[schemars(range(min = 1, max = 100))]
    pub max_context_pct: u8,
    /// Errors in a row, of whichever loops, after which it is left alone for a while.
    #[schemars(range(min = 1, max = 1_000))]
    pub max_consecutive_errors: u32,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self {
            max_requests_per_window: None,
            window_s: 3600,
            max_cost_per_hour: None,
            max_cost_per_day: None,
            max_context_pct: 85,
            max_consecutive_errors: 3,
        }
    }
}

/// Which backend comes first, by role. Those with the role that are not named follow in the order of their names.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Orders {
    /// For runs of the agent.
    pub agent: Vec<String>,
    /// For calls of the assistant.
    pub assistant: Vec<String>,
}

/// How backends take turns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RotationSettings {
    /// Whether and how they do.
    pub mode: RotationMode,
    /// How long each has its turn, where `mode` is `time_sliced`; turns are counted from 1970-01-01.
    #[serde(rename = "interval", with = "duration")]
    #[schemars(schema_with = "duration::schema")]
    pub interval_s: u64,
    /// Who has a turn, where `mode` is `time_sliced` or `round_robin`; all with the role where it is empty.
    pub order: Vec<String>,
    /// What an iteration costs beside the model's price (time, checks, one of the loop's iterations), where `mode` is
    /// `adaptive`: with 0, a free model that hardly gets on would always be best.
    #[serde(with = "dollars::whole")]
    #[schemars(schema_with = "dollars::whole::schema")]
    pub iteration_cost: Money,
}

impl Default for RotationSettings {
    fn default() -> Self {
        Self { mode: RotationMode::None, interval_s: 1800, order: Vec::new(), iteration_cost: Money::from_usd(0.1) }
    }
}

/// Whether and how backends take turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RotationMode {
    /// The first that can be used.
    #[default]
    None,
    /// Another one at each iteration.
    RoundRobin,
    /// Another one after each interval.
    TimeSliced,
    /// The one that is likely to make most progress for the money, by the sort of task (Thompson sampling).
    Adaptive,
}

/// How long a backend is left alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ParkingSettings {
    /// First wait where the provider does not say how long; doubles until a call succeeds.
    #[serde(rename = "backoff_first", with = "duration")]
    #[schemars(schema_with = "duration::schema")]
    pub backoff_first_s: u64,
    /// Longest wait where the provider does not say how long.
    #[serde(rename = "backoff_max", with = "duration")]
    #[schemars(schema_with = "duration::schema")]
    pub backoff_max_s: u64,
    /// Longest wait in any case; then one call looks whether the provider was right.
    #[serde(rename = "longest", with = "duration")]
    #[schemars(schema_with = "duration::schema")]
    pub longest_s: u64,
}

impl Default for ParkingSettings {
    fn default() -> Self {
        Self { backoff_first_s: 60, backoff_max_s: 3600, longest_s: 8 * DAY_S }
    }
}

impl BackendsSettings {
    /// The thresholds of a backend; the defaults for one that is not configured.
    pub fn thresholds(&self, backend: &str) -> Thresholds {
        self.backends.get(backend).map_or_else(Thresholds::default, |settings| settings.thresholds.clone())
    }

    /// Whether a session that fills `context_pct` percent of its window is better begun anew.
    pub fn wants_fresh_session(&self, backend: &str, context_pct: f64) -> bool {
        context_pct.is_nan() || context_pct >= f64::from(self.thresholds(backend).max_context_pct)
    }

    /// The backends with a role, enabled or not: those that `order` names first, then the rest by name.
    pub fn in_order(&self, role: Role) -> Vec<&str> {
        let order = match role {
            Role::Agent => &self.order.agent,
            Role::Assistant => &self.order.assistant,
        };
        self.sorted_by(order, role, true)
    }

    /// Those of `order` that have the role, each once, and `with_rest` the others with it.
    pub(super) fn sorted_by(&self, order: &[String], role: Role, with_rest: bool) -> Vec<&str> {
        let mut found: Vec<&str> = Vec::new();
        let rest = self.backends.keys().filter(|_| with_rest);
        for name in order.iter().chain(rest) {
            let entry = self.backends.get_key_value(name).filter(|(_, settings)| settings.roles.contains(&role));
            if let Some((name, _)) = entry.filter(|(name, _)| !found.contains(&name.as_str())) {
                found.push(name);
            }
        }
        found
    }

    /// Everything that is wrong: numbers out of range, then names that are none, then contradictions.
    pub fn validate(&self) -> Vec<Problem> {
        let mut found = Vec::new();
        for (name, backend) in &self.backends {
            backend.thresholds.validate(&format!("backends.{name}.thresholds"), &mut found);
            if backend.roles.is_empty() {
                wrong(&mut found, format!("backends.{name}.roles"), "is empty; give it `agent`, `assistant` or both");
            }
        }
        seconds(&mut found, "rotation.interval", self.rotation.interval_s, 60, LONGEST_S);
        money(&mut found, "rotation.iteration_cost", Some(self.rotation.iteration_cost), 0);
        seconds(&mut found, "parking.backoff_first", self.parking.backoff_first_s, 1, DAY_S);
        seconds(&mut found, "parking.backoff_max", self.parking.backoff_max_s, 1, DAY_S);
        seconds(&mut found, "parking.longest", self.parking.longest_s, 3600, LONGEST_S);
        let orders = [
            ("order.agent", &self.order.agent, Some(Role::Agent)),
            ("order.assistant", &self.order.assistant, Some(Role::Assistant)),
            ("rotation.order", &self.rotation.order, None),
        ];
        for (key, names, role) in orders {
            self.validate_names(key, names, role, &mut found);
        }
        let ParkingSettings { backoff_first_s: first, backoff_max_s: most, longest_s: longest } = self.parking;
        for (key, value, other, bound) in
            [("backoff_first", first, "backoff_max", most), ("backoff_max", most, "longest", longest)]
        {
            if value > bound {
                let (key, other) = (format!("parking.{key}"), format!("parking.{other}"));
                let (value, bound) = (Duration::seconds(value), Duration::seconds(bound));
                let message = format!("`{key}` is {value}; at most `{other}`, which is {bound}, is allowed");
                found.push(Problem { key, other: Some(other), message });
            }
        }
        found
    }

    fn validate_names(&self, key: &str, names: &[String], role: Option<Role>, found: &mut Vec<Problem>) {
        for (index, name) in names.iter().enumerate() {
            let key = format!("{key}[{index}]");
            match self.backends.get(name) {
                None => {
                    let near = did_you_mean(name, self.backends.keys().map(String::as_str));
                    wrong(found, key, &format!("is `{}`; there is no such backend{near}", super::shortened(name)));
                }
                Some(backend) if role.is_some_and(|role| !backend.roles.contains(&role)) => {
                    wrong(found, key, &format!("is `{name}`, which does not have this role"));
                }
                Some(_) if names.iter().take(index).any(|earlier| earlier == name) => {
                    wrong(found, key, &format!("is `{name}`, which is named before"));
                }
                Some(_) => {}
            }
        }
    }
}

impl Thresholds {
    fn validate(&self, path: &str, found: &mut Vec<Problem>) {
        if self.max_requests_per_window.is_some_and(|most| !(1..=1_000_000).contains(&most)) {
            let value = self.max_requests_per_window.unwrap_or_default();
            wrong(found, format!("{path}.max_requests_per_window"), &format!("is {value}; it must be between 1 and 1000000"));
        }
        seconds(found, &format!("{path}.window"), self.window_s, 1, DAY_S);
        money(found, &format!("{path}.max_cost_per_hour"), self.max_cost_per_hour, 10_000);
        money(found, &format!("{path}.max_cost_per_day"), self.max_cost_per_day, 10_000);
        if !(1..=100).contains(&self.max_context_pct) {
            let key = format!("{path}.max_context_pct");
            wrong(found, key, &format!("is {}; it must be between 1 and 100", self.max_context_pct));
        }
        if !(1..=1_000).contains(&self.max_consecutive_errors) {
            let key = format!("{path}.max_consecutive_errors");
            wrong(found, key, &format!("is {}; it must be between 1 and 1000", self.max_consecutive_errors));
        }
        if let (Some(hour), Some(day)) = (self.max_cost_per_hour, self.max_cost_per_day)
            && hour > day
        {
            let (key, other) = (format!("{path}.max_cost_per_hour"), format!("{path}.max_cost_per_day"));
            let message = format!("`{key}` is {hour}; at most `{other}`, which is {day}, is allowed");
            found.push(Problem { key, other: Some(other), message });
        }
    }
}

fn wrong(found: &mut Vec<Problem>, key: String, what: &str) {
    let message = format!("`{key}` {what}");
    found.push(Problem { key, other: None, message });
}

fn seconds(found: &mut Vec<Problem>, key: &str, value: u64, least: u64, most: u64) {
    if !(least..=most).contains(&value) {
        let [value, least, most] = [value, least, most].map(Duration::seconds);
        wrong(found, key.to_owned(), &format!("is {value}; {least} to {most} is allowed"));
    }
}

/// `least` is in millionths of a dollar.
fn money(found: &mut Vec<Problem>, key: &str, value: Option<Money>, least: i64) {
    const MOST: i64 = 1_000_000_000_000;
    if let Some(value) = value.filter(|value| !(least..=MOST).contains(&value.0)) {
        let (least, most) = (Money(least).usd(), Money(MOST).usd());
        wrong(found, key.to_owned(), &format!("is {}; {least} to {most} is allowed", value.usd()));
    }
}
