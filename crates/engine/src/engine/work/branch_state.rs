//! State of a branch that the tests and findings are about.

use crate::domain::loops::Loop;
use crate::domain::model::ids::{RepoRef, Sha};
use crate::workspace::{BranchDiff, ChangedPaths};

/// State of a branch, compared with its base.
#[derive(Clone, Copy)]
pub(super) struct BranchState<'a> {
    pub repo: &'a RepoRef,
    pub current: &'a Loop,
    pub base: &'a Sha,
    /// Commit or tree of the branch.
    pub to: &'a Sha,
    /// Complete change from the base.
    pub diff: &'a BranchDiff,
    /// Files that differ from the base.
    pub paths: &'a ChangedPaths,
}
