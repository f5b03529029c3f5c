//! Facts about a task that supervision uses to judge a loop.

use serde::{Deserialize, Serialize};

use crate::domain::supervision::experience::Experience;

/// Facts of the task, from the optional first line of a trace. Missing fields take their defaults; unknown fields are
/// ignored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TaskFacts {
    /// Objective, as text.
    pub task: String,
    /// Maximum number of iterations.
    pub max_iterations: f64,
    /// Maximum running time, in minutes.
    pub timeout_minutes: Option<f64>,
    /// Maximum cost, in dollars.
    pub max_cost_usd: Option<f64>,
    /// Complexity, from 1 (a word in the docs) to 10 (a rewrite); estimated if missing.
    pub complexity: Option<f64>,
    /// Whether a mistake could be a vulnerability.
    pub security_sensitive: bool,
    /// Whether the task breaks compatibility.
    pub breaking_changes: bool,
    /// Usual number of iterations of such a task.
    pub estimated_iterations: Option<f64>,
    /// Usual cost of such a task, in dollars.
    pub estimated_cost_usd: Option<f64>,
    /// Usual running time of such a task, in minutes.
    pub estimated_minutes: Option<f64>,
    /// Files and folders that the task concerns; if empty, those that its text names.
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
