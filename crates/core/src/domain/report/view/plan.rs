//! Views of a plan: the comment that requests its approval, and its mention in other texts.

use serde::{Deserialize, Serialize};

use super::CommandHint;
use crate::domain::model::ids::LoopId;

/// Plan waiting for approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanView {
    /// Id of the loop.
    pub loop_id: LoopId,
    /// Start of the plan's hash, for commands.
    pub hash: String,
    /// Summary of the planned change, in a few sentences.
    pub summary: String,
    /// Steps, in order.
    pub steps: Vec<String>,
    /// Files and folders to change.
    pub files: Vec<String>,
    /// Checks that verify the result.
    pub checks: Vec<String>,
    /// Work that the plan excludes.
    pub not_doing: Vec<String>,
    /// Questions for people.
    pub questions: Vec<String>,
    /// Login of the person to mention, who started the loop; `None` for a bot.
    pub mention: Option<String>,
    /// Commands that are valid now.
    pub commands: Vec<CommandHint>,
    /// Description of the people who may approve the plan.
    pub who_may: String,
    /// Whether this is a reminder of an unanswered plan.
    #[serde(default)]
    pub reminder: bool,
}

/// Plan of a loop as part of another text about the loop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanLine {
    /// Start of the hash.
    pub hash: String,
    /// Text of the plan as passed to the agent.
    pub plan_text: String,
    /// Login of the person who approved the plan; empty if it is not approved.
    pub approved_by: String,
    /// Time of the approval, with its time zone; empty if the plan is not approved.
    pub approved_at: String,
    /// Changes approved together with the plan; may be empty.
    pub changes: String,
}
