//! Remarks in reviews: the keys by which processed remarks are remembered, and proposals of conventions from recurring remarks.

use serde::{Deserialize, Serialize};

use crate::domain::model::ids::CommentId;

/// Prefix of the keys of remarks.
const PREFIX: &str = "remark/";

/// Text for a review that requests changes without a text.
pub const SEE_REMARKS: &str = "Changes are requested; see the remarks.";

/// Proposal of a convention that a loop publishes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishedProposal {
    /// Number of the proposal.
    pub number: u64,
    /// Text of the recurring remark.
    pub text: String,
    /// Number of loops in which the remark was made.
    pub loops: u32,
}

/// Returns the key of a review comment on a line.
pub fn remark_key(id: CommentId) -> String {
    format!("{PREFIX}{id}")
}

/// Returns the comment that a key belongs to; `None` for the key of a review's own text.
pub fn remark_of(key: &str) -> Option<CommentId> {
    key.strip_prefix(PREFIX)?.parse().ok().map(CommentId)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_remarks_are_read_back() {
        assert_eq!(remark_of(&remark_key(CommentId(42))), Some(CommentId(42)));
        assert_eq!(remark_of("review/42"), None);
    }
}
