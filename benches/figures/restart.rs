//! Downtime after the service is killed.

use std::net::TcpListener;
use std::time::Duration;

use ralph_bot::clock::Stopwatch;

use crate::load::{self, From};
use crate::machine::median;
use crate::report::{FigureRow, FigureTarget};
use crate::service::{BenchService, Parked, data};
use crate::{FigureRun, Size};

/// Description of the measurement, for the page.
pub const DESCRIPTION: &str = "\
    The figure is the median time from the start of the process to the 202 of the first delivery, after a SIGKILL, \
    with open loops and unprocessed deliveries. The baseline is the same start on an empty database.";

const NAME: &str = "restart";
/// Maximum wait for a response.
const PATIENCE: Duration = Duration::from_secs(60);

/// Measures all rows.
pub async fn run(run: &mut FigureRun) -> anyhow::Result<()> {
    let (loops, deliveries, rounds) = match run.size {
        Size::Brief => (50, 200, 1),
        _ => (1_000, 10_000, 5),
    };
    let (mut full, mut empty) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let folder = run.folder()?;
        let nothing = Parked::prepare(&folder, 0, 0).await?;
        empty.push(start(&folder, &nothing).await?.1);
        let folder = run.folder()?;
        let parked = Parked::prepare(&folder, loops, deliveries).await?;
        drop(start(&folder, &parked).await?);
        anyhow::ensure!(data(&folder).join("ralph.db-wal").exists(), "the service was not killed but stopped");
        full.push(start(&folder, &parked).await?.1);
    }
    let what = format!("kill to first answer, {loops} open loops, {deliveries} deliveries");
    let row = FigureRow::new(NAME, what, median(full).as_secs_f64(), "s").target(FigureTarget::AtMost(1.0));
    run.add(row.beside("first start, empty database", median(empty).as_secs_f64()));
    Ok(())
}

/// Starts the service and waits for its first response. Returns the duration.
pub async fn start(folder: &std::path::Path, parked: &Parked) -> anyhow::Result<(BenchService, Duration)> {
    let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let watch = Stopwatch::start();
    // Asked from the start, because the service reports its address only after the recovery.
    let answer = tokio::spawn(load::first_answer(address, From::Gitea, watch, PATIENCE));
    let service =
        tokio::task::block_in_place(|| BenchService::start_at(folder, &parked.seat, "all", &[], address.port()))?;
    Ok((service, answer.await??))
}
