//! Commands that the service proposed as checks, which people accept by their number in the list.

use ralph_types::failure::Failure;
use serde::{Deserialize, Serialize};

use super::run_options::RunOptions;
use crate::domain::model::task::{CheckOutcome, CheckReport};

/// Exit code of a shell whose command does not exist.
const NO_SUCH_COMMAND: i32 = 127;

/// Proposed command and its result before any change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProposedCheck {
    /// Shell command, one line.
    pub command: String,
    /// Whether it passed.
    pub holds: bool,
    /// Reason for the failure, in a few words; empty if it passed.
    pub why: String,
}

impl ProposedCheck {
    /// Returns the proposals of a report, in its order.
    pub fn all_of(report: CheckReport) -> Vec<Self> {
        let proposal = |outcome: CheckOutcome| {
            let is_missing = outcome.exit_code == Some(NO_SUCH_COMMAND);
            let why = if is_missing { "a program that it calls is not installed".to_owned() } else { outcome.why };
            Self { command: outcome.command, holds: outcome.holds, why }
        };
        report.outcomes.into_iter().map(proposal).collect()
    }
}

/// Whether a `--check` is the number of a proposal, as opposed to a command.
pub fn is_number(check: &str) -> bool {
    !check.is_empty() && check.bytes().all(|byte| byte.is_ascii_digit())
}

impl RunOptions {
    /// Returns the commands of the checks. A check that is a number is replaced by the proposal with this number, counted from 1.
    ///
    /// # Errors
    /// There is no proposal with the number. The error is one sentence for the command's author.
    pub fn commands(&self, proposed: &[ProposedCheck]) -> Result<Vec<String>, Failure> {
        let command = |check: &String| {
            if !is_number(check) {
                return Ok(check.clone());
            }
            let index = check.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
            let chosen = index.and_then(|index| proposed.get(index));
            chosen.map(|proposal| proposal.command.clone()).ok_or_else(|| {
                Failure::new(match proposed.len() {
                    0 => format!("`--check {check}` names no command, because no check was proposed here."),
                    1 => format!("There is no proposed check {check}; the list has only number 1."),
                    most => format!("There is no proposed check {check}; the list has the numbers 1 to {most}."),
                })
            })
        };
        self.checks.iter().map(command).collect()
    }
}
