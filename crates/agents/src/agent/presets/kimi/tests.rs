//! Recordings of Kimi Code 2.1.0.

use super::*;
use crate::agent::transcript::{StatusTest, played, recorded, spoilt};
use crate::domain::model::ids::Timestamp;
use crate::domain::providers::limit::{LimitKind, classify};

fn read(case: &str, code: i32) -> (ParsedOutput, Vec<AgentEvent>) {
    recorded((PRESET.reader)(), "kimi", case, ProcessEnd::Exited(code))
}

#[test]
fn complete_run_is_parsed() {
    let (reading, events) = read("success", 0);
    assert_eq!((&reading.status, reading.final_message.as_str()), (&AgentStatus::Finished, "All done."));
    assert_eq!((reading.tool_calls, reading.tool_errors), (1, 0));
    assert_eq!(reading.session.as_deref(), Some("session_00000000-0000-4000-8000-000000000001"));
    let input = "echo made by the agent > made.txt; echo second".to_owned();
    assert!(events.contains(&AgentEvent::ToolCalled { name: "Bash".into(), input }), "{events:?}");
    assert_eq!(read("failed-command", 0).0.tool_errors, 1);
}

#[test]
fn status_follows_from_standard_error() {
    let limited: StatusTest = |status| matches!(status, AgentStatus::Limited { .. });
    let unavailable: StatusTest = |status| matches!(status, AgentStatus::Unavailable { .. });
    for (case, is, status, code) in [
        ("429", limited, Some(429), "provider.rate_limit"),
        ("429-quota", unavailable, Some(429), "provider.api_error"),
        ("401", unavailable, Some(401), "provider.auth_error"),
        ("500", limited, Some(500), "provider.api_error"),
        ("garbage", |status| matches!(status, AgentStatus::Failed { .. }), None, "provider.api_error"),
    ] {
        let (reading, _) = read(case, 1);
        assert!(is(&reading.status), "{case}: {reading:?}");
        assert_eq!((reading.signals.status, reading.signals.code.as_deref()), (status, Some(code)), "{case}");
    }
}

#[test]
fn long_wait_requested_by_provider_stops_the_run() {
    let end = ProcessEnd::Stopped("it waits".into());
    let (reading, events) = recorded((PRESET.reader)(), "kimi", "429-long-killed", end);
    assert!(matches!(reading.status, AgentStatus::Limited { .. }), "{reading:?}");
    let limit = classify(&reading.signals, Timestamp(0)).expect("a limit");
    assert_eq!((limit.kind, limit.until), (LimitKind::Rate, Some(Timestamp(86_400_000))), "{limit:?}");
    assert!(matches!(events.last(), Some(AgentEvent::Retried { .. })), "{events:?}");
    for (delay, ends) in [("1000", false), ("29999.5", false), ("86400000", true)] {
        let mut reader = (PRESET.reader)();
        let line = format!("{{\"role\":\"meta\",\"type\":\"turn.step.retrying\",\"delay_ms\":{delay}}}");
        reader.line(Stream::Stdout, &line, &mut |_| {});
        assert_eq!(reader.reason_to_stop().is_some(), ends, "{delay}");
    }
}

#[test]
fn usage_is_read_from_session_files() {
    let lines = [
        r#"{"type":"usage.record","agentId":"main","model":"m","usage":{"inputOther":120,"output":50,"inputCacheRead":3,"inputCacheCreation":7},"usageScope":"turn","time":1}"#,
        r#"{"type":"token_counting.measured","agentId":"main","length":4,"tokens":180,"time":1}"#,
        r#"{"type":"usage.record","agentId":"explore-1","model":"m","usage":{"inputOther":1000,"output":5},"time":2}"#,
        r#"{"type":"token_counting.measured","agentId":"explore-1","length":4,"tokens":1005,"time":2}"#,
        r#"{"type":"turn.prompt","input":[{"type":"text","text":""usage.record" is {"output": 9}"}]}"#,
        r#"{"type":"usage.record","usage":{"output":"#,
    ];
    let mut sum = SessionUsage::default();
    lines.iter().for_each(|line| session_usage(line, &mut sum));
    let models: Vec<_> = lines.iter().filter_map(|line| model(line)).collect();
    assert_eq!(models, ["m", "m"]);
    let tokens = RunTokens { read: 1130, written: 55, cache_read: 3, cache_write: 7 };
    assert_eq!(sum, SessionUsage { tokens, context_fill: Some(ContextFill { tokens: 180, window: None }) });
}

#[test]
fn discontinued_program_is_unavailable() {
    let notice = "kimi-cli is no longer maintained. Please use the new Kimi Code CLI. Install: x\n";
    let (reading, _) = played((PRESET.reader)(), notice, "", ProcessEnd::Exited(0));
    let reason = format!("it did not run: {}", notice.trim());
    assert_eq!(reading.status, AgentStatus::Unavailable { reason });
    spoilt(PRESET.reader, "kimi", "success", &mut |what, reading| {
        assert!(reading.status != AgentStatus::Finished || !reading.final_message.is_empty(), "{what}");
    });
}
