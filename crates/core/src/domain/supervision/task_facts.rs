//! Facts about a task, used by supervision to judge its loop.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use crate::domain::supervision::experience::Experience;

/// Facts about a task, from the optional first line of a trace. Missing fields take their defaults, and unknown fields are
/// ignored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TaskFacts {
    /// Objective of the task, as text.
    pub task: String,
    /// Maximum number of iterations; infinite, and null in a trace, without a limit.
    #[serde(deserialize_with = "limit_or_none")]
    #[schemars(with = "Option<f64>")]
    pub max_iterations: f64,
    /// Maximum running time, in minutes; `None` without a limit.
    pub timeout_minutes: Option<f64>,
    /// Maximum cost, in dollars; `None` without a limit.
    pub max_cost_usd: Option<f64>,
    /// Complexity, from 1 (a word in the docs) to 10 (a rewrite); `None` to estimate it.
    pub complexity: Option<f64>,
    /// Whether a mistake could be a vulnerability.
    pub security_sensitive: bool,
    /// Whether the task breaks compatibility.
    pub breaking_changes: bool,
    /// Usual number of iterations of such a task: stated, or from earlier loops of the repository.
    pub estimated_iterations: Option<f64>,
    /// Usual maximum number of iterations of tasks of this type in any repository.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub typical_iterations: Option<f64>,
    /// Usual cost of such a task, in dollars.
    pub estimated_cost_usd: Option<f64>,
    /// Usual running time of such a task, in minutes.
    pub estimated_minutes: Option<f64>,
    /// Files and folders of the task. If empty, the files and folders named in its text are used.
    pub scope: Vec<String>,
    /// Statistics of earlier loops of the repository.
    #[serde(skip_serializing_if = "Experience::is_empty")]
    pub experience: Experience,
}

/// Reads a limit; null means none. JSON has no infinite number, and its writer replaces it by null.
fn limit_or_none<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::INFINITY))
}

impl TaskFacts {
    /// Lowers an iteration-count threshold to `share` of the maximum number of iterations, so that it can apply before the
    /// limit. The result is at least `least`. A share of 0 leaves the threshold unchanged.
    pub fn within_limit(&self, threshold: u32, share: f64, least: u32) -> u32 {
        let most = (share * self.max_iterations).ceil();
        // A missing or implausible limit does not lower the threshold.
        let most = if most >= 1.0 { most as u32 } else { u32::MAX };
        threshold.min(most.max(least))
    }
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
            typical_iterations: None,
            estimated_cost_usd: None,
            estimated_minutes: None,
            scope: Vec::new(),
            experience: Experience::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_of_an_unlimited_loop_are_read_as_written() {
        let facts = TaskFacts { max_iterations: f64::INFINITY, ..TaskFacts::default() };
        let written = serde_json::to_value(&facts).unwrap();
        assert_eq!(written["max_iterations"], serde_json::Value::Null);
        assert_eq!(serde_json::from_value::<TaskFacts>(written).unwrap(), facts);
        assert_eq!(serde_json::from_str::<TaskFacts>("{}").unwrap().max_iterations, 10.0);
    }

    #[test]
    fn thresholds_are_lowered_to_the_limit_of_the_loop() {
        let within = |most: f64, threshold, least| {
            TaskFacts { max_iterations: most, ..TaskFacts::default() }.within_limit(threshold, 0.7, least)
        };
        assert_eq!([within(10.0, 12, 2), within(10.0, 10, 2), within(25.0, 12, 2)], [7, 7, 12]);
        assert_eq!([within(3.0, 12, 5), within(3.0, 4, 5)], [5, 4]);
        for unknown in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(within(unknown, 12, 2), 12, "{unknown}");
        }
        assert_eq!(TaskFacts::default().within_limit(12, 0.0, 2), 12);
    }
}
