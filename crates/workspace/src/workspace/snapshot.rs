//! Creates commits of the files that an agent wrote. A commit contains the files of the tree, never the agent's index
//! or commits.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use failpoint::kill_point;
use rustix::fs::{Timespec, UTIME_NOW};

use super::attributes::IgnoredEncodings;
use super::diff::{TreeDiff, stat_of};
use super::git::GitCommand;
use super::layout::{TreePaths, loop_name};
use super::mirror::RefChange;
use super::set_aside::SetAside;
use super::tracked::Tracked;
use super::tree::{remove_index_lock, tree_ref};
use super::{BranchDiff, ChangedPaths, WorkspaceError, Workspaces, files};
use crate::domain::model::authorship::CommitSigning;
use crate::domain::model::ids::{LoopId, RepoRef, Sha};
use crate::domain::model::task::DiffStat;
use crate::domain::trust::bounds::{COMMITTED_FILE_BYTES, COMMITTED_FILES};
use crate::domain::trust::outbound::{CommitText, Leak, Outbound};
use crate::domain::trust::protected::NamedPaths;
use crate::domain::trust::tamper::is_compiled_cache;

/// Maximum length of a file that points to a git directory, in bytes.
const MOST_LINK: u64 = 4096;
/// Maximum nesting depth of repositories.
const MOST_NESTING: usize = 32;

/// Parameters of a commit to create.
#[derive(Debug, Clone, Copy)]
pub struct CommitRequest<'a> {
    pub loop_id: &'a LoopId,
    pub repo: &'a RepoRef,
    /// First parent.
    pub parent: &'a Sha,
    /// Second parent, after `merge_base_into`. The commit is then created even if no files changed.
    pub merge_parent: Option<&'a Sha>,
    pub message: &'a Outbound<CommitText>,
    /// Commit that the loop's complete change is compared with.
    pub base: &'a Sha,
    /// Commit from which protected paths are restored.
    pub protected_base: &'a Sha,
    /// Glob patterns of this repository's protected paths, in addition to those in the settings.
    pub extra_protected: &'a [String],
    /// Protected paths that may change, because people named them.
    pub named: Option<&'a NamedPaths>,
    /// New files to leave out after a run was killed; `None` to commit all.
    pub set_aside: Option<SetAside<'a>>,
}

/// Created commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitInfo {
    /// Commit; `None` if no file changed.
    pub commit: Option<Sha>,
    /// Tree of the commit.
    pub tree: Sha,
    /// Changes per file since the parent; for a merge, since the merged parent.
    pub stat: DiffStat,
    /// Changes per file since the base; a renamed file counts as two.
    pub branch_stat: DiffStat,
    /// Protected paths that were changed and restored, sorted.
    pub restored: Vec<String>,
    /// Change as a patch of at most 4 MiB; invalid UTF-8 is replaced. Attributes of the tree cannot hide changes.
    pub diff: String,
    /// Whether `diff` was cut because of its size.
    pub diff_truncated: bool,
    /// Changed binary files larger than 1 MiB, and files larger than 100 MiB, which are not committed.
    pub oversized: Vec<String>,
    /// Changed files with an opening and a closing conflict marker.
    pub conflict_markers: Vec<String>,
    /// Number of changed files.
    pub changed_files: usize,
    /// New files that were left out and removed from the tree, sorted.
    pub set_aside: Vec<String>,
    /// Changes that were not committed because of where they are, one sentence each without a full stop.
    pub refused: Vec<String>,
    /// Complete change since the base.
    pub branch: BranchDiff,
    /// Files that differ from the base.
    pub branch_paths: ChangedPaths,
    /// Total size of the new and changed binary files, in bytes.
    pub binary_bytes: u64,
    /// Secret in the commit's message, file names or files, which prevents a push; `None` if there is none.
    pub leak: Option<Leak>,
}

/// Differences between the private index and the files.
#[derive(Debug, Default)]
struct Changes {
    stage: Vec<PathBuf>,
    remove: Vec<PathBuf>,
    /// Files that are too large or unreadable.
    left_out: Vec<PathBuf>,
    /// Reasons why changed files of Git LFS are not committed.
    refused: Vec<String>,
    /// Files and submodules that the index had before.
    before: Tracked,
}

impl Workspaces {
    /// Restores protected paths, commits the files of the tree on top of `parent`, and replaces the agent's
    /// repository. After a crash, returns the commit that was already created.
    pub async fn commit(&self, request: CommitRequest<'_>) -> Result<CommitInfo, WorkspaceError> {
        let CommitRequest { loop_id, repo, parent, merge_parent, base, protected_base, extra_protected, .. } = request;
        let tree_paths = self.opened(loop_id, repo).await?;
        let _tree = self.locks.here(&tree_paths.dir).await;
        let (staged, before) = tokio::join!(self.stage(&tree_paths, parent), self.before(&request, &tree_paths.store));
        let (staged, before) = (staged?, before?);
        let set_aside = match request.set_aside {
            Some(killed) => self.set_aside((request.loop_id, request.repo), parent, killed, &tree_paths).await?,
            None => Vec::new(),
        };
        let refused = refusals(&staged.refused, &self.changed_submodules(&tree_paths, &staged.before).await?);
        // Both only read the index.
        let sizes = async {
            if base == protected_base { self.sizes(&tree_paths, base, None).await.map(Some) } else { Ok(None) }
        };
        let (found, sizes) = tokio::join!(self.write_tree(&tree_paths), sizes);
        let (found, sizes) = (found?, sizes?);
        let differing = match &sizes {
            Some(_) => Vec::new(),
            None => self.differing(&tree_paths, &found, protected_base).await?,
        };
        let of_branch = sizes.iter().flat_map(|sizes| &sizes.files).map(|(path, _)| path.as_path());
        let paths = of_branch.chain(differing.iter().map(PathBuf::as_path));
        let restored = self
            .restore_protected(&tree_paths, paths.collect(), protected_base, extra_protected, request.named)
            .await?;
        let tree = if restored.is_empty() { found } else { self.write_tree(&tree_paths).await? };

        let unchanged = tree == before.tree && merge_parent.is_none();
        let commit = async {
            if unchanged {
                Ok(None)
            } else {
                self.record(&request, &tree_paths, &tree, before.recorded).await.map(Some)
            }
        };
        let described = async {
            // A merge contains changes of the other side, which are not changes of this loop.
            let from = merge_parent.unwrap_or(parent);
            if unchanged { Ok(TreeDiff::default()) } else { self.describe(&tree_paths, from, &tree).await }
        };
        let sizes = async {
            match sizes {
                Some(known) if restored.is_empty() => Ok(known),
                _ => self.sizes(&tree_paths, base, Some(&tree)).await,
            }
        };
        let branch = async {
            match &before.base_tree {
                Some(base_tree) if *base_tree == tree => Ok(Some(BranchDiff::default())),
                // The change itself is the branch's.
                _ if merge_parent.is_none() && parent == base => Ok(None),
                _ => self.branch_diff((loop_id, repo), base, &tree).await.map(Some),
            }
        };
        // All run to their ends, so that no git process is stopped halfway.
        let (commit, described, sizes, branch) = tokio::join!(commit, described, sizes, branch);
        let (commit, described, sizes, branch) = (commit?, described?, sizes?, branch?);
        let leak = match &commit {
            Some(commit) => {
                let made = (commit, parent);
                self.scan_commit(&tree_paths, made, request.message.as_str(), &described.objects).await?
            }
            None => None,
        };
        let TreeDiff { stat, diff, diff_truncated, mut oversized, binary_bytes, conflict_markers, .. } = described;
        oversized.extend(staged.left_out.iter().map(|path| path.to_string_lossy().into_owned()));
        let branch = branch.unwrap_or_else(|| BranchDiff { text: diff.clone(), truncated: diff_truncated });
        let (changed_files, branch_stat) = (stat.files.len(), stat_of(sizes.files));
        let info = CommitInfo {
            commit,
            tree,
            stat,
            branch_stat,
            restored,
            diff,
            diff_truncated,
            oversized,
            conflict_markers,
            changed_files,
            set_aside,
            refused,
            branch,
            branch_paths: sizes.paths,
            binary_bytes,
            leak,
        };
        self.install_agent_repository(&tree_paths, info.commit.as_ref().unwrap_or(parent)).await?;
        Ok(info)
    }

    /// Saves uncommitted files of the tree as a commit at `refs/ralph/keep/<loop>/<n>`; returns `None` if there are
    /// none. The commit is for people and contains protected paths unrestored.
    pub async fn salvage(&self, loop_id: &LoopId, repo: &RepoRef) -> Result<Option<Sha>, WorkspaceError> {
        let tree_paths = self.opened(loop_id, repo).await?;
        let _tree = self.locks.here(&tree_paths.dir).await;
        let exists = std::fs::symlink_metadata(&tree_paths.dir).is_ok_and(|found| found.is_dir());
        let Some(head) = (if exists { self.recorded(loop_id, repo).await? } else { None }) else { return Ok(None) };
        self.stage(&tree_paths, &head).await?;
        let tree = self.write_tree(&tree_paths).await?;
        if tree == self.tree_of(&tree_paths.store, &head).await? {
            return Ok(None);
        }
        let message = "Unfinished work, kept before the tree was reset";
        let commit = self.commit_tree((&tree_paths.store, repo), &tree, &[&head], message, None).await?;
        let guard = self.locks.repository(&tree_paths.store).await?;
        let prefix = format!("refs/ralph/keep/{}/", loop_name(loop_id));
        let names = self.ref_names(&tree_paths.store, &prefix).await?;
        let numbers = names.iter().filter_map(|name| name.strip_prefix(&prefix)?.parse::<u64>().ok());
        let name = format!("{prefix}{}", numbers.max().unwrap_or(0) + 1);
        self.update_refs(&guard, &tree_paths.store, &[RefChange::Set(name, commit.clone())]).await?;
        Ok(Some(commit))
    }

    /// Saves `head`, with uncommitted files of the tree on top, under the ref
    /// `refs/ralph/keep/<loop>/undone-<commit>`; returns the name of the ref.
    pub async fn keep(&self, loop_id: &LoopId, repo: &RepoRef, head: &Sha) -> Result<String, WorkspaceError> {
        let kept = self.salvage(loop_id, repo).await?.unwrap_or_else(|| head.clone());
        let store = self.opened(loop_id, repo).await?.store;
        let guard = self.locks.repository(&store).await?;
        let name = format!("refs/ralph/keep/{}/undone-{}", loop_name(loop_id), kept.short());
        self.update_refs(&guard, &store, &[RefChange::Set(name.clone(), kept)]).await?;
        Ok(name)
    }

    /// Updates the private index from the files; returns the differences. If the disk is full, the objects that were
    /// written until then are removed, so that the loop can continue in the remaining space.
    async fn stage(&self, tree_paths: &TreePaths, parent: &Sha) -> Result<Changes, WorkspaceError> {
        let staged = self.stage_files(tree_paths, parent).await;
        if let Err(WorkspaceError::DiskFull { .. }) = &staged
            && let Err(error) = self.remove_unreferenced(tree_paths).await
        {
            tracing::warn!(%error, store = %tree_paths.store.display(), "could not remove unfinished objects");
        }
        staged
    }

    /// Removes the objects of a store that no ref names, and the private index, which may name them.
    async fn remove_unreferenced(&self, tree_paths: &TreePaths) -> Result<(), WorkspaceError> {
        files::remove(&tree_paths.index)?;
        let prune = GitCommand::new("remove unfinished objects", &tree_paths.store);
        self.git.ok(prune.args(["prune", "--expire=now"])).await.map(drop)
    }

    async fn stage_files(&self, tree_paths: &TreePaths, parent: &Sha) -> Result<Changes, WorkspaceError> {
        if !std::fs::symlink_metadata(&tree_paths.dir).is_ok_and(|found| found.is_dir()) {
            return Err(WorkspaceError::TreeMissing(tree_paths.dir.clone()));
        }
        remove_index_lock(&tree_paths.index)?;
        let before = self.readable_index(tree_paths, parent).await?;
        let links = before.submodules();
        let listed = self.differing_paths(tree_paths, &links).await?;
        let dir = tree_paths.dir.clone();
        let mut changes = files::blocking(move || Ok(classify(&dir, &listed, &links))).await?;
        let compiled = |path: &PathBuf| is_compiled_cache(&path.to_string_lossy());
        if changes.stage.iter().any(compiled) {
            // Compiled files of interpreters are not work, even without a matching `.gitignore`.
            changes.stage.retain(|path| !compiled(path) || before.is_file(path.as_os_str().as_encoded_bytes()));
        }
        let assets = self.stage_assets(tree_paths, &before, &mut changes.stage, &mut changes.left_out).await?;
        changes.refused = assets.refused;
        let zeros = "0".repeat(parent.as_str().len());
        let mut entries = Vec::new();
        for path in &changes.remove {
            entries.extend(format!("0 {zeros}\t").into_bytes());
            entries.extend(path.as_os_str().as_encoded_bytes());
            entries.push(0);
        }
        entries.extend(assets.entries);
        let additions = files::zero_terminated(&changes.stage);
        let update = |input: &[u8], flags: &[&str]| {
            let call = GitCommand::new("take in the files", &tree_paths.store);
            let call = call.on_tree(&tree_paths.dir, &tree_paths.index).args(["update-index", "-z"]);
            call.args(flags).synced_by_ref().input(input.to_vec())
        };
        if !additions.is_empty() {
            let flags = ["--add", "--remove", "--replace", "--stdin"];
            match self.git.ok(update(&additions, &flags)).await {
                Err(WorkspaceError::Git { detail, .. }) if detail.contains("encod") => {
                    let _ignored = IgnoredEncodings::of(&tree_paths.store)?;
                    self.git.ok(update(&additions, &flags)).await?
                }
                taken => taken?,
            };
        }
        // Last, because it looks at no file: before, it would write an index that is newer than files which changed in the second
        // of their checkout, and git would treat files of the same size as unchanged.
        if !entries.is_empty() {
            self.git.ok(update(&entries, &["--index-info"])).await?;
        }
        changes.before = before;
        Ok(changes)
    }

    /// Returns the files and submodules in the private index. A missing or damaged index is first rebuilt from `parent`.
    async fn readable_index(&self, tree_paths: &TreePaths, parent: &Sha) -> Result<Tracked, WorkspaceError> {
        if tree_paths.index.is_file()
            && let Ok(tracked) = self.tracked(tree_paths).await
        {
            return Ok(tracked);
        }
        files::remove(&tree_paths.index)?;
        let read = GitCommand::new("rebuild an index", &tree_paths.store).on_tree(&tree_paths.dir, &tree_paths.index);
        self.git.ok(read.args(["read-tree", parent.as_str()])).await?;
        self.tracked(tree_paths).await
    }

    /// Returns the paths that are modified, deleted, or new and not ignored. First removes nested `.git` entries, with
    /// which git would treat a folder as another repository, so that the folder's files are listed and its
    /// configuration is never read.
    async fn differing_paths(&self, tree_paths: &TreePaths, links: &[PathBuf]) -> Result<Vec<PathBuf>, WorkspaceError> {
        for link in links {
            remove_nested_git(&tree_paths.dir, link)?;
        }
        for _ in 0..MOST_NESTING {
            let call =
                GitCommand::new("list changed files", &tree_paths.store).on_tree(&tree_paths.dir, &tree_paths.index);
            let call = call.args(["ls-files", "-z", "--modified", "--deleted", "--others", "--exclude-standard"]);
            let listed = self.git.ok(call).await?;
            let paths: BTreeSet<&[u8]> = files::zero_separated(&listed.stdout).collect();
            if listed.truncated || paths.len() > COMMITTED_FILES {
                return Err(WorkspaceError::TooLarge { what: "the change".to_owned(), limit: COMMITTED_FILES as u64 });
            }
            let (nested, plain): (Vec<&[u8]>, Vec<&[u8]>) = paths.into_iter().partition(|path| path.ends_with(b"/"));
            let mut opened = false;
            for folder in nested {
                opened |= remove_nested_git(&tree_paths.dir, &files::path_of(folder))?;
            }
            if !opened {
                return Ok(plain.into_iter().map(files::path_of).collect());
            }
        }
        Err(WorkspaceError::TooLarge { what: "the nesting of repositories".to_owned(), limit: MOST_NESTING as u64 })
    }

    pub(super) async fn write_tree(&self, tree_paths: &TreePaths) -> Result<Sha, WorkspaceError> {
        let call = GitCommand::new("write a tree", &tree_paths.store).on_index(&tree_paths.index);
        self.object("write a tree", call.args(["write-tree"]).synced_by_ref()).await
    }

    pub(super) async fn tree_of(&self, store: &Path, commit: &Sha) -> Result<Sha, WorkspaceError> {
        let name = format!("{commit}^{{tree}}");
        let call =
            GitCommand::new("find the tree of a commit", store).args(["rev-parse", "--verify", "--quiet", &name]);
        Sha::parse(&self.git.run(call).await?.text())
            .ok_or_else(|| WorkspaceError::CommitMissing { commit: commit.clone() })
    }

    /// Creates a commit, which is durable once a ref names it.
    pub(super) async fn commit_tree(
        &self,
        (store, repo): (&Path, &RepoRef),
        tree: &Sha,
        parents: &[&Sha],
        message: &str,
        signing: Option<&CommitSigning>,
    ) -> Result<Sha, WorkspaceError> {
        let date = format!("@{} +0000", self.clock.now().0.div_euclid(1000).max(0));
        let mut call = GitCommand::new("write a commit", store)
            .args(["commit-tree", tree.as_str(), "-F", "-"])
            .synced_by_ref()
            .input(message.replace('\0', "").into_bytes());
        for parent in parents {
            call = call.args(["-p", parent.as_str()]);
        }
        let author = self.author_on(&repo.forge);
        for role in ["AUTHOR", "COMMITTER"] {
            call = call
                .env(&format!("GIT_{role}_NAME"), &author.name)
                .env(&format!("GIT_{role}_EMAIL"), &author.email)
                .env(&format!("GIT_{role}_DATE"), &date);
        }
        call = match signing {
            None => call,
            Some(CommitSigning::Ssh { key_file }) => {
                let key = format!("user.signingKey={}", key_file.display());
                call.config("gpg.format=ssh").config(key).args(["-S"])
            }
            Some(CommitSigning::OpenPgp { key_id, home }) => {
                let key = format!("user.signingKey={key_id}");
                call.config("gpg.format=openpgp").config(key).args(["-S"]).env("GNUPGHOME", home)
            }
        };
        self.object("write a commit", call).await
    }

    /// Returns the state of the store before the commit. A single command reads all of it, because starting git
    /// dominates the time of a commit.
    async fn before(&self, request: &CommitRequest<'_>, store: &Path) -> Result<Before, WorkspaceError> {
        let CommitRequest { parent, base, loop_id, .. } = request;
        let asked = format!("info {parent}^{{tree}}\ninfo {base}^{{tree}}\ncontents {}\n", tree_ref(loop_id));
        let call = GitCommand::new("read a commit", store).args(["cat-file", "--batch-command"]);
        let answer = self.git.ok(call.input(asked.into_bytes())).await?;
        let text = String::from_utf8_lossy(&answer.stdout);
        let mut parts = text.splitn(3, '\n');
        let mut tree = || {
            let (name, kind) = parts.next()?.split_once(' ')?;
            Sha::parse(name).filter(|_| kind.starts_with("tree "))
        };
        let (tree, base_tree) = (tree(), tree());
        let tree = tree.ok_or_else(|| WorkspaceError::CommitMissing { commit: (*parent).clone() })?;
        let recorded = parts.next().and_then(|rest| rest.split_once('\n')).and_then(|(head, content)| {
            let (name, kind) = head.split_once(' ')?;
            let commit = Sha::parse(name).filter(|_| kind.starts_with("commit "))?;
            Some(Recorded { commit, content: content.to_owned() })
        });
        Ok(Before { tree, base_tree, recorded })
    }

    /// Creates the commit, or reuses the commit of an earlier call, and makes it reachable.
    async fn record(
        &self,
        request: &CommitRequest<'_>,
        tree_paths: &TreePaths,
        tree: &Sha,
        recorded: Option<Recorded>,
    ) -> Result<Sha, WorkspaceError> {
        let mut parents = vec![request.parent];
        parents.extend(request.merge_parent);
        let commit = match recorded {
            Some(recorded) if recorded.is_of(tree, &parents, request.message.as_str()) => recorded.commit,
            _ => {
                let (place, signing) = ((&*tree_paths.store, request.repo), self.settings.signing.as_ref());
                self.commit_tree(place, tree, &parents, request.message.as_str(), signing).await?
            }
        };
        kill_point("K20");
        let guard = self.locks.repository(&tree_paths.store).await?;
        let folder = format!("refs/ralph/loops/{}", loop_name(request.loop_id));
        let changes = [
            RefChange::Set(format!("{folder}/{commit}"), commit.clone()),
            RefChange::Set(tree_ref(request.loop_id), commit.clone()),
            // The parent stays reachable through its child.
            RefChange::Delete(format!("{folder}/{}", request.parent)),
        ];
        self.update_refs(&guard, &tree_paths.store, &changes).await?;
        Ok(commit)
    }

    /// Returns the difference of two commits as a patch, cut after `bytes`.
    pub async fn diff(
        &self,
        of: (&LoopId, &RepoRef),
        from: &Sha,
        to: &Sha,
        bytes: usize,
    ) -> Result<String, WorkspaceError> {
        Ok(self.patch(of, (from, to), &[], bytes).await?.text)
    }
}

/// State of the store before a commit.
struct Before {
    /// Tree of the first parent.
    tree: Sha,
    /// Tree of the base; `None` if the store does not contain it.
    base_tree: Option<Sha>,
    /// Commit that was last recorded for the loop's tree; `None` if there is none.
    recorded: Option<Recorded>,
}

/// Commit that was last recorded for a loop's tree, with its content.
struct Recorded {
    commit: Sha,
    content: String,
}

impl Recorded {
    fn is_of(&self, tree: &Sha, parents: &[&Sha], message: &str) -> bool {
        let Some((head, body)) = self.content.split_once("\n\n") else { return false };
        let of = |key: &str| {
            let values = head.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
            values.map(str::to_owned).collect::<Vec<_>>()
        };
        let expected: Vec<&str> = parents.iter().map(|parent| parent.as_str()).collect();
        of("tree") == [tree.as_str()] && of("parent") == expected && body.trim_end() == message.trim_end()
    }
}

/// Removes `<folder>/.git` unless a parent folder is a link; returns `true` if it existed.
fn remove_nested_git(root: &Path, folder: &Path) -> Result<bool, WorkspaceError> {
    let marker = folder.join(".git");
    if folder.as_os_str().is_empty() || !files::parents_are_real(root, &marker) {
        return Ok(false);
    }
    let exists = std::fs::symlink_metadata(root.join(&marker)).is_ok();
    // A further work tree of the agent's repository is a copy of files that the tree has.
    let link = files::read_beneath(root, &marker, MOST_LINK).unwrap_or_default();
    if link.starts_with(b"gitdir: ") && String::from_utf8_lossy(&link).contains("/.git/worktrees/") {
        files::remove(&root.join(folder))?;
        return Ok(true);
    }
    files::remove(&root.join(&marker))?;
    Ok(exists)
}

/// Returns the sentences about changes that are not committed because of where they are.
fn refusals(assets: &[String], submodules: &[String]) -> Vec<String> {
    let module = |path: &String| {
        format!("`{path}` is a submodule, whose files belong to another repository: its change was not committed")
    };
    assets.iter().take(20).cloned().chain(submodules.iter().map(module)).collect()
}

fn classify(root: &Path, listed: &[PathBuf], links: &[PathBuf]) -> Changes {
    let mut changes = Changes::default();
    for path in listed {
        let found =
            if files::parents_are_real(root, path) { std::fs::symlink_metadata(root.join(path)).ok() } else { None };
        if found.as_ref().is_some_and(has_old_times) {
            renew_times(&root.join(path));
        }
        match found {
            Some(found) if found.is_dir() && links.contains(path) => {}
            Some(found) if found.is_symlink() => changes.stage.push(path.clone()),
            Some(found) if found.is_file() && found.len() > COMMITTED_FILE_BYTES => changes.left_out.push(path.clone()),
            Some(found) if found.is_file() => match std::fs::File::open(root.join(path)) {
                Err(error) if error.kind() == ErrorKind::PermissionDenied => changes.left_out.push(path.clone()),
                _ => changes.stage.push(path.clone()),
            },
            _ => changes.remove.push(path.clone()),
        }
    }
    changes
}

/// Whether a file's modification time is in an earlier second than its change time. Git compares whole seconds and
/// would miss a change after which the modification time was set back.
fn has_old_times(found: &std::fs::Metadata) -> bool {
    found.mtime() < found.ctime()
}

/// Sets the modification time of a file or link to now; ignores errors, for example for files of other users.
fn renew_times(path: &Path) {
    files::set_times(path, Timespec { tv_sec: 0, tv_nsec: UTIME_NOW });
}
