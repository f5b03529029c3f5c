//! Mirrors, work trees, snapshots and pushes. Files that an agent wrote are never trusted.
//!
//! One bare mirror per repository contains the objects fetched from the forge. A loop has a store, which is a bare
//! repository for its own commits that borrows the mirror's objects, and a folder with files and a private index,
//! which the agent cannot access. The `.git` in that folder is a temporary repository for the agent that borrows the
//! objects of both. The service writes it and never runs git on it. Commits contain the files of the folder.
//!
//! Lock order: a tree's lock, then its mirror's lock, then its store's lock. Moving a ref or creating a mirror
//! requires the lock of that repository; adding objects does not.

mod agent_repo;
mod assets;
mod attributes;
mod branch;
mod diff;
mod environment;
mod error;
mod files;
mod fixed;
mod git;
mod git_version;
mod handover;
mod known;
mod layout;
mod lines;
mod lock;
mod merge;
mod mirror;
mod outgoing;
mod pointer;
mod protect;
mod push;
mod reaper;
mod set_aside;
mod snapshot;
mod spawner;
mod store;
mod submodules;
mod text_files;
mod tracked;
mod tree;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use crate::clock::Clock;
use crate::domain::model::authorship::{CommitAuthor, CommitSigning};
use crate::domain::model::ids::{ForgeName, Sha};
use crate::domain::trust::outbound::OutboundFilter;
use crate::domain::trust::protected::ProtectedGlobs;

pub use branch::{BranchDiff, ChangedPaths, PathContents};
pub use environment::{Environment, EnvironmentKey, SetupEffects};
pub use error::WorkspaceError;
pub use fixed::FixedFiles;
pub use git::GitUrl;
pub use git_version::{GitVersion, NEEDED_GIT};
pub use merge::{MergeOfTips, MergeOutcome, TipsRequest};
pub use mirror::RemoteState;
pub use outgoing::ClearRequest;
pub use push::{PushOutcome, PushRequest};
pub use reaper::ReapReport;
pub use set_aside::SetAside;
pub use snapshot::{CommitInfo, CommitRequest};
pub use tree::{AgentView, CleanCheckout, PrepareTree, TreeInfo};

use git::Git;
use known::KnownObjects;
use layout::Layout;
use lock::Locks;

/// Settings of mirrors and work trees.
#[derive(Debug, Clone)]
pub struct WorkspaceSettings {
    /// Folder with `mirrors/ loops/ trees/ pool/ environments/ tmp/`; created if missing.
    pub root: PathBuf,
    /// Maximum number of finished trees per repository that are kept for reuse.
    pub pool: usize,
    /// Author and committer of commits on forges that are not in `authors`.
    pub committer_name: String,
    pub committer_email: String,
    /// Author and committer by forge; entries are added while the service runs.
    pub authors: Arc<Mutex<HashMap<ForgeName, CommitAuthor>>>,
    /// Key for signing commits; `None` if commits are not signed.
    pub signing: Option<CommitSigning>,
    /// Patterns of paths that agents may not change; `**` spans folders.
    pub protected: Vec<String>,
    /// Filter that scans commits for secrets.
    pub outbound: OutboundFilter,
    /// Hosts whose public repositories are fetched as submodules, in lower case, optionally with a port.
    pub submodule_hosts: Vec<String>,
}

/// All mirrors and work trees of this service.
#[derive(Debug)]
pub struct Workspaces {
    settings: WorkspaceSettings,
    protected: Arc<ProtectedGlobs>,
    layout: Layout,
    locks: Locks,
    git: Git,
    /// Whether git-lfs is installed.
    has_git_lfs: bool,
    clock: Clock,
    known: KnownObjects,
    /// Digests of environments by commit and settings.
    environment_keys: Mutex<HashMap<(Sha, String), String>>,
}

/// Installed git.
#[derive(Debug)]
pub struct InstalledGit {
    pub program: PathBuf,
    pub version: GitVersion,
    /// Whether git-lfs is installed as well.
    pub has_lfs: bool,
}

/// Returns the installed git; fails if git is missing or older than [`NEEDED_GIT`].
pub async fn installed_git() -> Result<InstalledGit, WorkspaceError> {
    let git = Git::new(PathBuf::from("/"))?;
    let version = git.version().await?;
    Ok(InstalledGit { program: git.program().to_path_buf(), version, has_lfs: git.finds("git-lfs") })
}

impl Workspaces {
    /// Opens the workspace and creates missing folders. Fails if a pattern is invalid, git is missing, or the folder
    /// is not writable.
    pub fn open(settings: WorkspaceSettings, clock: Clock) -> Result<Self, WorkspaceError> {
        let protected = protect::patterns(&settings.protected)?;
        let layout = Layout::open(&settings.root)?;
        let git = Git::new(layout.home())?;
        let has_git_lfs = git.finds("git-lfs");
        let (locks, known, environment_keys) = (Locks::default(), KnownObjects::default(), Mutex::default());
        Ok(Self { settings, protected, layout, locks, git, has_git_lfs, clock, known, environment_keys })
    }

    /// Sets author and committer for later commits on a forge.
    pub fn set_author(&self, forge: &ForgeName, author: CommitAuthor) {
        self.settings.authors.lock().unwrap_or_else(PoisonError::into_inner).insert(forge.clone(), author);
    }

    /// Returns author and committer for commits on a forge.
    pub fn author_on(&self, forge: &ForgeName) -> CommitAuthor {
        let known = self.settings.authors.lock().unwrap_or_else(PoisonError::into_inner).get(forge).cloned();
        known.unwrap_or_else(|| CommitAuthor {
            name: self.settings.committer_name.clone(),
            email: self.settings.committer_email.clone(),
        })
    }

    /// Creates an empty folder that is removed after this process has ended.
    ///
    /// # Errors
    /// The folder cannot be created.
    pub fn folder_of_process(&self) -> Result<PathBuf, WorkspaceError> {
        self.layout.folder_of_process()
    }

    /// Returns the version of the installed git; fails if it is older than [`NEEDED_GIT`].
    pub async fn git_version(&self) -> Result<GitVersion, WorkspaceError> {
        self.git.version().await
    }
}
