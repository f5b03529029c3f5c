//! Compresses long texts with LZ4.

use ralph_types::failure::Failure;

use crate::store::sql::{ToSql, ToSqlOutput, ValueRef};
use crate::store::{StoreError, StoreResult};

/// Minimum size of a compressed text, in bytes.
const SHORT: usize = 2048;
/// Maximum size of a text, in bytes; a larger stored length means that the row is damaged.
const LONGEST: usize = 4 << 20;
/// Number of indexed bytes of a text, half from its start and half from its end.
const INDEXED: usize = 128 * 1024;

/// Text in its stored form.
#[derive(Debug, Clone)]
pub(super) enum Packed {
    Text(String),
    Lz4(Vec<u8>),
}

impl Packed {
    pub(super) fn new(text: &str) -> Self {
        if text.len() < SHORT {
            return Self::Text(text.to_owned());
        }
        let packed = lz4_flex::compress_prepend_size(text.as_bytes());
        if packed.len() < text.len() { Self::Lz4(packed) } else { Self::Text(text.to_owned()) }
    }
}

impl ToSql for Packed {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        match self {
            Self::Text(text) => text.to_sql(),
            Self::Lz4(bytes) => bytes.to_sql(),
        }
    }
}

/// Returns a stored text.
///
/// # Errors
/// `Bug` if the stored bytes are damaged.
pub(super) fn text(stored: ValueRef<'_>) -> StoreResult<String> {
    let damaged = |cause: Failure| StoreError::Bug {
        detail: Failure::new("a text of the session memory is damaged").caused_by(cause),
    };
    match stored {
        ValueRef::Text(bytes) => Ok(String::from_utf8_lossy(bytes).into_owned()),
        ValueRef::Blob(bytes) => {
            let length = lz4_flex::block::uncompressed_size(bytes).map_err(|error| damaged(Failure::of(error)))?.0;
            if length > LONGEST {
                return Err(damaged(format!("it claims {length} bytes").into()));
            }
            let bytes = lz4_flex::decompress_size_prepended(bytes).map_err(|error| damaged(Failure::of(error)))?;
            String::from_utf8(bytes).map_err(|error| damaged(Failure::of(error)))
        }
        other => Err(damaged(format!("it is of the type {}", other.data_type()).into())),
    }
}

/// Shortens a text to `most` bytes by omitting its middle, and marks the gap.
pub(super) fn shortened(text: String, most: usize) -> String {
    if text.len() <= most {
        return text;
    }
    let (head, tail) = ends(&text, most);
    format!("{head}\n[… {} bytes omitted …]\n{tail}", text.len() - head.len() - tail.len())
}

/// Returns the indexed part of a text.
pub(super) fn indexed(text: &str) -> String {
    if text.len() <= INDEXED {
        return text.to_owned();
    }
    let (head, tail) = ends(text, INDEXED);
    format!("{head}\n{tail}")
}

fn ends(text: &str, most: usize) -> (&str, &str) {
    let head = &text[..text.floor_char_boundary(most / 2)];
    (head, &text[text.ceil_char_boundary(text.len() - most / 2)..])
}
