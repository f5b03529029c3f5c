//! Groups of writes, each of which the writer thread runs in one commit.

use tokio::sync::oneshot;

use super::{StoreError, StoreResult};
use crate::store::sql::Connection;

/// Unit of work for the writer thread.
pub(super) trait WriterTask: Send {
    /// Runs the work in the open transaction; returns `false` to roll it back.
    fn run(&mut self, connection: &Connection) -> bool;
    /// Returns the error of the last run, if it failed.
    fn error(&self) -> Option<StoreError>;
    /// Whether the work may run again after a full disk or a lost connection rolled it back.
    fn is_kept(&self) -> bool;
    /// Sends the result to the caller after the commit.
    fn finish(self: Box<Self>, committed: Result<(), StoreError>);
}

struct WriteJob<T, F> {
    work: F,
    kept: bool,
    result: Option<StoreResult<T>>,
    reply: oneshot::Sender<StoreResult<T>>,
}

impl<T: Send, F: FnMut(&Connection) -> StoreResult<T> + Send> WriterTask for WriteJob<T, F> {
    fn run(&mut self, connection: &Connection) -> bool {
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| (self.work)(connection)));
        let result = outcome.unwrap_or_else(|_| Err(StoreError::Bug { detail: "a write panicked".into() }));
        let good = result.is_ok();
        self.result = Some(result);
        good
    }

    fn error(&self) -> Option<StoreError> {
        self.result.as_ref().and_then(|result| result.as_ref().err().cloned())
    }

    fn is_kept(&self) -> bool {
        self.kept
    }

    fn finish(self: Box<Self>, committed: Result<(), StoreError>) {
        let result = match (committed, self.result) {
            (Ok(()), Some(result)) => result,
            (_, Some(Err(own))) => Err(own),
            (Err(error), _) => Err(error),
            (Ok(()), None) => Err(StoreError::Bug { detail: "a write was not run".into() }),
        };
        // The caller may have been cancelled; its write is committed anyway.
        let _ = self.reply.send(result);
    }
}

/// Writes of one commit. They run in insertion order; a write that fails or panics is rolled back separately.
#[derive(Default)]
pub struct WriteGroup(Vec<Box<dyn WriterTask>>);

/// Result of a write in a group, available after [`Store::submit`](super::Store::submit).
pub struct PendingWrite<T>(oneshot::Receiver<StoreResult<T>>);

impl<T> PendingWrite<T> {
    /// Returns the result; `None` if the writer did not run the group.
    pub(super) async fn answer(self) -> Option<StoreResult<T>> {
        self.0.await.ok()
    }
}

impl WriteGroup {
    /// Returns the writes to run.
    pub(super) fn tasks(&mut self) -> impl Iterator<Item = &mut Box<dyn WriterTask>> {
        self.0.iter_mut()
    }

    /// Adds a write.
    pub fn add<T, F>(&mut self, work: F) -> PendingWrite<T>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> StoreResult<T> + Send + 'static,
    {
        let mut work = Some(work);
        let once = move |c: &Connection| {
            let ran = || StoreError::Bug { detail: "a write was run twice".into() };
            work.take().ok_or_else(ran)?(c)
        };
        self.push(once, false)
    }

    /// Adds a write that stays in memory while the disk is full or the database is busy, and runs again until it is on disk.
    /// Used for outcomes that cannot be produced again.
    pub fn add_kept<T, F>(&mut self, work: F) -> PendingWrite<T>
    where
        T: Send + 'static,
        F: FnMut(&Connection) -> StoreResult<T> + Send + 'static,
    {
        self.push(work, true)
    }

    fn push<T, F>(&mut self, work: F, kept: bool) -> PendingWrite<T>
    where
        T: Send + 'static,
        F: FnMut(&Connection) -> StoreResult<T> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        self.0.push(Box::new(WriteJob { work, kept, result: None, reply }));
        PendingWrite(answer)
    }

    /// Reports a commit's result to its writes. Returns the writes to keep: a full disk, a lock or a lost connection
    /// prevented them, and they may run again.
    pub(super) fn finish(self, committed: &StoreResult<()>) -> Option<Self> {
        let passes = |error: &StoreError| matches!(error, StoreError::Full { .. } | StoreError::Busy);
        let prevented = |task: &dyn WriterTask| {
            task.is_kept() && committed.as_ref().err().cloned().or_else(|| task.error()).is_some_and(|e| passes(&e))
        };
        let (kept, ended): (Vec<_>, Vec<_>) = self.0.into_iter().partition(|task| prevented(task.as_ref()));
        ended.into_iter().for_each(|task| task.finish(committed.clone()));
        (!kept.is_empty()).then_some(Self(kept))
    }
}
