//! Comparison of a branch with its base: the complete change, and the files of the base that it changes.

use std::borrow::Cow;
use std::collections::HashMap;

use super::git::GitCommand;
use super::outgoing::RawEntry;
use super::{WorkspaceError, Workspaces, files};
use crate::domain::model::ids::{LoopId, RepoRef, Sha};
use crate::domain::trust::bounds::BRANCH_CHANGE_BYTES;

/// Complete change of a branch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BranchDiff {
    /// Change as a patch, at most 16 MiB; invalid UTF-8 is replaced.
    pub text: String,
    /// Whether `text` was cut because of its size.
    pub truncated: bool,
}

/// Change of a path. A moved file is deleted at one path and added at another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PathChange {
    Added,
    Deleted,
    /// Content or type.
    Modified,
}

impl PathChange {
    /// Reads git's letter of a status.
    fn of(status: &[u8]) -> Self {
        match status {
            b"A" => Self::Added,
            b"D" => Self::Deleted,
            _ => Self::Modified,
        }
    }
}

/// Files that differ between two commits, by path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChangedPaths(Vec<(PathChange, String)>);

impl ChangedPaths {
    /// Parses the entries of `--raw -z --no-renames` at the start of an output. Returns the rest, too.
    pub(super) fn parse(mut output: &[u8]) -> (Self, &[u8]) {
        let mut paths = Vec::new();
        while let Some(entry) = RawEntry::next(&mut output) {
            paths.push((PathChange::of(entry.status()), String::from_utf8_lossy(entry.path).into_owned()));
        }
        (Self(paths), output)
    }

    /// Returns all paths.
    pub fn all(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(_, path)| path.as_str())
    }

    /// Returns the paths that the first commit has: changed, moved and deleted files.
    pub fn of_base(&self) -> impl Iterator<Item = &str> {
        self.with(|change| change != PathChange::Added)
    }

    /// Returns the paths that only the first commit has.
    pub fn deleted(&self) -> impl Iterator<Item = &str> {
        self.with(|change| change == PathChange::Deleted)
    }

    /// Returns the paths that only the second commit has.
    pub fn added(&self) -> impl Iterator<Item = &str> {
        self.with(|change| change == PathChange::Added)
    }

    fn with(&self, is_wanted: impl Fn(PathChange) -> bool) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(change, _)| is_wanted(*change)).map(|(_, path)| path.as_str())
    }
}

/// Contents of files by path.
pub type PathContents = HashMap<String, Vec<u8>>;

impl Workspaces {
    /// Whether the store of a loop exists. It is deleted some time after the loop's end.
    pub fn keeps_commits(&self, (loop_id, repo): (&LoopId, &RepoRef)) -> bool {
        self.layout.tree(loop_id, repo).store.join("HEAD").exists()
    }

    /// Returns the change from `base` to a commit or tree.
    pub async fn branch_diff(
        &self,
        of: (&LoopId, &RepoRef),
        base: &Sha,
        to: &Sha,
    ) -> Result<BranchDiff, WorkspaceError> {
        self.patch(of, (base, to), &[], BRANCH_CHANGE_BYTES).await
    }

    /// Returns the change of some files from `base` to a commit, cut after `bytes`.
    pub async fn diff_of_files(
        &self,
        of: (&LoopId, &RepoRef),
        (base, to): (&Sha, &Sha),
        paths: &[String],
        bytes: usize,
    ) -> Result<String, WorkspaceError> {
        Ok(self.patch(of, (base, to), paths, bytes).await?.text)
    }

    pub(super) async fn patch(
        &self,
        (loop_id, repo): (&LoopId, &RepoRef),
        (from, to): (&Sha, &Sha),
        paths: &[String],
        bytes: usize,
    ) -> Result<BranchDiff, WorkspaceError> {
        let store = self.opened(loop_id, repo).await?.store;
        let call = GitCommand::new("read a change", &store).config(self.sources_as_text());
        let call = call.env("GIT_LITERAL_PATHSPECS", "1").args(["diff-tree", "-r", "-M", "--patch", "--no-color"]);
        let call = call.args(["--no-ext-diff", "--no-textconv", from.as_str(), to.as_str(), "--"]).args(paths);
        let output = self.git.ok(call.output_bytes(bytes)).await?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok(BranchDiff { text, truncated: output.truncated })
    }

    /// Returns the files that differ between two commits or trees.
    pub async fn changed_paths(
        &self,
        (loop_id, repo): (&LoopId, &RepoRef),
        from: &Sha,
        to: &Sha,
    ) -> Result<ChangedPaths, WorkspaceError> {
        let store = self.opened(loop_id, repo).await?.store;
        let call = GitCommand::new("list changed files", &store);
        let call =
            call.args(["diff-tree", "-r", "--no-renames", "-z", "--raw", "--no-abbrev", from.as_str(), to.as_str()]);
        Ok(ChangedPaths::parse(&self.git.ok(call).await?.stdout).0)
    }

    /// Returns the paths of all files of a commit.
    pub async fn paths_of(&self, repo: &RepoRef, commit: &Sha) -> Result<Vec<String>, WorkspaceError> {
        let mirror = self.layout.mirror(repo);
        Ok(self.tracked_at(&mirror, commit).await?.files().map(Cow::into_owned).collect())
    }

    /// Whether any line of a commit's files matches an extended regular expression; `false` if the files cannot be
    /// read.
    pub async fn has_line(&self, repo: &RepoRef, commit: &Sha, pattern: &str, globs: &[&str]) -> bool {
        let mirror = self.layout.mirror(repo);
        let call = GitCommand::new("search the base", &mirror);
        // Elsewhere, paths are literal.
        let call = call.env("GIT_LITERAL_PATHSPECS", "0");
        let call = call.args(["grep", "-q", "-E", "-e", pattern, commit.as_str(), "--"]).args(globs);
        self.git.ok(call).await.is_ok()
    }

    /// Returns the text files of a commit that contain at least one of some texts; empty if the files cannot be read.
    pub async fn files_with(&self, repo: &RepoRef, commit: &Sha, texts: &[String]) -> Vec<String> {
        let mirror = self.layout.mirror(repo);
        let call = GitCommand::new("search the base", &mirror).args(["grep", "-l", "-z", "-I", "-F"]);
        let call = texts.iter().fold(call, |call, text| call.args(["-e", text.as_str()])).args([commit.as_str()]);
        let Ok(found) = self.git.ok(call).await else { return Vec::new() };
        let path = |name: &String| name.split_once(':').map(|(_, path)| path.to_owned());
        names(&found.stdout).iter().filter_map(path).collect()
    }

    /// Returns the paths of the symbolic links of a commit.
    pub async fn symbolic_links_of(&self, repo: &RepoRef, commit: &Sha) -> Result<Vec<String>, WorkspaceError> {
        let mirror = self.layout.mirror(repo);
        Ok(self.tracked_at(&mirror, commit).await?.links())
    }

    /// Returns the paths of at most `most` files of a commit with a line that matches a POSIX extended regular expression.
    pub async fn files_with_line(&self, repo: &RepoRef, commit: &Sha, pattern: &str, most: usize) -> Vec<String> {
        let mirror = self.layout.mirror(repo);
        let call = GitCommand::new("search the base", &mirror);
        let call = call.args(["grep", "-l", "-z", "-I", "-E", "-e", pattern, commit.as_str()]);
        let Ok(answer) = self.git.ok(call).await else { return Vec::new() };
        let path = |found: &str| found.split_once(':').map(|(_, path)| path.to_owned());
        answer.text().split('\0').filter_map(path).take(most).collect()
    }

    /// Whether most of the newest commits of a history are signed off by their authors.
    pub async fn signs_off(&self, repo: &RepoRef, commit: &Sha) -> bool {
        let mirror = self.layout.mirror(repo);
        let call = GitCommand::new("read the history of the base", &mirror);
        let format = "--format=%x00%(trailers:key=Signed-off-by)";
        let call = call.args(["log", "-20", "--no-merges", "--no-color", format, commit.as_str()]);
        let Ok(read) = self.git.ok(call).await else { return false };
        let text = read.text();
        let is_signed = |one: &str| one.contains("Signed-off-by:");
        let signed: Vec<bool> = text.split('\0').skip(1).map(is_signed).collect();
        signed.len() >= 3 && signed.iter().filter(|signed| **signed).count() * 2 > signed.len()
    }

    /// Returns the newest commit of the base branch that the branch contains after `other` is merged: either `base`,
    /// or the common ancestor of `other` and the base branch's head `tip`.
    pub async fn contained_base(
        &self,
        repo: &RepoRef,
        base: &Sha,
        tip: &Sha,
        other: &Sha,
    ) -> Result<Sha, WorkspaceError> {
        let mirror = self.layout.mirror(repo);
        let Some(common) = self.merge_base(&mirror, tip, other).await? else { return Ok(base.clone()) };
        let is_newer = self.merge_base(&mirror, base, &common).await?.as_ref() == Some(base);
        Ok(if is_newer { common } else { base.clone() })
    }
}

/// Parses zero-terminated names; invalid UTF-8 is replaced.
fn names(listed: &[u8]) -> Vec<String> {
    files::zero_separated(listed).map(|name| String::from_utf8_lossy(name).into_owned()).collect()
}
