//! `/ralph run`: starts a loop, or supplies the input that a new loop waits for.

use ralph_types::failure::Failure;
use serde::{Deserialize, Serialize};

use super::arguments::{CommandArguments, Problem};
use super::definition::{CommandDefinition, CommandRecord, CommandRow, CommandTarget};
use super::guide::add_guidance;
use crate::domain::loops::{Loop, LoopState, RunOptions};
use crate::domain::model::ids::Timestamp;

/// Starts a loop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Options of the loop.
    pub options: RunOptions,
    /// Guidance for the next prompt; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub guidance: String,
}

impl CommandDefinition for Run {
    const ROW: CommandRow = CommandRow {
        name: "run",
        usage: "/ralph run [--check \"CMD\" or N]… [--max-iterations N] [--timeout 90m] [--budget 5.00] [--backend NAME] [--base BRANCH] [--confirm HASH] [guidance…]",
        help: "Starts a loop on this issue, or repairs this pull request; the text after the options is guidance for the next prompt.",
        record: CommandRecord::Session,
    };

    fn parse(arguments: &mut CommandArguments<'_>) -> Result<Self, Problem> {
        Ok(Self { options: RunOptions::parse(arguments)?, guidance: arguments.text() })
    }

    /// Applies the command to an existing loop: supplies the confirmation or the checks that the loop is waiting for.
    fn apply(self, target: &mut dyn CommandTarget) {
        let now = target.now();
        let current = target.current();
        match current.state {
            LoopState::NeedsCriteria if self.options.checks.is_empty() && current.checks.list.is_empty() => {
                // The repository's file may have been added since, so that the loop is started nevertheless.
                target.accept(
                    "There is still no check: add `--check \"COMMAND\"`, or checks to the repository's file.".into(),
                );
            }
            LoopState::NeedsCriteria if self.options.checks.is_empty() => {
                target.accept(
                    "The checks run again; if all of them still pass before any change, add `--check \"COMMAND\"` with one that fails until the task is done."
                        .into(),
                );
            }
            LoopState::NeedsConfirm | LoopState::NeedsCriteria => {}
            state if state.waits_for_plan() => {
                return target.reject(
                    "The plan of this loop waits: `/ralph approve` starts it, `/ralph plan` asks for another one."
                        .into(),
                );
            }
            state => {
                let state = state.words();
                let subject = current.pull.subject();
                return target.reject(format!(
                    "This {subject} already has a loop, which is {state}: `/ralph resume` or `/ralph abort` it."
                ));
            }
        }
        if let Err(problem) = supply(target.current(), &self.options, now) {
            return target.reject(problem.to_string());
        }
        add_guidance(target, self.guidance, false);
        target.accept("The loop continues.".into());
        target.queue("a maintainer supplied the missing input");
    }

    fn arguments(&self) -> String {
        self.guidance.clone()
    }
}

/// Supplies options to a loop that has not started: confirms its text if a confirmation is required, and replaces its options.
///
/// # Errors
/// The options are invalid for the loop, which is then unchanged.
pub(super) fn supply(current: &mut Loop, options: &RunOptions, now: Timestamp) -> Result<(), Failure> {
    match &options.confirm {
        None if current.state == LoopState::NeedsConfirm => {
            return Err(Failure::new("The text has to be confirmed: add `--confirm HASH`."));
        }
        Some(hash) if current.state == LoopState::NeedsConfirm && !options.confirms(&current.task.hash) => {
            return Err(Failure::new(format!("`{hash}` is not the hash of the text shown; the loop was not started.")));
        }
        _ => {}
    }
    if let Some(problem) = options.rejection(current, now) {
        return Err(problem.into());
    }
    if current.state == LoopState::NeedsConfirm {
        current.task.unconfirmed_editor = None;
        current.task.edited_after = false;
    }
    options.apply_to(current);
    Ok(())
}
