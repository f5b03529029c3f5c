//! Reads a whole table in pages, because PostgreSQL sends the rows of a query together.

use crate::store::StoreResult;
use crate::store::sql::{Connection, Row};

/// Number of rows that are read at a time.
const PAGE: usize = 64;

/// Calls `each` for the rows of a table in the order of their ids. It returns the id of its row.
pub(super) fn for_each_row(
    c: &Connection,
    table: &str,
    columns: &str,
    mut each: impl FnMut(&Row<'_>) -> StoreResult<i64>,
) -> StoreResult<()> {
    let sql = format!("SELECT {columns} FROM {table} WHERE id > ?1 ORDER BY id LIMIT {PAGE}");
    let mut statement = c.prepare_cached(&sql)?;
    let mut after = i64::MIN;
    loop {
        let mut count = 0;
        let mut rows = statement.query([after])?;
        while let Some(row) = rows.next()? {
            after = each(&row)?;
            count += 1;
        }
        if count < PAGE {
            return Ok(());
        }
    }
}
