//! Rights of people who use the dashboard and the API.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::permit::AccessLevel;

/// Right of a viewer in a repository, lowest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ViewRight {
    /// Sees nothing of the repository, not even that it is known.
    None,
    /// Sees states and summaries of loops.
    Read,
    /// Sees prompts, transcripts and outputs too, and may give commands.
    Write,
    /// Sees all repositories, backends, deliveries and the operator's settings. A command still needs a person with the right to
    /// give it, or the operator's own token.
    Operate,
}

impl ViewRight {
    /// Returns the right that a level of access in the repository gives.
    pub fn of(level: AccessLevel) -> Self {
        match level {
            AccessLevel::None => Self::None,
            AccessLevel::Read | AccessLevel::Triage => Self::Read,
            AccessLevel::Write | AccessLevel::Maintain | AccessLevel::Admin => Self::Write,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn level_of_access_gives_right() {
        let rights = [
            (AccessLevel::None, ViewRight::None),
            (AccessLevel::Read, ViewRight::Read),
            (AccessLevel::Triage, ViewRight::Read),
            (AccessLevel::Write, ViewRight::Write),
            (AccessLevel::Maintain, ViewRight::Write),
            (AccessLevel::Admin, ViewRight::Write),
        ];
        for (level, right) in rights {
            assert_eq!(ViewRight::of(level), right, "{level:?}");
        }
    }
}
