//! Errors as they are worded.

use serde_json::json;

use super::*;

#[test]
fn the_words_of_an_error_are_taken_apart() {
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
        let mut signals = Signals::default();
        learn(&mut signals, message);
        assert_eq!((signals.status, signals.code.as_deref()), (status, code), "{message}");
        assert_eq!(signals.messages, [message]);
    }
    let mut signals = Signals::default();
    learn_body(&mut signals, &json!({"error": {"resets_at": 1_900_000_000, "details": [{"retryDelay": "34.07s"}, 3]}}));
    assert_eq!(signals.resets_at, Some(Timestamp(1_900_000_000_000)));
    assert_eq!(signals.messages, ["retryDelay: 34.07s"]);
}

#[test]
fn only_a_short_refusal_is_no_answer() {
    for refusal in [
        "Invalid API key · Please run /login",
        "Please sign in to continue",
        "You are not logged in.",
        "Invalid auth method selected.",
        "x is no longer maintained",
        "error: unknown option '--json'",
    ] {
        assert!(no_answer(refusal).is_some(), "{refusal}");
    }
    for answer in ["", "All done.", "I added the login page.", &"x no longer maintained\n".repeat(200)] {
        assert_eq!(no_answer(answer), None, "{answer}");
    }
}
