//! Usage figures that are read from an agent's output or from the files of its session.

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

/// Usage that is recorded in the files of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct SessionUsage {
    /// Tokens of all requests.
    pub(super) tokens: RunTokens,
    /// Number of tokens in the context window after the last turn; `None` if it is not reported.
    pub(super) context_fill: Option<ContextFill>,
}
