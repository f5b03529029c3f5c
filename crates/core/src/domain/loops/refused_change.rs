//! Changes on the forge that the forge refused permanently and whose absence people would notice.

use serde::{Deserialize, Serialize};

/// Change on the forge whose absence people would notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ForgeChange {
    /// Open the pull request.
    OpenPull,
    /// Update the text of the pull request.
    PullText,
    /// Mark the pull request as ready for review.
    ReadyPull,
    /// Request reviewers.
    Reviewers,
    /// Convert the pull request to a draft.
    DraftPull,
    /// Open the escalation issue, or comment on it.
    Escalation,
    /// Set the label for the loop's state.
    StateLabel,
    /// Withdraw the request to merge the pull request.
    WithdrawMerge,
    /// Set the status of the branch's commit.
    CommitStatus,
}

impl ForgeChange {
    /// All changes.
    pub const ALL: [Self; 9] = [
        Self::OpenPull,
        Self::PullText,
        Self::ReadyPull,
        Self::Reviewers,
        Self::DraftPull,
        Self::Escalation,
        Self::StateLabel,
        Self::WithdrawMerge,
        Self::CommitStatus,
    ];

    /// Returns the name, as stored.
    pub fn name(self) -> &'static str {
        match self {
            Self::OpenPull => "open_pull",
            Self::PullText => "pull_text",
            Self::ReadyPull => "ready_pull",
            Self::Reviewers => "reviewers",
            Self::DraftPull => "draft_pull",
            Self::Escalation => "escalation",
            Self::StateLabel => "state_label",
            Self::WithdrawMerge => "withdraw_merge",
            Self::CommitStatus => "commit_status",
        }
    }

    /// Returns the consequence of the refusal, as a sentence without a full stop.
    pub fn consequence(self) -> &'static str {
        match self {
            Self::OpenPull => "The bot could not open the pull request",
            Self::PullText => "The text of the pull request is out of date",
            Self::ReadyPull => "The pull request stays a draft",
            Self::Reviewers => "No reviewer was requested",
            Self::DraftPull => "The pull request is shown as ready, although work continues",
            Self::Escalation => "The bot could not open the issue that asks for a decision",
            Self::StateLabel => "The label of the state is out of date",
            Self::WithdrawMerge => "The forge may still merge the pull request by itself",
            Self::CommitStatus => {
                "The bot could not set the status `ralph/verified` of the commit, so a rule that requires it blocks the merge"
            }
        }
    }

    /// Returns advice for people, as a sentence without a full stop.
    pub fn advice(self) -> &'static str {
        match self {
            Self::OpenPull => "Allow the bot's account to open pull requests here, then comment `/ralph resume`",
            Self::PullText => "Allow the bot's account to edit pull requests, then comment `/ralph resume`",
            Self::ReadyPull => {
                "Mark it as ready yourself, or allow the bot's account to write pull requests and comment `/ralph resume`"
            }
            Self::Reviewers => "Request the reviewers yourself; they need access to the repository",
            Self::DraftPull => "Do not merge it yet, or convert it to a draft yourself",
            Self::Escalation => {
                "Allow the bot's account to open and label issues here; until then, answer on the loop's own issue"
            }
            Self::StateLabel => "Allow the bot's account to set labels; until then, the status comment shows the state",
            Self::WithdrawMerge => "Disable auto-merge on the pull request yourself",
            Self::CommitStatus => {
                "Allow the App to write checks, or the token to write commit statuses, then comment `/ralph resume`"
            }
        }
    }
}

/// Change that the forge refused. It is stored until it is made or retried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedChange {
    /// Change that was refused.
    pub change: ForgeChange,
    /// Request and the forge's answer, without a full stop.
    pub detail: String,
}

impl RefusedChange {
    /// Returns the consequence and the forge's answer, as a sentence without a full stop.
    pub fn sentence(&self) -> String {
        format!("{}: the forge refused to {}", self.change.consequence(), self.detail.trim_end_matches('.'))
    }

    /// Returns the consequence, the forge's answer, and advice, in two sentences.
    pub fn words(&self) -> String {
        format!("{}. {}.", self.sentence(), self.change.advice())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_is_stored_by_its_name_and_has_a_consequence_and_an_advice() {
        for change in ForgeChange::ALL {
            assert_eq!(serde_json::to_value(change).expect("JSON"), change.name());
            let refused = RefusedChange { change, detail: "change acme/app#7: HTTP 403: no.".to_owned() };
            let words = refused.words();
            assert!(words.starts_with(change.consequence()) && words.ends_with(&format!("{}.", change.advice())));
            assert!(words.contains("the forge refused to change acme/app#7: HTTP 403: no. "), "{words}");
        }
    }
}
