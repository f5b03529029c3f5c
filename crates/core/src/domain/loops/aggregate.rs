//! Loop: the complete durable state of the work on one task.

use serde::{Deserialize, Serialize};

use super::iteration::{GuidanceSource, Iteration};
use super::parts::{
    AgentState, LoopBranch, LoopChecks, LoopKnowledge, LoopPeople, LoopRequests, LoopSettings, PullState, RunState,
    SupervisionState,
};
use super::state::LoopState;
use super::task_text::TaskText;
use crate::domain::model::ids::{IssueRef, LoopId, Money, Ratio, Timestamp, User};
use crate::domain::model::quantity::IterationLimit;
use crate::domain::model::task::{CheckReport, DiffStat};
use crate::domain::trust::protected::NamedPaths;
use crate::domain::trust::sanitize;

/// Number of consecutive failed agent runs after which the loop fails.
pub const MAX_AGENT_FAILURES: u32 = 3;

/// Task as it was approved.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoopTask {
    /// Text of the issue.
    #[serde(flatten)]
    pub text: TaskText,
    /// Address of the issue's page.
    pub url: String,
    /// SHA-256 of title and body, in hexadecimal.
    pub hash: String,
    /// Author of the issue; `None` if the account was deleted.
    pub author: Option<User>,
    /// Whether the author had write access when the task was approved. If not, checks in the text are ignored.
    pub author_trusted: bool,
    /// Login of the person without write access who edited the text, which a maintainer has to confirm before anything runs.
    /// `None` if it was not.
    pub unconfirmed_editor: Option<String>,
    /// Whether the text was edited after it was approved. A maintainer then has to confirm it before anything runs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub edited_after: bool,
    /// Labels of the issue.
    pub labels: Vec<String>,
}

impl LoopTask {
    /// Whether a maintainer has to confirm parts of the text that the forge does not display.
    pub fn has_unconfirmed_parts(&self) -> bool {
        !self.author_trusted && self.text.unseen.has_foreign()
    }
}

/// Limits of a loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoopLimits {
    /// Maximum number of iterations.
    pub iterations: IterationLimit,
    /// Maximum running time, in milliseconds.
    pub time_ms: i64,
    /// Maximum cost.
    pub cost: Money,
}

/// Whether a number is zero, and therefore not stored.
pub(super) fn is_zero<T: Default + PartialEq>(number: &T) -> bool {
    *number == T::default()
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
    /// Largest part of the budget about which people were notified, in percent; 0 if they were not.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub budget_notice: u8,
}

impl LoopUsage {
    /// Returns the running time up to `now`, in milliseconds.
    pub fn time_at(&self, now: Timestamp) -> i64 {
        self.time_ms + self.since.map_or(0, |since| now.since(since))
    }
}

/// Loop: the work on one task, from the issue to a verified pull request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Loop {
    /// Id of the loop.
    pub id: LoopId,
    /// Issue that the loop works on.
    pub issue: IssueRef,
    /// State of the loop.
    pub state: LoopState,
    /// Reason of the state, in one sentence for people.
    pub why: String,
    /// Task.
    pub task: LoopTask,
    /// People.
    pub people: LoopPeople,
    /// Settings and options.
    pub settings: LoopSettings,
    /// Limits.
    pub limits: LoopLimits,
    /// Resources used.
    pub spent: LoopUsage,
    /// Checks that decide completion.
    pub checks: LoopChecks,
    /// Branch.
    pub branch: LoopBranch,
    /// Pull request.
    pub pull: PullState,
    /// Work in progress.
    pub run: RunState,
    /// Agent runs.
    pub agent: AgentState,
    /// Iterations, oldest first, including discarded ones.
    pub iterations: Vec<Iteration>,
    /// Requests by people for the next iteration.
    pub requests: LoopRequests,
    /// State of supervision.
    pub supervision: SupervisionState,
    /// Facts about the task.
    pub knowledge: LoopKnowledge,
    /// Time of creation.
    pub created_at: Timestamp,
    /// Time of the last step.
    pub updated_at: Timestamp,
    /// Number of steps so far; increases with each stored change.
    pub version: u64,
}

impl Loop {
    /// Returns the current iteration, or the last one if none is running.
    pub fn current(&self) -> Option<&Iteration> {
        self.iterations.last()
    }

    /// Returns the paths named in the displayed text of the issue or of a maintainer's request.
    pub fn named_paths(&self) -> NamedPaths {
        let given = self.iterations.iter().flat_map(|iteration| &iteration.guidance).chain(&self.requests.guidance);
        let of_people = given.filter(|one| matches!(one.source, GuidanceSource::Command | GuidanceSource::Review));
        let requests = of_people.map(|guidance| sanitize::for_prompt(&guidance.text));
        let texts: Vec<String> = std::iter::once(self.task.text.agent_text()).chain(requests).collect();
        NamedPaths::of(texts.iter().map(String::as_str))
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
            LoopState::Paused => self.run.wait.is_none(),
            LoopState::Queued
            | LoopState::Running
            | LoopState::Waiting
            | LoopState::Review
            | LoopState::Merged
            | LoopState::Closed
            | LoopState::Aborted => false,
        }
    }

    /// Returns the logins of the requested reviewers: the person who requested the loop, and the reviewers of the policy.
    pub fn reviewers(&self) -> Vec<String> {
        let mut all = vec![self.people.requested_by.login.clone()];
        for reviewer in &self.settings.policy.reviewers {
            if !all.contains(reviewer) {
                all.push(reviewer.clone());
            }
        }
        all
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
        let unwanted = match ran.filter(|_| self.agent.failures > 0) {
            Some(failed) => failed == backend,
            None => self.agent.wanted.backend.as_ref().is_some_and(|wanted| wanted != backend),
        };
        unwanted || self.agent.wanted.other_than.as_deref() == Some(backend)
    }

    /// Returns the iterations that were measured by the current checks and were not discarded, oldest first.
    pub fn measured(&self) -> impl DoubleEndedIterator<Item = &Iteration> {
        self.retained_iterations().filter(|i| i.number > self.checks.measured_after)
    }

    /// Returns the newest check results in effect: the results of the newest iteration with results, else the baseline.
    pub fn latest_checks(&self) -> Option<&CheckReport> {
        let of_iterations = self.standing().map(|i| &i.checks).find(|report| !report.outcomes.is_empty());
        of_iterations.or(self.checks.baseline_report())
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
        let of_now = |i: &&Iteration| i.ended_at.is_some() && i.number > self.checks.measured_after;
        let last = self.standing().find(of_now).map(|i| i.completion);
        last.unwrap_or_else(|| self.checks.completion_at_start())
    }
}
