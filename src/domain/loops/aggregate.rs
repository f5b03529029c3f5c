//! The loop: the complete durable state of one task.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};

use super::agent_run::AgentSession;
use super::branch_findings::TestGuard;
use super::escalation::EscalationCause;
use super::estimate::Estimate;
use super::failed_ci::FailedCi;
use super::hook_question::HookQuestion;
use super::iteration::{Guidance, Iteration};
use super::merge_wish::MergeWish;
use super::merging::{MergeInProgress, MergeWith};
use super::next_run::NextRunPlan;
use super::past_loops::PastLoops;
use super::planning::Planning;
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

/// Number of consecutive failed runs of the agent after which the loop fails.
pub const MAX_AGENT_FAILURES: u32 = 3;

/// Task as it was approved.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoopTask {
    /// Title of the issue.
    pub title: String,
    /// Body of the issue, raw, exactly as it was approved.
    pub body: String,
    /// Address of the issue's page.
    pub url: String,
    /// SHA-256 over title and body, hexadecimal.
    pub hash: String,
    /// Author of the issue.
    pub author: Option<User>,
    /// Whether the author had write access at that time. Checks in the text count only then.
    pub author_trusted: bool,
    /// Login of the editor whose change has to be confirmed before anything runs, if any.
    pub unconfirmed_editor: Option<String>,
    /// Whether the text was edited after it was approved, so that it has to be confirmed before anything runs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub edited_after: bool,
    /// Labels of the issue.
    pub labels: Vec<String>,
    /// Parts of title and body that people do not see as text. Those of an author without write access have to be
    /// confirmed. Empty in loops that began before it was kept.
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
    /// Number of iterations begun.
    pub iterations: u32,
    /// Running time before `since`, in milliseconds, without waits for the forge.
    pub time_ms: i64,
    /// Start of the current running period; in the future if its work was deferred. `None` while the loop is not
    /// running.
    pub since: Option<Timestamp>,
    /// Total cost.
    pub cost: Money,
    /// Input tokens of all model calls.
    pub tokens_in: u64,
    /// Output tokens of all model calls.
    pub tokens_out: u64,
}

impl LoopUsage {
    /// Running time up to `now`, in milliseconds.
    pub fn time_at(&self, now: Timestamp) -> i64 {
        self.time_ms + self.since.map_or(0, |since| now.since(since))
    }
}

/// Step that a running loop is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoopStep {
    /// No step.
    Idle,
    /// Preparation of the work tree.
    Prepare,
    /// Checks before the first iteration.
    Baseline,
    /// Merge of the base branch, or of commits that a person pushed.
    Merge,
    /// Agent run that makes a plan and changes nothing.
    Plan,
    /// Agent run.
    Agent,
    /// Commit of the work tree.
    Commit,
    /// Push of the branch.
    Push,
    /// Checks after an iteration.
    Check,
    /// Checks in a fresh checkout.
    Verify,
    /// Restoration of the best iteration's files.
    Restore,
    /// Hooks before an agent run.
    HooksBeforeAgent,
    /// Hooks after an iteration.
    HooksAfterIteration,
    /// Hooks before the review.
    HooksBeforeReady,
    /// Second opinion before the review.
    SecondOpinion,
}

/// Pull request of a loop.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoopPull {
    /// Number.
    pub number: Number,
    /// Address of its page.
    pub url: String,
}

/// Backend and model that a schedule rule or a REDIRECT asked for; stays until the next request.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct BackendRequest {
    /// Preferred backend, if it is available.
    pub backend: Option<String>,
    /// Backend to avoid, if another one is available.
    pub other_than: Option<String>,
    /// Requested model.
    pub model: Option<String>,
    /// Backend that `model` applies to; `None` for every backend.
    pub model_of: Option<String>,
}

impl BackendRequest {
    /// Returns the model to request from `backend`, if any.
    pub fn model_for(&self, backend: &str) -> Option<&String> {
        self.model.as_ref().filter(|_| self.model_of.as_deref().is_none_or(|name| name == backend))
    }
}

/// Wait that ends without a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoopWait {
    /// Reason.
    pub on: WaitReason,
    /// Start of the time in which no agent could run; attempts in between belong to the wait.
    pub since: Timestamp,
    /// Whether people were notified that the wait is long.
    pub told: bool,
}

/// Reason of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitReason {
    /// No backend is available.
    Backend,
    /// The daily budget is spent; the wait ends with the day.
    Money,
    /// The repository takes no changes. The loop is paused, so that it holds no slot, and continues when the repository does.
    Repository,
}

/// A loop: one task on its way to a verified pull request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Loop {
    /// Identifier.
    pub id: LoopId,
    /// Issue that it works on.
    pub place: IssueRef,
    /// State.
    pub state: LoopState,
    /// Step that it is in while it runs.
    pub step: LoopStep,
    /// Ticket of the current work effect; outcomes with another ticket are ignored.
    pub ticket: u64,
    /// Task.
    pub task: LoopTask,
    /// Person who started or last resumed it. Their permission is checked again before each push.
    pub authority: User,
    /// Person who set the label or gave the command; asked for review.
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
    /// Branch that it pushes to.
    pub branch: String,
    /// Branch that it started from.
    pub base_branch: String,
    /// Commit of the base branch that it started from or merged last.
    pub base: Option<Sha>,
    /// Newest recorded commit.
    pub head: Option<Sha>,
    /// Last commit known to be on the forge's branch.
    pub pushed: Option<Sha>,
    /// Results of the checks before the first iteration.
    pub baseline: Option<CheckReport>,
    /// Base commit at the time of the baseline.
    #[serde(default)]
    pub baseline_base: Option<Sha>,
    /// Last iteration that was measured by other checks than the current ones; its results are not compared with later
    /// ones.
    #[serde(default)]
    pub measured_after: u32,
    /// Iterations, oldest first, including discarded ones.
    pub iterations: Vec<Iteration>,
    /// Guidance for the next prompt.
    pub guidance: Vec<Guidance>,
    /// Suggested changes that the next iteration applies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub suggestions: Vec<SuggestedChange>,
    /// Suggested changes that were applied and not undone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub applied: Vec<AppliedSuggestion>,
    /// Pull request.
    pub pull: Option<LoopPull>,
    /// Merge to do before the next iteration.
    pub merge_wanted: Option<MergeWith>,
    /// Merge that the work tree contains.
    pub merging: Option<MergeInProgress>,
    /// Reason of a pause requested while an iteration runs.
    pub pause_wanted: Option<String>,
    /// Commit that was verified in a fresh checkout.
    pub verified: Option<Sha>,
    /// CI that failed on the pull request, as it was read last.
    #[serde(default, deserialize_with = "readable", skip_serializing_if = "Option::is_none")]
    pub failed_ci: Option<FailedCi>,
    /// Wish of a maintainer that the forge merges the pull request.
    #[serde(default, deserialize_with = "readable", skip_serializing_if = "Option::is_none")]
    pub merge_wish: Option<MergeWish>,
    /// Commit that the forge may merge by itself: a merge was ordered and not withdrawn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merge_ordered: Option<Sha>,
    /// Changes on the forge that it refused, newest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<RefusedChange>,
    /// Keys of review comments that were handled.
    pub reviews_seen: Vec<String>,
    /// Reason of its state, one sentence for people.
    pub why: String,
    /// Cause of the open escalation; a reminder goes to the same issue.
    #[serde(default)]
    pub escalated: Option<EscalationCause>,
    /// State of the sandbox, for people.
    pub sandbox: String,
    /// Settings of the repository's file that the operator's settings override, one sentence each.
    #[serde(default)]
    pub overruled: Vec<String>,
    /// Consecutive attempts that were rate limited, for the back-off.
    pub limited_tries: u32,
    /// Current wait, kept while an attempt checks whether it is over.
    #[serde(default, deserialize_with = "readable")]
    pub wait: Option<LoopWait>,
    /// Number of hidden parts removed from the task's text.
    pub hidden_removed: u32,
    /// Consecutive agent runs that failed.
    pub agent_failures: u32,
    /// Ticket of the work that was deferred last.
    #[serde(default)]
    pub put_off: Option<u64>,
    /// Question of a hook that paused the loop; resuming it answers the question for this commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook_question: Option<HookQuestion>,
    /// Proposals of conventions that it publishes when its work is ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub proposals: Vec<PublishedProposal>,
    /// Second opinions about its work.
    #[serde(default, skip_serializing_if = "SecondOpinions::is_empty")]
    pub opinions: SecondOpinions,
    /// State of control, oversight and strategy. `None` before the first iteration and if the stored value cannot be
    /// read; it is then rebuilt from the records.
    #[serde(default, deserialize_with = "readable")]
    pub supervision: Option<Supervision>,
    /// Plan for the next run.
    #[serde(default, deserialize_with = "readable")]
    pub course: Option<NextRunPlan>,
    /// Agent session that the next run can resume. It covers all work up to the head and nothing that was discarded.
    #[serde(default, deserialize_with = "readable")]
    pub session: Option<AgentSession>,
    /// Stop in progress.
    #[serde(default, deserialize_with = "readable")]
    pub halting: Option<StopAfterRestore>,
    /// Approaches that failed in earlier loops, as prompts stated them. The strategy does not propose them even if the
    /// warning is later in doubt.
    #[serde(default)]
    pub failed_elsewhere: Vec<String>,
    /// Last state of the schedule.
    #[serde(default, deserialize_with = "readable")]
    pub schedule: Option<ScheduleState>,
    /// Backend and model that the schedule asked for.
    #[serde(default)]
    pub wanted: BackendRequest,
    /// Planning before the first iteration; `None` if no plan is wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub planning: Option<Planning>,
    /// Facts about the task that people stated.
    #[serde(default, skip_serializing_if = "TaskStatements::is_empty")]
    pub stated: TaskStatements,
    /// Usual iterations, time and cost of such tasks in this repository, if known.
    #[serde(default)]
    pub estimate: Option<Estimate>,
    /// Resources that earlier loops of the repository took, as known before the first iteration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub past: Option<PastLoops>,
    /// Progress of earlier loops of the repository.
    #[serde(default, skip_serializing_if = "Experience::is_empty")]
    pub experience: Experience,
    /// Images of the task; their files are kept beside the loop's sessions.
    #[serde(default, skip_serializing_if = "TaskImages::is_empty")]
    pub images: TaskImages,
    /// Time of creation.
    pub created_at: Timestamp,
    /// Time of the last step.
    pub updated_at: Timestamp,
    /// Start of its wait for a slot.
    pub queued_at: Option<Timestamp>,
    /// History of its findings about tests.
    #[serde(default)]
    pub guard: TestGuard,
    /// Number of steps so far.
    pub version: u64,
}

impl Loop {
    /// Returns the current or last iteration.
    pub fn current(&self) -> Option<&Iteration> {
        self.iterations.last()
    }

    /// Returns the current or last iteration.
    pub fn current_mut(&mut self) -> Option<&mut Iteration> {
        self.iterations.last_mut()
    }

    /// Whether it continues only after a person did something: a decision, an answer, a higher limit or a repair. A pull request
    /// in review is ready, and a pause of a repository that takes no changes ends by itself.
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

    /// Returns the accounts that are requested as reviewers: the person who asked for the loop, and those of the policy.
    pub fn reviewers(&self) -> Vec<String> {
        let mut all = vec![self.requested_by.login.clone()];
        for reviewer in &self.policy.reviewers {
            if !all.contains(reviewer) {
                all.push(reviewer.clone());
            }
        }
        all
    }

    /// Whether people asked for changes that no iteration has begun with.
    pub fn has_requests(&self) -> bool {
        !self.guidance.is_empty() || !self.suggestions.is_empty()
    }

    /// Lets the next iteration apply suggested changes again, whose iterations are undone; returns whether there are any.
    pub fn apply_again(&mut self, is_undone: impl Fn(u32) -> bool) -> bool {
        let (undone, standing) =
            std::mem::take(&mut self.applied).into_iter().partition(|one| is_undone(one.iteration));
        self.applied = standing;
        let undone: Vec<AppliedSuggestion> = undone;
        let any = !undone.is_empty();
        self.suggestions.splice(0..0, undone.into_iter().map(|one| one.change));
        any
    }

    /// Iterations that were not discarded, oldest first.
    pub fn retained_iterations(&self) -> impl DoubleEndedIterator<Item = &Iteration> {
        self.iterations.iter().filter(|i| !i.discarded)
    }

    /// Whether the next run prefers a backend other than `backend`: its last run failed there, or another one was
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

    /// Iterations measured by the current checks and not discarded, oldest first.
    pub fn measured(&self) -> impl DoubleEndedIterator<Item = &Iteration> {
        self.retained_iterations().filter(|i| i.number > self.measured_after)
    }

    /// Results of the newest checks: those of the last iteration that has some, else the baseline.
    pub fn latest_checks(&self) -> Option<&CheckReport> {
        let of_iterations = self.standing().map(|i| &i.checks).find(|report| !report.outcomes.is_empty());
        of_iterations.or(self.baseline.as_ref())
    }

    /// Iterations whose changes are still in the tree, newest first; those that a restoration undid are left out.
    pub fn standing(&self) -> impl Iterator<Item = &Iteration> {
        let mut newest = u32::MAX;
        self.retained_iterations().rev().filter(move |i| {
            if let Some(best) = i.restored_to.filter(|_| i.number <= newest) {
                newest = best;
            }
            i.number <= newest
        })
    }

    /// Size of the branch's complete change, if measured. Changes that were reverted do not count.
    pub fn branch_stat(&self) -> Option<&DiffStat> {
        self.standing().find_map(|i| i.branch_stat.as_ref())
    }

    /// Completion measured last by the current checks.
    pub fn completion(&self) -> Ratio {
        let of_now = |i: &&Iteration| i.ended_at.is_some() && i.number > self.measured_after;
        let last = self.standing().find(of_now).map(|i| i.completion);
        last.unwrap_or_else(|| self.completion_at_start())
    }

    /// Completion of `report`, measured from the baseline.
    pub fn completion_by(&self, report: &CheckReport) -> Ratio {
        report.completion(self.baseline.as_ref(), None)
    }

    /// Completion of the baseline.
    pub fn completion_at_start(&self) -> Ratio {
        self.baseline.as_ref().map(|baseline| self.completion_by(baseline)).unwrap_or_default()
    }
}

/// Deserializes an optional part that can be rebuilt: a value that cannot be read becomes `None` instead of an error
/// for the whole loop.
fn readable<'de, D: Deserializer<'de>, T: DeserializeOwned>(deserializer: D) -> Result<Option<T>, D::Error> {
    let value = serde_json::Value::deserialize(deserializer)?;
    Ok(serde_json::from_value(value).ok())
}
