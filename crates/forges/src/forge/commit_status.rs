//! Statuses of commits: the bot's status, and the CI results of a forge.

use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};

use crate::domain::loops::SeenChecks;
use crate::domain::model::ids::Sha;
use crate::domain::report::view::CommitState;
use crate::domain::trust::outbound::{BodyText, Outbound, TitleText};

/// Name of the status that the bot sets. Branch protection can require this status.
pub const VERIFIED_STATUS: &str = "ralph/verified";

/// Status that the bot sets on a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitStatus {
    /// Hash of the commit.
    pub commit: Sha,
    /// State of the commit.
    pub state: CommitState,
    /// Title, one line.
    pub title: Outbound<TitleText>,
    /// Summary in Markdown; ignored by forges whose statuses consist of one line.
    pub summary: Outbound<BodyText>,
    /// Web page with more; empty if there is none.
    pub url: String,
    /// Annotations of lines in the commit's files; ignored by forges whose statuses consist of one line.
    pub annotations: Vec<LineAnnotation>,
}

/// Status of a commit after a request to set it was interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InterruptedStatus {
    /// The forge has the status, with this id.
    Set(i64),
    /// The forge has another status of the bot with this id, which can be updated.
    Other(i64),
    /// The forge has no status that can be updated.
    Missing,
}

/// Annotation of an existing line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineAnnotation {
    /// Path from the root of the repository.
    pub path: String,
    /// 1-based line.
    pub line: u64,
    /// Title, one line.
    pub title: Outbound<TitleText>,
    /// Text of the annotation.
    pub message: Outbound<BodyText>,
}

impl CommitStatus {
    /// Returns the state's name in the commit status APIs of both forges.
    pub(super) fn word(&self) -> &'static str {
        match self.state {
            CommitState::Queued | CommitState::Running => "pending",
            CommitState::Success => "success",
            CommitState::Failure => "failure",
            CommitState::Cancelled => "error",
        }
    }

    /// Returns a digest of the parts that every forge shows: state, title and address.
    pub fn digest(&self) -> String {
        let text = format!("{:?}\n{}\n{}", self.state, self.title.as_str(), self.url);
        HEXLOWER.encode(&Sha256::digest(text)[..16])
    }

    /// Whether a commit status of a forge, whose titles have at most `max` characters, equals this one.
    pub(super) fn equals(&self, state: &str, description: &str, url: &str, max: usize) -> bool {
        state == self.word() && description == self.description(max) && url == self.url
    }

    /// Returns the title, cut to at most `max` characters.
    pub(super) fn description(&self, max: usize) -> String {
        self.title.as_str().chars().take(max).collect()
    }
}

/// CI results of a commit.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CiState {
    /// Names of successful checks and statuses.
    pub passed: Vec<String>,
    /// Names of checks and statuses that ended without having run: skipped, neutral or cancelled.
    pub skipped: Vec<String>,
    /// Names of pending checks and statuses.
    pub pending: Vec<String>,
    /// Whether any check belongs to a workflow of the repository and was not skipped.
    pub from_workflows: bool,
    /// Failed checks, statuses and jobs.
    pub failed: Vec<CiFailure>,
}

impl CiState {
    /// Returns the names of the checks, by whether they started.
    pub fn seen(&self) -> SeenChecks {
        let failed = self.failed.iter().map(|failure| &failure.name);
        let ran = self.passed.iter().chain(&self.pending).chain(failed).cloned().collect();
        SeenChecks { ran, skipped: self.skipped.clone() }
    }
}

/// A failed check, status or job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CiFailure {
    /// Name or context.
    pub name: String,
    /// Address of the web page.
    pub url: String,
    /// Log of the failed step, or a summary; at most the last 32 KiB.
    pub log: String,
}
