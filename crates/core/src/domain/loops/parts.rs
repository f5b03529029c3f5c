//! Parts of a loop's state, each with the queries that need no other part.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};

use super::agent_run::AgentSession;
use super::branch_findings::TestGuard;
use super::escalation::EscalationCause;
use super::estimate::Estimate;
use super::existing_pull::ExistingPull;
use super::failed_ci::FailedCi;
use super::hook_question::HookQuestion;
use super::iteration::Guidance;
use super::merge_wish::MergeWish;
use super::merging::{MergeInProgress, MergeWith};
use super::next_run::NextRunPlan;
use super::past_loops::PastLoops;
use super::planning::Planning;
use super::proposed_check::ProposedCheck;
use super::refused_change::RefusedChange;
use super::remarks::PublishedProposal;
use super::run_options::RunOptions;
use super::second_opinion::SecondOpinions;
use super::stop_reason::StopAfterRestore;
use super::suggestion::{AppliedSuggestion, SuggestedChange};
use super::task_statements::TaskStatements;
use crate::domain::model::ids::{Number, Ratio, Sha, Timestamp, User};
use crate::domain::model::image::TaskImages;
use crate::domain::model::task::{Check, CheckReport, CheckSource};
use crate::domain::providers::rules::ScheduleState;
use crate::domain::supervision::Supervision;
use crate::domain::supervision::experience::Experience;
use crate::domain::trust::policy::Policy;

/// Current step of a running loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoopStep {
    /// The loop has no step, because it is not running.
    #[default]
    Idle,
    /// The work tree is prepared.
    Prepare,
    /// The checks run before the first iteration.
    Baseline,
    /// The base branch, or commits that a person pushed, are merged.
    Merge,
    /// The agent makes a plan and changes nothing.
    Plan,
    /// The agent works on the task.
    Agent,
    /// The work tree is committed.
    Commit,
    /// The branch is pushed.
    Push,
    /// The checks run after an iteration.
    Check,
    /// The checks run in a fresh checkout.
    Verify,
    /// The files of the best iteration are restored.
    Restore,
    /// The hooks before an agent run are executed.
    HooksBeforeAgent,
    /// The hooks after an iteration are executed.
    HooksAfterIteration,
    /// The hooks before the review are executed.
    HooksBeforeReady,
    /// Another model gives a second opinion before the review.
    SecondOpinion,
}

/// Pull request of a loop.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoopPull {
    /// Number of the pull request.
    pub number: Number,
    /// URL of the pull request's page.
    pub url: String,
}

/// Backend and model that a schedule rule or a REDIRECT requested. A request stays in effect until the next one.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct BackendRequest {
    /// Backend to prefer if it is available.
    pub backend: Option<String>,
    /// Backend to avoid if another one is available.
    pub other_than: Option<String>,
    /// Requested model.
    pub model: Option<String>,
    /// Backend that `model` applies to; `None` for every backend.
    pub model_of: Option<String>,
}

impl BackendRequest {
    /// Returns the model to request from `backend`; `None` if no model was requested for it.
    pub fn model_for(&self, backend: &str) -> Option<&String> {
        self.model.as_ref().filter(|_| self.model_of.as_deref().is_none_or(|name| name == backend))
    }
}

/// Wait that ends without an action of a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoopWait {
    /// Reason of the wait.
    pub on: WaitReason,
    /// Start of the wait. Attempts that failed in between do not end the wait.
    pub since: Timestamp,
    /// Whether people were notified about the length of the wait.
    pub told: bool,
}

/// Reason of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitReason {
    /// No backend is available.
    Backend,
    /// The daily budget is spent. The wait ends with the day.
    Money,
    /// The repository accepts no changes. The loop is paused, so that it occupies no slot, and continues when the repository
    /// accepts changes again.
    Repository,
}

/// People whose requests and rights the loop acts on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoopPeople {
    /// Person on whose authority the loop runs, who started it or last resumed it. Their permission is checked again before each
    /// push.
    pub authority: User,
    /// Person who set the label or gave the command. Their review is requested.
    pub requested_by: User,
}

/// Settings of a loop, and the options that changed them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoopSettings {
    /// Options of `/ralph run`.
    pub options: RunOptions,
    /// Effective settings: the operator's, restricted by the repository's file.
    pub policy: Policy,
    /// Settings of the repository's file that the operator's settings override, one sentence each.
    #[serde(default)]
    pub overruled: Vec<String>,
}

/// Results of the checks before the first iteration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Baseline {
    /// Results of the checks.
    pub report: CheckReport,
    /// Base commit at which the checks ran; `None` if they ran at a commit that contains work of the loop.
    #[serde(default)]
    pub base: Option<Sha>,
}

/// Checks of a loop, and the reference for their results.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct LoopChecks {
    /// Checks that decide completion.
    pub list: Vec<Check>,
    /// Source of the checks.
    pub source: Option<CheckSource>,
    /// Commands that were last proposed as checks, in the order of the list that people see.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub proposed: Vec<ProposedCheck>,
    /// Results before the first iteration; `None` until the checks ran.
    pub baseline: Option<Baseline>,
    /// Last iteration that was measured by other checks than the current ones. Results up to it are not compared with later ones;
    /// 0 if the checks never changed.
    #[serde(default)]
    pub measured_after: u32,
    /// History of the findings about tests.
    #[serde(default)]
    pub guard: TestGuard,
}

impl LoopChecks {
    /// Returns the results of the baseline; `None` until the checks ran.
    pub fn baseline_report(&self) -> Option<&CheckReport> {
        self.baseline.as_ref().map(|baseline| &baseline.report)
    }

    /// Returns the base commit at which the baseline was measured; `None` if it is not the result of a base commit.
    pub fn baseline_commit(&self) -> Option<&Sha> {
        self.baseline.as_ref()?.base.as_ref()
    }

    /// Returns the completion of `report` relative to the baseline.
    pub fn completion_by(&self, report: &CheckReport) -> Ratio {
        report.completion(self.baseline_report(), None)
    }

    /// Returns the completion of the baseline; 0 without a baseline.
    pub fn completion_at_start(&self) -> Ratio {
        self.baseline_report().map(|report| self.completion_by(report)).unwrap_or_default()
    }
}

/// Merge that is required before the next iteration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BranchMerge {
    /// Commit to merge.
    pub with: MergeWith,
    /// Merge in the work tree; `None` until git started it.
    pub progress: Option<MergeInProgress>,
}

impl BranchMerge {
    /// Creates a required merge that git has not started.
    pub fn wanted(with: MergeWith) -> Self {
        Self { with, progress: None }
    }
}

/// Branch that the loop pushes to, and its newest commits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoopBranch {
    /// Branch that the loop pushes to.
    pub name: String,
    /// Branch from which the loop started.
    pub base_branch: String,
    /// Commit of the base branch that the branch contains: the loop's first base, or the last merged commit.
    pub base: Option<Sha>,
    /// Newest commit of the loop.
    pub head: Option<Sha>,
    /// Last commit that is known to be on the forge's branch.
    pub pushed: Option<Sha>,
    /// Commit that passed the checks in a fresh checkout.
    pub verified: Option<Sha>,
    /// Required merge; `None` if none is required.
    pub merge: Option<BranchMerge>,
}

impl LoopBranch {
    /// Returns the commit to merge before the next iteration; `None` if no merge is required.
    pub fn merge_wanted(&self) -> Option<&MergeWith> {
        self.merge.as_ref().map(|merge| &merge.with)
    }

    /// Returns the merge in the work tree; `None` if there is none.
    pub fn merging(&self) -> Option<&MergeInProgress> {
        self.merge.as_ref()?.progress.as_ref()
    }

    /// Forgets the merge in the work tree. A required merge starts again.
    pub fn restart_merge(&mut self) {
        if let Some(merge) = &mut self.merge {
            merge.progress = None;
        }
    }
}

/// Requests by people for the next iteration.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct LoopRequests {
    /// Guidance that the next prompt contains.
    pub guidance: Vec<Guidance>,
    /// Suggested changes that the next iteration applies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub suggestions: Vec<SuggestedChange>,
    /// Suggested changes that were applied and whose iterations were not undone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub applied: Vec<AppliedSuggestion>,
}

impl LoopRequests {
    /// Whether there are requests that no iteration has started to work on.
    pub fn has_open(&self) -> bool {
        !self.guidance.is_empty() || !self.suggestions.is_empty()
    }

    /// Schedules applied suggestions again whose iterations were undone, so that the next iteration applies them. Returns whether
    /// there are any.
    pub fn apply_again(&mut self, is_undone: impl Fn(u32) -> bool) -> bool {
        let undone: Vec<AppliedSuggestion> = self.applied.extract_if(.., |one| is_undone(one.iteration)).collect();
        let any = !undone.is_empty();
        self.suggestions.splice(0..0, undone.into_iter().map(|one| one.change));
        any
    }
}

/// Pull request of a loop on the forge.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct PullState {
    /// Pull request; `None` until it is opened.
    pub opened: Option<LoopPull>,
    /// Existing pull request that the loop works on; `None` if the loop works on an issue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub existing: Option<ExistingPull>,
    /// Failed CI of the pull request, as last read from the forge.
    #[serde(default, deserialize_with = "readable", skip_serializing_if = "Option::is_none")]
    pub failed_ci: Option<FailedCi>,
    /// Request of a maintainer that the forge merges the pull request.
    #[serde(default, deserialize_with = "readable", skip_serializing_if = "Option::is_none")]
    pub merge_wish: Option<MergeWish>,
    /// Commit that the forge may merge by itself, because it accepted a request that was not withdrawn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merge_ordered: Option<Sha>,
    /// Changes on the forge that the forge refused, newest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<RefusedChange>,
    /// Keys of the review comments that were processed.
    pub reviews_seen: Vec<String>,
    /// Proposals of conventions that the loop publishes when its work is ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub proposals: Vec<PublishedProposal>,
}

/// Work in progress, and the interruptions of it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RunState {
    /// Current step, while the loop is running.
    pub step: LoopStep,
    /// Ticket of the current work. Outcomes with another ticket are outdated and are ignored.
    pub ticket: u64,
    /// Whether the current work was deferred.
    #[serde(default)]
    pub deferred: bool,
    /// Reason of a pause that was requested while an iteration was running; the loop pauses after the iteration.
    pub pause_wanted: Option<String>,
    /// Stop in progress, which waits for the restoration of the best iteration.
    #[serde(default, deserialize_with = "readable")]
    pub halting: Option<StopAfterRestore>,
    /// Current wait. It is kept while an attempt tests whether the wait is over.
    #[serde(default, deserialize_with = "readable")]
    pub wait: Option<LoopWait>,
    /// Question of a hook because of which the loop is paused. Resuming the loop answers the question for this commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook_question: Option<HookQuestion>,
    /// Cause of the open escalation. A reminder is posted to the same escalation issue.
    #[serde(default)]
    pub escalated: Option<EscalationCause>,
    /// Time since which the loop has been waiting for a slot; `None` if it is not waiting.
    pub queued_at: Option<Timestamp>,
    /// Labels of hosts that the current work needs and that no host has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels_without_host: Vec<String>,
}

impl RunState {
    /// Starts a step with new work, and returns the work's ticket. Outcomes of earlier work are ignored from now on.
    pub fn begin(&mut self, step: LoopStep) -> u64 {
        self.ticket += 1;
        self.deferred = false;
        self.labels_without_host.clear();
        self.step = step;
        self.ticket
    }

    /// Ends the step, and a pause that waits for its end.
    pub fn idle(&mut self) {
        self.step = LoopStep::Idle;
        self.pause_wanted = None;
    }

    /// Ends the step and ignores the outcome of its work.
    pub fn cancel(&mut self) {
        self.begin(LoopStep::Idle);
        self.idle();
    }

    /// Notes that the current work was deferred. Returns whether it is the first time for this work.
    pub fn defer(&mut self) -> bool {
        !std::mem::replace(&mut self.deferred, true)
    }
}

/// Agent runs: the backend, the session and the environment.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct AgentState {
    /// Agent session that the next run can resume. The session contains all work up to the head, and no discarded work.
    #[serde(default, deserialize_with = "readable")]
    pub session: Option<AgentSession>,
    /// Backend and model that were requested for the next runs.
    #[serde(default)]
    pub wanted: BackendRequest,
    /// State of the schedule at its last evaluation.
    #[serde(default, deserialize_with = "readable")]
    pub schedule: Option<ScheduleState>,
    /// Number of consecutive agent runs that failed.
    pub failures: u32,
    /// Number of consecutive attempts that were rate limited; determines the back-off.
    pub limited_tries: u32,
    /// State of the sandbox, in words for people.
    pub sandbox: String,
    /// Content that the work tree lacks, one sentence each without a full stop.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lacks: Vec<String>,
    /// First failure of an assistant, one sentence without a full stop; `None` if none failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assistant_failure: Option<String>,
}

/// Supervision of the iterations.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SupervisionState {
    /// State of control, oversight and strategy. `None` before the first iteration, and if the stored state cannot be read; it is
    /// then rebuilt from the records.
    #[serde(default, deserialize_with = "readable")]
    pub state: Option<Supervision>,
    /// Plan of supervision for the next agent run.
    #[serde(default, deserialize_with = "readable")]
    pub course: Option<NextRunPlan>,
    /// Second opinions about the loop's work.
    #[serde(default, skip_serializing_if = "SecondOpinions::is_empty")]
    pub opinions: SecondOpinions,
}

/// Facts that the loop knows about its task, besides the text.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct LoopKnowledge {
    /// Facts about the task that people stated.
    #[serde(default, skip_serializing_if = "TaskStatements::is_empty")]
    pub stated: TaskStatements,
    /// Planning before the first iteration; `None` if no plan is required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub planning: Option<Planning>,
    /// Usual iterations, time and cost of such tasks in this repository; `None` if unknown.
    #[serde(default)]
    pub estimate: Option<Estimate>,
    /// Resources that earlier loops of the repository used, as known before the first iteration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub past: Option<PastLoops>,
    /// Statistics of progress in earlier loops of the repository.
    #[serde(default, skip_serializing_if = "Experience::is_empty")]
    pub experience: Experience,
    /// Approaches that failed in earlier loops, as mentioned in prompts. The strategy never proposes them, even if the warning is
    /// later withdrawn.
    #[serde(default)]
    pub failed_elsewhere: Vec<String>,
    /// Images of the task. Their files are stored beside the loop's sessions.
    #[serde(default, skip_serializing_if = "TaskImages::is_empty")]
    pub images: TaskImages,
    /// Number of hidden parts that were removed from the task's text.
    pub hidden_removed: u32,
}

/// Deserializes an optional part that can be rebuilt. An unreadable value becomes `None`, so that the rest of the loop can still
/// be read.
fn readable<'de, D: Deserializer<'de>, T: DeserializeOwned>(deserializer: D) -> Result<Option<T>, D::Error> {
    let value = serde_json::Value::deserialize(deserializer)?;
    Ok(serde_json::from_value(value).ok())
}
