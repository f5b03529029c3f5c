//! Links in comments and pull requests: to files that exist in the commit, and to outputs in the dashboard.

use std::collections::{BTreeSet, HashMap};

use crate::domain::knowledge::session::transcript;
use crate::domain::loops::Loop;
use crate::domain::model::ids::{RepoRef, Sha};
use crate::domain::report::dashboard_links::add_check_lines;
use crate::domain::report::file_links::{certain_files, link_files, linked_commit, named_paths_of};
use crate::domain::report::view::View;
use crate::engine::forge_effects::ForgeEffects;
use crate::engine::forges::account::ForgeAccount;
use crate::store::session;

impl ForgeEffects {
    /// Adds links to the files and lines that a view names and that exist in its commit.
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

    /// Adds links to the transcript lines at which the outputs of failing checks start. If the lines cannot be read,
    /// no links are added.
    pub(super) async fn add_check_lines(&self, current: &Loop, view: &mut View) {
        let View::Iteration(shown) = &*view else { return };
        let number = shown.n;
        let found = current.iterations.iter().rev().find(|iteration| iteration.number == number);
        let (Some(iteration), Some(_)) = (found, &self.comments.dashboard) else { return };
        let id = current.id.clone();
        let read = self
            .context
            .store
            .read(move |c| Ok((session::turns(c, &id, number..=number)?, session::events(c, &id, number..=number)?)));
        match read.await {
            Ok((turns, events)) => {
                // As the page shows it: a masked secret of several lines is one line.
                let mut parts = transcript::parts(iteration, &turns, &events, None);
                parts.iter_mut().for_each(|part| part.text = self.git.outbound.masked(&part.text));
                add_check_lines(view, |name| transcript::line_of_check(&parts, name));
            }
            Err(error) => tracing::info!(loop_id = %current.id, %error, "cannot look up the lines of a transcript"),
        }
    }

    /// Returns the number of lines of each path that is a file in a commit. Empty if the files cannot be read, because
    /// the text only lacks links then.
    pub(super) async fn lines_of(
        &self,
        current: &Loop,
        repo: &RepoRef,
        commit: &Sha,
        paths: &BTreeSet<&str>,
    ) -> HashMap<String, u64> {
        self.git.workspaces.line_counts(&current.id, repo, commit, paths).await.unwrap_or_else(|error| {
            tracing::info!(loop_id = %current.id, %error, "cannot look up the lines that a text names");
            HashMap::new()
        })
    }
}
