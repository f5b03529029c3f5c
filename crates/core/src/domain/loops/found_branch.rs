//! State of a loop on an existing pull request: the branch as found, and the words for its place.

use super::aggregate::Loop;
use super::existing_pull::FoundBranch;
use super::parts::PullState;
use crate::domain::model::ids::AccountKind;

impl PullState {
    /// Returns the branch of the existing pull request as the loop found it; `None` for a loop on an issue.
    pub fn found_branch(&self) -> Option<&FoundBranch> {
        self.existing.as_ref()?.found.as_ref()
    }

    /// Returns the noun for the place of the loop: "issue" or "pull request".
    pub fn subject(&self) -> &'static str {
        if self.existing.is_some() { "pull request" } else { "issue" }
    }
}

impl Loop {
    /// Whether the loop found nothing to do on an existing pull request.
    pub fn found_nothing_to_do(&self) -> bool {
        self.pull.existing.as_ref().is_some_and(|pull| pull.found.is_none()) && self.branch.base.is_some()
    }

    /// Returns the login of the App that opened the existing pull request, such as Dependabot. It rebases the branch only while no
    /// other account has pushed to it. `None` if a person opened it, or if the loop pushed nothing.
    pub fn app_that_rebases(&self) -> Option<&str> {
        let found = self.pull.found_branch().filter(|found| self.branch.pushed.as_ref() != Some(&found.head));
        let author = self.task.author.as_ref().filter(|author| author.kind == AccountKind::Bot);
        found.and(author).map(|author| author.login.as_str())
    }
}
