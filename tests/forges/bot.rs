//! The service that a story is about: the complete service in this process, which the story starts, stops and restarts on the
//! same data and port.

use std::time::{Duration, Instant};

use fake_forge::Dialect;
use ralph_bot::app::{Application, Options};
use ralph_bot::config::{Config, Env};
use ralph_bot::domain::loops::{Loop, LoopState};
use ralph_bot::engine::Role;
use ralph_bot::forge::http::RateSettings;
use ralph_bot::process::{SandboxProbe, SandboxTier};
use ralph_bot::store::{inbox, loops, outbox};
use tempfile::TempDir;
use test_support::free_port;

use crate::harness::parts::{command, setting};
use crate::harness::{SECRET, Setup};

/// Maximum wait for a condition; for a loop, since its last step.
pub const WAIT_LIMIT: Duration = Duration::from_secs(90);
/// Time before the second look.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// Maximum time between two looks. Each look at a real server checks the hash of a token, which takes as much of its processor as
/// the requests of a whole iteration.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Waits between two looks, longer each time.
struct Pauses(Duration);

impl Pauses {
    fn new() -> Self {
        Self(FIRST_PAUSE)
    }

    async fn wait(&mut self) {
        tokio::time::sleep(self.0).await;
        self.0 = (self.0 * 5 / 4).min(LONGEST_PAUSE);
    }
}

/// Repeats a question until it has an answer.
///
/// # Panics
///
/// After `WAIT_LIMIT`.
pub async fn eventually<T>(what: &str, ask: impl AsyncFn() -> Option<T>) -> T {
    eventually_or(ask, || format!("timed out waiting for {what}")).await
}

/// Same as `eventually`; `complaint` gives the words of the panic.
///
/// # Panics
///
/// After `WAIT_LIMIT`.
pub async fn eventually_or<T>(ask: impl AsyncFn() -> Option<T>, complaint: impl FnOnce() -> String) -> T {
    let waiting = async {
        let mut pauses = Pauses::new();
        loop {
            if let Some(found) = ask().await {
                return found;
            }
            pauses.wait().await;
        }
    };
    match tokio::time::timeout(WAIT_LIMIT, waiting).await {
        Ok(found) => found,
        Err(_) => panic!("{}", complaint()),
    }
}

/// The service, its data and its configuration.
pub struct Bot {
    app: Option<Application>,
    folder: TempDir,
    port: u16,
    /// Address for the server's webhooks, without a path.
    public: String,
    config: String,
    token: String,
}

impl Bot {
    /// Writes the configuration; nothing is started. `watched` are the repositories as `owner/name` with globs, `host` is the name
    /// by which the server reaches this machine, `None` for a server on it.
    pub fn new(setup: &Setup, (kind, url): (&str, &str), token: &str, watched: &[String], host: Option<&str>) -> Self {
        let folder = tempfile::Builder::new().prefix("ralph-forges-").tempdir().expect("a folder");
        let port = free_port();
        let at = folder.path().display();
        let listen = if host.is_some() { "0.0.0.0" } else { "127.0.0.1" };
        let public = format!("http://{}:{port}", host.unwrap_or("127.0.0.1"));
        let watched: Vec<String> = watched.iter().map(|name| format!("\"forge:{name}\"")).collect();
        let config = format!(
            "server: {{ listen: \"{listen}:{port}\", public_url: \"{public}\" }}\ndata_dir: ./data\nforges:\n  - {{ name: forge, kind: {kind}, url: \"{url}\", token_env: TOKEN, {} }}\nrepositories: [{}]\nsandbox: {{ required: none, read_only: [\"{at}/agent.sh\"] }}\nbackends:\n  mine: {{ type: script, command: [\"/bin/sh\", \"{at}/agent.sh\"], roles: [agent] }}\nlimits: {{ comments_per_hour: 1000, comments_per_day: 1000, loops_per_repository: 2 }}\n{}",
            setup.updates.keys(),
            watched.join(", "),
            setup.config,
        );
        let bot = Self { app: None, folder, port, public, config, token: token.to_owned() };
        bot.agent(&setup.agent);
        bot
    }

    /// Replaces the agent's script.
    pub fn agent(&self, script: &str) {
        std::fs::write(self.folder.path().join("agent.sh"), format!("#!/bin/sh\n{script}")).expect("the agent");
    }

    /// Path of a file that the agent may use to wait for the story.
    pub fn signal_file(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    /// Address of its webhooks for the server.
    pub fn hook_url(&self) -> String {
        format!("{}/webhooks/forge", self.public)
    }

    /// Address of its webhooks on this machine.
    pub fn local_hook_url(&self) -> String {
        format!("http://127.0.0.1:{}/webhooks/forge", self.port)
    }

    /// Starts the service on its data.
    pub async fn start(&mut self) {
        let inherited = ["PATH", "HOME"].map(|name| (name, setting(name).unwrap_or_default()));
        let mut known = vec![("SECRET", SECRET), ("TOKEN", self.token.as_str())];
        known.extend(inherited.iter().map(|(name, value)| (*name, value.as_str())));
        let env = Env::of(known);
        let mut config = Config::parse(&self.folder.path().join("ralph-control.yaml"), &self.config, &env)
            .unwrap_or_else(|problems| panic!("{problems}\n{}", self.config));
        for poll in config.forges.iter_mut().filter_map(|forge| forge.updates.poll.as_mut()) {
            *poll = Duration::from_millis(500);
        }
        let bubblewrap = Err("these stories are about forges".into());
        let mut options = Options {
            role: Role::All,
            rates: RateSettings { mutation_interval_ms: Some(0), ..RateSettings::default() },
            sandbox: Some(SandboxProbe { tier: SandboxTier::C, bubblewrap, escapes: Vec::new(), landlock: None }),
            // The test binary has no subcommand for the session memory; the real one has.
            program: Some(env!("CARGO_BIN_EXE_ralph-bot").into()),
            ..Options::of(&config)
        };
        options.pace.poll = Duration::from_millis(50);
        options.pace.ambiguity_wait = Duration::from_millis(200);
        options.pace.retry_first = Duration::from_millis(100);
        options.pace.retry_most = Duration::from_secs(1);
        options.pace.stop_grace = Duration::from_secs(5);
        options.rounds.missed_event_after_ms = 15_000;
        self.app = Some(Application::start(&config, &env, options).await.expect("the service starts"));
    }

    /// Creates the webhook of a repository as an operator does, by the real program; returns whether its test succeeded.
    pub async fn init_webhook(&self, repository: &str) -> bool {
        let mut program = self.program(&self.token);
        let done = program.args(["init", "--webhook", "--repository", repository]).output().await;
        let done = done.expect("the program starts");
        let said = [done.stdout, done.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
        assert!(said.contains("is configured") || said.contains("is correct"), "{said}");
        done.status.success()
    }

    /// Finding of `ralph-bot check` about a token: whether it is `ok`, and the words.
    pub async fn check_token(&self, token: &str) -> (bool, String) {
        self.check(token, "token of forge").await
    }

    /// Finding of `ralph-bot check` about the webhooks: whether it is `ok`, and the words.
    pub async fn check_webhooks(&self) -> (bool, String) {
        self.check(&self.token, "webhooks of forge").await
    }

    async fn check(&self, token: &str, name: &str) -> (bool, String) {
        let printed = self.program(token).args(["--json", "check"]).output().await.expect("the program starts");
        let printed = String::from_utf8_lossy(&printed.stdout).into_owned();
        let findings = printed.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        let about = findings.into_iter().find(|finding| finding["name"] == name);
        let about = about.unwrap_or_else(|| panic!("nothing about the {name}: {printed}"));
        (about["outcome"] == "ok", about["detail"].as_str().unwrap_or_default().to_owned())
    }

    /// The real program with the operator's configuration and a token.
    fn program(&self, token: &str) -> tokio::process::Command {
        let path = self.folder.path().join("ralph-control.yaml");
        std::fs::write(&path, &self.config).expect("the operator's file");
        let mut program = command(env!("CARGO_BIN_EXE_ralph-bot"));
        program.arg("--config").arg(&path).current_dir(self.folder.path()).env("TOKEN", token).env("SECRET", SECRET);
        program
    }

    /// Stops the service; without effect if it does not run.
    pub async fn stop(&mut self) {
        if let Some(app) = self.app.take() {
            app.stop().await;
        }
    }

    fn app(&self) -> &Application {
        self.app.as_ref().expect("the service runs")
    }

    /// All loops, newest first.
    pub async fn loops(&self) -> Vec<Loop> {
        self.app().engine.store.read(|c| loops::list(c, false, 1000)).await.expect("loops")
    }

    /// Newest loop of an issue.
    pub async fn of_issue(&self, issue: u64) -> Option<Loop> {
        self.loops().await.into_iter().find(|found| found.issue.issue.0 == issue)
    }

    /// Waits until the newest loop of an issue meets a condition, and returns it. A busy machine may be slow, but a loop that takes
    /// no step is stuck.
    pub async fn until(&self, issue: u64, what: &str, holds: impl Fn(&Loop) -> bool) -> Loop {
        let (mut version, mut since) = (None, Instant::now());
        loop {
            let found = self.of_issue(issue).await;
            if let Some(found) = found.as_ref().filter(|found| holds(found)) {
                return found.clone();
            }
            let seen = found.map(|found| (found.id, found.version));
            if seen != version {
                (version, since) = (seen, Instant::now());
            }
            if since.elapsed() > WAIT_LIMIT {
                panic!("timed out waiting for {what} of #{issue}: {}", self.story(issue).await);
            }
            tokio::time::sleep(FIRST_PAUSE).await;
        }
    }

    /// Waits until the newest loop of an issue is in a state, and returns it.
    pub async fn until_state(&self, issue: u64, state: LoopState) -> Loop {
        self.until(issue, &format!("{state:?}"), |found| found.state == state).await
    }

    /// Waits until no delivery and no effect is pending.
    pub async fn until_idle(&self) {
        let store = &self.app().engine.store;
        eventually("an idle service", async || {
            let inbox = store.read(inbox::counts).await.expect("inbox");
            let waiting = inbox.iter().any(|(state, count)| state == "new" && *count > 0);
            let busy = store.read(outbox::counts).await.expect("outbox").iter().any(|(_, count)| *count > 0);
            let inputs = store.read(loops::has_inputs).await.expect("inputs");
            (!waiting && !busy && !inputs).then_some(())
        })
        .await;
    }

    /// Number of deliveries that were received.
    pub async fn deliveries(&self) -> u64 {
        self.app().engine.store.read(inbox::counts).await.expect("inbox").iter().map(|(_, count)| count).sum()
    }

    /// Effects of the newest loop of an issue, for messages.
    pub async fn story(&self, issue: u64) -> String {
        let store = &self.app().engine.store;
        let deliveries = store.read(inbox::counts).await.expect("inbox");
        let Some(found) = self.of_issue(issue).await else { return format!("no loop; deliveries {deliveries:?}") };
        let id = found.id.clone();
        let effects = store.read(move |c| outbox::of_subject(c, id.as_str())).await.expect("effects");
        let effects: Vec<String> = effects.iter().map(|row| format!("{row:?}").chars().take(300).collect()).collect();
        let last = effects.len().saturating_sub(8);
        let why = (&found.state, &found.run.step, &found.why);
        format!("{why:?}, deliveries {deliveries:?}; the last effects:\n{}", effects[last..].join("\n"))
    }

    /// Prompts of all agent runs of a loop, oldest first, joined.
    pub fn prompts(&self, of: &Loop) -> String {
        let folder = self.folder.path().join("data/logs").join(of.id.as_str());
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
        let mut paths: Vec<_> = entries.filter(|path| path.to_string_lossy().ends_with(".prompt.md")).collect();
        paths.sort();
        paths.iter().map(|path| std::fs::read_to_string(path).expect("a prompt")).collect()
    }

    /// Asserts that no delivery was given up.
    pub async fn assert_sound(&self) {
        if self.app.is_none() {
            return;
        }
        let deliveries = self.app().engine.store.read(inbox::counts).await.expect("inbox");
        assert!(deliveries.iter().all(|(state, count)| state != "dead" || *count == 0), "{deliveries:?}");
    }
}

/// Files of the sample repository: path and text.
pub fn files(setup: &Setup) -> Vec<(&str, &str)> {
    setup.files.iter().map(|(path, text, _)| (path.as_str(), text.as_str())).collect()
}

/// Sample repository and agent of the stories; the dialect is the server's.
pub fn sample() -> Setup {
    Setup::new(Dialect::Gitea)
}
