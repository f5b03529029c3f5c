//! Recordings of Codex 0.169.0.

use super::*;
use crate::agent::transcript::{played, recorded, spoilt};
use crate::domain::providers::limit::LimitSignals;

fn read(case: &str, code: i32) -> (ParsedOutput, Vec<AgentEvent>) {
    recorded((PRESET.reader)(), "codex", case, ProcessEnd::Exited(code))
}

#[test]
fn complete_run_is_parsed() {
    let (reading, events) = read("success", 0);
    let expected = ParsedOutput {
        status: AgentStatus::Finished,
        final_message: "All done.".into(),
        session: Some("00000000-0000-4000-8000-000000000001".into()),
        context_fill: None,
        tokens_in: 240,
        tokens_out: 100,
        cache_read: 40,
        cache_write: 0,
        cost: None,
        model: None,
        tool_calls: 1,
        tool_errors: 0,
        errors: vec![],
        denied: vec![],
        stop_reason: "completed".into(),
        signals: LimitSignals { succeeded: true, exit_code: Some(0), ..LimitSignals::default() },
    };
    assert_eq!(reading, expected);
    let command = "/bin/bash -lc 'echo made by the agent > made.txt; echo second'";
    assert_eq!(
        events,
        [
            AgentEvent::Session { id: "00000000-0000-4000-8000-000000000001".into() },
            AgentEvent::ToolCalled { name: "command_execution".into(), input: command.into() },
            AgentEvent::Text { text: "All done.".into() },
            AgentEvent::Used {
                tokens_in: 240,
                tokens_out: 100,
                cache_read: 40,
                cache_write: 0,
                cost: None,
                model: None,
            },
        ]
    );
}

#[test]
fn tool_calls_and_file_changes_are_reported() {
    let (reading, events) = read("failed-command", 0);
    assert_eq!((reading.status, reading.tool_calls, reading.tool_errors), (AgentStatus::Finished, 1, 1));
    assert!(events.contains(&AgentEvent::ToolFailed { text: "exit code 3".into() }), "{events:?}");
    let (reading, events) = read("file-change", 0);
    assert_eq!((reading.status, reading.tool_calls, reading.tool_errors), (AgentStatus::Finished, 1, 0));
    assert!(events.contains(&AgentEvent::FileChanged { path: "/w/tree/made.txt".into() }), "{events:?}");
    let call = AgentEvent::ToolCalled { name: "file_change".into(), input: "/w/tree/made.txt".into() };
    assert!(events.contains(&call), "{events:?}");
}

#[test]
fn status_follows_from_the_error_of_the_turn() {
    let limited = |reading: &ParsedOutput| matches!(reading.status, AgentStatus::Limited { until_ms: None, .. });
    let unavailable = |reading: &ParsedOutput| matches!(reading.status, AgentStatus::Unavailable { .. });
    let failed = |reading: &ParsedOutput| matches!(reading.status, AgentStatus::Failed { .. });
    type OutputTest<'a> = &'a dyn Fn(&ParsedOutput) -> bool;
    for (case, is, status, words) in [
        ("429", &limited as OutputTest, Some(429), "exceeded retry limit, last status: 429 Too Many Requests"),
        ("429-reset", &limited, None, "try again at Mar 17th, 2030 5:46 PM"),
        ("429-quota", &unavailable, None, "Quota exceeded"),
        ("500", &limited, None, "high demand"),
        ("503", &limited, Some(503), "503 Service Unavailable"),
        ("401", &unavailable, Some(401), "Incorrect API key"),
        ("404", &unavailable, Some(404), "404 Not Found"),
        // The provider reports an internal error.
        ("400", &limited, None, "refused by the test"),
        ("garbage", &limited, None, "stream disconnected"),
        ("cut-off", &failed, None, "max_output_tokens"),
        ("context", &failed, None, "context window"),
    ] {
        let (reading, _) = read(case, 1);
        assert!(is(&reading), "{case}: {reading:?}");
        assert_eq!((reading.signals.status, reading.signals.succeeded), (status, false), "{case}");
        assert!(reading.signals.messages.iter().any(|m| m.contains(words)), "{case}: {:?}", reading.signals);
    }
    assert_eq!(read("400", 1).0.signals.code.as_deref(), Some("server_error"));
}

#[test]
fn notices_are_not_failures() {
    let (reading, events) = read("warning", 0);
    assert_eq!((reading.status, reading.final_message.as_str()), (AgentStatus::Finished, "All done."));
    assert!(reading.errors.iter().any(|note| note.contains("Falling back")), "{:?}", reading.errors);
    assert!(events.iter().any(|event| matches!(event, AgentEvent::Retried { .. })), "{events:?}");
    assert!(reading.signals.messages.is_empty(), "{:?}", reading.signals);
}

#[test]
fn run_without_result_is_not_a_success() {
    let reader = || (PRESET.reader)();
    let status = |stdout: &str, stderr: &str, how: ProcessEnd| played(reader(), stdout, stderr, how).0.status;
    let failed = |reason: &str| AgentStatus::Failed { reason: reason.into() };
    assert_eq!(status("", "", ProcessEnd::Exited(0)), failed("it ended without any output"));
    assert_eq!(
        status("{\"type\":\"turn.started\"}\n", "", ProcessEnd::Exited(0)),
        failed("it ended without any output")
    );
    assert_eq!(
        status("{\"type\":\"turn.completed\"}", "", ProcessEnd::Exited(0)),
        failed("its turn ended without any output")
    );
    let login = AgentStatus::Unavailable { reason: "it did not run: Not logged in. Run codex login".into() };
    assert_eq!(status("", "Not logged in. Run codex login\n", ProcessEnd::IdleLimit), login);
    let flag = "error: unexpected argument '--json' found";
    let called = AgentStatus::Unavailable { reason: format!("it exited with 2: {flag}") };
    assert_eq!(status("", flag, ProcessEnd::Exited(2)), called);
    let again = r#"{"type":"error","message":"Reconnecting... 1/2 (exceeded retry limit, last status: 429 Too Many Requests)"}"#;
    assert!(matches!(status(again, "", ProcessEnd::Stopped("x".into())), AgentStatus::Limited { .. }));
}

#[test]
fn corrupted_output_never_becomes_a_success_without_text() {
    let stdout = "{\"type\":\"thread.paused\",\"text\":\"a pause\"}\n{\"type\":\"thread.paused\"}\n\
                  {\"type\":\"item.completed\",\"item\":{\"type\":\"agent_message\",\"text\":\"Done.\"}}\n{\"type\":\"turn.comp";
    let (reading, events) = played((PRESET.reader)(), stdout, "", ProcessEnd::Exited(0));
    assert_eq!((reading.status, reading.final_message.as_str()), (AgentStatus::Finished, "Done."));
    assert_eq!(reading.errors.len(), 3, "each sort is noted once: {:?}", reading.errors);
    assert_eq!(events[0], AgentEvent::Text { text: "a pause".into() });
    spoilt(PRESET.reader, "codex", "success", &mut |what, reading| {
        assert!(reading.status != AgentStatus::Finished || !reading.final_message.is_empty(), "{what}");
    });
}
