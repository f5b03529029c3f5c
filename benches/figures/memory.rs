//! Resident memory of the service: idle, and with many paused loops.

use std::time::Duration;

use ralph_bot::clock::Stopwatch;
use ralph_bot::store::Store;

use crate::ingest::{PROBOT, PeerServer};
use crate::machine::resident_kib;
use crate::report::{FigureRow, FigureTarget};
use crate::service::{BenchService, Parked, data};
use crate::{FigureRun, Size};

/// Description of the measurement, for the page.
pub const DESCRIPTION: &str = "\
    The figure is the maximum of the resident memory (`VmRSS`) of `serve` while it reconciles with a forge that \
    has the issue of every loop. The memory of a parked loop is the additional memory divided by the number of \
    loops. The baseline is the size of a loop in the database.";

const NAME: &str = "memory";

/// Measures all rows.
pub async fn run(run: &mut FigureRun) -> anyhow::Result<()> {
    let (loops, watched) = match run.size {
        Size::Brief => (200, Duration::from_secs(1)),
        _ => (10_000, Duration::from_secs(20)),
    };
    let folder = run.folder()?;
    let parked = Parked::prepare(&folder, 0, 0).await?;
    let idle =
        largest(&BenchService::start(&folder, &parked.seat, "all", &[])?, watched.min(Duration::from_secs(5))).await?;
    let row = FigureRow::new(NAME, "idle service", idle as f64 / 1024.0, "MiB").target(FigureTarget::AtMost(40.0));
    run.add(match PeerServer::probot(PROBOT) {
        Ok(probot) => row.beside("probot, idle", resident_kib(probot.pid())? as f64 / 1024.0),
        Err(_) => row,
    });
    let folder = run.folder()?;
    let parked = Parked::prepare(&folder, loops, 0).await?;
    let store = Store::attach(&data(&folder).join("ralph.db"))?;
    let bytes: f64 =
        store.read(|c| Ok(c.query_row("SELECT avg(length(data)) FROM loops", [], |row| row.get(0))?)).await?;
    store.close().await;
    let full = largest(&BenchService::start(&folder, &parked.seat, "all", &[])?, watched).await?;
    let each = (full as f64 - idle as f64) / loops as f64;
    run.add(FigureRow::new(NAME, format!("service with {loops} parked loops"), full as f64 / 1024.0, "MiB"));
    let row = FigureRow::new(NAME, "a parked loop", each, "KiB").beside("in the database", bytes / 1024.0);
    run.add(row.target(FigureTarget::AtMost(16.0)));
    Ok(())
}

/// Returns the maximum resident memory of a service during `time`, in KiB.
pub async fn largest(service: &BenchService, time: Duration) -> anyhow::Result<u64> {
    let watch = Stopwatch::start();
    let mut most = 0;
    while watch.elapsed() < time {
        most = most.max(resident_kib(service.pid())?);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(most)
}
