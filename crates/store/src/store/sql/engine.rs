//! Differences between the engines that statements cannot hide: transactions, time limits, full text, and the database itself.

use std::time::Duration;

use crate::store::StoreResult;

/// Connection to an engine.
pub(in crate::store) trait DatabaseEngine {
    /// Starts a transaction that reads one snapshot.
    fn begin_read(&self) -> StoreResult<()>;

    /// Starts a write transaction. Only one runs at a time in the database, over all processes.
    fn begin_write(&self) -> StoreResult<()>;

    /// Commits; `Ok` means that the transaction is on disk.
    fn commit(&self) -> StoreResult<()>;

    /// Rolls back; does nothing without a transaction.
    fn roll_back(&self) -> StoreResult<()>;

    /// Whether a transaction is open. An error may have ended it.
    fn is_in_transaction(&self) -> bool;

    /// Limits the time of the following statements until [`end_limit`](Self::end_limit).
    fn begin_limit(&self, limit: Duration) -> StoreResult<()>;

    /// Removes the time limit. `failed` states whether a statement failed.
    fn end_limit(&self, failed: bool) -> StoreResult<()>;

    /// Returns the condition that a row of the full-text index `words` matches the expression in the parameter `?parameter`.
    fn matches(&self, words: &str, parameter: usize) -> String;

    /// Returns the term that sorts matches of the index `words` best first. `weights` has a weight for each column, or is empty; the
    /// expression is in the parameter `?parameter`.
    fn rank(&self, words: &str, weights: &[f64], parameter: usize) -> String;

    /// Returns the query for the last id of a table whose ids are never used again.
    fn last_id(&self, table: &str) -> String;

    /// Lets a table assign values of its number column after `last`. `is_never_reused` states whether numbers of deleted rows are
    /// never used again.
    fn continue_ids(&self, table: &str, column: &str, last: i64, is_never_reused: bool) -> StoreResult<()>;

    /// Returns the server's time in milliseconds since 1970; `None` if the database is a file, which has no clock.
    fn server_time(&self) -> StoreResult<Option<i64>>;

    /// Returns the sizes of the database and its log, in bytes; 0 if unknown.
    fn sizes(&self) -> StoreResult<(u64, u64)>;

    /// Checks the integrity of the whole database; returns the problems found.
    fn problems(&self) -> StoreResult<Vec<String>>;

    /// Leaves the database ready for a fast start, before the last connection closes.
    fn settle(&self);
}
