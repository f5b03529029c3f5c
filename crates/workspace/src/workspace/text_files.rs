//! Single text files: reads their content in a commit, and replaces them in a tree.

use std::path::Path;

use super::git::GitCommand;
use super::{WorkspaceError, Workspaces, files};
use crate::domain::model::ids::{LoopId, RepoRef, Sha};

/// Maximum size of a text file, in bytes.
const MOST_BYTES: usize = 1 << 20;

impl Workspaces {
    /// Returns the content of a regular file in a loop's commit. `None` if the commit or the file is missing, or the
    /// file is a link, larger than 1 MiB, or not UTF-8.
    pub async fn text_at(
        &self,
        loop_id: &LoopId,
        repo: &RepoRef,
        commit: &Sha,
        path: &str,
    ) -> Result<Option<String>, WorkspaceError> {
        let store = self.opened(loop_id, repo).await?.store;
        let call = GitCommand::new("find a file of a commit", &store);
        let list = ["--literal-pathspecs", "ls-tree", "-z", "--full-tree", commit.as_str(), "--", path];
        let Ok(listed) = self.git.ok(call.args(list)).await else { return Ok(None) };
        let entry = String::from_utf8_lossy(&listed.stdout).into_owned();
        let Some((facts, found)) = entry.trim_end_matches('\0').split_once('\t') else { return Ok(None) };
        let mut facts = facts.split(' ');
        let (mode, _, blob) = (facts.next(), facts.next(), facts.next());
        let Some(blob) = blob.filter(|_| found == path && mode.is_some_and(|mode| mode.starts_with("100"))) else {
            return Ok(None);
        };
        let call = GitCommand::new("read a file of a commit", &store).args(["cat-file", "blob", blob]);
        let read = self.git.ok(call.output_bytes(MOST_BYTES)).await?;
        Ok(if read.truncated { None } else { String::from_utf8(read.stdout).ok() })
    }

    /// Replaces the content of a regular file in a loop's tree without changing its permissions. Does not follow
    /// links.
    pub async fn write_text(
        &self,
        loop_id: &LoopId,
        repo: &RepoRef,
        path: &str,
        text: &str,
    ) -> Result<(), WorkspaceError> {
        let tree_paths = self.opened(loop_id, repo).await?;
        let _tree = self.locks.here(&tree_paths.dir).await;
        let (dir, path, text) = (tree_paths.dir.clone(), path.to_owned(), text.to_owned());
        files::blocking(move || files::replace(&dir, Path::new(&path), &mut text.as_bytes())).await
    }
}
