//! Usage in a model's response, read the same way from each wire format, whether the service or an agent made the request.
//!
//! Fields have the names of the vendors' documentation. Unknown fields are ignored, and a missing figure is 0.

#[cfg(test)]
mod tests;

use serde_json::Value;

use super::prices::{TokenPrice, TokenUsage};
use crate::domain::model::ids::Money;

/// Price of one web search, which some providers charge in addition to tokens.
const SEARCH: Money = Money(10_000);

/// Usage that a provider reported for one response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReportedUsage {
    /// Input tokens, including cached ones.
    pub input: u64,
    /// Output tokens, including reasoning.
    pub output: u64,
    /// Input tokens read from a cache; part of `input`.
    pub cache_read: u64,
    /// Input tokens written to a cache; part of `input`.
    pub cache_write: u64,
    /// Part of `cache_write` that is cached for an hour, at twice the input price.
    pub long_cache_write: u64,
    /// Number of web searches by the provider.
    pub searches: u64,
}

impl ReportedUsage {
    /// Reads `usage` of Anthropic Messages, whose input tokens exclude cached ones.
    pub fn of_messages(usage: &Value) -> Self {
        let cache_read = tokens(&usage["cache_read_input_tokens"]);
        let cache_write = tokens(&usage["cache_creation_input_tokens"]);
        Self {
            input: tokens(&usage["input_tokens"]).saturating_add(cache_read).saturating_add(cache_write),
            output: tokens(&usage["output_tokens"]),
            cache_read,
            cache_write,
            long_cache_write: tokens(&usage["cache_creation"]["ephemeral_1h_input_tokens"]),
            searches: tokens(&usage["server_tool_use"]["web_search_requests"]),
        }
    }

    /// Reads `usage` of OpenAI Responses, whose input tokens include cached ones.
    pub fn of_responses(usage: &Value) -> Self {
        let details = &usage["input_tokens_details"];
        Self {
            input: tokens(&usage["input_tokens"]),
            output: tokens(&usage["output_tokens"]),
            cache_read: tokens(&details["cached_tokens"]),
            cache_write: tokens(&details["cache_write_tokens"]),
            ..Self::default()
        }
    }

    /// Reads `usage` of OpenAI Chat Completions and of compatible servers, whose input tokens include cached ones.
    pub fn of_chat(usage: &Value) -> Self {
        let details = &usage["prompt_tokens_details"];
        // OpenAI and OpenRouter, DeepSeek, Moonshot; a gateway may repeat the figure under two names.
        let cached = [&details["cached_tokens"], &usage["prompt_cache_hit_tokens"], &usage["cached_tokens"]];
        let input = tokens(&usage["prompt_tokens"]);
        // xAI and Gemini count reasoning only in the total.
        let beyond_input = tokens(&usage["total_tokens"]).saturating_sub(input);
        Self {
            input,
            output: tokens(&usage["completion_tokens"]).max(beyond_input),
            cache_read: cached.into_iter().map(tokens).fold(0, u64::max),
            cache_write: tokens(&details["cache_write_tokens"]),
            ..Self::default()
        }
    }

    /// Reads `usageMetadata` of Gemini. Its prompt tokens include cached ones and exclude results of the provider's tools; its
    /// candidates exclude reasoning.
    pub fn of_gemini(usage: &Value) -> Self {
        Self {
            input: tokens(&usage["promptTokenCount"]).saturating_add(tokens(&usage["toolUsePromptTokenCount"])),
            output: tokens(&usage["candidatesTokenCount"]).saturating_add(tokens(&usage["thoughtsTokenCount"])),
            cache_read: tokens(&usage["cachedContentTokenCount"]),
            ..Self::default()
        }
    }

    /// Returns the higher figure of each kind. Later events of a stream repeat or correct earlier ones.
    pub fn highest(self, other: Self) -> Self {
        Self {
            input: self.input.max(other.input),
            output: self.output.max(other.output),
            cache_read: self.cache_read.max(other.cache_read),
            cache_write: self.cache_write.max(other.cache_write),
            long_cache_write: self.long_cache_write.max(other.long_cache_write),
            searches: self.searches.max(other.searches),
        }
    }

    /// Returns the token counts in the service's common form.
    pub fn tokens(&self) -> TokenUsage {
        TokenUsage::with_cached_in(self.input, self.output, self.cache_read, self.cache_write)
    }

    /// Returns the token counts; `None` if all are 0, which means that the server does not report usage.
    pub fn reported(&self) -> Option<TokenUsage> {
        Some(self.tokens()).filter(|usage| usage.total() > 0)
    }

    /// Returns the cost at a price.
    pub fn cost(&self, price: &TokenPrice) -> Money {
        let longer = Money(price.input.0.saturating_mul(2).saturating_sub(price.cache_write.0).max(0));
        let long = TokenPrice { input: longer, output: Money(0), cache_read: Money(0), cache_write: Money(0) };
        let long = long.cost(&TokenUsage { input: self.long_cache_write, ..TokenUsage::default() });
        let searches = Money(i64::try_from(self.searches).unwrap_or(i64::MAX).saturating_mul(SEARCH.0));
        price.cost(&self.tokens()).plus(long).plus(searches)
    }
}

/// Returns a JSON value as a number of tokens, rounded up, because some servers send decimals; 0 if it is not a number.
fn tokens(value: &Value) -> u64 {
    // A cast from a float stays within the integer's range.
    value.as_u64().unwrap_or_else(|| value.as_f64().map_or(0, |number| number.ceil() as u64))
}
