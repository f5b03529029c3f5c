//! CI of a loop's pull request: whether it failed, and when the loop has to know of it.

use super::{FailedCi, Guidance, GuidanceSource, Iteration, Loop, LoopState, LoopStep};

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
                matches!(
                    self.step,
                    LoopStep::Check | LoopStep::Verify | LoopStep::HooksBeforeReady | LoopStep::SecondOpinion
                ) || failed_before()
            }
            LoopState::Queued | LoopState::Waiting | LoopState::Paused => failed_before(),
            _ => false,
        }
    }

    /// Returns the CI failures that the agent was told of last: those in the newest prompt that had any.
    pub fn told_ci_failures(&self) -> Vec<Guidance> {
        let of = |iteration: &Iteration| -> Vec<Guidance> {
            iteration.guidance.iter().filter(|one| one.source == GuidanceSource::Ci).cloned().collect()
        };
        self.iterations.iter().rev().map(of).find(|failures| !failures.is_empty()).unwrap_or_default()
    }
}
