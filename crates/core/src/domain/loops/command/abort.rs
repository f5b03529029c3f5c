//! `/ralph abort`: ends a loop.

use serde::{Deserialize, Serialize};

use super::arguments::{CommandArguments, Problem, with_reason};
use super::definition::{CommandDefinition, CommandRecord, CommandRow, CommandTarget};

/// Ends the loop and stops the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Abort {
    /// Reason; may be empty.
    pub reason: String,
}

impl CommandDefinition for Abort {
    const ROW: CommandRow = CommandRow {
        name: "abort",
        usage: "/ralph abort [reason]",
        help: "Ends the loop and stops the agent; the branch stays.",
        record: CommandRecord::SessionAndAudit,
    };

    fn parse(arguments: &mut CommandArguments<'_>) -> Result<Self, Problem> {
        Ok(Self { reason: arguments.line() })
    }

    fn apply(self, target: &mut dyn CommandTarget) {
        let reason = with_reason(&format!("aborted by {}", target.author().login), &self.reason);
        target.accept(reason.clone());
        target.abort(&reason);
    }

    fn arguments(&self) -> String {
        self.reason.clone()
    }
}
