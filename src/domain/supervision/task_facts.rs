//! Facts about a task that supervision judges a loop by.

use serde::{Deserialize, Serialize};

use crate::domain::supervision::experience::Experience;

/// Facts of the task, from the optional first line of a trace. Missing fields take their defaults; unknown fields are
/// ignored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TaskFacts {
    /// The objective, in words.
    pub task: String,
    /// Iterations that the loop may take.
    pub max_iterations: f64,
    /// Minutes that it may take.
    pub timeout_minutes: Option<f64>,
    /// Dollars that it may cost.
    pub max_cost_usd: Option<f64>,
    /// 1 (a word in the docs) to 10 (a rewrite); estimated where it is missing.
    pub complexity: Option<f64>,
    /// Whether a mistake would open a hole.
    pub security_sensitive: bool,
    /// Whether it changes what others rely on.
    pub breaking_changes: bool,
    /// Iterations that a task of this sort usually takes.
    pub estimated_iterations: Option<f64>,
    /// Dollars that a task of this sort usually costs.
    pub estimated_cost_usd: Option<f64>,
    /// Minutes that a task of this sort usually takes.
    pub estimated_minutes: Option<f64>,
    /// Files and folders that the task is about; where there are none, those that its words name.
    pub scope: Vec<String>,
    /// Statistics of earlier loops of the repository.
    #[serde(skip_serializing_if = "Experience::is_empty")]
    pub experience: Experience,
}

impl Default for TaskFacts {
    fn default() -> Self {
        Self {
            task: String::new(),
            max_iterations: 10.0,
            timeout_minutes: None,
            max_cost_usd: None,
            complexity: None,
            security_sensitive: false,
            breaking_changes: false,
            estimated_iterations: None,
            estimated_cost_usd: None,
            estimated_minutes: None,
            scope: Vec::new(),
            experience: Experience::default(),
        }
    }
}
