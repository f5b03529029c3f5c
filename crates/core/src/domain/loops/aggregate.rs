//! Loop: the complete durable state of the work on one task.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};

use super::agent_run::AgentSession;
use super::branch_findings::TestGuard;
use super::escalation::EscalationCause;
use super::estimate::Estimate;
use super::existing_pull::ExistingPull;
use super::failed_ci::FailedCi;
use super::hook_question::HookQuestion;
use super::iteration::{Guidance, Iteration};
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
use super::state::LoopState;
use super::stop_reason::StopAfterRestore;
use super::suggestion::{AppliedSuggestion, SuggestedChange};
use super::task_statements::TaskStatements;
use crate::domain::model::document::Unseen;
use crate::domain::model::ids::IssueRef;
use crate::domain::model::ids::{LoopId, Money, Number, Ratio, Sha, Timestamp, User};
use crate::domain::model::image::TaskImages;
use crate::domain::model::task::{Check, CheckReport, CheckSource, DiffStat};
use crate::domain::providers::rules::ScheduleState;
use crate::domain::supervision::Supervision;
use crate::domain::supervision::experience::Experience;
use crate::domain::trust::policy::Policy;

/// Number of consecutive failed agent runs after which the loop fails.
pub const MAX_AGENT_FAILURES: u32 = 3;

/// Task as it was approved.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoopTask {
    /// Title of the issue.
    pub title: String,
    /// Body of the issue, not sanitized, exactly as it was approved.
    pub body: String,
    /// HTML that the forge rendered from the body when it was approved. `None` if the body has no markup, or if the loop was
    /// stored before this field existed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub html: Option<String>,
    /// Address of the issue's page.
    pub url: String,
    /// SHA-256 of title and body, in hexadecimal.
    pub hash: String,
    /// Author of the issue; `None` if the account was deleted.
    pub author: Option<User>,
    /// Whether the author had write access when the task was approved. If not, checks in the text are ignored.
    pub author_trusted: bool,
    /// Login of the person without write access who edited the text, which a maintainer has to confirm before anything runs.
    /// `None` if nobody did.
    pub unconfirmed_editor: Option<String>,
    /// Whether the text was edited after it was approved. A maintainer then has to confirm it before anything runs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub edited_after: bool,
    /// Labels of the issue.
    pub labels: Vec<String>,
    /// Parts of title and body that the forge does not display as text. If the author has no write access, a maintainer has to
    /// confirm them. Empty in loops that were stored before this field existed.
    #[serde(default, skip_serializing_if = "Unseen::is_empty")]
    pub unseen: Unseen,
}

/// Limits of a loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoopLimits {
    /// Maximum number of iterations.
    pub iterations: u32,
    /// Maximum running time, in milliseconds.
    pub time_ms: i64,
    /// Maximum cost.
    pub cost: Money,
}

/// Resources that a loop has used. Values never decrease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LoopUsage {
    /// Number of iterations that were started.
    pub iterations: u32,
    /// Running time before `since`, in milliseconds. Waiting for the forge is not counted.
    pub time_ms: i64,
    /// Start of the current running period; in the future if work was deferred. `None` while the loop is not running.
    pub since: Option<Timestamp>,
    /// Total cost.
    pub cost: Money,
    /// Input tokens of all model calls.
    pub tokens_in: u64,
    /// Output tokens of all model calls.
    pub tokens_out: u64,
}

impl LoopUsage {
    /// Returns the running time up to `now`, in milliseconds.
    pub fn time_at(&self, now: Timestamp) -> i64 {
        self.time_ms + self.since.map_or(0, |since| now.since(since))
    }
}

/// Current step of a running loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoopStep {
    /// The loop has no step, because it is not running.
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
    /// Number.
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

/// Whether a number is zero, and therefore not stored.
fn is_zero(number: &u8) -> bool {
    *number == 0
}

/// Loop: the work on one task, from the issue to a verified pull request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Loop {
    /// Identifier.
    pub id: LoopId,
    /// Issue that the loop works on.
    pub place: IssueRef,
    /// State of the loop.
    pub state: LoopState,
    /// Current step, while the loop is running.
    pub step: LoopStep,
    /// Ticket of the current work. Outcomes with another ticket are outdated and are ignored.
    pub ticket: u64,
    /// Task.
    pub task: LoopTask,
    /// Person on whose authority the loop runs, who started it or last resumed it. Their permission is checked again before each
    /// push.
    pub authority: User,
    /// Person who set the label or gave the command. Their review is requested.
    pub requested_by: User,
    /// Options of `/ralph run`.
    pub options: RunOptions,
    /// Effective settings: the operator's, restricted by the repository's file.
    pub policy: Policy,
    /// Limits.
    pub limits: LoopLimits,
    /// Resources used.
    pub spent: LoopUsage,
    /// Checks that decide completion.
    pub checks: Vec<Check>,
    /// Source of the checks.
    pub checks_from: Option<CheckSource>,
    /// Commands that were last proposed as checks, in the order of the list that people see.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub proposed: Vec<ProposedCheck>,
    /// Branch that the loop pushes to.
    pub branch: String,
    /// Branch that it started from.
    pub base_branch: String,
    /// Commit of the base branch that the branch contains: the one that it started from, or the one that was merged last.
    pub base: Option<Sha>,
    /// Newest commit of the loop.
    pub head: Option<Sha>,
    /// Last commit that is known to be on the forge's branch.
    pub pushed: Option<Sha>,
    /// Results of the checks before the first iteration.
    pub baseline: Option<CheckReport>,
    /// Base commit at which the baseline was measured.
    #[serde(default)]
    pub baseline_base: Option<Sha>,
    /// Last iteration that was measured by other checks than the current ones. Results up to it are not compared with later ones;
    /// 0 if the checks never changed.
    #[serde(default)]
    pub measured_after: u32,
    /// Iterations, oldest first, including discarded ones.
    pub iterations: Vec<Iteration>,
    /// Guidance that the next prompt contains.
    pub guidance: Vec<Guidance>,
    /// Suggested changes that the next iteration applies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub suggestions: Vec<SuggestedChange>,
    /// Suggested changes that were applied and whose iterations were not undone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub applied: Vec<AppliedSuggestion>,
    /// Pull request; `None` until it is opened.
    pub pull: Option<LoopPull>,
    /// Existing pull request that the loop works on; `None` if the loop works on an issue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub existing: Option<ExistingPull>,
    /// Merge that is required before the next iteration.
    pub merge_wanted: Option<MergeWith>,
    /// Merge in progress in the work tree.
    pub merging: Option<MergeInProgress>,
    /// Reason of a pause that was requested while an iteration was running; the loop pauses after the iteration.
    pub pause_wanted: Option<String>,
    /// Commit that passed the checks in a fresh checkout.
    pub verified: Option<Sha>,
    /// Failed CI of the pull request, as last read from the forge.
    #[serde(default, deserialize_with = "readable", skip_serializing_if = "Option::is_none")]
    pub failed_ci: Option<FailedCi>,
    /// Request of a maintainer that the forge merges the pull request.
    #[serde(default, deserialize_with = "readable", skip_serializing_if = "Option::is_none")]
    pub merge_wish: Option<MergeWish>,
    /// Commit that the forge may merge by itself, because it was asked to and the request was not withdrawn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merge_ordered: Option<Sha>,
    /// Changes on the forge that the forge refused, newest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<RefusedChange>,
    /// Keys of the review comments that were processed.
    pub reviews_seen: Vec<String>,
    /// Reason of the state, in one sentence for people.
    pub why: String,
    /// Cause of the open escalation. A reminder is posted to the same escalation issue.
    #[serde(default)]
    pub escalated: Option<EscalationCause>,
    /// State of the sandbox, in words for people.
    pub sandbox: String,
    /// Content that the work tree lacks, one sentence each without a full stop.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lacks: Vec<String>,
    /// Largest part of the budget about which people were notified, in percent; 0 if they were not.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub budget_notice: u8,
    /// First failure of an assistant, one sentence without a full stop; `None` if none failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assistant_failure: Option<String>,
    /// Settings of the repository's file that the operator's settings override, one sentence each.
    #[serde(default)]
    pub overruled: Vec<String>,
    /// Number of consecutive attempts that were rate limited; determines the back-off.
    pub limited_tries: u32,
    /// Current wait. It is kept while an attempt tests whether the wait is over.
    #[serde(default, deserialize_with = "readable")]
    pub wait: Option<LoopWait>,
    /// Number of hidden parts that were removed from the task's text.
    pub hidden_removed: u32,
    /// Number of consecutive agent runs that failed.
    pub agent_failures: u32,
    /// Ticket of the last work that was deferred.
    #[serde(default)]
    pub put_off: Option<u64>,
    /// Question of a hook because of which the loop is paused. Resuming the loop answers the question for this commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook_question: Option<HookQuestion>,
    /// Proposals of conventions that the loop publishes when its work is ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub proposals: Vec<PublishedProposal>,
    /// Second opinions about the loop's work.
    #[serde(default, skip_serializing_if = "SecondOpinions::is_empty")]
    pub opinions: SecondOpinions,
    /// State of control, oversight and strategy. `None` before the first iteration, and if the stored state cannot be read; it is
    /// then rebuilt from the records.
    #[serde(default, deserialize_with = "readable")]
    pub supervision: Option<Supervision>,
    /// Plan of supervision for the next agent run.
    #[serde(default, deserialize_with = "readable")]
    pub course: Option<NextRunPlan>,
    /// Agent session that the next run can resume. It knows all work up to the head, and no work that was discarded.
    #[serde(default, deserialize_with = "readable")]
    pub session: Option<AgentSession>,
    /// Stop in progress, which waits for the restoration of the best iteration.
    #[serde(default, deserialize_with = "readable")]
    pub halting: Option<StopAfterRestore>,
    /// Approaches that failed in earlier loops, as mentioned in prompts. The strategy never proposes them, even if the warning is
    /// later withdrawn.
    #[serde(default)]
    pub failed_elsewhere: Vec<String>,
    /// State of the schedule at its last evaluation.
    #[serde(default, deserialize_with = "readable")]
    pub schedule: Option<ScheduleState>,
    /// Backend and model that were requested for the next runs.
    #[serde(default)]
    pub wanted: BackendRequest,
    /// Planning before the first iteration; `None` if no plan is required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub planning: Option<Planning>,
    /// Facts about the task that people stated.
    #[serde(default, skip_serializing_if = "TaskStatements::is_empty")]
    pub stated: TaskStatements,
    /// Usual iterations, time and cost of such tasks in this repository; `None` if unknown.
    #[serde(default)]
    pub estimate: Option<Estimate>,
    /// Resources that earlier loops of the repository used, as known before the first iteration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub past: Option<PastLoops>,
    /// Statistics of progress in earlier loops of the repository.
    #[serde(default, skip_serializing_if = "Experience::is_empty")]
    pub experience: Experience,
    /// Images of the task. Their files are stored beside the loop's sessions.
    #[serde(default, skip_serializing_if = "TaskImages::is_empty")]
    pub images: TaskImages,
    /// Time of creation.
    pub created_at: Timestamp,
    /// Time of the last step.
    pub updated_at: Timestamp,
    /// Time since which the loop has been waiting for a slot; `None` if it is not waiting.
    pub queued_at: Option<Timestamp>,
    /// History of the findings about tests.
    #[serde(default)]
    pub guard: TestGuard,
    /// Number of steps so far; increases with each stored change.
    pub version: u64,
}

impl Loop {
    /// Returns the current iteration, or the last one if none is running.
    pub fn current(&self) -> Option<&Iteration> {
        self.iterations.last()
    }

    /// Like `Self::current`, but returns a mutable reference.
    pub fn current_mut(&mut self) -> Option<&mut Iteration> {
        self.iterations.last_mut()
    }

    /// Whether the loop cannot continue without a person: it needs a decision, an answer, a higher limit or a repair. False for a
    /// pull request in review, because its work is ready, and for a pause that ends when the repository accepts changes again.
    pub fn waits_for_person(&self) -> bool {
        match self.state {
            LoopState::NeedsCriteria
            | LoopState::NeedsConfirm
            | LoopState::NeedsApproval
            | LoopState::NeedsAnswer
            | LoopState::LimitReached
            | LoopState::Failed => true,
            LoopState::Paused => self.wait.is_none(),
            LoopState::Queued
            | LoopState::Running
            | LoopState::Waiting
            | LoopState::Review
            | LoopState::Merged
            | LoopState::Closed
            | LoopState::Aborted => false,
        }
    }

    /// Returns the logins of the requested reviewers: the person who requested the loop, and those of the policy.
    pub fn reviewers(&self) -> Vec<String> {
        let mut all = vec![self.requested_by.login.clone()];
        for reviewer in &self.policy.reviewers {
            if !all.contains(reviewer) {
                all.push(reviewer.clone());
            }
        }
        all
    }

    /// Whether there are requests by people that no iteration has started to work on.
    pub fn has_requests(&self) -> bool {
        !self.guidance.is_empty() || !self.suggestions.is_empty()
    }

    /// Schedules applied suggestions again whose iterations were undone, so that the next iteration applies them. Returns whether
    /// there are any.
    pub fn apply_again(&mut self, is_undone: impl Fn(u32) -> bool) -> bool {
        let (undone, standing) =
            std::mem::take(&mut self.applied).into_iter().partition(|one| is_undone(one.iteration));
        self.applied = standing;
        let undone: Vec<AppliedSuggestion> = undone;
        let any = !undone.is_empty();
        self.suggestions.splice(0..0, undone.into_iter().map(|one| one.change));
        any
    }

    /// Returns the iterations that were not discarded, oldest first.
    pub fn retained_iterations(&self) -> impl DoubleEndedIterator<Item = &Iteration> {
        self.iterations.iter().filter(|i| !i.discarded)
    }

    /// Whether the next run should prefer a backend other than `backend`, because the last run failed there or another one was
    /// requested.
    pub fn avoids(&self, backend: &str) -> bool {
        let ran =
            self.retained_iterations().rev().map(|iteration| &iteration.served.backend).find(|name| !name.is_empty());
        let unwanted = match ran.filter(|_| self.agent_failures > 0) {
            Some(failed) => failed == backend,
            None => self.wanted.backend.as_ref().is_some_and(|wanted| wanted != backend),
        };
        unwanted || self.wanted.other_than.as_deref() == Some(backend)
    }

    /// Returns the iterations that were measured by the current checks and were not discarded, oldest first.
    pub fn measured(&self) -> impl DoubleEndedIterator<Item = &Iteration> {
        self.retained_iterations().filter(|i| i.number > self.measured_after)
    }

    /// Returns the newest check results in effect: those of the newest iteration with results, else the baseline.
    pub fn latest_checks(&self) -> Option<&CheckReport> {
        let of_iterations = self.standing().map(|i| &i.checks).find(|report| !report.outcomes.is_empty());
        of_iterations.or(self.baseline.as_ref())
    }

    /// Returns the iterations whose changes are still in the tree, newest first. Iterations that a restoration undid are omitted.
    pub fn standing(&self) -> impl Iterator<Item = &Iteration> {
        let mut newest = u32::MAX;
        self.retained_iterations().rev().filter(move |i| {
            if let Some(best) = i.restored_to.filter(|_| i.number <= newest) {
                newest = best;
            }
            i.number <= newest
        })
    }

    /// Returns the size of the branch's complete change; `None` if it was not measured. Reverted changes are not included.
    pub fn branch_stat(&self) -> Option<&DiffStat> {
        self.standing().find_map(|i| i.branch_stat.as_ref())
    }

    /// Returns the completion that was last measured by the current checks.
    pub fn completion(&self) -> Ratio {
        let of_now = |i: &&Iteration| i.ended_at.is_some() && i.number > self.measured_after;
        let last = self.standing().find(of_now).map(|i| i.completion);
        last.unwrap_or_else(|| self.completion_at_start())
    }

    /// Returns the completion of `report` relative to the baseline.
    pub fn completion_by(&self, report: &CheckReport) -> Ratio {
        report.completion(self.baseline.as_ref(), None)
    }

    /// Returns the completion of the baseline; 0 without a baseline.
    pub fn completion_at_start(&self) -> Ratio {
        self.baseline.as_ref().map(|baseline| self.completion_by(baseline)).unwrap_or_default()
    }
}

/// Deserializes an optional part that can be rebuilt. An unreadable value becomes `None`, so that the rest of the loop can still
/// be read.
fn readable<'de, D: Deserializer<'de>, T: DeserializeOwned>(deserializer: D) -> Result<Option<T>, D::Error> {
    let value = serde_json::Value::deserialize(deserializer)?;
    Ok(serde_json::from_value(value).ok())
}
