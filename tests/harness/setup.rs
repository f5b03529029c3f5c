//! Initial state of a story: the repository, the issue, the agent's script and the operator's configuration.

use std::net::Ipv4Addr;

use fake_forge::Dialect;
use ralph_bot::config::Config;
use ralph_bot::forge::http::Timeouts;
use ralph_bot::process::{ProbeSettings, SandboxProbe, SandboxTier, probe_sandbox};
use tokio::sync::OnceCell;

use super::parts::setting;

/// Secret of every webhook.
pub const SECRET: &str = "a-webhook-secret-of-the-stories-0123456789";

/// Agent that fixes the check and adds a line to `notes.txt` in each iteration.
pub const WILLING: &str = "echo 42 >answer.txt\necho \"round $RALPH_ITERATION\" >>notes.txt\n";

/// Source of changes on the forge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpdateMode {
    Webhooks,
    Poll,
    Both,
}

impl UpdateMode {
    pub const ALL: [Self; 3] = [Self::Webhooks, Self::Poll, Self::Both];

    /// Mode of stories that do not name one: `RALPH_TEST_UPDATES`, or webhooks.
    pub fn of_stories() -> Self {
        match setting("RALPH_TEST_UPDATES").as_deref() {
            None | Some("webhooks") => Self::Webhooks,
            Some("poll") => Self::Poll,
            Some("both") => Self::Both,
            Some(other) => panic!("RALPH_TEST_UPDATES is `{other}`, expected `webhooks`, `poll` or `both`"),
        }
    }

    pub fn polls(self) -> bool {
        self != Self::Webhooks
    }

    /// Keys of the forge in the configuration.
    pub fn keys(self) -> &'static str {
        match self {
            Self::Webhooks => "webhook_secret_env: SECRET",
            Self::Poll => "updates: poll",
            Self::Both => "updates: both, webhook_secret_env: SECRET",
        }
    }
}

/// Initial state of a world.
#[derive(Clone)]
pub struct Setup {
    pub dialect: Dialect,
    /// Address of this machine on which the forge listens.
    pub forge_address: Ipv4Addr,
    /// Files of the repository: path, content, whether executable.
    pub files: Vec<(String, String, bool)>,
    /// Script of the agent, without its `#!/bin/sh` line; runs in the worktree.
    pub agent: String,
    /// Source of changes on the forge.
    pub updates: UpdateMode,
    /// Further lines of the operator's configuration.
    pub config: String,
    pub title: String,
    pub body: String,
    /// Timeouts of the service's requests to the forge.
    pub timeouts: Timeouts,
    /// Further variables of the service's environment.
    pub env: Vec<(&'static str, String)>,
    /// Whether agents and checks run in a sandbox, if this machine has one. Without a sandbox a story is faster.
    pub isolated: bool,
    /// Replaces the probe of this machine's sandbox; the configuration requires a sandbox then.
    pub sandbox: Option<SandboxProbe>,
    /// Further entries of `sandbox.read_only` in the configuration, each with a leading comma.
    pub read_only: String,
    /// Value of `sandbox.network`.
    pub network: String,
    /// Further keys of the backend in the configuration, each with a leading comma.
    pub backend: String,
    /// Credential keys of the forge in the configuration.
    pub credential: String,
    /// Further entries of `forges` in the configuration, each with a leading line break.
    pub forges: String,
    /// Minimum time between two mutating requests, in milliseconds; `None` for the pace of the forge.
    pub mutation_interval_ms: Option<i64>,
    /// Time for which refusals of a new token are retried, in milliseconds; 0 by default, because the clock of a story stands
    /// still, so that every 404 of an App would be retried.
    pub settling_ms: i64,
    /// Changes values of the parsed configuration that no file can set.
    pub adjust: fn(&mut Config),
}

impl Setup {
    /// A repository with one failing check (`sh check.sh` expects 42 in `answer.txt`), and an agent that fixes it in
    /// its first run.
    pub fn new(dialect: Dialect) -> Self {
        let file = |path: &str, text: &str, executable| (path.to_owned(), text.to_owned(), executable);
        Self {
            dialect,
            forge_address: Ipv4Addr::LOCALHOST,
            files: vec![
                file("README.md", "A sample.\n", false),
                file("answer.txt", "41\n", false),
                file(
                    "check.sh",
                    "test \"$(cat answer.txt)\" = 42 || { echo \"the answer is $(cat answer.txt)\"; exit 1; }\n",
                    true,
                ),
                file(".ralph.yml", "checks:\n  - name: answer\n    run: sh check.sh\n", false),
            ],
            agent: "echo 42 >answer.txt\n".into(),
            updates: UpdateMode::of_stories(),
            config: String::new(),
            title: "The answer is wrong".into(),
            body: "It should be 42.".into(),
            timeouts: Timeouts::USUAL,
            env: Vec::new(),
            isolated: false,
            sandbox: None,
            read_only: String::new(),
            network: "all".into(),
            backend: String::new(),
            credential: "token_env: TOKEN".into(),
            forges: String::new(),
            mutation_interval_ms: Some(0),
            settling_ms: 0,
            adjust: |_| {},
        }
    }

    /// Replaces the agent's script.
    pub fn agent(mut self, script: &str) -> Self {
        self.agent = script.into();
        self
    }

    /// Adds or replaces a file of the repository.
    pub fn file(mut self, path: &str, text: &str) -> Self {
        self.files.retain(|(p, _, _)| p != path);
        self.files.push((path.into(), text.into(), false));
        self
    }

    /// Runs agents and checks in a sandbox, if this machine has one.
    pub fn isolated(mut self) -> Self {
        self.isolated = true;
        self
    }

    /// Removes a file of the repository.
    pub fn without(mut self, path: &str) -> Self {
        self.files.retain(|(p, _, _)| p != path);
        self
    }

    /// Adds lines to the operator's configuration.
    pub fn config(mut self, lines: &str) -> Self {
        self.config.push_str(lines);
        self.config.push('\n');
        self
    }
}

/// Sandbox of this machine, probed once per process. If there is none, the calling test is recorded as skipped.
pub async fn sandbox() -> SandboxProbe {
    static PROBE: OnceCell<SandboxProbe> = OnceCell::const_new();
    let found = PROBE
        .get_or_init(async || {
            let program = Some(env!("CARGO_BIN_EXE_ralph-bot").into());
            probe_sandbox(&ProbeSettings { folder: std::env::temp_dir(), program, ..ProbeSettings::default() }).await
        })
        .await
        .clone();
    if found.tier != SandboxTier::A {
        let why = format!("bubblewrap does not work here: {:?}", found.bubblewrap);
        skipped_tests::skip(&format!("no sandbox, because {why}; install bubblewrap and allow user namespaces"));
    }
    found
}
