//! Initial state of a story: the repository, the issue, the agent's script and the operator's configuration.

use ralph_bot::fake::Dialect;
use ralph_bot::forge::http::Patience;
use ralph_bot::process::sandbox::{SandboxProbe, Tier, probe};
use tokio::sync::OnceCell;

/// Secret of every webhook here.
pub const SECRET: &str = "a-webhook-secret-of-the-stories-0123456789";

/// What a world begins with.
#[derive(Clone)]
pub struct Setup {
    pub dialect: Dialect,
    /// Files of the repository: path, content, executable.
    pub files: Vec<(String, String, bool)>,
    /// Body of the agent, after a `#!/bin/sh` line; runs in the work tree.
    pub agent: String,
    /// Further lines of the operator's file.
    pub config: String,
    pub title: String,
    pub body: String,
    /// How long the service waits for the forge.
    pub patience: Patience,
    /// Further variables of the service's environment.
    pub env: Vec<(&'static str, String)>,
    /// Whether agents and checks run in a sandbox where this machine has one. Otherwise none is asked for, which is
    /// faster.
    pub isolated: bool,
    /// What the service finds of a sandbox, which is required then, in place of what this machine has.
    pub sandbox: Option<SandboxProbe>,
    /// What agents reach, as `sandbox.network` has it.
    pub network: String,
    /// Further keys of the backend in the operator's file, each after a comma.
    pub backend: String,
    /// How the service signs in, as its entry in the operator's file has it.
    pub credential: String,
    /// Further entries of `forges` in the operator's file, each with the line break before it.
    pub forges: String,
    /// Least time between two changes of a forge.
    pub mutation_interval_ms: i64,
}

impl Setup {
    /// A repository with one failing check (`sh check.sh` wants `answer.txt` to hold 42), and an agent that gets there
    /// in its first run.
    pub fn new(dialect: Dialect) -> Self {
        let file = |path: &str, text: &str, executable| (path.to_owned(), text.to_owned(), executable);
        Self {
            dialect,
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
            config: String::new(),
            title: "The answer is wrong".into(),
            body: "It should be 42.".into(),
            patience: Patience::USUAL,
            env: Vec::new(),
            isolated: false,
            sandbox: None,
            network: "all".into(),
            backend: String::new(),
            credential: "token_env: TOKEN".into(),
            forges: String::new(),
            mutation_interval_ms: 0,
        }
    }

    pub fn agent(mut self, script: &str) -> Self {
        self.agent = script.into();
        self
    }

    pub fn file(mut self, path: &str, text: &str) -> Self {
        self.files.retain(|(p, _, _)| p != path);
        self.files.push((path.into(), text.into(), false));
        self
    }

    /// Runs agents and checks in a sandbox, where this machine has one.
    pub fn isolated(mut self) -> Self {
        self.isolated = true;
        self
    }

    pub fn without(mut self, path: &str) -> Self {
        self.files.retain(|(p, _, _)| p != path);
        self
    }

    pub fn config(mut self, lines: &str) -> Self {
        self.config.push_str(lines);
        self.config.push('\n');
        self
    }
}

/// The sandbox of this machine, looked at once.
pub async fn sandbox() -> SandboxProbe {
    static FOUND: OnceCell<SandboxProbe> = OnceCell::const_new();
    let found = FOUND.get_or_init(probe).await.clone();
    if found.tier != Tier::A {
        let why = format!("bubblewrap does not hold here: {:?}", found.bubblewrap);
        assert!(std::env::var_os("CI").is_none(), "{why}; install bubblewrap and allow user namespaces");
        eprintln!("agents and checks of this story run without a sandbox: {why}");
    }
    found
}
