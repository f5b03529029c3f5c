//! Bridge in the sandbox, which copies bytes between an agent's pipes and the service's socket.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader};

use super::{ACCEPTED, TOKEN_VARIABLE, connect};

/// Maximum wait for the response to the token.
const GREETING: Duration = Duration::from_secs(10);
/// Maximum length of the response to the token, in bytes.
const MAX_GREETING: u64 = 1024;

/// Reason why the bridge ended.
#[derive(Debug, thiserror::Error)]
pub enum BridgeError {
    /// No service listens on the socket.
    #[error("the session memory at {path} does not answer: {error}; it exists only during the agent's run")]
    NotThere { path: PathBuf, error: io::Error },
    /// The service rejected the token.
    #[error("the session memory refused the connection: {reason}; {TOKEN_VARIABLE} must be the token of this run")]
    Refused { reason: String },
    /// The service closed the connection.
    #[error("the session memory is closed: the service ended the run or stopped")]
    Gone,
    /// Reading from or writing to the agent failed.
    #[error("the agent's side of the bridge failed: {0}")]
    Agent(io::Error),
}

/// Connects with the token, then copies bytes in both directions until `input` ends.
///
/// # Errors
/// No service listens on the socket, the token is rejected, or the service closes the connection first.
pub async fn bridge(
    socket: &Path,
    token: &str,
    mut input: impl AsyncRead + Unpin,
    mut output: impl AsyncWrite + Unpin,
) -> Result<(), BridgeError> {
    let not_there = |error| BridgeError::NotThere { path: socket.to_path_buf(), error };
    let (from_service, mut to_service) = connect(socket).await.map_err(not_there)?.into_split();
    let mut from_service = BufReader::new(from_service);
    // The token is one line; the server would parse further lines as protocol.
    let token = token.lines().next().unwrap_or_default();
    to_service.write_all(format!("{token}\n").as_bytes()).await.map_err(not_there)?;
    let mut greeting = String::new();
    let mut first = (&mut from_service).take(MAX_GREETING);
    match tokio::time::timeout(GREETING, first.read_line(&mut greeting)).await {
        Ok(Ok(0)) => return Err(BridgeError::Gone),
        Ok(read) => read.map_err(not_there)?,
        Err(_) => return Err(not_there(io::ErrorKind::TimedOut.into())),
    };
    let greeting = greeting.trim();
    if greeting != ACCEPTED {
        let reason = greeting.strip_prefix("refused: ").unwrap_or("its response to the token is invalid");
        return Err(BridgeError::Refused { reason: reason.to_owned() });
    }
    let inwards = async {
        let carried = tokio::io::copy(&mut input, &mut to_service).await;
        // The service sends pending responses and closes.
        let _ = to_service.shutdown().await;
        carried
    };
    let outwards = carry_out(&mut from_service, &mut output);
    tokio::pin!(inwards, outwards);
    tokio::select! {
        done = &mut outwards => done.and(Err(BridgeError::Gone)),
        carried = &mut inwards => match carried {
            Ok(_) => outwards.await,
            Err(_) => Err(BridgeError::Gone),
        },
    }
}

/// Copies responses until the service closes the connection. Each response is flushed immediately.
async fn carry_out(from: &mut (impl AsyncRead + Unpin), to: &mut (impl AsyncWrite + Unpin)) -> Result<(), BridgeError> {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        // A reset also ends the connection.
        let read = from.read(&mut buffer).await.unwrap_or(0);
        if read == 0 {
            return Ok(());
        }
        to.write_all(&buffer[..read]).await.map_err(BridgeError::Agent)?;
        to.flush().await.map_err(BridgeError::Agent)?;
    }
}
