//! Writes that are made in one commit, as the writer thread runs them.

use rusqlite::Connection;
use tokio::sync::oneshot;

use super::{StoreError, StoreResult};

/// One unit of work for the writer thread.
pub(super) trait WriterTask: Send {
    /// Runs the work in the open transaction; returns `false` to roll it back.
    fn run(&mut self, connection: &Connection) -> bool;
    /// Sends the result to the caller after the commit.
    fn finish(self: Box<Self>, committed: Result<(), StoreError>);
}

struct WriteJob<T, F> {
    work: Option<F>,
    result: Option<StoreResult<T>>,
    reply: oneshot::Sender<StoreResult<T>>,
}

impl<T: Send, F: FnOnce(&Connection) -> StoreResult<T> + Send> WriterTask for WriteJob<T, F> {
    fn run(&mut self, connection: &Connection) -> bool {
        let Some(work) = self.work.take() else { return false };
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(connection)));
        let result = outcome.unwrap_or_else(|_| Err(StoreError::Bug { detail: "a write panicked".into() }));
        let good = result.is_ok();
        self.result = Some(result);
        good
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

/// Writes of one commit. They run in the order in which they were added; one that fails or panics is rolled back by itself.
#[derive(Default)]
pub struct WriteGroup(Vec<Box<dyn WriterTask>>);

/// Result of a write of a group, to be read after [`Store::submit`](super::Store::submit).
pub struct PendingWrite<T>(oneshot::Receiver<StoreResult<T>>);

impl<T> PendingWrite<T> {
    /// Returns the result; `None` if the writes of the group were not made.
    pub(super) async fn answer(self) -> Option<StoreResult<T>> {
        self.0.await.ok()
    }
}

impl WriteGroup {
    /// Returns the writes, to be run.
    pub(super) fn tasks(&mut self) -> impl Iterator<Item = &mut Box<dyn WriterTask>> {
        self.0.iter_mut()
    }

    /// Returns the writes, to be finished.
    pub(super) fn into_tasks(self) -> impl Iterator<Item = Box<dyn WriterTask>> {
        self.0.into_iter()
    }

    /// Adds a write.
    pub fn add<T, F>(&mut self, work: F) -> PendingWrite<T>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> StoreResult<T> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        self.0.push(Box::new(WriteJob { work: Some(work), result: None, reply }));
        PendingWrite(answer)
    }
}
