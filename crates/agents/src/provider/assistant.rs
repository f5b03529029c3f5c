//! Questions to a model with structured answers: JSON that is checked against a schema. An invalid answer is requested
//! once more.
//!
//! Callers have a fallback without a model, so a failure never ends a loop.

use std::time::Duration;

use async_trait::async_trait;
use ralph_types::failure::Failure;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{ApiClient, shape};
use crate::clock::Stopwatch;
use crate::domain::providers::chat::{
    AnswerSchema, CallError, ChatAnswer, ChatImage, ChatMessage, ChatRequest, ModelStop, ModelTurn,
};
use crate::domain::providers::limit::LimitSignals;
use crate::domain::providers::prices::TokenUsage;

/// Maximum number of bytes of an answer in which JSON is searched for.
const MAX_TEXT: usize = 256 * 1024;
/// Maximum number of positions at which JSON is searched for.
const MAX_STARTS: usize = 200;
/// Maximum number of characters of an invalid answer that are sent back to the model.
const MAX_ECHO: usize = 8_000;
/// Addition to the client's time limit, so that the limit of this module is reached first.
const GRACE: Duration = Duration::from_secs(1);

/// Model that answers requests: a client of an endpoint, or a command.
#[async_trait]
pub trait Assistant: Send + Sync {
    /// Sends one request.
    ///
    /// # Errors
    /// There is no response.
    async fn complete(&self, request: &ChatRequest) -> Result<ChatAnswer, CallError>;
}

#[async_trait]
impl Assistant for ApiClient {
    async fn complete(&self, request: &ChatRequest) -> Result<ChatAnswer, CallError> {
        ApiClient::complete(self, request).await
    }
}

/// Question to a model.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// System prompt; empty for none.
    pub system: String,
    /// Prompt that contains everything needed for the answer.
    pub prompt: String,
    /// Schema of the answer.
    pub schema: AnswerSchema,
}

/// Limits of a question, which apply to both attempts together.
#[derive(Debug, Clone, PartialEq)]
pub struct AskLimits {
    /// Name of the model.
    pub model: String,
    /// Maximum number of tokens of an answer.
    pub max_tokens: u32,
    /// Time limit.
    pub timeout: Duration,
}

/// Usage of a question, including a failed one.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Spent {
    /// Tokens of all attempts.
    pub usage: TokenUsage,
    /// Whether part of `usage` is estimated from text lengths because a server did not report it.
    pub estimated: bool,
    /// Number of requests.
    pub calls: u32,
    /// Name of the model that answered last, as the provider calls it; empty if there was no answer.
    pub model: String,
}

/// Valid answer with its usage.
#[derive(Debug, Clone, PartialEq)]
pub struct AssistantAnswer<T> {
    /// Parsed answer.
    pub value: T,
    /// Usage of the answer.
    pub spent: Spent,
}

/// Failure to get a valid answer.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{what}")]
pub struct AssistantFailure {
    /// Description as a sentence.
    pub what: String,
    /// Usage of the failed request.
    pub spent: Spent,
    /// Kind of failure.
    pub fault: AssistantFault,
}

/// Kind of failure of a question.
#[derive(Debug, Clone, PartialEq)]
pub enum AssistantFault {
    /// The request failed; contains signs of a limit, if any.
    Call(Box<LimitSignals>),
    /// The time limit was reached.
    Time,
    /// The model's answers were invalid.
    Answer,
}

/// Check in addition to the schema. Returns the answer, or a description of the problem.
pub type AnswerRule<'a, T> = &'a (dyn Fn(T) -> Result<T, Failure> + Sync);

/// Asks a question and checks the answer. If it is invalid, asks once more with a description of the problem.
///
/// # Errors
/// The request fails, the time limit is reached, the model refuses, or the second answer is invalid as well. Failed
/// requests are not repeated, with one exception: after a refusal with status 400 or 422, the request is sent again
/// without a schema, because not every server supports schemas.
pub async fn ask<T: DeserializeOwned>(
    assistant: &dyn Assistant,
    question: &Question,
    limits: &AskLimits,
    rule: AnswerRule<'_, T>,
) -> Result<AssistantAnswer<T>, AssistantFailure> {
    let watch = Stopwatch::start();
    let mut spent = Spent::default();
    let mut request = first(question, limits);
    let mut problem = String::new();
    for again in [true, false] {
        let remaining = limits.timeout.saturating_sub(watch.elapsed());
        if remaining.is_zero() {
            problem = format!("{problem}; no time was left for a second attempt");
            break;
        }
        request.timeout = remaining + GRACE;
        spent.calls += 1;
        let called = tokio::time::timeout(remaining, assistant.complete(&request)).await;
        let answer = match called {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) if again && matches!(error.signals.status, Some(400 | 422)) => {
                problem = error.what;
                request.schema = None;
                continue;
            }
            Ok(Err(error)) => {
                let fault = AssistantFault::Call(Box::new(error.signals));
                return Err(AssistantFailure { what: error.what, spent, fault });
            }
            Err(_) => {
                let what = format!("there was no answer within {} s", limits.timeout.as_secs_f64());
                spent.estimate(&request, 0);
                return Err(AssistantFailure { what, spent, fault: AssistantFault::Time });
            }
        };
        spent.book(&request, &answer);
        if answer.stop == ModelStop::Refused {
            let refusal: String = answer.turn.text.chars().take(300).collect();
            let what = format!("the model refused to answer: {refusal}");
            return Err(AssistantFailure { what, spent, fault: AssistantFault::Answer });
        }
        problem = match read::<T>(&question.schema.schema, &answer).and_then(rule) {
            Ok(value) => return Ok(AssistantAnswer { value, spent }),
            Err(problem) => problem.to_string(),
        };
        let echo: String = answer.turn.text.chars().take(MAX_ECHO).collect();
        let echo = if echo.trim().is_empty() { "(nothing)".to_owned() } else { echo };
        request.messages.push(ChatMessage::Model(ModelTurn { text: echo, ..ModelTurn::default() }));
        request.messages.push(ChatMessage::User(format!(
            "That answer is invalid: {problem}. Answer again, with the whole JSON value and nothing else."
        )));
    }
    Err(AssistantFailure { what: format!("no valid answer: {problem}"), spent, fault: AssistantFault::Answer })
}

fn first(question: &Question, limits: &AskLimits) -> ChatRequest {
    let shape = format!("Answer only with one JSON value that matches this JSON Schema:\n{}", question.schema.schema);
    let system = if question.system.is_empty() { shape } else { format!("{}\n\n{shape}", question.system) };
    ChatRequest {
        model: limits.model.clone(),
        system,
        messages: vec![ChatMessage::User(question.prompt.clone())],
        tools: Vec::new(),
        max_tokens: limits.max_tokens,
        schema: Some(question.schema.clone()),
        cache: false,
        timeout: limits.timeout,
    }
}

impl Spent {
    fn book(&mut self, request: &ChatRequest, answer: &ChatAnswer) {
        match answer.usage {
            Some(usage) => self.usage = self.usage.plus(usage),
            None => self.estimate(request, answer.turn.text.len()),
        }
        self.model.clone_from(&answer.model);
    }

    /// Adds a request whose tokens were not reported, with an answer of `answered` bytes.
    fn estimate(&mut self, request: &ChatRequest, answered: usize) {
        let text = |message: &ChatMessage| match message {
            ChatMessage::User(text) => text.len(),
            ChatMessage::UserWithImages(text, images) => text.len() + images.len() * ChatImage::SIZE,
            ChatMessage::Model(turn) => turn.text.len(),
            ChatMessage::Results(results) => results.iter().map(|result| result.text.len()).sum(),
        };
        let read = request.system.len() + request.messages.iter().map(text).sum::<usize>();
        self.usage = self.usage.plus(TokenUsage::estimated(read, answered));
        self.estimated = true;
    }
}

fn read<T: DeserializeOwned>(schema: &Value, answer: &ChatAnswer) -> Result<T, Failure> {
    let cut = matches!(answer.stop, ModelStop::MaxTokens | ModelStop::ContextFull);
    let cut = if cut { "; it was cut at its maximum length: be brief" } else { "" };
    let found = json_in(&answer.turn.text, schema).map_err(|problem| format!("{problem}{cut}"))?;
    serde_json::from_value(found).map_err(|error| Failure::new(format!("it does not match: {error}{cut}")))
}

/// Reads an answer from a model's text.
///
/// # Errors
/// The problem, as the end of a sentence.
pub fn read_answer<T: DeserializeOwned>(schema: &Value, text: &str) -> Result<T, Failure> {
    let found = json_in(text, schema).map_err(|problem| format!("its answer is unusable: {problem}"))?;
    serde_json::from_value(found).map_err(|error| Failure::new(format!("its answer is unusable: {error}")))
}

/// Returns the first JSON value in a text that matches the schema. Tries the whole text, then code fences, then any
/// position in the text.
fn json_in(text: &str, schema: &Value) -> Result<Value, Failure> {
    let text = text.trim().trim_start_matches('\u{feff}');
    let text = &text[..text.floor_char_boundary(MAX_TEXT)];
    let mut problem = None;
    let mut fitting = |candidate: Result<Value, serde_json::Error>| match candidate {
        Ok(value) => match shape::fault(schema, &value) {
            None => Some(value),
            Some(fault) => {
                problem.get_or_insert(format!("it does not match the schema: {fault}"));
                None
            }
        },
        Err(_) => None,
    };
    if let Some(value) = fitting(serde_json::from_str(text)) {
        return Ok(value);
    }
    let mut from = 0;
    for _ in 0..MAX_STARTS {
        let Some(at) = text[from..].find(['{', '[']) else { break };
        let start = from + at;
        let mut stream = serde_json::Deserializer::from_str(&text[start..]).into_iter::<Value>();
        let candidate = stream.next().unwrap_or(Ok(Value::Null));
        // Values within a parsed value are not searched.
        from = if candidate.is_ok() { start + stream.byte_offset().max(1) } else { start + 1 };
        if let Some(value) = fitting(candidate) {
            return Ok(value);
        }
    }
    // Reports the error of the whole text, which should have been the value.
    let whole = serde_json::from_str::<Value>(text).err();
    Err(Failure::new(problem.unwrap_or_else(|| match whole {
        Some(error) => format!("it contains no JSON ({error})"),
        None => "it contains no JSON".to_owned(),
    })))
}

#[cfg(test)]
mod tests;
