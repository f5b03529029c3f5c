//! Writer thread: commits many callers' writes in one transaction, and keeps outcomes while the database cannot be written.

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use failpoint::kill_point;
use tokio_util::sync::CancellationToken;

use super::sql::Connection;
use super::sql::checkpointer::Checkpointer;
use super::{Mode, StoreError, StoreResult, WriteGroup, with_path};
use crate::clock::Stopwatch;

/// Maximum number of job groups per commit. It bounds the wait of the first group.
const COMMIT_BATCH: usize = 256;
/// Delay between two attempts to store outcomes after the disk was full or the connection was lost.
const KEPT_RETRY: Duration = Duration::from_secs(1);

/// Runs incoming writes until the store is closed.
pub(super) fn write_loop(
    connection: Connection,
    jobs: &mpsc::Receiver<WriteGroup>,
    path: &Path,
    failed: &CancellationToken,
    mut checkpointer: Option<Checkpointer>,
    mode: Mode,
) {
    let (mut answered, mut took) = (1, Duration::ZERO);
    // Outcomes not stored because of a full disk or a lost connection, and the time of the last attempt.
    let mut kept: Vec<WriteGroup> = Vec::new();
    let mut tried = Stopwatch::start();
    loop {
        let retried = kept.len();
        let mut batch = if retried > 0 && tried.elapsed() >= KEPT_RETRY {
            tried = Stopwatch::start();
            std::mem::take(&mut kept)
        } else {
            let patience = (retried > 0).then(|| KEPT_RETRY.saturating_sub(tried.elapsed()));
            let Some(batch) = next_batch(jobs, answered, took / 2, patience) else { break };
            answered = batch.len().max(1);
            batch
        };
        if batch.is_empty() {
            continue;
        }
        let watch = Stopwatch::start();
        let outcome = if failed.is_cancelled() {
            Err(StoreError::Failed { path: path.to_path_buf(), detail: "an earlier write failed".into() })
        } else {
            commit_batch(&connection, &mut batch).map_err(|error| with_path(error, path))
        };
        took = watch.elapsed();
        if let Err(StoreError::Failed { detail, .. }) = &outcome
            && !failed.is_cancelled()
        {
            failed.cancel();
            tracing::error!(path = %path.display(), detail = format!("{detail:#}"), "the database failed; further writes are refused");
        }
        kept.extend(batch.into_iter().filter_map(|group| group.finish(&outcome)));
        if let (Some(checkpointer), Some(sqlite)) = (&mut checkpointer, connection.as_sqlite()) {
            checkpointer.committed(sqlite, path, failed);
        }
        match (retried, kept.len()) {
            (0, 1..) => tracing::error!(
                path = %path.display(),
                error = outcome.as_ref().err().map(ToString::to_string),
                "cannot write to the database now; the service keeps outcomes in memory and stores them later"
            ),
            (1.., 0) => tracing::info!("stored the outcomes that were kept in memory"),
            _ => {}
        }
    }
    drop(checkpointer);
    if mode == Mode::Beside {
        return;
    }
    kill_point("K33");
    connection.engine().settle();
}

/// Waits for groups, at most `patience` if there is one; returns `None` once the store is closed.
fn next_batch(
    jobs: &mpsc::Receiver<WriteGroup>,
    answered: usize,
    most: Duration,
    patience: Option<Duration>,
) -> Option<Vec<WriteGroup>> {
    let mut batch: Vec<_> = jobs.try_iter().take(COMMIT_BATCH).collect();
    let waited = batch.len();
    if waited == 0 {
        let first = match patience {
            None => jobs.recv().map_err(|_| mpsc::RecvTimeoutError::Disconnected),
            Some(patience) => jobs.recv_timeout(patience),
        };
        match first {
            Ok(first) => batch.push(first),
            Err(mpsc::RecvTimeoutError::Timeout) => return Some(batch),
            Err(mpsc::RecvTimeoutError::Disconnected) => return None,
        }
    }
    gather(jobs, &mut batch, (waited + answered).min(COMMIT_BATCH), most);
    Some(batch)
}

/// Waits at most `most` for `wanted` groups: callers that received results together write again together, and would
/// otherwise be split over two commits.
fn gather(jobs: &mpsc::Receiver<WriteGroup>, batch: &mut Vec<WriteGroup>, wanted: usize, most: Duration) {
    let watch = Stopwatch::start();
    while batch.len() < wanted {
        match jobs.recv_timeout(most.saturating_sub(watch.elapsed())) {
            Ok(job) => batch.push(job),
            Err(_) => return,
        }
    }
}

fn commit_batch(connection: &Connection, batch: &mut [WriteGroup]) -> StoreResult<()> {
    connection.engine().begin_write()?;
    let run = |batch: &mut [WriteGroup]| -> StoreResult<()> {
        for job in batch.iter_mut().flat_map(WriteGroup::tasks) {
            connection.prepare_cached("SAVEPOINT job")?.execute([])?;
            if !job.run(connection) {
                // A full disk may end the whole transaction, including the savepoint.
                if !connection.engine().is_in_transaction() {
                    return Err(job.error().unwrap_or(StoreError::Busy));
                }
                connection.prepare_cached("ROLLBACK TO job")?.execute([])?;
            }
            connection.prepare_cached("RELEASE job")?.execute([])?;
        }
        if failpoint::disk_is_full() {
            return Err(StoreError::Full { path: PathBuf::new() });
        }
        connection.engine().commit()
    };
    let outcome = run(batch);
    if outcome.is_err() {
        connection.engine().roll_back()?;
    }
    outcome
}
