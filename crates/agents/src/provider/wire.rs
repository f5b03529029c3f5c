//! Wire formats of providers: conversion of requests and responses to and from JSON, without I/O.
//!
//! Parsing is lenient: unknown fields and parts are ignored, and missing ones have a defined meaning. Requests are
//! strict: a model's mistakes that a server would reject, such as a tool name with spaces or arguments that are not
//! JSON, are corrected before they are sent back.

pub(super) mod chat;
pub(super) mod fault;
pub(super) mod messages;
pub(super) mod responses;

use serde_json::Value;

use crate::domain::providers::backends::WireName;
use crate::domain::providers::chat::{ChatAnswer, ChatRequest, ToolCall};
use fault::ProviderError;

/// Maximum length of a tool's name, in characters.
const MAX_NAME: usize = 64;

/// Conversion of requests and responses of a wire format.
pub(super) trait WireCodec {
    /// Returns the path segments of the endpoint, after the version.
    fn endpoint(self) -> &'static [&'static str];

    /// Returns the body of a request. `vendor` selects the field names of OpenAI itself, which differ from the names of
    /// compatible servers.
    fn body(self, request: &ChatRequest, vendor: bool) -> Value;

    /// Parses the response to `request`.
    ///
    /// # Errors
    /// The server reported an error, or the response has a different format.
    fn answer(self, request: &ChatRequest, document: &Value) -> Result<ChatAnswer, AnswerError>;
}

impl WireCodec for WireName {
    fn endpoint(self) -> &'static [&'static str] {
        match self {
            Self::Messages => &["messages"],
            Self::Responses => &["responses"],
            Self::Chat => &["chat", "completions"],
        }
    }

    fn body(self, request: &ChatRequest, vendor: bool) -> Value {
        match self {
            Self::Messages => messages::to_json(request),
            Self::Responses => responses::to_json(request),
            Self::Chat => chat::to_json(request, vendor),
        }
    }

    fn answer(self, request: &ChatRequest, document: &Value) -> Result<ChatAnswer, AnswerError> {
        // Gateways answer 200 and put the error into the body.
        if document.get("error").is_some_and(|error| !error.is_null()) {
            return Err(AnswerError::Provider(fault::of_document(document)));
        }
        match self {
            Self::Messages => messages::from_json(request, document),
            Self::Responses => responses::from_json(request, document),
            Self::Chat => chat::from_json(request, document),
        }
    }
}

/// Reason why a response could not be parsed.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum AnswerError {
    /// The server reported an error.
    Provider(ProviderError),
    /// The response has a different format; the text names the missing part.
    Foreign(String),
}

/// Returns the name of the model in the response, otherwise the requested one.
fn model_of(document: &Value, request: &ChatRequest) -> String {
    match document["model"].as_str() {
        Some(model) if !model.is_empty() => model.to_owned(),
        _ => request.model.clone(),
    }
}

/// Returns the arguments of a call to send back. Invalid arguments become an empty object.
fn arguments_object(arguments: &str) -> Value {
    match serde_json::from_str::<Value>(arguments) {
        Ok(object @ Value::Object(_)) => object,
        _ => Value::Object(serde_json::Map::new()),
    }
}

/// Returns the name of a tool to send back, with invalid characters replaced.
fn safe_name(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' };
    let name: String = name.chars().take(MAX_NAME).map(plain).collect();
    if name.is_empty() { "unnamed".to_owned() } else { name }
}

/// Adds a tool call. A missing or duplicate id is replaced.
fn add_call(calls: &mut Vec<ToolCall>, id: Option<&str>, name: &str, arguments: &Value) {
    let taken = |id: &str| calls.iter().any(|call| call.id == id);
    let id = match id {
        Some(id) if !id.is_empty() && !taken(id) => id.to_owned(),
        _ => format!("call_{}_{}", calls.len() + 1, safe_name(name)),
    };
    let arguments = match arguments {
        Value::String(text) => text.clone(),
        // Arguments can be missing for tools without parameters.
        Value::Null => "{}".to_owned(),
        other => other.to_string(),
    };
    calls.push(ToolCall { id, name: name.to_owned(), arguments });
}

#[cfg(test)]
mod tests;
