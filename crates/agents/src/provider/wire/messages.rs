//! Anthropic's Messages API (version 2023-06-01).
//!
//! To request a structured answer, the model has to call a tool that has the answer's schema. Every model and
//! compatible server supports this.

use serde_json::{Value, json};

use super::{AnswerError, add_call, arguments_object, model_of, safe_name};
use crate::domain::providers::chat::{ChatAnswer, ChatMessage, ChatRequest, ModelStop, ModelTurn};
use crate::domain::providers::usage::ReportedUsage;

/// Returns the body of a request.
pub(super) fn to_json(request: &ChatRequest) -> Value {
    let mut body = json!({ "model": request.model, "max_tokens": request.max_tokens });
    let mut tools: Vec<Value> = request
        .tools
        .iter()
        .map(|tool| json!({ "name": tool.name, "description": tool.description, "input_schema": tool.parameters }))
        .collect();
    if let Some(schema) = &request.schema {
        tools.push(json!({
            "name": schema.name,
            "description": "Returns the answer. Call it exactly once, with the whole answer.",
            "input_schema": schema.schema,
        }));
        body["tool_choice"] = if request.tools.is_empty() {
            json!({ "type": "tool", "name": schema.name })
        } else {
            json!({ "type": "any" })
        };
    }
    let mut messages: Vec<Value> = request.messages.iter().filter_map(message).collect();
    if request.cache {
        // The order of the cache is tools, system, messages: a mark covers everything before it.
        if let Some(tool) = tools.last_mut().filter(|_| request.system.is_empty()) {
            mark(tool);
        }
        if let Some(last) = messages.last_mut().and_then(|m| m["content"].as_array_mut()).and_then(|c| c.last_mut()) {
            mark(last);
        }
    }
    if !request.system.is_empty() {
        let mut system = json!({ "type": "text", "text": request.system });
        if request.cache {
            mark(&mut system);
        }
        body["system"] = json!([system]);
    }
    if !tools.is_empty() {
        body["tools"] = Value::Array(tools);
    }
    body["messages"] = Value::Array(messages);
    body
}

fn mark(block: &mut Value) {
    block["cache_control"] = json!({ "type": "ephemeral" });
}

/// Converts a message; `None` for an empty one, which the API rejects.
fn message(message: &ChatMessage) -> Option<Value> {
    let (role, content) = match message {
        ChatMessage::User(text) => ("user", vec![text_block(text)]),
        ChatMessage::UserWithImages(text, images) => {
            let shown = images.iter().flat_map(|image| {
                let source = json!({ "type": "base64", "media_type": image.media_type, "data": &*image.base64 });
                [text_block(&image.name), json!({ "type": "image", "source": source })]
            });
            ("user", std::iter::once(text_block(text)).chain(shown).collect())
        }
        ChatMessage::Results(results) => {
            let block = |result: &crate::domain::providers::chat::ToolResult| {
                json!({
                    "type": "tool_result", "tool_use_id": result.id, "content": result.text, "is_error": result.failed,
                })
            };
            ("user", results.iter().map(block).collect())
        }
        ChatMessage::Model(turn) => ("assistant", turn_blocks(turn)),
    };
    (!content.is_empty()).then(|| json!({ "role": role, "content": content }))
}

fn text_block(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

fn turn_blocks(turn: &ModelTurn) -> Vec<Value> {
    if let Value::Array(blocks) = &turn.original
        && !blocks.is_empty()
    {
        return blocks.clone();
    }
    let mut blocks = Vec::new();
    if !turn.text.trim().is_empty() {
        blocks.push(text_block(&turn.text));
    }
    for call in &turn.calls {
        blocks.push(json!({
            "type": "tool_use", "id": call.id, "name": safe_name(&call.name), "input": arguments_object(&call.arguments),
        }));
    }
    blocks
}

/// Parses the answer to `request`.
pub(super) fn from_json(request: &ChatRequest, document: &Value) -> Result<ChatAnswer, AnswerError> {
    let content = document["content"]
        .as_array()
        .ok_or_else(|| AnswerError::Foreign("`content` is missing or not a list".to_owned()))?;
    let mut turn = ModelTurn::default();
    let mut given = None;
    let mut sealed = false;
    for block in content {
        match block["type"].as_str().unwrap_or_default() {
            "text" => turn.text.push_str(block["text"].as_str().unwrap_or_default()),
            "tool_use" => {
                let name = block["name"].as_str().unwrap_or_default();
                if request.schema.as_ref().is_some_and(|schema| schema.name == name) {
                    given.get_or_insert_with(|| block["input"].to_string());
                } else {
                    add_call(&mut turn.calls, block["id"].as_str(), name, &block["input"]);
                }
            }
            // Reasoning has a signature and must be sent back unchanged.
            _ => sealed = true,
        }
    }
    if sealed {
        turn.original = Value::Array(content.clone());
    }
    let mut stop = match document["stop_reason"].as_str().unwrap_or_default() {
        "end_turn" | "stop_sequence" => ModelStop::End,
        "tool_use" => ModelStop::Tools,
        "max_tokens" => ModelStop::MaxTokens,
        "refusal" => ModelStop::Refused,
        "model_context_window_exceeded" => ModelStop::ContextFull,
        "" if !turn.calls.is_empty() => ModelStop::Tools,
        "" => ModelStop::End,
        other => ModelStop::Other(other.to_owned()),
    };
    if let Some(given) = given {
        turn.text = given;
        if stop == ModelStop::Tools && turn.calls.is_empty() {
            stop = ModelStop::End;
        }
    }
    let usage = ReportedUsage::of_messages(&document["usage"]).reported();
    Ok(ChatAnswer { turn, stop, usage, model: model_of(document, request) })
}
