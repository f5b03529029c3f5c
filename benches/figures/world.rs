//! Forge with a repository, an agent that is a shell script, and the service in this process.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use fake_forge::{Access, Dialect, FakeForge, FakeRefusal};
use ralph_bot::app::{Application, Options};
use ralph_bot::clock::{Clock, Stopwatch};
use ralph_bot::config::{Config, Env};
use ralph_bot::domain::loops::Loop;
use ralph_bot::domain::model::ids::{AccountKind, Number, RepoId, User};
use ralph_bot::engine::{Engine, Role};
use ralph_bot::forge::http::RateSettings;
use ralph_bot::process::{ProbeSettings, SandboxTier, probe_sandbox};
use ralph_bot::store::loops;

use crate::service::SECRET;

/// Maximum wait for the service.
const PATIENCE: Duration = Duration::from_secs(60);
/// Interval of reconciliation of all watched repositories.
const ROUND: Duration = Duration::from_secs(30);
/// Time without requests after which a round counts as ended.
const QUIET: Duration = Duration::from_secs(5);

/// Forge, repository, agent and service.
pub struct BenchWorld {
    pub forge: FakeForge,
    pub repo: RepoId,
    pub app: Application,
    /// Whether agents and checks run in bubblewrap.
    pub sandboxed: bool,
    maintainer: User,
}

impl BenchWorld {
    /// Starts the service. `agent` is a shell script, `role` the parts of the service that run independently.
    pub async fn start(folder: PathBuf, files: &[(String, String)], agent: &str, role: Role) -> anyhow::Result<Self> {
        Self::start_with(folder, files, agent, role, "").await
    }

    /// Starts the service with additional configuration: further backends, indented by two, followed by other keys.
    pub async fn start_with(
        folder: PathBuf,
        files: &[(String, String)],
        agent: &str,
        role: Role,
        more: &str,
    ) -> anyhow::Result<Self> {
        let forge = FakeForge::start(Dialect::Gitea, Clock::System).await?;
        let maintainer = forge.add_user("mira", AccountKind::User);
        let bot = forge.add_user("ralph-bot", AccountKind::User);
        let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), text.as_str(), false)).collect();
        let repo = forge.create_repo("mira", "app", &files).await.map_err(refused)?;
        forge.grant(repo, &bot, Access::Admin).map_err(refused)?;
        let script = folder.join("agent.sh");
        std::fs::write(&script, agent)?;
        let sandbox = probe_sandbox(&ProbeSettings { folder: folder.clone(), ..ProbeSettings::default() }).await;
        let sandboxed = sandbox.tier == SandboxTier::A;
        let text = format!(
            "server: {{ listen: \"127.0.0.1:0\" }}\ndata_dir: \"{data}\"\nforges:\n  - {{ name: forge, kind: gitea, url: \"{url}\", token_env: TOKEN, webhook_secret_env: SECRET }}\nsandbox: {{ required: {required}, read_only: [\"{script}\"] }}\nbackends:\n  mine: {{ type: script, command: [/bin/sh, \"{script}\"], roles: [agent] }}\n{more}limits: {{ iterations: 500, loops: 50, loops_per_repository: 50, comments_per_hour: 1000, comments_per_day: 1000 }}\n",
            data = folder.join("data").display(),
            url = forge.url(),
            required = if sandboxed { "auto" } else { "none" },
            script = script.display(),
        );
        let token = forge.token_for(&bot);
        let path = std::env::var("PATH").unwrap_or_default();
        let home = std::env::var("HOME").unwrap_or_default();
        let env = Env::of([("TOKEN", token.as_str()), ("SECRET", SECRET), ("PATH", &path), ("HOME", &home)]);
        let config = Config::parse(&folder.join("ralph-control.yaml"), &text, &env);
        let config = config.map_err(|problems| anyhow::anyhow!("{problems}"))?;
        // The second between two writes that real forges require would hide the service's overhead.
        let rates = RateSettings { mutation_interval_ms: Some(0), ..RateSettings::default() };
        let mut options = Options { role, rates, sandbox: Some(sandbox), ..Options::of(&config) };
        options.partial_clone = false;
        options.rounds.idle = ROUND;
        // The current executable is the benchmark, which lacks the service's subcommands.
        options.program = Some(env!("CARGO_BIN_EXE_ralph-bot").into());
        let app = Application::start(&config, &env, options).await?;
        let address = app.address.context("the service does not listen")?;
        let url = format!("http://{address}/webhooks/forge");
        forge.add_hook(repo, &url, SECRET).await.map_err(refused)?;
        Ok(Self { forge, repo, app, sandboxed, maintainer })
    }

    /// Starts the service on a forge with `count` repositories without issues, all of which the bot may see.
    pub async fn watching(folder: PathBuf, count: u64) -> anyhow::Result<Self> {
        let world = Self::start(folder, &[("README.md".into(), "A sample.\n".into())], "", Role::All).await?;
        let bot = world.forge.add_user("ralph-bot", AccountKind::User);
        for nth in 1..count {
            let files = [("README.md", "A sample.\n", false)];
            let repo = world.forge.create_repo("mira", &format!("app{nth}"), &files).await.map_err(refused)?;
            world.forge.grant(repo, &bot, Access::Admin).map_err(refused)?;
        }
        Ok(world)
    }

    /// Waits until the service has sent no request for [`QUIET`]; returns the number of requests so far.
    pub async fn quiet(&self) -> anyhow::Result<usize> {
        let mut known = self.forge.faults().requests().len();
        loop {
            tokio::time::sleep(QUIET).await;
            let now = self.forge.faults().requests().len();
            if now == known {
                return Ok(now);
            }
            known = now;
        }
    }

    /// Waits for the requests of the next round; returns the number of requests so far. `before` is that number before it.
    pub async fn next_round(&self, before: usize) -> anyhow::Result<usize> {
        let asked = async || Ok((self.forge.faults().requests().len() > before).then_some(()));
        self.until("the next round", asked).await?;
        self.quiet().await
    }

    pub fn engine(&self) -> &Arc<Engine> {
        &self.app.engine
    }

    /// Creates an issue.
    pub async fn issue(&self) -> anyhow::Result<Number> {
        let (title, body) = ("The count is too low", "Make the check pass.");
        self.forge.open_issue(&self.maintainer, self.repo, title, body, &[]).await.map_err(refused)
    }

    /// Sets the label on an issue.
    pub async fn label(&self, issue: Number) -> anyhow::Result<()> {
        self.forge.label(&self.maintainer, self.repo, issue, "ralph:run").await.map_err(refused)
    }

    /// Returns the newest loop.
    pub async fn newest(&self) -> anyhow::Result<Option<Loop>> {
        Ok(self.engine().store.read(|c| loops::list(c, false, 1)).await?.into_iter().next())
    }

    /// Waits until a query returns a value.
    pub async fn until<T>(&self, what: &str, look: impl AsyncFn() -> anyhow::Result<Option<T>>) -> anyhow::Result<T> {
        let watch = Stopwatch::start();
        while watch.elapsed() < PATIENCE {
            if let Some(found) = look().await? {
                return Ok(found);
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let newest = self.newest().await?.map(|l| (l.state, l.run.step, l.why));
        anyhow::bail!("timed out waiting for {what}; the newest loop: {newest:?}")
    }
}

fn refused(refusal: FakeRefusal) -> anyhow::Error {
    anyhow::anyhow!("the forge refused: {refusal:?}")
}
