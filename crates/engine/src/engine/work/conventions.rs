//! Rules of a repository's base for commits and pull requests.

use crate::domain::model::ids::{RepoRef, Sha};
use crate::domain::trust::commit_rules::{COMMITLINT_FILES, CommitRules, DCO_FILES, PULL_TEMPLATES};
use crate::engine::work::Verification;

impl Verification {
    /// Adds the rules for commits and pull requests that the files and the history of a repository state at a commit.
    pub(super) async fn commit_rules(&self, repo: &RepoRef, at: &Sha, rules: &mut CommitRules) {
        let decided = rules.signoff;
        let signoff = async {
            match decided {
                Some(decided) => decided,
                None => self.requires_signoff(repo, at).await,
            }
        };
        let (commitlint, template, signoff) = tokio::join!(
            self.workspaces.base_file(repo, at, COMMITLINT_FILES),
            self.workspaces.base_file(repo, at, PULL_TEMPLATES),
            signoff,
        );
        // A file that cannot be read states no rule.
        if let Ok(Some((_, bytes))) = commitlint {
            rules.add_commitlint(&String::from_utf8_lossy(&bytes));
        }
        if let Ok(Some((_, bytes))) = template {
            rules.add_template(&String::from_utf8_lossy(&bytes));
        }
        rules.signoff = Some(signoff);
    }

    /// Whether a repository requires signed-off commits, by the files and the history of its base.
    async fn requires_signoff(&self, repo: &RepoRef, at: &Sha) -> bool {
        let workflows = [".github/workflows", ".gitea/workflows", ".forgejo/workflows"];
        let (file, workflow, history) = tokio::join!(
            self.workspaces.base_file(repo, at, DCO_FILES),
            self.workspaces.has_line(repo, at, r"(^|[^A-Za-z])(dco|DCO)([^A-Za-z]|$)", &workflows),
            self.workspaces.signs_off(repo, at),
        );
        matches!(file, Ok(Some(_))) || workflow || history
    }
}
