//! Estimates the number of tokens in a text that no model has counted.

/// Number of bytes that count as one token. It is the minimum in prose and code, so the estimate tends to respect budgets.
pub const BYTES_PER_TOKEN: usize = 3;

/// Returns the estimated number of tokens in a text with this many bytes. In prose, code and logs in Latin script, it is 1.0
/// to 1.6 times the count of the vocabularies `cl100k_base` and `o200k_base`, and in Cyrillic script up to 2.5 times. If
/// digits and symbols prevail, it may be only 0.6 times the count. Other vocabularies have up to a third more tokens.
pub fn estimated_tokens(bytes: usize) -> usize {
    bytes.div_ceil(BYTES_PER_TOKEN)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Texts with their number of tokens in `cl100k_base`.
    const COUNTED: [(&str, usize); 3] = [
        (include_str!("../../../../../tests/fixtures/memory/learnings.jsonl"), 15_344),
        (include_str!("../../../../../tests/fixtures/limits/real.jsonl"), 18_780),
        ("お誕生日おめでとう", 9),
    ];

    #[test]
    fn estimate_is_at_least_the_count_and_at_most_1_6_times_as_high() {
        for (text, tokens) in COUNTED {
            let estimated = estimated_tokens(text.len());
            assert!((tokens..=tokens * 8 / 5).contains(&estimated), "{tokens}: {estimated}");
        }
    }

    #[test]
    fn digits_and_symbols_are_underestimated_by_less_than_half() {
        for (text, tokens) in [("1234567890 ".repeat(20), 100), ("+-*/=<>(){}[];:,.".repeat(5), 45)] {
            let estimated = estimated_tokens(text.len());
            assert!(estimated < tokens && estimated * 2 > tokens, "{text}: {estimated}");
        }
        assert_eq!([0, 1, 3, 4].map(estimated_tokens), [0, 1, 1, 2]);
    }
}
