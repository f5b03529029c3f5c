//! Filter for lists of learnings.

use ralph_types::failure::Failure;

use super::{Learning, LearningKind, MemorySettings};
use crate::domain::checks::criteria::TaskType;
use crate::domain::model::ids::Timestamp;

/// Filter for learnings. A learning must satisfy all set conditions.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LearningFilter {
    /// Kind.
    pub kind: Option<LearningKind>,
    /// Task type.
    pub task_type: Option<TaskType>,
    /// Repository: `owner/name`, or `forge:owner/name`, ignoring case.
    pub repository: Option<String>,
    /// Minimum current confidence, 0..1.
    pub min_confidence: Option<f64>,
    /// Minimum success rate, 0..1.
    pub min_success_rate: Option<f64>,
}

impl LearningFilter {
    /// Whether no condition is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether a learning satisfies all conditions.
    pub fn accepts(&self, learning: &Learning, settings: &MemorySettings, now: Timestamp) -> bool {
        let place = learning.repository.to_string();
        let is_named = |name: &String| {
            place.eq_ignore_ascii_case(name) || learning.repository.full_name().eq_ignore_ascii_case(name)
        };
        self.kind.is_none_or(|kind| learning.kind() == kind)
            && self.task_type.is_none_or(|kind| learning.task_type == kind)
            && self.repository.as_ref().is_none_or(is_named)
            && self.min_confidence.is_none_or(|least| learning.confidence_at(now, settings) >= least)
            && self.min_success_rate.is_none_or(|least| learning.success_rate() >= least)
    }

    /// Parses a kind of learning.
    ///
    /// # Errors
    /// The name is unknown. The error lists the valid names.
    pub fn parse_kind(name: &str) -> Result<LearningKind, Failure> {
        let found = LearningKind::ALL.into_iter().find(|kind| kind.as_str() == name);
        found.ok_or_else(|| {
            Failure::new(format!("expected one of {}", LearningKind::ALL.map(LearningKind::as_str).join(", ")))
        })
    }

    /// Parses a task type.
    ///
    /// # Errors
    /// The name is unknown. The error lists the valid names.
    pub fn parse_task_type(name: &str) -> Result<TaskType, Failure> {
        let found = TaskType::parse(name);
        found.ok_or_else(|| Failure::new(format!("expected one of {}", TaskType::ALL.map(TaskType::as_str).join(", "))))
    }

    /// Parses a minimum share, 0..1.
    ///
    /// # Errors
    /// The text is not a number in this range. The error states the range.
    pub fn parse_share(text: &str) -> Result<f64, Failure> {
        let number = text.parse().ok().filter(|number| (0.0..=1.0).contains(number));
        number.ok_or_else(|| Failure::new("expected a number from 0 to 1"))
    }
}
