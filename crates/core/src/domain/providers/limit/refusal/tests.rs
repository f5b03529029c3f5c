//! Real error messages.

use serde_json::json;

use super::*;

#[test]
fn error_message_yields_status_and_code() {
    for (message, status, code) in [
        ("unexpected status 503 Service Unavailable: x", Some(503), None),
        ("exceeded retry limit, last status: 429 Too Many Requests", Some(429), None),
        ("429 You exceeded your quota", Some(429), None),
        ("API Error: 500", Some(500), None),
        ("line 404 of status.rs", None, None),
        ("status 200", None, None),
        (r#"[API Error: {"error":{"code":500,"message":"m","status":"INTERNAL"}}]"#, Some(500), Some("INTERNAL")),
        (r#"{"error":{"type":"insufficient_quota","code":"insufficient_quota"}}"#, None, Some("insufficient_quota")),
        (r#"x {"error": broken} y"#, None, None),
        ("} {", None, None),
    ] {
        let mut signals = LimitSignals::default();
        signals.learn(message);
        assert_eq!((signals.status, signals.code.as_deref()), (status, code), "{message}");
        assert_eq!(signals.messages, [message]);
    }
    let mut signals = LimitSignals::default();
    signals.learn_body(&json!({"error": {"resets_at": 1_900_000_000, "details": [{"retryDelay": "34.07s"}, 3]}}));
    assert_eq!(signals.resets_at, Some(Timestamp(1_900_000_000_000)));
    assert_eq!(signals.messages, ["retryDelay: 34.07s"]);
}

#[test]
fn final_error_is_classified_by_its_origin() {
    let with = |status: Option<u16>, code: &str| LimitSignals {
        status,
        code: Some(code.to_owned()).filter(|code| !code.is_empty()),
        ..LimitSignals::default()
    };
    for (mut signals, message, kind) in [
        (with(None, ""), "Claude AI usage limit reached|1790000000", Some(LimitKind::Quota)),
        (with(Some(429), ""), "Slow down", Some(LimitKind::Rate)),
        (with(Some(503), ""), "x", Some(LimitKind::Overload)),
        (with(Some(408), ""), "x", Some(LimitKind::Overload)),
        (with(None, "overloaded_error"), "x", Some(LimitKind::Overload)),
        (with(None, ""), "Connection dropped (ECONNRESET)", Some(LimitKind::Overload)),
        (with(None, ""), "the API did not answer: fetch failed", Some(LimitKind::Overload)),
        // A retry is useless after such a status, independently of the text.
        (with(Some(401), ""), "x", Some(LimitKind::Auth)),
        (with(Some(402), ""), "x", Some(LimitKind::Billing)),
        (with(Some(404), ""), "x", Some(LimitKind::ModelMissing)),
        (with(None, ""), "Invalid API key · Please run /login", Some(LimitKind::Auth)),
        (with(Some(400), ""), "please authenticate", Some(LimitKind::Auth)),
        (with(Some(400), ""), "prompt is too long: 9 tokens", Some(LimitKind::ContextTooLong)),
        (with(Some(400), ""), "the connection field is wrong", None),
        (with(None, ""), "it broke", None),
    ] {
        assert_eq!(signals.refusal_of_provider(message), kind, "{message}");
    }
    let ends = LimitSignals { resets_at: Some(Timestamp(1)), ..LimitSignals::default() };
    assert_eq!(ends.refusal("x"), Some(LimitKind::Quota), "an end is told of what ends");
}

/// The corpus as errors of programs, which may come from another source than the provider.
#[test]
fn errors_of_any_program_are_recognized_at_their_beginning() {
    let corpus = |name: &str| -> Vec<Value> {
        let file = format!("{}/../../tests/fixtures/limits/{name}.jsonl", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(file).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let heard = |line: &Value| {
        let message = line["text"].as_str().unwrap();
        let mut signals = LimitSignals { code: line["code"].as_str().map(str::to_owned), ..LimitSignals::default() };
        signals.status = line["status"].as_u64().and_then(http_error);
        signals.add_message(message);
        signals.refusal(message)
    };
    let taken: Vec<_> = corpus("harmless").into_iter().filter(|line| heard(line).is_some()).collect();
    assert!(taken.is_empty(), "taken for refusals: {taken:#?}");
    // Those that stand in headers or exit codes alone are none of words.
    let real: Vec<_> = corpus("real").into_iter().filter(|line| line["text"] != "").collect();
    let missed: Vec<_> = real.iter().filter(|line| heard(line).is_none()).collect();
    assert!(real.len() >= 120 && missed.len() * 50 <= real.len(), "missed of {}: {missed:#?}", real.len());
    for message in
        ["ECONNREFUSED 127.0.0.1:5432", "the tests of the rate limit timed out", "the connection field is wrong"]
    {
        assert_eq!(LimitSignals::default().refusal(message), None, "{message}");
        assert!(LimitSignals::default().refusal_of_provider(message).is_some(), "{message}");
    }
}
