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
pub(super) mod handover;
pub mod hooks;
pub(super) mod images;
mod lost_runs;
mod prepare;
pub(super) mod program_question;
mod program_tests;
mod project;
pub(super) mod prompt_inputs;
mod proposed_checks;
mod roles;
mod run_monitor;
mod run_outcome;
mod run_records;
pub(super) mod second_opinion;
mod selected_backend;
mod session_files;
mod suggestions;
mod test_data;
mod verify;

use std::path::Path;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use crate::checks::CheckRunner;
use crate::config::HookProgram;
use crate::domain::lifecycle::effect::{CheckPurpose, Effect, WorkEffect};
use crate::domain::loops::{ForgeInput, Loop, LoopInput, WorkOutcome};
use crate::domain::model::ids::{Money, RepoRef};
use crate::engine::claim::HeldClaim;
use crate::engine::context::ServiceContext;
use crate::engine::executor::Executor;
use crate::engine::forges::Forges;
use crate::engine::forges::account::ForgeAccount;
use crate::engine::forges::repository_access::RepositoryAccess;
use crate::engine::git_access::ForgeGit;
use crate::engine::intake::Intake;
use crate::engine::intake::page::page_is_stored;
use crate::engine::programs::Programs;
use crate::engine::providers::Calls;
use crate::engine::receipt::{EffectError, Receipt, effect_context, loop_of};
use crate::engine::settings::LoopFolders;
use crate::engine::work::handover::Handover;
use crate::engine::work::images::Images;
use crate::engine::work::lost_runs::outdated;
use crate::engine::work::prompt_inputs::Prompts;
use crate::engine::work::second_opinion::Opinions;
use crate::process::untrusted;
use crate::store::StoreError;
use crate::store::leases::LeaseToken;
use crate::store::outbox::ClaimedEffect;
use crate::workspace::{WorkspaceError, Workspaces};

/// Maximum size of a file that is read to detect checks, in bytes.
const DETECTED_FROM: usize = 256 * 1024;
/// Time limit of one setup command, in seconds.
const SETUP_TIMEOUT_S: u64 = 1800;

/// Sets up work trees, runs checks and hooks, and verifies commits.
pub struct Verification {
    pub(super) context: ServiceContext,
    /// Git mirrors and work trees.
    pub workspaces: Arc<Workspaces>,
    /// Runner of checks.
    pub(super) checks: CheckRunner,
    /// Sandbox, network and folders of programs.
    pub programs: Arc<Programs>,
    /// Hooks of the operator.
    pub(super) hooks: Vec<HookProgram>,
}

/// Runs agents.
pub struct Runs {
    pub(super) context: ServiceContext,
    pub(super) calls: Arc<Calls>,
    pub(super) verification: Arc<Verification>,
    pub(super) prompts: Prompts,
    pub(super) images: Images,
    /// Folders of sessions and logs.
    pub folders: LoopFolders,
}

/// Prepares, commits, merges and pushes the branches of loops.
pub(super) struct Branches {
    pub(super) context: ServiceContext,
    pub(super) forges: Arc<Forges>,
    pub(super) git: ForgeGit,
    pub(super) verification: Arc<Verification>,
    pub(super) runs: Arc<Runs>,
    pub(super) intake: Arc<Intake>,
}

/// Executes work effects.
pub struct Work {
    pub(super) executor: Arc<Executor>,
    pub(super) forges: Arc<Forges>,
    pub(super) verification: Arc<Verification>,
    pub(super) branches: Branches,
    pub(super) runs: Arc<Runs>,
    pub(super) opinions: Opinions,
    pub(super) handover: Handover,
}

impl Work {
    /// Executes one work effect and records its outcome; returns `true` if there was one. For tests and simulation.
    pub async fn work_step(&self) -> Result<bool, StoreError> {
        let Some(claimed) = self.executor.leases.claim_work().await? else { return Ok(false) };
        self.do_work(claimed).await?;
        Ok(true)
    }

    /// Executes a work effect and records its outcome.
    pub(super) async fn do_work(&self, claimed: HeldClaim) -> Result<(), StoreError> {
        let context = effect_context(&claimed);
        let outcome = self.work(&claimed, &claimed.cancel).instrument(context.clone()).await;
        if claimed.is_lost() || self.executor.context.stopping.is_cancelled() && claimed.cancel.is_cancelled() {
            return self.executor.leases.hand_over(claimed, true).await;
        }
        self.executor.record(claimed, outcome).instrument(context).await
    }

    /// Executes a work effect, and with its outcome records the step of its loop and the claim of the next work effect, which is
    /// returned. For processes that step loops.
    pub(super) async fn do_work_and_claim(&self, claimed: HeldClaim) -> Result<Option<HeldClaim>, StoreError> {
        let context = effect_context(&claimed);
        let outcome = self.work(&claimed, &claimed.cancel).instrument(context.clone()).await;
        if claimed.is_lost() {
            return self.executor.leases.hand_over(claimed, true).await.map(|()| None);
        }
        if self.executor.context.stopping.is_cancelled() {
            let ended = match claimed.cancel.is_cancelled() {
                true => self.executor.leases.hand_over(claimed, true).await,
                false => self.executor.record(claimed, outcome).instrument(context).await,
            };
            return ended.map(|()| None);
        }
        self.executor.record_and_claim(claimed, outcome).instrument(context).await
    }

    async fn work(&self, claimed: &ClaimedEffect, cancel: &CancellationToken) -> Result<Receipt, EffectError> {
        let Effect::Work(effect) = &claimed.effect else { return Err(EffectError::wrong_lane(claimed)) };
        let current = loop_of(&self.executor.context.store, claimed).await?;
        if claimed.abandoned {
            self.verification.programs.end_processes(&current).await;
        }
        if effect.ticket().is_some_and(|ticket| ticket != current.run.ticket) {
            let lease = claimed.token(&self.executor.leases.owner.name());
            return outdated(&self.runs.calls, claimed, effect, &current, &lease).await;
        }
        let account = self.forges.account(&claimed.place.repo)?;
        let repo = match self.work_repository(account, claimed, effect).await? {
            RepositoryAccess::Usable(repo) => repo,
            RepositoryAccess::Unusable { why } => return Ok(unavailable(effect, why)),
        };
        page_is_stored(&self.executor.context, account, &repo, effect, &current).await?;
        let mut outcome = self.perform(account, claimed, effect, &repo, &current, cancel).await;
        if let Ok(receipt) = &mut outcome
            && !matches!(effect, WorkEffect::Release { .. } | WorkEffect::HooksAfterEnd { .. })
        {
            receipt.saved = self.handover.unsaved(&repo, &current).await;
        }
        let outcome = self.explained(account, effect, &repo, outcome).await;
        match outcome {
            // The loop is informed of a permanent failure, so that it does not wait forever.
            Err(EffectError::Permanent { why }) => match effect.ticket() {
                Some(ticket) => {
                    let mut advice = "fix the cause, then `/ralph resume`".to_owned();
                    if self.executor.context.store.is_server() {
                        advice = format!("{advice}; the work failed on the host {}", self.executor.leases.host.name);
                    }
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
        let moved = self.handover.arrive(account, repo, current, effect).await?;
        if (moved || !self.verification.workspaces.has_tree(&current.id, repo))
            && !makes_its_own
            && let Some(receipt) = self.recreate_tree(account, repo, current, effect).await?
        {
            return Ok(receipt);
        }
        let lease = claimed.token(&self.executor.leases.owner.name());
        let attempt_of = |ticket, iteration, attempt| Attempt {
            ticket,
            iteration,
            attempt,
            lease: lease.clone(),
            was_started: claimed.attempts > 0,
        };
        match effect {
            WorkEffect::Prepare { ticket } => self.branches.prepare(account, repo, current, *ticket, cancel).await,
            WorkEffect::Check { ticket, purpose: CheckPurpose::Proposals, commit } => {
                self.runs.try_proposals(repo, current, *ticket, &lease, commit, cancel).await
            }
            WorkEffect::Check { ticket, purpose, commit } => {
                self.verification.check(repo, current, *ticket, *purpose, commit, cancel).await
            }
            WorkEffect::Plan { ticket, attempt } => {
                self.runs.agent(account, repo, current, attempt_of(*ticket, 0, *attempt), cancel).await
            }
            WorkEffect::Agent { .. } if current.knowledge.lacks_approval() => {
                Err(EffectError::Permanent { why: "the loop has no approved plan to implement".into() })
            }
            WorkEffect::Agent { ticket, iteration, attempt } => {
                self.runs.agent(account, repo, current, attempt_of(*ticket, *iteration, *attempt), cancel).await
            }
            WorkEffect::Commit { ticket, iteration } => self.branches.commit(repo, current, *ticket, *iteration).await,
            WorkEffect::Push { ticket, commit } => self.branches.push(account, repo, current, *ticket, commit).await,
            WorkEffect::Merge { ticket, other } => {
                self.branches.merge(account, repo, current, *ticket, other.as_ref()).await
            }
            WorkEffect::Restore { ticket, iteration, to } => {
                self.branches.restore(repo, current, *ticket, *iteration, to).await
            }
            WorkEffect::SecondOpinion { ticket, commit } => {
                self.opinions.second_opinion(claimed, &lease, repo, current, (*ticket, commit), cancel).await
            }
            WorkEffect::ApplySuggestions { ticket, changes, .. } => {
                self.branches.apply_suggestions(repo, current, *ticket, changes, cancel).await
            }
            WorkEffect::Hooks { ticket, event } => {
                self.verification.hooks(repo, current, (*ticket, *event), cancel).await
            }
            WorkEffect::HooksAfterEnd { version } => {
                self.verification.hooks_after_end(repo, current, *version, cancel).await
            }
            WorkEffect::Release { delete_branch } => {
                self.verification.programs.end_processes(current).await;
                let asked = self.runs.prompts.last_questions(current, &lease, cancel).await?;
                if let Some(tip) = current.branch.pushed.as_ref().filter(|_| *delete_branch) {
                    let access = self.branches.git.git_url(account, repo, true).await?;
                    self.verification.workspaces.delete_branch(repo, &access, &current.branch.name, tip).await?;
                }
                self.runs.forget_sessions(current);
                self.runs.images.forget_images(current);
                self.verification.workspaces.release(&current.id, repo).await?;
                self.handover.forget(current, &lease).await?;
                let input = (asked > Money(0)).then_some(WorkOutcome::AskedAtEnd { cost: asked });
                let input = input.map(|outcome| LoopInput::Outcome { ticket: 0, outcome });
                Ok(Receipt { input, ..Receipt::text("tree released") })
            }
        }
    }

    /// Creates the missing tree of a loop again from its branch. Returns the outcome of an effect whose files are lost.
    async fn recreate_tree(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        current: &Loop,
        effect: &WorkEffect,
    ) -> Result<Option<Receipt>, EffectError> {
        let Some(head) = &current.branch.head else { return Ok(None) };
        tracing::info!(loop_id = %current.id, "the work tree is missing; the service recreates it from the loop's branch");
        self.branches.tree_at_head(account, repo, current).await?;
        // The files of the run were in the missing tree.
        let WorkEffect::Commit { ticket, .. } = effect else { return Ok(None) };
        match current.branch.merging().filter(|merging| merging.conflicts.is_empty()) {
            // The merge needed no agent and is repeated.
            Some(merging) => {
                self.verification.workspaces.merge_base_into(&current.id, repo, head, &merging.other).await?;
                Ok(None)
            }
            None => {
                let lost = WorkOutcome::AgentLost { salvaged: None, cost: Money(0), before_start: false };
                Ok(Some(Receipt::outcome("the run's files are lost", *ticket, lost)))
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
            return self.forges.place(account, &claimed.place.repo, effect.creates_on_forge()).await;
        }
        Ok(RepositoryAccess::Usable(self.forges.present_name(&claimed.place.repo).await?))
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
        match self.forges.place(account, repo, true).await {
            Ok(RepositoryAccess::Usable(now)) if now.full_name() != repo.full_name() => {
                let why = format!("{} is {} now", repo.full_name(), now.full_name());
                Err(EffectError::Retry { after_ms: Some(0), ambiguous: true, why })
            }
            Ok(RepositoryAccess::Unusable { why }) => Ok(unavailable(effect, why)),
            _ => outcome,
        }
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
    /// Acquisition of the lease under which the run writes.
    lease: LeaseToken,
    /// Whether an earlier process had started the run.
    was_started: bool,
}

impl Attempt {
    /// Whether the run makes a plan.
    fn plans(&self) -> bool {
        self.iteration == 0
    }
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
        tracing::debug!(path = %path.display(), %error, "could not delete a scratch folder; the reaper deletes it later");
    }
}
