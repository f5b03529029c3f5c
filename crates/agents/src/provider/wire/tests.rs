//! Documents in the formats of servers.

use std::time::Duration;

use serde_json::json;

use super::*;
use crate::domain::providers::chat::{
    AnswerSchema, ChatImage, ChatMessage, ModelStop, ModelTurn, ToolDefinition, ToolResult,
};
use crate::domain::providers::prices::TokenUsage;

const ALL: [WireName; 3] = [WireName::Messages, WireName::Responses, WireName::Chat];

fn request() -> ChatRequest {
    ChatRequest {
        model: "m-1".into(),
        system: "be brief".into(),
        messages: vec![ChatMessage::User("hello".into())],
        tools: Vec::new(),
        max_tokens: 100,
        schema: None,
        cache: false,
        timeout: Duration::from_secs(1),
    }
}

fn with_tools() -> ChatRequest {
    let call = |id: &str, name: &str, arguments: &str| ToolCall {
        id: id.into(),
        name: name.into(),
        arguments: arguments.into(),
    };
    let result = |id: &str, text: &str, failed| ToolResult { id: id.into(), text: text.into(), failed };
    ChatRequest {
        messages: vec![
            ChatMessage::User("count the files".into()),
            ChatMessage::Model(ModelTurn {
                text: "I look.".into(),
                calls: vec![call("a", "bash", r#"{"command":"ls"}"#), call("b", "my tool", "{\"command\":")],
                original: Value::Null,
            }),
            ChatMessage::Results(vec![result("a", "two", false), result("b", "no such tool", true)]),
        ],
        tools: vec![ToolDefinition {
            name: "bash".into(),
            description: "Runs a command.".into(),
            parameters: json!({"type": "object"}),
        }],
        cache: true,
        ..request()
    }
}

fn read(wire: WireName, document: Value) -> Result<ChatAnswer, AnswerError> {
    wire.answer(&request(), &document)
}

fn good(wire: WireName, document: Value) -> ChatAnswer {
    read(wire, document).unwrap()
}

#[test]
fn conversation_is_encoded_for_messages() {
    assert_eq!(
        WireName::Messages.body(&with_tools(), false),
        json!({
            "model": "m-1", "max_tokens": 100,
            "system": [{"type": "text", "text": "be brief", "cache_control": {"type": "ephemeral"}}],
            "tools": [{"name": "bash", "description": "Runs a command.", "input_schema": {"type": "object"}}],
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "count the files"}]},
                {"role": "assistant", "content": [
                    {"type": "text", "text": "I look."},
                    {"type": "tool_use", "id": "a", "name": "bash", "input": {"command": "ls"}},
                    {"type": "tool_use", "id": "b", "name": "my_tool", "input": {}},
                ]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "a", "content": "two", "is_error": false},
                    {"type": "tool_result", "tool_use_id": "b", "content": "no such tool", "is_error": true,
                     "cache_control": {"type": "ephemeral"}},
                ]},
            ],
        })
    );
    let bare = ChatRequest { system: String::new(), cache: false, ..with_tools() };
    let written = WireName::Messages.body(&bare, false);
    assert!(written.get("system").is_none() && !written.to_string().contains("cache_control"));
    let cached = WireName::Messages.body(&ChatRequest { cache: true, ..bare }, false);
    assert_eq!(cached["tools"][0]["cache_control"]["type"], "ephemeral");
}

#[test]
fn conversation_is_encoded_for_responses() {
    assert_eq!(
        WireName::Responses.body(&with_tools(), true),
        json!({
            "model": "m-1", "max_output_tokens": 100, "store": false, "instructions": "be brief",
            "tools": [{
                "type": "function", "name": "bash", "description": "Runs a command.",
                "parameters": {"type": "object"}, "strict": false,
            }],
            "input": [
                {"role": "user", "content": [{"type": "input_text", "text": "count the files"}]},
                {"role": "assistant", "content": "I look."},
                {"type": "function_call", "call_id": "a", "name": "bash", "arguments": "{\"command\":\"ls\"}"},
                {"type": "function_call", "call_id": "b", "name": "my_tool", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "a", "output": "two"},
                {"type": "function_call_output", "call_id": "b", "output": "no such tool"},
            ],
        })
    );
    for (model, reasons) in [
        ("o3", true),
        ("o4-mini", true),
        ("gpt-5.1-codex", true),
        ("openai/gpt-5-mini", true),
        ("gpt-12", true),
        ("gpt-5-chat-latest", false),
        ("gpt-4.1", false),
        ("olmo", false),
        ("qwen3", false),
    ] {
        let written = WireName::Responses.body(&ChatRequest { model: model.into(), ..request() }, true);
        assert_eq!(written.get("include").is_some(), reasons, "{model}");
    }
}

#[test]
fn conversation_is_encoded_for_chat() {
    assert_eq!(
        WireName::Chat.body(&with_tools(), false),
        json!({
            "model": "m-1", "max_tokens": 100, "stream": false,
            "tools": [{"type": "function", "function": {
                "name": "bash", "description": "Runs a command.", "parameters": {"type": "object"},
            }}],
            "messages": [
                {"role": "system", "content": "be brief"},
                {"role": "user", "content": "count the files"},
                {"role": "assistant", "content": "I look.", "tool_calls": [
                    {"id": "a", "type": "function", "function": {"name": "bash", "arguments": "{\"command\":\"ls\"}"}},
                    {"id": "b", "type": "function", "function": {"name": "my_tool", "arguments": "{}"}},
                ]},
                {"role": "tool", "tool_call_id": "a", "content": "two"},
                {"role": "tool", "tool_call_id": "b", "content": "no such tool"},
            ],
        })
    );
    let vendor = WireName::Chat.body(&request(), true);
    assert!(vendor["max_completion_tokens"] == 100 && vendor.get("max_tokens").is_none());
}

#[test]
fn schema_is_encoded_for_each_wire_format() {
    let schema = Some(AnswerSchema { name: "plan".into(), schema: json!({"type": "object"}) });
    let with_schema = ChatRequest { schema, ..request() };
    let messages = WireName::Messages.body(&with_schema, false);
    assert_eq!(messages["tool_choice"], json!({"type": "tool", "name": "plan"}));
    assert_eq!(messages["tools"][0]["input_schema"], json!({"type": "object"}));
    let responses = WireName::Responses.body(&with_schema, false);
    assert_eq!(responses["text"]["format"]["schema"], json!({"type": "object"}));
    let chat = WireName::Chat.body(&with_schema, false);
    assert_eq!(chat["response_format"]["json_schema"]["name"], "plan");

    let given = json!({"content": [{"type": "tool_use", "id": "x", "name": "plan", "input": {"a": 1}}],
        "stop_reason": "tool_use"});
    let answer = WireName::Messages.answer(&with_schema, &given).unwrap();
    assert_eq!((answer.turn.text.as_str(), answer.turn.calls.len(), answer.stop), (r#"{"a":1}"#, 0, ModelStop::End));
    let tools = ChatRequest { tools: with_tools().tools, ..with_schema };
    assert_eq!(WireName::Messages.body(&tools, false)["tool_choice"], json!({"type": "any"}));
}

/// Documents from Anthropic's documentation, with additional unknown fields.
#[test]
fn messages_answers_are_parsed() {
    let answer = good(
        WireName::Messages,
        json!({
            "id": "msg_01", "type": "message", "role": "assistant", "model": "claude-x-20260101", "novel": {"a": [1]},
            "content": [{"type": "text", "text": "I will ", "citations": null}, {"type": "text", "text": "look."},
                {"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {"command": "ls"}, "caller": {}}],
            "stop_reason": "tool_use", "stop_sequence": null,
            "usage": {"input_tokens": 12, "cache_creation_input_tokens": 30, "cache_read_input_tokens": 2000,
                "output_tokens": 25, "service_tier": "standard", "cache_creation": {}},
        }),
    );
    let call = ToolCall { id: "toolu_1".into(), name: "bash".into(), arguments: r#"{"command":"ls"}"#.into() };
    assert_eq!(answer.turn, ModelTurn { text: "I will look.".into(), calls: vec![call], original: Value::Null });
    assert_eq!((answer.stop, answer.model.as_str()), (ModelStop::Tools, "claude-x-20260101"));
    assert_eq!(answer.usage, Some(TokenUsage { input: 12, output: 25, cache_read: 2000, cache_write: 30 }));

    let content = json!([{"type": "thinking", "thinking": "hm", "signature": "c2ln"}, {"type": "text", "text": "yes"}]);
    let sealed = good(WireName::Messages, json!({"content": content, "stop_reason": "end_turn"}));
    assert_eq!((sealed.turn.text.as_str(), &sealed.turn.original), ("yes", &content));
    let again = ChatRequest { messages: vec![ChatMessage::Model(sealed.turn)], ..request() };
    assert_eq!(WireName::Messages.body(&again, false)["messages"][0]["content"], content);
    assert_eq!((sealed.usage, sealed.model.as_str()), (None, "m-1"));
}

/// Documents from OpenAI's documentation.
#[test]
fn responses_answers_are_parsed() {
    let answer = good(
        WireName::Responses,
        json!({
            "id": "resp_1", "object": "response", "status": "completed", "error": null, "incomplete_details": null,
            "model": "gpt-5.1-2026", "output": [
                {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "gAAA"},
                {"id": "rs_2", "type": "reasoning", "summary": []},
                {"id": "ws_1", "type": "web_search_call", "status": "completed"},
                {"id": "msg_1", "type": "message", "status": "completed", "role": "assistant", "phase": "commentary",
                 "content": [{"type": "output_text", "text": "On it.", "annotations": []}]},
                {"id": "fc_1", "type": "function_call", "status": "completed", "call_id": "call_9", "name": "bash",
                 "arguments": "{\"command\":\"ls\"}"},
            ],
            "usage": {"input_tokens": 100, "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 30}, "output_tokens": 20,
                "output_tokens_details": {"reasoning_tokens": 15}, "total_tokens": 120},
        }),
    );
    assert_eq!((answer.turn.text.as_str(), answer.stop), ("On it.", ModelStop::Tools));
    assert_eq!(answer.turn.calls[0].id, "call_9");
    assert_eq!(answer.usage, Some(TokenUsage { input: 10, output: 20, cache_read: 60, cache_write: 30 }));
    let again = ChatRequest { messages: vec![ChatMessage::Model(answer.turn)], ..request() };
    assert_eq!(
        WireName::Responses.body(&again, false)["input"],
        json!([
            {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "gAAA"},
            {"id": "msg_1", "type": "message", "status": "completed", "role": "assistant", "phase": "commentary",
             "content": [{"type": "output_text", "text": "On it.", "annotations": []}]},
            {"id": "fc_1", "type": "function_call", "status": "completed", "call_id": "call_9", "name": "bash",
             "arguments": "{\"command\":\"ls\"}"},
        ])
    );
}

/// Documents of Ollama, vLLM, llama.cpp and gateways.
#[test]
fn chat_answers_are_parsed() {
    let answer = good(
        WireName::Chat,
        json!({
            "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "qwen3:8b", "system_fingerprint": "fp",
            "choices": [{"index": 0, "logprobs": null, "finish_reason": "stop", "message": {
                "role": "assistant", "content": null, "reasoning_content": "let me see", "tool_calls": [
                    {"type": "function", "function": {"name": "bash", "arguments": {"command": "ls"}}},
                    {"id": "c", "function": {"name": "bash", "arguments": "{\"comm"}},
                    {"id": "c", "function": {"name": "edit"}},
                ]}}],
            "usage": {"prompt_tokens": 50.0, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 30}},
        }),
    );
    let calls: Vec<_> = answer.turn.calls.iter().map(|c| (c.id.as_str(), c.arguments.as_str())).collect();
    assert_eq!(calls, [("call_1_bash", r#"{"command":"ls"}"#), ("c", "{\"comm"), ("call_3_edit", "{}")]);
    assert_eq!(answer.stop, ModelStop::Tools, "whatever it says: there are calls");
    assert_eq!(answer.usage, Some(TokenUsage { input: 20, output: 7, cache_read: 30, cache_write: 0 }));
    let again = ChatRequest { messages: vec![ChatMessage::Model(answer.turn)], ..request() };
    assert_eq!(WireName::Chat.body(&again, false)["messages"][1]["reasoning_content"], "let me see");

    let parts = json!({"choices": [{"message": {"content": [{"type": "text", "text": "a"}, {"text": "b"}, 3]}}],
        "usage": {"prompt_tokens": 9, "prompt_cache_hit_tokens": 4}});
    let parts = good(WireName::Chat, parts);
    assert_eq!((parts.turn.text.as_str(), parts.stop), ("ab", ModelStop::End));
    assert_eq!(parts.usage.map(|usage| (usage.input, usage.cache_read)), Some((5, 4)));
}

#[test]
fn stop_reasons_are_parsed() {
    let messages = |reason: Value| json!({"content": [{"type": "text", "text": "t"}], "stop_reason": reason});
    let responses = |status: &str, details: Value, part: &str| {
        json!({"status": status, "incomplete_details": details,
            "output": [{"type": "message", "content": [{"type": part, part: "t"}]}]})
    };
    let chat = |reason: Value| json!({"choices": [{"message": {"content": "t"}, "finish_reason": reason}]});
    let other = |word: &str| ModelStop::Other(word.into());
    for (wire, document, stop) in [
        (WireName::Messages, messages("end_turn".into()), ModelStop::End),
        (WireName::Messages, messages("stop_sequence".into()), ModelStop::End),
        (WireName::Messages, messages("max_tokens".into()), ModelStop::MaxTokens),
        (WireName::Messages, messages("refusal".into()), ModelStop::Refused),
        (WireName::Messages, messages("model_context_window_exceeded".into()), ModelStop::ContextFull),
        (WireName::Messages, messages("pause_turn".into()), other("pause_turn")),
        (WireName::Messages, messages(Value::Null), ModelStop::End),
        (WireName::Responses, responses("completed", Value::Null, "text"), ModelStop::End),
        (WireName::Responses, responses("completed", Value::Null, "refusal"), ModelStop::Refused),
        (
            WireName::Responses,
            responses("incomplete", json!({"reason": "max_output_tokens"}), "text"),
            ModelStop::MaxTokens,
        ),
        (WireName::Responses, responses("incomplete", json!({"reason": "content_filter"}), "text"), ModelStop::Refused),
        (WireName::Responses, responses("incomplete", json!({"reason": "novel"}), "text"), other("novel")),
        (WireName::Responses, responses("cancelled", Value::Null, "text"), other("cancelled")),
        (WireName::Chat, chat("stop".into()), ModelStop::End),
        (WireName::Chat, chat("length".into()), ModelStop::MaxTokens),
        (WireName::Chat, chat("content_filter".into()), ModelStop::Refused),
        (WireName::Chat, chat("novel".into()), other("novel")),
        (WireName::Chat, chat(Value::Null), ModelStop::End),
        (
            WireName::Chat,
            json!({"choices": [{"message": {"content": null, "refusal": "no"}, "finish_reason": "stop"}]}),
            ModelStop::Refused,
        ),
    ] {
        assert_eq!(good(wire, document.clone()).stop, stop, "{document}");
    }
}

#[test]
fn foreign_answers_are_reported_with_missing_part() {
    for wire in ALL {
        for document in [
            json!({}),
            json!([]),
            json!(null),
            json!("text"),
            json!({"content": 1, "output": "x", "choices": {}}),
            json!({"choices": []}),
            json!({"choices": [{"message": "x"}]}),
        ] {
            assert!(matches!(read(wire, document.clone()), Err(AnswerError::Foreign(_))), "{wire:?} {document}");
        }
        // Invalid parts are ignored.
        let odd = json!({"content": [1, {}, {"type": 7}], "output": [null, {"type": "message", "content": 3}],
            "choices": [{"message": {"content": 7, "tool_calls": [1, {}]}}], "usage": [], "model": ""});
        let odd = good(wire, odd);
        assert_eq!((odd.turn.text.as_str(), odd.usage, odd.model.as_str()), ("", None, "m-1"));
        for usage in [json!(null), json!({}), json!({"input_tokens": -4, "prompt_tokens": "x"})] {
            let document = json!({"content": [], "output": [], "choices": [{"message": {}}], "usage": usage});
            assert_eq!(good(wire, document).usage, None);
        }
    }
}

#[test]
fn errors_are_parsed_in_all_shapes() {
    for (document, code, message) in [
        (
            r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"},"request_id":"req_1"}"#,
            "overloaded_error",
            "Overloaded",
        ),
        (
            r#"{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}"#,
            "insufficient_quota",
            "You exceeded your current quota",
        ),
        (
            r#"{"error":{"message":"too long","type":"invalid_request_error","code":"context_length_exceeded"}}"#,
            "context_length_exceeded",
            "too long",
        ),
        (r#"{"error":"model 'x' not found"}"#, "", "model 'x' not found"),
        (
            r#"{"object":"error","message":"bad","type":"BadRequestError","param":null,"code":400}"#,
            "BadRequestError",
            "bad",
        ),
        (
            r#"{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}"#,
            "unavailable_error",
            "Loading model",
        ),
        (r#"{"detail":"Not Found"}"#, "", "Not Found"),
        (r#"{"detail":[{"loc":["body"],"msg":"field required"}]}"#, "", r#"[{"loc":["body"],"msg":"field required"}]"#),
        ("upstream connect error", "", "upstream connect error"),
        ("<!DOCTYPE html><title>x", "", "a web page"),
    ] {
        let fault = fault::of_body(document.as_bytes());
        assert_eq!((fault.code.as_deref().unwrap_or(""), fault.messages[0].as_str()), (code, message), "{document}");
    }
    let google = fault::of_body(
        br#"[{"error":{"code":429,"message":"spent","status":"RESOURCE_EXHAUSTED","details":[{"retryDelay":"36s"}]}}]"#,
    );
    assert_eq!(
        (google.code.as_deref(), google.messages),
        (Some("RESOURCE_EXHAUSTED"), vec!["spent".into(), "retryDelay: 36s".into()])
    );
    let codex = fault::of_body(
        br#"{"error":{"type":"usage_limit_reached","message":"m","resets_at":1704067242,"resets_in_seconds":1234}}"#,
    );
    assert_eq!((codex.resets_at, codex.resets_in), (Some(1_704_067_242), Some(1234.0)));
    assert_eq!(fault::of_body(b"").summary(), "no details were given");
    let failed = read(
        WireName::Responses,
        json!({"status": "failed", "error": {"code": "server_error", "message": "sorry"}, "output": []}),
    );
    let Err(AnswerError::Provider(failed)) = failed else { panic!("{failed:?}") };
    assert!(failed.is_temporary() && failed.summary() == "server_error: sorry");
    for wire in ALL {
        let gateway = read(wire, json!({"error": {"message": "no provider", "code": 502, "metadata": {"raw": "why"}}}));
        let Err(AnswerError::Provider(gateway)) = gateway else { panic!("{gateway:?}") };
        assert_eq!(gateway.messages, ["no provider", "why"]);
    }
    let long = fault::of_body("ä".repeat(100_000).as_bytes());
    assert!(long.messages[0].chars().count() <= 2_000);
}

proptest::proptest! {
    #![proptest_config(test_support::cases(64))]
    #[test]
    fn arbitrary_documents_do_not_panic(text in r#"[\[\]{}:,"a-z0-9 .-]{0,80}"#, name in "\\PC{0,80}") {
        let _ = fault::of_body(text.as_bytes());
        for wire in ALL {
            for field in ["content", "output", "choices", "error", "usage", "status"] {
                let inner = serde_json::from_str::<Value>(&text).unwrap_or(Value::String(text.clone()));
                let document = json!({"content": [], "output": [], "choices": [{"message": {}}]});
                let mut document = document;
                document[field] = inner;
                let _ = wire.answer(&request(), &document);
            }
        }
        let safe = safe_name(&name);
        proptest::prop_assert!(!safe.is_empty() && safe.len() <= 64);
        proptest::prop_assert!(safe.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-'));
    }
}

#[test]
fn images_follow_the_text_in_the_form_of_each_server() {
    let image = ChatImage { name: "image-1.png".into(), media_type: "image/png", base64: "iVBOR".into() };
    let shown = ChatRequest { messages: vec![ChatMessage::UserWithImages("look".into(), vec![image])], ..request() };
    let body = WireName::Messages.body(&shown, false);
    assert_eq!(
        body["messages"][0]["content"],
        json!([
            {"type": "text", "text": "look"},
            {"type": "text", "text": "image-1.png"},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBOR"}},
        ])
    );
    let body = WireName::Responses.body(&shown, true);
    assert_eq!(
        body["input"][0]["content"],
        json!([
            {"type": "input_text", "text": "look"},
            {"type": "input_text", "text": "image-1.png"},
            {"type": "input_image", "image_url": "data:image/png;base64,iVBOR", "detail": "auto"},
        ])
    );
    let body = WireName::Chat.body(&shown, false);
    assert_eq!(
        body["messages"][1]["content"],
        json!([
            {"type": "text", "text": "look"},
            {"type": "text", "text": "image-1.png"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBOR"}},
        ])
    );
}
