//! A conversation with a model as values, independent of any provider.
//!
//! Used by the clients of providers and by the built-in agent, so that neither has to know the other: a model is a function
//! from a [`ChatRequest`] to a [`ChatAnswer`] or a [`CallError`].

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::domain::providers::limit::LimitSignals;
use crate::domain::providers::prices::TokenUsage;

/// One call to a model.
#[derive(Debug, Clone, PartialEq)]
pub struct ChatRequest {
    /// Provider's name of the model.
    pub model: String,
    /// System prompt; empty for none.
    pub system: String,
    /// The conversation so far, oldest first; it begins with a user's message.
    pub messages: Vec<ChatMessage>,
    /// Tools that the model can call.
    pub tools: Vec<ToolDefinition>,
    /// Maximum number of tokens of the answer.
    pub max_tokens: u32,
    /// Required shape of the answer; `None` for any text.
    pub schema: Option<AnswerSchema>,
    /// Whether a request with the same beginning will follow soon, so that caching it is worth its price.
    pub cache: bool,
    /// Maximum wait for the whole answer.
    pub timeout: Duration,
}

/// A message of a conversation.
#[derive(Debug, Clone, PartialEq)]
pub enum ChatMessage {
    /// Message of the user.
    User(String),
    /// Message of the user with images after the text.
    UserWithImages(String, Vec<ChatImage>),
    /// Answer of the model.
    Model(ModelTurn),
    /// Results of the tools called in the previous turn, one per call.
    Results(Vec<ToolResult>),
}

/// Image in a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatImage {
    /// Name, by which the text names it.
    pub name: String,
    /// Media type, such as `image/png`.
    pub media_type: &'static str,
    /// Content in base64.
    pub base64: Arc<str>,
}

impl ChatImage {
    /// Size that an image counts for in a conversation, in bytes of text: about 1,500 tokens.
    pub const SIZE: usize = 6_000;

    /// Returns it as a `data:` address.
    pub fn data_url(&self) -> String {
        format!("data:{};base64,{}", self.media_type, self.base64)
    }
}

/// One turn of the model.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ModelTurn {
    /// Text; may be empty if it only calls tools.
    pub text: String,
    /// Tool calls, in order.
    pub calls: Vec<ToolCall>,
    /// Turn in the provider's own form, which is sent back unchanged: it may contain encrypted reasoning. `Null` if
    /// not needed.
    pub original: Value,
}

/// A tool call of the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCall {
    /// Identifier that the result refers to; unique within a turn.
    pub id: String,
    /// Name of the tool, as the model wrote it.
    pub name: String,
    /// Arguments as the model wrote them: usually valid JSON.
    pub arguments: String,
}

/// Result of a tool call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolResult {
    /// The call's id.
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
    /// The model's turn. If a schema was requested and the provider supports it, `text` is the JSON.
    pub turn: ModelTurn,
    /// Reason for the end of the answer.
    pub stop: ModelStop,
    /// Tokens used; `None` if the server does not report them.
    pub usage: Option<TokenUsage>,
    /// Model that answered, as the server reports it; the requested one if it does not.
    pub model: String,
}

/// Reason why a model ended its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelStop {
    /// The answer is complete.
    End,
    /// The model waits for the results of tools.
    Tools,
    /// The maximum number of tokens is reached; the answer is cut.
    MaxTokens,
    /// The model, or a filter of the provider, refused to answer.
    Refused,
    /// Conversation and answer fill the model's context.
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

/// A call without an answer. Contains no secrets.
#[derive(Debug, Clone, PartialEq)]
pub struct CallError {
    /// Evidence of a limit.
    pub signals: LimitSignals,
    /// Whether the same call may succeed in a moment, because the server or the connection had a problem.
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

/// Estimates the tokens of a text: about four bytes of English or code per token. For servers that do not count tokens.
pub fn estimated_tokens(bytes: usize) -> u64 {
    bytes.div_ceil(4) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_estimated_from_bytes() {
        assert_eq!([0, 1, 4, 5].map(estimated_tokens), [0, 1, 1, 2]);
    }
}
