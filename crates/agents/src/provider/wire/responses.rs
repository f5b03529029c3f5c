//! OpenAI's Responses API, without storage on the server.
//!
//! Reasoning models return their reasoning encrypted; it is sent back with the results of tools.

use serde_json::{Value, json};

use super::fault::{self, ProviderError};
use super::{AnswerError, add_call, arguments_object, model_of, safe_name};
use crate::domain::providers::chat::{ChatAnswer, ChatMessage, ChatRequest, ModelStop, ModelTurn};
use crate::domain::providers::usage::ReportedUsage;

/// Returns the body of a request.
pub(super) fn to_json(request: &ChatRequest) -> Value {
    let mut body = json!({
        "model": request.model,
        "input": request.messages.iter().flat_map(items).collect::<Vec<Value>>(),
        "max_output_tokens": request.max_tokens,
        "store": false,
    });
    if !request.system.is_empty() {
        body["instructions"] = Value::String(request.system.clone());
    }
    if !request.tools.is_empty() {
        let tool = |tool: &crate::domain::providers::chat::ToolDefinition| {
            json!({
                "type": "function", "name": tool.name, "description": tool.description,
                "parameters": tool.parameters, "strict": false,
            })
        };
        body["tools"] = request.tools.iter().map(tool).collect();
    }
    if let Some(schema) = &request.schema {
        body["text"] = json!({
            "format": { "type": "json_schema", "name": schema.name, "schema": schema.schema, "strict": false },
        });
    }
    if reasons(&request.model) {
        // Other models refuse this field.
        body["include"] = json!(["reasoning.encrypted_content"]);
    }
    body
}

/// Whether a model with this name returns encrypted reasoning: `o1` … `o4-mini`, `gpt-5` and later, Codex models.
fn reasons(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or(model);
    let number = |rest: &str| rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse::<u32>().ok();
    name.strip_prefix('o').and_then(number).is_some()
        || name.contains("codex")
        || (name.strip_prefix("gpt-").and_then(number).is_some_and(|n| n >= 5) && !name.contains("chat"))
}

fn items(message: &ChatMessage) -> Vec<Value> {
    match message {
        ChatMessage::User(text) => vec![json!({ "role": "user", "content": [input_text(text)] })],
        ChatMessage::UserWithImages(text, images) => {
            let shown = images.iter().flat_map(|image| {
                let image_part = json!({ "type": "input_image", "image_url": image.data_url(), "detail": "auto" });
                [input_text(&image.name), image_part]
            });
            let content: Vec<Value> = std::iter::once(input_text(text)).chain(shown).collect();
            vec![json!({ "role": "user", "content": content })]
        }
        ChatMessage::Results(results) => results
            .iter()
            .map(|r| json!({ "type": "function_call_output", "call_id": r.id, "output": r.text }))
            .collect(),
        ChatMessage::Model(turn) => match &turn.original {
            Value::Array(items) if !items.is_empty() => items.clone(),
            _ => turn_items(turn),
        },
    }
}

fn input_text(text: &str) -> Value {
    json!({ "type": "input_text", "text": text })
}

fn turn_items(turn: &ModelTurn) -> Vec<Value> {
    let mut items = Vec::new();
    if !turn.text.trim().is_empty() {
        items.push(json!({ "role": "assistant", "content": turn.text }));
    }
    for call in &turn.calls {
        let arguments = arguments_object(&call.arguments).to_string();
        items.push(json!({
            "type": "function_call", "call_id": call.id, "name": safe_name(&call.name), "arguments": arguments,
        }));
    }
    items
}

/// Parses the answer to `request`.
pub(super) fn from_json(request: &ChatRequest, document: &Value) -> Result<ChatAnswer, AnswerError> {
    if document["status"] == "failed" {
        let mut fault: ProviderError = fault::of_document(&document["error"]);
        if fault.messages.is_empty() {
            fault.messages.push("the response failed".to_owned());
        }
        return Err(AnswerError::Provider(fault));
    }
    let output = document["output"]
        .as_array()
        .ok_or_else(|| AnswerError::Foreign("`output` is missing or not a list".to_owned()))?;
    let mut turn = ModelTurn::default();
    let mut refused = false;
    let mut kept_items = Vec::new();
    let mut sealed = false;
    for item in output {
        match item["type"].as_str().unwrap_or_default() {
            "message" => {
                for part in item["content"].as_array().into_iter().flatten() {
                    refused |= part["type"] == "refusal";
                    let text = part["text"].as_str().or(part["refusal"].as_str()).unwrap_or_default();
                    turn.text.push_str(text);
                }
            }
            "function_call" => {
                let name = item["name"].as_str().unwrap_or_default();
                add_call(&mut turn.calls, item["call_id"].as_str().or(item["id"].as_str()), name, &item["arguments"]);
            }
            "reasoning" if item["encrypted_content"].is_string() => sealed = true,
            // Without its encrypted part, reasoning would be looked up on the server, which stores nothing.
            _ => continue,
        }
        kept_items.push(item.clone());
    }
    if sealed {
        turn.original = Value::Array(kept_items);
    }
    let stop = match document["incomplete_details"]["reason"].as_str() {
        Some("max_output_tokens") => ModelStop::MaxTokens,
        Some("content_filter") => ModelStop::Refused,
        Some(other) => ModelStop::Other(other.to_owned()),
        None if refused => ModelStop::Refused,
        None if !turn.calls.is_empty() => ModelStop::Tools,
        None => match document["status"].as_str() {
            None | Some("completed") => ModelStop::End,
            Some(other) => ModelStop::Other(other.to_owned()),
        },
    };
    let usage = ReportedUsage::of_responses(&document["usage"]).reported();
    Ok(ChatAnswer { turn, stop, usage, model: model_of(document, request) })
}
