//! Views of a plan: the comment that asks for its approval, and its lines in other texts.

use serde::{Deserialize, Serialize};

use super::CommandHint;
use crate::domain::model::ids::LoopId;

/// Plan that waits for an approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanView {
    /// Loop.
    pub loop_id: LoopId,
    /// Beginning of the hash, as commands take it.
    pub hash: String,
    /// Summary of what is to be done, in a few sentences.
    pub summary: String,
    /// Steps, in order.
    pub steps: Vec<String>,
    /// Files and folders to change.
    pub files: Vec<String>,
    /// Checks that show that it is done.
    pub checks: Vec<String>,
    /// Things that will not be done.
    pub not_doing: Vec<String>,
    /// Questions to people.
    pub questions: Vec<String>,
    /// Login of the person who started the loop, to mention; `None` for a bot.
    pub mention: Option<String>,
    /// Commands that are valid now.
    pub commands: Vec<CommandHint>,
    /// People who may approve it, in words.
    pub who_may: String,
    /// Whether it was posted before and nobody replied.
    #[serde(default)]
    pub reminder: bool,
}

/// Plan of a loop, in a text about the loop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanLine {
    /// Beginning of the hash.
    pub hash: String,
    /// Text that the agent gets.
    pub plan_text: String,
    /// Login of the person who approved it; empty before.
    pub approved_by: String,
    /// Time of the approval, with its time zone; empty before.
    pub approved_at: String,
    /// Changes that were approved with it; may be empty.
    pub changes: String,
}
