//! Session memory for agents: an MCP server in the service with one socket per run, and a bridge to it in the sandbox.
//!
//! Agents never access the database. For each run, the service listens on a Unix socket in the run's folder and serves only
//! this loop's memory. In the sandbox, `ralph-bot mcp` copies bytes between the agent's pipes and the socket. Before the MCP
//! protocol starts, a connection sends one line with the run's [`Token`]. The service answers `ok`, or `refused: ` with a
//! reason, and closes the connection. All tools are read-only.

mod bridge;
mod server;
mod tools;

use std::fmt;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use data_encoding::HEXLOWER;
use hmac::{Hmac, KeyInit, Mac};
use ralph_types::failure::Failure;
use sha2::Sha256;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Mutex;

use crate::domain::model::ids::LoopId;
use crate::domain::trust::outbound::OutboundFilter;
use crate::store::Store;

pub use bridge::{BridgeError, bridge};
pub use server::serve;
pub use tools::Tools;

/// Name of the server for agents; its tools are `mcp__session_memory__…`.
pub const NAME: &str = "session_memory";
/// Environment variable with the bridge's token.
pub const TOKEN_VARIABLE: &str = "RALPH_MCP_TOKEN";
/// Default maximum length of an answer, in tokens, which is below the limits of agents.
pub const ANSWER_TOKENS: usize = 4_000;
/// File name of the socket in the run's folder.
const SOCKET: &str = "memory.sock";
/// Maximum length of a path in a socket address, in bytes.
const LONGEST_ADDRESS: usize = 107;
/// Maximum length of the first line of a connection, in bytes.
const MAX_TOKEN_LINE: u64 = 256;
/// Response to a valid token.
const ACCEPTED: &str = "ok";

/// Token that gives one run access to its loop's memory. It is an HMAC-SHA256 over both, keyed with a secret of the service.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// Creates a run's token. `run` is unique to the run, such as `3-1`. `key` is a secret of any length, used only for this
    /// purpose.
    pub fn new(key: &[u8], id: &LoopId, run: &str) -> Self {
        Self(HEXLOWER.encode(&code(key, &format!("ralph session memory 1\n{id}\n{run}")).finalize().into_bytes()))
    }

    /// Returns the token for the bridge's environment.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the given token is equal, compared in constant time.
    fn is(&self, given: &str) -> bool {
        let given = code(self.0.as_bytes(), given).finalize().into_bytes();
        code(self.0.as_bytes(), &self.0).verify_slice(&given).is_ok()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

fn code(key: &[u8], text: &str) -> Hmac<Sha256> {
    // HMAC accepts keys of any length, so this branch is never taken.
    let mut code = Hmac::<Sha256>::new_from_slice(key).unwrap_or_else(|_| Hmac::new(&Default::default()));
    code.update(text.as_bytes());
    code
}

/// Search over other loops' learnings, used by the tool `learnings`.
#[async_trait]
pub trait Learnings: Send + Sync {
    /// Returns matching learnings that this loop may see, most relevant first.
    ///
    /// # Errors
    /// A message for the agent.
    async fn search(&self, query: &str) -> Result<Vec<String>, Failure>;
}

/// Data available to one agent run.
#[derive(Clone)]
pub struct Session {
    /// Database, used only for reading.
    pub store: Store,
    /// Loop whose memory is served.
    pub loop_id: LoopId,
    /// Token that connections must send.
    pub token: Token,
    /// Search over learnings; `None` to hide the tool.
    pub learnings: Option<Arc<dyn Learnings>>,
    /// Maximum length of an answer in tokens; see [`ANSWER_TOKENS`].
    pub answer_tokens: usize,
    /// Filter for all answers.
    pub outbound: OutboundFilter,
    /// Lock held while answering a question, so that a run cannot occupy all read connections of the store.
    pub turn: Arc<Mutex<()>>,
}

/// Listens on a new socket in `folder`, accessible only to this user; also returns the socket's path. The path may be longer
/// than a socket address.
///
/// # Errors
/// The folder is not writable.
pub fn listen(folder: &Path) -> io::Result<(UnixListener, PathBuf)> {
    let path = folder.join(SOCKET);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = addressed(&path, |path| UnixListener::bind(path))?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
    Ok((listener, path))
}

async fn connect(path: &Path) -> io::Result<UnixStream> {
    // Connecting to a Unix socket blocks only while the listener's queue is full.
    let stream = addressed(path, |path| std::os::unix::net::UnixStream::connect(path))?;
    stream.set_nonblocking(true)?;
    UnixStream::from_std(stream)
}

/// Calls `used` with a path that fits into a socket address. Accesses long paths through an open descriptor of their folder.
fn addressed<T>(path: &Path, used: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return used(path) };
    if path.as_os_str().len() <= LONGEST_ADDRESS {
        return used(path);
    }
    let folder = std::fs::File::open(folder)?;
    used(&Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(name))
}

/// Returns the configuration for Claude Code's `--mcp-config`. Its server `session_memory` is the bridge at `exe`, which the
/// agent must be able to access.
pub fn config(socket: &Path, token: &Token, exe: &Path) -> serde_json::Value {
    serde_json::json!({
        "mcpServers": {
            NAME: {
                "type": "stdio",
                "command": exe.display().to_string(),
                "args": ["mcp", "--socket", socket.display().to_string()],
                "env": { TOKEN_VARIABLE: token.as_str() },
            },
        },
    })
}

#[cfg(test)]
mod tests;
