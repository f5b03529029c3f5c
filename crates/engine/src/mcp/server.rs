//! Server for one run: accepts connections, checks their tokens and serves them.

use std::sync::Arc;
use std::time::Duration;

use rmcp::transport::async_rw::AsyncRwTransport;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::tools::Tools;
use super::{ACCEPTED, MAX_TOKEN_LINE, Session};
use crate::domain::trust::bounds::TOOL_REQUEST_BYTES;

/// Maximum number of concurrent connections per run, because agents with subagents use several.
const MAX_CONNECTIONS: usize = 8;
/// Time limit for sending the token.
const GREETING: Duration = Duration::from_secs(5);
/// Delay after a failure to accept a connection.
const REST: Duration = Duration::from_millis(100);

/// Serves one agent run until `cancel`, which also closes open connections. Errors on a connection do not stop the server.
pub async fn serve(listener: UnixListener, session: Session, cancel: CancellationToken) {
    let session = Arc::new(session);
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = cancel.cancelled() => break,
            Some(ended) = connections.join_next() => {
                if let Err(error) = ended {
                    tracing::warn!(%error, "a connection to the session memory failed");
                }
            }
            taken = listener.accept(), if connections.len() < MAX_CONNECTIONS => match taken {
                Ok((stream, _)) => {
                    let (session, cancel) = (session.clone(), cancel.clone());
                    connections.spawn(connection(stream, session, cancel));
                }
                Err(error) => {
                    tracing::warn!(%error, "could not accept a connection to the session memory");
                    tokio::time::sleep(REST).await;
                }
            },
        }
    }
    connections.shutdown().await;
}

async fn connection(stream: UnixStream, session: Arc<Session>, cancel: CancellationToken) {
    let (read, mut write) = stream.into_split();
    let mut read = BufReader::new(read);
    let mut line = Vec::new();
    let mut first = (&mut read).take(MAX_TOKEN_LINE);
    let said = tokio::time::timeout(GREETING, first.read_until(b'\n', &mut line)).await;
    let token = String::from_utf8_lossy(&line);
    if !matches!(said, Ok(Ok(_))) || !session.token.is(token.trim()) {
        tracing::warn!(loop_id = %session.loop_id, "a connection to the session memory had no valid token");
        // The client may already have disconnected.
        let _ = write.write_all(b"refused: the token is wrong\n").await;
        return;
    }
    if write.write_all(format!("{ACCEPTED}\n").as_bytes()).await.is_err() {
        return;
    }
    let transport = AsyncRwTransport::new_server(read, write).with_max_line_length(TOOL_REQUEST_BYTES);
    match rmcp::service::serve_server_with_ct(Tools::new(session), transport, cancel).await {
        Ok(running) => drop(running.waiting().await),
        Err(error) => {
            tracing::debug!(%error, "a connection to the session memory was closed before its token was received")
        }
    }
}
