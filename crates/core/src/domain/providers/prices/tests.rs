//! Known and unknown names, and costs.

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn input_price(model: &str) -> Option<f64> {
    PriceTable::published().price(model).map(|price| price.input.usd())
}

#[test]
fn names_match_with_provider_prefix_and_date_suffix() {
    for (model, price) in [
        ("claude-opus-5-5", 4.0),
        ("anthropic/claude-opus-5-5", 4.0),
        ("openrouter/anthropic/claude-opus-5.5", 4.0),
        ("Claude-Opus-5-5[1m]", 4.0),
        ("opus", 4.0),
        ("claude-opus-5", 5.0),
        ("claude-opus-4-20250514", 15.0),
        ("claude-opus-4-5@20251101", 5.0),
        ("us.anthropic.claude-opus-4-5-20251101-v1:0", 5.0),
        ("claude-sonnet-4-5-20250929", 3.0),
        ("gpt-5", 1.25),
        ("gpt-5-2025-08-07", 1.25),
        ("gpt-5.2", 1.75),
        ("gpt-5-mini-2025-08-07", 0.25),
        ("openai/gpt-6.2-sol", 2.0),
        ("models/gemini-3.1-pro-preview", 2.0),
        ("gemini-3.1-pro-preview-customtools", 2.0),
        ("gemini-2.5-pro-preview-05-06", 1.25),
        ("gemini-2.5-flash-001", 0.3),
        ("gemini-2.5-flash-lite", 0.1),
        ("moonshotai/kimi-k3", 3.0),
        ("kimi-k3.1-pro-highspeed", 4.0),
    ] {
        assert_eq!(input_price(model), Some(price), "{model}");
    }
}

#[test]
fn unknown_model_has_no_price() {
    let usage = TokenUsage { input: 1_000, ..TokenUsage::default() };
    for model in [
        "",
        " ",
        "llama",
        "gpt",
        "claude",
        "claude-opus",
        "claude-opus-5-7",
        "claude-opus-6",
        "gpt-5-ultra",
        "gpt-5.9",
        "gpt-6",
        "gpt-6.2",
        "gemini-3-pro-image",
        "gemini-2.5-flash-image",
        "kimi-k3-1-pro-99",
        "x/y/",
        "kimi-k3:free",
        "claude-opus-5-5-fast",
        "gpt-5-13-45",
    ] {
        assert_eq!(PriceTable::published().estimate(&usage, model), None, "{model:?}");
    }
}

#[test]
fn every_published_row_is_found_and_plausible() {
    for (name, [input, output, cache_read, cache_write]) in published::rows() {
        assert_eq!(name::canonical(name), *name);
        assert_eq!(input_price(name), Some(*input), "{name}");
        assert!(*cache_read < *input && input <= cache_write && input < output && *cache_read > 0.0, "{name}");
        assert_eq!(published::rows().filter(|row| row.0 == *name).count(), 1, "{name}");
    }
}

#[test]
fn each_kind_of_token_has_its_price() {
    let table = PriceTable::published();
    let million = 1_000_000;
    let usage = TokenUsage { input: million, output: million, cache_read: million, cache_write: million };
    let cost = table.estimate(&usage, "claude-opus-5-5").unwrap();
    assert_eq!(cost, Cost { money: Money(29_200_000), source: CostSource::Estimated });
    // A single token is rounded up, never to nothing.
    let one = TokenUsage { cache_read: 1, ..TokenUsage::default() };
    assert_eq!(table.estimate(&one, "haiku").unwrap().money, Money(1));
    let none = TokenUsage::default();
    assert_eq!(table.estimate(&none, "haiku").unwrap().money, Money(0));
}

#[test]
fn cached_tokens_are_charged_once() {
    let usage = TokenUsage::with_cached_in(1_000, 10, 800, 50);
    assert_eq!(usage, TokenUsage { input: 150, output: 10, cache_read: 800, cache_write: 50 });
    assert_eq!(usage.total(), 1_010);
}

fn entries(value: serde_json::Value) -> BTreeMap<String, PriceEntry> {
    serde_json::from_value(value).unwrap()
}

#[test]
fn configured_prices_override_published_ones() {
    let entries = entries(json!({
        "gpt-6.2-sol": { "input": 1, "output": 2 },
        "gpt-*": { "input": 7, "output": 8, "cache_read": 0.5 },
        "gpt-6.2-*": { "input": 6, "output": 8 },
        "local": { "input": 0, "output": 0 },
    }));
    let table = PriceTable::with_entries(&entries, "backends.codex.prices").unwrap();
    let input = |model: &str| table.price(model).map(|price| price.input.usd());
    assert_eq!(input("openai/gpt-6.2-sol-2026-11-17"), Some(1.0));
    assert_eq!(input("gpt-6.2-nova"), Some(6.0));
    assert_eq!(input("gpt-5"), Some(7.0));
    assert_eq!(input("claude-opus-5-5"), Some(4.0));
    assert_eq!(input("mistral"), None);
    // A price of nothing that somebody wrote is nothing.
    assert_eq!(table.estimate(&TokenUsage { input: 9, ..TokenUsage::default() }, "local").unwrap().money, Money(0));
    let cached = table.price("gpt-6.2-sol").unwrap();
    assert_eq!((cached.cache_read, cached.cache_write), (cached.input, cached.input));
}

#[test]
fn invalid_price_is_reported_with_path() {
    let entries =
        entries(json!({ "a": { "input": -1, "output": 1e9, "cache_read": 0.1 }, "": { "input": 1, "output": 1 } }));
    let problems = PriceTable::with_entries(&entries, "prices").unwrap_err();
    let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
    assert_eq!(
        lines,
        [
            "`prices.` names no model",
            "`prices.a.input` is -1; 0 to 10000 dollars per million tokens are allowed",
            "`prices.a.output` is 1000000000; 0 to 10000 dollars per million tokens are allowed",
        ]
    );
    assert!(serde_json::from_value::<PriceEntry>(json!({ "input": 1, "output": 1, "inptu": 2 })).is_err());
}

proptest! {
    #[test]
    fn costs_are_never_negative_and_add_up(
        a in any::<[u32; 4]>(), b in any::<[u32; 4]>(), model in "(opus|gpt-5|kimi-k3|haiku)"
    ) {
        let usage = |t: [u32; 4]| TokenUsage {
            input: t[0].into(), output: t[1].into(), cache_read: t[2].into(), cache_write: t[3].into(),
        };
        let table = PriceTable::published();
        let cost = |u: TokenUsage| table.estimate(&u, &model).unwrap().money.0;
        let (one, two, both) = (cost(usage(a)), cost(usage(b)), cost(usage(a).plus(usage(b))));
        prop_assert!(one >= 0 && two >= 0);
        prop_assert!(both <= one + two && both + 1 >= one + two, "{one} {two} {both}");
    }

    #[test]
    fn any_name_does_not_panic(model in "\\PC{0,40}") {
        let _ = PriceTable::published().price(&model);
        let _ = PriceTable::published().price(&format!("claude-opus-5{model}"));
    }

    #[test]
    fn huge_counts_saturate(tokens in any::<u64>()) {
        let usage = TokenUsage { input: tokens, output: u64::MAX, cache_read: tokens, cache_write: u64::MAX };
        prop_assert!(PriceTable::published().estimate(&usage, "fable").unwrap().money.0 > 0);
        prop_assert!(usage.total() == u64::MAX);
    }
}

#[test]
fn usage_sums_saturate() {
    let one = TokenUsage { input: 1, output: 2, cache_read: 3, cache_write: 4 };
    assert_eq!((one.read(), one.total()), (8, 10));
    assert_eq!(one.plus(one), TokenUsage { input: 2, output: 4, cache_read: 6, cache_write: 8 });
    let most = TokenUsage { input: u64::MAX, output: u64::MAX, cache_read: 1, cache_write: 1 };
    assert_eq!((most.plus(one).input, most.read(), most.total()), (u64::MAX, u64::MAX, u64::MAX));
}

#[test]
fn long_prompts_are_dearer_with_published_and_configured_prices() {
    let entry = PriceEntry { input: 1.0, output: 10.0, cache_read: None, cache_write: None };
    let table = PriceTable::with_entries(&[("gpt-6-sol".to_owned(), entry)].into(), "prices").unwrap();
    let price = |model: &str, tokens: u64| {
        let price = table.price_or_highest([model], None, tokens);
        (price.input, price.output)
    };
    let usd = |input: f64, output: f64| (Money::from_usd(input), Money::from_usd(output));
    assert_eq!(price("gpt-6-sol", 272_000), usd(1.0, 10.0));
    assert_eq!(price("openrouter/openai/gpt-6-sol", 272_001), usd(2.0, 15.0));
    assert_eq!(price("haiku", 100_001), usd(0.5, 2.5));
    assert_eq!(price("gemini-3.1-pro-preview", 200_001), usd(4.0, 18.0));
    assert_eq!(price("gemini-3.8-flash", 999_999), usd(0.75, 3.75));
    // An unknown model has the highest price of its vendor at this length, too.
    let google = table.price_or_highest(["gemini-9"], Some(Vendor::Google), 200_001);
    assert_eq!((google.input, google.output), usd(4.0, 18.0));
}
