//! Bodies that are read, and those that parsers read differently.

use serde_json::json;

use super::*;
use crate::agent::broker::formats::FormatName;

fn read(text: &str) -> Result<RequestBody, Failure> {
    RequestBody::read(FormatName::Messages.row(), text.as_bytes())
}

#[test]
fn only_unambiguous_documents_are_read() {
    let text = r#"{"messages":[1, -2,3.5,null,true,"\u0061"],"metadata":{"x":18446744073709551615},"tools":null}"#;
    let body = read(text).expect("a document");
    let sent = r#"{"metadata":{"x":18446744073709551615},"tools":null,"messages":[1,-2,3.5,null,true,"a"]}"#;
    assert_eq!(String::from_utf8(body.to_bytes()).expect("text"), sent);
    assert_eq!(body.len(), sent.len());
    assert_eq!(body.fields().collect::<Vec<_>>(), ["metadata", "messages"]);
    for wrong in [
        r#"{"a":1,"a":2}"#,
        r#"{"messages":1,"messages":2}"#,
        r#"{"a":1,"\u0061":2}"#,
        r#"{"messages":[{"b":1,"c":{},"b":1}]}"#,
        r#"{"messages":[{"a":1,"\u0061":1}]}"#,
        "{} {}",
        "[]",
        "\u{feff}{}",
        "{\"messages\":1e999}",
        "{'a':1}",
        "{\"a\":1,}",
        "// x\n{}",
        "{\"messages\":\"\\ud800\"}",
        "",
    ] {
        assert!(read(wrong).is_err(), "{wrong}");
    }
    let wide: Vec<u8> = r#"{"a":1}"#.encode_utf16().flat_map(u16::to_le_bytes).collect();
    for wrong in [wide, b"{\"messages\":\"\xff\"}".to_vec(), format!("{{\"messages\":{}", "[".repeat(100_000)).into()] {
        assert!(RequestBody::read(FormatName::Messages.row(), &wrong).is_err());
    }
}

/// See docs/research/threats.md#s17.
#[test]
fn settings_and_names_are_bounded() {
    let field = |size: usize| read(&json!({ "metadata": "x".repeat(size) }).to_string());
    assert!(field(200_000).is_ok());
    assert!(field(300_000).expect_err("too large").to_string().contains("`metadata` is too large"));
    let names = |count: usize| {
        let fields: Map<String, Value> = (0..count).map(|n| (format!("f{n}"), Value::Null)).collect();
        read(&json!({ "messages": [{ "content": fields }] }).to_string())
    };
    assert!(names(10_000).is_ok());
    assert!(names(10_001).expect_err("too many").to_string().contains("10000 fields"));
    let tools = |count: usize| {
        let tools: Vec<Value> = (0..count).map(|n| json!({ "type": format!("kind_{n}") })).collect();
        read(&json!({ "tools": tools }).to_string())
    };
    assert!(tools(100).is_ok_and(|body| body.features.len() == 100));
    assert!(tools(101).expect_err("too many").to_string().contains("100 different features"));
}

#[test]
fn later_type_decides_about_earlier_fields() {
    let features = |part: Value| read(&json!({ "messages": [part] }).to_string()).expect("a document").features;
    let named = |value: &str| json!({ "url": value });
    for (kind, expected) in [("tool_use", 0), ("tool_result", 1)] {
        let text = format!("{{\"messages\":[{{\"input\":{},\"type\":\"{kind}\"}}]}}", named("https://x"));
        assert_eq!(read(&text).expect("a document").features.len(), expected, "{kind}");
    }
    let long = format!("{}_use", "x".repeat(60));
    assert_eq!(features(json!({ "type": format!("{long}r"), "input": named("https://x") })), ["url_sources"]);
    assert_eq!(features(json!({ "data": "https://x", "type": "text" })).len(), 0);
    assert_eq!(features(json!({ "data": { "data": "https://x" }, "type": "text" })), ["url_sources"]);
    assert_eq!(features(json!({ "source": "https://x", "type": "search_result" })).len(), 0);
    assert_eq!(features(json!({ "source": "https://x", "type": "text" })), ["url_sources"]);
}

#[test]
fn prompt_caching_for_an_hour_is_detected() {
    let keeps = |control: Value| {
        let body = json!({ "system": [{ "type": "text", "text": "x", "cache_control": control }] });
        read(&body.to_string()).expect("a document").keeps_long
    };
    assert!(keeps(json!({ "type": "ephemeral", "ttl": "1h" })));
    assert!(!keeps(json!({ "type": "ephemeral", "ttl": "5m" })) && !keeps(json!({ "type": "ephemeral" })));
    let data = r#"{"messages":[{"input":{"ttl":"1h"},"type":"tool_use"}]}"#;
    assert!(read(data).expect("a document").keeps_long, "a provider may read it");
}
