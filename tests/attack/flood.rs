//! Anonymous large bodies that arrive as fast as the service reads them, and genuine deliveries beside them, through the real binary.
//!
//! Seen to fail, by hand, where the slowest body makes room instead of the costliest: the first genuine delivery is answered with 503.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fake_forge::Dialect;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::harness::deliveries::{DeliveryHeaders, headers, signed};
use crate::harness::service::{Service, stop};
use crate::harness::{Setup, on_one_forge};

on_one_forge!(genuine_deliveries_are_answered_during_a_flood_of_anonymous_bodies,);

/// Number of connections that send anonymous bodies at a time.
const SENDERS: usize = 40;
/// Size of an anonymous body, in bytes.
const LARGE: usize = 25 << 20;
/// Number of genuine deliveries, and the size of each, in bytes.
const GENUINE: usize = 20;
const GENUINE_BYTES: usize = 1 << 20;
/// Maximum time until a genuine delivery is answered.
const LONGEST: Duration = Duration::from_secs(5);
/// Maximum memory of the service, in MiB: 80 for bodies, as much for the unused half of their buffers, the buffers of connections, and the
/// unoptimized service itself. The anonymous bodies would take 1,000.
const MOST_MIB: u64 = 512;

/// See docs/research/threats.md#w9 and docs/research/threats.md#w10.
async fn genuine_deliveries_are_answered_during_a_flood_of_anonymous_bodies(dialect: Dialect) {
    let service = Service::new(Setup::new(dialect), false).await;
    let mut child = service.spawn("all", None);
    service.until("the service to listen", async || service.listens().await).await;
    let idle = memory(&child, "VmHWM:");
    let (over, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let senders: Vec<_> =
        (0..SENDERS).map(|_| tokio::spawn(send_bodies(dialect, service.port, over.clone(), sent.clone()))).collect();
    // The bodies fill their room.
    service.until("the flood", async || sent.load(Ordering::SeqCst) > 256 << 20).await;

    let client = reqwest::Client::builder().no_proxy().build().expect("a client");
    let body = format!("{{\"x\":\"{}\"}}", "y".repeat(GENUINE_BYTES)).into_bytes();
    let (mut longest, before) = (Duration::ZERO, sent.load(Ordering::SeqCst));
    for number in 0..GENUINE {
        let mut request = client.post(format!("http://127.0.0.1:{}/webhooks/forge", service.port)).body(body.clone());
        for (name, value) in signed(dialect, &format!("genuine-{number}"), "issues", &body) {
            request = request.header(name, value);
        }
        let start = Instant::now();
        let status = request.send().await.expect("an answer").status().as_u16();
        longest = longest.max(start.elapsed());
        assert_eq!(status, 202, "delivery {number}");
    }
    let meanwhile = sent.load(Ordering::SeqCst) - before;
    over.store(true, Ordering::SeqCst);
    for sender in senders {
        sender.await.expect("it ends");
    }
    let most = memory(&child, "VmHWM:");
    eprintln!(
        "longest answer: {longest:?}; {} MiB of the flood meanwhile; memory: {idle} to {most} MiB",
        meanwhile >> 20
    );
    assert!(longest < LONGEST, "{longest:?}");
    assert!(meanwhile > (GENUINE * GENUINE_BYTES) as u64, "the flood ended early: {meanwhile} bytes");
    assert!(most < MOST_MIB, "{most} MiB");
    stop(&mut child).await;
    service.finish().await;
}

/// Sends anonymous bodies, one after the other, and counts their bytes.
async fn send_bodies(dialect: Dialect, port: u16, over: Arc<AtomicBool>, sent: Arc<AtomicU64>) {
    let chunk = vec![b' '; 64 << 10];
    while !over.load(Ordering::SeqCst) {
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)).await else { continue };
        let mut all: DeliveryHeaders = headers(dialect, "anonymous", "issues");
        all.push(("Content-Length".into(), LARGE.to_string()));
        let lines: String = all.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let head = format!("POST /webhooks/forge HTTP/1.1\r\nHost: service\r\n{lines}\r\n");
        let mut left = if stream.write_all(head.as_bytes()).await.is_ok() { LARGE } else { 0 };
        while left > 0 && !over.load(Ordering::SeqCst) {
            let part = &chunk[..left.min(chunk.len())];
            if stream.write_all(part).await.is_err() {
                break;
            }
            left -= part.len();
            sent.fetch_add(part.len() as u64, Ordering::SeqCst);
        }
        // The answer, or the end of the connection.
        let _ = tokio::time::timeout(Duration::from_secs(1), stream.read(&mut [0; 64])).await;
    }
}

/// Returns a kernel figure about the memory of a process, in MiB.
fn memory(child: &tokio::process::Child, name: &str) -> u64 {
    let process = child.id().expect("a running process");
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("a process");
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a line");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") >> 10
}
