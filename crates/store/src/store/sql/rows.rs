//! Rows of a query.

use ralph_types::failure::Failure;
use rusqlite::types::{FromSql, ValueRef};

use super::error::{SqlError, SqlResult};
use super::postgres::{PgRow, value};

/// Row of a query.
pub struct Row<'a>(RowSource<'a>);

#[derive(Clone, Copy)]
enum RowSource<'a> {
    Sqlite(&'a rusqlite::Row<'a>),
    Postgres(&'a PgRow),
}

/// Position of a column, from 0.
pub trait ColumnIndex: Copy {
    /// Returns the position.
    fn position(self) -> usize;
}

impl ColumnIndex for usize {
    fn position(self) -> usize {
        self
    }
}

impl<'a> Row<'a> {
    /// Returns the value of a column.
    ///
    /// # Errors
    /// The value does not have the type `T`.
    pub fn get<I: ColumnIndex, T: FromSql>(&self, at: I) -> SqlResult<T> {
        match self.0 {
            RowSource::Sqlite(row) => Ok(row.get(at.position())?),
            RowSource::Postgres(row) => {
                let column = at.position();
                let read = T::column_result(value(row, column)?);
                read.map_err(|error| SqlError::Value { column, detail: Failure::of(error) })
            }
        }
    }

    /// Returns the value of a column without a copy.
    pub fn get_ref(&self, at: usize) -> SqlResult<ValueRef<'a>> {
        match self.0 {
            RowSource::Sqlite(row) => Ok(row.get_ref(at)?),
            RowSource::Postgres(row) => value(row, at),
        }
    }
}

/// Rows of a query.
pub struct Rows<'s>(RowStream<'s>);

enum RowStream<'s> {
    Sqlite(rusqlite::Rows<'s>),
    /// Rows to return, and the current row.
    Postgres(std::vec::IntoIter<PgRow>, Option<PgRow>),
}

impl<'s> Rows<'s> {
    pub(super) fn of_sqlite(rows: rusqlite::Rows<'s>) -> Self {
        Self(RowStream::Sqlite(rows))
    }

    pub(super) fn of_postgres(rows: Vec<PgRow>) -> Self {
        Self(RowStream::Postgres(rows.into_iter(), None))
    }

    /// Returns the next row. A row borrows from the rows, so this is not an iterator.
    #[expect(clippy::should_implement_trait, reason = "rusqlite's name; an item borrows from the rows")]
    pub fn next(&mut self) -> SqlResult<Option<Row<'_>>> {
        match &mut self.0 {
            RowStream::Sqlite(rows) => Ok(rows.next()?.map(|row| Row(RowSource::Sqlite(row)))),
            RowStream::Postgres(rows, current) => {
                *current = rows.next();
                Ok(current.as_ref().map(|row| Row(RowSource::Postgres(row))))
            }
        }
    }
}

/// Iterator over the mapped rows of a query.
pub struct MappedRows<'s, F> {
    rows: Rows<'s>,
    map: F,
}

impl<'s, F> MappedRows<'s, F> {
    pub(super) fn new(rows: Rows<'s>, map: F) -> Self {
        Self { rows, map }
    }
}

impl<T, F: FnMut(&Row<'_>) -> SqlResult<T>> Iterator for MappedRows<'_, F> {
    type Item = SqlResult<T>;

    fn next(&mut self) -> Option<Self::Item> {
        let row = self.rows.next().transpose()?;
        Some(row.and_then(|row| (self.map)(&row)))
    }
}
