//! Engine of `ralph-bot local` on a data folder: starts, resumes and follows loops.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ralph_types::failure::Failure;
use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;

use super::next_steps::{Invocation, next_steps};
use super::progress::{LocalProgress, ProgressEvent, ProgressLine, TestFinding};
use super::records::LoopRecords;
use crate::app::{self, Application, Options};
use crate::cli::{CliError, print};
use crate::config::{Config, Env};
use crate::domain::lifecycle;
use crate::domain::loops::command::{self, LoopCommand};
use crate::domain::loops::{CommandInput, Loop, LoopInput, LoopStart, LoopState, LoopTask, RunOptions, TaskText};
use crate::domain::model::event::IssueSnapshot;
use crate::domain::model::ids::{IssueRef, LoopId, Number};
use crate::domain::trust::limits::Limits;
use crate::domain::trust::policy::Policy;
use crate::engine::Engine;
use crate::forge::local::Local;
use crate::store::{Store, StoreResult, loops};

/// Interval between two polls of a loop.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum wait for an interrupted loop to pause.
const PAUSE_WAIT: Duration = Duration::from_secs(5);
/// Maximum number of loops that are read from a database.
const MOST_LOOPS: usize = 100_000;
/// Maximum number of concurrent loops, which `--jobs` limits further.
pub(super) const MOST_JOBS: u32 = 64;

/// Engine that has not started yet.
pub(super) struct IdleEngine {
    engine: Engine,
    options: Options,
    /// Loops of the repository, newest first.
    pub known: Vec<Loop>,
}

/// Running engine.
pub(super) struct LocalSession<'a> {
    app: Application,
    forge: Arc<Local>,
    policy: Policy,
    data: &'a Path,
    invocation: Invocation,
    json: bool,
}

/// Returns all loops of a repository, newest first.
pub(super) async fn loops_of(store: &Store, forge: &Local) -> Result<Vec<Loop>, CliError> {
    let id = forge.repo().id;
    let all = store.read(|c| loops::list(c, false, MOST_LOOPS)).await;
    let all = all.map_err(|error| CliError::failed(Failure::new("could not read the loops").caused_by(error)))?;
    Ok(all.into_iter().filter(|known| known.issue.repo.id == id).collect())
}

/// Whether the engine continues the loop without a command.
fn is_active(current: &Loop) -> bool {
    matches!(current.state, LoopState::Queued | LoopState::Running | LoopState::Waiting)
}

/// Restores the issues and pull requests of the open loops, and returns all loops.
async fn restored(store: &Store, forge: &Local) -> Result<Vec<Loop>, CliError> {
    let known = loops_of(store, forge).await?;
    known.iter().filter(|known| known.state.is_open()).for_each(|known| forge.restore(known));
    Ok(known)
}

impl IdleEngine {
    /// Builds the engine and restores the issues and branches of earlier runs.
    pub(super) async fn build(config: &Config, env: &Env, forge: &Arc<Local>) -> Result<Self, CliError> {
        let options = Options { listen: false, extra_forges: vec![forge.clone()], ..Options::of(config) };
        let engine = app::build(config, env, &options).await;
        let engine = engine.map_err(|error| CliError::failed(Failure::new("could not start").caused_by(error)))?;
        let known = restored(&engine.store, forge).await?;
        Ok(Self { engine, options, known })
    }

    /// Starts the engine. Loops from an earlier run are paused, unless they are in `wanted`.
    pub(super) async fn start<'a>(
        self,
        config: &Config,
        forge: Arc<Local>,
        wanted: &[LoopId],
        (data, invocation, json): (&'a Path, Invocation, bool),
    ) -> Result<LocalSession<'a>, CliError> {
        let failed = |error| CliError::failed(Failure::new("could not start").caused_by(error));
        let Self { engine, options, .. } = self;
        let (user, now, wanted) = (forge.user(), engine.clock.now(), wanted.to_vec());
        let paused = engine.store.write(move |c| -> StoreResult<()> {
            // All repositories of the folder: the engine would work on each of them.
            let left = loops::list(c, true, MOST_LOOPS)?;
            for left in left.iter().filter(|left| is_active(left) && !wanted.contains(&left.id)) {
                let reason = "the run that worked on it ended".to_owned();
                let command = LoopCommand::Pause(command::Pause { now: true, reason });
                let input = LoopInput::Command(CommandInput::Given { by: user.clone(), command, comment: None });
                loops::enqueue_input(c, &left.id, &format!("local/left/{}/{}", left.id, left.version), &input, now)?;
            }
            Ok(())
        });
        paused.await.map_err(failed)?;
        while engine.executor.loop_step().await.map_err(failed)? {}
        // An earlier run may have opened a pull request that its loop has learnt of only now.
        restored(&engine.store, &forge).await?;
        let app = Application::run(engine, config, &options).await;
        let app = app.map_err(|error| CliError::failed(Failure::new("could not start").caused_by(error)))?;
        let policy = config.policy(&forge.repo().forge);
        Ok(LocalSession { app, forge, policy, data, invocation, json })
    }
}

/// Removes limits that protect forges. Only `--jobs` limits the number of loops.
pub(super) fn remove_forge_limits(limits: &mut Limits) {
    (limits.comments_per_hour, limits.comments_per_day) = (u32::MAX, u32::MAX);
    (limits.loops, limits.loops_per_forge, limits.loops_per_repository) = (MOST_JOBS, None, MOST_JOBS);
}

/// Returns the hash of a task's text.
pub(super) fn task_hash(title: &str, body: &str) -> String {
    data_encoding::HEXLOWER.encode(&Sha256::digest(format!("{title}\n{body}")))
}

fn loop_task(issue: IssueSnapshot) -> LoopTask {
    LoopTask {
        hash: task_hash(&issue.title, &issue.body),
        text: TaskText::new(issue.title, issue.body, issue.html.as_deref()),
        url: issue.url,
        author: issue.author,
        author_trusted: true,
        unconfirmed_editor: None,
        edited_after: false,
        labels: issue.labels,
    }
}

/// Returns the command that continues a loop in its current state.
pub(super) fn resuming(current: &Loop, options: RunOptions, guidance: &str) -> LoopCommand {
    match current.state {
        LoopState::NeedsCriteria => LoopCommand::Run(command::Run { options, guidance: String::new() }),
        LoopState::NeedsApproval | LoopState::NeedsAnswer => {
            let hash = current.knowledge.waiting_plan().map(|plan| plan.hash.clone());
            LoopCommand::Approve(command::Approve { hash, changes: guidance.to_owned() })
        }
        LoopState::Queued | LoopState::Running | LoopState::Review => {
            LoopCommand::Guide(command::Guide { remember: false, text: guidance.to_owned(), proposal: None })
        }
        _ => {
            let base = Some(current.branch.base_branch.clone()).filter(|base| !base.is_empty());
            let options = RunOptions { base, ..options };
            LoopCommand::Resume(command::Resume { options, guidance: guidance.to_owned() })
        }
    }
}

impl LocalSession<'_> {
    /// Starts a loop.
    pub(super) async fn begin(&self, title: &str, body: &str, options: RunOptions) -> Result<LoopId, CliError> {
        let failed = || Failure::new("could not start the loop");
        let store = &self.app.engine.store;
        let numbers =
            |known: &Loop| known.pull.opened.as_ref().map_or(Number(0), |pull| pull.number).max(known.issue.issue);
        let above = loops_of(store, &self.forge).await?.iter().map(numbers).max().unwrap_or(Number(0));
        let issue = self
            .forge
            .add_task(title, body, &self.policy.branch_prefix, above)
            .await
            .map_err(|error| CliError::failed(failed().caused_by(error)))?;
        let random = (uuid::Uuid::now_v7().as_u128() & u128::from(u32::MAX)) as u32;
        let id = LoopId::from_parts(issue.number, random);
        let start = LoopStart {
            request: String::new(),
            existing: None,
            id: id.clone(),
            place: IssueRef { repo: self.forge.repo().clone(), issue: issue.number },
            by: self.forge.user(),
            task: loop_task(issue),
            options,
            policy: self.policy.clone(),
            plan: None,
            comment: None,
            hidden_removed: 0,
            round: 1,
        };
        let (now, origin) = (self.app.engine.clock.now(), format!("local/{id}"));
        let begun = store.write(move |c| loops::begin(c, start, &origin, now));
        if !begun.await.map_err(|error| CliError::failed(failed().caused_by(error)))? {
            let problem = failed().with_detail("its issue number is already used");
            return Err(CliError::failed(problem.with_hint("choose another --data")));
        }
        self.app.engine.context.wake.loop_stepped();
        Ok(id)
    }

    /// Continues a loop. A loop whose run was killed continues without a command.
    ///
    /// # Errors
    /// The loop cannot continue in its state or with these options.
    pub(super) async fn resume(&self, id: &LoopId, options: RunOptions, guidance: &str) -> Result<(), CliError> {
        let current = &self.read(id).await?;
        if matches!(current.state, LoopState::Queued | LoopState::Running) && guidance.trim().is_empty() {
            return Ok(());
        }
        let refused = |why: String| Err(CliError::usage(format!("{} cannot be resumed: {why}", current.id)));
        if current.state == LoopState::Review && guidance.trim().is_empty() {
            return refused("it is done; add `--guide TEXT` to ask for more".into());
        }
        let command = resuming(current, options, guidance);
        let input =
            LoopInput::Command(CommandInput::Given { by: self.forge.user(), command: command.clone(), comment: None });
        let outcome = lifecycle::step(current, input, self.app.engine.clock.now());
        if !is_active(&outcome.next) {
            return refused(outcome.reasons.join(" ").replace("/ralph resume ", ""));
        }
        self.send(current, "resume", command).await?;
        self.wait_for(&current.id, is_active).await.map(drop)
    }

    /// Accepts the changes to tests that keep a loop from completion. The loop then continues, unless it also waits for
    /// something else.
    ///
    /// # Errors
    /// No change to tests waits to be accepted.
    pub(super) async fn accept_tests(&self, id: &LoopId) -> Result<(), CliError> {
        let current = &self.read(id).await?;
        if current.open_findings().is_empty() {
            return Err(CliError::usage(format!("{id} has no changes to tests that wait to be accepted")));
        }
        self.send(current, "accept-tests", LoopCommand::AcceptTests(command::AcceptTests { paths: Vec::new() }))
            .await?;
        self.wait_for(id, |next| next.version > current.version).await.map(drop)
    }

    /// Gives a loop a command of the user.
    async fn send(&self, current: &Loop, name: &str, command: LoopCommand) -> Result<(), CliError> {
        let input = LoopInput::Command(CommandInput::Given { by: self.forge.user(), command, comment: None });
        let (id, origin) = (current.id.clone(), format!("local/{}/{name}/{}", current.id, current.version));
        let now = self.app.engine.clock.now();
        let stored = self.app.engine.store.write(move |c| loops::enqueue_input(c, &id, &origin, &input, now)).await;
        stored.map_err(|error| {
            CliError::failed(Failure::new(format!("could not store a command for {}", current.id)).caused_by(error))
        })?;
        self.app.engine.context.wake.loop_stepped();
        Ok(())
    }

    /// Reads a loop.
    pub(super) async fn read(&self, id: &LoopId) -> Result<Loop, CliError> {
        let known = id.clone();
        let found = self.app.engine.store.read(move |c| loops::get(c, &known)).await;
        let found = found.map_err(|error| CliError::failed(Failure::of(error)))?;
        found.ok_or_else(|| CliError::failed(format!("loop {id} no longer exists")))
    }

    /// Polls a loop until `wanted` is true, for at most a few seconds; returns its last state.
    async fn wait_for(&self, id: &LoopId, wanted: impl Fn(&Loop) -> bool) -> Result<Loop, CliError> {
        let mut waited = Duration::ZERO;
        loop {
            let current = self.read(id).await?;
            if wanted(&current) || waited >= PAUSE_WAIT {
                return Ok(current);
            }
            tokio::time::sleep(POLL_INTERVAL).await;
            waited += POLL_INTERVAL;
        }
    }

    /// Prints progress until the loop stops, and returns it. When `interrupted` completes, the loop is paused, and
    /// `None` is returned.
    pub(super) async fn follow(
        &self,
        id: &LoopId,
        task: Option<&str>,
        interrupted: &CancellationToken,
    ) -> Result<Option<Loop>, CliError> {
        let mut progress = LocalProgress::default();
        let mut records = LoopRecords::of(self.data, id.as_str());
        let known = self.read(id).await?;
        progress.skip(&known);
        loop {
            let current = self.read(id).await?;
            for event in progress.take(&current) {
                self.say(task, event)?;
            }
            records.write_iterations(&current);
            if !is_active(&current) {
                self.finish(&current, task, &records)?;
                return Ok(Some(current));
            }
            tokio::select! {
                () = tokio::time::sleep(POLL_INTERVAL) => {}
                () = interrupted.cancelled() => {
                    let current = self.pause(current).await?;
                    records.write_iterations(&current);
                    let now = self.app.engine.clock.now();
                    let next = next_steps(&current, &self.invocation, self.forge.branch_ref(), now);
                    records.write_summary(&current, &next, now);
                    let branch = current.branch.pushed.is_some().then_some(current.branch.name);
                    self.say(task, ProgressEvent::Interrupted { branch, next })?;
                    return Ok(None);
                }
                () = self.app.stopped() => {
                    return Err(CliError::failed("stopped after a fatal error; set RALPH_LOG=info for details"));
                }
            }
        }
    }

    /// Pauses an interrupted loop immediately.
    async fn pause(&self, current: Loop) -> Result<Loop, CliError> {
        let command = LoopCommand::Pause(command::Pause { now: true, reason: "interrupted".into() });
        self.send(&current, "interrupted", command).await?;
        self.wait_for(&current.id, |current| !is_active(current)).await
    }

    fn say(&self, task: Option<&str>, event: ProgressEvent) -> Result<(), CliError> {
        print(&ProgressLine { task: task.map(str::to_owned), event }.text(self.json)).map(drop)
    }

    /// Prints the result of a loop that stopped, and writes its summary.
    fn finish(&self, ended: &Loop, task: Option<&str>, records: &LoopRecords) -> Result<(), CliError> {
        let from = self.forge.branch_ref();
        let branch = ended.branch.pushed.is_some().then(|| ended.branch.name.clone());
        let diff = branch.as_ref().map(|branch| format!("git diff {from}...{branch}"));
        let now = self.app.engine.clock.now();
        let next = next_steps(ended, &self.invocation, from, now);
        let summary = records.write_summary(ended, &next, now);
        let event = ProgressEvent::Ended {
            id: ended.id.to_string(),
            state: ended.state.as_str().to_owned(),
            good: is_done(ended),
            why: ended.why.clone(),
            branch,
            diff,
            findings: TestFinding::of_branch(ended),
            next,
            summary: self.invocation.lasting.then_some(summary),
        };
        self.say(task, event)
    }

    /// Stops the engine.
    pub(super) async fn stop(self) {
        self.app.stop().await;
    }
}

/// Whether a task is not done and a finding about its tests is open.
pub(super) fn has_open_findings(ended: &Loop) -> bool {
    !is_done(ended) && !ended.open_findings().is_empty()
}

/// Whether the loop's task is done: the work is verified or merged, or nothing had to be done.
pub(super) fn is_done(ended: &Loop) -> bool {
    let nothing_to_do = ended.state == LoopState::Closed && ended.iterations.is_empty();
    matches!(ended.state, LoopState::Review | LoopState::Merged) || nothing_to_do
}
