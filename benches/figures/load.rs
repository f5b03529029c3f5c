//! A load generator: signed deliveries with distinct ids over keep-alive connections. It runs in a process of its own, so
//! that what it costs is seen by the scheduler as somebody else's work, whoever answers.

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

/// First argument of the process that makes the load.
pub const ARGUMENT: &str = "--make-load";
/// Connections that are usually kept open.
pub const CONNECTIONS: usize = 64;

/// What is to be sent.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Load {
    /// Most deliveries.
    pub count: u64,
    /// Longest time, in seconds.
    pub seconds: f64,
    /// Deliveries a second, evenly; 0 for as fast as they are answered.
    pub rate: f64,
    /// Connections that are kept open.
    pub connections: usize,
}

/// Whose deliveries are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    GitHub,
    Gitea,
}

/// What came of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Answers {
    /// Deliveries that were answered with 2xx.
    pub good: u64,
    /// Deliveries that were answered otherwise, or not at all.
    pub bad: u64,
    /// From the first request to the last answer, seconds.
    pub seconds: f64,
    /// Median time from the moment a request was due to its answer, milliseconds.
    pub p50_ms: f64,
    /// The same, of which one in a hundred was slower.
    pub p99_ms: f64,
}

impl Answers {
    /// Deliveries a second.
    pub fn rate(&self) -> f64 {
        self.good as f64 / self.seconds
    }
}

/// Sends a load from another process.
pub fn send(to: SocketAddr, load: Load) -> anyhow::Result<Answers> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args([ARGUMENT, &to.to_string(), &serde_json::to_string(&load)?]);
    let done = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
    if !done.status.success() {
        bail!("the load generator failed");
    }
    serde_json::from_slice(&done.stdout).context("what the load generator says")
}

/// The other process: sends, and prints what came of it.
pub async fn make(arguments: &[String]) -> anyhow::Result<()> {
    let [to, load] = arguments else { bail!("an address and a load are needed") };
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
        let (mut own, failed) = ended?;
        times.append(&mut own);
        bad += failed;
    }
    let seconds = shared.watch.elapsed().as_secs_f64();
    times.sort_unstable();
    let at = |share: f64| {
        let place = ((times.len() as f64 * share) as usize).min(times.len().saturating_sub(1));
        times.get(place).map_or(f64::NAN, |time: &Duration| time.as_secs_f64() * 1e3)
    };
    let answers = Answers { good: times.len() as u64, bad, seconds, p50_ms: at(0.5), p99_ms: at(0.99) };
    println!("{}", serde_json::to_string(&answers)?);
    Ok(())
}

struct Shared {
    next: AtomicU64,
    load: Load,
    request: Request,
    watch: Stopwatch,
}

/// Sends one delivery after the other; the times of those that were taken, and the number of those that were not.
async fn connection(mut stream: TcpStream, shared: Arc<Shared>) -> (Vec<Duration>, u64) {
    let (mut times, mut bad) = (Vec::new(), 0);
    let mut buffer = Vec::with_capacity(1024);
    loop {
        let n = shared.next.fetch_add(1, Ordering::Relaxed);
        let Load { count, seconds, rate, .. } = shared.load;
        // Measured from when it was due, not from when it was sent: a stall counts for all that it held up.
        let due = if rate > 0.0 { Duration::from_secs_f64(n as f64 / rate) } else { shared.watch.elapsed() };
        if n >= count || due.as_secs_f64() >= seconds {
            return (times, bad);
        }
        let early = due.saturating_sub(shared.watch.elapsed());
        if !early.is_zero() {
            // The timer counts in whole milliseconds: even a sleep of nothing would take one.
            tokio::time::sleep(early).await;
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
                return (times, bad + 1);
            }
        }
    }
}

/// Reads one answer; its status.
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

/// Body of a delivery: what GitHub sends when an issue was edited, 8 KiB with all its addresses.
pub fn body() -> &'static [u8] {
    include_bytes!("issue_edited.json")
}

/// Requests that differ in their delivery's id alone, so that making them costs next to nothing.
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
    // HMAC takes a key of any length.
    let mut mac = Hmac::<sha2::Sha256>::new_from_slice(SECRET.as_bytes()).unwrap_or_else(|_| unreachable!());
    mac.update(body);
    data_encoding::HEXLOWER.encode(&mac.finalize().into_bytes())
}

/// Sends one delivery as soon as somebody listens at an address; how long that took since `watch` was started.
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
    bail!("nobody answered within {patience:?}")
}
