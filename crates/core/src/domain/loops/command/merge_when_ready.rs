//! `/ralph merge-when-ready`: lets the forge merge the pull request.

use serde::{Deserialize, Serialize};

use super::arguments::{CommandArguments, Problem};
use super::definition::{CommandDefinition, CommandRecord, CommandRow, CommandTarget};

/// Requests that the forge merges the pull request once it is ready, or withdraws the request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MergeWhenReady {
    /// True to request the merge, false to withdraw the request.
    pub on: bool,
}

impl CommandDefinition for MergeWhenReady {
    const ROW: CommandRow = CommandRow {
        name: "merge-when-ready",
        usage: "/ralph merge-when-ready [off]",
        help: "Lets the forge merge the pull request once it is ready, CI has passed and the rules of its base are satisfied; `off` withdraws it.",
        record: CommandRecord::SessionAndAudit,
    };

    fn parse(arguments: &mut CommandArguments<'_>) -> Result<Self, Problem> {
        match arguments.value()?.as_deref() {
            None => Ok(Self { on: true }),
            Some("off") => Ok(Self { on: false }),
            Some(_) => {
                let problem = "`merge-when-ready` accepts only `off`.".to_owned();
                Err((problem, Some("/ralph merge-when-ready off".to_owned())))
            }
        }
    }

    fn apply(self, target: &mut dyn CommandTarget) {
        if self.on && target.current().pull.existing.is_some() {
            let why = "The bot did not open this pull request, so its author or a maintainer merges it.";
            return target.reject(why.to_owned());
        }
        let wished = target.current().pull.merge_wish.is_some();
        match (self.on, wished) {
            (true, _) => {
                target.accept("The pull request is merged once it is ready, CI has passed and the rules of its base are satisfied.".into());
                target.merge_when_ready();
            }
            (false, true) => {
                let why = format!("{} withdrew it", target.author().login);
                target.accept("The pull request is not merged by the forge.".into());
                target.withdraw_merge(&why);
            }
            (false, false) => target.reject("No merge was requested, so there is nothing to withdraw.".into()),
        }
    }

    fn arguments(&self) -> String {
        if self.on { String::new() } else { "off".to_owned() }
    }
}
