//! APIs of model providers on loopback, with a scripted model: Anthropic Messages, OpenAI Responses and Chat Completions,
//! and Google Gemini.

use std::sync::{Arc, Mutex};

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Scripted behavior of the model.
#[derive(Clone)]
pub enum ModelScript {
    /// Calls a tool, and finishes after its result.
    Calls(&'static str, Value),
    /// Answers with this text.
    Says(&'static str),
    /// Refuses with this status, without a retry time.
    Refuses(u16),
    /// Refuses with this status, body and headers.
    Tells(u16, Value, &'static [(&'static str, &'static str)]),
    /// Returns malformed responses.
    Babbles,
    /// Never answers.
    Hangs,
}

/// API of a model provider on loopback.
pub struct ProviderServer {
    /// Base URL, without a trailing slash.
    pub url: String,
    state: Arc<ProviderServerState>,
    /// Number of requests for an answer of the model.
    pub asked: watch::Receiver<u32>,
    _task: JoinSet<()>,
}

struct ProviderServerState {
    model: ModelScript,
    asked: watch::Sender<u32>,
    requests: Mutex<Vec<(String, HeaderMap, Bytes)>>,
}

impl ProviderServer {
    /// Starts the server, which runs until it is dropped.
    pub async fn start(model: ModelScript) -> Self {
        let (sender, asked) = watch::channel(0);
        let state = Arc::new(ProviderServerState { model, asked: sender, requests: Mutex::default() });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let router = axum::Router::new().fallback(reply).with_state(state.clone());
        let mut task = JoinSet::new();
        task.spawn(async move { axum::serve(listener, router).await.expect("it serves") });
        Self { url, state, asked, _task: task }
    }

    /// Requests for an answer of the model.
    pub fn messages(&self) -> Vec<(HeaderMap, Value)> {
        let requests = self.state.requests.lock().expect("no panic");
        let asked = requests.iter().filter(|(path, _, _)| ProviderApi::of(path).is_some());
        asked.map(|(_, headers, body)| (headers.clone(), serde_json::from_slice(body).expect("JSON"))).collect()
    }
}

/// API that a request belongs to.
#[derive(Clone, Copy, PartialEq)]
enum ProviderApi {
    Messages,
    Responses,
    Chat,
    Gemini,
}

impl ProviderApi {
    fn of(path: &str) -> Option<Self> {
        match path {
            "/v1/messages" => Some(Self::Messages),
            "/v1/responses" => Some(Self::Responses),
            "/v1/chat/completions" => Some(Self::Chat),
            _ if path.contains("/models/") && path.contains("enerateContent") => Some(Self::Gemini),
            _ => None,
        }
    }

    /// Whether the model has received the result of its tool call, or has no tool to call.
    fn has_result(self, request: &Value) -> bool {
        let messages = request["messages"].to_string();
        match self {
            Self::Messages => messages.contains("tool_result"),
            Self::Responses => request["input"]
                .as_array()
                .into_iter()
                .flatten()
                .any(|item| item["type"].as_str().is_some_and(|kind| kind.ends_with("_call_output"))),
            Self::Chat => messages.contains("\"role\":\"tool\"") || !request["tools"].is_array(),
            Self::Gemini => request["contents"].to_string().contains("functionResponse"),
        }
    }

    fn says(self, text: &str) -> String {
        match self {
            Self::Messages => said(text),
            Self::Responses => {
                let text = json!([{ "type": "output_text", "text": text, "annotations": [] }]);
                responded(&json!({ "type": "message", "id": "msg_1", "role": "assistant", "content": text }))
            }
            Self::Chat => chatted(&json!({ "role": "assistant", "content": text }), "stop"),
            Self::Gemini => generated(&json!({ "text": text })),
        }
    }

    fn calls(self, tool: &str, input: &Value) -> String {
        let arguments = input.to_string();
        match self {
            Self::Messages => called(tool, input),
            Self::Responses => responded(&json!({
                "type": "function_call", "id": "fc_1", "call_id": "call_1", "name": tool, "arguments": arguments,
            })),
            Self::Chat => {
                let function = json!({ "name": tool, "arguments": arguments });
                let call = json!({ "index": 0, "id": "call_1", "type": "function", "function": function });
                chatted(&json!({ "role": "assistant", "tool_calls": [call] }), "tool_calls")
            }
            Self::Gemini => generated(&json!({ "functionCall": { "name": tool, "args": input } })),
        }
    }
}

async fn reply(State(provider): State<Arc<ProviderServerState>>, request: Request) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path().to_owned();
    let body = axum::body::to_bytes(body, 16 * 1024 * 1024).await.expect("a request");
    provider.requests.lock().expect("no panic").push((path.clone(), parts.headers, body.clone()));
    let Some(api) = ProviderApi::of(&path) else { return answer(404, "application/json", "{}".to_owned()) };
    provider.asked.send_modify(|asked| *asked += 1);
    match &provider.model {
        ModelScript::Hangs => std::future::pending().await,
        ModelScript::Babbles => answer(200, "text/html", "<html>\u{1} a page {\"type\":".to_owned()),
        ModelScript::Refuses(status) => {
            let kind = if *status == 429 { "rate_limit_error" } else { "api_error" };
            let error = json!({ "type": kind, "message": "not now", "code": status, "status": "UNAVAILABLE" });
            let error = if api == ProviderApi::Gemini { error } else { json!({ "type": kind, "message": "not now" }) };
            refusal(*status, &json!({ "type": "error", "error": error }), &[])
        }
        ModelScript::Tells(status, body, headers) => refusal(*status, body, headers),
        ModelScript::Calls(tool, input) => {
            let request: Value = serde_json::from_slice(&body).expect("JSON");
            let done = api.has_result(&request);
            let text = if done { api.says("All done.") } else { api.calls(tool, input) };
            answer(200, "text/event-stream", text)
        }
        ModelScript::Says(text) => {
            let request: Value = serde_json::from_slice(&body).expect("JSON");
            if api == ProviderApi::Chat && request["stream"] != true {
                return answer(200, "application/json", chatted_at_once(text).to_string());
            }
            answer(200, "text/event-stream", api.says(text))
        }
    }
}

fn refusal(status: u16, body: &Value, headers: &[(&'static str, &'static str)]) -> Response<Body> {
    let mut refusal = answer(status, "application/json", body.to_string());
    let headers = headers.iter().map(|(name, value)| (*name, HeaderValue::from_static(value)));
    headers.for_each(|(name, value)| drop(refusal.headers_mut().insert(name, value)));
    refusal
}

fn answer(status: u16, kind: &'static str, body: String) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = StatusCode::from_u16(status).expect("a status");
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

fn called(tool: &str, input: &Value) -> String {
    let block = json!({ "type": "tool_use", "id": "toolu_1", "name": tool, "input": {} });
    let delta = json!({ "type": "input_json_delta", "partial_json": input.to_string() });
    streamed("msg_1", &block, &delta, "tool_use")
}

fn said(text: &str) -> String {
    let delta = json!({ "type": "text_delta", "text": text });
    streamed("msg_2", &json!({ "type": "text", "text": "" }), &delta, "end_turn")
}

/// Message of Anthropic as a stream of events.
fn streamed(id: &str, block: &Value, delta: &Value, stop: &str) -> String {
    let usage = json!({
        "input_tokens": 100, "cache_creation_input_tokens": 20, "cache_read_input_tokens": 3, "output_tokens": 1,
    });
    let message = json!({
        "id": id, "type": "message", "role": "assistant", "model": "claude-sonnet-4-5", "content": [],
        "stop_reason": null, "stop_sequence": null, "usage": usage,
    });
    let end = json!({ "stop_reason": stop, "stop_sequence": null });
    let events = [
        json!({ "type": "message_start", "message": message }),
        json!({ "type": "content_block_start", "index": 0, "content_block": block }),
        json!({ "type": "content_block_delta", "index": 0, "delta": delta }),
        json!({ "type": "content_block_stop", "index": 0 }),
        json!({ "type": "message_delta", "delta": end, "usage": { "output_tokens": 50 } }),
        json!({ "type": "message_stop" }),
    ];
    let line = |event: &Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().expect("a type"));
    events.iter().map(line).collect()
}

/// Response of OpenAI Responses as a stream of events.
fn responded(item: &Value) -> String {
    let usage = json!({
        "input_tokens": 123, "input_tokens_details": { "cached_tokens": 3 }, "output_tokens": 50,
        "output_tokens_details": { "reasoning_tokens": 10 }, "total_tokens": 173,
    });
    let begun = json!({ "id": "resp_1", "object": "response", "created_at": 1, "status": "in_progress", "output": [] });
    let mut over = begun.clone();
    (over["status"], over["output"], over["usage"]) = (json!("completed"), json!([item]), usage);
    let events = [
        json!({ "type": "response.created", "response": begun }),
        json!({ "type": "response.output_item.added", "output_index": 0, "item": item }),
        json!({ "type": "response.output_item.done", "output_index": 0, "item": item }),
        json!({ "type": "response.completed", "response": over }),
    ];
    let line = |event: &Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().expect("a type"));
    events.iter().map(line).collect()
}

/// Response of OpenAI Chat Completions as a stream of chunks.
fn chatted(delta: &Value, end: &str) -> String {
    let chunk = |choices: Value| json!({ "id": "chat_1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices });
    let mut usage = chunk(json!([]));
    usage["usage"] = chat_usage();
    let said = chunk(json!([{ "index": 0, "delta": delta, "finish_reason": null }]));
    let over = chunk(json!([{ "index": 0, "delta": {}, "finish_reason": end }]));
    format!("data: {said}\n\ndata: {over}\n\ndata: {usage}\n\ndata: [DONE]\n\n")
}

/// Response of OpenAI Chat Completions as one JSON document.
fn chatted_at_once(text: &str) -> Value {
    let message = json!({ "role": "assistant", "content": text });
    let choices = json!([{ "index": 0, "message": message, "finish_reason": "stop" }]);
    json!({
        "id": "chat_1", "object": "chat.completion", "created": 1, "model": "m", "choices": choices, "usage": chat_usage(),
    })
}

fn chat_usage() -> Value {
    json!({
        "prompt_tokens": 123, "completion_tokens": 50, "total_tokens": 173,
        "prompt_tokens_details": { "cached_tokens": 3 },
    })
}

/// Response of Gemini as a stream of one event.
fn generated(part: &Value) -> String {
    let answer = json!({
        "candidates": [{ "content": { "role": "model", "parts": [part] }, "finishReason": "STOP", "index": 0 }],
        "usageMetadata": {
            "promptTokenCount": 123, "candidatesTokenCount": 40, "thoughtsTokenCount": 10, "totalTokenCount": 173,
            "cachedContentTokenCount": 3,
        },
        "modelVersion": "m",
    });
    format!("data: {answer}\n\n")
}
