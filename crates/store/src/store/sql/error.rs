//! Errors of statements.

use ralph_types::failure::Failure;

use crate::store::StoreError;

/// Error of a statement. Like [`StoreError`], `Display` prints the causes of a detail.
#[derive(Debug, thiserror::Error)]
pub enum SqlError {
    /// A query for one row returned none.
    #[error("the query returned no row")]
    NoRow,
    /// SQLite rejected a statement, or a value does not have the expected type.
    #[error(transparent)]
    Sqlite(rusqlite::Error),
    /// A value does not have the expected type.
    #[error("the value of column {column} is not usable: {detail:#}")]
    Value {
        column: usize,
        #[source]
        detail: Failure,
    },
    /// The full-text index rejects a search expression.
    #[error("{0:?} is not a search expression")]
    RefusedExpression(String),
    /// PostgreSQL rejected a statement, or the connection was lost.
    #[error(transparent)]
    Store(StoreError),
}

/// Error of SQLite as a cause. It has no further cause, because the cause in `rusqlite` repeats the message as a number.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct SqliteError(pub rusqlite::Error);

/// Result of a statement.
pub type SqlResult<T> = Result<T, SqlError>;

impl From<rusqlite::Error> for SqlError {
    fn from(error: rusqlite::Error) -> Self {
        match error {
            rusqlite::Error::QueryReturnedNoRows => Self::NoRow,
            other => Self::Sqlite(other),
        }
    }
}

impl From<SqlError> for StoreError {
    fn from(error: SqlError) -> Self {
        match error {
            SqlError::Sqlite(error) => error.into(),
            SqlError::Store(error) => error,
            SqlError::NoRow | SqlError::Value { .. } | SqlError::RefusedExpression(_) => {
                Self::Bug { detail: Failure::of(error) }
            }
        }
    }
}

impl SqlError {
    /// Whether the full-text index rejected a search expression.
    pub(in crate::store) fn is_refused_expression(&self) -> bool {
        // FTS5 reports invalid expressions while the statement runs, with a generic error code.
        match self {
            Self::Sqlite(error) => error.sqlite_error_code() == Some(rusqlite::ErrorCode::Unknown),
            _ => matches!(self, Self::RefusedExpression(_)),
        }
    }
}

/// Turns a missing row into `None`.
pub trait OptionalExtension<T> {
    /// Returns `None` if the query returned no row.
    fn optional(self) -> SqlResult<Option<T>>;
}

impl<T> OptionalExtension<T> for SqlResult<T> {
    fn optional(self) -> SqlResult<Option<T>> {
        match self {
            Ok(value) => Ok(Some(value)),
            Err(SqlError::NoRow) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
