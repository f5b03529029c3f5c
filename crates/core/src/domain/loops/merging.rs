//! Merges of other commits into the loop's branch.

use serde::{Deserialize, Serialize};

use crate::domain::model::ids::Sha;

/// Commit to merge into the loop's branch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MergeWith {
    /// Head of the base branch at the time of the merge.
    Base,
    /// Commit that somebody else pushed to the loop's branch.
    Pushed(Sha),
}

/// Newest commit of the other side that changed the files with conflicts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConflictingCommit {
    /// Hash of the commit.
    pub commit: Sha,
    /// Name of its author, without special characters.
    pub author: String,
}

/// Merge in progress.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MergeInProgress {
    /// Commit that is merged into the branch.
    pub other: Sha,
    /// Paths of files with conflict markers.
    pub conflicts: Vec<String>,
    /// Commit that caused the conflicts; `None` if there are none, or it is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<ConflictingCommit>,
    /// Commit of the base branch that the branch contains after the merge; `None` if the merge does not change it.
    #[serde(default)]
    pub base: Option<Sha>,
}
