//! Recordings of aider 0.86.2, and texts derived from them.

use super::*;
use crate::agent::transcript::{StatusTest, played, recorded};
use crate::domain::model::ids::Timestamp;
use crate::domain::providers::limit::{LimitKind, classify};

fn read(stdout: &str, code: i32) -> (ParsedOutput, Vec<AgentEvent>) {
    played((PRESET.reader)(), stdout, "", ProcessEnd::Exited(code))
}

fn seen(case: &str) -> (ParsedOutput, Vec<AgentEvent>) {
    recorded((PRESET.reader)(), "aider", case, ProcessEnd::Exited(0))
}

#[test]
fn answers_usage_and_edits_are_parsed() {
    let (reading, events) = seen("file-change");
    assert_eq!((&reading.status, reading.tool_calls, reading.tool_errors), (&AgentStatus::Finished, 1, 0));
    assert_eq!((reading.tokens_in, reading.tokens_out, reading.cost), (123, 50, None));
    assert_eq!(reading.final_message, "I make the file.\nmade.txt\n```\nmade by the agent\n```");
    assert!(events.contains(&AgentEvent::FileChanged { path: "made.txt".into() }), "{events:?}");
    let (reading, events) = seen("cost");
    assert_eq!((reading.cost, reading.final_message.as_str()), (Some(Money::from_usd(0.0008)), "All done."));
    assert_eq!(
        events.last(),
        Some(&AgentEvent::Used {
            tokens_in: 123,
            tokens_out: 50,
            cache_read: 0,
            cache_write: 0,
            cost: Some(Money::from_usd(0.0008)),
            model: None,
        })
    );
    // The line is wrapped before the cost, and tokens written to the cache are counted twice.
    let (reading, events) = seen("cache");
    assert_eq!((reading.tokens_in, reading.cache_read, reading.cache_write), (15_000, 3_000, 2_000));
    assert_eq!((reading.cost, reading.final_message.as_str()), (Some(Money::from_usd(0.04)), "All done."));
    assert!(matches!(events.last(), Some(AgentEvent::Used { cost: Some(_), .. })), "{events:?}");
    assert_eq!(["850", "1,200", "2.4k", "1.2M", "x", "9e99k"].map(count), [850, 1200, 2400, 1_200_000, 0, u64::MAX]);
}

#[test]
fn edits_that_do_not_apply_are_tool_failures() {
    let (reading, _) = seen("edit-refused");
    assert_eq!((&reading.status, reading.tool_calls, reading.tool_errors), (&AgentStatus::Finished, 4, 4));
    assert_eq!((reading.tokens_in, reading.tokens_out), (4 * 123, 4 * 50), "each answer is paid");
}

#[test]
fn error_with_exit_code_0_fails_the_run() {
    let unavailable: StatusTest = |status| matches!(status, AgentStatus::Unavailable { .. });
    for (case, is, kind) in [
        ("401", unavailable, LimitKind::Auth),
        ("404", unavailable, LimitKind::ModelMissing),
        ("context", |status| matches!(status, AgentStatus::Failed { .. }), LimitKind::ContextTooLong),
    ] {
        let (reading, _) = seen(case);
        assert!(is(&reading.status), "{case}: {reading:?}");
        let limit = classify(&reading.signals, Timestamp(0)).map(|limit| limit.kind);
        assert_eq!(limit, Some(kind), "{case}: {:?}", reading.signals);
    }
    for silent in ["", "Aider v0.86.2\n"] {
        assert!(matches!(read(silent, 0).0.status, AgentStatus::Failed { .. }), "{silent}");
    }
}

#[test]
fn run_is_stopped_when_waits_grow_long() {
    let (reading, events) =
        recorded((PRESET.reader)(), "aider", "429-reset-killed", ProcessEnd::Stopped("it waits".into()));
    assert!(matches!(reading.status, AgentStatus::Limited { .. }), "{reading:?}");
    assert_eq!(reading.signals.code.as_deref(), Some("RateLimitError"));
    let limit = classify(&reading.signals, Timestamp(1_000)).expect("a limit");
    assert_eq!((limit.kind, limit.until), (LimitKind::Rate, Some(Timestamp(73_500))), "{limit:?}");
    assert_eq!(events.iter().filter(|event| matches!(event, AgentEvent::Retried { .. })).count(), 5);
    let refused = "litellm.InternalServerError: InternalServerError: OpenAIException - not now\n";
    let mut reader = (PRESET.reader)();
    for (wait, stops) in [("0.2", false), ("4.0", false), ("8.0", true)] {
        for line in [refused.trim(), &format!("Retrying in {wait} seconds...")] {
            reader.line(Stream::Stdout, line, &mut |_| {});
        }
        assert!(reader.is_waiting());
        assert_eq!(reader.reason_to_stop().is_some_and(|why| why.contains("not now")), stops, "{wait}");
    }
    let helped = format!("{refused}Retrying in 0.2 seconds...\nHere.\nTokens: 10 sent, 5 received.\n");
    assert_eq!(read(&helped, 0).0.status, AgentStatus::Finished);
}

#[test]
fn run_that_waits_for_a_browser_login_is_stopped() {
    let mut reader = (PRESET.reader)();
    let line = "No LLM model was specified and no API keys were provided.";
    reader.line(Stream::Stdout, line, &mut |_| {});
    assert_eq!(reader.reason_to_stop().as_deref(), Some(line));
    let (reading, _) = played((PRESET.reader)(), line, "", ProcessEnd::Stopped(line.into()));
    assert_eq!(reading.status, AgentStatus::Unavailable { reason: line.to_owned() });
}

#[test]
fn text_of_the_model_about_limits_is_not_a_limit() {
    let text = "The client now handles litellm.RateLimitError: rate limit reached.\nTokens: 10 sent, 5 received.\n";
    let (reading, _) = read(text, 0);
    assert_eq!(reading.status, AgentStatus::Finished);
    assert!(reading.signals.messages.is_empty(), "{:?}", reading.signals);
}
