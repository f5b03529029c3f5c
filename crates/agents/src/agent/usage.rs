//! Usage figures that are read from an agent's output or from the files of its session.

use crate::domain::providers::prices::TokenUsage;

/// Tokens of a run or of a session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct RunTokens {
    /// Input tokens, including cached ones.
    pub(super) read: u64,
    /// Output tokens, including reasoning.
    pub(super) written: u64,
    /// Input tokens that were read from the provider's cache; part of `read`.
    pub(super) cache_read: u64,
    /// Input tokens that were written to the provider's cache; part of `read`.
    pub(super) cache_write: u64,
}

impl RunTokens {
    /// Returns these tokens with the cached ones among the input tokens.
    pub(super) fn of(usage: TokenUsage) -> Self {
        let TokenUsage { output, cache_read, cache_write, .. } = usage;
        Self { read: usage.read(), written: output, cache_read, cache_write }
    }

    /// Returns the sum of input and output tokens.
    pub(super) fn total(self) -> u64 {
        self.read.saturating_add(self.written)
    }

    /// Returns the field-by-field sum.
    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            read: self.read.saturating_add(other.read),
            written: self.written.saturating_add(other.written),
            cache_read: self.cache_read.saturating_add(other.cache_read),
            cache_write: self.cache_write.saturating_add(other.cache_write),
        }
    }
}

/// Number of tokens that a session fills of its context window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct ContextFill {
    /// Input and output tokens of the last turn.
    pub(super) tokens: u64,
    /// Size of the model's context window in tokens; `None` if it is not reported.
    pub(super) window: Option<u64>,
}
