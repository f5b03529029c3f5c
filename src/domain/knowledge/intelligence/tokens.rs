//! Token counts by the byte-pair encoding `cl100k_base`. Vendors' newest vocabularies differ or are not public; their counts
//! differ by about 10 %, which is accurate enough for a budget.

/// Returns the number of tokens of a text, in linear time. The vocabulary is part of the program and is loaded at the
/// first call.
pub fn count(text: &str) -> usize {
    bpe_openai::cl100k_base().count(text)
}
