//! `/ralph retry`: discards and repeats the last iteration.

use serde::{Deserialize, Serialize};

use super::arguments::{CommandArguments, Problem};
use super::definition::{CommandDefinition, CommandRecord, CommandRow, CommandTarget};
use crate::domain::loops::LoopState;

/// Discards the commits of the last iteration and repeats the iteration, with the same guidance and suggested changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retry;

impl CommandDefinition for Retry {
    const ROW: CommandRow = CommandRow {
        name: "retry",
        usage: "/ralph retry",
        help: "Discards the commits of the last iteration and repeats it.",
        record: CommandRecord::SessionAndAudit,
    };

    fn parse(_: &mut CommandArguments<'_>) -> Result<Self, Problem> {
        Ok(Self)
    }

    fn apply(self, target: &mut dyn CommandTarget) {
        let (now, login) = (target.now(), target.author().login.clone());
        let current = target.current();
        let state = current.state;
        if !matches!(
            state,
            LoopState::Running | LoopState::Paused | LoopState::LimitReached | LoopState::Failed | LoopState::Review
        ) {
            return target.reject(format!("The loop is {}; there is nothing to retry.", state.words()));
        }
        let Some(last) = current.iterations.iter_mut().rev().find(|i| !i.discarded) else {
            return target.reject("No iteration has run yet.".into());
        };
        last.discarded = true;
        let (number, parent, guidance) = (last.number, last.parent.clone(), last.guidance.clone());
        if let Some(problem) = current.exhausted_limit_hint(now) {
            if let Some(last) = current.iterations.iter_mut().find(|i| i.number == number) {
                last.discarded = false;
            }
            return target.reject(problem);
        }
        current.branch.head = Some(parent);
        current.branch.verified = None;
        current.branch.restart_merge();
        // The agent's session remembers the discarded work.
        current.agent.session = None;
        current.agent.failures = 0;
        current.requests.guidance.splice(0..0, guidance);
        let again = match current.requests.apply_again(|iteration| iteration == number) {
            true => "; its suggested changes are applied again",
            false => "",
        };
        let reason = format!("{login} discarded iteration {number}{again}");
        target.rebuild_supervision();
        target.stop_work(&reason);
        target.accept(reason.clone());
        target.queue(&reason);
    }
}
