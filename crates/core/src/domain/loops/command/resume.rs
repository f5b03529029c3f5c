//! `/ralph resume`: continues a loop that stopped.

use serde::{Deserialize, Serialize};

use super::arguments::{CommandArguments, Problem};
use super::definition::{CommandDefinition, CommandRecord, CommandRow, CommandTarget};
use super::guide::add_guidance;
use crate::domain::loops::{LoopState, RunOptions};

/// Continues a loop that stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resume {
    /// Options that replace the loop's options.
    pub options: RunOptions,
    /// Guidance for the next prompt; may be empty.
    pub guidance: String,
}

impl CommandDefinition for Resume {
    const ROW: CommandRow = CommandRow {
        name: "resume",
        usage: "/ralph resume [options of run] [guidance…]",
        help: "Continues a loop that is paused, failed or at a limit; the text after the options is guidance for the next prompt.",
        record: CommandRecord::Session,
    };

    fn parse(arguments: &mut CommandArguments<'_>) -> Result<Self, Problem> {
        Ok(Self { options: RunOptions::parse(arguments)?, guidance: arguments.text() })
    }

    fn apply(self, target: &mut dyn CommandTarget) {
        let now = target.now();
        let current = target.current();
        if current.state == LoopState::Review && !current.pull.refused.is_empty() && self.guidance.is_empty() {
            let count = current.pull.refused.len();
            let changes =
                if count == 1 { "The refused change is".to_owned() } else { format!("{count} refused changes are") };
            target.accept(format!("{changes} tried again."));
            return target.repeat_refused();
        }
        if !matches!(
            current.state,
            LoopState::Paused | LoopState::LimitReached | LoopState::Failed | LoopState::Waiting
        ) {
            let reason = match current.state {
                LoopState::Running | LoopState::Queued => {
                    "The loop is running or queued; there is nothing to resume. `/ralph guide TEXT` gives guidance to the next iteration."
                }
                LoopState::Review => {
                    "The loop is in review: request changes on the pull request, or `/ralph guide TEXT`."
                }
                LoopState::NeedsApproval | LoopState::NeedsAnswer => {
                    "The loop waits for `/ralph approve`, or `/ralph plan CHANGES` for another plan."
                }
                _ => "The loop waits for `/ralph run`; see its last comment.",
            };
            return target.reject(reason.into());
        }
        if self.options.confirm.is_some() {
            return target.reject("There is no text to be confirmed; omit `--confirm`.".into());
        }
        if let Some(problem) = self.options.rejection(current, now) {
            return target.reject(problem);
        }
        let mut resumed = current.clone();
        self.options.apply_to(&mut resumed);
        if let Some(problem) = resumed.exhausted_limit_hint(now) {
            return target.reject(problem);
        }
        *current = resumed;
        current.agent.failures = 0;
        current.agent.limited_tries = 0;
        current.run.wait = None;
        add_guidance(target, self.guidance, false);
        target.reset_supervision();
        let reason = format!("{} resumed the loop", target.author().login);
        target.accept(reason.clone());
        target.queue(&reason);
    }

    fn arguments(&self) -> String {
        self.guidance.clone()
    }
}
