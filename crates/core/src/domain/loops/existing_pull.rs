//! Existing pull request that a loop works on, instead of an issue.

use serde::{Deserialize, Serialize};

use super::iteration::Guidance;
use crate::domain::model::ids::{RepoRef, Sha};

/// Existing pull request that a loop works on. The loop only pushes to its branch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExistingPull {
    /// Branch of the pull request.
    pub branch: String,
    /// Base branch when the loop started.
    pub base_branch: String,
    /// Repository of the branch; `None` if it is the repository of the pull request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fork: Option<RepoRef>,
    /// Branch as the loop found it; `None` before the loop started to work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found: Option<FoundBranch>,
}

/// Branch of a pull request before the first change of the loop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundBranch {
    /// Newest commit.
    pub head: Sha,
    /// Common ancestor of the newest commit and the base branch.
    pub base: Sha,
}

/// Problems of a pull request that a loop starts to work on, except remarks of reviewers.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct PullProblems {
    /// Whether the branch conflicts with its base.
    pub conflict: bool,
    /// Failed CI checks of the newest commit, each with its log.
    pub failed: Vec<Guidance>,
    /// Names of the failed checks that also fail on the base.
    pub on_base: Vec<String>,
    /// Number of checks that have not finished.
    pub pending: u32,
}
