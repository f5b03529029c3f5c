//! `/ralph run`: starts a loop, or supplies what a new loop waits for.

use serde::{Deserialize, Serialize};

use super::arguments::{CommandArguments, Problem};
use super::{CommandDefinition, CommandRecord, CommandRow, CommandTarget};
use crate::domain::loops::{LoopState, RunOptions};

/// Starts a loop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Options of the loop.
    pub options: RunOptions,
}

impl CommandDefinition for Run {
    const ROW: CommandRow = CommandRow {
        name: "run",
        usage: "/ralph run [--check \"CMD\"]… [--max-iterations N] [--timeout 90m] [--budget 5.00] [--backend NAME] [--base BRANCH] [--confirm HASH]",
        help: "Starts a loop on this issue.",
        record: CommandRecord::Session,
    };

    fn parse(arguments: &mut CommandArguments<'_>) -> Result<Self, Problem> {
        Ok(Self { options: RunOptions::parse(arguments)? })
    }

    /// Applies the command to a loop that exists: supplies the confirmation or the checks that the loop waits for.
    fn apply(self, target: &mut dyn CommandTarget) {
        let (options, now) = (self.options, target.now());
        let current = target.current();
        match current.state {
            LoopState::NeedsConfirm => {
                let Some(hash) = options.confirm.as_deref() else {
                    return target.reject("The text has to be confirmed: add `--confirm HASH`.".into());
                };
                if !options.confirms(&current.task.hash) {
                    return target
                        .reject(format!("`{hash}` is not the hash of the text shown; the loop was not started."));
                }
                current.task.unconfirmed_editor = None;
                current.task.edited_after = false;
            }
            LoopState::NeedsCriteria if options.checks.is_empty() && current.checks.is_empty() => {
                // The repository's file may have been added since, so that the loop is started nevertheless.
                target.accept(
                    "There is still no check: add `--check \"COMMAND\"`, or checks to the repository's file.".into(),
                );
            }
            LoopState::NeedsCriteria => {}
            state => {
                let state = state.words();
                return target.reject(format!(
                    "This issue already has a loop, which is {state}: `/ralph resume` or `/ralph abort` it."
                ));
            }
        }
        let current = target.current();
        if let Some(problem) = options.rejection(current, now) {
            return target.reject(problem);
        }
        options.apply_to(current);
        target.accept("The loop continues.".into());
        target.queue("a maintainer supplied what was missing");
    }
}
