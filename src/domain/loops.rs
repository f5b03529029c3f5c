//! The loop's data: the durable state of a loop, its iterations, and the inputs that change it.
//!
//! Values with queries only. `lifecycle` decides what an input changes.

mod aggregate;
mod course;
mod estimate;
mod input;
mod judged;

pub use aggregate::{
    Guidance, GuidanceSource, Halt, Halting, Iteration, Loop, LoopLimits, LoopPull, MergeWith, Merging, Spent, State,
    Step, Task, Wait, WaitsFor, Wanted,
};
pub use course::Course;
pub use estimate::Estimate;
pub use input::{AgentEnd, AgentRunFacts, AgentSession, Change, CommentRef, Input, Prepared, Served, Start, TimerKind};
pub use judged::{Found, Judged, error_signature};

/// Why a loop is closed whose pull request was.
pub(crate) const PULL_CLOSED: &str = "the pull request was closed";
/// What is told of an iteration that was a merge without conflicts, in which no agent ran.
pub(crate) const CLEAN_MERGE: &str = "Merged the other side; there was no conflict.";
