//! `/ralph budget`: sets the cost limit of a loop.

use serde::{Deserialize, Serialize};

use super::arguments::{CommandArguments, Problem};
use super::definition::{CommandDefinition, CommandRecord, CommandRow, CommandTarget};
use super::values;
use crate::domain::model::ids::Money;

/// Sets the cost limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// Cost limit of the whole loop, above 0.
    pub limit: Money,
}

impl CommandDefinition for Budget {
    const ROW: CommandRow = CommandRow {
        name: "budget",
        usage: "/ralph budget 5.00",
        help: "Sets the cost limit of the loop, in US dollars.",
        record: CommandRecord::SessionAndAudit,
    };

    fn parse(arguments: &mut CommandArguments<'_>) -> Result<Self, Problem> {
        Ok(Self { limit: arguments.parsed_value(Self::ROW.usage, values::money)? })
    }

    fn apply(self, target: &mut dyn CommandTarget) {
        let limit = self.limit;
        let current = target.current();
        let spent = current.spent.cost;
        if limit <= spent {
            return target.reject(values::limit_is_used_up(limit, spent));
        }
        current.limits.cost = limit;
        // Also an option, so that the repository's file, which is read later, does not lower it.
        current.settings.options.budget = Some(limit);
        let iterations = current.retained_iterations().filter(|i| i.cost > Money(0)).count() as i64;
        let estimate = match iterations {
            0 => "no iteration has cost anything yet".to_owned(),
            n => format!("about {} more iterations at the cost so far", (limit.0 - spent.0) / (spent.0 / n).max(1)),
        };
        target.reply(Self::ROW.name, format!("The budget is {limit}: {estimate}."));
        target.update_status(false);
    }

    fn arguments(&self) -> String {
        self.limit.to_string()
    }
}
