//! Parameters of statements.

use ralph_types::failure::Failure;
use rusqlite::Statement;
use rusqlite::types::{FromSqlError, ToSql, ToSqlOutput, Value};

use super::error::{SqlError, SqlResult};

/// Receives the parameters of a statement in order.
pub struct Binder<'b, 'c>(BoundTo<'b, 'c>);

enum BoundTo<'b, 'c> {
    /// Statement of SQLite, and the number of bound parameters.
    Statement(&'b mut Statement<'c>, usize),
    Values(&'b mut Vec<Value>),
}

impl Binder<'_, '_> {
    /// Binds the next parameter.
    pub fn add(&mut self, value: &dyn ToSql) -> SqlResult<()> {
        match &mut self.0 {
            BoundTo::Statement(statement, count) => {
                *count += 1;
                Ok(statement.raw_bind_parameter(*count, value)?)
            }
            BoundTo::Values(values) => {
                let unfit = |error: FromSqlError| SqlError::Value { column: values.len(), detail: Failure::of(error) };
                let value = match value.to_sql()? {
                    ToSqlOutput::Owned(value) => value,
                    ToSqlOutput::Borrowed(value) => value.try_into().map_err(unfit)?,
                    _ => return Err(unfit(FromSqlError::InvalidType)),
                };
                values.push(value);
                Ok(())
            }
        }
    }
}

/// Parameters of a statement: an array of one type, [`params!`](super::params), a tuple, or [`params_from_iter`].
pub trait Params {
    /// Binds the parameters.
    fn bind(self, to: &mut Binder<'_, '_>) -> SqlResult<()>;
}

/// Binds all parameters of a statement of SQLite.
pub(super) fn bind<P: Params>(statement: &mut Statement<'_>, params: P) -> SqlResult<()> {
    let expected = statement.parameter_count();
    let mut to = Binder(BoundTo::Statement(statement, 0));
    params.bind(&mut to)?;
    match to.0 {
        BoundTo::Statement(_, count) if count != expected => {
            Err(rusqlite::Error::InvalidParameterCount(count, expected).into())
        }
        _ => Ok(()),
    }
}

/// Returns the parameters as values, for PostgreSQL.
pub(super) fn values<P: Params>(params: P) -> SqlResult<Vec<Value>> {
    let mut values = Vec::new();
    params.bind(&mut Binder(BoundTo::Values(&mut values)))?;
    Ok(values)
}

impl Params for &[&dyn ToSql] {
    fn bind(self, to: &mut Binder<'_, '_>) -> SqlResult<()> {
        self.iter().try_for_each(|value| to.add(*value))
    }
}

// An empty array would be ambiguous for all lengths of one generic implementation.
impl Params for [&(dyn ToSql + Send + Sync); 0] {
    fn bind(self, _: &mut Binder<'_, '_>) -> SqlResult<()> {
        Ok(())
    }
}

macro_rules! arrays {
    ($($length:literal)+) => {$(
        impl<T: ToSql> Params for [T; $length] {
            fn bind(self, to: &mut Binder<'_, '_>) -> SqlResult<()> {
                self.iter().try_for_each(|value| to.add(value))
            }
        }
    )+};
}
arrays!(1 2 3 4 5 6 7 8);

impl<A: ToSql, B: ToSql> Params for (A, B) {
    fn bind(self, to: &mut Binder<'_, '_>) -> SqlResult<()> {
        to.add(&self.0)?;
        to.add(&self.1)
    }
}

/// Parameters from an iterator.
pub struct ParamsFromIter<I>(I);

/// Returns the items of an iterator as parameters.
pub fn params_from_iter<I: IntoIterator<Item: ToSql>>(values: I) -> ParamsFromIter<I> {
    ParamsFromIter(values)
}

impl<I: IntoIterator<Item: ToSql>> Params for ParamsFromIter<I> {
    fn bind(self, to: &mut Binder<'_, '_>) -> SqlResult<()> {
        self.0.into_iter().try_for_each(|value| to.add(&value))
    }
}
