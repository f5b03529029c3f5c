//! Temporary repository in the agent's tree, on which the agent runs git.
//!
//! The service writes its files directly and never runs git on it.

use std::path::Path;

use super::layout::{Layout, TreePaths, objects};
use super::{WorkspaceError, Workspaces, files};
use crate::domain::model::ids::{LoopId, RepoRef, Sha};

/// Branch of the agent's repository.
const BRANCH: &str = "ralph";
/// Configuration with which the agent's git compares contents of Git LFS with their pointers. It never fetches contents.
const LFS_FILTER: &str =
    "[filter \"lfs\"]\n\tclean = git-lfs clean -- %f\n\tsmudge = git-lfs smudge --skip -- %f\n\trequired = false\n";
/// Maximum size of the reflog that is read, in bytes.
const REFLOG_BYTES: u64 = 256 << 10;
/// Maximum number of commits per iteration whose subjects are read.
const MOST_MESSAGES: usize = 50;
/// Maximum length of a subject, in characters.
const SUBJECT_CHARACTERS: usize = 200;

/// Replaces `.git` in the tree with a new repository that has a single branch at `commit`. `lfs_index` replaces the tree's index if
/// Git LFS stores files of the repository.
pub(super) fn install(
    layout: &Layout,
    tree_paths: &TreePaths,
    commit: &Sha,
    author: (&str, &str),
    lfs_index: Option<&Path>,
) -> Result<(), WorkspaceError> {
    let scratch = layout.scratch()?;
    let fresh = scratch.path().join("git");
    write(&fresh, tree_paths, commit, author, lfs_index)?;
    let target = tree_paths.dir.join(".git");
    if std::fs::symlink_metadata(&target).is_ok() {
        layout.discard(&target)?;
    }
    std::fs::rename(&fresh, &target).map_err(WorkspaceError::io("create", &target))
}

fn write(
    dir: &Path,
    tree_paths: &TreePaths,
    commit: &Sha,
    (name, email): (&str, &str),
    lfs_index: Option<&Path>,
) -> Result<(), WorkspaceError> {
    for folder in ["objects/info", "objects/pack", "refs/heads", "refs/tags", "info"] {
        let folder = dir.join(folder);
        std::fs::create_dir_all(&folder).map_err(WorkspaceError::io("create", &folder))?;
    }
    let config = format!(
        "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n[user]\n\tname = {}\n\temail = {}\n[gc]\n\tauto = 0\n{}",
        quoted(name),
        quoted(email),
        if lfs_index.is_some() { LFS_FILTER } else { "" }
    );
    let borrowed = [&tree_paths.store, &tree_paths.mirror].map(|from| format!("{}\n", objects(from).display()));
    let alternates = borrowed.concat();
    for (file, text) in [
        ("HEAD", format!("ref: refs/heads/{BRANCH}\n")),
        ("config", config),
        ("objects/info/alternates", alternates),
        (&format!("refs/heads/{BRANCH}"), format!("{commit}\n")),
    ] {
        let file = dir.join(file);
        std::fs::write(&file, text).map_err(WorkspaceError::io("write", &file))?;
    }
    // With a copy of the service's index, the agent's first `git status` reads no file contents.
    let index = dir.join("index");
    std::fs::copy(lfs_index.unwrap_or(&tree_paths.index), &index).map(drop).map_err(WorkspaceError::io("write", &index))
}

/// Quotes a value for a git configuration file.
fn quoted(value: &str) -> String {
    let plain: String = value.chars().filter(|c| !c.is_control()).collect();
    format!("\"{}\"", plain.replace('\\', "\\\\").replace('"', "\\\""))
}

impl Workspaces {
    /// Returns the subjects of the agent's commits since its repository was last replaced, oldest first. Call it
    /// before `commit`, which replaces the repository. The texts are untrusted; empty if the reflog is not readable.
    pub async fn agent_messages(&self, loop_id: &LoopId, repo: &RepoRef) -> Vec<String> {
        let dir = self.layout.tree(loop_id, repo).dir;
        let read = files::blocking(move || Ok(files::read_beneath(&dir, Path::new(".git/logs/HEAD"), REFLOG_BYTES)));
        read.await.ok().flatten().map(|log| subjects(&String::from_utf8_lossy(&log))).unwrap_or_default()
    }
}

fn subjects(reflog: &str) -> Vec<String> {
    let commits = reflog.lines().filter_map(|line| {
        let (kind, subject) = line.split_once('\t')?.1.split_once(": ")?;
        kind.starts_with("commit").then(|| subject.chars().take(SUBJECT_CHARACTERS).collect())
    });
    commits.take(MOST_MESSAGES).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_commits_are_read_from_a_reflog() {
        let log = "0 1 A <a@b> 1 +0000\tcommit (initial): first\n1 2 A <a@b> 1 +0000\tcheckout: moving from a to b\n\
                   2 3 A <a@b> 1 +0000\tcommit: fix: the thing\ngarbage\n\t\n3 4 A <a@b> 1 +0000\tcommit (amend): again\n";
        assert_eq!(subjects(log), ["first", "fix: the thing", "again"]);
        assert_eq!(subjects(&"a\tcommit: x\n".repeat(500)).len(), MOST_MESSAGES);
        assert_eq!(subjects(&format!("a\tcommit: {}\n", "é".repeat(900)))[0].chars().count(), SUBJECT_CHARACTERS);
        assert!(subjects("").is_empty());
    }

    #[test]
    fn configuration_values_are_quoted() {
        assert_eq!(quoted("a\"b\\c\n[core]"), "\"a\\\"b\\\\c[core]\"");
    }
}
