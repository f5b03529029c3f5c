//! `/ralph pause`: pauses a loop.

use serde::{Deserialize, Serialize};

use super::arguments::{CommandArguments, Problem, with_reason};
use super::definition::{CommandDefinition, CommandRecord, CommandRow, CommandTarget};
use crate::domain::loops::{LoopState, LoopStep};

/// Pauses the loop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// Whether to stop the agent at once. If false, the loop pauses at the end of the iteration.
    pub now: bool,
    /// Reason; may be empty.
    pub reason: String,
}

impl CommandDefinition for Pause {
    const ROW: CommandRow = CommandRow {
        name: "pause",
        usage: "/ralph pause [--now] [reason]",
        help: "Pauses the loop after the current iteration; `--now` stops the agent.",
        record: CommandRecord::SessionAndAudit,
    };

    fn parse(arguments: &mut CommandArguments<'_>) -> Result<Self, Problem> {
        Ok(Self { now: arguments.flag("--now")?, reason: arguments.line() })
    }

    fn apply(self, target: &mut dyn CommandTarget) {
        let reason = with_reason(&format!("{} paused it", target.author().login), &self.reason);
        let current = target.current();
        match current.state {
            LoopState::Running if !self.now && current.run.step != LoopStep::Idle => {
                current.run.pause_wanted = Some(reason);
                target.accept("The loop pauses after the current iteration.".into());
                target.update_status(false);
            }
            LoopState::Running | LoopState::Queued | LoopState::Waiting => {
                target.accept(reason.clone());
                target.pause(&reason);
            }
            LoopState::Paused => {
                // It must not continue by itself when its repository takes changes again.
                current.run.wait = None;
                target.accept("The loop is already paused.".into());
            }
            state => target.reject(format!("The loop is {}; there is nothing to pause.", state.words())),
        }
    }

    fn arguments(&self) -> String {
        format!("{}{}", if self.now { "--now " } else { "" }, self.reason)
    }
}
