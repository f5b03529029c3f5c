//! Second opinion about finished work: the answer of a reviewing model, and the outcome of requesting it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ids::{Money, Sha};

/// Verdict of a reviewing model. It approves nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OpinionVerdict {
    /// People can review without further changes.
    Sound,
    /// Something should change before people review.
    Changes,
}

/// Severity of a finding of a reviewing model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OpinionSeverity {
    /// Style, naming, wording.
    Minor,
    /// Wrong in a case that occurs, or the task is partly missed.
    Major,
    /// Wrong in the usual case, loses data, or is a vulnerability.
    Critical,
}

impl OpinionSeverity {
    /// Returns the display name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Minor => "minor",
            Self::Major => "major",
            Self::Critical => "critical",
        }
    }
}

/// Finding of a reviewing model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OpinionFinding {
    /// Path of the file from the root of the tree; empty if it concerns the whole change.
    pub file: String,
    /// Line in the file after the change, from 1; null if it concerns no single line.
    pub line: Option<u32>,
    /// Severity of the finding.
    pub severity: OpinionSeverity,
    /// Explanation of the problem, the affected case and the remedy; one to three sentences.
    pub text: String,
}

impl OpinionFinding {
    /// Returns `file:line`, as far as known.
    pub fn place(&self) -> String {
        match self.line {
            Some(line) if !self.file.is_empty() => format!("{}:{line}", self.file),
            _ => self.file.clone(),
        }
    }
}

/// Answer of a reviewing model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OpinionAnswer {
    /// Verdict: `changes` only with at least one finding.
    pub verdict: OpinionVerdict,
    /// Judgement of the change as a whole, in one or two sentences.
    pub summary: String,
    /// Findings, the most severe first; empty if there are none.
    pub findings: Vec<OpinionFinding>,
}

/// Outcome of a request for a second opinion.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OpinionEnd {
    /// The model answered.
    Answered(OpinionAnswer),
    /// There is no opinion. The value is the reason, one sentence without a full stop.
    Missing(String),
    /// The service stopped before it stored the answer.
    Lost,
}

/// Finished run of a reviewing backend.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OpinionRun {
    /// Reviewed commit.
    pub commit: Sha,
    /// Backend that received the request.
    pub backend: String,
    /// Model; `None` if the backend used its default.
    #[serde(default)]
    pub model: Option<String>,
    /// Outcome of the run.
    pub end: OpinionEnd,
    /// Cost; 0 if unknown.
    #[serde(default)]
    pub cost: Money,
    /// Whether the service estimated the cost because the backend did not report it.
    #[serde(default)]
    pub estimated: bool,
    /// Input tokens.
    #[serde(default)]
    pub tokens_in: u64,
    /// Output tokens.
    #[serde(default)]
    pub tokens_out: u64,
}

impl OpinionRun {
    /// Creates a run without cost and tokens.
    pub fn free(commit: Sha, backend: &str, end: OpinionEnd) -> Self {
        let backend = backend.to_owned();
        Self { commit, backend, model: None, end, cost: Money(0), estimated: false, tokens_in: 0, tokens_out: 0 }
    }
}
