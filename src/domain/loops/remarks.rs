//! Keys of remarks among the requests of reviews that a loop has seen.

use crate::domain::model::ids::CommentId;

/// Prefix of the keys.
const PREFIX: &str = "remark/";

/// Returns the key of a comment on a line.
pub fn remark_key(id: CommentId) -> String {
    format!("{PREFIX}{id}")
}

/// Returns the comment of a key; `None` for the key of a review's own text.
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
