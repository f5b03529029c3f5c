//! `/ralph guide`: adds guidance for the next iteration.

use serde::{Deserialize, Serialize};

use super::arguments::{CommandArguments, Problem};
use super::definition::{CommandDefinition, CommandRecord, CommandRow, CommandTarget};
use crate::domain::loops::{Guidance, GuidanceSource, LoopState};

/// Adds guidance to the prompt of the next iteration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guide {
    /// Whether to remember the guidance as a rule of the repository for later loops.
    pub remember: bool,
    /// Guidance. Empty only if `proposal` is set; the service then fills in the proposal's text.
    pub text: String,
    /// Number of the proposed convention that the command accepts; `None` if it accepts none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proposal: Option<u64>,
}

impl CommandDefinition for Guide {
    const ROW: CommandRow = CommandRow {
        name: "guide",
        usage: "/ralph guide [--remember] TEXT",
        help: "Gives guidance to the next iteration without pausing; `--remember` makes it a rule for later loops, `--remember NUMBER` accepts a proposed one.",
        record: CommandRecord::SessionAndAudit,
    };

    fn parse(arguments: &mut CommandArguments<'_>) -> Result<Self, Problem> {
        let remember = arguments.flag("--remember")?;
        match arguments.text() {
            text if text.is_empty() => Err(("`/ralph guide` needs the guidance as text after it.".into(), None)),
            text => match text.trim_start_matches('#').parse() {
                Ok(number) if remember => Ok(Self { remember, text: String::new(), proposal: Some(number) }),
                _ => Ok(Self { remember, text, proposal: None }),
            },
        }
    }

    fn apply(self, target: &mut dyn CommandTarget) {
        let login = target.author().login.clone();
        match (self.accepted(&login), self.proposal) {
            (Some(accepted), _) => return target.accept(accepted),
            (None, Some(number)) => return target.reject(format!("There is no proposal {number} in this repository.")),
            (None, None) => {}
        }
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
        if let Some(number) = self.proposal {
            return format!("--remember {number} {}", self.text).trim().to_owned();
        }
        format!("{}{}", if self.remember { "--remember " } else { "" }, self.text)
    }
}

impl Guide {
    /// Returns the answer to the acceptance of a proposal, after its text was filled in. `None` if the command accepts no
    /// proposal.
    pub fn accepted(&self, login: &str) -> Option<String> {
        let number = self.proposal.filter(|_| !self.text.is_empty())?;
        Some(format!("{login} accepted the proposal {number}; later loops of the repository get it as a rule"))
    }
}

/// Adds guidance by the author for the next iteration, unless the text is blank.
pub(super) fn add_guidance(target: &mut dyn CommandTarget, text: String, remember: bool) {
    if !text.trim().is_empty() {
        let who = target.author().login.clone();
        target.current().requests.guidance.push(Guidance {
            who,
            source: GuidanceSource::Command,
            text,
            path: None,
            remember,
        });
    }
}
