//! `/ralph plan`: requests a plan that people approve before anything is implemented.

use serde::{Deserialize, Serialize};

use super::arguments::{CommandArguments, Problem};
use super::definition::{CommandDefinition, CommandRecord, CommandRow, CommandTarget};
use super::run::supply;
use crate::domain::loops::{Guidance, LoopState, Planning, RunOptions};
use crate::domain::model::stated_facts::StatedFacts;

/// Requests a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MakePlan {
    /// Options of the loop.
    pub options: RunOptions,
    /// Wishes for the plan; may be empty.
    pub wishes: String,
}

impl CommandDefinition for MakePlan {
    const ROW: CommandRow = CommandRow {
        name: "plan",
        usage: "/ralph plan [options of run] [requests…]",
        help: "Has the agent make a plan, or another one, and waits for its approval before anything is implemented.",
        record: CommandRecord::SessionAndAudit,
    };

    fn parse(arguments: &mut CommandArguments<'_>) -> Result<Self, Problem> {
        Ok(Self { options: RunOptions::parse(arguments)?, wishes: arguments.text() })
    }

    /// Applies the command to an existing loop that has not started to implement.
    fn apply(self, target: &mut dyn CommandTarget) {
        let (now, login) = (target.now(), target.author().login.clone());
        let current = target.current();
        if !current.iterations.is_empty() {
            return target.reject(
                "The loop has started to implement. `/ralph guide TEXT` directs it; for a plan, `/ralph abort` it and \
                 `/ralph plan` again."
                    .into(),
            );
        }
        if let Err(problem) = supply(current, &self.options, now) {
            return target.reject(problem.to_string());
        }
        let current = target.current();
        let planning = current.knowledge.planning.get_or_insert_default();
        planning.wishes.extend(Guidance::of_command(&login, self.wishes));
        (planning.another, planning.failed, planning.approval) = (planning.proposed.is_some(), 0, None);
        current.knowledge.stated.plan = StatedFacts::default();
        let state = current.state;
        let reason = format!("{login} asked for a plan");
        target.accept(reason.clone());
        if state == LoopState::Running {
            target.stop_work(&reason);
        }
        target.queue(&reason);
    }

    fn arguments(&self) -> String {
        self.wishes.clone()
    }
}

impl Planning {
    /// Creates the planning that a person requested. `wishes` may be empty.
    pub fn asked_by(login: &str, wishes: String) -> Self {
        Self::new(Guidance::of_command(login, wishes))
    }
}
