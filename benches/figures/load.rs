//! Load generator: signed deliveries with distinct ids over keep-alive connections. It runs in a separate process, so its
//! cost is the same for every server.

use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use hmac::{Hmac, KeyInit, Mac};
use ralph_bot::clock::Stopwatch;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::service::SECRET;

/// First argument of the load generator's process.
pub const ARGUMENT: &str = "--make-load";
/// Default number of connections.
pub const CONNECTIONS: usize = 64;

/// Load to send.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Load {
    /// Maximum number of deliveries.
    pub count: u64,
    /// Maximum duration, in seconds.
    pub seconds: f64,
    /// Number of deliveries per second at a constant rate; 0 to send as fast as the server responds.
    pub rate: f64,
    /// Number of connections.
    pub connections: usize,
}

/// Sender of the deliveries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    GitHub,
    Gitea,
}

/// Result of a load.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LoadAnswers {
    /// Number of deliveries with a 2xx response.
    pub good: u64,
    /// Number of deliveries with another response, or with no response.
    pub bad: u64,
    /// Time from the first request to the last response, in seconds.
    pub seconds: f64,
    /// Median time from a request's planned time to its response, in milliseconds.
    pub p50_ms: f64,
    /// 99th percentile of this time, in milliseconds.
    pub p99_ms: f64,
}

impl LoadAnswers {
    /// Returns the deliveries per second.
    pub fn rate(&self) -> f64 {
        self.good as f64 / self.seconds
    }
}

/// Sends a load from a separate process.
pub fn send(to: SocketAddr, load: Load) -> anyhow::Result<LoadAnswers> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args([ARGUMENT, &to.to_string(), &serde_json::to_string(&load)?]);
    let done = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
    if !done.status.success() {
        bail!("the load generator failed");
    }
    serde_json::from_slice(&done.stdout).context("what the load generator says")
}

/// Main function of the separate process: sends the load and prints the result.
pub async fn make(arguments: &[String]) -> anyhow::Result<()> {
    let [to, load] = arguments else { bail!("expected an address and a load") };
    let (to, load): (SocketAddr, Load) = (to.parse()?, serde_json::from_str(load)?);
    let shared = Arc::new(Shared {
        next: AtomicU64::new(0),
        load,
        request: Request::new(From::GitHub),
        watch: Stopwatch::start(),
    });
    let mut connections = JoinSet::new();
    for _ in 0..shared.load.connections {
        let stream = TcpStream::connect(to).await?;
        stream.set_nodelay(true)?;
        connections.spawn(connection(stream, shared.clone()));
    }
    let (mut times, mut bad) = (Vec::new(), 0);
    while let Some(ended) = connections.join_next().await {
        let (mut own, failed) = ended??;
        times.append(&mut own);
        bad += failed;
    }
    let seconds = shared.watch.elapsed().as_secs_f64();
    times.sort_unstable();
    let at = |share: f64| {
        let place = ((times.len() as f64 * share) as usize).min(times.len().saturating_sub(1));
        times.get(place).map_or(f64::NAN, |time: &Duration| time.as_secs_f64() * 1e3)
    };
    let answers = LoadAnswers { good: times.len() as u64, bad, seconds, p50_ms: at(0.5), p99_ms: at(0.99) };
    println!("{}", serde_json::to_string(&answers)?);
    Ok(())
}

struct Shared {
    next: AtomicU64,
    load: Load,
    request: Request,
    watch: Stopwatch,
}

/// Sends deliveries over one connection. Returns the times of accepted deliveries, and the number of other deliveries.
async fn connection(mut stream: TcpStream, shared: Arc<Shared>) -> anyhow::Result<(Vec<Duration>, u64)> {
    let (mut times, mut bad) = (Vec::new(), 0);
    let mut buffer = Vec::with_capacity(1024);
    loop {
        let n = shared.next.fetch_add(1, Ordering::Relaxed);
        let Load { count, seconds, rate, .. } = shared.load;
        // Measured from the planned time, so a stall counts for all requests that it delays.
        let due = if rate > 0.0 { Duration::from_secs_f64(n as f64 / rate) } else { shared.watch.elapsed() };
        if n >= count || due.as_secs_f64() >= seconds {
            return Ok((times, bad));
        }
        let early = due.saturating_sub(shared.watch.elapsed());
        if !early.is_zero() {
            // The runtime's timer has a resolution of one millisecond, which would count as a delay of the server.
            tokio::task::spawn_blocking(move || std::thread::sleep(early)).await?;
        }
        let sent = async {
            stream.write_all(&shared.request.bytes()).await?;
            answer(&mut stream, &mut buffer).await
        };
        match sent.await {
            Ok(status) if (200..300).contains(&status) => times.push(shared.watch.elapsed().saturating_sub(due)),
            Ok(_) => bad += 1,
            Err(error) => {
                eprintln!("a connection broke: {error:#}");
                return Ok((times, bad + 1));
            }
        }
    }
}

/// Reads one response and returns its status.
async fn answer(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> anyhow::Result<u16> {
    buffer.clear();
    loop {
        if stream.read_buf(buffer).await? == 0 {
            bail!("the other side hung up");
        }
        let text = std::str::from_utf8(buffer)?;
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let head = head.to_ascii_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
        let whole = match length {
            Some(length) => body.len() >= length,
            None if head.contains("transfer-encoding: chunked") => body.ends_with("0\r\n\r\n"),
            None => true,
        };
        if whole {
            return head.split(' ').nth(1).unwrap_or_default().parse().context("the status of an answer");
        }
    }
}

/// Returns a delivery's body: an edited issue on GitHub, 8 KiB.
pub fn body() -> &'static [u8] {
    include_bytes!("issue_edited.json")
}

/// Template of requests that differ only in their delivery ids.
struct Request {
    before: String,
    after: Vec<u8>,
}

impl Request {
    fn new(from: From) -> Self {
        let body = body();
        let (path, name, event, signed) = match from {
            From::GitHub => ("github", "GitHub", "issues", "X-Hub-Signature-256: sha256="),
            From::Gitea => ("gitea", "Gitea", "push", "X-Gitea-Signature: "),
        };
        let before = format!(
            "POST /webhooks/{path} HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\nUser-Agent: figures\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n{signed}{}\r\n\
             X-{name}-Event: {event}\r\nX-{name}-Delivery: ",
            body.len(),
            signature(body),
        );
        Self { before, after: [b"\r\n\r\n", body].concat() }
    }

    fn bytes(&self) -> Vec<u8> {
        let id = uuid::Uuid::now_v7().to_string();
        [self.before.as_bytes(), id.as_bytes(), &self.after].concat()
    }
}

fn signature(body: &[u8]) -> String {
    // HMAC accepts keys of any length.
    let mut mac = Hmac::<sha2::Sha256>::new_from_slice(SECRET.as_bytes()).unwrap_or_else(|_| unreachable!());
    mac.update(body);
    data_encoding::HEXLOWER.encode(&mac.finalize().into_bytes())
}

/// Sends one delivery as soon as a server listens at the address. Returns the time since the start of `watch`.
pub async fn first_answer(
    to: SocketAddr,
    from: From,
    watch: Stopwatch,
    patience: Duration,
) -> anyhow::Result<Duration> {
    let request = Request::new(from);
    while watch.elapsed() < patience {
        if let Ok(mut stream) = TcpStream::connect(to).await {
            stream.write_all(&request.bytes()).await?;
            let status = answer(&mut stream, &mut Vec::new()).await?;
            anyhow::ensure!(status == 202, "the first answer was {status}");
            return Ok(watch.elapsed());
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    bail!("no answer within {patience:?}")
}
