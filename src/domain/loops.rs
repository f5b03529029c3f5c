//! The loop's data: the durable state of a loop, its iterations, and the inputs that change it.
//!
//! Values with queries only. `lifecycle` decides what an input changes.

mod agent_run;
mod aggregate;
pub mod command;
mod estimate;
mod input;
mod iteration;
mod judgement;
mod limits;
mod next_run;
mod run_options;

pub use agent_run::{AgentEnd, AgentRunFacts, AgentSession, ServedBy};
pub use aggregate::{
    BackendRequest, Loop, LoopLimits, LoopPull, LoopState, LoopStep, LoopStopReason, LoopTask, LoopUsage, LoopWait,
    MergeInProgress, MergeWith, StopAfterRestore, WaitReason,
};
pub use estimate::Estimate;
pub use input::{CommentRef, IterationChange, LoopInput, LoopStart, PreparedTree, TimerKind};
pub use iteration::{Guidance, GuidanceSource, Iteration};
pub use judgement::{IterationJudgement, JudgedDetection, error_signature};
pub use next_run::NextRunPlan;
pub use run_options::RunOptions;

/// Reason of a loop that is closed because its pull request was closed.
pub(crate) const PULL_CLOSED: &str = "the pull request was closed";
/// Message of an iteration that was a merge without conflicts and ran no agent.
pub(crate) const CLEAN_MERGE: &str = "Merged the other side; there was no conflict.";
