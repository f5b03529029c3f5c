//! Work effects: they prepare trees, run agents and checks, and create and push commits. They can take long, can be
//! canceled, and can be repeated after a crash.

mod agent;
mod answers;
pub(super) mod assist;
mod branch_state;
mod call_guard;
mod changed_tests;
mod conventions;
mod environment;
mod existing_pull;
mod git;
pub mod hooks;
mod images;
mod lost_runs;
pub(super) mod program_question;
mod program_tests;
mod project;
mod prompt_inputs;
mod proposed_checks;
mod roles;
mod run_monitor;
mod run_outcome;
mod second_opinion;
mod selected_backend;
mod suggestions;
mod test_data;
mod verify;

use std::path::{Path, PathBuf};
use std::time::Duration;

use failpoint::kill_point;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use environment::SetupContext;

use super::claim::HeldClaim;
use super::executor::{EffectError, Receipt, effect_context};
use super::repository_access::RepositoryAccess;
use super::{Engine, ForgeAccount};
use crate::checks::{CheckRunner, ChecksError};
use crate::clock::Stopwatch;
use crate::config;
use crate::config::repository::REPOSITORY_FILES;
use crate::domain::checks::criteria;
use crate::domain::lifecycle::effect::{CheckPurpose, Effect, WorkEffect};
use crate::domain::loops::{ForgeInput, FoundBranch, Loop, LoopInput, PreparedTree, PullProblems, WorkOutcome};
use crate::domain::model::ids::{LoopId, Money, RepoRef, Sha, Timestamp};
use crate::domain::model::task::{Check, CheckReport};
use crate::domain::trust::permit::{Authorization, DenyAnswer};
use crate::domain::trust::policy::{Policy, RepositorySettings};
use crate::process::{self, Cookie, untrusted};
use crate::store::outbox::{self, ClaimedEffect};
use crate::store::{StoreError, loops};
use crate::workspace::{PrepareTree, TreeInfo, WorkspaceError};

/// Maximum size of a file that is read to detect checks, in bytes.
const DETECTED_FROM: usize = 256 * 1024;
/// Grace period of processes of a lost run before SIGKILL.
const SURVIVOR_GRACE: Duration = Duration::from_secs(1);
/// Time limit of one setup command, in seconds.
const SETUP_TIMEOUT_S: u64 = 1800;

impl Engine {
    /// Executes one work effect and records its outcome; returns `true` if there was one. For tests and simulation.
    pub async fn work_step(&self) -> Result<bool, StoreError> {
        let Some(claimed) = self.claim_work().await? else { return Ok(false) };
        self.do_work(claimed).await?;
        Ok(true)
    }

    /// Executes a work effect and records its outcome.
    pub(super) async fn do_work(&self, claimed: HeldClaim) -> Result<(), StoreError> {
        let context = effect_context(&claimed);
        let outcome = self.work(&claimed, &claimed.cancel).instrument(context.clone()).await;
        if claimed.is_lost() || self.stopping.is_cancelled() && claimed.cancel.is_cancelled() {
            return self.hand_over(claimed, true).await;
        }
        self.record(claimed, outcome).instrument(context).await
    }

    /// Executes a work effect, and with its outcome records the step of its loop and the claim of the next work effect, which is
    /// returned. For processes that step loops.
    pub(super) async fn do_work_and_claim(&self, claimed: HeldClaim) -> Result<Option<HeldClaim>, StoreError> {
        let context = effect_context(&claimed);
        let outcome = self.work(&claimed, &claimed.cancel).instrument(context.clone()).await;
        if claimed.is_lost() {
            return self.hand_over(claimed, true).await.map(|()| None);
        }
        if self.stopping.is_cancelled() {
            let ended = match claimed.cancel.is_cancelled() {
                true => self.hand_over(claimed, true).await,
                false => self.record(claimed, outcome).instrument(context).await,
            };
            return ended.map(|()| None);
        }
        self.record_and_claim(claimed, outcome).instrument(context).await
    }

    /// Releases the work at shutdown, or after a failed heartbeat if no other process has taken the lease. Its next owner starts
    /// it again. `began` states whether it may have taken effect.
    pub(super) async fn hand_over(&self, claimed: HeldClaim, began: bool) -> Result<(), StoreError> {
        claimed.end_heartbeats();
        let why = if claimed.is_lost() { "the lease was lost" } else { "the service stopped" };
        let owner = self.owner.name();
        let now = self.clock.now();
        let given = self.store.write(move |c| outbox::reschedule(c, &claimed, &owner, now, began, why)).await;
        match given {
            Err(StoreError::Fenced { .. }) => Ok(()),
            other => other,
        }
    }

    async fn work(&self, claimed: &ClaimedEffect, cancel: &CancellationToken) -> Result<Receipt, EffectError> {
        let Effect::Work(effect) = &claimed.effect else { return Err(EffectError::wrong_lane(claimed)) };
        let current = self.current(claimed).await?;
        if claimed.abandoned {
            self.end_processes(&current).await;
        }
        if effect.ticket().is_some_and(|ticket| ticket != current.run.ticket) {
            return self.outdated(claimed, effect, &current).await;
        }
        let account = self.account(&claimed.place.repo)?;
        let repo = match self.work_repository(account, claimed, effect).await? {
            RepositoryAccess::Usable(repo) => repo,
            RepositoryAccess::Unusable { why } => return Ok(unavailable(effect, why)),
        };
        self.page_is_stored(account, &repo, effect, &current).await?;
        let outcome = self.perform(account, claimed, effect, &repo, &current, cancel).await;
        let outcome = self.explained(account, effect, &repo, outcome).await;
        match outcome {
            // The loop is informed of a permanent failure, so that it does not wait forever.
            Err(EffectError::Permanent { why }) => match effect.ticket() {
                Some(ticket) => {
                    let advice = "fix the cause, then `/ralph resume`".to_owned();
                    Ok(Receipt::outcome(why.clone(), ticket, WorkOutcome::WorkFailed { reason: why, advice }))
                }
                None => Err(EffectError::Permanent { why }),
            },
            other => other,
        }
    }

    /// Executes a work effect in the loop's tree. A missing tree is created again, for example after a backup was
    /// restored.
    async fn perform(
        &self,
        account: &ForgeAccount,
        claimed: &ClaimedEffect,
        effect: &WorkEffect,
        repo: &RepoRef,
        current: &Loop,
        cancel: &CancellationToken,
    ) -> Result<Receipt, EffectError> {
        let makes_its_own = matches!(
            effect,
            WorkEffect::Prepare { .. }
                | WorkEffect::Merge { .. }
                | WorkEffect::Release { .. }
                | WorkEffect::HooksAfterEnd { .. }
        );
        if !makes_its_own && current.branch.head.is_some() && !self.workspaces.has_tree(&current.id, repo) {
            tracing::info!(loop_id = %current.id, "the work tree is missing; it is made again from the loop's branch");
            self.tree_at_head(account, repo, current).await?;
        }
        match effect {
            WorkEffect::Prepare { ticket } => self.prepare(account, repo, current, *ticket, cancel).await,
            WorkEffect::Check { ticket, purpose, commit } => {
                self.check(repo, current, *ticket, *purpose, commit, cancel).await
            }
            WorkEffect::Plan { ticket, attempt } => {
                let run = Attempt { ticket: *ticket, iteration: 0, attempt: *attempt };
                self.agent(account, claimed, repo, current, run, cancel).await
            }
            WorkEffect::Agent { .. } if current.knowledge.lacks_approval() => {
                Err(EffectError::Permanent { why: "no plan is approved, so nothing is implemented".into() })
            }
            WorkEffect::Agent { ticket, iteration, attempt } => {
                let run = Attempt { ticket: *ticket, iteration: *iteration, attempt: *attempt };
                self.agent(account, claimed, repo, current, run, cancel).await
            }
            WorkEffect::Commit { ticket, iteration } => self.commit(repo, current, *ticket, *iteration).await,
            WorkEffect::Push { ticket, commit } => self.push(account, repo, current, *ticket, commit).await,
            WorkEffect::Merge { ticket, other } => self.merge(account, repo, current, *ticket, other.as_ref()).await,
            WorkEffect::Restore { ticket, iteration, to } => self.restore(repo, current, *ticket, *iteration, to).await,
            WorkEffect::SecondOpinion { ticket, commit } => {
                self.second_opinion(claimed, repo, current, (*ticket, commit), cancel).await
            }
            WorkEffect::ApplySuggestions { ticket, iteration, changes } => {
                let run = Attempt { ticket: *ticket, iteration: *iteration, attempt: 1 };
                self.apply_suggestions(repo, current, run, changes, cancel).await
            }
            WorkEffect::Hooks { ticket, event } => self.hooks(repo, current, (*ticket, *event), cancel).await,
            WorkEffect::HooksAfterEnd { version } => self.hooks_after_end(repo, current, *version, cancel).await,
            WorkEffect::Release { delete_branch } => {
                self.end_processes(current).await;
                let asked = self.last_questions(current, cancel).await?;
                if let Some(tip) = current.branch.pushed.as_ref().filter(|_| *delete_branch) {
                    let access = self.git_url(account, repo, true).await?;
                    self.workspaces.delete_branch(repo, &access, &current.branch.name, tip).await?;
                }
                self.forget_sessions(current);
                self.forget_images(current);
                self.workspaces.release(&current.id, repo).await?;
                let input = (asked > Money(0)).then_some(WorkOutcome::AskedAtEnd { cost: asked });
                let input = input.map(|outcome| LoopInput::Outcome { ticket: 0, outcome });
                Ok(Receipt { input, ..Receipt::text("tree released") })
            }
        }
    }

    /// Returns the repository of a work effect. The forge is queried only for effects that reach it.
    async fn work_repository(
        &self,
        account: &ForgeAccount,
        claimed: &ClaimedEffect,
        effect: &WorkEffect,
    ) -> Result<RepositoryAccess, EffectError> {
        if effect.reaches_forge() {
            return self.place(account, &claimed.place.repo, effect.creates_on_forge()).await;
        }
        Ok(RepositoryAccess::Usable(self.present_name(&claimed.place.repo).await?))
    }

    /// Replaces the error of a failed effect if its repository was renamed in the meantime or accepts no changes.
    async fn explained(
        &self,
        account: &ForgeAccount,
        effect: &WorkEffect,
        repo: &RepoRef,
        outcome: Result<Receipt, EffectError>,
    ) -> Result<Receipt, EffectError> {
        let refused = match &outcome {
            Ok(receipt) => {
                matches!(
                    receipt.input,
                    Some(
                        LoopInput::Outcome { outcome: WorkOutcome::PushRejected { .. }, .. }
                            | LoopInput::Forge(ForgeInput::AuthorityLost { .. })
                    )
                )
            }
            Err(EffectError::Permanent { .. }) => true,
            Err(_) => false,
        };
        if !effect.reaches_forge() || !refused {
            return outcome;
        }
        match self.place(account, repo, true).await {
            Ok(RepositoryAccess::Usable(now)) if now.full_name() != repo.full_name() => {
                let why = format!("{} is {} now", repo.full_name(), now.full_name());
                Err(EffectError::Retry { after_ms: Some(0), ambiguous: true, why })
            }
            Ok(RepositoryAccess::Unusable { why }) => Ok(unavailable(effect, why)),
            _ => outcome,
        }
    }

    /// Returns the input for the loop if the person who authorized the loop has lost the permission; otherwise `None`.
    async fn authority_lost(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        current: &Loop,
    ) -> Result<Option<Receipt>, EffectError> {
        match self.permitted_now(account, repo, &current.people.authority).await? {
            Authorization::Allow => Ok(None),
            Authorization::Deny { reason, answer } => {
                let who = current.people.authority.login.clone();
                let hidden_teams = match answer {
                    DenyAnswer::CannotTell(teams) => teams.iter().map(ToString::to_string).collect(),
                    DenyAnswer::Silent | DenyAnswer::ThumbsDown => Vec::new(),
                };
                Ok(Some(Receipt::with_input(reason, ForgeInput::AuthorityLost { who, hidden_teams })))
            }
        }
    }

    async fn prepare(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        current: &Loop,
        ticket: u64,
        cancel: &CancellationToken,
    ) -> Result<Receipt, EffectError> {
        if let Some(why) = &self.settings.sandbox_refusal {
            return Err(EffectError::Permanent { why: why.clone() });
        }
        if let Some(lost) = self.authority_lost(account, repo, current).await? {
            return Ok(lost);
        }
        self.end_processes(current).await;
        let facts = account.forge.repository(repo).await?;
        if let (Some(why), false) = (&self.settings.sandbox_refusal_of_public, facts.private) {
            return Err(EffectError::Permanent { why: why.clone() });
        }
        if facts.empty {
            return Err(EffectError::Permanent {
                why: format!("{} is empty; push a first commit to it", repo.full_name()),
            });
        }
        let operator = self.settings.policy(&repo.forge);
        let access = self.git_url(account, repo, false).await?;
        let partial = self.settings.partial_clone && account.forge.server_info().await?.partial_clone;
        let fork = self.fork_url(account, current, false).await?;
        let prepare = |base_branch: String, resume_at: Option<Sha>| {
            let access = access.clone();
            let fork = fork.clone();
            async move {
                let request = PrepareTree {
                    fork: fork.as_ref(),
                    loop_id: &current.id,
                    repo,
                    access: &access,
                    base_branch: &base_branch,
                    branch: &current.branch.name,
                    resume_at: resume_at.as_ref(),
                    partial,
                };
                self.workspaces.prepare(request).await.map(|tree| (tree, base_branch))
            }
        };
        // The repository's file is read from the default branch, whatever branch the work starts from.
        let (mut tree, mut base_branch) = prepare(facts.default_branch.clone(), current.branch.head.clone()).await?;
        let settings = match self.repository_file(repo, &tree.base, &operator).await? {
            FileReading::None => None,
            FileReading::Read(path, settings) => Some((path, *settings)),
            FileReading::Broken(path, problems) => {
                let input =
                    LoopInput::Outcome { ticket, outcome: WorkOutcome::RepositoryFileBroken { path, problems } };
                return Ok(Receipt::with_input("the repository's file does not hold", input));
            }
        };
        let mut policy = settings.as_ref().map_or_else(|| operator.clone(), |(_, file)| operator.with_repository(file));
        self.commit_rules(repo, &tree.base, &mut policy.commits).await;
        let (place, loops) = (repo.clone(), policy.limits.loops_per_repository);
        self.store.write(move |c| loops::set_repository_limit(c, &place, loops)).await?;
        let wanted = current.settings.options.base.clone().or_else(|| policy.base.clone());
        if let Some(wanted) = wanted.filter(|wanted| *wanted != base_branch) {
            (tree, base_branch) = prepare(wanted, current.branch.head.clone()).await?;
        }
        let mut notes = settings.as_ref().map_or_else(Vec::new, |(_, file)| operator.overruled(file));
        let lacks = std::mem::take(&mut tree.notes);
        let fork_point = tree.fork.clone().unwrap_or_else(|| tree.base.clone());
        let base = current.branch.base.as_ref().unwrap_or(&fork_point);
        let problems = self.pull_problems(account, repo, current, &tree).await?;
        let of = SetupContext { current, repo, policy: &policy, base, cancel };
        let (policy, note) = self.with_detected_setup(of, &tree).await?;
        notes.extend(note);
        self.setup(SetupContext { policy: &policy, ..of }, &tree.dir, &tree.head).await?;
        let detected = criteria::detect(&|path: &str| small_file(&tree.dir.join(path)));
        let proposes = self.proposes_checks(current, &policy, &tree.dir);
        let images = self.images_of_issue(account, repo, current, cancel).await;
        let prepared = PreparedTree {
            base_branch,
            base: fork_point,
            head: tree.head,
            remote: tree.remote_branch,
            policy,
            notes,
            lacks,
            settings: settings.map(|(_, file)| file),
            detected,
            proposes,
            estimates: self.estimates(repo).await,
            past: self.past_loops(repo).await,
            experience: self.experience(repo).await,
            sandbox: self.settings.sandbox_words.clone(),
            proposals: self.untold_proposals(current).await,
            images,
            problems,
        };
        kill_point("K14");
        Ok(Receipt::outcome("the tree is ready", ticket, WorkOutcome::Prepared { tree: Box::new(prepared) }))
    }

    /// Returns the problems of an existing pull request that the loop starts to work on; `None` at other times. Open remarks
    /// of reviewers become inputs of the loop.
    async fn pull_problems(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        current: &Loop,
        tree: &TreeInfo,
    ) -> Result<Option<PullProblems>, EffectError> {
        if tree.remote_branch.is_none() || current.pull.existing.is_none() || current.branch.base.is_some() {
            return Ok(None);
        }
        self.missed_reviews(account, repo, &current.id, current.issue.issue, Timestamp(0)).await?;
        let base = tree.fork.as_ref().unwrap_or(&tree.base).clone();
        let found = FoundBranch { head: tree.head.clone(), base };
        let conflict = self.conflicts_with_base(account, repo, current, &found.head).await?;
        Ok(Some(PullProblems { conflict, ..self.failed_ci_of_pull(account, repo, &found).await? }))
    }

    /// Reads and validates the repository's configuration file at a commit.
    async fn repository_file(&self, repo: &RepoRef, at: &Sha, operator: &Policy) -> Result<FileReading, EffectError> {
        let Some((path, bytes)) = self.workspaces.base_file(repo, at, REPOSITORY_FILES).await? else {
            return Ok(FileReading::None);
        };
        Ok(match config::parse_repository(path, &String::from_utf8_lossy(&bytes), operator) {
            Ok(settings) => {
                for warning in &settings.warnings {
                    tracing::warn!(repository = %repo, "{warning}");
                }
                FileReading::Read(path.to_owned(), Box::new(settings))
            }
            Err(problems) => FileReading::Broken(path.to_owned(), problems.iter().map(ToString::to_string).collect()),
        })
    }

    /// Resets the tree to a commit and sets it up. This succeeded at the start of the loop, so a failure is returned as a
    /// note for the agent.
    async fn fresh_tree(
        &self,
        current: &Loop,
        repo: &RepoRef,
        at: &Sha,
        cancel: &CancellationToken,
    ) -> Result<Option<String>, EffectError> {
        self.workspaces.reset(&current.id, repo, at).await?;
        let tree = self.workspaces.agent_view(&current.id, repo).tree;
        match self.setup(SetupContext::of(current, repo, at, cancel), &tree, at).await {
            Err(EffectError::Permanent { why }) => Ok(Some(format!("In the work tree as it is, {why}"))),
            other => other.map(|()| None),
        }
    }

    /// Runs checks in a tree, with a new home that contains the repository's package caches.
    async fn run_checks(
        &self,
        (repo, current): (&RepoRef, &Loop),
        phase: &'static str,
        (tree, read_only): (&Path, &[PathBuf]),
        checks: &[Check],
        cancel: &CancellationToken,
    ) -> Result<CheckReport, EffectError> {
        let mut runner = self.checks.clone();
        runner.read_only.extend_from_slice(read_only);
        runner.cookie = Some(Cookie::new(&self.instance, current.id.as_str(), 0));
        let scratch = self.settings.scratch.join(current.id.as_str()).join("checks");
        if let Some(environment) = self.kept_environment(repo, current).await? {
            remove_folder(&scratch);
            environment.copy_to_home(tree, &scratch, false).await?;
        }
        let report = self.run_timed(current, &runner, phase, (tree, scratch.as_path()), checks, cancel).await;
        remove_folder(&scratch);
        report
    }

    /// Runs checks and records their time.
    async fn run_timed(
        &self,
        current: &Loop,
        runner: &CheckRunner,
        phase: &'static str,
        (tree, home): (&Path, &Path),
        checks: &[Check],
        cancel: &CancellationToken,
    ) -> Result<CheckReport, EffectError> {
        let watch = Stopwatch::start();
        let mut report = runner.run_all(tree, home, checks, cancel).await;
        if let Ok(report) = &mut report {
            current.apply_objections(report);
            self.metrics.check_run(phase, report.all_hold(), watch.elapsed().as_secs_f64());
        }
        report.map_err(|error| match error {
            ChecksError::Cancelled { .. } => EffectError::Stopped { why: error.to_string() },
            ChecksError::NoTree(_) | ChecksError::Scratch { .. } => {
                EffectError::Retry { after_ms: None, ambiguous: true, why: error.to_string() }
            }
            ChecksError::Start { .. } => EffectError::Permanent { why: error.to_string() },
        })
    }

    async fn check(
        &self,
        repo: &RepoRef,
        current: &Loop,
        ticket: u64,
        purpose: CheckPurpose,
        commit: &Sha,
        cancel: &CancellationToken,
    ) -> Result<Receipt, EffectError> {
        match purpose {
            CheckPurpose::Clean => return self.verify(repo, current, ticket, commit, cancel).await,
            CheckPurpose::Proposals => return self.try_proposals(repo, current, ticket, commit, cancel).await,
            CheckPurpose::Baseline | CheckPurpose::Iteration => {}
        }
        if purpose == CheckPurpose::Baseline {
            self.note_found_tests(repo, current, commit).await?;
        }
        let view = self.workspaces.agent_view(&current.id, repo);
        if !view.tree.is_dir() {
            self.fresh_tree(current, repo, commit, cancel).await?;
        }
        let phase = if purpose == CheckPurpose::Baseline { "baseline" } else { "iteration" };
        let (of, place) = ((repo, current), (view.tree.as_path(), view.read_only.as_slice()));
        let mut report = self.run_checks(of, phase, place, &current.checks.list, cancel).await?;
        if purpose == CheckPurpose::Baseline {
            let retried = current.checks_to_retry(&report);
            if !retried.is_empty() {
                let again = self.run_checks(of, phase, place, &retried, cancel).await?;
                report = report.run_twice(again);
            }
        }
        let text = format!("{} of {} hold", report.held(), report.outcomes.len());
        Ok(Receipt::outcome(text, ticket, WorkOutcome::Checked { report }))
    }

    /// Returns the common prefix of the cookies that identify the processes of a loop.
    pub(super) fn cookie_of(&self, id: &LoopId) -> String {
        format!("{}-{id}", self.instance)
    }

    /// Ends processes left by earlier runs of the loop.
    async fn end_processes(&self, current: &Loop) {
        let left = process::end_survivors(&self.cookie_of(&current.id), SURVIVOR_GRACE).await;
        if left > 0 {
            tracing::error!(loop_id = %current.id, left, "processes of the loop could not be ended");
        }
    }

    /// Returns 32 random bits for ids and nonces.
    pub(super) fn random(&self) -> u32 {
        (uuid::Uuid::now_v7().as_u128() & u128::from(u32::MAX)) as u32
    }
}

/// Returns the receipt of a work effect whose repository accepts no changes.
fn unavailable(effect: &WorkEffect, why: String) -> Receipt {
    match effect.ticket() {
        Some(ticket) => Receipt::outcome(why.clone(), ticket, WorkOutcome::RepositoryUnavailable { why }),
        None => Receipt::text(why),
    }
}

/// Identifies a run of the agent.
struct Attempt {
    ticket: u64,
    /// 1-based number of the iteration; 0 for a plan.
    iteration: u32,
    attempt: u32,
}

impl Attempt {
    /// Whether the run makes a plan.
    fn plans(&self) -> bool {
        self.iteration == 0
    }
}

enum FileReading {
    None,
    Read(String, Box<RepositorySettings>),
    Broken(String, Vec<String>),
}

impl From<WorkspaceError> for EffectError {
    fn from(error: WorkspaceError) -> Self {
        let why = error.to_string();
        if error.is_transient() {
            Self::Retry { after_ms: None, ambiguous: true, why }
        } else {
            Self::Permanent { why }
        }
    }
}

/// Reads a small text file; `None` if it is missing, a link, or too large.
fn small_file(path: &Path) -> Option<String> {
    let text = untrusted::read_text(path, DETECTED_FROM as u64 + 1)?;
    (text.len() <= DETECTED_FROM).then_some(text)
}

fn remove_folder(path: &Path) {
    if let Err(error) = std::fs::remove_dir_all(path)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        tracing::debug!(path = %path.display(), %error, "a scratch folder stays until the reaper comes");
    }
}
