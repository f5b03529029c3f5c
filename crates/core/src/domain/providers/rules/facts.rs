//! Facts about a loop that rules can use, with their names in expressions.

use cel::Value;

use crate::domain::checks::criteria::TaskType;
use crate::domain::model::ids::Money;
use crate::domain::supervision::control::{Trend, Urgency};

/// Facts about a loop between two iterations. Cost, tokens and time are totals of the loop. For the model rules of one backend,
/// only the errors of that backend count.
#[derive(Debug, Clone, PartialEq)]
pub struct RuleFacts {
    /// `iteration`: number of the last or the next iteration; 1-based, 0 before the first.
    pub iteration: u32,
    /// `max_iterations`: maximum number of iterations; the largest number if unlimited.
    pub max_iterations: u32,
    /// `elapsed_minutes` (or `elapsed`): whole minutes of running time.
    pub elapsed_minutes: u64,
    /// `consec_errors`: number of consecutive failed runs.
    pub consec_errors: u32,
    /// `error_count`: number of iterations that ended with an error.
    pub error_count: u32,
    /// Error of the last run, in the backend's words if available; `None` if the run succeeded. `has_error` is true if there is
    /// one. If a limited backend was replaced and the next one did the work, there is no error, because only the run that ended
    /// the iteration counts.
    pub last_error: Option<String>,
    /// Errors of the backends that refused the last run, whether they were replaced or the loop waits for them. They are
    /// available to `on_error` of the schedule, but not to conditions.
    pub refused: Vec<String>,
    /// `cost` (or `total_cost`): cost of the loop, in dollars.
    pub cost: Money,
    /// `cost_hour`: cost of the last 60 minutes, in dollars.
    pub cost_hour: Money,
    /// `tokens` (or `total_tokens`): tokens read and written by models.
    pub tokens: u64,
    /// `completion`: measured completion, 0 to 1.
    pub completion: f64,
    /// `control_signal`: 0 to 1; 0 before the first iteration.
    pub control_signal: f64,
    /// `urgency`: `normal`, `elevated`, `high` or `critical`.
    pub urgency: Urgency,
    /// `trend`: `improving`, `stable`, `regressing` or `oscillating`.
    pub trend: Trend,
    /// `task_type`: `test-fix`, `feature` and so on.
    pub task_type: TaskType,
    /// `backend`: name of the last or the next backend.
    pub backend: String,
    /// `context_pct`: share of the model's context used by the last run, 0 to 100; 0 if unknown.
    pub context_pct: f64,
}

impl Default for RuleFacts {
    fn default() -> Self {
        Self {
            iteration: 0,
            max_iterations: 0,
            elapsed_minutes: 0,
            consec_errors: 0,
            error_count: 0,
            last_error: None,
            refused: Vec::new(),
            cost: Money(0),
            cost_hour: Money(0),
            tokens: 0,
            completion: 0.0,
            control_signal: 0.0,
            urgency: Urgency::Normal,
            trend: Trend::Stable,
            task_type: TaskType::default(),
            backend: String::new(),
            context_pct: 0.0,
        }
    }
}

/// Type of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ValueKind {
    Truth,
    Whole,
    Decimal,
    Text,
}

/// Name that expressions can use.
pub(super) struct Variable {
    pub(super) name: &'static str,
    pub(super) kind: ValueKind,
    /// Maximum of a number, whose minimum is then 0; `None` if there is no range.
    pub(super) most: Option<f64>,
    /// All possible values of a text; empty if they are not known.
    pub(super) words: &'static [&'static str],
}

const fn variable(name: &'static str, kind: ValueKind) -> Variable {
    Variable { name, kind, most: None, words: &[] }
}

const fn bounded(name: &'static str, most: f64) -> Variable {
    Variable { name, kind: ValueKind::Decimal, most: Some(most), words: &[] }
}

const fn one_of(name: &'static str, words: &'static [&'static str]) -> Variable {
    Variable { name, kind: ValueKind::Text, most: None, words }
}

const URGENCIES: &[&str] = &["normal", "elevated", "high", "critical"];
const TRENDS: &[&str] = &["improving", "stable", "regressing", "oscillating"];
const TASK_TYPES: &[&str] =
    &["test-fix", "type-errors", "lint", "migration", "refactor", "coverage", "feature", "docs", "dependency", "other"];

/// All variables.
pub(super) const VARIABLES: &[Variable] = &[
    variable("iteration", ValueKind::Whole),
    variable("max_iterations", ValueKind::Whole),
    variable("elapsed_minutes", ValueKind::Whole),
    variable("consec_errors", ValueKind::Whole),
    variable("error_count", ValueKind::Whole),
    variable("has_error", ValueKind::Truth),
    variable("cost", ValueKind::Decimal),
    variable("cost_hour", ValueKind::Decimal),
    variable("tokens", ValueKind::Whole),
    bounded("completion", 1.0),
    bounded("control_signal", 1.0),
    one_of("urgency", URGENCIES),
    one_of("trend", TRENDS),
    one_of("task_type", TASK_TYPES),
    variable("backend", ValueKind::Text),
    bounded("context_pct", 100.0),
];

/// Aliases: alternative names of variables.
pub(super) const ALIASES: &[(&str, &str)] =
    &[("elapsed", "elapsed_minutes"), ("total_cost", "cost"), ("total_tokens", "tokens")];

/// Returns a variable by its name or alias.
pub(super) fn lookup(name: &str) -> Option<&'static Variable> {
    let name = ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, name)| name);
    VARIABLES.iter().find(|variable| variable.name == name)
}

impl RuleFacts {
    /// Returns the text in which `on_error` searches; `None` without an error.
    pub(super) fn error_text(&self) -> Option<String> {
        let errors: Vec<&str> = self.last_error.iter().chain(&self.refused).map(String::as_str).collect();
        (!errors.is_empty()).then(|| errors.join("\n"))
    }

    /// Returns the value of a variable, clamped to its range. NaN becomes the minimum. `None` for an unknown name.
    pub(super) fn value(&self, name: &str) -> Option<Value> {
        let integer = |value: u64| Value::Int(i64::try_from(value).unwrap_or(i64::MAX));
        let decimal = |value: f64, most: f64| Value::Float(if value.is_nan() { 0.0 } else { value.clamp(0.0, most) });
        Some(match name {
            "iteration" => integer(self.iteration.into()),
            "max_iterations" => integer(self.max_iterations.into()),
            "elapsed_minutes" => integer(self.elapsed_minutes),
            "consec_errors" => integer(self.consec_errors.into()),
            "error_count" => integer(self.error_count.into()),
            "has_error" => Value::Bool(self.last_error.is_some()),
            "cost" => Value::Float(self.cost.usd()),
            "cost_hour" => Value::Float(self.cost_hour.usd()),
            "tokens" => integer(self.tokens),
            "completion" => decimal(self.completion, 1.0),
            "control_signal" => decimal(self.control_signal, 1.0),
            "urgency" => text(match self.urgency {
                Urgency::Normal => "normal",
                Urgency::Elevated => "elevated",
                Urgency::High => "high",
                Urgency::Critical => "critical",
            }),
            "trend" => text(match self.trend {
                Trend::Improving => "improving",
                Trend::Stable => "stable",
                Trend::Regressing => "regressing",
                Trend::Oscillating => "oscillating",
            }),
            "task_type" => text(self.task_type.as_str()),
            "backend" => text(&self.backend),
            "context_pct" => decimal(self.context_pct, 100.0),
            _ => return None,
        })
    }
}

fn text(text: &str) -> Value {
    Value::String(text.to_owned().into())
}
