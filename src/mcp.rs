//! The session memory for agents: an MCP server of the service, one socket a run, and the bridge to it in the sandbox.
//!
//! The agent's own process tree never sees the database. For each run the service listens on a Unix socket in the run's
//! folder and answers about that loop alone; in the sandbox, `ralph-bot mcp` carries bytes between the agent's pipes and
//! the socket. A connection begins with a line of its own, before the protocol: the run's [`Token`]. The service answers
//! `ok`, or `refused: ` with the reason, and closes. Nothing can be written through it: there are only tools that read.

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
use sha2::Sha256;
use tokio::net::{UnixListener, UnixStream};

use crate::domain::model::ids::LoopId;
use crate::store::Store;

pub use bridge::{BridgeError, bridge};
pub use server::serve;

/// What agents call the server; its tools are `mcp__session_memory__…` there.
pub const NAME: &str = "session_memory";
/// Variable in which the bridge gets its token.
pub const TOKEN_VARIABLE: &str = "RALPH_MCP_TOKEN";
/// Length of an answer, in tokens, where nothing else is said: well below what agents cut off by themselves.
pub const ANSWER_TOKENS: usize = 4_000;
/// The socket's file in the run's folder.
const SOCKET: &str = "memory.sock";
/// Longest path that a socket's address has room for, in bytes.
const LONGEST_ADDRESS: usize = 107;
/// Longest first line of a connection, in bytes.
const MAX_TOKEN_LINE: u64 = 256;
/// The service's answer to the right token.
const ACCEPTED: &str = "ok";

/// What opens the memory of one loop to one run of an agent: HMAC-SHA256 over both, by a secret of the service.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// The token of a run (any text that is the run's own, such as `3-1`) of a loop. The key is the service's, of any
    /// length, and used for nothing else.
    pub fn new(key: &[u8], id: &LoopId, run: &str) -> Self {
        Self(HEXLOWER.encode(&code(key, &format!("ralph session memory 1\n{id}\n{run}")).finalize().into_bytes()))
    }

    /// As it goes into the environment of the bridge.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this is it, in a time that does not tell how much of it is right.
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
    // A code of this sort takes a key of any length, so the other arm is never taken.
    let mut code = Hmac::<Sha256>::new_from_slice(key).unwrap_or_else(|_| Hmac::new(&Default::default()));
    code.update(text.as_bytes());
    code
}

/// What is known of other loops: the tool `learnings` asks it.
#[async_trait]
pub trait Learnings: Send + Sync {
    /// What fits the query, each learning a text, best first; only what this loop may see.
    ///
    /// # Errors
    /// A sentence for the agent.
    async fn search(&self, query: &str) -> Result<Vec<String>, String>;
}

/// What one run of an agent may ask.
#[derive(Clone)]
pub struct Session {
    /// Where the memory is; only read.
    pub store: Store,
    /// Whose memory.
    pub loop_id: LoopId,
    /// What connections have to begin with.
    pub token: Token,
    /// Where learnings are looked for; without it that tool is not listed.
    pub learnings: Option<Arc<dyn Learnings>>,
    /// Longest answer, in tokens; see [`ANSWER_TOKENS`].
    pub answer_tokens: usize,
}

/// Listens on a socket in `folder`, which exists and is the service's own; gives its path too. The socket is made anew
/// and open to this account alone. Paths too long for a socket's address work as well.
///
/// # Errors
/// Where the folder cannot be written to.
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
    // Connecting to a Unix socket never waits for more than room in the queue of the other side.
    let stream = addressed(path, |path| std::os::unix::net::UnixStream::connect(path))?;
    stream.set_nonblocking(true)?;
    UnixStream::from_std(stream)
}

/// Uses a path as a socket's address; a long one by way of an open folder.
fn addressed<T>(path: &Path, used: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return used(path) };
    if path.as_os_str().len() <= LONGEST_ADDRESS {
        return used(path);
    }
    let folder = std::fs::File::open(folder)?;
    used(&Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(name))
}

/// The file that Claude Code takes by `--mcp-config`: the bridge `exe` (this program, at a path that the agent can see)
/// as the server `session_memory`.
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
