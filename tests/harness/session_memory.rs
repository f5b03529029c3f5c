//! Session memory of a loop, served on a socket as the service does for its agents.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use ralph_bot::domain::knowledge::session::{EventKind, SessionEvent, SessionTurn, TurnRole, extract};
use ralph_bot::domain::model::ids::{LoopId, Money, Timestamp};
use ralph_bot::domain::trust::outbound::OutboundFilter;
use ralph_bot::mcp::{self, ANSWER_TOKENS, Learnings, Session, TOKEN_VARIABLE, Token};
use ralph_bot::store::Store;
use ralph_bot::store::session::{NewEvent, NewTurn, add_events, add_summary, add_turn};
use ralph_bot::store::sql::{Connection, params};
use ralph_types::failure::Failure;
use rmcp::service::{RoleClient, RunningService};
use tempfile::TempDir;
use tokio::process::Child;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::parts::command;

/// Maximum wait for an answer.
pub const WAIT_LIMIT: Duration = Duration::from_secs(30);

struct Strategies;

#[async_trait::async_trait]
impl Learnings for Strategies {
    async fn search(&self, query: &str) -> Result<Vec<String>, Failure> {
        match query {
            "broken" => Err("the learnings cannot be read just now".into()),
            "nothing" => Ok(Vec::new()),
            _ => Ok(vec![format!("strategy: write a test first (asked for {query})")]),
        }
    }
}

/// Session memory with two turns and 200 events of one loop, and one turn of another.
pub struct Served {
    folder: TempDir,
    pub socket: PathBuf,
    pub token: Token,
    /// Lock of the question that is being answered.
    pub turn: Arc<Mutex<()>>,
    cancel: CancellationToken,
    service: JoinSet<()>,
}

impl Served {
    pub async fn start(learnings: bool) -> Self {
        Self::start_with(learnings, OutboundFilter::default()).await
    }

    /// Starts it with a outbound that knows some secrets.
    pub async fn start_with(learnings: bool, outbound: OutboundFilter) -> Self {
        let folder = tempfile::Builder::new().prefix("ralph-memory-").tempdir().expect("a folder");
        let store = Store::open(&folder.path().join("ralph.db")).expect("a store");
        let id = LoopId::new("r-7-abcdef");
        let (loop_id, other_id) = (id.clone(), LoopId::new("r-8-abcdef"));
        store.write(move |c| fill(c, &loop_id).and_then(|()| fill_other(c, &other_id))).await.expect("filled");
        let run = folder.path().join("run-3-1");
        std::fs::create_dir(&run).expect("a folder");
        let (listener, socket) = mcp::listen(&run).expect("it listens");
        let token = Token::new(b"a key of the tests", &id, "3-1");
        let turn = Arc::new(Mutex::new(()));
        let session = Session {
            store,
            loop_id: id,
            token: token.clone(),
            learnings: learnings.then(|| Arc::new(Strategies) as Arc<dyn Learnings>),
            answer_tokens: ANSWER_TOKENS,
            outbound,
            turn: turn.clone(),
        };
        let cancel = CancellationToken::new();
        let mut service = JoinSet::new();
        service.spawn(mcp::serve(listener, session, cancel.clone()));
        Self { folder, socket, token, turn, cancel, service }
    }

    /// Folder of the service, without links.
    pub fn folder(&self) -> PathBuf {
        self.folder.path().canonicalize().expect("the folder is there")
    }

    /// Writes the MCP configuration for Claude Code and returns its path.
    pub fn config_file(&self) -> PathBuf {
        let path = self.folder.path().join("mcp.json");
        let config = mcp::config(&self.socket, &self.token, Path::new(env!("CARGO_BIN_EXE_ralph-bot")));
        std::fs::write(&path, config.to_string()).expect("a file");
        path
    }

    pub fn bridge(&self, token: Option<&str>) -> Child {
        let mut command = command(env!("CARGO_BIN_EXE_ralph-bot"));
        command.env_clear().envs(token.map(|token| (TOKEN_VARIABLE, token)));
        command.args(["mcp", "--socket"]).arg(&self.socket);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the bridge starts")
    }

    pub async fn client(&self) -> (Child, RunningService<RoleClient, ()>) {
        let mut child = self.bridge(Some(self.token.as_str()));
        let pipes = (child.stdout.take().expect("a pipe"), child.stdin.take().expect("a pipe"));
        let client = tokio::time::timeout(WAIT_LIMIT, rmcp::service::serve_client((), pipes)).await;
        (child, client.expect("in time").expect("the handshake holds"))
    }

    pub async fn stop(mut self) {
        self.cancel.cancel();
        let ended = tokio::time::timeout(WAIT_LIMIT, self.service.join_next()).await;
        ended.expect("the service stops").expect("one").expect("no panic");
    }
}

fn loop_row(c: &Connection, id: &LoopId, issue: u32) -> ralph_bot::store::StoreResult<()> {
    let sql = "INSERT INTO loops (id, forge, repo_id, issue, state, open, data, version, created_at, updated_at)
        VALUES (?1, 'gh', 1, ?2, 'running', 1, '{}', 1, 0, 0)";
    c.execute(sql, params![id.as_str(), issue])?;
    Ok(())
}

fn fill(c: &Connection, id: &LoopId) -> ralph_bot::store::StoreResult<()> {
    loop_row(c, id, 7)?;
    let turns = [turn(1, "Decided to parse lazily; the walrus test fails."), turn(2, &"walrus words ".repeat(50_000))];
    for turn in &turns {
        add_turn(c, id, &NewTurn::pack(turn.clone()))?;
    }
    let result = |nth: u32| SessionEvent {
        iteration: 1,
        kind: EventKind::ToolResult,
        tool: Some("Bash".into()),
        path: None,
        text: format!("bash: cargo test number {nth} failed: {}", "walrus ".repeat(100)),
        failed: true,
        at: Timestamp(i64::from(nth)),
    };
    let events: Vec<SessionEvent> = (0..200).map(result).collect();
    add_events(c, id, &events.iter().cloned().map(NewEvent::pack).collect::<Vec<_>>())?;
    add_summary(c, id, &extract(1, 1, &turns[..1], &events[..3], Timestamp(1)))
}

fn fill_other(c: &Connection, id: &LoopId) -> ralph_bot::store::StoreResult<()> {
    loop_row(c, id, 8)?;
    add_turn(c, id, &NewTurn::pack(turn(1, "walrus of another loop"))).map(drop)
}

fn turn(iteration: u32, response: &str) -> SessionTurn {
    SessionTurn {
        iteration,
        attempt: 1,
        role: TurnRole::Agent,
        prompt: format!("Prompt number {iteration}."),
        response: response.into(),
        backend: "claude".into(),
        model: Some("sonnet".into()),
        tokens_in: 100,
        tokens_out: 10,
        tokens_cached: 5,
        cost: Money(1_500_000),
        estimated: false,
        error: None,
        learnings: Vec::new(),
        started: Timestamp(0),
        ended: Timestamp(61_000),
    }
}
