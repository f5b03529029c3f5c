//! CI of a loop's pull request: whether it failed, and when its results matter.

use super::{FailedCi, Guidance, GuidanceSource, Iteration, Loop, LoopState, LoopStep};

impl Loop {
    /// Returns the failed CI of the head; `None` if no check failed there that does not also fail on the base.
    pub fn red_ci(&self) -> Option<&FailedCi> {
        let of_head = |ci: &&FailedCi| self.branch.head.as_ref() == Some(&ci.commit) && !ci.names.is_empty();
        self.pull.failed_ci.as_ref().filter(of_head)
    }

    /// Whether the CI results of the pushed commit matter now, because the commit is in review or its checks run, or because its
    /// CI failed before.
    pub fn reads_ci(&self) -> bool {
        let failed_before =
            || self.pull.failed_ci.as_ref().is_some_and(|ci| self.branch.pushed.as_ref() == Some(&ci.commit));
        match self.state {
            LoopState::Review => true,
            LoopState::Running => {
                matches!(
                    self.run.step,
                    LoopStep::Check | LoopStep::Verify | LoopStep::HooksBeforeReady | LoopStep::SecondOpinion
                ) || failed_before()
            }
            LoopState::Queued | LoopState::Waiting | LoopState::Paused => failed_before(),
            _ => false,
        }
    }

    /// Returns the CI failures in the agent's knowledge: the failures in the newest prompt that contained any.
    pub fn told_ci_failures(&self) -> Vec<Guidance> {
        let of = |iteration: &Iteration| -> Vec<Guidance> {
            iteration.guidance.iter().filter(|one| one.source == GuidanceSource::Ci).cloned().collect()
        };
        self.iterations.iter().rev().map(of).find(|failures| !failures.is_empty()).unwrap_or_default()
    }
}
