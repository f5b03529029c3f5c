//! Recorded lines of Claude Code (2.1.197 and 2.1.330, shortened), and the table of how runs end.

use super::*;
use crate::agent::transcript::{ended, spoilt_text};
use crate::domain::providers::limit::LimitSignals;
use crate::process::ProcessEnd;

const INIT: &str = r#"{"type":"system","subtype":"init","cwd":"/t","session_id":"e845fb08","tools":["Bash"],"model":"claude-sonnet-4-5","permissionMode":"bypassPermissions"}"#;
const CALL: &str = r#"{"type":"assistant","message":{"id":"m1","role":"assistant","content":[{"type":"tool_use","id":"t1","name":"Bash","input":{"command":"exit 3"}}],"usage":{"input_tokens":100,"cache_creation_input_tokens":20,"cache_read_input_tokens":3,"output_tokens":1}},"session_id":"e845fb08"}"#;
const FAILED: &str = r#"{"type":"user","message":{"role":"user","content":[{"type":"tool_result","content":"Exit code 3","is_error":true,"tool_use_id":"t1"}]},"session_id":"e845fb08"}"#;
const SAID: &str = r#"{"type":"assistant","message":{"id":"m2","role":"assistant","content":[{"type":"text","text":"All done."}],"usage":{"input_tokens":100,"cache_creation_input_tokens":20,"cache_read_input_tokens":3,"output_tokens":1}},"session_id":"e845fb08"}"#;
const DONE: &str = r#"{"type":"result","subtype":"success","is_error":false,"api_error_status":null,"num_turns":2,"result":"All done.","session_id":"e845fb08","total_cost_usd":0.0022518000000000004,"usage":{"input_tokens":200,"cache_creation_input_tokens":40,"cache_read_input_tokens":6,"output_tokens":100},"modelUsage":{"claude-sonnet-4-5":{"inputTokens":200,"outputTokens":100,"cacheReadInputTokens":6,"cacheCreationInputTokens":40,"costUSD":0.0022518000000000004}},"permission_denials":[{"tool_name":"Write","tool_use_id":"t9","tool_input":{}}],"terminal_reason":"completed"}"#;
const RETRY: &str = r#"{"type":"system","subtype":"api_retry","attempt":1,"max_retries":1,"retry_delay_ms":574.78,"error_status":429,"error":"rate_limit","session_id":"e845fb08"}"#;
const LIMIT: &str = r#"{"type":"rate_limit_event","rate_limit_info":{"status":"rejected","resetsAt":1790000000,"rateLimitType":"five_hour"}}"#;
const WARNED: &str = r#"{"type":"rate_limit_event","rate_limit_info":{"status":"allowed_warning","resetsAt":1790000000,"rateLimitType":"five_hour"}}"#;

fn read(lines: &[&str], how: ProcessEnd, stderr: &str) -> (ParsedOutput, Vec<AgentEvent>) {
    let mut stream = ClaudeStream::default();
    let mut events = Vec::new();
    for line in lines {
        stream.line(line, &mut |event| events.push(event));
    }
    (stream.finish(&ended(how, &lines.join("\n"), stderr)), events)
}

fn result(fields: &str) -> String {
    format!(r#"{{"type":"result","session_id":"s","total_cost_usd":0,"usage":{{}},"permission_denials":[],{fields}}}"#)
}

fn used(tokens_in: u64, tokens_out: u64, (cache_read, cache_write): (u64, u64), cost: Option<i64>) -> AgentEvent {
    let model = Some("claude-sonnet-4-5".to_owned());
    AgentEvent::Used { tokens_in, tokens_out, cache_read, cache_write, cost: cost.map(Money), model }
}

#[test]
fn complete_run_is_parsed() {
    let (reading, events) = read(&[INIT, CALL, FAILED, SAID, DONE], ProcessEnd::Exited(0), "");
    let expected = ParsedOutput {
        status: AgentStatus::Finished,
        final_message: "All done.".into(),
        session: Some("e845fb08".into()),
        context_fill: Some(ContextFill { tokens: 124, window: None }),
        tokens_in: 246,
        tokens_out: 100,
        cache_read: 6,
        cache_write: 40,
        cost: Some(Money(2252)),
        model: Some("claude-sonnet-4-5".into()),
        tool_calls: 1,
        tool_errors: 1,
        errors: vec!["a tool failed: Exit code 3".into()],
        denied: vec!["Write".into()],
        stop_reason: "completed".into(),
        signals: LimitSignals { succeeded: true, exit_code: Some(0), ..LimitSignals::default() },
    };
    assert_eq!(reading, expected);
    assert_eq!(
        events,
        [
            AgentEvent::Session { id: "e845fb08".into() },
            used(123, 1, (3, 20), None),
            AgentEvent::ToolCalled { name: "Bash".into(), input: "exit 3".into() },
            AgentEvent::ToolFailed { text: "Exit code 3".into() },
            used(246, 2, (6, 40), None),
            AgentEvent::Text { text: "All done.".into() },
            used(246, 100, (6, 40), Some(2252)),
        ]
    );
}

#[test]
fn status_follows_from_the_result_line() {
    let failed = |said: &str, status: &str| {
        result(&format!(
            r#""subtype":"success","is_error":true,"api_error_status":{status},"result":"{said}","terminal_reason":"completed""#
        ))
    };
    let limited = |reason: &str| AgentStatus::Limited { until_ms: None, reason: reason.into() };
    let unavailable = |reason: &str| AgentStatus::Unavailable { reason: reason.into() };
    let broken = |reason: &str| AgentStatus::Failed { reason: reason.into() };
    let hit = "You've hit your 5-hour limit · resets 12:35am (UTC)";
    let until = Some(1_790_000_000_000);
    for (lines, expected) in [
        (
            vec![failed("API Error: Request rejected (429) · no", "429")],
            limited("API Error: Request rejected (429) · no"),
        ),
        (vec![failed("API Error: 500", "500")], limited("API Error: 500")),
        (vec![failed("API Error: 529 overloaded", "529")], limited("API Error: 529 overloaded")),
        (
            vec![failed("Failed to authenticate. API Error: 401", "401")],
            unavailable("Failed to authenticate. API Error: 401"),
        ),
        (
            vec![failed("Failed to authenticate. API Error: 403", "403")],
            unavailable("Failed to authenticate. API Error: 403"),
        ),
        (
            vec![failed("There's an issue with the selected model", "404")],
            unavailable("There's an issue with the selected model"),
        ),
        (vec![failed("API Error: 400", "400")], broken("API Error: 400")),
        (vec![failed("Prompt is too long", "413")], broken("Prompt is too long")),
        (
            vec![failed("Request timed out. Check your connection", "null")],
            limited("Request timed out. Check your connection"),
        ),
        (vec![failed("Connection dropped (ECONNRESET)", "null")], limited("Connection dropped (ECONNRESET)")),
        (vec![failed("Not logged in · Please run /login", "null")], unavailable("Not logged in · Please run /login")),
        (vec![failed("Credit balance is too low", "400")], unavailable("Credit balance is too low")),
        (
            vec![LIMIT.into(), failed(hit, "429")],
            AgentStatus::Limited { until_ms: until, reason: format!("{hit} (five hour)") },
        ),
        (vec![WARNED.into(), failed("API Error: 429", "429")], limited("API Error: 429")),
        (
            vec![failed("Claude AI usage limit reached|1790000000", "null")],
            // The time in the message is parsed if the current time is known.
            limited("Claude AI usage limit reached|1790000000"),
        ),
        (vec![failed("", "null")], broken("completed")),
        (
            vec![result(
                r#""subtype":"error_max_turns","is_error":true,"errors":["McpTransport maximum number of turns (2)"],"num_turns":3"#,
            )],
            AgentStatus::Finished,
        ),
        (
            vec![result(
                r#""subtype":"error_max_budget_usd","is_error":true,"errors":["McpTransport maximum budget ($1)"]"#,
            )],
            AgentStatus::OverBudget,
        ),
        (
            vec![result(r#""subtype":"error_during_execution","is_error":true,"errors":["it broke"]"#)],
            broken("it broke"),
        ),
        // An error of the program itself; the words of a tool are ignored.
        (
            vec![result(
                r#""subtype":"error_during_execution","is_error":true,"errors":["hook: expected status 429, connection refused"]"#,
            )],
            broken("hook: expected status 429, connection refused"),
        ),
        (
            vec![result(r#""subtype":"success","is_error":false,"result":"x","terminal_reason":"aborted""#)],
            broken("it ended with \"aborted\""),
        ),
        (vec![result(r#""subtype":"success","is_error":false,"result":"x""#)], AgentStatus::Finished),
        (vec![result(r#""subtype":"success","is_error":false,"result":"""#)], broken("the model gave an empty answer")),
        (
            vec![result(r#""subtype":"success","is_error":false,"result":"(no content)""#)],
            broken("the model gave an empty answer"),
        ),
    ] {
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        // The exit code is 1 in most versions and 0 in some, and must not matter.
        for code in [0, 1] {
            assert_eq!(read(&lines, ProcessEnd::Exited(code), "").0.status, expected, "{lines:?}");
        }
    }
}

#[test]
fn status_without_result_line_follows_from_the_end() {
    let failed = |reason: &str| AgentStatus::Failed { reason: reason.into() };
    for (how, stderr, expected) in [
        (ProcessEnd::Exited(0), "", failed("it ended without any output")),
        (ProcessEnd::Exited(143), "", failed("it exited with 143")),
        (ProcessEnd::Signalled(9), "x\ny\n", failed("it was killed by signal 9: y")),
        (
            ProcessEnd::Exited(1),
            "No conversation found with session ID: 1",
            failed("it exited with 1: No conversation found with session ID: 1"),
        ),
        (
            ProcessEnd::Exited(1),
            "error: unknown option '--new'",
            AgentStatus::Unavailable { reason: "it exited with 1: error: unknown option '--new'".into() },
        ),
    ] {
        assert_eq!(read(&[], how.clone(), stderr).0.status, expected, "{how:?}");
    }
    let (reading, _) = read(&[INIT, CALL], ProcessEnd::Signalled(15), "");
    assert_eq!(reading.status, failed("it was killed by signal 15"));
    assert_eq!((reading.tokens_in, reading.tokens_out, reading.cost), (123, 1, None));
}

#[test]
fn unknown_lines_are_reported_as_text() {
    let (text, events) = read(&["Hello,", "", "it is done."], ProcessEnd::Exited(0), "");
    assert_eq!((text.status, text.final_message.as_str()), (AgentStatus::Finished, "Hello,\n\nit is done."));
    assert!(text.errors[0].contains("read it as text"), "{:?}", text.errors);
    assert_eq!(events.len(), 2);

    let (renamed, _) = read(&[INIT, SAID, r#"{"type":"outcome","fine":true}"#], ProcessEnd::Exited(0), "");
    assert_eq!((renamed.status, renamed.final_message.as_str()), (AgentStatus::Finished, "All done."));

    let malformed_lines = [
        "[1]",
        "3",
        "null",
        "{",
        "\u{feff}{}",
        r#"{"type":7}"#,
        r#"{"type":"assistant","message":[]}"#,
        r#"{"type":"assistant","message":{"content":"text","usage":{"input_tokens":-1,"output_tokens":"7"}}}"#,
        r#"{"type":"user","message":{"content":[{"type":"tool_result","is_error":true,"content":[{"text":"in a list"}]}]}}"#,
        r#"{"type":"rate_limit_event","rate_limit_info":{"status":"rejected","resetsAt":9223372036854775807}}"#,
        r#"{"type":"result","is_error":"no","total_cost_usd":"1","modelUsage":[],"usage":{"input_tokens":18446744073709551615,"cache_read_input_tokens":9},"errors":[1],"permission_denials":[{}]}"#,
    ];
    let (reading, _) = read(&malformed_lines, ProcessEnd::Exited(0), "");
    assert_eq!((reading.status, reading.tool_errors, reading.cost), (AgentStatus::Finished, 1, None));
    assert_eq!(reading.tokens_in, u64::MAX);
}

#[test]
fn signs_of_a_limit_are_collected() {
    let refusal = result(
        r#""subtype":"success","is_error":true,"api_error_status":429,"api_error":"usage_limit_reached","result":"You've hit your limit","stop_reason":null"#,
    );
    let (reading, _) = read(&[INIT, LIMIT, &refusal], ProcessEnd::Exited(1), "first\n    at x (y)\nlast\n");
    let expected = LimitSignals {
        succeeded: false,
        exit_code: Some(1),
        status: Some(429),
        code: Some("usage_limit_reached".into()),
        resets_at: Some(Timestamp(1_790_000_000_000)),
        headers: vec![],
        messages: vec!["You've hit your limit".into(), "first\nlast".into()],
        ..LimitSignals::default()
    };
    assert_eq!(reading.signals, expected);
    let (reading, _) = read(&[INIT, RETRY], ProcessEnd::Stopped("it waited".into()), "");
    assert_eq!(reading.status, AgentStatus::Limited { until_ms: None, reason: "rate_limit (429)".into() });
    assert_eq!(reading.signals.status, Some(429));
}

#[test]
fn successful_edits_are_reported() {
    let call = |id: &str| {
        format!(
            r#"{{"type":"assistant","message":{{"content":[{{"type":"tool_use","id":"{id}","name":"Edit","input":{{"file_path":"/t/{id}.rs"}}}}]}}}}"#
        )
    };
    let tool_result = |id: &str, error: bool| {
        format!(
            r#"{{"type":"user","message":{{"content":[{{"type":"tool_result","tool_use_id":"{id}","is_error":{error},"content":"x"}}]}}}}"#
        )
    };
    let lines = [call("a"), call("b"), tool_result("a", true), tool_result("b", false)];
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let (_, events) = read(&lines, ProcessEnd::Exited(0), "");
    let changed: Vec<_> = events.iter().filter(|e| matches!(e, AgentEvent::FileChanged { .. })).collect();
    assert_eq!(changed, [&AgentEvent::FileChanged { path: "/t/b.rs".into() }]);
}

#[test]
fn retries_are_reported_and_notes_are_limited() {
    let lines = vec![RETRY; 80];
    let (reading, events) = read(&lines, ProcessEnd::Exited(1), "");
    assert_eq!(reading.errors.len(), 50);
    assert_eq!(reading.errors[0], "a request to the provider was retried: rate_limit (429)");
    assert_eq!(events[1], AgentEvent::Retried { reason: "rate_limit (429)".into() });
}

#[test]
fn usage_of_a_message_is_reported_once_with_the_last_model() {
    // A message is spread over several lines; error messages do not name the model.
    let other = CALL.replace("\"m1\"", "\"m3\"").replace("\"role\"", "\"model\":\"claude-opus-4-5\",\"role\"");
    let made_up = SAID.replace("\"m2\"", "\"m4\"").replace("\"role\"", "\"model\":\"<synthetic>\",\"role\"");
    let (reading, events) = read(&[INIT, CALL, CALL, &other, &made_up], ProcessEnd::Signalled(15), "");
    let reported = events.into_iter().filter_map(|event| match event {
        AgentEvent::Used { tokens_in, cache_read, cost: None, model, .. } => Some((tokens_in, cache_read, model?)),
        _ => None,
    });
    let reported: Vec<_> = reported.collect();
    let expected = [(123, 3, "claude-sonnet-4-5"), (246, 6, "claude-opus-4-5"), (369, 9, "claude-opus-4-5")];
    assert_eq!(reported, expected.map(|(read, cached, model)| (read, cached, model.to_owned())));
    assert_eq!(reading.model.as_deref(), Some("claude-opus-4-5"));
}

#[test]
fn corrupted_output_never_becomes_a_success_without_text() {
    let text = [INIT, CALL, FAILED, SAID, DONE].join("\n");
    let mut cut = 0;
    spoilt_text(PRESET.reader, &text, &mut |what, reading| {
        assert!(reading.status != AgentStatus::Finished || !reading.final_message.is_empty(), "{what}");
        cut += u32::from(reading.errors.iter().any(|note| note.contains("invalid JSON")));
    });
    assert!(cut > 5, "what is cut is noted");
}
