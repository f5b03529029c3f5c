//! Links of the files that comments and pull requests name, where the commit has them.

use std::collections::{BTreeSet, HashMap};

use super::{Engine, ForgeAccount};
use crate::domain::loops::Loop;
use crate::domain::model::ids::{RepoRef, Sha};
use crate::domain::report::file_links::{certain_files, link_files, linked_commit, named_paths_of};
use crate::domain::report::view::View;

impl Engine {
    /// Returns a text with links of the files and lines that it names and that its commit has.
    pub(super) async fn linked(&self, account: &ForgeAccount, repo: &RepoRef, current: &Loop, mut view: View) -> View {
        let Some(commit) = linked_commit(current, &view) else { return view };
        let Some(page) = account.forge.files_page(repo, &commit) else { return view };
        let certain = certain_files(current, &view);
        let paths = named_paths_of(&view, &certain);
        let mut lines = self.lines_of(current, repo, &commit, &paths.iter().map(String::as_str).collect()).await;
        for path in certain {
            // The file is linked without a line.
            lines.entry(path).or_insert(0);
        }
        link_files(&mut view, &page, &lines);
        view
    }

    /// Returns the number of lines of those of the paths that are files in a commit; none if they cannot be read, because a text
    /// says the same without links.
    pub(super) async fn lines_of(
        &self,
        current: &Loop,
        repo: &RepoRef,
        commit: &Sha,
        paths: &BTreeSet<&str>,
    ) -> HashMap<String, u64> {
        self.workspaces.line_counts(&current.id, repo, commit, paths).await.unwrap_or_else(|error| {
            tracing::info!(loop_id = %current.id, %error, "cannot look up the lines that a text names");
            HashMap::new()
        })
    }
}
