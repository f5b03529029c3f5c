//! Merging of the pull request by the forge, at the request of a maintainer.

use serde::{Deserialize, Serialize};

use crate::domain::model::ids::{Number, Timestamp, User};

/// Request of a maintainer that the forge merges the pull request once it is ready.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MergeWish {
    /// Maintainer. The service checks their permission again before the request to the forge.
    pub by: User,
    /// Issue or pull request of the request. Answers are posted there.
    pub on: Number,
    /// Time at which the loop started to wait for CI: the later time of the merge request and the review.
    pub since: Timestamp,
    /// Whether the forge accepted the request for the current commit.
    pub accepted: bool,
    /// Time at which to ask the forge again, because it may have forgotten its acceptance; `None` if it does not forget.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ask_again: Option<Timestamp>,
}

/// Answer of the forge to the request to merge a pull request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum MergeAnswer {
    /// The forge merges the pull request once its rules are satisfied, or has merged it.
    Accepted,
    /// The forge accepted to merge the pull request once its rules are satisfied, but its version may lose the request. The
    /// service repeats the request some minutes after CI passed.
    MayForget,
    /// The forge cannot accept the request yet. The service repeats the request after it next reads the pull request.
    NotYet {
        /// Reason, one sentence without a full stop.
        why: String,
    },
    /// The forge refuses to merge the pull request.
    Refused {
        /// Reason, one sentence without a full stop.
        why: String,
        /// Advice for people, one sentence without a full stop.
        advice: String,
    },
}

impl MergeAnswer {
    /// Creates the answer `NotYet`.
    pub fn not_yet(why: impl Into<String>) -> Self {
        Self::NotYet { why: why.into() }
    }

    /// Creates the answer `Refused`.
    pub fn refused(why: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::Refused { why: why.into(), advice: advice.into() }
    }
}
