//! Checkpoints of SQLite's write-ahead log in a separate thread, so that no commit waits for them.
//!
//! The writer counts the pages of its log after each commit and wakes the thread for each [`STEP`] of them; the thread copies
//! the complete part into the database while the writer continues. Writes that never pause keep the thread from reaching the
//! log's end, which is where SQLite starts the log anew; at [`LIMIT`] the writer therefore copies the last step itself.

use std::cell::Cell;
use std::path::Path;
use std::sync::mpsc;
use std::thread::JoinHandle;

use ralph_types::failure::Failure;
use rusqlite::Connection;
use tokio_util::sync::CancellationToken;

use super::sqlite;
use crate::store::{StoreError, StoreResult, failure, with_path};

/// Pages of the log after which the thread copies them (4 MiB).
const STEP: u32 = 1_000;
/// Size of the log, in pages, at which the writer makes the checkpoint itself (32 MiB). It bounds the file, and the time that
/// SQLite needs to read it at the start after a crash.
const LIMIT: u32 = 8_192;

thread_local! {
    /// Pages in the log after this thread's last commit.
    static LOG_PAGES: Cell<u32> = const { Cell::new(0) };
}

/// Thread that makes checkpoints; dropping the value ends it.
pub(in crate::store) struct Checkpointer {
    /// Wakes the thread; `None` once it has to end.
    due: Option<mpsc::SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
    /// Steps of the log for which the thread was woken, since the log started.
    steps: u32,
}

impl Checkpointer {
    /// Starts the thread for the database of a writer's connection, which then makes no automatic checkpoints. A failure to
    /// write or sync the database cancels `failed`: a repeated sync could report success for pages that are not on disk.
    ///
    /// # Errors
    /// `Failed` if the database cannot be opened again, or the thread cannot be started.
    pub fn start(path: &Path, writer: &Connection, failed: &CancellationToken) -> StoreResult<Self> {
        let connection = sqlite::beside_writer(path)?;
        let (due, wakes) = mpsc::sync_channel(1);
        let (path, failed) = (path.to_path_buf(), failed.clone());
        let run = move || {
            while wakes.recv().is_ok() && !failed.is_cancelled() {
                copy(&connection, &path, &failed);
            }
        };
        let thread = std::thread::Builder::new().name("store-checkpoints".into()).spawn(run);
        let thread =
            thread.map_err(|error| failure(Failure::new("could not start the checkpoint thread").caused_by(error)))?;
        writer.wal_hook(Some(|_, pages| {
            LOG_PAGES.set(pages.try_into().unwrap_or_default());
            Ok(())
        }));
        Ok(Self { due: Some(due), thread: Some(thread), steps: 0 })
    }

    /// Wakes the thread, or makes the checkpoint, if the log has grown enough. The writer's thread calls it after each commit.
    pub fn committed(&mut self, writer: &Connection, path: &Path, failed: &CancellationToken) {
        let pages = LOG_PAGES.get();
        if pages >= LIMIT {
            copy(writer, path, failed);
        }
        let steps = pages / STEP;
        if steps > self.steps
            && let Some(due) = &self.due
        {
            // If the thread has been woken already, it will find these pages as well.
            let _ = due.try_send(());
        }
        self.steps = steps;
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        drop(self.due.take());
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the checkpoint thread panicked");
        }
    }
}

/// Copies the complete part of the log into the database without waiting for readers or writers.
fn copy(connection: &Connection, path: &Path, failed: &CancellationToken) {
    match connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())) {
        Ok(()) => {}
        Err(error) => match with_path(StoreError::from(error), path) {
            // The log keeps the pages that were not copied.
            error @ (StoreError::Busy | StoreError::Full { .. }) => {
                tracing::debug!(%error, "could not make a checkpoint")
            }
            error => {
                failed.cancel();
                tracing::error!(path = %path.display(), %error, "a checkpoint failed; further writes are refused");
            }
        },
    }
}
