//! Reason why a model call cannot start.

use std::fmt;

use super::backends::{Blocked, BlockedBy};
use super::money::CostLimitReached;
use crate::domain::model::ids::Timestamp;

/// Reason why a call cannot start. Its text is a phrase for people.
#[derive(Debug, Clone, PartialEq)]
pub enum CallRefusal {
    /// No backend is available now; ask again at `until`.
    Wait {
        /// Time of the next attempt.
        until: Timestamp,
        /// Reason for each backend.
        reasons: Vec<Blocked>,
    },
    /// No backend is available, and waiting would not help.
    Never {
        /// Reason for each backend.
        reasons: Vec<Blocked>,
    },
    /// A cost limit is reached.
    NoMoney(CostLimitReached),
}

impl CallRefusal {
    /// Returns the first backend that a person has to enable; `None` if a person can enable none, or if waiting helps.
    pub fn disabled_backend(&self) -> Option<&str> {
        let Self::Never { reasons } = self else { return None };
        let disabled = reasons.iter().find(|blocked| matches!(blocked.by, BlockedBy::Disabled(..)));
        disabled.map(|blocked| blocked.backend.as_str())
    }

    /// Removes the reasons of other backends.
    #[must_use]
    pub fn only_of(mut self, backend: &str) -> Self {
        if let Self::Wait { reasons, .. } | Self::Never { reasons } = &mut self {
            reasons.retain(|blocked| blocked.backend == backend);
        }
        self
    }
}

impl fmt::Display for CallRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reasons = match self {
            Self::NoMoney(reached) => return reached.fmt(f),
            Self::Wait { reasons, .. } | Self::Never { reasons } => reasons,
        };
        let words: Vec<_> = reasons.iter().map(|blocked| format!("{}: {}", blocked.backend, blocked.by)).collect();
        f.write_str(if words.is_empty() { "no backend is configured for it" } else { "" })?;
        f.write_str(&words.join("; "))
    }
}
