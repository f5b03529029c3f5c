//! Memory across loops: learnings, their extraction, confidence, and selection for prompts.
//!
//! The store keeps learnings and finds candidates; this module contains the decisions about them as values. A learning
//! starts as a candidate. It becomes active after two sightings, or after the merge of a pull request that used it. Its
//! confidence changes with the outcomes of the loops whose prompts contained it. A learning with too little confidence is
//! archived. This limits the harm of a wrong learning.

mod extract;
mod filter;
mod learning;
mod learning_confidence;
mod learning_evidence;
mod merge;
mod observe;
mod paths;
mod proposal;
mod query;
mod reflection;
mod retrieve;
mod settings;
mod terms;
mod uplift;

#[cfg(test)]
mod tests;

pub use extract::{
    FollowedRedirect, IterationFacts, LoopEnding, LoopFacts, RedirectedApproach, from_iteration, from_loop, remembered,
};
pub use filter::LearningFilter;
pub use learning::{Content, Learning, LearningKind, LearningState, Source};
pub use learning_confidence::{Credit, credit, credit_of_iteration};
pub use learning_evidence::LearningEvidence;
pub use merge::{AddedLearning, absorb, are_same, contradict, contradicts, promote, take_in};
pub(in crate::domain) use observe::judged_anew;
pub use observe::{MemoryObservation, observed, reflection};
pub use paths::paths_in;
pub use proposal::{
    MAX_ANSWERED_PROPOSALS, MAX_OPEN_PROPOSALS, MAX_REMARKS, PROPOSAL_DAYS, Proposal, ProposalState, Remark,
    asks_for_the_same, is_proposed, remark_text, sightings,
};
pub use query::{ParsedQuery, correct};
pub use reflection::{Reflection, ReflectionChange, ReflectionFacts, ReflectionOutcome, relevant, window};
pub use retrieve::{
    EMBEDDING_FILES, Embedding, LearningCandidate, LearningQuery, NO_EMBEDDINGS, RankedLearning, Weights, rank, rank_by,
};
pub use settings::MemorySettings;
pub use terms::{Term, TermMatch, best_first, rare_terms};
pub use uplift::{Tally, Uplift};
