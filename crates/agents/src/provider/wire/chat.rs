//! OpenAI's Chat Completions API and the variants of compatible servers.

use serde_json::{Value, json};

use super::{AnswerError, add_call, arguments_object, model_of, safe_name};
use crate::domain::providers::chat::{ChatAnswer, ChatMessage, ChatRequest, ModelStop, ModelTurn};
use crate::domain::providers::usage::ReportedUsage;

/// Names of fields with reasoning. Some servers reject the next request if it does not contain them.
const REASONING: [&str; 3] = ["reasoning_content", "reasoning_details", "reasoning"];

/// Returns the body of a request. OpenAI requires the newer field name for the maximum number of tokens; compatible servers only
/// support the older name.
pub(super) fn to_json(request: &ChatRequest, vendor: bool) -> Value {
    let mut messages = Vec::new();
    if !request.system.is_empty() {
        messages.push(json!({ "role": "system", "content": request.system }));
    }
    messages.extend(request.messages.iter().flat_map(entries));
    let longest = if vendor { "max_completion_tokens" } else { "max_tokens" };
    let mut body = json!({ "model": request.model, "messages": messages, "stream": false });
    body[longest] = request.max_tokens.into();
    if !request.tools.is_empty() {
        let tool = |tool: &crate::domain::providers::chat::ToolDefinition| {
            json!({
                "type": "function",
                "function": { "name": tool.name, "description": tool.description, "parameters": tool.parameters },
            })
        };
        body["tools"] = request.tools.iter().map(tool).collect();
    }
    if let Some(schema) = &request.schema {
        body["response_format"] = json!({
            "type": "json_schema",
            "json_schema": { "name": schema.name, "schema": schema.schema, "strict": false },
        });
    }
    body
}

fn entries(message: &ChatMessage) -> Vec<Value> {
    match message {
        ChatMessage::User(text) => vec![json!({ "role": "user", "content": text })],
        ChatMessage::UserWithImages(text, images) => {
            let part = |text: &str| json!({ "type": "text", "text": text });
            let shown = images.iter().flat_map(|image| {
                let image_part = json!({ "type": "image_url", "image_url": { "url": image.data_url() } });
                [part(&image.name), image_part]
            });
            let content: Vec<Value> = std::iter::once(part(text)).chain(shown).collect();
            vec![json!({ "role": "user", "content": content })]
        }
        ChatMessage::Results(results) => {
            results.iter().map(|r| json!({ "role": "tool", "tool_call_id": r.id, "content": r.text })).collect()
        }
        ChatMessage::Model(turn) => vec![assistant(turn)],
    }
}

fn assistant(turn: &ModelTurn) -> Value {
    let mut entry = json!({ "role": "assistant", "content": turn.text });
    if !turn.calls.is_empty() {
        let call = |call: &crate::domain::providers::chat::ToolCall| {
            let arguments = arguments_object(&call.arguments).to_string();
            json!({
                "id": call.id, "type": "function",
                "function": { "name": safe_name(&call.name), "arguments": arguments },
            })
        };
        entry["tool_calls"] = turn.calls.iter().map(call).collect();
    }
    if let (Value::Object(reasoning_fields), Some(fields)) = (&turn.original, entry.as_object_mut()) {
        fields.extend(reasoning_fields.iter().map(|(name, value)| (name.clone(), value.clone())));
    }
    entry
}

/// Parses the answer to `request`.
pub(super) fn from_json(request: &ChatRequest, document: &Value) -> Result<ChatAnswer, AnswerError> {
    let choice = &document["choices"][0];
    let message = &choice["message"];
    if !message.is_object() {
        return Err(AnswerError::Foreign("`choices` has no message".to_owned()));
    }
    let refusal = message["refusal"].as_str().filter(|refusal| !refusal.is_empty());
    let mut turn = ModelTurn { text: text_of(&message["content"]), ..ModelTurn::default() };
    if let Some(refusal) = refusal {
        turn.text.push_str(refusal);
    }
    for call in message["tool_calls"].as_array().into_iter().flatten() {
        let function = &call["function"];
        let name = function["name"].as_str().unwrap_or_default();
        add_call(&mut turn.calls, call["id"].as_str(), name, &function["arguments"]);
    }
    let reasoning: serde_json::Map<String, Value> = REASONING
        .iter()
        .filter(|name| !message[**name].is_null())
        .map(|name| ((*name).to_owned(), message[*name].clone()))
        .collect();
    if !reasoning.is_empty() {
        turn.original = Value::Object(reasoning);
    }
    let stop = match choice["finish_reason"].as_str().unwrap_or_default() {
        "length" => ModelStop::MaxTokens,
        "content_filter" => ModelStop::Refused,
        _ if refusal.is_some() => ModelStop::Refused,
        // Some servers send `stop` with tool calls.
        _ if !turn.calls.is_empty() => ModelStop::Tools,
        "" | "stop" | "tool_calls" | "function_call" => ModelStop::End,
        other => ModelStop::Other(other.to_owned()),
    };
    let usage = ReportedUsage::of_chat(&document["usage"]).reported();
    Ok(ChatAnswer { turn, stop, usage, model: model_of(document, request) })
}

/// Returns a text, or the joined texts of a list of parts.
fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        _ => String::new(),
    }
}
