//! `/ralph iterations`: sets the iteration limit of a loop.

use serde::{Deserialize, Serialize};

use super::arguments::{CommandArguments, Problem};
use super::definition::{CommandDefinition, CommandRecord, CommandRow, CommandTarget};
use super::values;
use crate::domain::loops::LoopState;
use crate::domain::model::quantity::IterationLimit;

/// Sets the iteration limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Iterations {
    /// Maximum number of iterations of the whole loop: 1..=1000, or unlimited.
    pub limit: IterationLimit,
}

impl CommandDefinition for Iterations {
    const ROW: CommandRow = CommandRow {
        name: "iterations",
        usage: "/ralph iterations 10",
        help: "Sets the iteration limit of the loop: 1 to 1000, or `unlimited`.",
        record: CommandRecord::SessionAndAudit,
    };

    fn parse(arguments: &mut CommandArguments<'_>) -> Result<Self, Problem> {
        Ok(Self { limit: arguments.parsed_value(Self::ROW.usage, values::iterations)? })
    }

    fn apply(self, target: &mut dyn CommandTarget) {
        let limit = self.limit;
        let current = target.current();
        let used = current.spent.iterations;
        if limit.is_reached(used) {
            return target.reject(values::limit_is_used_up(limit, format_args!("{used} iterations")));
        }
        current.limits.iterations = limit;
        // Also an option, so that the repository's file, which is read later, does not lower it.
        current.settings.options.max_iterations = Some(limit);
        let resume = match current.state {
            LoopState::LimitReached => " `/ralph resume` continues the loop.",
            _ => "",
        };
        let limit = match limit.count() {
            Some(count) => format!("The limit is {count} iterations"),
            None => "The iterations are unlimited, within the limits of time and cost".to_owned(),
        };
        target.reply(Self::ROW.name, format!("{limit}; {used} are used.{resume}"));
        target.update_status(false);
    }

    fn arguments(&self) -> String {
        self.limit.to_string()
    }
}
