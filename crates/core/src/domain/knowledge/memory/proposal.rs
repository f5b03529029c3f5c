//! Proposals of conventions. If a review comment recurs in several loops of a repository, it is proposed as a convention. No
//! prompt contains a proposal before a maintainer accepts it.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::settings::MemorySettings;
use crate::domain::loops::SEE_REMARKS;
use crate::domain::model::ids::{LoopId, RepoRef, Timestamp};
use crate::domain::model::similarity::{similarity, words};

/// Maximum length of a stored review comment, in characters.
const REMARK_CHARACTERS: usize = 600;
/// Minimum number of distinct words in a review comment that can become a rule.
const WORDS_MIN: usize = 3;
/// Maximum number of stored review comments per repository. The oldest are dropped.
pub const MAX_REMARKS: usize = 300;
/// Maximum number of open proposals per repository. Beyond it, recurring review comments are only stored.
pub const MAX_OPEN_PROPOSALS: usize = 20;
/// Maximum number of stored answered proposals per repository. The oldest are dropped.
pub const MAX_ANSWERED_PROPOSALS: usize = 200;
/// Number of days after which review comments and unanswered proposals are dropped.
pub const PROPOSAL_DAYS: i64 = 365;

/// Review comment of a maintainer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remark {
    /// Loop whose pull request was reviewed.
    pub loop_id: LoopId,
    /// Text, on one line.
    pub text: String,
}

/// State of a proposal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProposalState {
    /// The proposal is not answered yet.
    Open,
    /// The proposal was accepted and is a convention.
    Accepted,
    /// The proposal was rejected and is not repeated.
    Rejected,
}

impl ProposalState {
    /// Returns the name in the store.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Accepted => "accepted",
            Self::Rejected => "rejected",
        }
    }

    /// Returns the state with this name in the store; `None` if unknown.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Open, Self::Accepted, Self::Rejected].into_iter().find(|state| state.as_str() == name)
    }
}

/// Proposal of a convention.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Proposal {
    /// Number that people use for the proposal.
    pub number: u64,
    /// Owner and name of the repository.
    pub repository: RepoRef,
    /// Text of the newest review comment at the time of the proposal.
    pub text: String,
    /// State of the proposal.
    pub state: ProposalState,
    /// Number of loops with this review comment.
    pub loops: u32,
    /// Newest loop with this review comment.
    pub loop_id: LoopId,
    /// Time when a comment published the proposal; `None` if it is unpublished.
    pub told_at: Option<Timestamp>,
    /// Login of the person who answered, or `the command line`; `None` if it is unanswered.
    pub decided_by: Option<String>,
    /// Time of the proposal.
    pub created_at: Timestamp,
}

/// Returns a review comment in its stored form; `None` if it is too short to become a rule.
pub fn remark_text(text: &str) -> Option<String> {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line == SEE_REMARKS || words(&line).into_iter().collect::<BTreeSet<_>>().len() < WORDS_MIN {
        return None;
    }
    Some(match line.char_indices().nth(REMARK_CHARACTERS) {
        Some((at, _)) => format!("{}…", line[..at].trim_end()),
        None => line,
    })
}

/// Whether two review comments request the same change.
pub fn asks_for_the_same(one: &str, other: &str, settings: &MemorySettings) -> bool {
    similarity(one, other) >= settings.remark_similarity
}

/// Returns the indices of known review comments that request the same change as a new one. Also returns the number of loops
/// with this request, including the new comment's loop.
pub fn sightings(new: &Remark, known: &[Remark], settings: &MemorySettings) -> (Vec<usize>, u32) {
    let same = |remark: &Remark| asks_for_the_same(&remark.text, &new.text, settings);
    let found: Vec<usize> = known.iter().enumerate().filter(|(_, remark)| same(remark)).map(|(at, _)| at).collect();
    let loops: BTreeSet<&str> =
        found.iter().map(|at| known[*at].loop_id.as_str()).chain([new.loop_id.as_str()]).collect();
    (found, u32::try_from(loops.len()).unwrap_or(u32::MAX))
}

/// Whether a review comment from `loops` loops should be proposed as a convention.
pub fn is_proposed(loops: u32, settings: &MemorySettings) -> bool {
    loops >= settings.propose_after
}
