//! Merge of the pull request by the forge, as a maintainer asked for it.

use serde::{Deserialize, Serialize};

use crate::domain::model::ids::{Number, Timestamp, User};

/// Wish of a maintainer that the forge merges the pull request once it is ready.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MergeWish {
    /// Maintainer, whose permission is checked again before the forge is asked.
    pub by: User,
    /// Issue or pull request where it was asked for; answers go there.
    pub on: Number,
    /// Start of the wait for CI of the pull request: the time of the wish or of the review, whichever is later.
    pub since: Timestamp,
    /// Whether the forge accepted it for the current commit.
    pub accepted: bool,
    /// Time from which the forge is asked again, because it may have forgotten what it accepted; `None` if it does not forget.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ask_again: Option<Timestamp>,
}

/// Answer of the forge to the request for a merge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum MergeAnswer {
    /// It merges once its rules are satisfied, or has merged.
    Accepted,
    /// It accepted to merge once its rules are satisfied, but its version may forget that: it is asked again after some minutes in
    /// which CI has passed.
    MayForget,
    /// Not accepted yet; the forge is asked again after the next look at the pull request.
    NotYet {
        /// Reason, one sentence without a full stop.
        why: String,
    },
    /// It does not merge.
    Refused {
        /// Reason, one sentence without a full stop.
        why: String,
        /// Remedy for people, one sentence without a full stop.
        advice: String,
    },
}

impl MergeAnswer {
    /// Answer that it is too early.
    pub fn not_yet(why: impl Into<String>) -> Self {
        Self::NotYet { why: why.into() }
    }

    /// Answer that it is refused.
    pub fn refused(why: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::Refused { why: why.into(), advice: advice.into() }
    }
}
