//! Recordings of opencode 1.18.33.

use super::*;
use crate::agent::transcript::{played, recorded, spoilt};
use crate::domain::model::ids::Timestamp;
use crate::domain::providers::limit::{LimitKind, classify};

fn read(case: &str, how: ProcessEnd) -> (ParsedOutput, Vec<AgentEvent>) {
    recorded((PRESET.reader)(), "opencode", case, how)
}

#[test]
fn complete_run_is_parsed() {
    let (reading, events) = read("success", ProcessEnd::Exited(0));
    assert_eq!((&reading.status, reading.final_message.as_str()), (&AgentStatus::Finished, "All done."));
    assert_eq!((reading.tokens_in, reading.tokens_out, reading.cache_read), (240, 100, 40));
    assert_eq!((reading.tool_calls, reading.tool_errors, reading.stop_reason.as_str()), (1, 0, "stop"));
    assert_eq!((reading.session.as_deref(), reading.cost), (Some("ses_0001"), None), "0 is no price");
    let input = "echo made by the agent > made.txt; echo second".to_owned();
    assert!(events.contains(&AgentEvent::ToolCalled { name: "bash".into(), input }), "{events:?}");
    let (_, events) = read("file-change", ProcessEnd::Exited(0));
    assert!(events.contains(&AgentEvent::FileChanged { path: "made.txt".into() }), "{events:?}");
    for case in ["failed-command", "failed-tool"] {
        let (reading, _) = read(case, ProcessEnd::Exited(0));
        assert_eq!((reading.status, reading.tool_errors), (AgentStatus::Finished, 1), "{case}");
    }
}

#[test]
fn refusal_is_parsed_with_its_headers() {
    let (reading, _) = read("429", ProcessEnd::Exited(1));
    assert!(matches!(reading.status, AgentStatus::Limited { .. }), "{reading:?}");
    let signals = &reading.signals;
    assert_eq!((signals.status, signals.code.as_deref()), (Some(429), Some("rate_limit_error")));
    assert!(signals.headers.contains(&("retry-after".into(), "1".into())), "{signals:?}");
    let (reading, _) = read("401", ProcessEnd::Exited(1));
    assert!(matches!(reading.status, AgentStatus::Unavailable { .. }), "{reading:?}");
    assert_eq!(reading.signals.code.as_deref(), Some("invalid_api_key"));
    let (reading, _) = read("500", ProcessEnd::Exited(1));
    assert!(matches!(reading.status, AgentStatus::Limited { .. }), "{reading:?}");
}

#[test]
fn log_lines_show_retries() {
    let (reading, events) = read("429-waiting-killed", ProcessEnd::Stopped("it waits".into()));
    assert!(matches!(reading.status, AgentStatus::Limited { .. }), "{reading:?}");
    let again = AgentEvent::Retried { reason: "Request is refused by the test".into() };
    assert_eq!(events.iter().filter(|event| **event == again).count(), 1, "the title's own requests do not count");
    // The name of the error shows that it is the provider's.
    let log = r#"timestamp=2026-11-23T06:33:07.127Z level=ERROR message="stream error" small=false agent=build error.error="AI_APICallError: Rate limit reached for m. Please try again in 20m.""#;
    let (reading, _) = played((PRESET.reader)(), "", log, ProcessEnd::Stopped("it waits".into()));
    let limit = classify(&reading.signals, Timestamp(0)).expect("a limit");
    assert_eq!((limit.kind, limit.until), (LimitKind::Rate, Some(Timestamp(1_200_000))), "{limit:?}");
}

#[test]
fn costs_are_summed_and_denied_tools_are_listed() {
    let step = r#"{"type":"step_finish","part":{"reason":"stop","cost":0.25,"tokens":{"input":10,"output":5,"reasoning":2,"cache":{"read":3,"write":4}}}}"#;
    let tool = r#"{"type":"tool_use","part":{"tool":"bash","state":{"status":"error","error":"The user rejected permission to use this specific tool call."}}}"#;
    let text = r#"{"type":"text","part":{"text":"Done."}}"#;
    let (reading, _) = played((PRESET.reader)(), &[tool, step, text, step].join("\n"), "", ProcessEnd::Exited(0));
    assert_eq!((reading.status, reading.cost), (AgentStatus::Finished, Some(Money::from_usd(0.5))));
    assert_eq!((reading.tokens_in, reading.tokens_out, reading.cache_write), (34, 14, 8));
    assert_eq!(reading.denied, ["bash"]);
}

#[test]
fn repeated_empty_answers_stop_the_run() {
    let empty = r#"{"type":"step_start","part":{}}
{"type":"step_finish","part":{"reason":"unknown","tokens":{}}}"#;
    let mut reader = (PRESET.reader)();
    for expected in [false, false, true] {
        empty.lines().for_each(|line| reader.line(Stream::Stdout, line, &mut |_| ()));
        assert_eq!(reader.reason_to_stop().is_some(), expected);
    }
    assert!(reader.is_waiting() && !reader.is_complete());
    let (reading, _) = played((PRESET.reader)(), empty, "", ProcessEnd::Stopped("no content".into()));
    assert_eq!(reading.status, AgentStatus::Limited { until_ms: None, reason: "an answer without content".into() });
    reader.line(Stream::Stdout, r#"{"type":"text","part":{"text":"There."}}"#, &mut |_| ());
    reader.line(Stream::Stdout, r#"{"type":"step_finish","part":{"reason":"stop"}}"#, &mut |_| ());
    assert!(reader.reason_to_stop().is_none() && !reader.is_waiting() && reader.is_complete());
}

#[test]
fn corrupted_output_never_becomes_a_success_without_text() {
    spoilt(PRESET.reader, "opencode", "success", &mut |what, reading| {
        assert!(reading.status != AgentStatus::Finished || !reading.final_message.is_empty(), "{what}");
    });
}
