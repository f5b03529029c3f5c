//! Recordings of Qwen Code 0.24.4.

use super::*;
use crate::agent::transcript::{StatusTest, played, recorded, spoilt};
use crate::domain::model::ids::Timestamp;
use crate::domain::providers::limit::{LimitKind, classify};

fn read(case: &str, how: ProcessEnd) -> (ParsedOutput, Vec<AgentEvent>) {
    recorded((PRESET.reader)(), "qwen", case, how)
}

#[test]
fn complete_run_is_parsed() {
    let (output, events) = read("success", ProcessEnd::Exited(0));
    assert_eq!((&output.status, output.final_message.as_str()), (&AgentStatus::Finished, "All done."));
    assert_eq!((output.tokens_in, output.tokens_out, output.cache_read), (246, 100, 6));
    assert_eq!((output.tool_calls, output.tool_errors, output.stop_reason.as_str()), (1, 0, "success"));
    assert_eq!(output.session.as_deref(), Some("00000000-0000-4000-8000-000000000001"));
    assert_eq!(output.model.as_deref(), Some("m"));
    assert_eq!(output.context_fill, Some(ContextFill { tokens: 173, window: None }));
    let input = "env > env.txt; echo made by the agent > made.txt".to_owned();
    assert!(events.contains(&AgentEvent::ToolCalled { name: "run_shell_command".into(), input }), "{events:?}");
    let (_, events) = read("file-change", ProcessEnd::Exited(0));
    assert!(events.contains(&AgentEvent::FileChanged { path: "/t/tree/written.txt".into() }), "{events:?}");
    let (output, _) = read("failed-command", ProcessEnd::Exited(0));
    assert_eq!((output.status, output.tool_errors), (AgentStatus::Finished, 1));
    let (output, _) = read("denied", ProcessEnd::Exited(0));
    assert_eq!(output.denied, ["run_shell_command"]);
}

#[test]
fn status_of_failed_runs_follows_from_the_result() {
    let failed: StatusTest = |status| matches!(status, AgentStatus::Failed { .. });
    let unavailable: StatusTest = |status| matches!(status, AgentStatus::Unavailable { .. });
    for (case, is_expected, status) in
        [("401", unavailable, Some(401)), ("404", unavailable, Some(404)), ("garbage", failed, None)]
    {
        let (output, _) = read(case, ProcessEnd::Exited(1));
        assert!(is_expected(&output.status), "{case}: {output:?}");
        assert_eq!(output.signals.status, status, "{case}");
        assert!(!output.signals.messages.is_empty(), "{case}");
    }
    let (output, _) = read("out-of-turns", ProcessEnd::Exited(53));
    assert_eq!(output.status, AgentStatus::Finished);
}

#[test]
fn wait_for_capacity_is_a_limit_and_stops_the_run() {
    let mut reader = (PRESET.reader)();
    let notice = "[qwen-code] Waiting for API capacity... attempt 1, retry in 3570s";
    reader.line(Stream::Stderr, notice, &mut |_| ());
    assert!(reader.is_waiting() && reader.reason_to_stop().is_some_and(|reason| reason.contains("3570 s")));
    let (output, events) = played((PRESET.reader)(), "", notice, ProcessEnd::Stopped("it waits".into()));
    assert!(matches!(output.status, AgentStatus::Limited { .. }), "{output:?}");
    assert!(events.iter().any(|event| matches!(event, AgentEvent::Retried { .. })), "{events:?}");
    let limit = classify(&output.signals, Timestamp(1_000)).expect("a limit");
    assert_eq!((limit.kind, limit.until), (LimitKind::Rate, Some(Timestamp(3_571_000))), "{limit:?}");
}

#[test]
fn usage_of_a_resumed_run_covers_the_session() {
    let (output, _) = read("resumed", ProcessEnd::Exited(0));
    assert_eq!((output.tokens_in, output.tokens_out), (369, 150), "the result covers both runs");
    let mut reader = (PRESET.reader)();
    let folder = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("tests/fixtures/agents/qwen");
    let text = std::fs::read_to_string(folder.join("resumed.out")).expect("a recording");
    text.lines().for_each(|line| reader.line(Stream::Stdout, line, &mut |_| ()));
    assert_eq!(reader.observed_tokens(), Some(173));
}

#[test]
fn corrupted_output_never_becomes_a_success_without_text() {
    spoilt(PRESET.reader, "qwen", "success", &mut |what, output| {
        assert!(output.status != AgentStatus::Finished || !output.final_message.is_empty(), "{what}");
    });
}
