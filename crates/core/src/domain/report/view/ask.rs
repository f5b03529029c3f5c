//! Views of questions to people, and of replies to their commands.

use serde::{Deserialize, Serialize};

use super::CommandHint;
use crate::domain::model::ids::LoopId;

/// Request for a check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NeedsCriteriaView {
    /// Id of the loop.
    pub loop_id: LoopId,
    /// Places without checks, or errors in checks; one phrase each.
    pub looked_at: Vec<String>,
    /// Commands of the repository's checks if all of them pass before any change; otherwise empty.
    #[serde(default)]
    pub holding: Vec<String>,
    /// Commands of checks that failed once and passed once without a change; may be empty.
    #[serde(default)]
    pub flaky: Vec<String>,
    /// Commands that were proposed as checks, in the order of their numbers; may be empty.
    #[serde(default)]
    pub proposed: Vec<ProposedLine>,
    /// Path of the repository's file on this forge.
    pub repository_file: String,
    /// Description of the people who may reply.
    pub who_may: String,
}

/// Row of the list of proposed checks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProposedLine {
    /// Command.
    pub command: String,
    /// Result before any change ("passes", "fails (exit code 1)").
    pub result: String,
}

/// Request to confirm the task's text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NeedsConfirmView {
    /// Loop; `None` if no loop is open.
    pub loop_id: Option<LoopId>,
    /// Reason for the request.
    pub reason: ConfirmReason,
    /// Title and text of the issue as passed to agents.
    #[serde(alias = "text")]
    pub task_text: String,
    /// Hash of the text, for `--confirm`.
    pub hash: String,
    /// Editor's login; `None` if the forge does not report it.
    pub editor: Option<String>,
    /// Parts of the issue that the forge does not display as text, by kind.
    #[serde(default)]
    pub unseen: Vec<UnseenLine>,
    /// Starts of these parts.
    #[serde(default)]
    pub excerpts: Vec<String>,
}

/// One row of the hidden-content summary: a kind of hidden content and its count.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnseenLine {
    /// Name of the kind, in the plural.
    pub what: String,
    /// Number of parts.
    pub count: u32,
}

/// Reason why a text must be confirmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConfirmReason {
    /// A person without write access edited the text shortly before the label was set.
    EditedBefore,
    /// The text was edited after the label was set.
    EditedAfter,
    /// The label's event was missed, so the text at that time is unknown.
    MissedEvent,
    /// An author without write access wrote parts that the forge does not display as text.
    Unseen,
}

/// Rejection of a label.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WhoMayView {
    /// Login of the person who set the label.
    pub who: String,
    /// Label.
    pub label: String,
    /// Description of the people who may set the label ("people with write access").
    pub who_may: String,
    /// Teams with hidden members, which prevent the bot from determining whether the person may set the label; may be empty.
    #[serde(default)]
    pub hidden_teams: Vec<String>,
}

/// Reply to one command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandReply {
    /// Command as written.
    pub command: String,
    /// Whether the command was executed.
    pub ok: bool,
    /// Results or errors, one sentence each.
    pub lines: Vec<String>,
    /// Nearest valid command or option; `None` without an error or a similar name.
    pub nearest: Option<String>,
}

/// Notice that no backend is available; the loop continues by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitingView {
    /// Id of the loop.
    pub loop_id: LoopId,
    /// Reason for the wait.
    pub reason: String,
    /// Time when the loop continues, with its time zone.
    pub until: String,
    /// Length of the wait, in seconds.
    pub wait_s: u64,
    /// Login of the person to mention; `None` if the wait is short, or if the person already knows about it.
    pub mention: Option<String>,
    /// Commands that are valid now.
    pub commands: Vec<CommandHint>,
}

/// Commands, effective settings and permissions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HelpView {
    /// All commands.
    pub commands: Vec<CommandHint>,
    /// Effective limits.
    pub settings: Vec<HelpSetting>,
    /// Description of the people who may give commands.
    pub who_may: String,
    /// Name and version of the bot.
    pub version: String,
}

/// Setting and its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HelpSetting {
    /// Display name ("Maximum number of iterations").
    pub name: String,
    /// Value with its unit.
    pub value: String,
}

/// Errors in the repository's file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepositoryFileErrorView {
    /// Loop; `None` if no loop is open.
    pub loop_id: Option<LoopId>,
    /// Path of the file.
    pub path: String,
    /// Errors, with line and key.
    pub error: String,
}
