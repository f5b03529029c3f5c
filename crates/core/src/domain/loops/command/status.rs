//! `/ralph status`: posts a new status comment.

use serde::{Deserialize, Serialize};

use super::arguments::{CommandArguments, Problem};
use super::definition::{CommandDefinition, CommandRecord, CommandRow, CommandTarget};

/// Posts a fresh status comment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status;

impl CommandDefinition for Status {
    const ROW: CommandRow = CommandRow {
        name: "status",
        usage: "/ralph status",
        help: "Posts a fresh status comment.",
        record: CommandRecord::None,
    };

    fn parse(_: &mut CommandArguments<'_>) -> Result<Self, Problem> {
        Ok(Self)
    }

    fn apply(self, target: &mut dyn CommandTarget) {
        target.update_status(true);
    }
}
