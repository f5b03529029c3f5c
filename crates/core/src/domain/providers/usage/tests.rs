//! `usage` objects as vendors document or servers send them, whether the service or an agent asked.

use serde_json::json;

use super::*;

fn usage(input: u64, output: u64, cache_read: u64, cache_write: u64) -> Option<TokenUsage> {
    Some(TokenUsage { input, output, cache_read, cache_write })
}

#[test]
fn messages_exclude_cached_tokens_from_their_input() {
    let answer = json!({"input_tokens": 12, "cache_creation_input_tokens": 30, "cache_read_input_tokens": 2000,
        "output_tokens": 25, "service_tier": "standard", "cache_creation": {}});
    assert_eq!(ReportedUsage::of_messages(&answer).reported(), usage(12, 25, 2000, 30));
    let end = json!({"output_tokens": 40, "server_tool_use": {"web_search_requests": 2},
        "cache_creation": {"ephemeral_5m_input_tokens": 3, "ephemeral_1h_input_tokens": 4}});
    let end = ReportedUsage::of_messages(&end);
    assert_eq!((end.output, end.searches, end.long_cache_write), (40, 2, 4));
    let start =
        json!({"input_tokens": 10, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 7, "output_tokens": 1});
    assert_eq!(ReportedUsage::of_messages(&start).highest(end).reported(), usage(10, 40, 5, 7));
}

#[test]
fn responses_include_cached_tokens_in_their_input() {
    let answer = json!({"input_tokens": 100, "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 30},
        "output_tokens": 20, "output_tokens_details": {"reasoning_tokens": 15}, "total_tokens": 120});
    assert_eq!(ReportedUsage::of_responses(&answer).reported(), usage(10, 20, 60, 30));
    let stream = json!({"input_tokens": 30, "output_tokens": 6, "input_tokens_details": {"cached_tokens": 9}});
    assert_eq!(ReportedUsage::of_responses(&stream).reported(), usage(21, 6, 9, 0));
}

#[test]
fn chat_servers_name_cached_and_reasoning_tokens_differently() {
    let cases = [
        // OpenAI: reasoning is part of the completion.
        (
            json!({"prompt_tokens": 2006, "completion_tokens": 300, "total_tokens": 2306,
                "prompt_tokens_details": {"cached_tokens": 1920}, "completion_tokens_details": {"reasoning_tokens": 200}}),
            usage(86, 300, 1920, 0),
        ),
        // OpenRouter.
        (
            json!({"prompt_tokens": 194, "completion_tokens": 2, "total_tokens": 196, "cost": 0.95,
                "prompt_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 100, "audio_tokens": 0}}),
            usage(94, 2, 0, 100),
        ),
        // DeepSeek.
        (json!({"prompt_tokens": 9, "prompt_cache_hit_tokens": 4, "prompt_cache_miss_tokens": 5}), usage(5, 0, 4, 0)),
        // Moonshot.
        (
            json!({"prompt_tokens": 19, "completion_tokens": 13, "total_tokens": 32, "cached_tokens": 12}),
            usage(7, 13, 12, 0),
        ),
        // xAI: reasoning is not part of the completion, only of the total.
        (
            json!({"prompt_tokens": 12, "completion_tokens": 1, "total_tokens": 399,
                "completion_tokens_details": {"reasoning_tokens": 386}}),
            usage(12, 387, 0, 0),
        ),
        // Servers that send decimals.
        (
            json!({"prompt_tokens": 50.0, "completion_tokens": 6.5, "prompt_tokens_details": {"cached_tokens": 30}}),
            usage(20, 7, 30, 0),
        ),
    ];
    for (answer, expected) in cases {
        assert_eq!(ReportedUsage::of_chat(&answer).reported(), expected, "{answer}");
    }
}

#[test]
fn gemini_counts_thoughts_and_results_of_tools_apart() {
    let answer = json!({"promptTokenCount": 8, "toolUsePromptTokenCount": 5, "candidatesTokenCount": 3,
        "thoughtsTokenCount": 2, "cachedContentTokenCount": 4, "totalTokenCount": 18});
    assert_eq!(ReportedUsage::of_gemini(&answer).reported(), usage(9, 5, 4, 0));
}

#[test]
fn missing_or_odd_figures_count_as_zero() {
    let odd =
        [json!(null), json!([]), json!({}), json!({"input_tokens": -4, "prompt_tokens": "x", "total_tokens": -1.5})];
    let readers =
        [ReportedUsage::of_messages, ReportedUsage::of_responses, ReportedUsage::of_chat, ReportedUsage::of_gemini];
    for reader in readers {
        assert!(odd.iter().all(|usage| reader(usage).reported().is_none()));
    }
    let huge = json!({"prompt_tokens": u64::MAX, "completion_tokens": 1e300, "total_tokens": 5});
    assert_eq!(ReportedUsage::of_chat(&huge).reported(), usage(u64::MAX, u64::MAX, 0, 0));
}

#[test]
fn cost_includes_long_caches_and_searches() {
    let price = TokenPrice {
        input: Money(4_000_000),
        output: Money(20_000_000),
        cache_read: Money(400_000),
        cache_write: Money(5_000_000),
    };
    let usage = ReportedUsage {
        input: 1_000_000,
        cache_write: 1_000_000,
        long_cache_write: 1_000_000,
        searches: 3,
        ..ReportedUsage::default()
    };
    assert_eq!(usage.cost(&price), Money(8_000_000 + 30_000));
}
