//! Tokens, counted by the byte-pair encoding `cl100k_base`. Vendors keep their newest vocabularies to themselves or change
//! them; counts differ by some ten per cent between them, which a budget can bear.

/// Tokens of a text. Linear in its length, whatever it holds. The vocabulary is part of the program and is read at the
/// first call.
pub fn count(text: &str) -> usize {
    bpe_openai::cl100k_base().count(text)
}
