//! Built-in prices, as published by the providers.
//!
//! Sources, as read in November 2026 (with the dates of the pages):
//! - Anthropic: platform.claude.com/docs, "Pricing" and the overviews of Opus 5.5, Sonnet 5.5 and Haiku 5.5 (October 2026).
//!   The price of writing to a cache applies to the 5-minute cache.
//! - OpenAI: developers.openai.com/api/docs/pricing as quoted on 2026-11-18 (GPT-6.2), 2026-10-26 (GPT-6.1 Terra),
//!   2026-10-01 (GPT-6.1 Sol), 2026-09-22 (GPT-6), 2026-07-30 (GPT-5.6) and 2026-06 (older ones). The price of a cached
//!   token of GPT-6.2 Sol was not found, so the price of GPT-6.1 Sol is used. From GPT-5.6 on, writing to a cache costs 1.25 times
//!   the input price; for older models it costs nothing extra.
//! - Google: ai.google.dev/gemini-api/docs/pricing as quoted on 2026-10-07 and earlier. The three newest Flash models cost
//!   twice as much from 2027-01-01 on. Where no price of a cached token was found, a tenth of the input price is assumed, as
//!   for the other models.
//! - Moonshot: platform.kimi.ai/docs/pricing as quoted on 2026-10-25 (Kimi-K3.1 Pro), 2026-07 (Kimi-K3) and 2026-06
//!   (Kimi-K2.7 Code). Moonshot publishes no price of Kimi-K2.6.
//!
//! Long prompts cost more. For Haiku 5.5, prompts above 100,000 tokens cost five times as much. For Sonnet 4.5 and Gemini Pro,
//! prompts above 200,000 tokens cost twice as much for input and 1.5 times as much for output; the same applies to GPT-5.4 and
//! later above 272,000 tokens. If a page only says that long prompts cost more, these factors are assumed.

use super::name::is_version_of;
use super::{PriceEntry, TokenPrice, Vendor};

/// Date on which the built-in prices were last checked.
pub const PUBLISHED_ON: &str = "2026-11-22";

/// Row of the table: a model, and its prices of input, output, cache read and cache write in dollars per million tokens.
type PriceRow = (&'static str, [f64; 4]);

const ANTHROPIC: &[PriceRow] = &[
    ("claude-fable-5-1", [10.0, 50.0, 0.25, 12.5]),
    ("claude-mythos-5-1", [10.0, 50.0, 0.25, 12.5]),
    ("claude-fable-5", [10.0, 50.0, 1.0, 12.5]),
    ("claude-mythos-5", [10.0, 50.0, 1.0, 12.5]),
    ("claude-opus-5-5", [4.0, 20.0, 0.2, 5.0]),
    ("claude-opus-5", [5.0, 25.0, 0.5, 6.25]),
    ("claude-opus-4-8", [5.0, 25.0, 0.5, 6.25]),
    ("claude-opus-4-7", [5.0, 25.0, 0.5, 6.25]),
    ("claude-opus-4-6", [5.0, 25.0, 0.5, 6.25]),
    ("claude-opus-4-5", [5.0, 25.0, 0.5, 6.25]),
    ("claude-opus-4-1", [15.0, 75.0, 1.5, 18.75]),
    ("claude-opus-4", [15.0, 75.0, 1.5, 18.75]),
    ("claude-sonnet-5-5", [2.0, 10.0, 0.1, 2.5]),
    ("claude-sonnet-5", [2.0, 10.0, 0.2, 2.5]),
    ("claude-sonnet-4-6", [3.0, 15.0, 0.3, 3.75]),
    ("claude-sonnet-4-5", [3.0, 15.0, 0.3, 3.75]),
    ("claude-sonnet-4", [3.0, 15.0, 0.3, 3.75]),
    ("claude-haiku-5-5", [0.1, 0.5, 0.01, 0.125]),
    ("claude-haiku-4-5", [1.0, 5.0, 0.1, 1.25]),
];

const OPENAI: &[PriceRow] = &[
    ("gpt-6-2-astra", [8.0, 40.0, 0.4, 10.0]),
    ("gpt-6-2-sol", [2.0, 10.0, 0.1, 2.5]),
    ("gpt-6-1-sol", [2.0, 10.0, 0.1, 2.5]),
    ("gpt-6-1-terra", [1.0, 5.0, 0.05, 1.25]),
    ("gpt-6-astra", [10.0, 50.0, 1.0, 12.5]),
    ("gpt-6-sol", [2.0, 10.0, 0.2, 2.5]),
    ("gpt-6-luna", [0.1, 0.5, 0.01, 0.125]),
    ("gpt-5-6-sol", [4.0, 20.0, 0.4, 5.0]),
    ("gpt-5-6", [4.0, 20.0, 0.4, 5.0]),
    ("gpt-5-6-terra", [2.0, 12.0, 0.2, 2.5]),
    ("gpt-5-6-luna", [0.2, 1.2, 0.02, 0.25]),
    ("gpt-5-5", [5.0, 30.0, 0.5, 5.0]),
    ("gpt-5-4", [2.5, 15.0, 0.25, 2.5]),
    ("gpt-5-4-mini", [0.75, 4.5, 0.075, 0.75]),
    ("gpt-5-4-nano", [0.2, 1.25, 0.02, 0.2]),
    ("gpt-5-3-codex", [1.75, 14.0, 0.175, 1.75]),
    ("gpt-5-2-codex", [1.75, 14.0, 0.175, 1.75]),
    ("gpt-5-2", [1.75, 14.0, 0.175, 1.75]),
    ("gpt-5-1-codex-max", [1.25, 10.0, 0.125, 1.25]),
    ("gpt-5-1-codex", [1.25, 10.0, 0.125, 1.25]),
    ("gpt-5-1", [1.25, 10.0, 0.125, 1.25]),
    ("gpt-5-codex", [1.25, 10.0, 0.125, 1.25]),
    ("gpt-5", [1.25, 10.0, 0.125, 1.25]),
    ("gpt-5-mini", [0.25, 2.0, 0.025, 0.25]),
    ("gpt-5-nano", [0.05, 0.4, 0.005, 0.05]),
];

const GOOGLE: &[PriceRow] = &[
    ("gemini-3-8-flash", [0.75, 3.75, 0.075, 0.75]),
    ("gemini-3-7-flash", [0.75, 3.75, 0.075, 0.75]),
    ("gemini-3-6-flash", [0.75, 3.75, 0.075, 0.75]),
    ("gemini-3-5-flash", [1.5, 9.0, 0.15, 1.5]),
    ("gemini-3-5-flash-lite", [0.3, 2.5, 0.03, 0.3]),
    ("gemini-3-1-pro", [2.0, 12.0, 0.2, 2.0]),
    ("gemini-3-1-flash-lite", [0.25, 1.5, 0.025, 0.25]),
    ("gemini-3-flash", [0.5, 3.0, 0.05, 0.5]),
    ("gemini-2-5-pro", [1.25, 10.0, 0.125, 1.25]),
    ("gemini-2-5-flash", [0.3, 2.5, 0.03, 0.3]),
    ("gemini-2-5-flash-lite", [0.1, 0.4, 0.01, 0.1]),
];

const MOONSHOT: &[PriceRow] = &[
    ("kimi-k3-1-pro", [2.0, 10.0, 0.2, 2.0]),
    ("kimi-k3-1-pro-highspeed", [4.0, 20.0, 0.2, 4.0]),
    ("kimi-k3", [3.0, 15.0, 0.3, 3.0]),
    ("kimi-k2-7-code", [0.95, 4.0, 0.19, 0.95]),
];

/// Short names that CLIs accept, with the models that they referred to on [`PUBLISHED_ON`].
const ALIASES: &[(&str, &str)] = &[
    ("fable", "claude-fable-5-1"),
    ("opus", "claude-opus-5-5"),
    ("sonnet", "claude-sonnet-5-5"),
    ("haiku", "claude-haiku-5-5"),
];

/// Models that charge more for long prompts. A row has the start of the name, another part of the name, the number of tokens
/// above which a prompt is long, and the factors for the prices of input and output in percent.
const LONG_PROMPTS: &[(&str, &str, u64, [i64; 2])] = &[
    ("claude-haiku-5-5", "", 100_000, [500, 500]),
    ("claude-sonnet-4-5", "", 200_000, [200, 150]),
    ("gemini-", "-pro", 200_000, [200, 150]),
    ("gpt-5-4", "", 272_000, [200, 150]),
    ("gpt-5-5", "", 272_000, [200, 150]),
    ("gpt-5-6", "", 272_000, [200, 150]),
    ("gpt-6", "", 272_000, [200, 150]),
];

/// Returns the model that a short name refers to; other names are returned unchanged.
fn unaliased(model: &str) -> &str {
    ALIASES.iter().find(|(alias, _)| *alias == model).map_or(model, |(_, name)| name)
}

/// Applies the surcharge for a prompt with this many tokens to the price of a model, given by its canonical name.
pub(super) fn for_prompt(price: TokenPrice, model: &str, tokens: u64) -> TokenPrice {
    let model = unaliased(model);
    let is_of = |(begin, part, above, _): &&(&str, &str, u64, [i64; 2])| {
        model.starts_with(begin) && model.contains(part) && tokens > *above
    };
    LONG_PROMPTS.iter().find(is_of).map_or(price, |(.., [input, output])| price.raised(*input, *output))
}

/// Returns the published price of a model, given by its canonical name.
pub(super) fn price(model: &str) -> Option<TokenPrice> {
    let model = unaliased(model);
    let row = rows().filter(|(name, _)| is_version_of(model, name)).max_by_key(|(name, _)| name.len())?;
    Some(price_of(row))
}

fn price_of(row: &PriceRow) -> TokenPrice {
    let [input, output, cache_read, cache_write] = row.1;
    TokenPrice::of(&PriceEntry { input, output, cache_read: Some(cache_read), cache_write: Some(cache_write) })
}

/// Returns the published prices of a vendor's models for a prompt with this many tokens; of all vendors for `None`.
pub(super) fn prices_of(vendor: Option<Vendor>, tokens: u64) -> impl Iterator<Item = TokenPrice> {
    let tables = [
        (Vendor::Anthropic, ANTHROPIC),
        (Vendor::OpenAi, OPENAI),
        (Vendor::Google, GOOGLE),
        (Vendor::Moonshot, MOONSHOT),
    ];
    let of_vendor = tables.into_iter().filter(move |(name, _)| vendor.is_none_or(|vendor| vendor == *name));
    of_vendor.flat_map(|(_, rows)| rows).map(move |row| for_prompt(price_of(row), row.0, tokens))
}

/// Returns all rows of the price tables.
pub(super) fn rows() -> impl Iterator<Item = &'static PriceRow> {
    [ANTHROPIC, OPENAI, GOOGLE, MOONSHOT].into_iter().flatten()
}
