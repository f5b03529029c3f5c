//! What people see before a loop runs, and the answers to what they ask of the bot.

use serde::{Deserialize, Serialize};

use super::CommandHint;
use crate::domain::model::ids::{LoopId, Money};

/// The first comment of a loop: what will be done, measured how, within which limits, led by whom.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StartedView {
    /// Which loop.
    pub loop_id: LoopId,
    /// Title of the issue.
    pub task_title: String,
    /// Login of the person who started it.
    pub started_by: String,
    /// The checks and where each comes from.
    pub checks: Vec<DetectedCheck>,
    /// Whether the checks were found from the tree and nobody named them.
    pub detected: bool,
    /// Limit of iterations.
    pub max_iterations: u32,
    /// Limit of working time.
    pub timeout_s: u64,
    /// Limit of money.
    pub cost_limit: Option<Money>,
    /// Backend that will work.
    pub backend: String,
    /// What the agent is kept in, in a few words.
    pub sandbox: String,
    /// Branch that the work starts from.
    pub base_branch: String,
    /// Branch that the work goes to.
    pub branch: String,
    /// Who may give commands, in words ("people with write access").
    pub who_may: String,
    /// Pieces of text that the forge does not show and the agent will not get.
    pub hidden_removed: usize,
    /// Commands that make sense now.
    pub commands: Vec<CommandHint>,
}

/// A check and whose word it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DetectedCheck {
    /// Short name.
    pub name: String,
    /// Shell command.
    pub command: String,
    /// Its rule in words ("exits with 0", "coverage of at least 80 %").
    pub rule: String,
    /// Where it comes from, in words ("this issue", "`.github/ralph.yml`", "found from Cargo.toml").
    pub source: String,
}

/// Nothing verifiable was found; how to name something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NeedsCriteriaView {
    /// Which loop.
    pub loop_id: LoopId,
    /// What was looked at and not found, a phrase each.
    pub looked_at: Vec<String>,
    /// Path of the repository's file on this forge.
    pub repository_file: String,
    /// Who may answer, in words.
    pub who_may: String,
}

/// A text that must be confirmed before it is worked on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NeedsConfirmView {
    /// Which loop, where one is open already.
    pub loop_id: Option<LoopId>,
    /// Why it is asked.
    pub reason: Confirm,
    /// The text as it would be worked on.
    pub text: String,
    /// Its hash, as `--confirm` takes it.
    pub hash: String,
    /// Login of who edited it, where the forge says.
    pub editor: Option<String>,
}

/// Why a text must be confirmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Confirm {
    /// Edited by somebody without write access shortly before it was labelled.
    EditedBefore,
    /// Edited after it was labelled.
    EditedAfter,
    /// The event was missed, so nobody knows what the text was when it was labelled.
    MissedEvent,
}

/// Who may start loops and give commands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WhoMayView {
    /// Login of the person who set the label.
    pub who: String,
    /// The label.
    pub label: String,
    /// Who may, in words ("people with write access").
    pub who_may: String,
}

/// The answer to one command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandReply {
    /// The command as it was given.
    pub command: String,
    /// Whether it was carried out.
    pub ok: bool,
    /// What happened, or what is wrong: a sentence each.
    pub lines: Vec<String>,
    /// The nearest valid command or option, where something was wrong.
    pub nearest: Option<String>,
}

/// Nothing can run for a while; the loop goes on by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitingView {
    /// Which loop.
    pub loop_id: LoopId,
    /// What is in the way.
    pub reason: String,
    /// When it goes on, with the zone.
    pub until: String,
    /// How long that is from now, in seconds.
    pub wait_s: u64,
    /// Login of the person who is to be told; `None` where that is nobody.
    pub mention: Option<String>,
    /// Commands that make sense now.
    pub commands: Vec<CommandHint>,
}

/// The commands, the effective settings, and who may use them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HelpView {
    /// All commands.
    pub commands: Vec<CommandHint>,
    /// Effective settings that matter to the reader.
    pub settings: Vec<HelpSetting>,
    /// Who may, in words.
    pub who_may: String,
    /// Name and version of the bot.
    pub version: String,
}

/// One setting and what it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HelpSetting {
    /// What it is about ("iterations at most").
    pub name: String,
    /// Its value.
    pub value: String,
}

/// The repository's file cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepositoryFileErrorView {
    /// Which loop, where one is open.
    pub loop_id: Option<LoopId>,
    /// Path of the file.
    pub path: String,
    /// What is wrong, with line and key.
    pub error: String,
}
