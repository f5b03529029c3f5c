//! Proposals of conventions: a review remark that recurs in several loops of a repository is proposed as a convention. It is in no
//! prompt until a maintainer accepts it.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::settings::MemorySettings;
use crate::domain::loops::SEE_REMARKS;
use crate::domain::model::ids::{LoopId, RepoRef, Timestamp};
use crate::domain::model::similarity::{similarity, words};

/// Maximum length of a remark that is kept, in characters.
const REMARK_CHARACTERS: usize = 600;
/// Minimum number of different words of a remark that can become a rule.
const WORDS_MIN: usize = 3;
/// Maximum number of remarks that are kept per repository; the oldest are dropped.
pub const MAX_REMARKS: usize = 300;
/// Maximum number of open proposals per repository; remarks that recur beyond it are only kept.
pub const MAX_OPEN_PROPOSALS: usize = 20;
/// Maximum number of proposals per repository that were answered; the oldest are dropped.
pub const MAX_ANSWERED_PROPOSALS: usize = 200;
/// Days after which remarks, and proposals that nobody answered, are dropped.
pub const PROPOSAL_DAYS: i64 = 365;

/// Review remark of a maintainer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remark {
    /// Loop whose pull request it is about.
    pub loop_id: LoopId,
    /// Text, on one line.
    pub text: String,
}

/// State of a proposal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProposalState {
    /// Nobody has answered.
    Open,
    /// It is a convention.
    Accepted,
    /// It is not proposed again.
    Rejected,
}

impl ProposalState {
    /// Name in the store.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Accepted => "accepted",
            Self::Rejected => "rejected",
        }
    }

    /// Returns the state with that name in the store.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Open, Self::Accepted, Self::Rejected].into_iter().find(|state| state.as_str() == name)
    }
}

/// Proposal of a convention.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Proposal {
    /// Number, which people write.
    pub number: u64,
    /// Repository.
    pub repository: RepoRef,
    /// Text of the newest remark at the time of the proposal.
    pub text: String,
    /// State.
    pub state: ProposalState,
    /// Number of loops in which the remark was made.
    pub loops: u32,
    /// Newest of these loops.
    pub loop_id: LoopId,
    /// Time at which it was published in a comment.
    pub told_at: Option<Timestamp>,
    /// Login of the person who answered, or `the command line`.
    pub decided_by: Option<String>,
    /// Time of the proposal.
    pub created_at: Timestamp,
}

/// Returns a review remark as it is kept; `None` if it says too little to become a rule.
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

/// Whether two texts ask for the same.
pub fn asks_for_the_same(one: &str, other: &str, settings: &MemorySettings) -> bool {
    similarity(one, other) >= settings.remark_similarity
}

/// Returns the positions of the known remarks that ask for the same as a new one, and the number of loops in which it was asked
/// for, including the new one's.
pub fn sightings(new: &Remark, known: &[Remark], settings: &MemorySettings) -> (Vec<usize>, u32) {
    let same = |remark: &Remark| asks_for_the_same(&remark.text, &new.text, settings);
    let found: Vec<usize> = known.iter().enumerate().filter(|(_, remark)| same(remark)).map(|(at, _)| at).collect();
    let loops: BTreeSet<&str> =
        found.iter().map(|at| known[*at].loop_id.as_str()).chain([new.loop_id.as_str()]).collect();
    (found, u32::try_from(loops.len()).unwrap_or(u32::MAX))
}

/// Whether a remark that was made in `loops` loops is proposed as a convention.
pub fn is_proposed(loops: u32, settings: &MemorySettings) -> bool {
    loops >= settings.propose_after
}
