//! What the providers' servers take and give: JSON documents, pure.
//!
//! Answers are read leniently: unknown fields and parts are passed over, missing ones have a defined meaning. Requests
//! are written strictly: what a server would refuse because a model once made a mistake (a name with blanks, arguments
//! that are not JSON) is mended before it is sent back.

pub(super) mod chat;
pub(super) mod fault;
pub(super) mod messages;
pub(super) mod responses;

use serde_json::Value;

use crate::domain::providers::chat::{ChatAnswer, ChatRequest, ToolCall};
use crate::domain::providers::prices::TokenUsage;
use fault::ProviderError;

/// Longest name of a tool that servers take.
const MAX_NAME: usize = 64;

/// Which interface a server speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Wire {
    /// Anthropic's Messages.
    Messages,
    /// OpenAI's Responses.
    Responses,
    /// OpenAI's Chat Completions, as most other servers speak it (Ollama, vLLM, llama.cpp, gateways).
    Chat,
}

impl Wire {
    /// Its name, as people write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Messages => "messages",
            Self::Responses => "responses",
            Self::Chat => "chat",
        }
    }

    /// Parts of the path behind the version.
    pub(super) fn endpoint(self) -> &'static [&'static str] {
        match self {
            Self::Messages => &["messages"],
            Self::Responses => &["responses"],
            Self::Chat => &["chat", "completions"],
        }
    }

    /// The body of a request. `vendor` tells whether it goes to OpenAI itself, which knows other names than its
    /// followers.
    pub(super) fn body(self, request: &ChatRequest, vendor: bool) -> Value {
        match self {
            Self::Messages => messages::to_json(request),
            Self::Responses => responses::to_json(request),
            Self::Chat => chat::to_json(request, vendor),
        }
    }

    /// The answer to `request`.
    ///
    /// # Errors
    /// What the server says went wrong, or what in its answer cannot be understood.
    pub(super) fn answer(self, request: &ChatRequest, document: &Value) -> Result<ChatAnswer, Unread> {
        // Gateways answer 200 and put the error into the body.
        if document.get("error").is_some_and(|error| !error.is_null()) {
            return Err(Unread::Provider(fault::of_document(document)));
        }
        match self {
            Self::Messages => messages::from_json(request, document),
            Self::Responses => responses::from_json(request, document),
            Self::Chat => chat::from_json(request, document),
        }
    }
}

/// Why an answer is none.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Unread {
    /// The server tells of an error.
    Provider(ProviderError),
    /// It is something else than this interface gives; what is missing.
    Foreign(String),
}

/// The model's name in the answer, else the one asked for.
fn model_of(document: &Value, request: &ChatRequest) -> String {
    match document["model"].as_str() {
        Some(model) if !model.is_empty() => model.to_owned(),
        _ => request.model.clone(),
    }
}

/// A count of tokens; 0 where there is none.
fn count(value: &Value) -> u64 {
    // Some servers write whole numbers as decimals.
    value.as_u64().or_else(|| value.as_f64().filter(|n| *n >= 0.0).map(|n| n as u64)).unwrap_or(0)
}

/// What was used; `None` where the server did not count, as no call uses nothing.
fn counted(usage: TokenUsage) -> Option<TokenUsage> {
    (usage.total() > 0).then_some(usage)
}

/// Arguments as they are sent back: those that are no JSON object as an empty one.
fn arguments_object(arguments: &str) -> Value {
    match serde_json::from_str::<Value>(arguments) {
        Ok(object @ Value::Object(_)) => object,
        _ => Value::Object(serde_json::Map::new()),
    }
}

/// A tool's name as it is sent back.
fn safe_name(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' };
    let name: String = name.chars().take(MAX_NAME).map(plain).collect();
    if name.is_empty() { "unnamed".to_owned() } else { name }
}

/// Adds a call; one without an id, or with one that is taken, gets an id of ours.
fn add_call(calls: &mut Vec<ToolCall>, id: Option<&str>, name: &str, arguments: &Value) {
    let taken = |id: &str| calls.iter().any(|call| call.id == id);
    let id = match id {
        Some(id) if !id.is_empty() && !taken(id) => id.to_owned(),
        _ => format!("call_{}_{}", calls.len() + 1, safe_name(name)),
    };
    let arguments = match arguments {
        Value::String(text) => text.clone(),
        // Models that take no arguments leave them out.
        Value::Null => "{}".to_owned(),
        other => other.to_string(),
    };
    calls.push(ToolCall { id, name: name.to_owned(), arguments });
}

#[cfg(test)]
mod tests;
