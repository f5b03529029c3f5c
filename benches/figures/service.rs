//! The service as run by operators: the real binary with a configuration and a database.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::Context;
use fake_forge::{Access, Dialect, FakeForge};
use ralph_bot::domain::loops::command;
use ralph_bot::domain::loops::{CommandInput, LoopInput, LoopStart, LoopState, LoopTask, RunOptions, TaskText};
use ralph_bot::domain::model::ids::IssueRef;
use ralph_bot::domain::model::ids::{AccountKind, ForgeName, LoopId, Number, RepoId, RepoRef, Timestamp, User};
use ralph_bot::domain::trust::policy::Policy;
use ralph_bot::store::inbox::{Body, StoredDelivery};
use ralph_bot::store::memory::StepMemory;
use ralph_bot::store::sql::Connection;
use ralph_bot::store::{Store, StoreError, inbox, loops};

/// Secret of all webhooks.
pub const SECRET: &str = "a-webhook-secret-of-the-figures-0123456789";
/// Configuration without a sandbox, because neither sandbox nor agent affects these figures.
const REST: &str =
    "sandbox: { required: none }\nbackends: { mine: { type: script, command: [/bin/true], roles: [agent] } }\n";
/// Number of rows per transaction while preparing a database.
const ROWS_AT_ONCE: u64 = 500;

/// Running service; dropping it kills the process.
pub struct BenchService {
    child: Child,
    /// Address of its listener.
    pub address: SocketAddr,
    /// Operator's token, if the dashboard has no login.
    pub token: Option<String>,
}

/// Forge in the service's configuration.
pub struct Seat {
    kind: &'static str,
    url: String,
    token: String,
    own: i64,
}

impl Seat {
    /// Returns github.com, for a service that accepts deliveries and makes no calls.
    pub fn nobody() -> Self {
        Self { kind: "github", url: "https://github.com".into(), token: "none".into(), own: 1 }
    }
}

impl BenchService {
    /// Starts the binary and waits until it listens. `wrap` is a program that runs the binary, with its arguments; may be
    /// empty.
    pub fn start(folder: &Path, seat: &Seat, role: &str, wrap: &[&str]) -> anyhow::Result<Self> {
        Self::start_at(folder, seat, role, wrap, 0)
    }

    /// Like [`BenchService::start`], on a port; 0 is any.
    pub fn start_at(folder: &Path, seat: &Seat, role: &str, wrap: &[&str], port: u16) -> anyhow::Result<Self> {
        Self::start_with(folder, seat, role, wrap, port, "")
    }

    /// Starts the binary with a database of PostgreSQL.
    pub fn start_on(folder: &Path, seat: &Seat, role: &str, database: &str) -> anyhow::Result<Self> {
        Self::start_with(folder, seat, role, &[], 0, &format!("database: \"{database}\"\n"))
    }

    fn start_with(
        folder: &Path,
        seat: &Seat,
        role: &str,
        wrap: &[&str],
        port: u16,
        settings: &str,
    ) -> anyhow::Result<Self> {
        let Seat { kind, url, token, own } = seat;
        let file = folder.join("ralph-control.yaml");
        let data = data(folder);
        let text = format!(
            "server: {{ listen: \"127.0.0.1:{port}\" }}\ndata_dir: \"{}\"\nforges:\n  - {{ name: forge, kind: {kind}, url: \"{url}\", token_env: TOKEN, webhook_secret_env: SECRET, own_id: {own} }}\n{REST}{settings}",
            data.display()
        );
        std::fs::write(&file, text)?;
        let own = env!("CARGO_BIN_EXE_ralph-bot");
        let mut words = wrap.iter().copied().chain([own]);
        let mut command = Command::new(words.next().unwrap_or(own));
        command.args(words).args(["serve", "--json", "--role", role, "--config"]).arg(&file);
        command.env("TOKEN", token).env("SECRET", SECRET).env("RALPH_LOG", "warn");
        command.stderr(std::fs::File::create(folder.join("service.log"))?);
        let (child, line) = first_line(command)?;
        let said: serde_json::Value = serde_json::from_str(&line).with_context(|| {
            format!(
                "the service did not start: {}",
                std::fs::read_to_string(folder.join("service.log")).unwrap_or_default()
            )
        })?;
        let address =
            said["listening"].as_str().and_then(|url| url.strip_prefix("http://")).unwrap_or_default().parse()?;
        let link = said["dashboard"].as_str().and_then(|link| url::Url::parse(link).ok());
        let token = link.and_then(|link| Some(link.query_pairs().find(|(name, _)| name == "token")?.1.into_owned()));
        Ok(Self { child, address, token })
    }

    /// Returns the process id of the service, or of the program that runs it.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for BenchService {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// Starts a program in a new process group, and reads the line that reports its readiness.
pub fn first_line(mut command: Command) -> anyhow::Result<(Child, String)> {
    let mut child = command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    if let Some(out) = child.stdout.as_mut() {
        BufReader::new(out).read_line(&mut line)?;
    }
    Ok((child, line))
}

/// Kills a program and its process group.
pub fn end(child: &mut Child) {
    let group = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
    if let Some(group) = group {
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
    let _ = child.wait();
}

/// Returns a service's data folder.
pub fn data(folder: &Path) -> PathBuf {
    folder.join("data")
}

/// Forge with issues, and a database with a paused loop for each issue.
pub struct Parked {
    /// Running forge; dropping it stops the forge.
    pub _forge: FakeForge,
    /// Forge in the configuration of a service with this database.
    pub seat: Seat,
}

impl Parked {
    /// Creates `count` issues, each with a paused loop that has no pending effects; then stores `deliveries` unprocessed
    /// deliveries.
    pub async fn prepare(folder: &Path, count: u64, deliveries: u64) -> anyhow::Result<Self> {
        std::fs::create_dir_all(data(folder))?;
        Self::prepare_in(Store::open(&data(folder).join("ralph.db"))?, count, deliveries).await
    }

    /// Like [`Parked::prepare`], in a database, which it closes.
    pub async fn prepare_in(store: Store, count: u64, deliveries: u64) -> anyhow::Result<Self> {
        let forge = FakeForge::start(Dialect::Gitea, ralph_bot::clock::Clock::System).await?;
        let maintainer = forge.add_user("mira", AccountKind::User);
        let bot = forge.add_user("ralph-bot", AccountKind::User);
        let made = forge.create_repo("mira", "app", &[("README.md", "A sample.\n", false)]).await;
        let repo = made.map_err(refused)?;
        forge.grant(repo, &bot, Access::Admin).map_err(refused)?;
        let mut issues = Vec::new();
        for n in 0..count {
            let title = format!("Make the tests pass {n}");
            issues.push(forge.open_issue(&maintainer, repo, &title, &body(), &[]).await.map_err(refused)?);
        }
        let now = ralph_bot::clock::Clock::System.now();
        for part in issues.chunks(ROWS_AT_ONCE as usize) {
            let (part, by) = (part.to_vec(), maintainer.clone());
            store.write(move |c| part.iter().try_for_each(|issue| park(c, repo, *issue, &by, now))).await?;
        }
        let mut stored = 0;
        while stored < deliveries {
            let (from, to) = (stored, deliveries.min(stored + ROWS_AT_ONCE));
            store.write(move |c| (from..to).try_for_each(|n| inbox::insert(c, &waiting(n), now).map(drop))).await?;
            stored = to;
        }
        let open = store.read(loops::counts).await?;
        anyhow::ensure!(
            count == 0 || open == [(LoopState::Paused.as_str().to_owned(), count)],
            "not all parked: {open:?}"
        );
        store.close().await;
        let seat = Seat { kind: "gitea", url: forge.url().to_string(), token: forge.token_for(&bot), own: bot.id.0 };
        Ok(Self { _forge: forge, seat })
    }
}

fn refused(refusal: fake_forge::FakeRefusal) -> anyhow::Error {
    anyhow::anyhow!("the forge refused: {refusal:?}")
}

/// Returns the text of an issue of typical length.
fn body() -> String {
    "The parser drops the last field of a line without a newline. Please make the tests pass. ".repeat(12)
}

/// Creates a paused loop whose effects are complete.
fn park(c: &Connection, repo: RepoId, issue: Number, by: &User, now: Timestamp) -> Result<(), StoreError> {
    let repo = RepoRef { forge: ForgeName::new("forge"), id: repo, owner: "mira".into(), name: "app".into() };
    let id = LoopId::from_parts(issue, issue.0 as u32);
    let task = LoopTask {
        text: TaskText::new("Make the tests pass", body(), None),
        url: format!("http://127.0.0.1/mira/app/issues/{issue}"),
        hash: "0".repeat(64),
        author: Some(by.clone()),
        author_trusted: true,
        unconfirmed_editor: None,
        edited_after: false,
        labels: vec!["ralph:run".into()],
    };
    let start = LoopStart {
        request: String::new(),
        existing: None,
        id: id.clone(),
        place: IssueRef { repo, issue },
        by: by.clone(),
        task,
        options: RunOptions::default(),
        policy: Policy::default(),
        plan: None,
        comment: None,
        hidden_removed: 0,
        round: 1,
    };
    loops::begin(c, start, &format!("figures/begin/{issue}"), now)?;
    let pause = command::LoopCommand::Pause(command::Pause { now: true, reason: String::new() });
    let input = LoopInput::Command(CommandInput::Given { by: by.clone(), command: pause, comment: None });
    loops::enqueue_input(c, &id, &format!("figures/pause/{issue}"), &input, now)?;
    while loops::step_next(c, &[], &StepMemory::default(), now)?.is_some() {}
    c.execute("UPDATE outbox SET state = 'done', ended_at = ?1 WHERE state = 'ready'", [now.0])?;
    c.execute("DELETE FROM timers", [])?;
    Ok(())
}

/// Creates an unprocessed delivery.
fn waiting(n: u64) -> StoredDelivery {
    let body = Body::pack(crate::load::body());
    StoredDelivery { forge: ForgeName::new("forge"), delivery: format!("waiting-{n}"), event: "push".into(), body }
}

/// Returns the number of deliveries in a database.
pub async fn stored(folder: &Path) -> anyhow::Result<u64> {
    let store = Store::attach(&data(folder).join("ralph.db"))?;
    let counts = store.read(inbox::counts).await?;
    store.close().await;
    Ok(counts.iter().map(|(_, n)| n).sum())
}
