//! Prepares the work tree of a loop: its branch, the repository's settings, the environment and the facts that a start needs.

use failpoint::kill_point;
use tokio_util::sync::CancellationToken;

use super::environment::SetupContext;
use super::existing_pull::failed_ci_of_pull;
use super::small_file;
use crate::config;
use crate::config::repository::REPOSITORY_FILES;
use crate::domain::checks::criteria;
use crate::domain::loops::{ForgeInput, FoundBranch, Loop, LoopInput, PreparedTree, PullProblems, WorkOutcome};
use crate::domain::model::ids::{RepoRef, Sha, Timestamp};
use crate::domain::trust::permit::{Authorization, DenyAnswer};
use crate::domain::trust::policy::{Policy, RepositorySettings};
use crate::engine::forges::account::ForgeAccount;
use crate::engine::receipt::{EffectError, Receipt};
use crate::engine::work::Branches;
use crate::store::loops;
use crate::workspace::{PrepareTree, TreeInfo};

impl Branches {
    /// Returns the input for the loop if the person who authorized the loop has lost the permission; otherwise `None`.
    pub(in crate::engine) async fn authority_lost(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        current: &Loop,
    ) -> Result<Option<Receipt>, EffectError> {
        match self.forges.permitted_now(account, repo, &current.people.authority).await? {
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

    pub(in crate::engine) async fn prepare(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        current: &Loop,
        ticket: u64,
        cancel: &CancellationToken,
    ) -> Result<Receipt, EffectError> {
        if let Some(why) = &self.verification.programs.settings.sandbox.refusal {
            return Err(EffectError::Permanent { why: why.clone() });
        }
        if let Some(lost) = self.authority_lost(account, repo, current).await? {
            return Ok(lost);
        }
        self.verification.programs.end_processes(current).await;
        let facts = account.forge.repository(repo).await?;
        if let (Some(why), false) = (&self.verification.programs.settings.sandbox.refusal_of_public, facts.private) {
            return Err(EffectError::Permanent { why: why.clone() });
        }
        if facts.empty {
            return Err(EffectError::Permanent {
                why: format!("{} is empty; push a first commit to it", repo.full_name()),
            });
        }
        let operator = self.forges.settings.policy(&repo.forge);
        let access = self.git.git_url(account, repo, false).await?;
        let partial = self.git.partial_clone && account.forge.server_info().await?.partial_clone;
        let fork = self.git.fork_url(account, current, false).await?;
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
                self.verification.workspaces.prepare(request).await.map(|tree| (tree, base_branch))
            }
        };
        // The repository's file is read from the default branch, independently of the loop's base.
        let (mut tree, mut base_branch) = prepare(facts.default_branch.clone(), current.branch.head.clone()).await?;
        let settings = match self.repository_file(repo, &tree.base, &operator).await? {
            FileReading::None => None,
            FileReading::Read(path, settings) => Some((path, *settings)),
            FileReading::Broken(path, problems) => {
                let input =
                    LoopInput::Outcome { ticket, outcome: WorkOutcome::RepositoryFileBroken { path, problems } };
                return Ok(Receipt::with_input("the repository's file is invalid", input));
            }
        };
        let mut policy = settings.as_ref().map_or_else(|| operator.clone(), |(_, file)| operator.with_repository(file));
        self.verification.commit_rules(repo, &tree.base, &mut policy.commits).await;
        let (place, loops) = (repo.clone(), policy.limits.loops_per_repository);
        self.context.store.write(move |c| loops::set_repository_limit(c, &place, loops)).await?;
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
        let (policy, note) = self.verification.with_detected_setup(of, &tree).await?;
        notes.extend(note);
        self.verification.setup(SetupContext { policy: &policy, ..of }, &tree.dir, &tree.head).await?;
        let detected = criteria::detect(&|path: &str| small_file(&tree.dir.join(path)));
        let proposes = self.runs.proposes_checks(current, &policy, &tree.dir);
        let images = self.runs.images.images_of_issue(account, repo, current, cancel).await;
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
            estimates: self.runs.prompts.estimates(repo).await,
            past: self.runs.prompts.past_loops(repo).await,
            experience: self.runs.prompts.experience(repo).await,
            sandbox: self.verification.programs.settings.sandbox.words.clone(),
            proposals: self.runs.prompts.untold_proposals(current).await,
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
        self.intake.missed_reviews(account, repo, &current.id, current.issue.issue, Timestamp(0)).await?;
        let base = tree.fork.as_ref().unwrap_or(&tree.base).clone();
        let found = FoundBranch { head: tree.head.clone(), base };
        let conflict = self.git.conflicts_with_base(account, repo, current, &found.head).await?;
        Ok(Some(PullProblems { conflict, ..failed_ci_of_pull(account, repo, &found).await? }))
    }

    /// Reads and validates the repository's configuration file at a commit.
    async fn repository_file(&self, repo: &RepoRef, at: &Sha, operator: &Policy) -> Result<FileReading, EffectError> {
        let Some((path, bytes)) = self.verification.workspaces.base_file(repo, at, REPOSITORY_FILES).await? else {
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
}

enum FileReading {
    None,
    Read(String, Box<RepositorySettings>),
    Broken(String, Vec<String>),
}
