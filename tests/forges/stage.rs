//! Parts of a story: a server, a separate organization with a repository, its owner, the bot, and an issue. All of it is
//! deleted at the end, also if the story fails.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

use fake_forge::FakeFault;
use futures::FutureExt;
use ralph_bot::domain::loops::{Loop, LoopState};
use tokio::sync::Semaphore;

use crate::bot::{self, Bot, eventually};
use crate::harness::{SECRET, Setup, UpdateMode};
use crate::network::CutProxy;
use crate::repo::Repo;
use crate::server::{ATTEMPTS, Account, Level, On, Server, TokenScopes};
use crate::table;

/// Label that starts loops.
pub const RUN: &str = "ralph:run";
/// Agent that waits for the file `go` beside it, then fixes the sample.
pub const WAITING: &str = "touch \"$(dirname \"$0\")/begun\"\n\
    until [ -e \"$(dirname \"$0\")/go\" ]; do sleep 0.1; done\n\
    echo 42 >answer.txt\necho \"round $RALPH_ITERATION\" >>notes.txt\n";
/// Agent that fixes the sample and adds a line to `notes.txt` in each iteration.
pub const WILLING: &str = "echo 42 >answer.txt\necho \"round $RALPH_ITERATION\" >>notes.txt\n";

/// Turns of the stories on a real server, one for each processor, at most four.
static TURNS: LazyLock<Semaphore> =
    LazyLock::new(|| Semaphore::new(std::thread::available_parallelism().map_or(1, |count| count.get().min(4))));

/// Number of attempts to delete a story's objects; a server may still work on them.
const DELETIONS: u32 = 3;

/// Start of a story.
pub struct StoryPlan {
    setup: Setup,
    hook: bool,
    proxied: bool,
    pushed: bool,
    label: bool,
    running: bool,
    personal: bool,
}

impl StoryPlan {
    /// The sample repository, a webhook, and the service running.
    pub fn new() -> Self {
        Self {
            setup: bot::sample(),
            hook: true,
            proxied: false,
            pushed: true,
            label: true,
            running: true,
            personal: false,
        }
    }

    /// Replaces the agent's script.
    pub fn agent(mut self, script: &str) -> Self {
        self.setup = self.setup.agent(script);
        self
    }

    /// Adds lines to the operator's configuration.
    pub fn config(mut self, lines: &str) -> Self {
        self.setup = self.setup.config(lines);
        self
    }

    /// Uses webhooks in every run of the stories.
    pub fn by_webhooks(mut self) -> Self {
        self.setup.updates = UpdateMode::Webhooks;
        self
    }

    /// Leaves the webhook to the story, which is about webhooks.
    pub fn without_hook(mut self) -> Self {
        self.hook = false;
        self.by_webhooks()
    }

    /// Leaves the service stopped.
    pub fn stopped(mut self) -> Self {
        self.running = false;
        self
    }

    /// Leaves the repository without a commit.
    pub fn empty(mut self) -> Self {
        self.pushed = false;
        self
    }

    /// Leaves the repository without labels.
    pub fn without_label(mut self) -> Self {
        self.label = false;
        self
    }

    /// Leaves out the organization: the repository belongs to its owner's account.
    pub fn personal(mut self) -> Self {
        self.personal = true;
        self
    }

    /// Puts a proxy that can be cut between the service and the server.
    pub fn proxied(mut self) -> Self {
        self.proxied = true;
        self
    }
}

/// Parts of a running story.
pub struct Stage {
    pub server: Arc<Server>,
    pub bot: Bot,
    pub repo: Arc<Repo>,
    /// Owner of the organization.
    pub mira: Account,
    /// The bot's account.
    pub robot: Account,
    pub org: String,
    pub issue: u64,
    pub proxy: Option<CutProxy>,
    unique: String,
    made: Arc<Mutex<Made>>,
}

/// Names of a story's objects, recorded before their creation, for the clean-up.
#[derive(Default)]
struct Made {
    /// Owner of the organizations and repositories.
    owner: Option<Account>,
    accounts: Vec<String>,
    organizations: Vec<String>,
    repositories: Vec<Arc<Repo>>,
}

impl Made {
    /// Deletes all of it, in several attempts; returns the remaining objects.
    async fn delete(&self, server: &Server) -> Vec<String> {
        let mut left = self.delete_once(server).await;
        for attempt in 1..DELETIONS {
            if left.is_empty() {
                break;
            }
            tokio::time::sleep(Duration::from_secs(1) * attempt).await;
            left = self.delete_once(server).await;
        }
        left
    }

    async fn delete_once(&self, server: &Server) -> Vec<String> {
        let mut left = Vec::new();
        let mut note = |what: &str, status: u16| {
            if status >= 300 && status != 404 {
                left.push(format!("{what} was not deleted: {status}"));
            }
        };
        if let Some(owner) = &self.owner {
            for repo in &self.repositories {
                note(&repo.name(), repo.delete(owner).await.status);
            }
            for name in &self.organizations {
                note(name, server.delete_organization(owner, name).await.status);
            }
        }
        for login in &self.accounts {
            note(login, server.delete_account(login).await.status);
        }
        left
    }
}

/// Runs a story on a server, deletes its objects, and records its time. Without the server it is skipped.
pub async fn story(on: On, name: &'static str, plan: StoryPlan, scenario: impl AsyncFnOnce(&mut Stage)) {
    let Some(server) = Server::open(on).await else { return };
    if plan.proxied && !server.is_plain() {
        skipped_tests::skip_in_ci_as_well("connections to a server by https cannot be cut: give its http address");
        return;
    }
    // The server shares the processors: more stories at once only wait for each other.
    let _turn = if server.fake().is_none() { Some(TURNS.acquire().await.expect("never closed")) } else { None };
    let start = Instant::now();
    let (outcome, left) = perform(Arc::new(server), &plan, scenario).await;
    match outcome {
        Err(panic) => {
            table::record(name, on, None);
            std::panic::resume_unwind(panic)
        }
        Ok(took) => {
            table::record(name, on, Some(took.duration_since(start)));
            assert!(left.is_empty(), "{left:?}");
        }
    }
}

/// Prepares and runs a story, and deletes its objects. Returns the time of its end or its panic, and the remaining objects.
async fn perform(
    server: Arc<Server>,
    plan: &StoryPlan,
    scenario: impl AsyncFnOnce(&mut Stage),
) -> (Result<Instant, Box<dyn Any + Send>>, Vec<String>) {
    let (mut prepared, made) = (None, Arc::new(Mutex::new(Made::default())));
    let outcome = AssertUnwindSafe(async {
        let stage = prepared.insert(Stage::prepare(server.clone(), plan, made.clone()).await);
        stage.begin(plan).await;
        scenario(stage).await;
        stage.bot.assert_sound().await;
        Instant::now()
    });
    let outcome = outcome.catch_unwind().await;
    if let Some(stage) = &mut prepared {
        let _ = AssertUnwindSafe(stage.bot.stop()).catch_unwind().await;
    }
    let made = std::mem::take(&mut *made.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
    let left = made.delete(&server).await;
    (outcome, left)
}

impl Stage {
    async fn prepare(server: Arc<Server>, plan: &StoryPlan, made: Arc<Mutex<Made>>) -> Self {
        let unique = uuid::Uuid::now_v7().simple().to_string();
        let unique = unique[20..].to_owned();
        let (mira, robot) = (format!("mira-{unique}"), format!("ralph-{unique}"));
        let org = if plan.personal { mira.clone() } else { format!("acme-{unique}") };
        let repo = Arc::new(Repo::new(server.clone(), &format!("{org}/app")));
        *made.lock().expect("not poisoned") = Made {
            owner: None,
            accounts: vec![mira.clone(), robot.clone()],
            organizations: if plan.personal { Vec::new() } else { vec![org.clone()] },
            repositories: vec![repo.clone()],
        };
        let mira = server.account(&mira, TokenScopes::All).await;
        made.lock().expect("not poisoned").owner = Some(mira.clone());
        let robot = server.account(&robot, TokenScopes::OfManual).await;
        if plan.personal {
            server.own_repository(&mira, "app").await;
        } else {
            server.organization(&mira, &org).await;
            server.repository(&mira, &org, "app").await;
        }
        repo.collaborator(&mira, &robot.login, Level::Admin).await;
        let proxy = if plan.proxied { Some(CutProxy::start(&server.url).await) } else { None };
        let url = proxy.as_ref().map_or_else(|| server.url.clone(), CutProxy::url);
        let watched = [format!("{org}/*"), format!("other-{unique}/*")];
        let host = server.hook_host();
        let bot = Bot::new(&plan.setup, (server.kind(), url.as_str()), &robot.token, &watched, host.as_deref());
        Self { server, bot, repo, mira, robot, org, issue: 0, proxy, unique, made }
    }

    async fn begin(&mut self, plan: &StoryPlan) {
        if plan.pushed {
            let files = bot::files(&plan.setup);
            self.repo.push(&self.mira, "main", &files, "Initial commit").await;
        }
        if plan.label {
            self.repo.new_label(&self.mira, RUN).await;
        }
        self.issue = self.repo.open_issue(&self.mira, &plan.setup.title, &plan.setup.body).await;
        if plan.running {
            self.bot.start().await;
        }
        if plan.hook && plan.setup.updates != UpdateMode::Poll {
            self.repo.hook(&self.mira, &self.bot.hook_url(), SECRET).await;
        }
    }

    fn made(&self) -> std::sync::MutexGuard<'_, Made> {
        self.made.lock().expect("not poisoned")
    }

    /// Creates a person without any permission.
    pub async fn person(&mut self, name: &str) -> Account {
        self.account(name, TokenScopes::All).await
    }

    /// Creates an account whose token has these scopes.
    pub async fn account(&mut self, name: &str, scopes: TokenScopes) -> Account {
        let login = format!("{name}-{}", self.unique);
        self.made().accounts.push(login.clone());
        self.server.account(&login, scopes).await
    }

    /// Creates a second organization of the owner; the service watches its repositories, too.
    pub async fn other_organization(&mut self) -> String {
        let name = format!("other-{}", self.unique);
        self.made().organizations.push(name.clone());
        self.server.organization(&self.mira, &name).await;
        name
    }

    /// Creates another repository of the organization, which the bot may administer.
    pub async fn another_repository(&mut self, name: &str) -> Arc<Repo> {
        let repo = Arc::new(Repo::new(self.server.clone(), &format!("{}/{name}", self.org)));
        self.made().repositories.push(repo.clone());
        self.server.repository(&self.mira, &self.org, name).await;
        repo.collaborator(&self.mira, &self.robot.login, Level::Admin).await;
        repo
    }

    /// Creates a person with a permission in the repository.
    pub async fn collaborator(&mut self, name: &str, level: Level) -> Account {
        let account = self.person(name).await;
        self.repo.collaborator(&self.mira, &account.login, level).await;
        account
    }

    /// The owner sets the label on the issue.
    pub async fn label(&self) {
        let answer = self.repo.add_labels(&self.mira, self.issue, &[RUN]).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
    }

    /// The owner comments on the issue; returns the comment's id.
    pub async fn comment(&self, text: &str) -> i64 {
        self.repo.comment(&self.mira, self.issue, text).await
    }

    /// Sets the label and waits until the pull request is ready.
    pub async fn run(&self) -> Loop {
        self.label().await;
        self.ready(self.issue).await
    }

    /// Waits until the loop of an issue is in review and the server shows its pull request as ready.
    pub async fn ready(&self, issue: u64) -> Loop {
        self.ready_after(issue, 1).await
    }

    /// Same as `ready`, with at least this many iterations.
    pub async fn ready_after(&self, issue: u64, iterations: u32) -> Loop {
        // The pull request is opened after the state has changed.
        let holds = |found: &Loop| {
            found.state == LoopState::Review && found.pull.opened.is_some() && found.spent.iterations >= iterations
        };
        let done = self.bot.until(issue, &format!("review after {iterations} iterations"), holds).await;
        let number = done.pull.opened.clone().expect("a pull request").number.0;
        eventually("a pull request that is ready", async || {
            let pull = self.repo.pull(&self.mira, number).await;
            (!pull.draft && pull.open).then_some(())
        })
        .await;
        self.bot.until_idle().await;
        self.bot.of_issue(issue).await.expect("the loop")
    }

    /// Number of the pull request of a loop.
    pub fn pull_of(&self, of: &Loop) -> u64 {
        of.pull.opened.as_ref().expect("a pull request").number.0
    }

    /// Waits until the agent of `WAITING` runs.
    pub async fn agent_waits(&self) {
        let begun = self.bot.signal_file("begun");
        eventually("the agent", async || begun.exists().then_some(())).await;
    }

    /// Lets the agent of `WAITING` continue, now and in later runs.
    pub fn agent_goes_on(&self) {
        std::fs::write(self.bot.signal_file("go"), "").expect("the signal");
    }

    /// Waits until a state label, and no other, is on an issue.
    pub async fn shows(&self, issue: u64, state: &str) {
        let wanted = format!("ralph:{state}");
        eventually(&format!("the label {wanted} on #{issue}"), async || {
            let labels = self.repo.labels(&self.mira, issue).await;
            let states = labels.iter().filter(|label| label.starts_with("ralph:") && *label != RUN);
            (states.collect::<Vec<_>>() == [&wanted]).then_some(())
        })
        .await;
    }

    /// Waits until a comment of the bot on an issue contains a text, and returns it.
    pub async fn says(&self, issue: u64, text: &str) -> String {
        eventually(&format!("{text:?} in a comment on #{issue}"), async || self.said(issue, text).await).await
    }

    /// Comment of the bot on an issue that contains a text.
    pub async fn said(&self, issue: u64, text: &str) -> Option<String> {
        let comments = self.repo.comments(&self.mira, issue).await;
        let mut ours = comments.into_iter().filter(|comment| comment.login == self.robot.login);
        ours.find(|comment| comment.body.contains(text)).map(|comment| comment.body)
    }

    /// Waits until the bot reacts to a comment.
    pub async fn reacted(&self, comment: i64, with: &str) {
        eventually(&format!("the reaction {with}"), async || {
            let found = self.repo.reactions(&self.mira, comment, &self.robot.login).await;
            found.iter().any(|content| content == with).then_some(())
        })
        .await;
    }

    /// Waits until the bot asks the server about the repository anew before a change; it uses an answer for five seconds.
    pub async fn answer_about_the_repository_is_old(&self) {
        tokio::time::sleep(Duration::from_secs(6)).await;
    }

    /// Waits until the loop of the issue is paused, and asserts that the reason contains a text.
    pub async fn paused_because(&self, reason: &str) -> Loop {
        let stopped = self.bot.until(self.issue, "a stop", |found| !found.state.holds_slot()).await;
        assert!(
            stopped.state == LoopState::Paused && stopped.why.contains(reason),
            "{reason:?} was expected: {:?}, {}",
            stopped.state,
            stopped.why
        );
        stopped
    }

    /// Gives pending deliveries time to arrive, then waits until the service is idle. For effects that must not occur.
    pub async fn quiet(&self) {
        for _ in 0..3 {
            tokio::time::sleep(Duration::from_millis(500)).await;
            self.bot.until_idle().await;
        }
    }

    /// Asserts that no loop exists after all pending deliveries.
    pub async fn nothing_starts(&self) {
        self.quiet().await;
        let loops = self.bot.loops().await;
        assert!(loops.is_empty(), "{:?}", loops.iter().map(|found| (&found.state, &found.why)).collect::<Vec<_>>());
    }
}

/// No objects remain on a server that refuses in the middle of the preparation.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_preparation_leaves_no_objects() {
    for (on, refused) in [
        (On::FakeGitea, "/api/v1/orgs$"),
        (On::FakeGitea, "/collaborators/"),
        (On::FakeGitHub, "/admin/organizations$"),
        (On::FakeGitHub, "/collaborators/"),
    ] {
        let server = Arc::new(Server::open(on).await.expect("a fake"));
        let fake = server.fake().expect("a fake");
        // Requests that may be repeated are.
        let times = if refused.ends_with('$') { 1 } else { ATTEMPTS };
        fake.faults().next(times, "", refused, FakeFault::status(500)).expect("a pattern");
        let (outcome, left) = perform(server.clone(), &StoryPlan::new(), async |_| {
            unreachable!("unprepared");
        })
        .await;
        assert!(outcome.is_err() && fake.faults().remaining() == 0, "{on:?}, {refused}");
        assert_eq!(left, [""; 0], "{on:?}, {refused}");
        let (people, repositories) = fake.with(|state| {
            let made = |login: &&String| ["mira-", "ralph-", "acme-"].iter().any(|start| login.starts_with(start));
            let logins = state.accounts.values().map(|account| &account.user.login).filter(made).cloned();
            (logins.collect::<Vec<_>>(), state.repos.len())
        });
        assert_eq!((people, repositories), (Vec::new(), 0), "{on:?}, {refused}");
    }
}

/// Declares stories: a test for each story and server.
macro_rules! on_every_server {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        mod fake_github {
            $($(#[$doc])* #[tokio::test(flavor = "multi_thread", worker_threads = 2)] async fn $name() {
                super::$name($crate::server::On::FakeGitHub, stringify!($name)).await
            })+
        }
        mod fake_gitea {
            $($(#[$doc])* #[tokio::test(flavor = "multi_thread", worker_threads = 2)] async fn $name() {
                super::$name($crate::server::On::FakeGitea, stringify!($name)).await
            })+
        }
        mod real_gitea {
            $($(#[$doc])* #[tokio::test(flavor = "multi_thread", worker_threads = 2)] async fn $name() {
                super::$name($crate::server::On::RealGitea, stringify!($name)).await
            })+
        }
    };
}
pub(crate) use on_every_server;

/// Declares stories for Gitea and Forgejo only; `tests/it` or `tests/slow` may have them on the fake GitHub.
macro_rules! on_every_gitea {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        mod only {
            mod fake_gitea {
                $($(#[$doc])* #[tokio::test(flavor = "multi_thread", worker_threads = 2)] async fn $name() {
                    super::super::$name($crate::server::On::FakeGitea, stringify!($name)).await
                })+
            }
            mod real_gitea {
                $($(#[$doc])* #[tokio::test(flavor = "multi_thread", worker_threads = 2)] async fn $name() {
                    super::super::$name($crate::server::On::RealGitea, stringify!($name)).await
                })+
            }
        }
    };
}
pub(crate) use on_every_gitea;

/// Declares that stories run on the fake Gitea 1.22, too: those that depend on the version.
macro_rules! on_old_gitea {
    ($($name:ident),+ $(,)?) => {
        mod old_gitea {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)] async fn $name() {
                super::$name($crate::server::On::OldGitea, stringify!($name)).await
            })+
        }
    };
}
pub(crate) use on_old_gitea;
