//! Accepts HTTP connections, with limits on their number and on the time for receiving a request's head.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// Wait after could not accept a connection, for example because no file descriptors are free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Time limit for a request's head.
const HEAD: Duration = Duration::from_secs(5);
/// Maximum number of concurrent connections, at a few KiB each.
const MOST_CONNECTIONS: u64 = 8_192;
/// File descriptors reserved for the database, git, agents and calls to forges.
const OTHER_FILES: u64 = 512;

/// Client address of a connection, which is attached to its requests as an extension.
#[derive(Debug, Clone, Copy)]
pub struct PeerAddress(pub SocketAddr);

/// Limits on connections.
#[derive(Debug, Clone, Copy)]
pub struct ConnectionLimits {
    /// Maximum number of concurrent connections, each of which needs one file descriptor. Further ones wait in the
    /// listen queue.
    pub connections: usize,
    /// Time limit for a request's head, including idle time between requests.
    pub head: Duration,
}

impl ConnectionLimits {
    /// Returns limits derived from the maximum number of open files. The soft limit is raised to the hard limit.
    pub fn of_this_process() -> Self {
        let mut files = getrlimit(Resource::Nofile);
        let wanted =
            files.maximum.map_or(MOST_CONNECTIONS + OTHER_FILES, |most| most.min(MOST_CONNECTIONS + OTHER_FILES));
        if files.current.is_some_and(|now| now < wanted) {
            let raised = rustix::process::Rlimit { current: Some(wanted), ..files };
            if setrlimit(Resource::Nofile, raised).is_ok() {
                files = raised;
            }
        }
        let room =
            files.current.map_or(MOST_CONNECTIONS, |now| now.saturating_sub(OTHER_FILES)).clamp(16, MOST_CONNECTIONS);
        Self { connections: usize::try_from(room).unwrap_or(16), head: HEAD }
    }
}

/// Serves requests until `stop`, then finishes the current ones.
///
/// # Errors
/// None at present; other server tasks have the same result type.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    limits: ConnectionLimits,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let mut connection = http1::Builder::new();
    connection.timer(TokioTimer::new()).header_read_timeout(limits.head);
    let room = Arc::new(Semaphore::new(limits.connections));
    let (graceful, mut open) = (GracefulShutdown::new(), JoinSet::new());
    tokio::pin!(stop);
    loop {
        let accepted = async {
            let permit = room.clone().acquire_owned().await;
            (permit, listener.accept().await)
        };
        let (permit, accepted) = tokio::select! {
            () = &mut stop => break,
            accepted = accepted => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "could not accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        // Responses are small and latency matters.
        let _ = stream.set_nodelay(true);
        let routes = TowerToHyperService::new(router.clone());
        let routes = service_fn(move |mut request: hyper::Request<hyper::body::Incoming>| {
            request.extensions_mut().insert(PeerAddress(peer));
            routes.call(request)
        });
        let served = connection.serve_connection(TokioIo::new(stream), routes);
        let served = graceful.watch(served);
        open.spawn(async move {
            // Errors of a connection concern only its client.
            let _ = served.await;
            drop(permit);
        });
        while open.try_join_next().is_some() {}
    }
    drop(listener);
    graceful.shutdown().await;
    while open.join_next().await.is_some() {}
    Ok(())
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    use super::*;

    const REQUEST: &[u8] = b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";

    async fn everything(mut stream: TcpStream) -> String {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("an end");
        answer
    }

    /// See docs/research/threats.md#w10, docs/research/faults.md#d8.
    #[tokio::test]
    async fn endless_request_head_times_out() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let router = Router::new().route("/healthz", get(|| async { "ok" }));
        let limits = ConnectionLimits { connections: 1, head: Duration::from_millis(200) };
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let clients = async {
            // It takes up the only place and sends half a head.
            let mut slow = TcpStream::connect(address).await.expect("connected");
            slow.write_all(b"GET /healthz HTTP/1.1\r\nx: ").await.expect("sent");
            let mut next = TcpStream::connect(address).await.expect("queued");
            next.write_all(REQUEST).await.expect("sent");
            let answer = everything(next).await;
            assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("ok"), "{answer}");
            assert!(!everything(slow).await.contains("200"));
            // Between two requests the same holds.
            let mut idle = TcpStream::connect(address).await.expect("connected");
            idle.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("sent");
            assert!(everything(idle).await.ends_with("ok"));
            drop(stop);
        };
        let served = serve(listener, router, limits, async { drop(stopped.await) });
        let (served, ()) = tokio::join!(served, clients);
        served.expect("a quiet end");
    }
}
