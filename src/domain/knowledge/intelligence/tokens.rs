//! Token counts by the byte-pair encoding `cl100k_base`. Vendors' newest vocabularies differ or are not public; counts
//! differ by about ten per cent, which a budget can bear.

/// Returns the number of tokens of a text, in linear time. The vocabulary is part of the program and is loaded at the
/// first call.
pub fn count(text: &str) -> usize {
    bpe_openai::cl100k_base().count(text)
}
