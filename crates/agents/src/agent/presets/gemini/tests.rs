//! Recordings of Gemini CLI 0.61.0.

use super::*;
use crate::agent::transcript::{StatusTest, ended, played, recorded, spoilt};
use crate::domain::model::ids::Timestamp;
use crate::domain::providers::limit::{LimitKind, classify};

fn read(case: &str, how: ProcessEnd) -> (ParsedOutput, Vec<AgentEvent>) {
    recorded((PRESET.reader)(), "gemini", case, how)
}

#[test]
fn complete_run_is_parsed() {
    let (reading, events) = read("success", ProcessEnd::Exited(0));
    assert_eq!((&reading.status, reading.final_message.as_str()), (&AgentStatus::Finished, "All done."));
    assert_eq!((reading.tokens_in, reading.tokens_out, reading.cache_read), (240, 120, 40), "thoughts are written too");
    assert_eq!((reading.tool_calls, reading.tool_errors, reading.stop_reason.as_str()), (1, 0, "success"));
    assert_eq!(reading.session.as_deref(), Some("00000000-0000-4000-8000-000000000001"));
    assert_eq!(reading.model.as_deref(), Some("gemini-2.5-flash"));
    let input = "echo made by the agent > made.txt; echo second".to_owned();
    assert!(events.contains(&AgentEvent::ToolCalled { name: "run_shell_command".into(), input }), "{events:?}");
    let (_, events) = read("file-change", ProcessEnd::Exited(0));
    assert!(events.contains(&AgentEvent::FileChanged { path: "made.txt".into() }), "{events:?}");
    let (reading, _) = read("missing-tool", ProcessEnd::Exited(0));
    assert_eq!((reading.status, reading.tool_errors), (AgentStatus::Finished, 1));
}

#[test]
fn status_follows_from_exit_code_result_and_standard_error() {
    let limited: StatusTest = |status| matches!(status, AgentStatus::Limited { .. });
    let unavailable: StatusTest = |status| matches!(status, AgentStatus::Unavailable { .. });
    for (case, exit, is, status, code) in [
        ("429", 173, limited, Some(429), Some("RetryableQuotaError")),
        ("429-quota", 173, limited, Some(429), Some("TerminalQuotaError")),
        ("500", 244, limited, Some(500), Some("INTERNAL")),
        ("401", 145, unavailable, Some(401), Some("UNAUTHENTICATED")),
        ("404", 1, |status| matches!(status, AgentStatus::Failed { .. }), None, Some("ModelNotFoundError")),
        ("garbage", 1, |status| matches!(status, AgentStatus::Failed { .. }), None, Some("Error")),
        ("no-login", 41, unavailable, None, None),
    ] {
        let (reading, _) = read(case, ProcessEnd::Exited(exit));
        assert!(is(&reading.status), "{case}: {reading:?}");
        assert_eq!((reading.signals.status, reading.signals.code.as_deref()), (status, code), "{case}");
        assert!(!reading.signals.messages.is_empty(), "{case}");
        assert!(!reading.signals.messages.iter().any(|m| m.starts_with("at ")), "{case}: no steps of a stack");
    }
}

#[test]
fn error_over_several_lines_is_read_without_a_result() {
    let refused = "[API Error: [{\n  \"error\": {\n    \"code\": 429,\n    \"message\": \"Resource has been exhausted (e.g. check \
                   quota).\",\n    \"status\": \"RESOURCE_EXHAUSTED\"\n  }\n}\n]]\n";
    let daily = "{\n  \"session_id\": \"x\",\n  \"error\": {\n    \"type\": \"Error\",\n    \"message\": \"You have \
                 exhausted your daily quota on this model.\",\n    \"code\": 429\n  }\n}\n";
    for (stderr, kind, reason) in [
        (refused, LimitKind::Rate, "Resource has been exhausted (e.g. check quota)."),
        (daily, LimitKind::Quota, "You have exhausted your daily quota on this model."),
        ("[API Error: Overloaded]\n", LimitKind::Overload, "[API Error: Overloaded]"),
    ] {
        for code in [1, 173] {
            let reading = played((PRESET.reader)(), "", stderr, ProcessEnd::Exited(code)).0;
            assert_eq!(reading.status, AgentStatus::Limited { until_ms: None, reason: reason.into() }, "{code}");
            assert_eq!(classify(&reading.signals, Timestamp(1_000)).map(|limit| limit.kind), Some(kind), "{stderr}");
        }
    }
}

#[test]
fn requested_delay_is_the_end_of_the_limit() {
    let result = r#"{"type":"result","status":"error","error":{"type":"unknown","message":"[API Error: No quota]"}}"#;
    let error = "Error when talking to Gemini API Full report available at: /t/x.json TerminalQuotaError: No quota\n";
    for (delay, until) in [("3600000", Some(Timestamp(3_601_000))), ("undefined", None)] {
        let stderr = format!("{error}  retryDelayMs: {delay},\n  reason: undefined,\n");
        let mut reader = (PRESET.reader)();
        let mut take = |stream, line: &str| reader.line(stream, line, &mut |_| ());
        stderr.lines().for_each(|line| take(Stream::Stderr, line));
        take(Stream::Stdout, result);
        let reading = reader.finish(&ended(ProcessEnd::Exited(173), result, &stderr));
        let limit = classify(&reading.signals, Timestamp(1_000)).expect("a limit");
        assert_eq!((limit.kind, limit.until), (LimitKind::Quota, until), "{delay}: {limit:?}");
    }
}

#[test]
fn run_stopped_while_waiting_is_limited() {
    let (reading, events) = read("429-delay-killed", ProcessEnd::Stopped("it waits".into()));
    assert!(matches!(reading.status, AgentStatus::Limited { .. }), "{reading:?}");
    assert!(reading.signals.messages.iter().any(|m| m.contains("retry after 34.07s")), "{:?}", reading.signals);
    assert!(events.iter().any(|event| matches!(event, AgentEvent::Retried { .. })), "{events:?}");
}

#[test]
fn streamed_text_is_joined_and_turn_limit_is_a_success() {
    let piece = |text: &str| format!(r#"{{"type":"message","role":"assistant","content":"{text}","delta":true}}"#);
    let lines = [piece("One "), piece("two."), r#"{"type":"tool_use","tool_name":"x"}"#.into(), piece("End.")];
    let (reading, events) = played((PRESET.reader)(), &lines.join("\n"), "", ProcessEnd::Exited(0));
    assert_eq!((reading.status, reading.final_message.as_str()), (AgentStatus::Finished, "End."));
    assert_eq!(events[0], AgentEvent::Text { text: "One two.".into() });
    let result =
        r#"{"type":"result","status":"error","error":{"type":"FatalTurnLimitedError","message":"McpTransport max"}}"#;
    let (reading, _) = played((PRESET.reader)(), result, "", ProcessEnd::Exited(53));
    assert_eq!(reading.status, AgentStatus::Finished);
    assert_eq!([143, 144, 173, 255, 256, -1].map(status_of), [None, Some(400), Some(429), Some(511), None, None]);
}

#[test]
fn corrupted_output_never_becomes_a_success_without_text() {
    let (reading, _) =
        played((PRESET.reader)(), "{\"type\":\"result\",\"status\":\"success\"}", "", ProcessEnd::Exited(0));
    assert!(matches!(reading.status, AgentStatus::Failed { .. }), "no word, no answer: {reading:?}");
    spoilt(PRESET.reader, "gemini", "success", &mut |what, reading| {
        assert!(reading.status != AgentStatus::Finished || !reading.final_message.is_empty(), "{what}");
    });
}
