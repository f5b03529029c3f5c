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

/// File that the checks run without, or with another version.
#[derive(Clone)]
pub(super) struct ReplacedFile {
    pub path: String,
    pub is_new: bool,
    /// Whether the file is a build file, whose base version may not fit the branch's program.
    pub is_build: bool,
    /// Commit with the version to use: the base, or the commit at which a person accepted a change of the file.
    pub version: Sha,
}
