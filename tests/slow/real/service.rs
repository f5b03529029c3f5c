//! The complete service on a third-party forge.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use fake_forge::Dialect;
use ralph_bot::app::{Application, Options};
use ralph_bot::config::{Config, Env};
use ralph_bot::domain::loops::{Loop, LoopState};
use ralph_bot::engine::Role;
use ralph_bot::forge::http::RateSettings;
use ralph_bot::process::SandboxTier;
use ralph_bot::store::{inbox, loops, outbox};
use tempfile::TempDir;

use crate::harness::parts::{command, output, setting};
use crate::harness::{SECRET, Setup, sandbox};

/// Maximum wait for a state.
const WAIT_LIMIT: Duration = Duration::from_secs(120);

/// Service, its folder, and an agent that completes the task in its first run.
pub struct RealService {
    app: Application,
    folder: TempDir,
}

impl RealService {
    /// Starts the service. `forge` is the forge's part of the operator's file, without name and webhook secret; `secrets` are
    /// the variables that it refers to.
    pub async fn start(forge: &str, secrets: &[(&str, &str)]) -> Self {
        let folder = tempfile::Builder::new().prefix("ralph-real-").tempdir().expect("a folder");
        let script = format!("#!/bin/sh\n{}", Setup::new(Dialect::GitHub).agent);
        std::fs::write(folder.path().join("agent.sh"), script).expect("the agent is written");
        let sandbox = sandbox().await;
        let at = folder.path().display();
        let text = format!(
            "server: {{ listen: \"127.0.0.1:0\" }}\ndata_dir: ./data\nforges:\n  - {{ name: forge, webhook_secret_env: SECRET, {forge} }}\nsandbox: {{ required: {required}, read_only: [\"{at}/agent.sh\"] }}\nbackends:\n  mine: {{ type: script, command: [\"/bin/sh\", \"{at}/agent.sh\"], roles: [agent] }}\n",
            required = if sandbox.tier == SandboxTier::A { "auto" } else { "none" },
        );
        let inherited = ["PATH", "HOME"].map(|name| (name, setting(name).unwrap_or_default()));
        let mut known = vec![("SECRET", SECRET)];
        known.extend(secrets);
        known.extend(inherited.iter().map(|(name, value)| (*name, value.as_str())));
        let env = Env::of(known);
        let config = Config::parse(&folder.path().join("ralph-control.yaml"), &text, &env)
            .unwrap_or_else(|problems| panic!("{problems}\n{text}"));
        let rates = RateSettings { mutation_interval_ms: Some(0), ..RateSettings::default() };
        let mut options = Options { role: Role::All, rates, sandbox: Some(sandbox), ..Options::of(&config) };
        // The test binary has no subcommand for the session memory; the real one has.
        options.program = Some(env!("CARGO_BIN_EXE_ralph-bot").into());
        options.pace.poll = Duration::from_millis(50);
        options.pace.ambiguity_wait = Duration::from_millis(50);
        options.pace.retry_first = Duration::from_millis(50);
        // Only webhooks report changes, because no reconciliation is due during a test.
        options.rounds.live = Duration::from_secs(3600);
        options.rounds.idle = Duration::from_secs(3600);
        let app = Application::start(&config, &env, options).await.expect("the service starts");
        Self { app, folder }
    }

    /// Address that the service receives webhooks at.
    pub fn address(&self) -> SocketAddr {
        self.app.address.expect("the service listens")
    }

    /// URL for the webhooks of a forge.
    pub fn hook(&self) -> String {
        format!("http://{}/webhooks/forge", self.address())
    }

    /// Waits until the newest loop is in a state.
    pub async fn until(&self, state: LoopState) -> Loop {
        let waiting = async {
            loop {
                let newest = self.newest().await;
                if let Some(found) = newest.filter(|newest| newest.state == state) {
                    return found;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        match tokio::time::timeout(WAIT_LIMIT, waiting).await {
            Ok(found) => found,
            Err(_) => panic!("timed out waiting for {state:?}: {}", self.story().await),
        }
    }

    /// Waits until the newest loop is in review and the forge shows its pull request as ready.
    pub async fn until_ready(&self, is_ready: impl AsyncFn(u64) -> bool) -> Loop {
        let waiting = async {
            loop {
                let done = self.until(LoopState::Review).await;
                if let Some(pull) = &done.pull.opened
                    && is_ready(pull.number.0).await
                {
                    return done;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        match tokio::time::timeout(WAIT_LIMIT, waiting).await {
            Ok(found) => found,
            Err(_) => panic!("the pull request is never ready: {}", self.story().await),
        }
    }

    /// Waits until no effect of the newest loop is pending.
    pub async fn wait_until_idle(&self) {
        let store = &self.app.engine.store;
        let waiting = async {
            while !store.read(outbox::counts).await.expect("outbox").is_empty() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        if tokio::time::timeout(WAIT_LIMIT, waiting).await.is_err() {
            panic!("the service never comes to rest: {}", self.story().await);
        }
    }

    async fn newest(&self) -> Option<Loop> {
        let newest = self.app.engine.store.read(|c| loops::list(c, false, 1)).await.expect("loops");
        newest.into_iter().next()
    }

    /// Effects and their receipts, for failure messages.
    pub async fn story(&self) -> String {
        let store = &self.app.engine.store;
        let deliveries = store.read(inbox::counts).await.expect("inbox");
        let Some(newest) = self.newest().await else { return format!("no loop; deliveries {deliveries:?}") };
        let receipts = store.read(move |c| outbox::of_subject(c, newest.id.as_str())).await.expect("receipts");
        format!("{:?}: {}; deliveries {deliveries:?}; {receipts:#?}", newest.state, newest.why)
    }

    /// Stops the service; by then every delivery must have been processed successfully.
    pub async fn stop(self) {
        let deliveries = self.app.engine.store.read(inbox::counts).await.expect("inbox");
        assert!(deliveries.iter().all(|(state, count)| state != "dead" || *count == 0), "{deliveries:?}");
        let log = self.folder.path().join("data/logs");
        assert!(log.is_dir(), "the agent's output is kept");
        self.app.stop().await;
    }
}

/// Makes the sample repository as a bare one at `path`, with one commit on `main`.
pub async fn bare_repository(path: &Path) {
    let tree = tempfile::tempdir().expect("a folder");
    let git = |arguments: &[&str]| {
        let mut git = command("git");
        git.current_dir(tree.path()).args(["-c", "user.name=Mira", "-c", "user.email=mira@example.org"]);
        git.args(arguments);
        git
    };
    output(&mut git(&["init", "-q", "-b", "main"])).await;
    for (name, text, executable) in Setup::new(Dialect::GitHub).files {
        let file = tree.path().join(name);
        std::fs::write(&file, text).expect("a file");
        let mode = if executable { 0o755 } else { 0o644 };
        std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(mode)).expect("its mode");
    }
    output(&mut git(&["add", "-A"])).await;
    output(&mut git(&["commit", "-q", "-m", "Begin"])).await;
    let target = path.to_str().expect("a plain path");
    output(&mut git(&["clone", "-q", "--bare", ".", target])).await;
}
