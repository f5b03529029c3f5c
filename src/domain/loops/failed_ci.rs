//! CI of the pull request that failed, and when a loop has to know of it.

use serde::{Deserialize, Serialize};

use super::{GuidanceSource, Iteration, Loop, LoopState, LoopStep};
use crate::domain::loops::Guidance;
use crate::domain::model::ids::Sha;

/// Failed CI of a commit of the pull request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedCi {
    /// Commit.
    pub commit: Sha,
    /// Names of the failed checks that do not fail on the base.
    pub names: Vec<String>,
    /// Names of the failed checks that fail on the base, too.
    pub on_base: Vec<String>,
}

impl FailedCi {
    /// Whether these are the names of its failed checks, in any order.
    pub fn is_about<'a>(&self, commit: &Sha, names: impl Iterator<Item = &'a str>) -> bool {
        let mut known: Vec<&str> = self.names.iter().chain(&self.on_base).map(String::as_str).collect();
        let mut names: Vec<&str> = names.collect();
        known.sort_unstable();
        names.sort_unstable();
        self.commit == *commit && known == names
    }
}

/// Returns names of checks for people: `` `build`, `lint` ``.
pub fn check_names(names: &[String]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

impl Loop {
    /// Returns the failed checks of CI for the head that do not fail on the base, if there are any.
    pub fn red_ci(&self) -> Option<&FailedCi> {
        let of_head = |ci: &&FailedCi| self.head.as_ref() == Some(&ci.commit) && !ci.names.is_empty();
        self.failed_ci.as_ref().filter(of_head)
    }

    /// Whether the CI results of the pushed commit matter now: it is in review, its checks run, or its CI failed before.
    pub fn reads_ci(&self) -> bool {
        let failed_before = || self.failed_ci.as_ref().is_some_and(|ci| self.pushed.as_ref() == Some(&ci.commit));
        match self.state {
            LoopState::Review => true,
            LoopState::Running => {
                matches!(self.step, LoopStep::Check | LoopStep::Verify | LoopStep::HooksBeforeReady) || failed_before()
            }
            LoopState::Queued | LoopState::Waiting | LoopState::Paused => failed_before(),
            _ => false,
        }
    }

    /// Returns the failures of CI that the newest prompt with such failures named.
    pub fn told_ci_failures(&self) -> Vec<Guidance> {
        let of = |iteration: &Iteration| -> Vec<Guidance> {
            iteration.guidance.iter().filter(|one| one.source == GuidanceSource::Ci).cloned().collect()
        };
        self.iterations.iter().rev().map(of).find(|failures| !failures.is_empty()).unwrap_or_default()
    }
}
