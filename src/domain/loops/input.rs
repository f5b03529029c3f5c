//! What a loop is told: people's wishes, outcomes of work, time. Everything that happened outside, as values.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::aggregate::{Guidance, LoopTask};
use super::estimate::Estimate;
use crate::domain::checks::criteria::TaskType;
use crate::domain::model::ids::IssueRef;
use crate::domain::model::ids::{CommentId, LoopId, Money, Number, Sha, Timestamp, User};
use crate::domain::model::task::{AgentReport, Check, CheckReport, DiffStat, TamperFinding};
use crate::domain::providers::money::Cumulative;
use crate::domain::supervision::experience::Experience;
use crate::domain::trust::command::{Command, RunOptions};
use crate::domain::trust::policy::{Policy, RepositorySettings};

/// Timers of a loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TimerKind {
    /// The loop's time is spent.
    Deadline,
    /// A wait for a backend is over.
    Reactivate,
    /// Nobody answered an escalation for a day.
    Remind,
}

impl TimerKind {
    /// Name in the store.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Deadline => "deadline",
            Self::Reactivate => "reactivate",
            Self::Remind => "remind",
        }
    }

    /// The timer of that name.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Deadline, Self::Reactivate, Self::Remind].into_iter().find(|kind| kind.as_str() == name)
    }
}

/// A comment that carried a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommentRef {
    /// Issue or pull request that it stands on; answers go there.
    pub on: Number,
    /// The comment, where reactions can be set.
    pub id: Option<CommentId>,
}

/// What comes to a loop. People's inputs have passed the permission check before they get here.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "input", rename_all = "snake_case")]
pub enum LoopInput {
    /// Somebody with permission asked for a loop.
    Start(Box<LoopStart>),
    /// A slot is free.
    SlotGranted,
    /// A command.
    Command { by: User, command: Command, comment: Option<CommentRef> },
    /// The label that started the loop was taken off.
    RunLabelRemoved { by: Option<User> },
    /// The label that started the loop was set again.
    RunLabelAdded { by: User },
    /// The issue was closed, deleted or moved.
    IssueEnded { how: String },
    /// The pull request exists.
    PullOpened { number: Number, url: String },
    /// The pull request was merged.
    PullMerged,
    /// The pull request was closed unmerged.
    PullClosed,
    /// The pull request goes to another branch than before.
    PullRetargeted { base: String },
    /// What somebody with permission asked for in review, each with a key that tells a repeated one.
    Reviewed { by: User, items: Vec<(String, Guidance)> },
    /// What CI and merging look like for a commit of the pull request.
    Inspected { commit: Sha, failed: Vec<Guidance>, pending: u32, conflict: bool },
    /// The person whose authority the loop runs on lost the permission.
    AuthorityLost { who: String },

    /// The tree is ready.
    Prepared { ticket: u64, tree: Box<PreparedTree> },
    /// Checks ran.
    Checked { ticket: u64, report: CheckReport },
    /// The agent's run ended.
    AgentEnded { ticket: u64, run: Box<AgentRunFacts> },
    /// The process that ran the agent died; what was in the tree is kept under `salvaged`.
    AgentLost {
        ticket: u64,
        salvaged: Option<Sha>,
        /// What the lost run is taken to have cost.
        #[serde(default)]
        cost: Money,
    },
    /// Models were asked once more when the loop had ended.
    AskedAtEnd { cost: Money },
    /// The tree was recorded.
    Committed { ticket: u64, change: Box<IterationChange> },
    /// The best iteration's files are put back; `commit` records it, `None` where the tree had them already.
    Restored { ticket: u64, commit: Option<Sha> },
    /// The branch was pushed.
    Pushed { ticket: u64, commit: Sha },
    /// The forge's branch is not where we left it, or may not be pushed to.
    PushRejected { ticket: u64, remote: Option<Sha>, reason: String },
    /// The other side of a merge is in the tree.
    Merged { ticket: u64, other: Sha, conflicts: Vec<String>, up_to_date: bool },
    /// The service could not do a piece of work, for good.
    WorkFailed { ticket: u64, reason: String, advice: String },
    /// A piece of work could not be done now, mostly because the forge does not answer; it is tried again then.
    PutOff { ticket: u64, until: Timestamp },
    /// The repository's file does not hold.
    RepositoryFileBroken { ticket: u64, path: String, problems: Vec<String> },

    /// The machine's clock was set ahead (or back, below 0) while the loop was running.
    ClockSet { by_ms: i64 },
    /// A timer came due.
    TimerDue { timer: TimerKind },
}

/// What a new loop begins with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoopStart {
    /// Its id, made by the shell.
    pub id: LoopId,
    /// Repository and issue.
    pub place: IssueRef,
    /// Who asked.
    pub by: User,
    /// The task.
    pub task: LoopTask,
    /// Options.
    pub options: RunOptions,
    /// The operator's settings.
    pub policy: Policy,
    /// Comment that asked for it.
    pub comment: Option<CommentRef>,
    /// Parts that were taken out of the text because the forge does not show them.
    pub hidden_removed: u32,
    /// Which loop of its issue it is, from 1; later ones get a branch of their own.
    pub round: u32,
}

/// A prepared tree.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PreparedTree {
    /// Branch that the work starts from.
    pub base_branch: String,
    /// Its newest commit.
    pub base: Sha,
    /// Where the tree stands.
    pub head: Sha,
    /// Where the forge's branch of ours is, if it is there.
    pub remote: Option<Sha>,
    /// Operator's policy narrowed by the repository's file.
    pub policy: Policy,
    /// What of the repository's file has no effect, a sentence each.
    pub notes: Vec<String>,
    /// The repository's file, where there is one.
    pub settings: Option<RepositorySettings>,
    /// Checks found from the tree.
    pub detected: Vec<Check>,
    /// What earlier loops of the repository took, by the sort of task.
    #[serde(default)]
    pub estimates: BTreeMap<TaskType, Estimate>,
    /// What earlier loops of the repository were like.
    #[serde(default)]
    pub experience: Experience,
    /// How the sandbox holds, for people.
    pub sandbox: String,
}

/// How an agent's run ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AgentRunFacts {
    /// How.
    pub end: AgentEnd,
    /// The report, where it wrote a valid one.
    pub report: Option<AgentReport>,
    /// Last message.
    pub message: String,
    /// Money.
    pub cost: Option<Money>,
    /// Tokens read by the model.
    pub tokens_in: u64,
    /// Tokens written by the model.
    pub tokens_out: u64,
    /// Tool calls.
    pub tool_calls: u32,
    /// Tool calls that failed.
    #[serde(default)]
    pub tool_errors: u32,
    /// The tools that it called, in order, each once.
    #[serde(default)]
    pub tools: Vec<String>,
    /// Milliseconds.
    pub duration_ms: u64,
    /// Who served it.
    #[serde(default)]
    pub served: ServedBy,
    /// The session that it left, where the next run could go on with it.
    #[serde(default)]
    pub session: Option<AgentSession>,
    /// Approaches that earlier loops failed with, as its prompt told.
    #[serde(default)]
    pub failed_elsewhere: Vec<String>,
    /// Hosts, with their ports, that it asked for and that are not listed.
    #[serde(default)]
    pub refused_hosts: Vec<String>,
}

impl AgentRunFacts {
    /// A run of which nothing but its end is known.
    pub fn ending(end: AgentEnd) -> Self {
        Self {
            end,
            report: None,
            message: String::new(),
            cost: None,
            tokens_in: 0,
            tokens_out: 0,
            tool_calls: 0,
            tool_errors: 0,
            tools: Vec::new(),
            duration_ms: 0,
            served: ServedBy::default(),
            session: None,
            failed_elsewhere: Vec::new(),
            refused_hosts: Vec::new(),
        }
    }
}

/// A session of an agent as a run left it, for the next one to go on with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AgentSession {
    /// The backend.
    pub backend: String,
    /// The model that was asked for; `None` for the backend's own.
    pub model: Option<String>,
    /// The backend's name for it.
    pub id: String,
    /// Name of the folder among the loop's that its files are in.
    pub files: String,
    /// How full it is, in percent of the context window, where that is known.
    pub context_pct: Option<f64>,
    /// What it has used, by the backend's account.
    pub account: Cumulative,
}

/// Who served a run of the agent.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ServedBy {
    /// The backend that ran last; empty where none did.
    pub backend: String,
    /// Its model, where one was asked for or named.
    pub model: Option<String>,
    /// Whether the cost, or a part of it, is an estimate of ours.
    pub estimated: bool,
    /// Whether it used tokens of which nobody knows what they cost.
    pub unpriced: bool,
    /// The backend's session.
    pub session: Option<String>,
    /// Whether it went on with the session of the run before.
    pub resumed: bool,
    /// How full that session is, in percent of the context window, where that is known.
    pub context_pct: Option<f64>,
    /// Backends that were left on the way, a sentence each.
    pub switched: Vec<String>,
}

/// How an agent's run ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "end", rename_all = "snake_case")]
pub enum AgentEnd {
    /// By itself, well.
    Finished,
    /// By itself, with an error.
    Failed { reason: String },
    /// At its time or idle limit.
    TimedOut { what: String },
    /// Because we stopped it.
    Cancelled,
    /// It could not be started or has no valid login.
    Unavailable { reason: String },
    /// Its vendor limits it until a moment, where it said one.
    Limited { until: Option<Timestamp>, reason: String },
    /// At the money limit.
    OverBudget,
    /// It was not begun: a limit of money is in the way.
    NoMoney {
        reason: String,
        /// When there is money again by itself, where that is so.
        #[serde(default)]
        until: Option<Timestamp>,
    },
}

/// What an iteration changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct IterationChange {
    /// The commit; `None` where nothing changed.
    pub commit: Option<Sha>,
    /// Hash of the whole tree.
    pub tree: Sha,
    /// Size.
    pub stat: DiffStat,
    /// Size of all work of the loop, against its base; a renamed file is two. `None` where it was not measured.
    #[serde(default)]
    pub whole: Option<DiffStat>,
    /// Protected paths that were put back.
    pub restored: Vec<String>,
    /// Signs of weakened checks.
    pub findings: Vec<TamperFinding>,
    /// Files that still bear conflict markers.
    pub conflict_markers: Vec<String>,
    /// Why it must not be pushed before a person has looked, if so.
    pub blocked: Option<String>,
}
