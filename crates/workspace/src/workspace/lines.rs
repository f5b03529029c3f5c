//! Contents of a commit's files, and their numbers of lines.

use std::collections::{BTreeSet, HashMap};

use super::branch::PathContents;
use super::git::GitCommand;
use super::{WorkspaceError, Workspaces};
use crate::domain::model::ids::{LoopId, RepoRef, Sha};

/// Maximum total size of the files that are read, in bytes.
const MOST_BYTES: usize = 16 << 20;

impl Workspaces {
    /// Returns the number of lines of each path that is a file in a loop's commit. Files beyond a total of 16 MiB are
    /// skipped.
    pub async fn line_counts(
        &self,
        loop_id: &LoopId,
        repo: &RepoRef,
        commit: &Sha,
        paths: &BTreeSet<&str>,
    ) -> Result<HashMap<String, u64>, WorkspaceError> {
        let lines = |content: Vec<u8>| {
            let ends = content.iter().filter(|byte| **byte == b'\n').count() as u64;
            ends + u64::from(content.last().is_some_and(|byte| *byte != b'\n'))
        };
        let contents = self.contents_at(loop_id, repo, commit, paths).await?;
        Ok(contents.into_iter().map(|(path, content)| (path, lines(content))).collect())
    }

    /// Returns the content of each path that is a file in a loop's commit. Files beyond a total of 16 MiB are skipped.
    pub async fn contents_at(
        &self,
        loop_id: &LoopId,
        repo: &RepoRef,
        commit: &Sha,
        paths: &BTreeSet<&str>,
    ) -> Result<PathContents, WorkspaceError> {
        let [contents] = self.contents_at_each((loop_id, repo), [commit], paths).await?;
        Ok(contents)
    }

    /// Returns the content of each path that is a file in a loop's commit, for each of the commits. Files beyond 16 MiB for each commit
    /// are skipped.
    pub async fn contents_at_each<const N: usize>(
        &self,
        (loop_id, repo): (&LoopId, &RepoRef),
        commits: [&Sha; N],
        paths: &BTreeSet<&str>,
    ) -> Result<[PathContents; N], WorkspaceError> {
        let mut contents = std::array::from_fn(|_| PathContents::new());
        let usable: Vec<&str> = paths.iter().copied().filter(|path| !path.contains(['\n', '\0'])).collect();
        if usable.is_empty() {
            return Ok(contents);
        }
        let store = self.opened(loop_id, repo).await?.store;
        let asked: Vec<(usize, &str)> =
            usable.into_iter().flat_map(|path| (0..N).map(move |version| (version, path))).collect();
        let lines: String = asked.iter().map(|(version, path)| format!("{}:{path}\n", commits[*version])).collect();
        let call = GitCommand::new("read files of a commit", &store).args(["cat-file", "--batch"]);
        let answer = self.git.ok(call.input(lines.into_bytes()).output_bytes(N * MOST_BYTES)).await?;
        let mut rest = answer.stdout.as_slice();
        for (version, path) in asked {
            let Some(end) = rest.iter().position(|byte| *byte == b'\n') else { break };
            let head = String::from_utf8_lossy(&rest[..end]).into_owned();
            rest = &rest[end + 1..];
            if head.ends_with(" missing") {
                continue;
            }
            let mut fields = head.split(' ').skip(1);
            let (kind, size) = (fields.next(), fields.next().and_then(|size| size.parse::<usize>().ok()));
            let Some(content) = size.and_then(|size| rest.get(..size)) else { break };
            if kind == Some("blob") {
                contents[version].insert(path.to_owned(), content.to_vec());
            }
            rest = rest.get(content.len() + 1..).unwrap_or_default();
        }
        Ok(contents)
    }
}
