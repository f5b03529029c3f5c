//! Changes of a loop's commits as patches, for people.

use super::Engine;
use crate::domain::loops::Loop;
use crate::domain::model::ids::Sha;

/// Change between two commits of a loop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoopPatch {
    /// Patch; invalid UTF-8 is replaced.
    pub text: String,
    /// Whether the patch was cut.
    pub truncated: bool,
}

impl Engine {
    /// Returns the change from one commit of a loop to another; `None` if its commits are not kept here any more.
    pub async fn patch_of(&self, current: &Loop, from: &Sha, to: &Sha) -> Option<LoopPatch> {
        let of = (&current.id, &current.place.repo);
        if !self.workspaces.keeps_commits(of) {
            return None;
        }
        match self.workspaces.branch_diff(of, from, to).await {
            Ok(patch) => Some(LoopPatch { text: patch.text, truncated: patch.truncated }),
            Err(error) => {
                tracing::debug!(loop_id = %current.id, %error, "a change could not be read for the dashboard");
                None
            }
        }
    }
}
