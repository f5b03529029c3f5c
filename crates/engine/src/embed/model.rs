//! Embedding models in the format of model2vec: `model.safetensors` with the table, `tokenizer.json`, `config.json`.

use std::fmt;
use std::path::Path;

use data_encoding::HEXLOWER;
use ralph_types::failure::Failure;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use sha2::{Digest, Sha256};
use tokenizers::Tokenizer;

use crate::domain::knowledge::memory::{EMBEDDING_FILES, Embedding};

/// Maximum size of a model file, in bytes.
const MAX_FILE: u64 = 4 << 30;
/// Maximum length of a text to embed, in bytes and in tokens, as in model2vec.
const MAX_TEXT: usize = 16 * 1024;
const MAX_TOKENS: usize = 512;
/// Names of the table in model2vec files, and in sentence-transformers files that consist only of such a table.
const TABLES: [&str; 3] = ["embeddings", "embedding.weight", "0"];

/// Loaded embedding model.
pub struct StaticModel {
    name: String,
    tokenizer: Tokenizer,
    /// Concatenated vectors, each of `dimensions` numbers.
    table: Vec<f32>,
    dimensions: usize,
    /// Weight of each token; empty if all weights are equal.
    weights: Vec<f32>,
    /// Index of each token's vector; empty if it equals the token's id.
    rows: Vec<f32>,
    /// Id of the token for unknown words; `None` without one.
    unknown: Option<u32>,
}

impl fmt::Debug for StaticModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StaticModel({}, {} dimensions)", self.name, self.dimensions)
    }
}

impl StaticModel {
    /// Loads the model in a folder.
    ///
    /// # Errors
    /// A sentence with the missing or invalid file and the reason.
    pub fn load(folder: &Path) -> Result<Self, Failure> {
        let mut hash = Sha256::new();
        let mut files = Vec::new();
        for name in EMBEDDING_FILES {
            let path = folder.join(name);
            let wrong = |why: Failure| Failure::new(path.display().to_string()).caused_by(why);
            let size = std::fs::metadata(&path).map_err(|error| wrong(Failure::of(error)))?.len();
            if size > MAX_FILE {
                return Err(wrong(format!("it has {size} bytes; at most {MAX_FILE} are allowed").into()));
            }
            let bytes = std::fs::read(&path).map_err(|error| wrong(Failure::of(error)))?;
            hash.update((bytes.len() as u64).to_le_bytes());
            hash.update(&bytes);
            files.push(bytes);
        }
        let [table, tokenizer, config] = &files[..] else { return Err(Failure::new("a model has three files")) };
        let name = HEXLOWER.encode(&hash.finalize()[..8]);
        let wrong = |file: usize, why: Failure| {
            Failure::new(folder.join(EMBEDDING_FILES[file]).display().to_string()).caused_by(why)
        };
        let tokenizer = tokenizer_of(tokenizer).map_err(|why| wrong(1, why))?;
        // Vectors are compared by cosine, so the model's normalization does not matter.
        serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(config)
            .map_err(|error| wrong(2, Failure::new("it is not a JSON object").caused_by(error)))?;
        Self::of(name, tokenizer, table).map_err(|why| wrong(0, why))
    }

    fn of(name: String, tokenizer: Tokenizer, file: &[u8]) -> Result<Self, Failure> {
        let tensors = SafeTensors::deserialize(file).map_err(Failure::of)?;
        let table = TABLES.iter().find_map(|name| tensors.tensor(name).ok());
        let table = table.ok_or_else(|| format!("it has none of the tensors {}", TABLES.join(", ")))?;
        let [count, dimensions] = *table.shape() else {
            return Err(Failure::new(format!(
                "its table has the shape {:?}; it must have two dimensions",
                table.shape()
            )));
        };
        if count == 0 || dimensions == 0 {
            return Err(Failure::new("its table is empty"));
        }
        let vocabulary = tokenizer.get_vocab_size(true);
        let optional = |name: &str| match tensors.tensor(name) {
            Ok(tensor) if tensor.shape() == [vocabulary] => numbers(&tensor),
            Ok(tensor) => Err(Failure::new(format!(
                "{name} has the shape {:?}; the tokenizer has {vocabulary} tokens",
                tensor.shape()
            ))),
            Err(_) => Ok(Vec::new()),
        };
        let (weights, rows) = (optional("weights")?, optional("mapping")?);
        if rows.is_empty() && count < vocabulary {
            return Err(Failure::new(format!("its table has {count} vectors; the tokenizer has {vocabulary} tokens")));
        }
        if rows.iter().any(|row| !(0.0..count as f32).contains(row)) {
            return Err(Failure::new(format!(
                "its mapping names vectors that its table, which has {count}, does not have"
            )));
        }
        let table = numbers(&table)?;
        if !table.iter().chain(&weights).all(|number| number.is_finite()) {
            return Err(Failure::new("it contains a value that is not a number"));
        }
        let unknown = ["[UNK]", "<unk>"].iter().find_map(|token| tokenizer.token_to_id(token));
        Ok(Self { name, tokenizer, table, dimensions, weights, rows, unknown })
    }

    /// Returns the name for stored vectors. It changes if any of the model's files changes.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns a text's unit vector; empty if no token is known. Uses only the first 16 KiB and 512 tokens.
    pub fn embed(&self, text: &str) -> Embedding {
        let text = &text[..text.floor_char_boundary(MAX_TEXT)];
        // Text that cannot be tokenized has no vector, but full-text search still finds it.
        let tokens = self.tokenizer.encode_fast(text, false).map(|found| found.get_ids().to_vec()).unwrap_or_default();
        let mut sum = vec![0.0f32; self.dimensions];
        for token in tokens.into_iter().filter(|token| Some(*token) != self.unknown).take(MAX_TOKENS) {
            let at = token as usize;
            let row = if self.rows.is_empty() { at } else { self.rows.get(at).map_or(usize::MAX, |row| *row as usize) };
            let weight = self.weights.get(at).copied().unwrap_or(1.0);
            let vector = row.checked_mul(self.dimensions).and_then(|from| self.table.get(from..from + self.dimensions));
            for (sum, number) in sum.iter_mut().zip(vector.unwrap_or_default()) {
                *sum += number * weight;
            }
        }
        let length = sum.iter().map(|number| number * number).sum::<f32>().sqrt();
        let vector = if length > 0.0 { sum.iter().map(|number| number / length).collect() } else { Vec::new() };
        Embedding { model: self.name.clone(), vector }
    }
}

/// Loads the tokenizer with padding and truncation disabled.
fn tokenizer_of(bytes: &[u8]) -> Result<Tokenizer, Failure> {
    let mut tokenizer =
        Tokenizer::from_bytes(bytes).map_err(|error| Failure::new("it is not a valid tokenizer").caused_by(error))?;
    tokenizer.with_truncation(None).map_err(Failure::of)?;
    tokenizer.with_padding(None);
    Ok(tokenizer)
}

/// Returns a tensor's numbers as `f32`; integers are exact up to 2^24.
fn numbers(tensor: &TensorView<'_>) -> Result<Vec<f32>, Failure> {
    fn each<const N: usize>(bytes: &[u8], read: impl Fn([u8; N]) -> f32) -> Vec<f32> {
        bytes.as_chunks::<N>().0.iter().map(|chunk| read(*chunk)).collect()
    }
    let bytes = tensor.data();
    Ok(match tensor.dtype() {
        Dtype::F32 => each(bytes, f32::from_le_bytes),
        Dtype::F64 => each(bytes, |chunk| f64::from_le_bytes(chunk) as f32),
        Dtype::F16 => each(bytes, |chunk| half(u16::from_le_bytes(chunk))),
        Dtype::BF16 => each(bytes, |chunk| f32::from_bits(u32::from(u16::from_le_bytes(chunk)) << 16)),
        Dtype::I8 => each(bytes, |chunk| f32::from(i8::from_le_bytes(chunk))),
        Dtype::I32 => each(bytes, |chunk| i32::from_le_bytes(chunk) as f32),
        Dtype::I64 => each(bytes, |chunk| i64::from_le_bytes(chunk) as f32),
        other => return Err(Failure::new(format!("its numbers have the type {other:?}, which is not supported"))),
    })
}

/// Converts an IEEE 754 half-precision number.
fn half(bits: u16) -> f32 {
    let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
    let (exponent, fraction) = (i32::from(bits >> 10 & 0x1f), f32::from(bits & 0x3ff));
    sign * match exponent {
        0 => fraction * 2.0f32.powi(-24),
        31 if fraction == 0.0 => f32::INFINITY,
        31 => f32::NAN,
        _ => (1.0 + fraction / 1024.0) * 2.0f32.powi(exponent - 15),
    }
}

#[cfg(test)]
mod tests {
    use super::half;

    #[test]
    fn half_precision_numbers_are_converted() {
        let cases = [
            (0x0000, 0.0),
            (0x3c00, 1.0),
            (0xc000, -2.0),
            (0x3555, 0.333_251_95),
            (0x7bff, 65_504.0),
            (0x0001, 5.960_464_5e-8),
        ];
        for (bits, expected) in cases {
            assert_eq!(half(bits), expected, "{bits:#06x}");
        }
        assert!(half(0x7e00).is_nan() && half(0xfc00) == f32::NEG_INFINITY);
    }
}
