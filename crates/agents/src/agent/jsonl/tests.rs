//! Lines in several formats, and the recordings of all agents.

use super::*;
use crate::agent::transcript::{played, recorded, spoilt_text};
use crate::domain::providers::limit::kind;

/// A successful run.
const LINES: [&str; 4] = [
    r#"{"type":"start","session_id":"s1"}"#,
    r#"{"type":"tool_call","tool":"bash","args":{"command":"make"}}"#,
    r#"{"role":"assistant","content":[{"type":"text","text":"All done."}]}"#,
    r#"{"type":"end","usage":{"prompt_tokens":7,"completion_tokens":3},"cost_usd":0.5,"stop_reason":"stop"}"#,
];

fn read(stdout: &str, code: i32) -> (ParsedOutput, Vec<AgentEvent>) {
    played(reader(), stdout, "", ProcessEnd::Exited(code))
}

#[test]
fn common_field_names_are_recognized() {
    let (reading, events) = read(&LINES.join("\n"), 0);
    assert_eq!((&reading.status, reading.final_message.as_str()), (&AgentStatus::Finished, "All done."));
    assert_eq!((reading.tokens_in, reading.tokens_out, reading.cost), (7, 3, Some(Money::from_usd(0.5))));
    assert_eq!((reading.session.as_deref(), reading.stop_reason.as_str()), (Some("s1"), "stop"));
    assert_eq!(events[1], AgentEvent::ToolCalled { name: "bash".into(), input: "make".into() });
}

#[test]
fn error_without_later_text_fails_the_run() {
    let error = r#"{"type":"error","error":{"message":"Too many requests","type":"rate_limit","code":429}}"#;
    let (reading, _) = read(error, 1);
    assert!(matches!(reading.status, AgentStatus::Limited { .. }), "{reading:?}");
    assert_eq!((reading.signals.status, reading.signals.code.as_deref()), (Some(429), Some("rate_limit")));
    let (reading, _) = read(&format!("{error}\n{{\"text\":\"Went on.\"}}"), 0);
    assert_eq!(reading.status, AgentStatus::Finished);
    assert!(matches!(read("", 0).0.status, AgentStatus::Failed { .. }));
    assert!(matches!(read("{\"x\":1}", 0).0.status, AgentStatus::Failed { .. }));
    assert!(matches!(
        read("Please sign in to go on", 0).0.status,
        AgentStatus::Failed { .. } | AgentStatus::Unavailable { .. }
    ));
}

#[test]
fn error_of_a_tool_is_not_a_limit() {
    for error in [
        r#"{"type":"error","message":"ECONNREFUSED 127.0.0.1:5432"}"#,
        r#"{"type":"tool_error","message":"429 tests passed, 1 failed"}"#,
        r#"{"error":"the test of the rate limit timed out: expected status 429"}"#,
    ] {
        for code in [0, 1] {
            let (reading, _) = read(error, code);
            assert!(matches!(reading.status, AgentStatus::Failed { .. }), "{error}: {reading:?}");
            assert_eq!(kind(&reading.signals), None, "{error}");
        }
    }
}

#[test]
fn corrupted_output_never_becomes_a_success_without_text() {
    let mut cut = 0;
    spoilt_text(reader, &LINES.join("\n"), &mut |what, reading| {
        assert!(reading.status != AgentStatus::Finished || !reading.final_message.is_empty(), "{what}");
        cut += u32::from(reading.errors.iter().any(|note| note.contains("invalid JSON")));
    });
    assert!(cut > 5, "what is cut is noted");
}

#[test]
fn recordings_of_other_formats_are_read_without_panic() {
    for (cli, case) in [("codex", "success"), ("gemini", "success"), ("opencode", "success"), ("acp", "kimi")] {
        let (reading, _) = recorded(reader(), cli, case, ProcessEnd::Exited(0));
        assert!(reading.tokens_in < 1_000, "{cli}: {reading:?}");
    }
    for odd in [
        "{\"usage\":{\"input_tokens\":-1}}",
        "{\"cost\":\"x\"}",
        "{\"error\":{}}",
        "{\"tool\":{}}",
        "{\"text\":[[[[[\"x\"]]]]]}",
    ] {
        assert_ne!(read(odd, 0).0.status, AgentStatus::Finished, "{odd}");
    }
}
