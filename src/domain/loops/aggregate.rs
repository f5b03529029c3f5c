//! What a loop is: the whole of its durable state.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};

use super::estimate::Estimate;
use super::input::{AgentSession, ServedBy};
use super::judgement::IterationJudgement;
use super::next_run::NextRunPlan;
use crate::domain::model::ids::IssueRef;
use crate::domain::model::ids::{LoopId, Money, Number, Ratio, Sha, Timestamp, User};
use crate::domain::model::record::Record;
use crate::domain::model::task::{AgentReport, Check, CheckReport, CheckSource, DiffStat, TamperFinding};
use crate::domain::providers::rules::ScheduleState;
use crate::domain::supervision::Supervision;
use crate::domain::supervision::experience::Experience;
use crate::domain::trust::command::RunOptions;
use crate::domain::trust::policy::Policy;

/// States of a loop, as people see them on the label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoopState {
    /// Nothing verifiable was found.
    NeedsCriteria,
    /// The text was changed by somebody without write access; a maintainer has to confirm it.
    NeedsConfirm,
    /// All slots are taken.
    Queued,
    /// Work is under way.
    Running,
    /// Every backend is limited.
    Waiting,
    /// Stopped by a person, an intervention, or the label's removal.
    Paused,
    /// Every check passed; people review.
    Review,
    /// Iterations, time or money are spent.
    LimitReached,
    /// The service could not go on.
    Failed,
    /// The pull request was merged.
    Merged,
    /// The pull request or the issue was closed, or there was nothing to do.
    Closed,
    /// Ended by a person.
    Aborted,
}

impl LoopState {
    /// All of them.
    pub const ALL: [LoopState; 12] = [
        LoopState::NeedsCriteria,
        LoopState::NeedsConfirm,
        LoopState::Queued,
        LoopState::Running,
        LoopState::Waiting,
        LoopState::Paused,
        LoopState::Review,
        LoopState::LimitReached,
        LoopState::Failed,
        LoopState::Merged,
        LoopState::Closed,
        LoopState::Aborted,
    ];

    /// Name in the store, in JSON and in the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NeedsCriteria => "needs_criteria",
            Self::NeedsConfirm => "needs_confirm",
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Paused => "paused",
            Self::Review => "review",
            Self::LimitReached => "limit_reached",
            Self::Failed => "failed",
            Self::Merged => "merged",
            Self::Closed => "closed",
            Self::Aborted => "aborted",
        }
    }

    /// Name on the label, after the prefix.
    pub fn label(self) -> String {
        self.as_str().replace('_', "-")
    }

    /// Whether the loop goes on or may go on from here.
    pub fn is_open(self) -> bool {
        !matches!(self, Self::Merged | Self::Closed | Self::Aborted)
    }

    /// Whether it takes up a slot.
    pub fn holds_slot(self) -> bool {
        matches!(self, Self::Running | Self::Waiting)
    }
}

/// The task as it was approved.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoopTask {
    /// Title of the issue.
    pub title: String,
    /// Body of the issue, raw, exactly as it was approved.
    pub body: String,
    /// Page of the issue.
    pub url: String,
    /// SHA-256 over title and body, hexadecimal.
    pub hash: String,
    /// Who wrote the issue.
    pub author: Option<User>,
    /// Whether the author had write access then: only so do checks in the text count.
    pub author_trusted: bool,
    /// Whose text has to be confirmed before anything runs, if anybody's.
    pub unconfirmed_editor: Option<String>,
    /// Labels of the issue.
    pub labels: Vec<String>,
}

/// Limits of a loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoopLimits {
    /// Iterations in all.
    pub iterations: u32,
    /// Milliseconds of running time in all.
    pub time_ms: i64,
    /// Money in all.
    pub cost: Money,
}

/// What a loop has used; never decreases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LoopUsage {
    /// Iterations begun.
    pub iterations: u32,
    /// Milliseconds in state running before `since`, without waits for the forge.
    pub time_ms: i64,
    /// Since when it has been running, or when it goes on where its work was put off; `None` where it is not running.
    pub since: Option<Timestamp>,
    /// Money.
    pub cost: Money,
    /// Tokens read by models.
    pub tokens_in: u64,
    /// Tokens written by models.
    pub tokens_out: u64,
}

impl LoopUsage {
    /// Running time up to `now`, milliseconds.
    pub fn time_at(&self, now: Timestamp) -> i64 {
        self.time_ms + self.since.map_or(0, |since| now.since(since))
    }
}

/// What the loop waits for while it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoopStep {
    /// Nothing.
    Idle,
    /// The tree.
    Prepare,
    /// The checks before the first iteration.
    Baseline,
    /// A merge of the base branch, or of what a person pushed.
    Merge,
    /// The agent.
    Agent,
    /// The commit.
    Commit,
    /// The push.
    Push,
    /// The checks after an iteration.
    Check,
    /// The checks in a fresh checkout.
    Verify,
    /// The best iteration's files are put back.
    Restore,
}

/// What people told the loop: guidance, reviews, failing CI.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Guidance {
    /// Who; empty for CI and the service itself.
    pub who: String,
    /// What sort.
    pub source: GuidanceSource,
    /// The text, raw.
    pub text: String,
    /// File that it is about.
    pub path: Option<String>,
    /// Whether it is a rule to be kept for the repository.
    #[serde(default)]
    pub remember: bool,
}

/// Where guidance came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GuidanceSource {
    /// A maintainer's command.
    Command,
    /// A maintainer's review.
    Review,
    /// Failing CI.
    Ci,
    /// The service: a fact found out that the next run has to know.
    Service,
}

/// One pass, from prompt to checks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Iteration {
    /// From 1.
    pub number: u32,
    /// Which try of it counts.
    pub attempt: u32,
    /// When the first try began.
    pub started_at: Timestamp,
    /// When its checks were done.
    pub ended_at: Option<Timestamp>,
    /// How the agent's run ended; empty while it runs and where it went well.
    pub agent_problem: String,
    /// What the agent said.
    pub report: AgentReport,
    /// Its last message, where there is no summary.
    pub message: String,
    /// What it cost.
    pub cost: Money,
    /// Tool calls.
    pub tool_calls: u32,
    /// Tool calls that failed.
    #[serde(default)]
    pub tool_errors: u32,
    /// The tools that were called, in order, each once.
    #[serde(default)]
    pub tools: Vec<String>,
    /// Tokens read by models.
    #[serde(default)]
    pub tokens_in: u64,
    /// Tokens written by models.
    #[serde(default)]
    pub tokens_out: u64,
    /// Milliseconds of the agent's run.
    pub agent_ms: u64,
    /// Who served the agent's run.
    #[serde(default)]
    pub served: ServedBy,
    /// Commit, where anything changed.
    pub commit: Option<Sha>,
    /// Hash of the whole tree after it.
    pub tree: Option<Sha>,
    /// Head before it.
    pub parent: Sha,
    /// Size of the change.
    pub stat: DiffStat,
    /// Size of all that the branch changes with it, a renamed file as two; `None` where it was not measured.
    #[serde(default)]
    pub whole: Option<DiffStat>,
    /// Protected paths that were put back.
    pub restored: Vec<String>,
    /// Signs of weakened checks.
    pub findings: Vec<TamperFinding>,
    /// What the checks said.
    pub checks: CheckReport,
    /// Completion as measured.
    pub completion: Ratio,
    /// Guidance that its prompt carried.
    pub guidance: Vec<Guidance>,
    /// Whether `/ralph retry` threw it away.
    pub discarded: bool,
    /// It in figures, once it has ended.
    #[serde(default)]
    pub record: Option<Record>,
    /// What supervision made of it.
    #[serde(default)]
    pub judged: Option<IterationJudgement>,
    /// Hosts, with their ports, that the agent asked for and that are not listed, in its last run.
    #[serde(default)]
    pub refused_hosts: Vec<String>,
    /// The iteration whose files were put back after it; 0 is the state before the first.
    #[serde(default)]
    pub restored_to: Option<u32>,
}

/// The pull request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoopPull {
    /// Its number.
    pub number: Number,
    /// Page for people.
    pub url: String,
}

/// The files of the best iteration are put back before the loop stops.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopAfterRestore {
    /// Whose files; 0 is the state before the first.
    pub iteration: u32,
    /// What comes then.
    pub then: StopReason,
}

/// Why a loop stops once its best iteration is back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The overseer holds it.
    Held,
    /// It reached a limit.
    Limit {
        /// Of what: iterations, time or money.
        which: String,
        /// One sentence.
        why: String,
    },
}

/// What a rule of the schedule or a REDIRECT asked for, until something else is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct BackendRequest {
    /// This backend, where it is free.
    pub backend: Option<String>,
    /// Another backend than this one, where another is free.
    pub other_than: Option<String>,
    /// This model ...
    pub model: Option<String>,
    /// ... of this backend; of each where it is `None`.
    pub model_of: Option<String>,
}

impl BackendRequest {
    /// The model that a backend is to be asked for.
    pub fn model_for(&self, backend: &str) -> Option<&String> {
        self.model.as_ref().filter(|_| self.model_of.as_deref().is_none_or(|name| name == backend))
    }
}

/// A wait that ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoopWait {
    /// What for.
    pub on: WaitReason,
    /// Since when no agent could run; a try in between that comes to nothing is part of the wait.
    pub since: Timestamp,
    /// Whether a person was told that it is a long one.
    pub told: bool,
}

/// What a loop waits for that comes by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitReason {
    /// A backend that serves.
    Backend,
    /// The next day, with its money.
    Money,
}

/// What is to be merged into the work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MergeWith {
    /// The base branch as it is then.
    Base,
    /// What somebody else pushed to the loop's branch.
    Pushed(Sha),
}

/// A merge under way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MergeInProgress {
    /// The other side.
    pub other: Sha,
    /// Files with conflict markers for the agent to solve.
    pub conflicts: Vec<String>,
}

/// A loop.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Loop {
    /// Its id.
    pub id: LoopId,
    /// Repository and issue.
    pub place: IssueRef,
    /// State.
    pub state: LoopState,
    /// What it waits for while it runs.
    pub step: LoopStep,
    /// Number of the work effect whose outcome counts.
    pub ticket: u64,
    /// The task.
    pub task: LoopTask,
    /// Who started it, or resumed it last: whose permission is asked before each push.
    pub authority: User,
    /// Who labelled; asked for review.
    pub requested_by: User,
    /// Options of `/ralph run`.
    pub options: RunOptions,
    /// Settings that hold for it: the operator's, narrowed by the repository's file.
    pub policy: Policy,
    /// Limits.
    pub limits: LoopLimits,
    /// What was used.
    pub spent: LoopUsage,
    /// Checks that decide.
    pub checks: Vec<Check>,
    /// Where they came from.
    pub checks_from: Option<CheckSource>,
    /// Branch that the work goes to.
    pub branch: String,
    /// Branch that it started from.
    pub base_branch: String,
    /// Commit of the base that it started from, or merged last.
    pub base: Option<Sha>,
    /// Newest recorded commit.
    pub head: Option<Sha>,
    /// Commit that the forge has on our branch, as far as we know.
    pub pushed: Option<Sha>,
    /// Checks before the first iteration.
    pub baseline: Option<CheckReport>,
    /// Iterations up to this number were measured by other checks, and compare with none that follow.
    #[serde(default)]
    pub measured_after: u32,
    /// All iterations, oldest first.
    pub iterations: Vec<Iteration>,
    /// What the next prompt has to carry.
    pub guidance: Vec<Guidance>,
    /// Pull request.
    pub pull: Option<LoopPull>,
    /// Merge to be done before the next iteration.
    pub merge_wanted: Option<MergeWith>,
    /// Merge that the tree holds.
    pub merging: Option<MergeInProgress>,
    /// A pause asked for while an iteration runs.
    pub pause_wanted: Option<String>,
    /// Whether the newest head was verified in a fresh checkout.
    pub verified: Option<Sha>,
    /// CI verdict that was acted on last, so that one failure makes one round.
    pub ci_seen: Option<Sha>,
    /// Keys of reviews and remarks that were taken over.
    pub reviews_seen: Vec<String>,
    /// Why it is in its state, one sentence for people.
    pub why: String,
    /// Cause of the escalation that waits for an answer; the reminder goes to the same one.
    #[serde(default)]
    pub escalated: Option<String>,
    /// How the sandbox holds, for people.
    pub sandbox: String,
    /// What of the repository's file has no effect because the operator's setting stands, a sentence each.
    #[serde(default)]
    pub overruled: Vec<String>,
    /// Limited tries in a row, for the back-off.
    pub limited_tries: u32,
    /// The wait under way, also while it is looked whether it is over.
    #[serde(default, deserialize_with = "readable")]
    pub wait: Option<LoopWait>,
    /// Hidden parts that were taken out of the task's text.
    pub hidden_removed: u32,
    /// Runs of the agent in a row that failed.
    pub agent_failures: u32,
    /// Ticket of the work that was put off last.
    #[serde(default)]
    pub put_off: Option<u64>,
    /// What control, oversight and strategy remember; `None` before the first iteration, and where what was stored cannot
    /// be read: then it is made anew from the records.
    #[serde(default, deserialize_with = "readable")]
    pub supervision: Option<Supervision>,
    /// What supervision wants of the next run.
    #[serde(default, deserialize_with = "readable")]
    pub course: Option<NextRunPlan>,
    /// The agent's session that the next run can go on with: it knows of all that was done up to the head, and of nothing
    /// that was thrown away.
    #[serde(default, deserialize_with = "readable")]
    pub session: Option<AgentSession>,
    /// What is being done before the loop stops.
    #[serde(default, deserialize_with = "readable")]
    pub halting: Option<StopAfterRestore>,
    /// Approaches that earlier loops failed with, as prompts were told. A warning that is doubted later, because what else was
    /// tried fails as well, makes none of them the next to be tried.
    #[serde(default)]
    pub failed_elsewhere: Vec<String>,
    /// What the schedule saw last.
    #[serde(default, deserialize_with = "readable")]
    pub schedule: Option<ScheduleState>,
    /// What the schedule asked for.
    #[serde(default)]
    pub wanted: BackendRequest,
    /// What earlier loops of its repository took for such a task, where that is known.
    #[serde(default)]
    pub estimate: Option<Estimate>,
    /// What earlier loops of its repository were like.
    #[serde(default, skip_serializing_if = "Experience::is_empty")]
    pub experience: Experience,
    /// When it came to be.
    pub created_at: Timestamp,
    /// Last step.
    pub updated_at: Timestamp,
    /// When it began to wait for a slot.
    pub queued_at: Option<Timestamp>,
    /// Number of steps so far.
    pub version: u64,
}

impl Loop {
    /// The iteration under way, or the last.
    pub fn current(&self) -> Option<&Iteration> {
        self.iterations.last()
    }

    /// The iteration under way, or the last.
    pub fn current_mut(&mut self) -> Option<&mut Iteration> {
        self.iterations.last_mut()
    }

    /// Iterations that count, oldest first.
    pub fn kept(&self) -> impl DoubleEndedIterator<Item = &Iteration> {
        self.iterations.iter().filter(|i| !i.discarded)
    }

    /// Whether the next run of an agent is for another backend, where another is free: this one's last run failed, or it is
    /// not the one that was asked for.
    pub fn avoids(&self, backend: &str) -> bool {
        let ran = self.kept().rev().map(|iteration| &iteration.served.backend).find(|name| !name.is_empty());
        let unwanted = match ran.filter(|_| self.agent_failures > 0) {
            Some(failed) => failed == backend,
            None => self.wanted.backend.as_ref().is_some_and(|wanted| wanted != backend),
        };
        unwanted || self.wanted.other_than.as_deref() == Some(backend)
    }

    /// Iterations that count and were measured by the present checks, oldest first.
    pub fn measured(&self) -> impl DoubleEndedIterator<Item = &Iteration> {
        self.kept().filter(|i| i.number > self.measured_after)
    }

    /// The newest checks' outcomes: of the last iteration that has some, else the baseline.
    pub fn latest_checks(&self) -> Option<&CheckReport> {
        let of_iterations = self.standing().map(|i| &i.checks).find(|report| !report.outcomes.is_empty());
        of_iterations.or(self.baseline.as_ref())
    }

    /// Iterations whose work stands, newest first: those after the one that was put back do not.
    fn standing(&self) -> impl Iterator<Item = &Iteration> {
        let restored = self.kept().next_back().and_then(|last| last.restored_to);
        self.kept().rev().filter(move |i| restored.is_none_or(|best| i.number <= best))
    }

    /// Size of all that the branch changes, where it was measured: what came and went again in between is not in it.
    pub fn whole(&self) -> Option<&DiffStat> {
        self.standing().find_map(|i| i.whole.as_ref())
    }

    /// Signs of weakened checks in files that the branch still changes, and in those whose names git may write in another
    /// way.
    pub fn findings(&self) -> Vec<TamperFinding> {
        let whole = self.whole();
        let plain = |path: &str| path.chars().all(|c| c.is_ascii_graphic() && !matches!(c, '"' | '\\'));
        let gone = |path: &str| plain(path) && whole.is_some_and(|whole| whole.files.iter().all(|f| f.path != path));
        self.kept().flat_map(|i| &i.findings).filter(|found| !gone(&found.path)).cloned().collect()
    }

    /// Completion as measured last by the present checks.
    pub fn completion(&self) -> Ratio {
        let of_now = |i: &&Iteration| i.ended_at.is_some() && i.number > self.measured_after;
        let last = self.standing().find(of_now).map(|i| i.completion);
        last.unwrap_or_else(|| self.completion_at_start())
    }

    /// Completion by a report, measured from the baseline.
    pub fn completion_by(&self, report: &CheckReport) -> Ratio {
        report.completion(self.baseline.as_ref(), None)
    }

    /// Completion before the first iteration.
    pub fn completion_at_start(&self) -> Ratio {
        self.baseline.as_ref().map(|baseline| self.completion_by(baseline)).unwrap_or_default()
    }
}

/// What can be read, and `None` for what cannot: a part that can be made anew must not make the whole loop unreadable.
fn readable<'de, D: Deserializer<'de>, T: DeserializeOwned>(deserializer: D) -> Result<Option<T>, D::Error> {
    let value = serde_json::Value::deserialize(deserializer)?;
    Ok(serde_json::from_value(value).ok())
}
