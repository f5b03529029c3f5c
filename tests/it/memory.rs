//! Session memory as agents use it: a real MCP client, the real `ralph-bot mcp`, and the service's socket.

use std::time::Duration;

use ralph_bot::domain::model::ids::LoopId;
use ralph_bot::mcp::{ANSWER_TOKENS, Token};
use rmcp::model::{CallToolRequestParams, CallToolResult};
use rmcp::service::{RoleClient, RunningService, ServiceError};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::Child;

use crate::harness::session_memory::{Served, WAIT_LIMIT};

/// Response of a tool, and whether it is an error.
async fn call(client: &RunningService<RoleClient, ()>, tool: &'static str, arguments: Value) -> (String, bool) {
    let result = ask(client, tool, arguments).await.expect("an answer");
    let text = result.content.first().and_then(|block| block.as_text()).expect("a text").text.clone();
    (text, result.is_error == Some(true))
}

async fn ask(
    client: &RunningService<RoleClient, ()>,
    tool: &'static str,
    arguments: Value,
) -> Result<CallToolResult, ServiceError> {
    let arguments = arguments.as_object().expect("an object").clone();
    let request = client.call_tool(CallToolRequestParams::new(tool).with_arguments(arguments));
    tokio::time::timeout(WAIT_LIMIT, request).await.expect("in time")
}

#[tokio::test]
async fn client_uses_every_tool() {
    let served = Served::start(true).await;
    let (mut child, client) = served.client().await;
    let tools = client.list_all_tools().await.expect("a list");
    let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_ref()).collect();
    assert_eq!(names, ["search", "list_summaries", "get_turn", "learnings"]);
    for tool in &tools {
        assert!(tool.annotations.as_ref().is_some_and(|hints| hints.read_only_hint == Some(true)), "{}", tool.name);
        let schema = Value::Object((*tool.input_schema).clone());
        assert!(jsonschema::meta::is_valid(&schema) && schema["type"] == "object", "{schema:#}");
        assert!(!schema.to_string().contains("$ref"), "{schema:#}");
    }

    let (text, error) = call(&client, "search", json!({ "query": "lazily", "tier": "raw" })).await;
    assert!(!error && text.contains("iteration 1") && text.contains("parse lazily"), "{text}");
    let (text, error) = call(&client, "search", json!({ "query": "walrus loop another", "limit": 50 })).await;
    assert!(!error && !text.contains("another loop"), "{text}");
    let (text, error) = call(&client, "list_summaries", json!({})).await;
    assert!(!error && text.contains("Decided to parse lazily") && text.contains("3x bash"), "{text}");
    let (text, error) = call(&client, "list_summaries", json!({ "since": 2 })).await;
    assert!(!error && text.contains("no summary"), "{text}");
    let (text, error) = call(&client, "get_turn", json!({ "iteration": 1 })).await;
    assert!(!error && text.contains("61 s, 100 tokens in") && text.contains("Prompt number 1."), "{text}");
    let (text, error) = call(&client, "get_turn", json!({ "iteration": 9 })).await;
    assert!(!error && text.contains("no turn of iteration 9"), "{text}");
    let (text, error) = call(&client, "learnings", json!({ "query": "tests" })).await;
    assert!(!error && text.contains("asked for tests"), "{text}");
    assert!(call(&client, "learnings", json!({ "query": "nothing" })).await.0.contains("there are no learnings"));
    assert!(call(&client, "learnings", json!({ "query": "broken" })).await.1);

    drop(client.cancel().await);
    let ended = tokio::time::timeout(WAIT_LIMIT, child.wait()).await.expect("in time").expect("an end");
    assert!(ended.success(), "the bridge ends well when its agent is done: {ended}");
    served.stop().await;
}

#[tokio::test]
async fn wrong_arguments_are_rejected() {
    let served = Served::start(false).await;
    let (_child, client) = served.client().await;
    let table = [
        ("search", json!({ "quarry": "x" }), "unknown field `quarry`"),
        ("search", json!({ "query": 7 }), "expected a string"),
        ("search", json!({ "iterations": "3-7" }), "expected struct IterationFilter"),
        ("search", json!({ "event_types": ["toolcall"] }), "unknown variant `toolcall`"),
        ("search", json!({ "limit": -1 }), "expected u32"),
        ("get_turn", json!({}), "missing field `iteration`"),
        ("get_turn", json!({ "iteration": "one" }), "expected u32"),
        ("list_summaries", json!({ "since": 1.5 }), "expected u32"),
    ];
    for (tool, arguments, expected) in table {
        let (text, error) = call(&client, tool, arguments.clone()).await;
        assert!(error && text.contains("the arguments are wrong"), "{tool} {arguments}: {text}");
        assert!(text.contains(expected), "{tool} {arguments}: {text}");
    }
    for tool in ["learnings", "drop_everything"] {
        let refused = ask(&client, tool, json!({ "query": "x" })).await.expect_err("no such tool").to_string();
        assert!(refused.contains("available: search, list_summaries, get_turn"), "{refused}");
    }
    let (text, error) = call(&client, "search", json!({ "query": null, "tier": "raw", "tools": null })).await;
    assert!(!error && text.contains("[turn]"), "what is null is not there: {text}");
    let endless = ask(&client, "search", json!({ "query": "x".repeat(200_000) })).await;
    assert!(endless.is_ok(), "{endless:?}");
}

#[tokio::test]
async fn every_search_expression_is_answered() {
    let served = Served::start(false).await;
    let (_child, client) = served.client().await;
    let (text, error) = call(&client, "search", json!({ "query": "bash.*failed", "tier": "events" })).await;
    assert!(!error && text.starts_with("note: ") && text.contains("\"bash\" \"failed\""), "{text}");
    assert!(text.contains("[tool_result] iteration 1, Bash, failed"), "{text}");
    let expressions =
        ["\"", "(", "a AND", "NEAR(", "*", "text:", "x:y", "^", "-a", "'; DROP TABLE loops; --", "\u{0}", "{"];
    for query in expressions {
        let (text, error) = call(&client, "search", json!({ "query": query })).await;
        assert!(!error && !text.is_empty(), "{query}: {text}");
    }
}

#[tokio::test]
async fn large_answers_are_cut_to_budget() {
    let served = Served::start(false).await;
    let (_child, client) = served.client().await;
    let (text, _) = call(&client, "search", json!({ "query": "walrus", "limit": 50 })).await;
    assert!(text.len() <= ANSWER_TOKENS * 3 && text.contains("more; narrow the search"), "{} bytes", text.len());
    let (text, _) = call(&client, "get_turn", json!({ "iteration": 2 })).await;
    assert!(text.len() <= ANSWER_TOKENS * 3 && text.contains("more tokens") && text.contains("Prompt number 2."));
}

/// Exit code and error output of a bridge without input.
async fn ending(mut child: Child) -> (Option<i32>, String) {
    let mut stderr_text = String::new();
    let mut stderr = child.stderr.take().expect("a pipe");
    tokio::time::timeout(WAIT_LIMIT, stderr.read_to_string(&mut stderr_text)).await.expect("in time").expect("text");
    (child.wait().await.expect("an end").code(), stderr_text)
}

#[tokio::test]
async fn bridge_requires_the_right_token() {
    let served = Served::start(false).await;
    let id = LoopId::new("r-8-abcdef");
    for token in ["wrong", Token::new(b"a key of the tests", &id, "3-1").as_str(), &"x".repeat(100_000)] {
        let (code, stderr_text) = ending(served.bridge(Some(token))).await;
        assert_eq!(code, Some(1), "{stderr_text}");
        assert!(stderr_text.contains("refused the connection: the token is wrong"), "{stderr_text}");
    }
    let (code, stderr_text) = ending(served.bridge(None)).await;
    assert!(code == Some(2) && stderr_text.contains("RALPH_MCP_TOKEN is not set"), "{code:?}: {stderr_text}");
    std::fs::remove_file(&served.socket).expect("removed");
    let (code, stderr_text) = ending(served.bridge(Some(served.token.as_str()))).await;
    assert!(code == Some(1) && stderr_text.contains("does not answer"), "{code:?}: {stderr_text}");
}

#[tokio::test]
async fn bridge_ends_when_the_service_stops() {
    let served = Served::start(false).await;
    let (child, client) = served.client().await;
    assert!(!call(&client, "get_turn", json!({ "iteration": 1 })).await.1);
    served.stop().await;
    let (code, stderr_text) = ending(child).await;
    assert!(code == Some(1) && stderr_text.contains("the session memory is closed"), "{code:?}: {stderr_text}");
    assert!(ask(&client, "get_turn", json!({ "iteration": 1 })).await.is_err(), "the call waited instead of failing");
}

#[tokio::test]
async fn invalid_requests_do_not_affect_others() {
    let served = Served::start(false).await;
    let mut child = served.bridge(Some(served.token.as_str()));
    let mut input = child.stdin.take().expect("a pipe");
    let mut output = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "test", "version": "1" } } });
    let list = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list" });
    let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    input.write_all(format!("{hello}\n{ready}\n").as_bytes()).await.expect("written");
    let greeting = tokio::time::timeout(WAIT_LIMIT, output.next_line()).await.expect("in time").expect("a line");
    assert!(greeting.is_some_and(|line| line.contains("session_memory")), "it introduces itself");
    input.write_all(b"no JSON\n\xff\xfe\n{\"jsonrpc\": \"2.0\"\n").await.expect("written");
    input.write_all(&vec![b'x'; 1 << 20]).await.expect("written");
    input.write_all(format!("\n{list}\n").as_bytes()).await.expect("written");
    let answered = async {
        loop {
            let line = output.next_line().await.expect("a line").expect("it goes on");
            if line.contains("list_summaries") {
                return;
            }
        }
    };
    tokio::time::timeout(WAIT_LIMIT, answered).await.expect("in time");
    let (_child, client) = served.client().await;
    assert!(!call(&client, "list_summaries", json!({})).await.1, "another connection is served");
}

#[tokio::test]
async fn questions_of_a_run_are_answered_one_at_a_time_on_all_connections() {
    let served = Served::start(false).await;
    let (_one, first) = served.client().await;
    let (_other, second) = served.client().await;
    let answered = served.turn.lock().await;
    let both =
        async { tokio::join!(call(&first, "list_summaries", json!({})), call(&second, "list_summaries", json!({}))) };
    tokio::pin!(both);
    let each = async {
        tokio::select! {
            _ = call(&first, "get_turn", json!({ "iteration": 1 })) => {}
            _ = call(&second, "get_turn", json!({ "iteration": 1 })) => {}
        }
    };
    assert!(tokio::time::timeout(Duration::from_millis(500), each).await.is_err(), "one was answered meanwhile");
    assert!(tokio::time::timeout(Duration::from_millis(500), &mut both).await.is_err(), "both were answered meanwhile");
    drop(answered);
    let ((_, first), (_, second)) = tokio::time::timeout(WAIT_LIMIT, both).await.expect("in time");
    assert!(!first && !second);
}
