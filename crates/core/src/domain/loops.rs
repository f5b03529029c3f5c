//! Data of a loop: its durable state, its iterations, and the inputs that change it.
//!
//! The values have queries but decide nothing. `lifecycle` decides the effect of an input.

mod agent_run;
mod aggregate;
mod branch_findings;
mod call_plan;
mod ci_progress;
pub mod command;
mod escalation;
mod estimate;
mod existing_pull;
mod failed_ci;
mod flaky_checks;
mod found_branch;
mod hook_question;
mod input;
mod iteration;
mod judgement;
mod limits;
mod merge_wish;
mod merging;
mod next_run;
mod open_findings;
mod parts;
mod past_loops;
mod plan_gate;
mod planning;
mod proposed_check;
mod push_refusal;
mod red_ci;
mod refused_change;
mod remarks;
mod run_options;
mod second_opinion;
mod state;
mod stop_reason;
mod stored;
mod suggestion;
mod task_statements;
mod task_text;

pub use agent_run::{AgentEnd, AgentRunFacts, AgentSession, ServedBy};
pub use aggregate::{Loop, LoopLimits, LoopTask, LoopUsage, MAX_AGENT_FAILURES};
pub use branch_findings::{
    AcceptedFindings, BaseCounts, BaseTestsRun, BranchFinding, ChangedTestFile, FailedVerification, RewrittenFile,
    TestEvidence, TestGuard, names_file,
};
pub use call_plan::{CallOutcome, CallPlan, CallPreparation, NextCall, RunCall};
pub use ci_progress::{CiProgress, SeenChecks};
pub use escalation::{EscalationCause, LoopLimit};
pub use estimate::Estimate;
pub use existing_pull::{ExistingPull, FoundBranch, PullProblems};
pub use failed_ci::{FailedCi, check_names};
pub use hook_question::HookQuestion;
pub use input::{
    CiInspection, CommandInput, CommentRef, ForgeInput, IterationChange, LoopInput, LoopStart, PreparedTree,
    TimerInput, TimerKind, WorkOutcome,
};
pub use iteration::{Guidance, GuidanceSource, Iteration, IterationKind};
pub use judgement::{ControlFigures, IterationJudgement, JudgedDetection, KeptAlarm, error_signature};
pub use limits::iterations_used;
pub use merge_wish::{MergeAnswer, MergeWish};
pub use merging::{ConflictingCommit, MergeInProgress, MergeWith};
pub use next_run::NextRunPlan;
pub use open_findings::named_paths;
pub use parts::{
    AgentState, BackendRequest, Baseline, BranchMerge, LoopBranch, LoopChecks, LoopKnowledge, LoopPeople, LoopPull,
    LoopRequests, LoopSettings, LoopStep, LoopWait, PullState, RunState, SupervisionState, WaitReason,
};
pub use past_loops::{EndedLoop, PastLoops, Quantiles};
pub use planning::{PlanApproval, PlanRun, Planning, ProposedPlan};
pub use proposed_check::{ProposedCheck, is_number};
pub use push_refusal::{PushRefusal, SecretLocation};
pub use refused_change::{ForgeChange, RefusedChange};
pub use remarks::{PublishedProposal, SEE_REMARKS, remark_key, remark_of};
pub use run_options::RunOptions;
pub use second_opinion::{OpinionCost, SecondOpinions, VerifiedState};
pub use state::LoopState;
pub use stop_reason::{LoopStopReason, StopAfterRestore, restored_words};
pub use suggestion::{AppliedSuggestion, CommentedLines, SuggestedChange, suggested_text, with_suggestion};
pub use task_statements::{FactSource, TaskStatements};
pub use task_text::TaskText;
