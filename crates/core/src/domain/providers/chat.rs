//! Chat with a model: requests, messages and answers, independent of any provider.
//!
//! Shared by the clients of providers and by the built-in agent, so that neither depends on the other. A client maps a
//! [`ChatRequest`] to a [`ChatAnswer`] or a [`CallError`].

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::domain::providers::limit::LimitSignals;
use crate::domain::providers::prices::TokenUsage;

/// One call to a model.
#[derive(Debug, Clone, PartialEq)]
pub struct ChatRequest {
    /// Name of the model, as used by the provider.
    pub model: String,
    /// System prompt; empty for none.
    pub system: String,
    /// Conversation so far, oldest message first. The first message is the user's.
    pub messages: Vec<ChatMessage>,
    /// Tools that the model can call.
    pub tools: Vec<ToolDefinition>,
    /// Maximum number of tokens of the answer.
    pub max_tokens: u32,
    /// Required shape of the answer; `None` for any text.
    pub schema: Option<AnswerSchema>,
    /// Whether a request with the same start will follow soon, so that it pays to cache the prompt.
    pub cache: bool,
    /// Maximum wait for the whole answer.
    pub timeout: Duration,
}

/// A message of a conversation.
#[derive(Debug, Clone, PartialEq)]
pub enum ChatMessage {
    /// Message of the user.
    User(String),
    /// Message of the user, with images after the text.
    UserWithImages(String, Vec<ChatImage>),
    /// Answer of the model.
    Model(ModelTurn),
    /// Results of the tool calls in the previous turn, one per call.
    Results(Vec<ToolResult>),
}

/// Image in a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatImage {
    /// Name by which the text refers to the image.
    pub name: String,
    /// Media type, such as `image/png`.
    pub media_type: &'static str,
    /// Content in base64.
    pub base64: Arc<str>,
}

impl ChatImage {
    /// Size at which an image is counted in a conversation, in bytes of text; corresponds to about 1,500 tokens.
    pub const SIZE: usize = 6_000;

    /// Returns the image as a `data:` URL.
    pub fn data_url(&self) -> String {
        format!("data:{};base64,{}", self.media_type, self.base64)
    }
}

/// One turn of the model.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ModelTurn {
    /// Text; may be empty if the turn has tool calls.
    pub text: String,
    /// Tool calls, in order.
    pub calls: Vec<ToolCall>,
    /// Turn in the provider's own format. It is sent back unchanged, because it may contain encrypted reasoning. `Null` if the
    /// provider does not need it.
    pub original: Value,
}

/// Tool call of the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCall {
    /// Identifier of the call, unique within a turn.
    pub id: String,
    /// Name of the tool, as the model wrote it.
    pub name: String,
    /// Arguments as written by the model; usually, but not always, valid JSON.
    pub arguments: String,
}

/// Result of a tool call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolResult {
    /// Identifier of the call.
    pub id: String,
    /// Text for the model.
    pub text: String,
    /// Whether the call failed.
    pub failed: bool,
}

/// Definition of a tool for the model.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolDefinition {
    /// Name: letters, digits, `_` and `-`.
    pub name: String,
    /// Purpose and use, for the model.
    pub description: String,
    /// JSON Schema of the arguments, an object.
    pub parameters: Value,
}

/// Required shape of an answer.
#[derive(Debug, Clone, PartialEq)]
pub struct AnswerSchema {
    /// Name: letters, digits, `_` and `-`.
    pub name: String,
    /// JSON Schema, an object.
    pub schema: Value,
}

/// Answer of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct ChatAnswer {
    /// Turn of the model. If a schema was requested and the provider supports schemas, `text` is JSON.
    pub turn: ModelTurn,
    /// Reason for the end of the answer.
    pub stop: ModelStop,
    /// Tokens used; `None` if the server does not report them.
    pub usage: Option<TokenUsage>,
    /// Model that answered, as reported by the server; the requested model if the server reports none.
    pub model: String,
}

/// Reason why a model ended its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelStop {
    /// The answer is complete.
    End,
    /// The model waits for the results of its tool calls.
    Tools,
    /// The answer was cut off at the maximum number of tokens.
    MaxTokens,
    /// The model, or a filter of the provider, refused to answer.
    Refused,
    /// The conversation and the answer fill the model's context window.
    ContextFull,
    /// Another reason, in the provider's words.
    Other(String),
}

impl ModelStop {
    /// Returns the name used in logs.
    pub fn word(&self) -> &str {
        match self {
            Self::End => "end",
            Self::Tools => "tools",
            Self::MaxTokens => "max_tokens",
            Self::Refused => "refused",
            Self::ContextFull => "context_full",
            Self::Other(word) => word,
        }
    }
}

/// Error of a call that got no answer. Contains no secrets.
#[derive(Debug, Clone, PartialEq)]
pub struct CallError {
    /// Evidence of a limit, for [`classify`](crate::domain::providers::limit::classify).
    pub signals: LimitSignals,
    /// Whether the same call may succeed soon, because the problem was with the server or the connection.
    pub retryable: bool,
    /// Error in one sentence: the request, its recipient and the response.
    pub what: String,
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for CallError {}
