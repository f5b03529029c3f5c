//! `/ralph help`: posts the list of commands.

use serde::{Deserialize, Serialize};

use super::arguments::{CommandArguments, Problem};
use super::definition::{CommandDefinition, CommandRecord, CommandRow, CommandTarget};

/// Posts the commands, the effective settings, and the people who may give commands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Help;

impl CommandDefinition for Help {
    const ROW: CommandRow = CommandRow {
        name: "help",
        usage: "/ralph help",
        help: "Lists the commands, the settings and who may use them.",
        record: CommandRecord::None,
    };

    fn parse(_: &mut CommandArguments<'_>) -> Result<Self, Problem> {
        Ok(Self)
    }

    fn apply(self, target: &mut dyn CommandTarget) {
        target.post_help();
    }
}
