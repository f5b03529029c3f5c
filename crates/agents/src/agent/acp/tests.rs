//! Recordings of agents that speak ACP, and messages of made-up ones.

use super::*;
use crate::agent::session::is_unknown;
use crate::agent::transcript::{StatusTest, ended, recorded, spoilt};
use crate::agent::usage::ContextFill;
use crate::domain::model::ids::Money;
use crate::domain::model::ids::Timestamp;
use crate::domain::providers::limit::{LimitKind, classify};

/// Conversation of a client with a made-up agent.
struct Talk {
    client: AcpClient,
    dialog: Dialog,
    events: Vec<AgentEvent>,
}

impl Talk {
    fn new(run: AcpRun) -> Self {
        let dialog = Dialog::default();
        Self { client: AcpClient::new(run, dialog.clone()), dialog, events: Vec::new() }
    }

    /// Returns a conversation whose session has started.
    fn begun(run: AcpRun) -> Self {
        let mut talk = Self::new(run);
        talk.result(&json!({ "protocolVersion": 1, "agentCapabilities": { "loadSession": true } }));
        talk.result(&json!({ "sessionId": "s1" }));
        assert_eq!(talk.sent().last().map(|last| last["method"].clone()), Some(json!("session/prompt")));
        talk
    }

    /// Messages of the client since the last call.
    fn sent(&mut self) -> Vec<Value> {
        let bytes = self.dialog.take();
        let text = String::from_utf8(bytes).expect("UTF-8");
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    fn says(&mut self, message: &Value) {
        self.client.line(Stream::Stdout, &message.to_string(), &mut |event| self.events.push(event));
    }

    fn result(&mut self, result: &Value) {
        self.says(&json!({ "jsonrpc": "2.0", "id": self.client.requests, "result": result }));
    }

    fn error(&mut self, code: i64, message: &str) {
        let error = json!({ "code": code, "message": message });
        self.says(&json!({ "jsonrpc": "2.0", "id": self.client.requests, "error": error }));
    }

    fn update(&mut self, update: &Value) {
        let params = json!({ "sessionId": "s1", "update": update });
        self.says(&json!({ "jsonrpc": "2.0", "method": "session/update", "params": params }));
    }

    fn text(&mut self, text: &str) {
        self.update(&json!({ "sessionUpdate": "agent_message_chunk", "content": { "type": "text", "text": text } }));
    }

    fn finish(&mut self) -> ParsedOutput {
        self.client.finish(&ended(ProcessEnd::Exited(0), "", ""))
    }
}

fn inside() -> AcpRun {
    AcpRun { prompt: "do it".into(), folder: "/t".into(), is_sandboxed: true, ..AcpRun::default() }
}

#[test]
fn recorded_runs_are_read() {
    let command = "env > env.txt; echo made by the agent > made.txt";
    for (case, name, tokens, fill) in [
        ("qwen", "run_shell_command", (246, 100, 6), Some((173, None))),
        ("kimi", "execute", (0, 0, 0), Some((173, Some(262_144)))),
        ("opencode", "execute", (123, 50, 3), Some((123, Some(1_000_000)))),
        ("gemini", "execute", (0, 0, 0), None),
    ] {
        let (output, events) = recorded((PRESET.reader)(), "acp", case, ProcessEnd::Exited(0));
        assert_eq!((&output.status, output.final_message.as_str()), (&AgentStatus::Finished, "All done."), "{case}");
        assert_eq!((output.tool_calls, output.tool_errors, output.stop_reason.as_str()), (1, 0, "end_turn"), "{case}");
        assert_eq!((output.tokens_in, output.tokens_out, output.cache_read), tokens, "{case}");
        let filled = fill.map(|(tokens, window)| ContextFill { tokens, window });
        assert_eq!(output.context_fill, filled, "{case}");
        let call = AgentEvent::ToolCalled { name: name.into(), input: command.into() };
        assert!(events.contains(&call), "{case}: {events:?}");
        let session = output.session.expect("a session");
        assert!(events.contains(&AgentEvent::Session { id: session }), "{case}: {events:?}");
    }
    let (output, events) = recorded((PRESET.reader)(), "acp", "qwen-file-change", ProcessEnd::Exited(0));
    assert!(events.contains(&AgentEvent::FileChanged { path: "/t/tree/written.txt".into() }), "{events:?}");
    assert_eq!(output.model.as_deref(), Some("m"), "the id is no name of a model");
    let (output, _) = recorded((PRESET.reader)(), "acp", "opencode", ProcessEnd::Exited(0));
    assert!(output.cost.is_some_and(|cost| cost > Money(0)) && output.model.is_some(), "{output:?}");
}

#[test]
fn denied_command_is_recorded() {
    let client = AcpClient::new(AcpRun { is_sandboxed: false, ..inside() }, Dialog::default());
    let (output, _) = recorded(Box::new(client), "acp", "kimi-denied", ProcessEnd::Exited(0));
    assert_eq!((output.status, output.denied, output.tool_errors), (AgentStatus::Finished, vec!["execute".into()], 1));
}

#[test]
fn corrupted_recording_never_becomes_a_success_without_text() {
    for case in ["qwen", "kimi", "opencode", "gemini"] {
        spoilt(PRESET.reader, "acp", case, &mut |what, output| {
            assert!(output.status != AgentStatus::Finished || !output.final_message.is_empty(), "{case}: {what}");
        });
    }
}

#[test]
fn session_opens_with_supported_content() {
    let servers =
        vec![json!({ "name": "a", "command": "/a" }), json!({ "type": "http", "name": "b", "url": "http://b" })];
    let image = json!({ "type": "image", "mimeType": "image/png", "data": "AA==" });
    for is_able in [false, true] {
        let mut talk = Talk::new(AcpRun {
            servers: servers.clone(),
            images: vec![image.clone()],
            folders: vec!["/r".into()],
            ..inside()
        });
        assert_eq!(talk.sent()[0]["params"]["clientCapabilities"]["terminal"], false);
        let folders = if is_able { json!({ "additionalDirectories": {} }) } else { json!({}) };
        talk.result(&json!({ "protocolVersion": 1, "agentCapabilities": {
            "mcpCapabilities": { "http": is_able }, "promptCapabilities": { "image": is_able }, "sessionCapabilities": folders,
        } }));
        let opened = talk.sent().remove(0);
        assert_eq!((opened["method"].as_str(), opened["params"]["cwd"].as_str()), (Some("session/new"), Some("/t")));
        assert_eq!(opened["params"]["mcpServers"].as_array().map(Vec::len), Some(if is_able { 2 } else { 1 }));
        assert_eq!(opened["params"]["additionalDirectories"].is_null(), !is_able);
        talk.result(&json!({ "sessionId": "s1" }));
        let prompt = talk.sent().remove(0)["params"]["prompt"].clone();
        assert_eq!(prompt[0]["text"], "do it");
        assert_eq!(prompt.as_array().map(Vec::len), Some(if is_able { 2 } else { 1 }));
    }
}

#[test]
fn mode_and_model_are_chosen_before_the_prompt() {
    let modes =
        json!({ "currentModeId": "auto", "availableModes": [{ "id": "default" }, { "id": "auto" }, { "id": "yolo" }] });
    let grouped = json!([{ "name": "G", "options": [{ "value": "vendor/m-1", "name": "M 1" }, { "value": "m-2", "name": "M 2" }] }]);
    let model = json!({ "id": "llm", "category": "model", "currentValue": "m-2", "options": grouped });
    let session = json!({ "sessionId": "s1", "modes": modes, "configOptions": [model] });
    for (wanted, is_sandboxed, expected) in [
        (Some("M 1"), true, vec![("modeId", "yolo"), ("value", "vendor/m-1")]),
        (Some("unlisted"), false, vec![("modeId", "default"), ("value", "unlisted")]),
        (Some("m-2"), false, vec![("modeId", "default")]),
        (None, true, vec![("modeId", "yolo")]),
    ] {
        let mut talk = Talk::new(AcpRun { model: wanted.map(str::to_owned), is_sandboxed, ..inside() });
        talk.result(&json!({ "protocolVersion": 1 }));
        talk.result(&session);
        for (field, value) in expected {
            let request = talk.sent().pop().expect("a request");
            assert_eq!(request["params"][field], value, "{wanted:?}");
            talk.result(&json!({}));
        }
        assert_eq!(talk.sent().pop().expect("a prompt")["method"], "session/prompt");
    }
    let mut talk = Talk::new(inside());
    talk.result(&json!({ "protocolVersion": 1 }));
    talk.result(&session);
    talk.error(-32602, "not in this folder");
    assert_eq!(talk.sent().pop().expect("a prompt")["method"], "session/prompt", "a mode is not required");
    let mut talk = Talk::new(AcpRun { model: Some("unlisted".into()), ..inside() });
    talk.result(&json!({ "protocolVersion": 1 }));
    talk.result(
        &json!({ "sessionId": "s1", "models": { "currentModelId": "a", "availableModels": [{ "modelId": "a" }] } }),
    );
    assert_eq!(talk.sent().pop().expect("a request")["method"], "session/set_model");
    talk.error(-32602, "unknown model");
    let output = talk.finish();
    assert!(
        matches!(&output.status, AgentStatus::Unavailable { reason } if reason.contains("unknown model")),
        "{output:?}"
    );
}

#[test]
fn permission_follows_from_the_sandbox() {
    let options = json!([
        { "optionId": "always", "kind": "allow_always" }, { "optionId": "once", "kind": "allow_once" },
        { "optionId": "no", "kind": "reject_once" },
    ]);
    for (is_sandboxed, kind, expected) in [
        (true, Some("execute"), "once"),
        (true, None, "once"),
        (false, Some("edit"), "once"),
        (false, Some("execute"), "no"),
        (false, Some("fetch"), "no"),
        (false, None, "no"),
    ] {
        let mut talk = Talk::begun(AcpRun { is_sandboxed, ..inside() });
        // The request may lack the kind that the call had.
        talk.update(&json!({ "sessionUpdate": "tool_call", "toolCallId": "c1", "title": "T", "kind": kind }));
        let params = json!({ "sessionId": "s1", "toolCall": { "toolCallId": "c1" }, "options": options });
        talk.says(&json!({ "jsonrpc": "2.0", "id": "p", "method": "session/request_permission", "params": params }));
        let answer = talk.sent().pop().expect("an answer");
        assert_eq!(
            (&answer["id"], &answer["result"]["outcome"]["optionId"]),
            (&json!("p"), &json!(expected)),
            "{kind:?}"
        );
        assert_eq!(talk.finish().denied.len(), usize::from(expected == "no"));
    }
    let mut talk = Talk::begun(AcpRun { is_sandboxed: false, ..inside() });
    talk.says(&json!({ "id": 5, "method": "session/request_permission", "params": { "options": [] } }));
    assert_eq!(talk.sent().pop().expect("an answer")["result"]["outcome"]["outcome"], "cancelled");
}

#[test]
fn resumed_session_reports_this_run_only() {
    let before = RunTokens { read: 1_000, written: 10, cache_read: 0, cache_write: 0 };
    let mut talk = Talk::new(AcpRun { session: Some("s1".into()), before, ..inside() });
    talk.result(&json!({ "protocolVersion": 1, "agentCapabilities": { "loadSession": true } }));
    let load = talk.sent().pop().expect("a request");
    assert_eq!((load["method"].as_str(), load["params"]["sessionId"].as_str()), (Some("session/load"), Some("s1")));
    talk.text("an answer of the earlier run");
    talk.result(&Value::Null);
    talk.text("now");
    talk.result(
        &json!({ "stopReason": "end_turn", "usage": { "inputTokens": 7, "outputTokens": 2, "totalTokens": 9 } }),
    );
    assert_eq!(talk.client.observed_tokens(), Some(9));
    let output = talk.finish();
    assert_eq!((output.final_message.as_str(), output.tokens_in, output.tokens_out), ("now", 1_007, 12));
    assert!(!talk.events.iter().any(|event| matches!(event, AgentEvent::Text { text } if text.contains("earlier"))));
}

#[test]
fn unknown_session_is_recognized() {
    for is_able in [true, false] {
        let mut talk = Talk::new(AcpRun { session: Some("s1".into()), ..inside() });
        talk.result(&json!({ "protocolVersion": 1, "agentCapabilities": { "loadSession": is_able } }));
        if is_able {
            talk.error(-32603, "Internal error");
        }
        assert!(is_unknown(&talk.finish()), "{is_able}");
    }
}

#[test]
fn login_with_a_key_is_used_once() {
    let methods = json!([{ "id": "oauth", "name": "Log in" }, { "id": "vendor-api-key", "name": "Key" }]);
    let mut talk = Talk::new(inside());
    talk.result(&json!({ "protocolVersion": 1, "authMethods": methods }));
    talk.error(LOGIN_REQUIRED, "Authentication required");
    let request = talk.sent().pop().expect("a request");
    assert_eq!(
        (request["method"].as_str(), request["params"]["methodId"].as_str()),
        (Some("authenticate"), Some("vendor-api-key"))
    );
    talk.result(&json!({}));
    talk.error(LOGIN_REQUIRED, "Authentication required");
    let output = talk.finish();
    assert!(
        matches!(&output.status, AgentStatus::Unavailable { reason } if reason.contains("Log in, Key")),
        "{output:?}"
    );
}

#[test]
fn end_of_the_turn_decides_the_status() {
    let limited: StatusTest = |status| matches!(status, AgentStatus::Limited { .. });
    let unavailable: StatusTest = |status| matches!(status, AgentStatus::Unavailable { .. });
    for (code, message, is_expected, kind) in [
        (429, "too many requests", limited, LimitKind::Rate),
        (-32603, "503 Service Unavailable", limited, LimitKind::Overload),
        (-32603, "401 Incorrect API key provided", unavailable, LimitKind::Auth),
    ] {
        let mut talk = Talk::begun(inside());
        talk.error(code, message);
        assert!(talk.client.is_complete());
        let output = talk.finish();
        assert!(is_expected(&output.status), "{message}: {output:?}");
        assert_eq!(classify(&output.signals, Timestamp(0)).map(|limit| limit.kind), Some(kind), "{message}");
    }
    for (reason, text, is_success) in
        [("end_turn", "done", true), ("max_tokens", "so far", true), ("end_turn", "", false), ("refusal", "no", false)]
    {
        let mut talk = Talk::begun(inside());
        talk.text(text);
        talk.result(&json!({ "stopReason": reason }));
        let output = talk.finish();
        assert_eq!(output.status == AgentStatus::Finished, is_success, "{reason}: {output:?}");
    }
    let mut talk = Talk::begun(inside());
    talk.result(&json!({ "stopReason": "cancelled" }));
    assert!(!talk.client.is_complete() && talk.finish().status != AgentStatus::Finished);
}

#[test]
fn unknown_messages_are_not_errors() {
    let mut talk = Talk::begun(inside());
    for message in [
        json!({ "jsonrpc": "2.0", "method": "vendor/notify", "params": {} }),
        json!({ "method": "session/update", "params": [] }),
        json!({ "id": 99, "result": {} }),
        json!({ "id": null }),
        json!({ "odd": true }),
        json!({ "method": "session/update", "params": { "sessionId": "s1", "update": { "sessionUpdate": "tool_call" } } }),
        json!({ "method": "session/update", "params": { "sessionId": "other", "update": { "sessionUpdate": "agent_message_chunk", "content": { "text": "not mine" } } } }),
    ] {
        talk.says(&message);
    }
    assert!(talk.sent().is_empty() && talk.client.awaits_model());
    talk.says(
        &json!({ "jsonrpc": "2.0", "id": "x", "method": "fs/read_text_file", "params": { "path": "/etc/passwd" } }),
    );
    assert_eq!(talk.sent().pop().expect("an answer")["error"]["code"], UNKNOWN_METHOD);
    talk.text("done");
    talk.result(&json!({ "stopReason": "end_turn" }));
    let output = talk.finish();
    assert_eq!((output.status, output.final_message.as_str()), (AgentStatus::Finished, "done"));
}

#[test]
fn program_that_is_not_an_agent_fails() {
    for (printed, is_unavailable) in [("hello", false), ("error: unknown option '--acp'", true), ("{\"id\":1}", true)] {
        let mut talk = Talk::new(inside());
        talk.client.line(Stream::Stdout, printed, &mut |_| ());
        let output = talk.client.finish(&ended(ProcessEnd::Exited(0), printed, ""));
        assert_eq!(matches!(output.status, AgentStatus::Unavailable { .. }), is_unavailable, "{output:?}");
        assert_ne!(output.status, AgentStatus::Finished);
    }
    let mut talk = Talk::new(inside());
    talk.result(&json!({ "protocolVersion": 2 }));
    assert!(matches!(talk.finish().status, AgentStatus::Unavailable { reason } if reason.contains("version 2")));
}

#[test]
fn long_outputs_are_bounded() {
    let mut talk = Talk::begun(inside());
    let long = "x".repeat(100_000);
    for number in 0..20 {
        talk.text(&long);
        let diffs: Vec<Value> =
            (0..100).map(|file| json!({ "type": "diff", "path": format!("{}{file}", &long[..5_000]) })).collect();
        talk.update(&json!({
            "sessionUpdate": "tool_call", "toolCallId": format!("c{number}"), "title": long, "kind": long,
            "status": "completed", "rawInput": { "command": long }, "content": diffs,
        }));
    }
    assert!(talk.events.iter().all(|event| format!("{event:?}").len() < 5_000));
    assert!(talk.events.len() <= 20 * (2 + 50) + 1, "{}", talk.events.len());
    assert_eq!(talk.finish().tool_calls, 20);
}
