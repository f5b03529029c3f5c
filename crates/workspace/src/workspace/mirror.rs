//! Bare mirror of a repository: creation, fetching branches, reading objects.

use std::path::Path;

use super::git::{GitCommand, GitUrl, failure};
use super::layout::{TreePaths, check_branch, encoded, indexes};
use super::lock::RepoGuard;
use super::spawner::GitOutput;
use super::{WorkspaceError, Workspaces, files};
use crate::domain::model::ids::{RepoRef, Sha};

/// Maximum size of a file that is read from a commit, in bytes.
const BASE_FILE_BYTES: u64 = 1 << 20;

/// Branches of a loop on the forge.
#[derive(Debug, Clone, Copy)]
pub(super) struct RemoteBranches<'a> {
    pub access: &'a GitUrl,
    /// Repository of the loop's branch; `None` if the base branch has the same one.
    pub fork: Option<&'a GitUrl>,
    pub base_branch: &'a str,
    pub branch: &'a str,
}

/// State of a loop's branches on the forge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteState {
    /// Head of the base branch.
    pub base: Sha,
    /// Head of the loop's branch; `None` if it does not exist.
    pub branch: Option<Sha>,
}

impl Workspaces {
    /// Fetches both branches into the mirror and returns their state. Does not change trees.
    pub async fn fetch(
        &self,
        repo: &RepoRef,
        access: &GitUrl,
        base_branch: &str,
        branch: &str,
        partial: bool,
    ) -> Result<RemoteState, WorkspaceError> {
        check_branch(base_branch)?;
        check_branch(branch)?;
        let mirror = self.layout.mirror(repo);
        let guard = self.locks.repository(&mirror).await?;
        self.ensure_mirror(&guard, &mirror, partial).await?;
        self.fetch_branches(&guard, &mirror, RemoteBranches { access, fork: None, base_branch, branch }).await
    }

    /// Returns the first of these paths that is a regular file in a commit, with at most 1 MiB of its content; `None`
    /// if there is none.
    pub async fn base_file<'p>(
        &self,
        repo: &RepoRef,
        rev: &Sha,
        paths: &[&'p str],
    ) -> Result<Option<(&'p str, Vec<u8>)>, WorkspaceError> {
        let mirror = self.layout.mirror(repo);
        let bad = |path: &str| path.starts_with('/') || path.split('/').any(|part| matches!(part, "" | "." | ".."));
        if let Some(path) = paths.iter().find(|path| bad(path)) {
            return Err(WorkspaceError::BadName { what: "path in a repository", name: (*path).to_owned() });
        }
        let list = GitCommand::new("look up a file of a commit", &mirror);
        let list = list.args(["ls-tree", "-z", "-l", "--full-tree", rev.as_str(), "--"]).args(paths);
        let listed = self.git.ok(list).await?.stdout;
        let entries: Vec<_> = files::zero_separated(&listed).map(String::from_utf8_lossy).collect();
        let found = paths.iter().find_map(|path| {
            let (facts, _) = entries.iter().find_map(|entry| entry.split_once('\t').filter(|(_, at)| at == path))?;
            let mut facts = facts.split_whitespace();
            let (mode, _, object, size) = (facts.next()?, facts.next(), facts.next()?, facts.next());
            mode.starts_with("100").then_some((*path, object, size.and_then(|size| size.parse::<u64>().ok())))
        });
        let Some((path, object, size)) = found else { return Ok(None) };
        if size.is_none_or(|size| size > BASE_FILE_BYTES) {
            return Err(WorkspaceError::TooLarge { what: path.to_owned(), limit: BASE_FILE_BYTES });
        }
        let read = GitCommand::new("read a file of a commit", &mirror).args(["cat-file", "blob", object]);
        Ok(Some((path, self.git.ok(read).await?.stdout)))
    }

    /// Creates the mirror if it is missing; replaces a damaged one.
    pub(super) async fn ensure_mirror(
        &self,
        _guard: &RepoGuard,
        mirror: &Path,
        partial: bool,
    ) -> Result<(), WorkspaceError> {
        if !looks_whole(mirror) {
            self.layout.discard(mirror)?;
            let scratch = self.layout.scratch()?;
            let fresh = scratch.path().join("mirror.git");
            let init = GitCommand::new("create a mirror", &fresh);
            self.git.ok(init.args(["init", "--quiet", "--bare", "--template=", "--initial-branch=none"])).await?;
            let config = fresh.join("config");
            std::fs::write(&config, mirror_config(partial)).map_err(WorkspaceError::io("write", &config))?;
            std::fs::rename(&fresh, mirror).map_err(WorkspaceError::io("create", mirror))?;
        }
        let indexes = indexes(mirror);
        std::fs::create_dir_all(&indexes).map_err(WorkspaceError::io("create", &indexes))
    }

    /// Reads the branches of the remote and fetches new commits.
    pub(super) async fn fetch_branches(
        &self,
        guard: &RepoGuard,
        mirror: &Path,
        remote: RemoteBranches<'_>,
    ) -> Result<RemoteState, WorkspaceError> {
        let RemoteBranches { access, fork, base_branch, branch } = remote;
        let wanted = [(base_branch, base_ref(base_branch)), (branch, branch_ref(branch))];
        let tips = match fork {
            None => self.remote_tips(mirror, access, &[base_branch, branch]).await?,
            Some(fork) => {
                let base = self.remote_tips(mirror, access, &[base_branch]).await?;
                [base, self.remote_tips(mirror, fork, &[branch]).await?].concat()
            }
        };
        let Some(base) = tips[0].clone() else {
            return Err(self.missing_base(mirror, access, base_branch).await?);
        };
        let mut refspecs = Vec::new();
        let mut of_fork = Vec::new();
        for (((name, local), tip), remote) in wanted.iter().zip(&tips).zip([None, fork]) {
            match tip {
                Some(tip) if self.ref_value(mirror, local).await?.as_ref() == Some(tip) => {}
                Some(_) => {
                    let refspecs = if remote.is_some() { &mut of_fork } else { &mut refspecs };
                    refspecs.push(format!("+refs/heads/{name}:{local}"));
                }
                None => self.update_refs(guard, mirror, &[RefChange::Delete(local.clone())]).await?,
            }
        }
        if refspecs.is_empty() && of_fork.is_empty() {
            return Ok(RemoteState { base, branch: tips[1].clone() });
        }
        for (remote, refspecs) in [(access, refspecs), (fork.unwrap_or(access), of_fork)] {
            if !refspecs.is_empty() {
                self.git.ok(fetch_call(mirror, remote).args(refspecs)).await?;
            }
        }
        // The remote may have moved since the query; the fetched state counts.
        let base = self.ref_value(mirror, &wanted[0].1).await?.unwrap_or(base);
        let branch = match &tips[1] {
            Some(tip) => Some(self.ref_value(mirror, &wanted[1].1).await?.unwrap_or_else(|| tip.clone())),
            None => None,
        };
        Ok(RemoteState { base, branch })
    }

    /// Returns the tips of branches on the remote, in the given order.
    pub(super) async fn remote_tips(
        &self,
        mirror: &Path,
        access: &GitUrl,
        branches: &[&str],
    ) -> Result<Vec<Option<Sha>>, WorkspaceError> {
        let names: Vec<String> = branches.iter().map(|branch| format!("refs/heads/{branch}")).collect();
        let call = GitCommand::new("ask the remote for its branches", mirror).remote(access);
        let answer = self.git.ok(call.args(["ls-remote", "--quiet", "--", &access.url]).args(&names)).await?;
        let text = String::from_utf8_lossy(&answer.stdout).into_owned();
        let tip = |name: &String| {
            let mut lines = text.lines().filter_map(|line| line.split_once('\t'));
            lines.find(|(_, found)| found == name).and_then(|(sha, _)| Sha::parse(sha))
        };
        Ok(names.iter().map(tip).collect())
    }

    /// Returns the error for a missing base branch.
    async fn missing_base(
        &self,
        mirror: &Path,
        access: &GitUrl,
        branch: &str,
    ) -> Result<WorkspaceError, WorkspaceError> {
        let call = GitCommand::new("ask the remote for its branches", mirror).remote(access);
        let answer = self.git.ok(call.args(["ls-remote", "--quiet", "--symref", "--", &access.url])).await?;
        let text = String::from_utf8_lossy(&answer.stdout).into_owned();
        if !text.lines().any(|line| line.contains("\trefs/heads/")) {
            return Ok(WorkspaceError::EmptyRepository { url: access.url.clone() });
        }
        let head = text.lines().find_map(|line| line.strip_prefix("ref: refs/heads/")?.strip_suffix("\tHEAD"));
        let default_branch = head.filter(|head| text.contains(&format!("\trefs/heads/{head}\n"))).map(str::to_owned);
        Ok(WorkspaceError::BaseBranchMissing { url: access.url.clone(), branch: branch.to_owned(), default_branch })
    }

    /// Fetches the objects of these commits that are neither in a partial mirror nor in the loop's store. Does nothing
    /// for a full mirror.
    pub(super) async fn complete(
        &self,
        _guard: &RepoGuard,
        TreePaths { mirror, store, .. }: &TreePaths,
        access: &GitUrl,
        commits: &[&Sha],
    ) -> Result<(), WorkspaceError> {
        if !is_partial(mirror) {
            return Ok(());
        }
        let list = GitCommand::new("list missing objects", store);
        let list = list.args(["rev-list", "--objects", "--no-object-names", "--missing=print", "--no-walk=unsorted"]);
        let listed = self.git.ok(list.args(commits.iter().map(|commit| commit.as_str()))).await?;
        let text = String::from_utf8_lossy(&listed.stdout);
        let missing: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix('?')).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let scratch = self.layout.scratch()?;
        let wants = scratch.path().join("wants");
        std::fs::write(&wants, missing.join("\n") + "\n").map_err(WorkspaceError::io("write", &wants))?;
        let call = fetch_call(mirror, access).config("fetch.negotiationAlgorithm=noop").input_file(&wants);
        let outcome = self.git.ok(call.args(["--stdin"])).await;
        files::remove(&wants)?;
        outcome.map(drop)
    }

    /// Whether a mirror or store has a commit.
    pub(super) async fn has_commit(&self, mirror: &Path, commit: &Sha) -> Result<bool, WorkspaceError> {
        let call = GitCommand::new("look for a commit", mirror);
        Ok(self.git.run(call.args(["cat-file", "-e", &format!("{commit}^{{commit}}")])).await?.code == 0)
    }

    /// Fetches a commit that may not be on any branch. Forges provide such commits as long as they store them.
    pub(super) async fn fetch_commit(
        &self,
        _guard: &RepoGuard,
        mirror: &Path,
        access: &GitUrl,
        commit: &Sha,
    ) -> Result<(), WorkspaceError> {
        match self.git.ok(fetch_call(mirror, access).args([commit.as_str()])).await {
            Err(WorkspaceError::Git { .. } | WorkspaceError::Unreachable { transient: false, .. }) => {
                Err(WorkspaceError::CommitMissing { commit: commit.clone() })
            }
            other => other.map(drop),
        }
    }

    /// Returns the value of a ref of a mirror or store.
    pub(super) async fn ref_value(&self, mirror: &Path, name: &str) -> Result<Option<Sha>, WorkspaceError> {
        let call = GitCommand::new("read a ref", mirror).args(["rev-parse", "--verify", "--quiet", name]);
        Ok(Sha::parse(&self.git.run(call).await?.text()))
    }

    /// Returns the names of refs below a prefix.
    pub(super) async fn ref_names(&self, mirror: &Path, prefix: &str) -> Result<Vec<String>, WorkspaceError> {
        let call = GitCommand::new("list refs", mirror).args(["for-each-ref", "--format=%(refname)", prefix]);
        Ok(self.git.ok(call).await?.text().lines().map(str::to_owned).collect())
    }

    /// Updates refs in one transaction. Deleting a missing ref succeeds, because no old value is given.
    pub(super) async fn update_refs(
        &self,
        _guard: &RepoGuard,
        mirror: &Path,
        changes: &[RefChange],
    ) -> Result<(), WorkspaceError> {
        let mut input = Vec::new();
        for change in changes {
            match change {
                RefChange::Set(name, to) => input.extend(format!("update {name}\0{to}\0\0").into_bytes()),
                RefChange::Delete(name) => input.extend(format!("delete {name}\0\0").into_bytes()),
            }
        }
        if input.is_empty() {
            return Ok(());
        }
        let call = GitCommand::new("update refs", mirror).args(["update-ref", "-z", "--stdin"]).input(input);
        self.git.ok(call).await.map(drop)
    }

    /// Runs a command that prints an object id.
    pub(super) async fn object(&self, what: &str, call: GitCommand<'_>) -> Result<Sha, WorkspaceError> {
        let output: GitOutput = self.git.ok(call).await?;
        Sha::parse(&output.text()).ok_or_else(|| failure(what, &output, None))
    }
}

/// Reads a ref that is stored in its own file. `None` if there is no such file or it is not understood; git may then
/// store the ref elsewhere.
pub(super) fn loose_ref(mirror: &Path, name: &str) -> Option<Sha> {
    Sha::parse(std::fs::read_to_string(mirror.join(name)).ok()?.strip_suffix('\n')?)
}

/// Change of a ref in a transaction.
pub(super) enum RefChange {
    Set(String, Sha),
    Delete(String),
}

/// Returns the name of the ref for the last fetched head of a base branch.
fn base_ref(branch: &str) -> String {
    format!("refs/ralph/base/{}", encoded(branch))
}

/// Returns the name of the ref for the last fetched head of a loop's branch.
fn branch_ref(branch: &str) -> String {
    format!("refs/ralph/remote/{}", encoded(branch))
}

fn fetch_call<'a>(mirror: &'a Path, access: &'a GitUrl) -> GitCommand<'a> {
    let call = GitCommand::new("fetch", mirror)
        .remote(access)
        .config(format!("remote.origin.url={}", access.url))
        .args(["fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-gc"]);
    if is_partial(mirror) { call.args(["--filter=blob:none", "origin"]) } else { call.args(["origin"]) }
}

fn looks_whole(mirror: &Path) -> bool {
    let head = std::fs::read_to_string(mirror.join("HEAD")).unwrap_or_default();
    let config = std::fs::read_to_string(mirror.join("config")).unwrap_or_default();
    head.starts_with("ref: ")
        && config.contains("[core]")
        && mirror.join("objects").is_dir()
        && mirror.join("refs").is_dir()
}

/// Whether the mirror is a partial clone without file contents.
pub(super) fn is_partial(mirror: &Path) -> bool {
    std::fs::read_to_string(mirror.join("config")).is_ok_and(|config| config.contains("partialClone"))
}

/// Returns the git configuration of a mirror, or of a store that borrows from it.
pub(super) fn mirror_config(partial: bool) -> &'static str {
    if partial {
        "[core]\n\trepositoryformatversion = 1\n\tfilemode = true\n\tbare = true\n[extensions]\n\tpartialClone = origin\n[remote \"origin\"]\n\tpromisor = true\n\tpartialclonefilter = blob:none\n"
    } else {
        "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = true\n"
    }
}
