//! Views of questions to people, and of replies to their commands.

use serde::{Deserialize, Serialize};

use super::CommandHint;
use crate::domain::model::ids::LoopId;

/// Request for a check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NeedsCriteriaView {
    /// Loop.
    pub loop_id: LoopId,
    /// Places searched without result, or errors in them; one phrase each.
    pub looked_at: Vec<String>,
    /// Commands of the repository's checks, which all pass before any change; empty if there are none.
    #[serde(default)]
    pub holding: Vec<String>,
    /// Commands of checks that failed once and passed once without any change; empty if there are none.
    #[serde(default)]
    pub flaky: Vec<String>,
    /// Path of the repository's file on this forge.
    pub repository_file: String,
    /// People who may reply, in words.
    pub who_may: String,
}

/// Request to confirm the task text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NeedsConfirmView {
    /// Loop, if one is open.
    pub loop_id: Option<LoopId>,
    /// Reason of the request.
    pub reason: ConfirmReason,
    /// Title and text of the issue as the agent would get them.
    #[serde(alias = "text")]
    pub task_text: String,
    /// Hash of the text, as `--confirm` accepts it.
    pub hash: String,
    /// Login of the editor, if the forge reports it.
    pub editor: Option<String>,
    /// Parts of the issue that people do not see as text.
    #[serde(default)]
    pub unseen: Vec<UnseenLine>,
    /// Beginnings of these parts.
    #[serde(default)]
    pub excerpts: Vec<String>,
}

/// Parts of an issue that people do not see as text, of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnseenLine {
    /// Kind, as a plural.
    pub what: String,
    /// Number of parts.
    pub count: u32,
}

/// Reason for which a text must be confirmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConfirmReason {
    /// Edited shortly before the label by a person without write access.
    EditedBefore,
    /// Edited after the label.
    EditedAfter,
    /// Label event missed, so the text at that time is unknown.
    MissedEvent,
    /// Parts that people do not see as text, by an author without write access.
    Unseen,
}

/// Refusal of a label.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WhoMayView {
    /// Login of the person who set the label.
    pub who: String,
    /// Label.
    pub label: String,
    /// People who may set it, in words ("people with write access").
    pub who_may: String,
    /// Teams whose members the bot cannot see, so that it cannot tell whether the person may; empty if it can.
    #[serde(default)]
    pub hidden_teams: Vec<String>,
}

/// Reply to one command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandReply {
    /// Command as written.
    pub command: String,
    /// Whether the command was carried out.
    pub ok: bool,
    /// Results or errors, one sentence each.
    pub lines: Vec<String>,
    /// Nearest valid command or option after an error.
    pub nearest: Option<String>,
}

/// Notice that no backend is available; the loop continues by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitingView {
    /// Loop.
    pub loop_id: LoopId,
    /// Reason of the wait.
    pub reason: String,
    /// Time at which the loop continues, with its time zone.
    pub until: String,
    /// Length of the wait, in seconds.
    pub wait_s: u64,
    /// Login of the person to mention; `None` if the wait is short or already known to them.
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
    /// People who may give commands, in words.
    pub who_may: String,
    /// Name and version of the bot.
    pub version: String,
}

/// Setting and its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HelpSetting {
    /// Name for people ("Maximum number of iterations").
    pub name: String,
    /// Value with its unit.
    pub value: String,
}

/// Errors in the repository's file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepositoryFileErrorView {
    /// Loop, if one is open.
    pub loop_id: Option<LoopId>,
    /// Path of the file.
    pub path: String,
    /// Errors, with line and key.
    pub error: String,
}
