//! World of a story: a fake forge with people and a repository, the service, and an agent that is a shell script.
//!
//! Webhooks are real HTTP. The service of `story` is stepped until nothing is pending, with a clock that only moves when
//! the story advances it, so that no story sleeps. The service of `live_story` runs its own tasks, for stories about what
//! happens while an agent runs.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fake_forge::{Access, Dialect, FakeComment, FakeForge, FakeIssue};
use ralph_bot::app::{Application, Options};
use ralph_bot::clock::Clock;
use ralph_bot::config::{Config, Env};
use ralph_bot::domain::loops::{Loop, LoopState};
use ralph_bot::domain::model::ids::{AccountKind, CommentId, Number, RepoId, Sha, Timestamp, User};
use ralph_bot::engine::{Engine, Role};
use ralph_bot::forge::http::RateSettings;
use ralph_bot::process::{SandboxProbe, SandboxTier};
use ralph_bot::store::{inbox, loops, outbox};
use tempfile::TempDir;

use super::invariants::assert_invariants;
use super::setup::{SECRET, Setup, UpdateMode, sandbox};

/// Maximum wait for a condition in a live world.
const WAIT_LIMIT: Duration = Duration::from_secs(60);
/// Maximum number of rounds until a stepped world is idle.
const MAX_ROUNDS: usize = 2_000;

/// A forge with people and a repository, and the service.
pub struct World {
    pub forge: FakeForge,
    pub clock: Clock,
    pub repo: RepoId,
    /// Owns the repository.
    pub maintainer: User,
    /// Has read access.
    pub outsider: User,
    pub bot: User,
    pub issue: Number,
    pub folder: TempDir,
    pub setup: Setup,
    pub(super) live: bool,
    pub(super) app: Option<Application>,
}

impl World {
    /// Creates the forge and its people. The service starts later (see `stories`) or runs in separate processes (see
    /// `service`).
    pub(super) async fn without_service(setup: Setup, live: bool) -> Self {
        fake_forge::temporary_in_memory();
        let clock = if live { Clock::System } else { Clock::manual(Timestamp(1_790_000_000_000)) };
        let forge =
            FakeForge::start_on(setup.forge_address, setup.dialect, clock.clone()).await.expect("the forge starts");
        let maintainer = forge.add_user("mira", AccountKind::User);
        let outsider = forge.add_user("otto", AccountKind::User);
        let bot = forge.add_user("ralph-bot", AccountKind::User);
        let files: Vec<_> = setup.files.iter().map(|(p, t, x)| (p.as_str(), t.as_str(), *x)).collect();
        let repo = forge.create_repo("mira", "app", &files).await.expect("the repository is made");
        forge.grant(repo, &bot, Access::Admin).expect("the bot may");
        forge.grant(repo, &outsider, Access::Read).expect("the outsider may read");
        let folder = tempfile::Builder::new().prefix("ralph-it-").tempdir().expect("a folder");
        let issue = forge.open_issue(&maintainer, repo, &setup.title, &setup.body, &[]).await.expect("an issue");
        let world = Self { forge, clock, repo, maintainer, outsider, bot, issue, folder, setup, live, app: None };
        world.write_agent(&world.setup.agent);
        world
    }

    /// Replaces the agent's script.
    pub fn write_agent(&self, script: &str) {
        std::fs::write(self.folder.path().join("agent.sh"), format!("#!/bin/sh\n{script}"))
            .expect("the agent is written");
    }

    /// Creates the webhook of the repository.
    pub(super) async fn hook(&mut self) {
        if self.setup.updates == UpdateMode::Poll {
            return;
        }
        let address = self.app().address.expect("the service listens");
        let url = format!("http://{address}/webhooks/forge");
        self.forge.add_hook(self.repo, &url, SECRET).await.expect("the hook is made");
    }

    /// Text of the operator's configuration.
    pub fn config_text(&self, listen: &str, sandboxed: bool) -> String {
        let kind = if self.setup.dialect == Dialect::Gitea { "gitea" } else { "github" };
        let folder = self.folder.path().display();
        let limits = if self.setup.config.contains("limits:") {
            ""
        } else {
            "limits: { comments_per_hour: 1000, comments_per_day: 1000 }\n"
        };
        format!(
            "server: {{ listen: \"{listen}\" }}\ndata_dir: ./data\nforges:\n  - {{ name: forge, kind: {kind}, url: \"{url}\", {credential}, {updates} }}{forges}\nsandbox: {{ required: {required}, network: {network}, read_only: [\"{folder}/agent.sh\"{read_only}] }}\nbackends:\n  mine: {{ type: script, command: [\"/bin/sh\", \"{folder}/agent.sh\"], roles: [agent]{backend} }}\n{limits}{extra}",
            url = self.forge.url(),
            required = match (&self.setup.sandbox, sandboxed) {
                (Some(found), _) if found.tier == SandboxTier::B => "auto",
                (Some(_), _) => "bubblewrap",
                (None, true) => "auto",
                (None, false) => "none",
            },
            read_only = self.setup.read_only,
            network = self.setup.network,
            backend = self.setup.backend,
            credential = self.setup.credential,
            updates = self.setup.updates.keys(),
            forges = self.setup.forges,
            extra = self.setup.config,
        )
    }

    /// Environment of the service.
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        let path = std::env::var("PATH").unwrap_or_default();
        let home = std::env::var("HOME").unwrap_or_default();
        let token = self.forge.token_for(&self.bot);
        let mut all = vec![("TOKEN", token), ("SECRET", SECRET.to_owned()), ("PATH", path), ("HOME", home)];
        all.extend(self.setup.env.iter().cloned());
        all
    }

    /// Parsed configuration and environment of the service.
    pub async fn config(&self) -> (Config, Env) {
        let text = self.config_text("127.0.0.1:0", self.sandbox_probe().await.tier == SandboxTier::A);
        let variables = self.environment();
        let env = Env::of(variables.iter().map(|(name, value)| (*name, value.as_str())));
        let config = Config::parse(&self.folder.path().join("ralph-control.yaml"), &text, &env);
        let mut config = config.unwrap_or_else(|problems| panic!("{problems}\n{text}"));
        (self.setup.adjust)(&mut config);
        (config, env)
    }

    /// Starts the service on the existing data.
    pub async fn start(&mut self) {
        let (config, env) = self.config().await;
        let mut options = Options {
            role: if self.live { Role::All } else { Role::Ingest },
            clock: self.clock.clone(),
            rates: RateSettings {
                mutation_interval_ms: self.setup.mutation_interval_ms,
                attempts: 1,
                settling_ms: self.setup.settling_ms,
                timeouts: self.setup.timeouts,
                ..RateSettings::default()
            },
            sandbox: Some(self.sandbox_probe().await),
            // The test binary has no subcommand for the session memory; the real one has.
            program: Some(env!("CARGO_BIN_EXE_ralph-bot").into()),
            ..Options::of(&config)
        };
        options.pace.poll = Duration::from_millis(20);
        options.pace.ambiguity_wait = Duration::from_millis(10);
        options.pace.retry_first = Duration::from_millis(10);
        options.pace.stop_grace = Duration::from_secs(5);
        options.channel_retry.request_timeout = Duration::from_millis(500);
        options.channel_retry.first_wait = Duration::from_millis(50);
        options.channel_retry.max_wait = Duration::from_secs(1);
        self.app = Some(Application::start(&config, &env, options).await.expect("the service starts"));
    }

    /// Sandbox that the service finds.
    async fn sandbox_probe(&self) -> SandboxProbe {
        match &self.setup.sandbox {
            Some(found) => found.clone(),
            None if self.setup.isolated => sandbox().await,
            None => {
                let bubblewrap = Err("this story needs no sandbox".into());
                SandboxProbe { tier: SandboxTier::C, bubblewrap, escapes: Vec::new(), landlock: None }
            }
        }
    }

    /// Running service.
    pub fn app(&self) -> &Application {
        self.app.as_ref().expect("the service runs")
    }

    /// Engine of the running service.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.app().engine
    }

    /// Stops the service gracefully.
    pub async fn stop(&mut self) {
        if let Some(app) = self.app.take() {
            app.stop().await;
        }
    }

    /// Steps the service until neither it nor the forge has anything pending, also after a poll if it polls.
    pub async fn settle(&self) {
        self.settle_without_poll().await;
        for _ in 0..if self.setup.updates.polls() { 2 } else { 0 } {
            self.engine().reconciler.reconcile_step(true).await.expect("poll");
            self.settle_without_poll().await;
        }
    }

    async fn settle_without_poll(&self) {
        assert!(!self.live, "a live world is not stepped; use `until`");
        let engine = self.engine();
        for _ in 0..MAX_ROUNDS {
            self.forge.flush().await;
            let mut worked = engine.intake.intake_step().await.expect("intake");
            worked |= engine.executor.timer_step().await.expect("timer");
            worked |= engine.executor.loop_step().await.expect("loop");
            worked |= engine.forge_effects.forge_effect_step().await.expect("talk");
            if !worked {
                worked = engine.work.work_step().await.expect("work");
            }
            if !worked {
                worked = engine.channels.channel_step().await.expect("notify");
            }
            if !worked {
                return;
            }
        }
        panic!("the service is never idle: {:#?}", self.receipts().await);
    }

    /// Advances the clock, then settles.
    pub async fn advance(&self, time: Duration) {
        self.clock.advance_ms(i64::try_from(time.as_millis()).expect("a duration in range"));
        self.settle().await;
    }

    /// Runs a reconciliation with the forge, then settles.
    pub async fn reconcile(&self) {
        self.engine().reconciler.reconcile_step(true).await.expect("reconcile");
        self.settle().await;
    }

    /// Waits until the newest loop meets a condition, and returns it; for live worlds.
    pub async fn until(&self, what: &str, holds: impl Fn(&Loop) -> bool) -> Loop {
        let waiting = async {
            loop {
                if let Some(found) = self.newest().await.filter(|l| holds(l)) {
                    return found;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        match tokio::time::timeout(WAIT_LIMIT, waiting).await {
            Ok(found) => found,
            Err(_) => {
                panic!("timed out waiting for {what}: {:#?}", self.newest().await.map(|l| (l.state, l.run.step, l.why)))
            }
        }
    }

    /// Newest loop.
    pub async fn newest(&self) -> Option<Loop> {
        let found = self.engine().store.read(|c| loops::list(c, false, 1)).await.expect("loops");
        found.into_iter().next()
    }

    /// Newest loop.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub async fn the_loop(&self) -> Loop {
        self.newest().await.expect("a loop")
    }

    /// All loops, newest first.
    pub async fn all_loops(&self) -> Vec<Loop> {
        self.engine().store.read(|c| loops::list(c, false, 1000)).await.expect("loops")
    }

    /// Effects of the newest loop, with their states.
    pub async fn receipts(&self) -> Vec<outbox::EffectRow> {
        let Some(current) = self.newest().await else { return Vec::new() };
        self.engine().store.read(move |c| outbox::of_subject(c, current.id.as_str())).await.expect("receipts")
    }

    /// Number of deliveries by state.
    pub async fn inbox(&self) -> HashMap<String, u64> {
        self.engine().store.read(inbox::counts).await.expect("inbox").into_iter().collect()
    }

    /// Number of pending and running effects in the queues with this name prefix.
    pub async fn waiting(&self, queue: &str) -> u64 {
        let counts = self.engine().store.read(outbox::counts).await.expect("counts");
        counts.iter().filter(|(name, _)| name.starts_with(queue)).map(|(_, count)| count).sum()
    }

    /// Waits until a live service has no pending effects.
    pub async fn wait_until_idle(&self) {
        let resting = async {
            while self.waiting("").await > 0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(WAIT_LIMIT, resting).await.expect("the service becomes idle");
    }

    // Actions of people.

    /// Creates an account with a permission on the repository.
    pub fn person(&self, login: &str, access: Access) -> User {
        let user = self.forge.add_user(login, AccountKind::User);
        self.forge.grant(self.repo, &user, access).expect("granted");
        user
    }

    /// The maintainer sets the label `ralph:run` on the issue.
    pub async fn label(&self) {
        self.forge.label(&self.maintainer, self.repo, self.issue, "ralph:run").await.expect("labeled");
    }

    /// The maintainer comments on the issue.
    pub async fn comment(&self, text: &str) -> CommentId {
        self.forge.comment(&self.maintainer, self.repo, self.issue, text).await.expect("commented")
    }

    /// Comments in the bot's name without a marker, as only somebody else with its account does; returns the comment.
    pub async fn own_comment(&self, text: &str) -> CommentId {
        self.forge.comment(&self.bot, self.repo, self.issue, text).await.expect("commented")
    }

    /// Deletes a comment on the issue, without a delivery.
    pub fn forget_comment(&self, comment: CommentId) {
        let of_issue = |state: &mut fake_forge::FakeState| {
            let issue = state.issue_mut(self.repo, self.issue).expect("the issue");
            issue.comments.retain(|known| known.id != comment);
        };
        self.forge.with(of_issue);
    }

    /// Sets the label, settles, and returns the loop.
    pub async fn run(&self) -> Loop {
        self.label().await;
        self.settle().await;
        self.the_loop().await
    }

    // State of the forge.

    /// Comments on an issue or pull request.
    pub fn comments(&self, number: Number) -> Vec<FakeComment> {
        self.forge.comments(self.repo, number)
    }

    /// Bodies of the bot's comments on the issue.
    pub fn bot_comments(&self) -> Vec<String> {
        self.bot_comments_on(self.issue)
    }

    /// Bodies of the bot's comments on an issue or pull request.
    pub fn bot_comments_on(&self, number: Number) -> Vec<String> {
        let comments = self.comments(number);
        comments.into_iter().filter(|c| c.author == Some(self.bot.id)).map(|c| c.body).collect()
    }

    /// Whether a comment of the bot on the issue contains a text.
    pub fn bot_commented(&self, text: &str) -> bool {
        self.bot_comments().iter().any(|body| body.contains(text))
    }

    /// Reactions of the bot to a comment of any issue or pull request.
    pub fn reactions(&self, comment: CommentId) -> Vec<String> {
        let found = self.forge.with(|state| {
            let issues = state.repo(self.repo).expect("the repository").issues.values();
            issues.flat_map(|issue| &issue.comments).find(|c| c.id == comment).cloned()
        });
        let comment = found.expect("the comment");
        let ours = comment.reactions.into_iter().filter(|r| r.user == self.bot.id);
        ours.map(|r| r.content).collect()
    }

    /// State labels of the issue, without their prefix.
    pub fn state_labels(&self) -> Vec<String> {
        let all: Vec<String> = LoopState::ALL.iter().map(|s| format!("ralph:{}", s.label())).collect();
        let labels = self.forge.labels(self.repo, self.issue);
        labels.into_iter().filter(|l| all.contains(l)).map(|l| l.trim_start_matches("ralph:").to_owned()).collect()
    }

    /// Numbers of the open escalation issues.
    pub fn escalations(&self) -> Vec<Number> {
        self.forge.with(|state| {
            let repo = state.repo(self.repo).expect("the repository");
            let label = repo.labels.iter().find(|l| l.name == "ralph:escalation").map(|l| l.id);
            let open = repo.issues.values().filter(|i| i.open && label.is_some_and(|id| i.labels.contains(&id)));
            open.map(|i| i.number).collect()
        })
    }

    /// Content of a file on a branch of the forge; `None` if there is none.
    pub async fn file(&self, branch: &str, path: &str) -> Option<String> {
        self.forge.file_at(self.repo, branch, path).await
    }

    /// Worktree of the newest loop.
    pub async fn tree(&self) -> PathBuf {
        let current = self.the_loop().await;
        self.engine().verification.workspaces.tree_dir(&current.id, &current.issue.repo)
    }

    /// Steps the service until the newest loop meets a condition, and returns it.
    pub async fn settle_until(&self, what: &str, holds: impl Fn(&Loop) -> bool) -> Loop {
        let engine = self.engine();
        for _ in 0..MAX_ROUNDS {
            if let Some(found) = self.newest().await.filter(|l| holds(l)) {
                return found;
            }
            self.forge.flush().await;
            let mut any = engine.intake.intake_step().await.expect("intake");
            any |= engine.executor.timer_step().await.expect("timer");
            any |= engine.executor.loop_step().await.expect("loop");
            if let Some(found) = self.newest().await.filter(|l| holds(l)) {
                return found;
            }
            any |= engine.forge_effects.forge_effect_step().await.expect("talk");
            if !any {
                any = engine.work.work_step().await.expect("work");
            }
            assert!(any, "never reached {what}: {:#?}", self.newest().await.map(|l| (l.state, l.run.step, l.why)));
        }
        panic!("never reached {what}: {:#?}", self.receipts().await);
    }

    /// Settles and advances the clock until no retry is pending.
    pub async fn recover(&self) {
        self.settle().await;
        for _ in 0..60 {
            let waiting: u64 =
                self.engine().store.read(outbox::counts).await.expect("counts").iter().map(|c| c.1).sum();
            if waiting == 0 && self.inbox().await.get("new").is_none_or(|count| *count == 0) {
                return;
            }
            self.advance(Duration::from_secs(61)).await;
        }
        panic!("effects stay pending: {:#?}", self.receipts().await);
    }

    /// Restarts the service on its data, and updates the address of the webhooks.
    pub async fn restart(&mut self) {
        self.stop().await;
        self.start().await;
        let url = format!("http://{}/webhooks/forge", self.app().address.expect("the service listens"));
        self.forge.with(|state| {
            for hook in &mut state.repo_mut(self.repo).expect("the repository").hooks {
                hook.url.clone_from(&url);
            }
        });
    }

    /// Inputs of the newest loop in order, each cut to 300 characters.
    pub async fn inputs(&self) -> Vec<String> {
        let id = self.the_loop().await.id;
        let log = self.engine().store.read(move |c| loops::history(c, &id)).await.expect("history");
        log.into_iter().map(|line| format!("{:?}", line.input).chars().take(300).collect()).collect()
    }

    /// First prompt of an iteration of the newest loop.
    pub async fn prompt(&self, iteration: u32) -> String {
        let folder = self.engine().runs.folders.logs.join(self.the_loop().await.id.as_str());
        let path = folder.join(format!("{iteration:03}-1.prompt.md"));
        std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    }

    /// Issue or pull request on the forge.
    pub fn issue_of(&self, number: Number) -> FakeIssue {
        self.forge.with(|state| state.issue(self.repo, number).expect("it is there").clone())
    }

    /// Pull request of the newest loop.
    pub async fn the_pull(&self) -> FakeIssue {
        self.issue_of(self.the_loop().await.pull.opened.expect("a pull request").number)
    }

    /// Whether a pull request is a draft: a flag on GitHub, a title prefix on Gitea.
    pub fn is_draft(&self, pull: &FakeIssue) -> bool {
        pull.pull.as_ref().is_some_and(|p| p.draft) || pull.title.to_ascii_lowercase().starts_with("wip")
    }

    /// Output of a git command in the forge's repository.
    #[expect(clippy::disallowed_methods, reason = "these processes are not children of the service")]
    pub fn git(&self, arguments: &[&str]) -> String {
        let mut git = std::process::Command::new("git");
        let output = git.arg("-C").arg(self.forge.repo_path(self.repo)).args(arguments).output().expect("git runs");
        assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Runs a shell script in the forge's repository.
    #[expect(clippy::disallowed_methods, reason = "these processes are not children of the service")]
    pub fn shell(&self, script: &str) {
        let mut sh = std::process::Command::new("sh");
        let sh = sh.args(["-ec", script]).current_dir(self.forge.repo_path(self.repo));
        assert!(sh.status().expect("sh runs").success(), "{script}");
    }

    /// Parents of the newest commit of a branch on the forge.
    pub fn parents(&self, branch: &str) -> Vec<Sha> {
        let line = self.git(&["rev-list", "--parents", "-n1", branch]);
        line.split_whitespace().skip(1).map(|sha| Sha::parse(sha).expect("a commit")).collect()
    }

    // Further steps and queries.

    /// Steps the service until the newest loop meets a condition, before pending work starts.
    pub async fn stop_at(&self, what: &str, holds: impl Fn(&Loop) -> bool) -> Loop {
        let engine = self.engine();
        for _ in 0..MAX_ROUNDS {
            self.forge.flush().await;
            let mut any = engine.intake.intake_step().await.expect("intake");
            any |= engine.executor.timer_step().await.expect("timer");
            any |= engine.executor.loop_step().await.expect("loop");
            any |= engine.forge_effects.forge_effect_step().await.expect("talk");
            if any {
                continue;
            }
            if let Some(found) = self.newest().await.filter(|l| holds(l)) {
                return found;
            }
            if !engine.work.work_step().await.expect("work") {
                break;
            }
        }
        panic!("never reached {what}: {:#?}", self.newest().await.map(|l| (l.state, l.run.step, l.why)));
    }

    /// Prompts of all agent runs of the newest loop, oldest first.
    pub async fn prompts(&self) -> Vec<String> {
        let folder = self.engine().runs.folders.logs.join(self.the_loop().await.id.as_str());
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
        let mut paths: Vec<_> = entries.filter(|path| path.to_string_lossy().ends_with(".prompt.md")).collect();
        paths.sort();
        paths.iter().map(|path| std::fs::read_to_string(path).expect("a prompt")).collect()
    }

    /// State and reason of every delivery, oldest first.
    pub async fn delivery_outcomes(&self) -> Vec<(String, String)> {
        let read = self.engine().store.read(|c| {
            let mut statement = c.prepare("SELECT state, coalesce(reason, '') FROM inbox ORDER BY id")?;
            let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
            Ok(rows.collect::<Result<Vec<_>, _>>()?)
        });
        read.await.expect("deliveries")
    }

    /// Asserts the invariants and stops the service.
    pub(super) async fn finish(mut self) {
        if self.app.is_none() {
            self.start().await;
        }
        let engine = self.engine().clone();
        // A service that runs by itself is stopped first: it would change loops between two reads of the database.
        if self.live {
            self.stop().await;
        }
        assert_invariants(&self, &engine.store, &engine.verification.programs.instance, !self.live).await;
        self.stop().await;
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let unchecked = self.app.is_some() && !std::thread::panicking();
        assert!(!unchecked, "the invariants were not checked: run the story with `story` or `live_story`");
    }
}
