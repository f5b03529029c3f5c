//! Token counts with the byte-pair encoding `cl100k_base`. The newest vocabularies of vendors differ or are not public. Counts
//! differ by about 10 %, which is accurate enough for a budget.

/// Returns the number of tokens in a text, in linear time. The vocabulary is compiled into the program, and is loaded at the
/// first call.
pub fn count(text: &str) -> usize {
    bpe_openai::cl100k_base().count(text)
}
