//! Prices of tokens by model, for backends that do not report the cost of a call.
//!
//! The result is marked as an estimate ([`CostSource::Estimated`]). Prices are for ordinary requests; providers charge more
//! for fast modes and some regions, and less for batches and plans. The higher price of long prompts is considered where the
//! tokens of each request are known ([`PriceTable::price_or_highest`]), but not for totals of a whole run.

mod name;
mod published;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::domain::model::ids::Money;
use crate::domain::model::settings::KeyProblem;
use crate::domain::model::tokens::estimated_tokens;

pub use published::PUBLISHED_ON;

/// Vendor of models with published prices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Vendor {
    /// Anthropic.
    Anthropic,
    /// OpenAI.
    OpenAi,
    /// Google.
    Google,
    /// Moonshot.
    Moonshot,
}

/// Highest plausible price, in dollars per million tokens. A higher one is probably in another unit.
const PRICE_MAX_USD: f64 = 10_000.0;

/// Number of tokens of one or several calls. Each token is counted in exactly one field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TokenUsage {
    /// Input tokens, excluding those read from or written to a cache.
    pub input: u64,
    /// Output tokens, including reasoning.
    pub output: u64,
    /// Input tokens read from a cache.
    pub cache_read: u64,
    /// Input tokens written to a cache.
    pub cache_write: u64,
}

impl TokenUsage {
    /// Creates the usage of a call whose input tokens `read` include those read from and those written to a cache, as most CLIs
    /// count.
    pub fn with_cached_in(read: u64, output: u64, cache_read: u64, cache_write: u64) -> Self {
        let input = read.saturating_sub(cache_read.saturating_add(cache_write));
        Self { input, output, cache_read, cache_write }
    }

    /// Estimates the usage of a call from the bytes of text that it reads and writes, because no server reported it.
    pub fn estimated(read: usize, written: usize) -> Self {
        let tokens = |bytes| estimated_tokens(bytes) as u64;
        Self { input: tokens(read), output: tokens(written), ..Self::default() }
    }

    /// Returns the input tokens, including those read from or written to a cache. Saturates.
    pub fn read(&self) -> u64 {
        self.input.saturating_add(self.cache_read).saturating_add(self.cache_write)
    }

    /// Returns the sum of all tokens. Saturates.
    pub fn total(&self) -> u64 {
        [self.input, self.output, self.cache_read, self.cache_write].into_iter().fold(0, u64::saturating_add)
    }

    /// Returns the number of tokens of each kind, with the name of the kind.
    pub fn by_kind(&self) -> [(&'static str, u64); 4] {
        let Self { input, output, cache_read, cache_write } = *self;
        [("input", input), ("output", output), ("cache_read", cache_read), ("cache_write", cache_write)]
    }

    /// Returns the sum of each field. Saturates.
    pub fn plus(self, other: TokenUsage) -> TokenUsage {
        TokenUsage {
            input: self.input.saturating_add(other.input),
            output: self.output.saturating_add(other.output),
            cache_read: self.cache_read.saturating_add(other.cache_read),
            cache_write: self.cache_write.saturating_add(other.cache_write),
        }
    }
}

/// Source of a cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CostSource {
    /// Reported by the backend.
    Reported,
    /// Computed from the number of tokens and a table of prices.
    Estimated,
}

/// Cost, with its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// Amount.
    pub money: Money,
    /// Source of the cost.
    pub source: CostSource,
}

/// Price of a model as configured, in US dollars per million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PriceEntry {
    /// Price of input tokens that are not read from a cache.
    pub input: f64,
    /// Price of output tokens.
    pub output: f64,
    /// Price of input tokens that are read from a cache; `input` by default.
    #[serde(default)]
    pub cache_read: Option<f64>,
    /// Price of input tokens that are written to a cache; `input` by default.
    #[serde(default)]
    pub cache_write: Option<f64>,
}

/// Price of a model per million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenPrice {
    /// Price of input tokens that are not read from a cache.
    pub input: Money,
    /// Price of output tokens.
    pub output: Money,
    /// Price of input tokens that are read from a cache.
    pub cache_read: Money,
    /// Price of input tokens that are written to a cache, with the shortest lifetime that the provider offers.
    pub cache_write: Money,
}

impl TokenPrice {
    /// Converts a configured price, whose figures must be in range.
    fn of(entry: &PriceEntry) -> Self {
        let input = Money::from_usd(entry.input);
        Self {
            input,
            output: Money::from_usd(entry.output),
            cache_read: entry.cache_read.map_or(input, Money::from_usd),
            cache_write: entry.cache_write.map_or(input, Money::from_usd),
        }
    }

    /// Returns the higher price for each kind of token.
    fn highest(self, other: Self) -> Self {
        Self {
            input: self.input.max(other.input),
            output: self.output.max(other.output),
            cache_read: self.cache_read.max(other.cache_read),
            cache_write: self.cache_write.max(other.cache_write),
        }
    }

    /// Multiplies the prices of input by `read` percent and the price of output by `written` percent. Saturates.
    fn raised(self, read: i64, written: i64) -> Self {
        let part = |price: Money, percent: i64| Money(price.0.saturating_mul(percent) / 100);
        Self {
            input: part(self.input, read),
            output: part(self.output, written),
            cache_read: part(self.cache_read, read),
            cache_write: part(self.cache_write, read),
        }
    }

    /// Returns the cost of `usage`, rounded up to a millionth of a dollar. Saturates and is never negative.
    pub fn cost(&self, usage: &TokenUsage) -> Money {
        const MILLION: i128 = 1_000_000;
        let part = |tokens: u64, price: Money| i128::from(tokens) * i128::from(price.0.max(0));
        let sum = part(usage.input, self.input)
            + part(usage.output, self.output)
            + part(usage.cache_read, self.cache_read)
            + part(usage.cache_write, self.cache_write);
        Money(i64::try_from((sum + MILLION - 1) / MILLION).unwrap_or(i64::MAX))
    }
}

/// Table of prices by model. Configured prices take precedence over published ones.
#[derive(Debug, Clone, PartialEq)]
pub struct PriceTable {
    /// Configured prices. The flag is true if the name is a prefix of model names.
    entries: Vec<(String, bool, TokenPrice)>,
}

impl PriceTable {
    /// Creates the table with published prices only.
    pub fn published() -> Self {
        Self { entries: Vec::new() }
    }

    /// Combines the configured prices with the published ones. A name that ends with `*` matches all models that
    /// start with it. `key` is the path of the section (`backends.codex.prices`).
    ///
    /// # Errors
    /// All problems of the entries, each with its path.
    pub fn with_entries(entries: &BTreeMap<String, PriceEntry>, key: &str) -> Result<Self, Vec<KeyProblem>> {
        let mut problems = Vec::new();
        let mut parsed = Vec::new();
        for (name, entry) in entries {
            problem_with(&format!("{key}.{name}"), name, entry, &mut problems);
            let (begins, is_beginning) = name.strip_suffix('*').map_or((name.as_str(), false), |rest| (rest, true));
            parsed.push((name::canonical(begins), is_beginning, TokenPrice::of(entry)));
        }
        if problems.is_empty() { Ok(Self { entries: parsed }) } else { Err(problems) }
    }

    /// Returns the price of `model`, whose name may have a provider as prefix and a date as suffix. Complete configured names
    /// take precedence, then the longest configured prefix, then published names. `None` if nothing matches, because an unknown
    /// model is not free.
    pub fn price(&self, model: &str) -> Option<TokenPrice> {
        let model = name::canonical(model);
        if model.is_empty() {
            return None;
        }
        let covers_name = |(name, is_beginning, price): &(String, bool, TokenPrice)| {
            (!is_beginning && name::is_version_of(&model, name)).then_some((name.len(), *price))
        };
        let beginning = |(name, is_beginning, price): &(String, bool, TokenPrice)| {
            (*is_beginning && model.starts_with(name.as_str())).then_some((name.len(), *price))
        };
        let longest = |found: Option<(usize, TokenPrice)>| found.map(|(_, price)| price);
        longest(self.entries.iter().filter_map(covers_name).max_by_key(|found| found.0))
            .or_else(|| longest(self.entries.iter().filter_map(beginning).max_by_key(|found| found.0)))
            .or_else(|| published::price(&model))
    }

    /// Returns the price of a request whose prompt has this many tokens. Uses the first of the given names of a model that has a
    /// price. If none has one, returns for each kind of token the highest price of the configuration and the vendor (of all
    /// vendors for `None`), so that an unknown model is never free. Surcharges of the provider for long prompts are applied to
    /// configured prices, too.
    pub fn price_or_highest<'m>(
        &self,
        models: impl IntoIterator<Item = &'m str>,
        vendor: Option<Vendor>,
        prompt: u64,
    ) -> TokenPrice {
        let of = |model: &str| Some(published::for_prompt(self.price(model)?, &name::canonical(model), prompt));
        let known = models.into_iter().find_map(of);
        known.unwrap_or_else(|| {
            let entries = self.entries.iter().map(|(_, _, price)| *price);
            let all = entries.chain(published::prices_of(vendor, prompt));
            all.reduce(TokenPrice::highest).unwrap_or(TokenPrice::of(&PriceEntry::default()))
        })
    }

    /// Estimates the cost of `usage` with `model`; `None` if the price of the model is unknown.
    pub fn estimate(&self, usage: &TokenUsage, model: &str) -> Option<Cost> {
        let money = self.price(model)?.cost(usage);
        Some(Cost { money, source: CostSource::Estimated })
    }
}

impl Default for PriceTable {
    fn default() -> Self {
        Self::published()
    }
}

fn problem_with(key: &str, name: &str, entry: &PriceEntry, problems: &mut Vec<KeyProblem>) {
    let mut wrong = |key: String, what: String| problems.push(KeyProblem::new(key, what));
    if name.trim().is_empty() {
        wrong(key.to_owned(), "names no model".to_owned());
    }
    let figures = [
        ("input", Some(entry.input)),
        ("output", Some(entry.output)),
        ("cache_read", entry.cache_read),
        ("cache_write", entry.cache_write),
    ];
    for (field, value) in figures {
        if let Some(value) = value.filter(|value| !(0.0..=PRICE_MAX_USD).contains(value)) {
            wrong(
                format!("{key}.{field}"),
                format!("is {value}; 0 to {PRICE_MAX_USD} dollars per million tokens are allowed"),
            );
        }
    }
}
