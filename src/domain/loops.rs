//! The loop's data: the durable state of a loop, its iterations, and the inputs that change it.
//!
//! Values with queries only. `lifecycle` decides what an input changes.

mod agent_run;
mod aggregate;
mod branch_findings;
pub mod command;
mod estimate;
mod input;
mod iteration;
mod judgement;
mod limits;
mod next_run;
mod open_findings;
mod run_options;

pub use agent_run::{AgentEnd, AgentRunFacts, AgentSession, ServedBy};
pub use aggregate::{
    BackendRequest, HookQuestion, Loop, LoopLimits, LoopPull, LoopState, LoopStep, LoopStopReason, LoopTask, LoopUsage,
    LoopWait, MergeInProgress, MergeWith, StopAfterRestore, WaitReason,
};
pub use branch_findings::{AcceptedFindings, BaseTestsRun, BranchFinding, ChangedTestFile, TestEvidence, TestGuard};
pub use estimate::Estimate;
pub use input::{CommentRef, IterationChange, LoopInput, LoopStart, PreparedTree, TimerKind};
pub use iteration::{Guidance, GuidanceSource, Iteration};
pub use judgement::{IterationJudgement, JudgedDetection, error_signature};
pub use next_run::NextRunPlan;
pub use open_findings::named_paths;
pub use run_options::RunOptions;

/// Reason of a loop that is closed because its pull request was closed.
pub(crate) const PULL_CLOSED: &str = "the pull request was closed";
/// Message of an iteration that was a merge without conflicts and ran no agent.
pub(crate) const CLEAN_MERGE: &str = "Merged the other side; there was no conflict.";
/// Message of an iteration in which the service put the tests of the base back and ran no agent.
pub(crate) const TESTS_PUT_BACK: &str = "The service put the tests of the base back.";
/// Cause of the escalation that asks a maintainer about changes to tests.
pub(crate) const TEST_FINDINGS: &str = "test_findings";
