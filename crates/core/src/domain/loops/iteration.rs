//! Iteration of a loop, with the guidance that its prompt contains.

use serde::{Deserialize, Serialize};

use super::agent_run::ServedBy;
use super::branch_findings::BranchFinding;
use super::judgement::IterationJudgement;
use crate::domain::model::ids::{CommentId, Money, Ratio, Sha, Timestamp};
use crate::domain::model::record::Record;
use crate::domain::model::task::{AgentReport, CheckReport, DiffStat, TamperFinding};

/// Iteration of a loop, from the prompt to the checks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Iteration {
    /// 1-based number.
    pub number: u32,
    /// 1-based number of the attempt that this data is about.
    pub attempt: u32,
    /// Number of earlier attempts that were lost after the agent had started.
    #[serde(default, skip_serializing_if = "super::aggregate::is_zero")]
    pub interrupted: u32,
    /// Kind of the iteration's work.
    #[serde(default)]
    pub kind: IterationKind,
    /// Start of the iteration's first attempt.
    pub started_at: Timestamp,
    /// End of the iteration, after its checks; `None` while it is running.
    pub ended_at: Option<Timestamp>,
    /// Problem that ended the agent's run; empty while the run is in progress and if it succeeded.
    pub agent_problem: String,
    /// Report of the agent.
    pub report: AgentReport,
    /// Last message of the agent, which is used if the report has no summary.
    pub message: String,
    /// Cost of the iteration's model calls.
    pub cost: Money,
    /// Number of tool calls.
    pub tool_calls: u32,
    /// Number of tool calls that failed.
    #[serde(default)]
    pub tool_errors: u32,
    /// Names of the called tools, in the order of their first calls.
    #[serde(default)]
    pub tools: Vec<String>,
    /// Input tokens of the iteration's model calls.
    #[serde(default)]
    pub tokens_in: u64,
    /// Output tokens of the iteration's model calls.
    #[serde(default)]
    pub tokens_out: u64,
    /// Duration of the agent's run, in milliseconds.
    pub agent_ms: u64,
    /// Backend that served the agent's run.
    #[serde(default)]
    pub served: ServedBy,
    /// Commit; `None` if nothing changed.
    pub commit: Option<Sha>,
    /// Hash of the complete tree after the iteration.
    pub tree: Option<Sha>,
    /// Head before the iteration.
    pub parent: Sha,
    /// Size of the iteration's change.
    pub stat: DiffStat,
    /// Changes that were not committed because of where they are, one sentence each without a full stop.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<String>,
    /// Files in which the iteration left the conflict markers of a merge; its change was not kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unresolved: Vec<String>,
    /// Size of the iteration's patch and of its new binary files, in bytes; 0 for a merge.
    #[serde(default)]
    pub change_bytes: u64,
    /// Size of the iteration's new binary files, in bytes; 0 for a merge.
    #[serde(default)]
    pub binary_bytes: u64,
    /// Size of the branch's complete change after the iteration; a renamed file counts as two. `None` if it was not measured.
    #[serde(default, rename = "whole")]
    pub branch_stat: Option<DiffStat>,
    /// Protected paths that were restored.
    pub restored: Vec<String>,
    /// Findings of weakened checks in the iteration's change.
    pub findings: Vec<TamperFinding>,
    /// Findings in the branch's complete change after the iteration; `None` if it was not measured.
    #[serde(default)]
    pub branch_findings: Option<Vec<BranchFinding>>,
    /// Changes to tests without which the checks fail, as a patch; empty if there are none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub test_changes: String,
    /// Results of the checks.
    pub checks: CheckReport,
    /// Measured completion.
    pub completion: Ratio,
    /// Guidance that the iteration's prompt contained.
    pub guidance: Vec<Guidance>,
    /// Comments whose suggested changes are in the iteration's commit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub applied: Vec<CommentId>,
    /// Whether `/ralph retry` discarded the iteration.
    pub discarded: bool,
    /// Whether the iteration's commit was removed from the branch, because the forge found a secret in it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub taken_back: bool,
    /// Cosine of the embeddings of the task and of the work, -1..1; `None` without an embedding model or without text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objective_cosine: Option<f64>,
    /// Record for supervision; `None` until the iteration has ended.
    #[serde(default)]
    pub record: Option<Record>,
    /// Result of supervision; `None` until the iteration was judged.
    #[serde(default)]
    pub judged: Option<IterationJudgement>,
    /// Hosts, with ports, that the agent tried to reach in its last attempt and that are not on the allow list.
    #[serde(default)]
    pub refused_hosts: Vec<String>,
    /// Model requests that the key broker refused in the agent's last attempt.
    #[serde(default)]
    pub refused_requests: Vec<String>,
    /// Tools whose use the agent's own permissions denied in its last attempt.
    #[serde(default)]
    pub denied_tools: Vec<String>,
    /// Whether the agent was killed: at a limit, by the service, or by a signal.
    #[serde(default)]
    pub killed: bool,
    /// New files that a killed agent left and that are not part of the commit.
    #[serde(default)]
    pub set_aside: Vec<String>,
    /// Iteration whose files were restored after this one, where 0 is the baseline. `None` if nothing was restored.
    #[serde(default)]
    pub restored_to: Option<u32>,
    /// Whether the iteration contains a merge. The files of earlier iterations then lack the merged changes.
    #[serde(default)]
    pub merged: bool,
}

/// Kind of an iteration's work. An iteration that was stored without a kind is one of the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IterationKind {
    /// The agent ran.
    #[default]
    Agent,
    /// The service merged the base or pushed commits without conflicts.
    Merge,
    /// The service restored the base's versions of weakened tests, as earlier versions did.
    TestsPutBack,
    /// The service applied changes that maintainers suggested.
    Suggestions,
}

impl IterationKind {
    /// Returns the summary of work that the service did itself; empty for work of the agent.
    pub fn summary(self) -> &'static str {
        match self {
            Self::Agent => "",
            Self::Merge => "Merged the other side; there was no conflict.",
            Self::TestsPutBack => "The service put the tests of the base back.",
            Self::Suggestions => "The service applied suggested changes.",
        }
    }
}

/// Guidance from people or from CI for the next iteration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Guidance {
    /// Login of the author; empty for CI and for the service itself.
    pub who: String,
    /// Source of the guidance.
    pub source: GuidanceSource,
    /// Text, not sanitized.
    pub text: String,
    /// Path of the file that the guidance refers to; `None` if it refers to no file.
    pub path: Option<String>,
    /// Whether to remember the guidance as a rule of the repository.
    #[serde(default)]
    pub remember: bool,
}

impl Guidance {
    /// Creates guidance from the text of a person's command; `None` if the text is blank.
    pub fn of_command(login: &str, text: String) -> Option<Self> {
        let text = Some(text).filter(|text| !text.trim().is_empty())?;
        Some(Self { who: login.to_owned(), source: GuidanceSource::Command, text, path: None, remember: false })
    }
}

/// Source of guidance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GuidanceSource {
    /// Command of a maintainer.
    Command,
    /// Review by a maintainer.
    Review,
    /// Failing CI.
    Ci,
    /// The service, for a fact that the next run has to know.
    Service,
    /// Another model, which reviewed the finished work.
    SecondOpinion,
}

impl Iteration {
    /// Creates an iteration that starts at `started_at` from the commit `parent`.
    pub fn new(number: u32, started_at: Timestamp, parent: Sha, guidance: Vec<Guidance>) -> Self {
        Self {
            number,
            attempt: 1,
            interrupted: 0,
            kind: IterationKind::Agent,
            started_at,
            ended_at: None,
            agent_problem: String::new(),
            report: AgentReport::default(),
            message: String::new(),
            cost: Money(0),
            tool_calls: 0,
            tool_errors: 0,
            tools: Vec::new(),
            tokens_in: 0,
            tokens_out: 0,
            agent_ms: 0,
            served: ServedBy::default(),
            commit: None,
            tree: None,
            parent,
            stat: DiffStat::default(),
            unresolved: Vec::new(),
            refused: Vec::new(),
            change_bytes: 0,
            binary_bytes: 0,
            branch_stat: None,
            restored: Vec::new(),
            findings: Vec::new(),
            checks: CheckReport::default(),
            completion: Ratio::default(),
            guidance,
            applied: Vec::new(),
            discarded: false,
            taken_back: false,
            objective_cosine: None,
            record: None,
            judged: None,
            refused_hosts: Vec::new(),
            refused_requests: Vec::new(),
            denied_tools: Vec::new(),
            killed: false,
            set_aside: Vec::new(),
            restored_to: None,
            merged: false,
            branch_findings: None,
            test_changes: String::new(),
        }
    }
}
