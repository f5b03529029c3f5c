//! Changes between commits of a loop, as patches for people to read.

use crate::domain::loops::Loop;
use crate::domain::model::ids::Sha;
use crate::engine::git_access::ForgeGit;

/// Change between two commits of a loop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoopPatch {
    /// Patch in the format of `git diff`; invalid UTF-8 is replaced.
    pub text: String,
    /// Whether the patch was cut because of its size.
    pub truncated: bool,
}

impl ForgeGit {
    /// Returns the change between two commits of a loop; `None` if the loop's commits are no longer stored on this
    /// machine.
    pub async fn patch_of(&self, current: &Loop, from: &Sha, to: &Sha) -> Option<LoopPatch> {
        let of = (&current.id, &current.issue.repo);
        if !self.workspaces.keeps_commits(of) {
            return None;
        }
        match self.workspaces.branch_diff(of, from, to).await {
            Ok(patch) => Some(LoopPatch { text: patch.text, truncated: patch.truncated }),
            Err(error) => {
                tracing::debug!(loop_id = %current.id, %error, "could not read a change for the dashboard");
                None
            }
        }
    }
}
