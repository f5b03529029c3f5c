//! Mirrors, work trees, snapshots, pushes: git without trust in what an agent left.
//!
//! One bare mirror a repository holds every object; a loop has a folder with files and a private index of it, kept
//! where the agent cannot reach. The agent's own `.git` in that folder is a throw-away repository which borrows the
//! mirror's objects read-only: the service writes it and never runs git on it. What is committed is the files found.
//!
//! Locks: a tree's lock before its repository's lock, never the other way round. Everything that moves a ref or creates
//! a mirror holds the repository's lock; objects are added without it.

mod agent_repo;
mod error;
mod files;
mod git;
mod git_version;
mod layout;
mod lock;
mod merge;
mod mirror;
mod protect;
mod push;
mod reaper;
mod snapshot;
mod spawner;
mod tree;

#[cfg(test)]
mod tests;

use std::path::PathBuf;

use globset::GlobSet;

use crate::clock::Clock;

pub use error::WorkspaceError;
pub use git::GitUrl;
pub use git_version::{GitVersion, NEEDED_GIT};
pub use merge::MergeOutcome;
pub use mirror::RemoteState;
pub use push::{PushOutcome, PushRequest};
pub use reaper::ReapReport;
pub use snapshot::{CommitInfo, CommitRequest};
pub use tree::{AgentView, CleanCheckout, PrepareTree, TreeInfo};

use git::Git;
use layout::Layout;
use lock::Locks;

/// How work trees are kept.
#[derive(Debug, Clone)]
pub struct WorkspaceSettings {
    /// Folder of everything here; created where missing. Below it: `mirrors/ trees/ pool/ tmp/`.
    pub root: PathBuf,
    /// Finished trees kept for reuse, a repository; 0 keeps none.
    pub pool: usize,
    /// Author and committer of every commit.
    pub committer_name: String,
    pub committer_email: String,
    /// Patterns of paths that agents may not change; `**` spans folders.
    pub protected: Vec<String>,
}

/// All mirrors and work trees of this service.
#[derive(Debug)]
pub struct Workspaces {
    settings: WorkspaceSettings,
    protected: GlobSet,
    layout: Layout,
    locks: Locks,
    git: Git,
    clock: Clock,
}

/// The installed git and its version; an error where it is missing or older than [`NEEDED_GIT`].
pub async fn installed_git() -> Result<(PathBuf, GitVersion), WorkspaceError> {
    let git = Git::new(PathBuf::from("/"))?;
    let version = git.version().await?;
    Ok((git.program().to_path_buf(), version))
}

impl Workspaces {
    /// Creates the folders where they are missing. Fails on a pattern that does not parse, where git is missing, or
    /// where the folder cannot be written.
    pub fn open(settings: WorkspaceSettings, clock: Clock) -> Result<Self, WorkspaceError> {
        let protected = protect::patterns(&settings.protected)?;
        let layout = Layout::open(&settings.root)?;
        let git = Git::new(layout.home())?;
        Ok(Self { settings, protected, layout, locks: Locks::default(), git, clock })
    }

    /// Version of the installed git; an error where it is older than [`NEEDED_GIT`].
    pub async fn git_version(&self) -> Result<GitVersion, WorkspaceError> {
        self.git.version().await
    }
}
