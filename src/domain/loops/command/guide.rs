//! `/ralph guide`: guidance for the next iteration.

use serde::{Deserialize, Serialize};

use super::arguments::{CommandArguments, Problem};
use super::{CommandDefinition, CommandRecord, CommandRow, CommandTarget};
use crate::domain::loops::{Guidance, GuidanceSource, LoopState};

/// Adds guidance to the prompt of the next iteration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guide {
    /// Whether it becomes a rule of the repository for later loops.
    pub remember: bool,
    /// Guidance; not empty.
    pub text: String,
}

impl CommandDefinition for Guide {
    const ROW: CommandRow = CommandRow {
        name: "guide",
        usage: "/ralph guide [--remember] TEXT",
        help: "Gives guidance to the next iteration without pausing; `--remember` makes it a rule for later loops.",
        record: CommandRecord::SessionAndAudit,
    };

    fn parse(arguments: &mut CommandArguments<'_>) -> Result<Self, Problem> {
        let remember = arguments.flag("--remember")?;
        match arguments.text() {
            text if text.is_empty() => Err(("`/ralph guide` needs the guidance as text after it.".into(), None)),
            text => Ok(Self { remember, text }),
        }
    }

    fn apply(self, target: &mut dyn CommandTarget) {
        let login = target.author().login.clone();
        let remembered = if self.remember { "; it is remembered for the repository" } else { "" };
        add_guidance(target, self.text, self.remember);
        target.accept(format!("{login} gave guidance for the next iteration{remembered}"));
        if target.current().state == LoopState::Review {
            target.queue("a maintainer gave guidance on finished work");
        } else {
            target.update_status(false);
        }
    }

    fn arguments(&self) -> String {
        format!("{}{}", if self.remember { "--remember " } else { "" }, self.text)
    }
}

/// Adds the author's guidance for the next iteration, unless it is blank.
pub(super) fn add_guidance(target: &mut dyn CommandTarget, text: String, remember: bool) {
    if !text.trim().is_empty() {
        let who = target.author().login.clone();
        target.current().guidance.push(Guidance { who, source: GuidanceSource::Command, text, path: None, remember });
    }
}
