//! Values of statements and rows. Parameters have the types that the server infers for them.

use std::error::Error;

use bytes::BytesMut;
use ralph_types::failure::Failure;

use postgres::types::{Format, FromSql, IsNull, ToSql, Type, to_sql_checked};

use super::words;
use crate::store::sql::{SqlError, SqlResult, Value, ValueRef};

/// Row of a query.
pub type PgRow = postgres::Row;

/// Start of a byte string that contains a text. SQLite stores texts and bytes in one column, and compressed texts start with
/// their length, which is smaller.
const TEXT_MARK: [u8; 4] = [0xFF; 4];

/// Parameter in the form of the protocol.
#[derive(Debug)]
pub(super) struct Encoded {
    bytes: Option<Vec<u8>>,
    is_text: bool,
}

impl ToSql for Encoded {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        let Some(bytes) = &self.bytes else { return Ok(IsNull::Yes) };
        out.extend_from_slice(bytes);
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    fn encode_format(&self, _: &Type) -> Format {
        if self.is_text { Format::Text } else { Format::Binary }
    }

    to_sql_checked!();
}

/// Encodes a value as a parameter of a type.
pub(super) fn encode(value: &Value, of: &Type) -> SqlResult<Encoded> {
    let unfit = || SqlError::Value { column: 0, detail: format!("{value:?} does not fit into {of}").into() };
    let binary = |bytes: &[u8]| Ok(Encoded { bytes: Some(bytes.to_vec()), is_text: false });
    let text = |text: String| Ok(Encoded { bytes: Some(text.into_bytes()), is_text: true });
    match (value, of) {
        (Value::Null, _) => Ok(Encoded { bytes: None, is_text: false }),
        (Value::Integer(n), &Type::INT8) => binary(&n.to_be_bytes()),
        (Value::Integer(n), &Type::INT4) => binary(&i32::try_from(*n).map_err(|_| unfit())?.to_be_bytes()),
        (Value::Integer(n), &Type::BOOL) => binary(&[u8::from(*n != 0)]),
        (Value::Integer(n), &Type::FLOAT8) => binary(&(*n as f64).to_be_bytes()),
        (Value::Integer(n), _) => text(n.to_string()),
        (Value::Real(n), &Type::FLOAT8) => binary(&n.to_be_bytes()),
        (Value::Real(n), _) => text(n.to_string()),
        (Value::Text(words), &Type::TS_VECTOR) => text(words::vector(words)),
        (Value::Text(expression), &Type::TSQUERY) => {
            text(words::query(expression).ok_or_else(|| SqlError::RefusedExpression(expression.clone()))?)
        }
        (Value::Text(plain), &Type::BYTEA) => {
            let bytes = [TEXT_MARK.as_slice(), plain.as_bytes()].concat();
            Ok(Encoded { bytes: Some(bytes), is_text: false })
        }
        // PostgreSQL stores no NUL.
        (Value::Text(plain), _) if plain.contains('\0') => text(plain.replace('\0', "\u{FFFD}")),
        (Value::Text(plain), _) => text(plain.clone()),
        (Value::Blob(bytes), &Type::BYTEA) => binary(bytes),
        (Value::Blob(_), _) => Err(unfit()),
    }
}

/// Value of a column as sent by the server.
struct Raw<'a> {
    of: Type,
    bytes: Option<&'a [u8]>,
}

impl<'a> FromSql<'a> for Raw<'a> {
    fn from_sql(of: &Type, bytes: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self { of: of.clone(), bytes: Some(bytes) })
    }

    fn from_sql_null(of: &Type) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self { of: of.clone(), bytes: None })
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

/// Returns the value of a column.
pub fn value(row: &PgRow, at: usize) -> SqlResult<ValueRef<'_>> {
    let missing = |error: postgres::Error| SqlError::Value { column: at, detail: Failure::of(error) };
    let Raw { of, bytes } = row.try_get::<_, Raw<'_>>(at).map_err(missing)?;
    let Some(bytes) = bytes else { return Ok(ValueRef::Null) };
    let read = match of {
        Type::TEXT | Type::VARCHAR | Type::NAME | Type::BPCHAR | Type::UNKNOWN => Some(ValueRef::Text(bytes)),
        Type::BYTEA => Some(match bytes.strip_prefix(&TEXT_MARK) {
            Some(text) => ValueRef::Text(text),
            None => ValueRef::Blob(bytes),
        }),
        Type::BOOL => bytes.first().map(|byte| ValueRef::Integer(i64::from(*byte))),
        Type::INT8 => bytes.try_into().ok().map(|bytes| ValueRef::Integer(i64::from_be_bytes(bytes))),
        Type::INT4 => bytes.try_into().ok().map(|bytes| ValueRef::Integer(i32::from_be_bytes(bytes).into())),
        Type::FLOAT8 => bytes.try_into().ok().map(|bytes| ValueRef::Real(f64::from_be_bytes(bytes))),
        Type::FLOAT4 => bytes.try_into().ok().map(|bytes| ValueRef::Real(f32::from_be_bytes(bytes).into())),
        Type::NUMERIC => numeric(bytes),
        _ => None,
    };
    read.ok_or_else(|| SqlError::Value { column: at, detail: format!("it has the type {of}").into() })
}

/// Returns a number with digits to the base 10,000, such as a sum: an integer, or a real number if it has a fraction.
fn numeric(bytes: &[u8]) -> Option<ValueRef<'static>> {
    let (pairs, []) = bytes.as_chunks::<2>() else { return None };
    let mut numbers = pairs.iter().map(|pair| i16::from_be_bytes(*pair));
    let count = numbers.next()?;
    let weight = numbers.next()?;
    let sign = numbers.next()?;
    let _scale = numbers.next()?;
    let digits: Vec<i16> = numbers.take(usize::try_from(count).ok()?).collect();
    let sign = if sign == 0x4000 { -1 } else { 1 };
    let whole = usize::try_from(i32::from(weight) + 1).unwrap_or_default();
    if digits.len() <= whole {
        let digits = digits.iter().copied().chain(std::iter::repeat(0)).take(whole);
        let integer = digits.fold(0_i128, |sum, digit| sum.saturating_mul(10_000).saturating_add(digit.into()));
        return i64::try_from(sign * integer).ok().map(ValueRef::Integer);
    }
    let places = (0..).map(|place| 10_000_f64.powi(i32::from(weight) - place));
    let real: f64 = digits.iter().zip(places).map(|(digit, place)| f64::from(*digit) * place).sum();
    Some(ValueRef::Real(sign as f64 * real))
}

#[test]
fn numeric_values_are_read_as_integers_or_reals() {
    let bytes = |numbers: &[i16]| numbers.iter().flat_map(|number| number.to_be_bytes()).collect::<Vec<u8>>();
    let read = |numbers: &[i16]| numeric(&bytes(numbers)).map(|value| format!("{value:?}"));
    assert_eq!(read(&[0, 0, 0, 0]).as_deref(), Some("Integer(0)"));
    assert_eq!(read(&[2, 1, 0, 0, 12, 34]).as_deref(), Some("Integer(120034)"));
    assert_eq!(read(&[1, 1, 0x4000, 0, 7]).as_deref(), Some("Integer(-70000)"));
    assert_eq!(read(&[2, 0, 0, 1, 3, 5000]).as_deref(), Some("Real(3.5)"));
    assert_eq!(read(&[1, -1, 0, 2, 2500]).as_deref(), Some("Real(0.25)"));
    assert_eq!(read(&[1]), None);
}
