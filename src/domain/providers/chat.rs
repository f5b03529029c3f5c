//! A conversation with a model as values, in words that no provider owns.
//!
//! Both the providers' clients and our own agent speak in these, so that neither has to know the other: a model is a
//! function from a [`ChatRequest`] to a [`ChatAnswer`] or a [`CallError`].

use std::fmt;
use std::time::Duration;

use serde_json::Value;

use crate::domain::providers::limit::Signals;

/// One call to a model.
#[derive(Debug, Clone, PartialEq)]
pub struct ChatRequest {
    /// The provider's name of the model.
    pub model: String,
    /// Standing instructions; empty for none.
    pub system: String,
    /// The conversation so far, oldest first; it begins with a user's message.
    pub messages: Vec<Message>,
    /// What the model may ask for.
    pub tools: Vec<Tool>,
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
pub enum Message {
    /// What we say.
    User(String),
    /// What the model said.
    Model(ModelTurn),
    /// What came of the tools that it asked for in the turn before, one result a call.
    Results(Vec<ToolResult>),
}

/// One turn of the model.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ModelTurn {
    /// Its words; may be empty where it only calls tools.
    pub text: String,
    /// The tools that it asks for, in order.
    pub calls: Vec<ToolCall>,
    /// The turn in the provider's own form, sent back as it is where there is one: it may hold sealed reasoning that
    /// nobody else can make. `Null` where there is nothing to keep.
    pub original: Value,
}

/// A tool that the model asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCall {
    /// By which the result is matched; unique within a turn.
    pub id: String,
    /// Name of the tool, as the model wrote it.
    pub name: String,
    /// Its arguments as the model wrote them: JSON, if it made no mistake.
    pub arguments: String,
}

/// What came of a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolResult {
    /// The call's id.
    pub id: String,
    /// What the model is told.
    pub text: String,
    /// Whether it failed.
    pub failed: bool,
}

/// A tool, as the model is told of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Tool {
    /// Its name: letters, digits, `_` and `-`.
    pub name: String,
    /// What it does and when to take it.
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

/// What a model answered.
#[derive(Debug, Clone, PartialEq)]
pub struct ChatAnswer {
    /// Its turn. Where a schema was asked for and given natively, `text` is the JSON.
    pub turn: ModelTurn,
    /// Why it stopped.
    pub stop: StopReason,
    /// Tokens used; `None` where the server does not say.
    pub usage: Option<Usage>,
    /// The model that answered, by the server's own word; the one asked for where it does not say.
    pub model: String,
}

/// Why a model stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StopReason {
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

impl StopReason {
    /// In a word, for logs.
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

/// Tokens of one or more calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Read at the full price.
    pub input: u64,
    /// Written, reasoning included.
    pub output: u64,
    /// Read from the provider's cache.
    pub cache_read: u64,
    /// Read and stored in the provider's cache.
    pub cache_write: u64,
}

impl Usage {
    /// Sum, saturating.
    pub fn plus(self, other: Usage) -> Usage {
        Usage {
            input: self.input.saturating_add(other.input),
            output: self.output.saturating_add(other.output),
            cache_read: self.cache_read.saturating_add(other.cache_read),
            cache_write: self.cache_write.saturating_add(other.cache_write),
        }
    }

    /// Tokens read, from the cache and not.
    pub fn read(self) -> u64 {
        self.input.saturating_add(self.cache_read).saturating_add(self.cache_write)
    }

    /// Tokens read and written.
    pub fn all(self) -> u64 {
        self.read().saturating_add(self.output)
    }
}

/// A call that brought no answer. Nothing in it holds a secret.
#[derive(Debug, Clone, PartialEq)]
pub struct CallError {
    /// What can tell of a limit.
    pub signals: Signals,
    /// Whether the same call may go through in a moment: the server was in trouble, or the connection was.
    pub retryable: bool,
    /// In one sentence: what was asked of whom, and what came.
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
    fn usage_adds_up_and_saturates() {
        let one = Usage { input: 1, output: 2, cache_read: 3, cache_write: 4 };
        assert_eq!((one.read(), one.all()), (8, 10));
        assert_eq!(one.plus(one), Usage { input: 2, output: 4, cache_read: 6, cache_write: 8 });
        let most = Usage { input: u64::MAX, output: u64::MAX, cache_read: 1, cache_write: 1 };
        assert_eq!((most.plus(one).input, most.read(), most.all()), (u64::MAX, u64::MAX, u64::MAX));
    }

    #[test]
    fn tokens_are_estimated_from_bytes() {
        assert_eq!([0, 1, 4, 5].map(estimated_tokens), [0, 1, 1, 2]);
    }
}
