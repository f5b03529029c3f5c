//! Work effects: trees, agents, checks, commits, pushes. Long, stoppable, and safe to begin again after a crash.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::executor::{Failure, Receipt};
use super::{Engine, ForgeSeat};
use crate::agent::{AgentOutcome, AgentRun, AgentStatus};
use crate::checks::ChecksError;
use crate::config;
use crate::domain::control::ModelTier;
use crate::domain::effect::{CheckPurpose, Effect, Lane};
use crate::domain::ids::{LoopId, Money, RepoRef, Sha, Timestamp};
use crate::domain::lifecycle::{AgentEnd, AgentRunFacts, Change, Input, Loop, Prepared};
use crate::domain::permit::Verdict;
use crate::domain::policy::{Policy, ProtectedPolicy, RepositorySettings};
use crate::domain::task::{Check, CheckRule, CheckSource};
use crate::domain::{criteria, prompt, tamper};
use crate::failpoint::kill_point;
use crate::process::{self, Cookie, Masker};
use crate::store::outbox::{self, Claimed};
use crate::store::{StoreError, leases};
use crate::workspace::{
    CommitInfo, CommitRequest, GitUrl, MergeOutcome, PrepareTree, PushOutcome, PushRequest, WorkspaceError,
};

/// Files of a change above which a person has to look before it is pushed.
const MAX_CHANGED_FILES: usize = 100;

use crate::config::repository::REPOSITORY_FILES;
/// Files that checks are found from.
const DETECTED_FROM: usize = 256 * 1024;
/// How long processes of a lost run get before they are killed.
const SURVIVOR_GRACE: Duration = Duration::from_secs(1);
/// Limit of one setup command, in seconds.
const SETUP_TIMEOUT_S: u64 = 1800;

/// Work that runs in this process.
pub(super) struct Running {
    pub claimed: Claimed,
    pub cancel: CancellationToken,
}

impl Engine {
    /// Takes work on, where some is due.
    pub(super) async fn take_work(&self) -> Result<Option<Running>, StoreError> {
        let claimed = self.claim(Lane::Work).await?;
        Ok(claimed.map(|claimed| Running { claimed, cancel: CancellationToken::new() }))
    }

    /// Does one piece of work to its end and records it; `true` where there was one. For tests and simulation.
    pub async fn work_step(&self) -> Result<bool, StoreError> {
        let Some(running) = self.take_work().await? else { return Ok(false) };
        self.do_work(running).await?;
        Ok(true)
    }

    /// Does a piece of work and records what came of it.
    pub(super) async fn do_work(&self, running: Running) -> Result<(), StoreError> {
        let Running { claimed, cancel } = running;
        let outcome = self.work(&claimed, &cancel).await;
        if self.stopping.is_cancelled() && cancel.is_cancelled() {
            return self.hand_over(claimed).await;
        }
        self.record(claimed, outcome).await
    }

    /// The service stops: whoever comes next finds the work begun, and begins it again.
    async fn hand_over(&self, claimed: Claimed) -> Result<(), StoreError> {
        let (owner, now) = (self.owner.name(), self.clock.now());
        let given = self
            .store
            .write(move |c| {
                outbox::put_back(c, &claimed, &owner, now, true, "the service stopped")?;
                leases::release(c, &claimed.lease(), &owner, claimed.fence)
            })
            .await;
        match given {
            Err(StoreError::Fenced { .. }) => Ok(()),
            other => other,
        }
    }

    async fn work(&self, claimed: &Claimed, cancel: &CancellationToken) -> Result<Receipt, Failure> {
        let current = self.current(claimed).await?;
        if claimed.abandoned {
            self.end_processes(&current).await;
        }
        if claimed.effect.ticket().is_some_and(|ticket| ticket != current.ticket) {
            return Err(Failure::Stopped { why: "nobody waits for it any more".into() });
        }
        let seat = self.seat(&claimed.place.repo)?;
        let repo = self.present_name(&claimed.place.repo).await?;
        let outcome = match &claimed.effect {
            Effect::Prepare { ticket } => self.prepare(seat, &repo, &current, *ticket, cancel).await,
            Effect::Check { ticket, purpose, commit } => {
                self.check(&repo, &current, *ticket, *purpose, commit, cancel).await
            }
            Effect::Agent { ticket, iteration, attempt } => {
                let run = Attempt { ticket: *ticket, iteration: *iteration, attempt: *attempt };
                self.agent(claimed, &repo, &current, run, cancel).await
            }
            Effect::Commit { ticket, iteration } => self.commit(&repo, &current, *ticket, *iteration).await,
            Effect::Push { ticket, commit } => self.push(seat, &repo, &current, *ticket, commit).await,
            Effect::Merge { ticket, other } => self.merge(seat, &repo, &current, *ticket, other.as_ref()).await,
            Effect::Restore { ticket, iteration, to } => self.restore(&repo, &current, *ticket, *iteration, to).await,
            Effect::Release { delete_branch } => {
                self.end_processes(&current).await;
                if let Some(tip) = current.pushed.as_ref().filter(|_| *delete_branch) {
                    let access = self.git_url(seat, &repo, true).await?;
                    self.workspaces.delete_branch(&repo, &access, &current.branch, tip).await?;
                }
                self.workspaces.release(&current.id, &repo).await?;
                Ok(Receipt::text("tree released"))
            }
            other => Err(Failure::Never { why: format!("{other:?} is no work") }),
        };
        match outcome {
            // What will never work is told to the loop; a loop must not wait for ever.
            Err(Failure::Never { why }) => match claimed.effect.ticket() {
                Some(ticket) => {
                    let advice = "mend the cause, then `/ralph resume`".to_owned();
                    Ok(Receipt::telling(why.clone(), Input::WorkFailed { ticket, reason: why, advice }))
                }
                None => Err(Failure::Never { why }),
            },
            other => other,
        }
    }

    /// What the loop is told where the person whose authority it runs on may not start one any more.
    async fn authority_lost(
        &self,
        seat: &ForgeSeat,
        repo: &RepoRef,
        current: &Loop,
    ) -> Result<Option<Receipt>, Failure> {
        match self.permitted_now(seat, repo, &current.authority).await? {
            Verdict::Allow => Ok(None),
            Verdict::Deny { reason, .. } => {
                let who = current.authority.login.clone();
                Ok(Some(Receipt::telling(reason, Input::AuthorityLost { who })))
            }
        }
    }

    async fn git_url(&self, seat: &ForgeSeat, repo: &RepoRef, push: bool) -> Result<GitUrl, Failure> {
        let access = seat.forge.git_access(repo, push).await?;
        Ok(GitUrl { url: access.url, credential: access.credential })
    }

    async fn prepare(
        &self,
        seat: &ForgeSeat,
        repo: &RepoRef,
        current: &Loop,
        ticket: u64,
        cancel: &CancellationToken,
    ) -> Result<Receipt, Failure> {
        if let Some(why) = &self.settings.sandbox_refusal {
            return Err(Failure::Never { why: why.clone() });
        }
        if let Some(lost) = self.authority_lost(seat, repo, current).await? {
            return Ok(lost);
        }
        self.end_processes(current).await;
        let facts = seat.forge.repository(repo).await?;
        if facts.archived {
            return Err(Failure::Never { why: format!("{} is archived and takes no changes", repo.full_name()) });
        }
        if facts.empty {
            return Err(Failure::Never { why: format!("{} is empty; push a first commit to it", repo.full_name()) });
        }
        let operator = self.settings.policy(&repo.forge);
        let access = self.git_url(seat, repo, false).await?;
        let partial = self.settings.partial_clone && seat.forge.capabilities().await?.partial_clone;
        let prepare = |base_branch: String, resume_at: Option<Sha>| {
            let access = access.clone();
            async move {
                let request = PrepareTree {
                    loop_id: &current.id,
                    repo,
                    access: &access,
                    base_branch: &base_branch,
                    branch: &current.branch,
                    resume_at: resume_at.as_ref(),
                    partial,
                };
                self.workspaces.prepare(request).await.map(|tree| (tree, base_branch))
            }
        };
        // The repository's file counts only as the default branch has it, whatever branch the work starts from.
        let (mut tree, mut base_branch) = prepare(facts.default_branch.clone(), current.head.clone()).await?;
        let settings = match self.repository_file(repo, &tree.base, &operator).await? {
            RepositoryFile::None => None,
            RepositoryFile::Read(path, settings) => Some((path, *settings)),
            RepositoryFile::Broken(path, problems) => {
                let input = Input::RepositoryFileBroken { ticket, path, problems };
                return Ok(Receipt::telling("the repository's file does not hold", input));
            }
        };
        let policy = settings.as_ref().map_or_else(|| operator.clone(), |(_, file)| operator.with_repository(file));
        let wanted = current.options.base.clone().or_else(|| policy.base.clone());
        if let Some(wanted) = wanted.filter(|wanted| *wanted != base_branch) {
            (tree, base_branch) = prepare(wanted, current.head.clone()).await?;
        }
        let notes = settings.as_ref().map_or_else(Vec::new, |(_, file)| operator.overruled(file));
        self.setup(current, &policy, &tree.dir, cancel).await?;
        let detected = criteria::detect(&|path: &str| small_file(&tree.dir.join(path)));
        let prepared = Prepared {
            base_branch,
            base: tree.base,
            head: tree.head,
            remote: tree.remote_branch,
            policy,
            notes,
            settings: settings.map(|(_, file)| file),
            detected,
            sandbox: self.settings.sandbox_words.clone(),
        };
        kill_point("K14");
        Ok(Receipt::telling("the tree is ready", Input::Prepared { ticket, tree: Box::new(prepared) }))
    }

    /// Reads and checks the repository's file at a commit.
    async fn repository_file(&self, repo: &RepoRef, at: &Sha, operator: &Policy) -> Result<RepositoryFile, Failure> {
        for &path in REPOSITORY_FILES {
            let Some(bytes) = self.workspaces.read_base_file(repo, at, path).await? else { continue };
            let text = String::from_utf8_lossy(&bytes);
            return Ok(match config::parse_repository(path, &text, operator) {
                Ok(settings) => RepositoryFile::Read(path.to_owned(), Box::new(settings)),
                Err(problems) => {
                    RepositoryFile::Broken(path.to_owned(), problems.iter().map(ToString::to_string).collect())
                }
            });
        }
        Ok(RepositoryFile::None)
    }

    /// Setup commands of operator and repository, in a tree that was just made.
    async fn setup(
        &self,
        current: &Loop,
        policy: &Policy,
        tree: &Path,
        cancel: &CancellationToken,
    ) -> Result<(), Failure> {
        if policy.setup.is_empty() {
            return Ok(());
        }
        let commands = policy.setup.iter().enumerate().map(|(n, command)| Check {
            name: format!("setup {}", n + 1),
            command: command.clone(),
            rule: CheckRule::ExitCode,
            source: CheckSource::RepositoryFile,
            timeout_s: SETUP_TIMEOUT_S,
            counts: None,
        });
        let commands: Vec<_> = commands.collect();
        let report = self.run_checks(current, tree, &[], &commands, cancel).await?;
        match report.outcomes.iter().find(|o| !o.holds) {
            None => Ok(()),
            Some(o) => Err(Failure::Never {
                why: format!(
                    "the setup command `{}` {}: {}",
                    o.command,
                    o.why,
                    o.output.lines().last().unwrap_or_default()
                ),
            }),
        }
    }

    async fn run_checks(
        &self,
        current: &Loop,
        tree: &Path,
        read_only: &[PathBuf],
        checks: &[Check],
        cancel: &CancellationToken,
    ) -> Result<crate::domain::task::CheckReport, Failure> {
        let mut runner = self.checks.clone();
        runner.read_only.extend_from_slice(read_only);
        runner.cookie = Some(Cookie::new(&self.instance, current.id.as_str(), 0));
        let scratch = self.settings.scratch.join(current.id.as_str()).join("checks");
        let report = runner.run_all(tree, &scratch, checks, cancel).await;
        remove_folder(&scratch);
        report.map_err(|error| match error {
            ChecksError::Cancelled { .. } => Failure::Stopped { why: error.to_string() },
            ChecksError::NoTree(_) | ChecksError::Scratch { .. } => {
                Failure::Later { after_ms: None, began: true, why: error.to_string() }
            }
            ChecksError::Start { .. } => Failure::Never { why: error.to_string() },
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
    ) -> Result<Receipt, Failure> {
        let report = if purpose == CheckPurpose::Clean {
            let checkout = self.workspaces.clean_checkout(repo, commit).await?;
            kill_point("K22");
            let setup = self.setup(current, &current.policy, &checkout.dir, cancel).await;
            let report = match setup {
                Ok(()) => self.run_checks(current, &checkout.dir, &checkout.read_only, &current.checks, cancel).await,
                Err(failure) => Err(failure),
            };
            kill_point("K23");
            self.workspaces.release_checkout(checkout).await?;
            report?
        } else {
            let view = self.workspaces.agent_view(&current.id, repo);
            if !view.tree.is_dir() {
                self.workspaces.reset(&current.id, repo, commit).await?;
            }
            self.run_checks(current, &view.tree, &view.read_only, &current.checks, cancel).await?
        };
        let text = format!("{} of {} hold", report.held(), report.outcomes.len());
        Ok(Receipt::telling(text, Input::Checked { ticket, report }))
    }

    /// What the marks of all processes of a loop begin with.
    pub(super) fn cookie_of(&self, id: &LoopId) -> String {
        format!("{}-{id}", self.instance)
    }

    /// Ends what earlier runs of the loop left behind.
    async fn end_processes(&self, current: &Loop) {
        let left = process::end_survivors(&self.cookie_of(&current.id), SURVIVOR_GRACE).await;
        if left > 0 {
            tracing::error!(loop_id = %current.id, left, "processes of the loop could not be ended");
        }
    }

    async fn agent(
        &self,
        claimed: &Claimed,
        repo: &RepoRef,
        current: &Loop,
        attempt: Attempt,
        cancel: &CancellationToken,
    ) -> Result<Receipt, Failure> {
        self.end_processes(current).await;
        let Attempt { ticket, iteration, attempt } = attempt;
        if claimed.attempts > 0 {
            let salvaged = self.workspaces.salvage(&current.id, repo).await.unwrap_or_default();
            return Ok(Receipt::telling("the run was lost", Input::AgentLost { ticket, salvaged }));
        }
        let name = self.backend_of(current);
        let Some(backend) = self.backends.get(name) else {
            let known: Vec<_> = self.backends.keys().map(String::as_str).collect();
            let reason = format!("no backend `{name}` is configured; there is {}", known.join(", "));
            return Ok(Receipt::telling(reason.clone(), Input::AgentEnded { ticket, run: Box::new(no_run(reason)) }));
        };
        let Some(head) = &current.head else {
            return Err(Failure::Never { why: "the loop has no commit to work on".into() });
        };
        self.workspaces.reset(&current.id, repo, head).await?;
        if let Some(merging) = &current.merging {
            self.workspaces.merge_base_into(&current.id, repo, head, &merging.other).await?;
        }
        let scratch = self.settings.scratch.join(current.id.as_str()).join(format!("run-{iteration}-{attempt}"));
        remove_folder(&scratch);
        std::fs::create_dir_all(&scratch).map_err(|e| io_failure("make", &scratch, &e))?;
        let nonce = format!("{:08x}{:08x}", self.random(), self.random());
        let report_path = crate::agent::report_path(&scratch);
        let view = prompt::view(current, &nonce, &report_path.display().to_string());
        let prompt = self.renderer.prompt(&view).map_err(|e| Failure::Never { why: e.to_string() })?;
        let seen = self.workspaces.agent_view(&current.id, repo);
        let left_ms = (current.limits.time_ms - current.spent.time_at(self.clock.now())).max(1000);
        let limits = current.policy.agent;
        let course = current.course.as_ref();
        let effort = course.map_or(1.0, |course| course.effort);
        let wall = Duration::from_secs(limits.wall_s).mul_f64(effort).min(Duration::from_millis(left_ms as u64));
        let tier = course.map_or(ModelTier::Default, |course| course.model);
        let run = AgentRun {
            prompt: prompt.clone(),
            tree: seen.tree,
            read_only: seen.read_only,
            scratch: scratch.clone(),
            loop_id: current.id.to_string(),
            iteration,
            model: self.settings.models.get(name).and_then(|models| models.of(tier)).cloned(),
            wall,
            idle: Duration::from_secs(limits.idle_s),
            max_turns: limits.turns.map(|turns| (f64::from(turns) * effort).round().max(1.0) as u32),
            max_cost: (current.limits.cost > Money(0))
                .then(|| Money((current.limits.cost.0 - current.spent.cost.0).max(0))),
            cookie: Cookie::new(&self.instance, current.id.as_str(), attempt),
            sandboxed: self.settings.sandboxed,
            network: self.settings.agent_network,
        };
        kill_point("K15");
        let outcome = backend.run(run, cancel, &mut |_event| {}).await;
        kill_point("K18");
        let cost = outcome.cost.unwrap_or_default().usd();
        self.metrics.agent_run(name, outcome_word(&outcome.status), outcome.duration_ms as f64 / 1000.0, cost);
        self.keep_log(current, iteration, attempt, &prompt, &outcome);
        remove_folder(&scratch);
        Ok(Receipt::telling(
            format!("{:?}", outcome.status),
            Input::AgentEnded { ticket, run: Box::new(facts(outcome)) },
        ))
    }

    /// Prompt and output of a run stay on disk, for people; a full disk loses them, not the run.
    fn keep_log(&self, current: &Loop, iteration: u32, attempt: u32, prompt: &str, outcome: &AgentOutcome) {
        let folder = self.settings.logs.join(current.id.as_str());
        let write = || -> std::io::Result<()> {
            std::fs::create_dir_all(&folder)?;
            std::fs::write(folder.join(format!("{iteration:03}-{attempt}.prompt.md")), prompt)?;
            std::fs::write(folder.join(format!("{iteration:03}-{attempt}.log")), &outcome.output)
        };
        if let Err(error) = write() {
            tracing::warn!(folder = %folder.display(), %error, "prompt and output could not be kept");
        }
    }

    async fn commit(&self, repo: &RepoRef, current: &Loop, ticket: u64, iteration: u32) -> Result<Receipt, Failure> {
        let (Some(parent), Some(base)) = (&current.head, &current.base) else {
            return Err(Failure::Never { why: "the loop has no commit to work on".into() });
        };
        let message = self.commit_message(repo, current, iteration).await;
        let protected = &current.policy.protected;
        let none: [String; 0] = [];
        let extra = if protected.policy == ProtectedPolicy::Restore { &protected.paths[..] } else { &none[..] };
        let request = CommitRequest {
            loop_id: &current.id,
            repo,
            parent,
            merge_parent: current.merging.as_ref().map(|m| &m.other),
            message: &message,
            protected_base: current.merging.as_ref().map_or(base, |m| &m.other),
            extra_protected: extra,
        };
        let info = self.workspaces.commit(request).await?;
        kill_point("K21");
        let findings = tamper::scan(&info.diff, &tamper::TamperContext::default());
        let blocked = blocked(&info, protected.policy, &protected.paths);
        let change = Change {
            commit: info.commit,
            tree: info.tree,
            stat: info.stat,
            restored: info.restored,
            findings,
            conflict_markers: info.conflict_markers,
            blocked,
        };
        let text = change.commit.as_ref().map_or("nothing changed".to_owned(), ToString::to_string);
        Ok(Receipt::telling(text, Input::Committed { ticket, change: Box::new(change) }))
    }

    /// Puts the files of an earlier commit back, as a commit on top of all others.
    async fn restore(
        &self,
        repo: &RepoRef,
        current: &Loop,
        ticket: u64,
        iteration: u32,
        to: &Sha,
    ) -> Result<Receipt, Failure> {
        let Some(head) = &current.head else {
            return Err(Failure::Never { why: "the loop has no commit to go back from".into() });
        };
        self.workspaces.reset(&current.id, repo, to).await?;
        let what = match iteration {
            0 => "the state before the first iteration".to_owned(),
            best => format!("the state of iteration {best}"),
        };
        let message = format!("ralph: back to {what}\n\nRalph-Loop: {}\n", current.id);
        let request = CommitRequest {
            loop_id: &current.id,
            repo,
            parent: head,
            merge_parent: None,
            message: &message,
            protected_base: to,
            extra_protected: &[],
        };
        let info = self.workspaces.commit(request).await?;
        Ok(Receipt::telling(what, Input::Restored { ticket, commit: info.commit }))
    }

    async fn commit_message(&self, repo: &RepoRef, current: &Loop, iteration: u32) -> String {
        let report = current.current().map(|i| i.report.summary.trim()).filter(|s| !s.is_empty());
        let own = self.workspaces.agent_messages(&current.id, repo).await;
        let summary = report.map(str::to_owned).or_else(|| own.last().cloned());
        let summary = summary.unwrap_or_else(|| current.task.title.clone());
        let first: String =
            summary.lines().next().unwrap_or_default().chars().filter(|c| !c.is_control()).take(100).collect();
        let by = &current.requested_by;
        format!(
            "ralph: iteration {iteration}: {first}\n\nRalph-Loop: {}\nCo-authored-by: {} <{}+{}@users.noreply.{}>\n",
            current.id,
            by.login,
            by.id,
            by.login,
            host_of(&current.task.url),
        )
    }

    async fn push(
        &self,
        seat: &ForgeSeat,
        repo: &RepoRef,
        current: &Loop,
        ticket: u64,
        commit: &Sha,
    ) -> Result<Receipt, Failure> {
        if let Some(lost) = self.authority_lost(seat, repo, current).await? {
            return Ok(lost);
        }
        let access = self.git_url(seat, repo, true).await?;
        let request =
            PushRequest { repo, access: &access, branch: &current.branch, commit, expected: current.pushed.as_ref() };
        match self.workspaces.push(request).await? {
            PushOutcome::Pushed | PushOutcome::AlreadyThere => {
                kill_point("K24");
                Ok(Receipt::telling("pushed", Input::Pushed { ticket, commit: commit.clone() }))
            }
            PushOutcome::Rejected { remote, reason } => {
                let reason = format!("`{}`: {reason}", current.branch);
                Ok(Receipt::telling(reason.clone(), Input::PushRejected { ticket, remote, reason }))
            }
        }
    }

    async fn merge(
        &self,
        seat: &ForgeSeat,
        repo: &RepoRef,
        current: &Loop,
        ticket: u64,
        other: Option<&Sha>,
    ) -> Result<Receipt, Failure> {
        let Some(head) = &current.head else {
            return Err(Failure::Never { why: "the loop has no commit to merge with".into() });
        };
        let access = self.git_url(seat, repo, false).await?;
        let request = PrepareTree {
            loop_id: &current.id,
            repo,
            access: &access,
            base_branch: &current.base_branch,
            branch: &current.branch,
            resume_at: Some(head),
            partial: self.settings.partial_clone && seat.forge.capabilities().await?.partial_clone,
        };
        let tree = self.workspaces.prepare(request).await?;
        // Where people pushed again meanwhile, their newest commit holds the one that was seen.
        let other = match other {
            Some(seen) => tree.remote_branch.unwrap_or_else(|| seen.clone()),
            None => tree.base,
        };
        self.workspaces.reset(&current.id, repo, head).await?;
        let (conflicts, up_to_date) = match self.workspaces.merge_base_into(&current.id, repo, head, &other).await? {
            MergeOutcome::UpToDate => (Vec::new(), true),
            MergeOutcome::Clean { .. } => (Vec::new(), false),
            MergeOutcome::Conflict { files } => (files, false),
        };
        Ok(Receipt::telling("merged into the tree", Input::Merged { ticket, other, conflicts, up_to_date }))
    }

    /// 32 random bits, for ids and nonces.
    pub(super) fn random(&self) -> u32 {
        (uuid::Uuid::now_v7().as_u128() & u128::from(u32::MAX)) as u32
    }
}

/// Which run of the agent.
struct Attempt {
    ticket: u64,
    iteration: u32,
    attempt: u32,
}

enum RepositoryFile {
    None,
    Read(String, Box<RepositorySettings>),
    Broken(String, Vec<String>),
}

impl From<WorkspaceError> for Failure {
    fn from(error: WorkspaceError) -> Self {
        let why = error.to_string();
        if error.is_transient() { Self::Later { after_ms: None, began: true, why } } else { Self::Never { why } }
    }
}

fn io_failure(what: &str, path: &Path, error: &std::io::Error) -> Failure {
    Failure::Later { after_ms: None, began: true, why: format!("could not {what} {}: {error}", path.display()) }
}

/// Why a change must not be pushed before a person has looked at it, if so.
fn blocked(info: &CommitInfo, policy: ProtectedPolicy, paths: &[String]) -> Option<String> {
    if info.changed_files > MAX_CHANGED_FILES {
        return Some(format!("the change touches {} files, more than {MAX_CHANGED_FILES}", info.changed_files));
    }
    if info.diff_truncated {
        return Some("the change is larger than 4 MiB".into());
    }
    if !info.oversized.is_empty() {
        return Some(format!("the change holds large binary files: {}", info.oversized.join(", ")));
    }
    let secrets = Masker::default();
    let added = info.diff.lines().filter(|l| l.starts_with('+') && !l.starts_with("+++"));
    if let Some(line) = added.into_iter().find(|line| secrets.mask(line) != *line) {
        return Some(format!(
            "the change seems to hold a secret: `{}`",
            secrets.mask(line.trim_start_matches('+').trim())
        ));
    }
    if policy == ProtectedPolicy::Block {
        let globs: Vec<_> =
            paths.iter().filter_map(|p| globset::Glob::new(p).ok()).map(|g| g.compile_matcher()).collect();
        let hit = info.stat.files.iter().find(|f| globs.iter().any(|g| g.is_match(&f.path)));
        return hit.map(|file| format!("the change touches the protected file `{}`", file.path));
    }
    None
}

fn no_run(reason: String) -> AgentRunFacts {
    AgentRunFacts {
        end: AgentEnd::Unavailable { reason },
        report: None,
        message: String::new(),
        cost: None,
        tokens_in: 0,
        tokens_out: 0,
        tool_calls: 0,
        tool_errors: 0,
        duration_ms: 0,
    }
}

fn facts(outcome: AgentOutcome) -> AgentRunFacts {
    let end = match outcome.status {
        AgentStatus::Finished => AgentEnd::Finished,
        AgentStatus::Failed { reason } => AgentEnd::Failed { reason },
        AgentStatus::TimedOut { what } => AgentEnd::TimedOut { what },
        AgentStatus::Cancelled => AgentEnd::Cancelled,
        AgentStatus::Unavailable { reason } => AgentEnd::Unavailable { reason },
        AgentStatus::Limited { until_ms, reason } => AgentEnd::Limited { until: until_ms.map(Timestamp), reason },
        AgentStatus::OverBudget => AgentEnd::OverBudget,
    };
    AgentRunFacts {
        end,
        report: outcome.report,
        message: outcome.final_message,
        cost: outcome.cost,
        tokens_in: outcome.tokens_in,
        tokens_out: outcome.tokens_out,
        tool_calls: outcome.tool_calls,
        tool_errors: outcome.tool_errors,
        duration_ms: outcome.duration_ms,
    }
}

fn outcome_word(status: &AgentStatus) -> &'static str {
    match status {
        AgentStatus::Finished => "finished",
        AgentStatus::Failed { .. } => "failed",
        AgentStatus::TimedOut { .. } => "timed_out",
        AgentStatus::Cancelled => "cancelled",
        AgentStatus::Unavailable { .. } => "unavailable",
        AgentStatus::Limited { .. } => "limited",
        AgentStatus::OverBudget => "over_budget",
    }
}

/// A small text file; `None` where there is none, or a link, or a large one.
fn small_file(path: &Path) -> Option<String> {
    let facts = std::fs::symlink_metadata(path).ok()?;
    let plain = facts.is_file() && facts.len() <= DETECTED_FROM as u64;
    plain.then(|| std::fs::read_to_string(path).ok()).flatten()
}

fn remove_folder(path: &Path) {
    if let Err(error) = std::fs::remove_dir_all(path)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        tracing::debug!(path = %path.display(), %error, "a scratch folder stays until the reaper comes");
    }
}

fn host_of(url: &str) -> String {
    url::Url::parse(url).ok().and_then(|u| u.host_str().map(str::to_owned)).unwrap_or_else(|| "localhost".into())
}
