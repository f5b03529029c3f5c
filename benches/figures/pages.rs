//! Pages of the service and its live listeners, over HTTP, on a database with many loops.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context;
use ralph_bot::clock::Stopwatch;
use ralph_bot::store::Store;
use ralph_bot::store::sql::params;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::corpus::Corpus;
use crate::dashboard::{millis, percentile};
use crate::load::{self, CONNECTIONS, Load};
use crate::machine::processor_times;
use crate::many_loops::{self, id_of};
use crate::report::{FigureRow, FigureTarget};
use crate::service::{BenchService, Seat, data};
use crate::{FigureRun, Size};

const NAME: &str = "dashboard";
/// Maximum size of a page, in KiB.
const LARGEST_KIB: f64 = 100.0;

/// Requested pages: name, and whether people see it, which limits its size.
const PAGES: [(&str, bool); 19] = [
    ("/", true),
    ("/?page=N", true),
    ("/?state=merged&repository=R&person=P", true),
    ("/loops/ID", true),
    ("/loops/ID?until=50", true),
    ("/loops/ID/iterations/N", true),
    ("/search?q=WORDS", true),
    ("/search?q=WORDS&kind=output&repository=R", true),
    ("/costs?by=person&days=90", true),
    ("/memory", true),
    ("/backends", true),
    ("/repositories", true),
    ("/deliveries?state=dead", true),
    ("/deliveries?before=DELIVERY", true),
    ("/audit", true),
    ("/audit?before=DELIVERY", true),
    ("/tokens", true),
    ("/api/v1/loops?limit=50", false),
    ("/api/v1/costs?by=repository", false),
];

/// Returns a client that keeps its connection.
pub fn client() -> anyhow::Result<reqwest::Client> {
    // Another part of this process may already have installed it.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Ok(reqwest::Client::builder().no_proxy().build()?)
}

/// Requests a page; returns the time until its last byte, and its size in bytes.
pub async fn ask(client: &reqwest::Client, service: &BenchService, path: &str) -> anyhow::Result<(Duration, usize)> {
    let token = service.token.as_deref().context("the service has no dashboard")?;
    let watch = Stopwatch::start();
    let answer = client.get(format!("http://{}{path}", service.address)).bearer_auth(token).send().await?;
    let status = answer.status();
    let body = answer.bytes().await?;
    anyhow::ensure!(status.is_success(), "{path}: {status} {}", String::from_utf8_lossy(&body));
    Ok((watch.elapsed(), body.len()))
}

/// Measures pages and listeners on a folder's database.
pub async fn measure(
    run: &mut FigureRun,
    folder: &Path,
    corpus: &mut Corpus,
    (count, iterations): (usize, u32),
) -> anyhow::Result<()> {
    let (asked, listeners, seconds) = match run.size {
        Size::Brief => (5, 20, 1),
        _ => (200, 500, 20),
    };
    let service = BenchService::start(folder, &Seat::nobody(), "ingest", &[])?;
    let token = service.token.clone().context("the service has no dashboard")?;
    let client = client()?;
    let ask = async |path: &str| ask(&client, &service, path).await;
    let mut baseline = Vec::new();
    for _ in 0..asked {
        baseline.push(ask("/healthz").await?.0);
    }
    let baseline = percentile(&mut baseline, 99);
    let mut luck = fastrand::Rng::with_seed(7);
    let mut largest = 0;
    for (name, bounded) in PAGES {
        let mut times = Vec::new();
        for nth in 0..asked {
            let words = (0..1 + nth % 3).map(|_| corpus.text(1)).collect::<Vec<_>>().join("+");
            let path = name
                .replace("WORDS", &words)
                .replace("DELIVERY", &luck.i64(1..=many_loops::DELIVERIES).to_string())
                .replace("ID", id_of(luck.usize(..count)).as_str())
                .replace("=R", &format!("=forge:acme/app{}", luck.usize(..20)))
                .replace("=P", &format!("=person{}", luck.usize(..7)))
                .replace("=N", &format!("={}", luck.usize(1..=count.div_ceil(40))))
                .replace("/N", &format!("/{}", luck.u32(1..=iterations)));
            let (time, bytes) = ask(&path).await?;
            times.push(time);
            if bounded {
                largest = largest.max(bytes);
            }
        }
        let (median, slow) = (millis(percentile(&mut times, 50)), millis(percentile(&mut times, 99)));
        let what = format!("`{name}`, 99th percentile (median {median:.1} ms)");
        let row = FigureRow::new(NAME, what, slow, "ms").beside("/healthz", millis(baseline));
        // A search may take longer than other pages.
        run.add(row.target(FigureTarget::Below(if name.starts_with("/search") { 100.0 } else { 50.0 })));
    }
    let row = FigureRow::new(NAME, "largest of these pages", largest as f64 / 1024.0, "KiB");
    run.add(row.target(FigureTarget::Below(LARGEST_KIB)));
    measure_listeners(run, folder, &service, (&token, listeners, seconds)).await
}

/// Measures the listeners' processor time, idle and with one step per second, and their effect on deliveries.
async fn measure_listeners(
    run: &mut FigureRun,
    folder: &Path,
    service: &BenchService,
    (token, count, seconds): (&str, usize, u64),
) -> anyhow::Result<()> {
    let share = async |steps: bool| -> anyhow::Result<f64> {
        let before = processor_times(service.pid())?.own;
        let watch = Stopwatch::start();
        for second in 0..seconds {
            if steps {
                step(folder, second).await?;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        let took = processor_times(service.pid())?.own.saturating_sub(before);
        Ok(took.as_secs_f64() / watch.elapsed().as_secs_f64() * 100.0)
    };
    let without = share(false).await?;
    let listeners = Listeners::connect(service, token, count).await?;
    let idle = share(false).await?;
    let busy = share(true).await?;
    let heard = listeners.heard();
    anyhow::ensure!(heard >= (seconds - 1) * count as u64, "the listeners got {heard} events only");
    drop(listeners);
    let row =
        FigureRow::new(NAME, format!("{count} listeners, nothing happens"), idle, "%").beside("no listener", without);
    run.add(row.target(FigureTarget::Below(5.0)));
    let row = FigureRow::new(NAME, format!("{count} listeners, a step each second"), busy, "%")
        .beside("no listener", without);
    run.add(row.target(FigureTarget::Below(5.0)));
    let load =
        Load { count: u64::MAX, seconds: if seconds > 1 { 4.0 } else { 0.5 }, rate: 0.0, connections: CONNECTIONS };
    let (mut alone, mut beside) = (Vec::new(), Vec::new());
    // Alternate, because each delivery enlarges the database.
    for with in [false, true, true, false, false, true] {
        let _listeners = if with { Some(Listeners::connect(service, token, count).await?) } else { None };
        let answers = tokio::task::block_in_place(|| load::send(service.address, load))?;
        anyhow::ensure!(answers.bad == 0, "{} deliveries were refused", answers.bad);
        if with { &mut beside } else { &mut alone }.push(answers.rate());
    }
    let middle = |rates: &mut Vec<f64>| {
        rates.sort_by(f64::total_cmp);
        rates[rates.len() / 2]
    };
    let row = FigureRow::new(NAME, format!("durable deliveries beside {count} listeners"), middle(&mut beside), "/s");
    run.add(row.beside("without listeners", middle(&mut alone)).target(FigureTarget::RatioAtLeast(0.95)));
    Ok(())
}

/// Adds a step to a loop's log, like the process that runs loops.
async fn step(folder: &Path, nth: u64) -> anyhow::Result<()> {
    let store = Store::attach(&data(folder).join("ralph.db"))?;
    let id = id_of(0);
    let written = store.write(move |c| {
        let sql = "INSERT INTO loop_events (loop_id, seq, at, input, reasons) VALUES (?1, ?2, 1, ?3, ?4)";
        let reasons = r#"["The agent ended, so its tree is committed."]"#;
        c.execute(sql, params![id.as_str(), 1_000_000 + nth as i64, r#"{"input":"agent_ended"}"#, reasons])?;
        Ok(())
    });
    written.await?;
    store.close().await;
    Ok(())
}

/// Connections to the event stream, each read by a task. Dropping it closes them.
struct Listeners {
    _tasks: JoinSet<()>,
    events: Arc<AtomicU64>,
}

impl Listeners {
    /// Connects, and waits until each stream has started.
    async fn connect(service: &BenchService, token: &str, count: usize) -> anyhow::Result<Self> {
        let (mut tasks, events) = (JoinSet::new(), Arc::new(AtomicU64::new(0)));
        for _ in 0..count {
            let mut stream = TcpStream::connect(service.address).await?;
            let host = service.address;
            let request = format!("GET /events HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {token}\r\n\r\n");
            stream.write_all(request.as_bytes()).await?;
            let mut buffer = vec![0; 4_096];
            let read = stream.read(&mut buffer).await?;
            let head = String::from_utf8_lossy(&buffer[..read]).into_owned();
            anyhow::ensure!(head.starts_with("HTTP/1.1 200"), "no stream: {head}");
            let heard = events.clone();
            tasks.spawn(async move {
                while let Ok(read @ 1..) = stream.read(&mut buffer).await {
                    // An event is much smaller than the buffer, and arrives alone.
                    let found = buffer[..read].windows(6).filter(|part| *part == b"event:").count();
                    heard.fetch_add(found as u64, Ordering::Relaxed);
                }
            });
        }
        Ok(Self { _tasks: tasks, events })
    }

    fn heard(&self) -> u64 {
        self.events.load(Ordering::Relaxed)
    }
}
