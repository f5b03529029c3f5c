//! A conversation with a model as values, in words that no provider owns.
//!
//! Both the providers' clients and our own agent speak in these, so that neither has to know the other: a model is a
//! function from a [`ChatRequest`] to a [`ChatAnswer`] or a [`CallError`].

use std::fmt;
use std::time::Duration;

use serde_json::Value;

use crate::domain::providers::limit::LimitSignals;
use crate::domain::providers::prices::TokenUsage;

/// One call to a model.
#[derive(Debug, Clone, PartialEq)]
pub struct ChatRequest {
    /// The provider's name of the model.
    pub model: String,
    /// Standing instructions; empty for none.
    pub system: String,
    /// The conversation so far, oldest first; it begins with a user's message.
    pub messages: Vec<ChatMessage>,
    /// Tools that the model can call.
    pub tools: Vec<ToolDefinition>,
    /// Most tokens that it may write.
    pub max_tokens: u32,
    /// The shape that the answer must have; text in any shape where there is none.
    pub schema: Option<AnswerSchema>,
    /// Whether the same beginning will be sent again soon, so that the provider's cache is worth its price.
    pub cache: bool,
    /// Longest wait for the whole answer.
    pub timeout: Duration,
}

/// A part of a conversation.
#[derive(Debug, Clone, PartialEq)]
pub enum ChatMessage {
    /// Message of the user.
    User(String),
    /// Answer of the model.
    Model(ModelTurn),
    /// Results of the tools called in the turn before, one for each call.
    Results(Vec<ToolResult>),
}

/// One turn of the model.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ModelTurn {
    /// Its words; may be empty where it only calls tools.
    pub text: String,
    /// The tools that it asks for, in order.
    pub calls: Vec<ToolCall>,
    /// Turn in the provider's own form, which is sent back unchanged: it may contain encrypted reasoning. `Null` if
    /// not needed.
    pub original: Value,
}

/// A tool that the model asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCall {
    /// Identifier that the result refers to; unique within a turn.
    pub id: String,
    /// Name of the tool, as the model wrote it.
    pub name: String,
    /// Its arguments as the model wrote them: JSON, if it made no mistake.
    pub arguments: String,
}

/// Result of a tool call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolResult {
    /// The call's id.
    pub id: String,
    /// Text for the model.
    pub text: String,
    /// Whether it failed.
    pub failed: bool,
}

/// Definition of a tool for the model.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolDefinition {
    /// Its name: letters, digits, `_` and `-`.
    pub name: String,
    /// Purpose and use, for the model.
    pub description: String,
    /// JSON Schema of its arguments, an object.
    pub parameters: Value,
}

/// The shape of an answer.
#[derive(Debug, Clone, PartialEq)]
pub struct AnswerSchema {
    /// Its name: letters, digits, `_` and `-`.
    pub name: String,
    /// JSON Schema, an object.
    pub schema: Value,
}

/// Answer of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct ChatAnswer {
    /// Its turn. Where a schema was asked for and given natively, `text` is the JSON.
    pub turn: ModelTurn,
    /// Reason for the end of the answer.
    pub stop: ModelStop,
    /// Tokens used; `None` where the server does not say.
    pub usage: Option<TokenUsage>,
    /// The model that answered, by the server's own word; the one asked for where it does not say.
    pub model: String,
}

/// Reason why a model ended its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelStop {
    /// It was through.
    End,
    /// It waits for the results of tools.
    Tools,
    /// It wrote as much as it may; what it was writing is cut.
    MaxTokens,
    /// It, or a filter of the provider, would not answer.
    Refused,
    /// Conversation and answer fill the model's context.
    ContextFull,
    /// Something new, in the provider's word.
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

/// A call that brought no answer. Nothing in it holds a secret.
#[derive(Debug, Clone, PartialEq)]
pub struct CallError {
    /// Evidence of a limit.
    pub signals: LimitSignals,
    /// Whether the same call may go through in a moment: the server was in trouble, or the connection was.
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

/// Tokens of a text, about: a token is some four bytes of English or code. For servers that count none themselves.
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
