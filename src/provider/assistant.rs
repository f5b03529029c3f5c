//! Small questions to a model whose answers are data: JSON by a schema, checked, asked for twice at most.
//!
//! Whoever asks has a fallback that needs no model: a failure here is an answer like any other, and never ends a loop.

use std::time::Duration;

use async_trait::async_trait;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{ApiClient, shape};
use crate::clock::Stopwatch;
use crate::domain::providers::chat::{
    AnswerSchema, CallError, ChatAnswer, ChatMessage, ChatRequest, ModelStop, ModelTurn, estimated_tokens,
};
use crate::domain::providers::limit::LimitSignals;
use crate::domain::providers::prices::TokenUsage;

/// Most of an answer that is looked at, in bytes.
const MAX_TEXT: usize = 256 * 1024;
/// Most places of a text where JSON is looked for.
const MAX_STARTS: usize = 200;
/// What of a wrong answer is shown to the model again, in characters.
const MAX_ECHO: usize = 8_000;
/// What a client may take longer than we wait, so that it is we who stop to wait and know it.
const GRACE: Duration = Duration::from_secs(1);

/// Something that answers one request: a client of an endpoint, or a command.
#[async_trait]
pub trait Assistant: Send + Sync {
    /// One call.
    ///
    /// # Errors
    /// Whatever keeps an answer from us.
    async fn complete(&self, request: &ChatRequest) -> Result<ChatAnswer, CallError>;
}

#[async_trait]
impl Assistant for ApiClient {
    async fn complete(&self, request: &ChatRequest) -> Result<ChatAnswer, CallError> {
        ApiClient::complete(self, request).await
    }
}

/// What is asked.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// Standing instructions; empty for none.
    pub system: String,
    /// The question with all that is needed to answer it.
    pub prompt: String,
    /// What the answer has to be.
    pub schema: AnswerSchema,
}

/// Bounds of a question, both tries together.
#[derive(Debug, Clone, PartialEq)]
pub struct AskLimits {
    /// Name of the model.
    pub model: String,
    /// Most tokens that an answer may have.
    pub max_tokens: u32,
    /// Longest wait.
    pub timeout: Duration,
}

/// What asking took, whatever came of it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Spent {
    /// Tokens of all tries.
    pub usage: TokenUsage,
    /// Whether a server did not count its tokens, so that `usage` is partly an estimate from lengths.
    pub estimated: bool,
    /// Tries.
    pub calls: u32,
    /// The model that answered last, by the provider's name; empty where none did.
    pub model: String,
}

/// An answer.
#[derive(Debug, Clone, PartialEq)]
pub struct AssistantAnswer<T> {
    /// The data.
    pub value: T,
    /// What it took.
    pub spent: Spent,
}

/// No answer that can be used.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{what}")]
pub struct AssistantFailure {
    /// In a sentence.
    pub what: String,
    /// What it took.
    pub spent: Spent,
    /// What failed.
    pub fault: AssistantFault,
}

/// What kept an answer from us.
#[derive(Debug, Clone, PartialEq)]
pub enum AssistantFault {
    /// The call; with what can tell of a limit.
    Call(Box<LimitSignals>),
    /// The time was over.
    Time,
    /// The model answered, and what it said is of no use.
    Answer,
}

/// A rule that an answer has to keep beside the schema: the answer as it is used, or what is wrong with it.
pub type AnswerRule<'a, T> = &'a (dyn Fn(T) -> Result<T, String> + Sync);

/// Asks, checks the answer, asks once more with what was wrong with it.
///
/// # Errors
/// When the call fails, the time is over, the model refuses, or the second answer is wrong as well. A call that failed is
/// not repeated, but for one that was refused with the schema (400, 422): it is made again without, as not every server
/// knows them.
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
        let left = limits.timeout.saturating_sub(watch.elapsed());
        if left.is_zero() {
            problem = format!("{problem}; there was no time to ask again");
            break;
        }
        request.timeout = left + GRACE;
        spent.calls += 1;
        let called = tokio::time::timeout(left, assistant.complete(&request)).await;
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
                let what = format!("there was no answer in {} s", limits.timeout.as_secs_f64());
                spent.estimate(&request, 0);
                return Err(AssistantFailure { what, spent, fault: AssistantFault::Time });
            }
        };
        spent.book(&request, &answer);
        if answer.stop == ModelStop::Refused {
            let said: String = answer.turn.text.chars().take(300).collect();
            let what = format!("the model would not answer: {said}");
            return Err(AssistantFailure { what, spent, fault: AssistantFault::Answer });
        }
        problem = match read::<T>(&question.schema.schema, &answer).and_then(rule) {
            Ok(value) => return Ok(AssistantAnswer { value, spent }),
            Err(problem) => problem,
        };
        let echo: String = answer.turn.text.chars().take(MAX_ECHO).collect();
        let echo = if echo.trim().is_empty() { "(nothing)".to_owned() } else { echo };
        request.messages.push(ChatMessage::Model(ModelTurn { text: echo, ..ModelTurn::default() }));
        request.messages.push(ChatMessage::User(format!(
            "That answer cannot be taken: {problem}. Answer again, with the whole JSON value and nothing else."
        )));
    }
    Err(AssistantFailure { what: format!("no answer could be taken: {problem}"), spent, fault: AssistantFault::Answer })
}

fn first(question: &Question, limits: &AskLimits) -> ChatRequest {
    let shape = format!(
        "Answer with one JSON value that fits this JSON Schema, and with nothing else:\n{}",
        question.schema.schema
    );
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

    /// Adds a call whose tokens nobody counted, with an answer of so many bytes.
    fn estimate(&mut self, request: &ChatRequest, answered: usize) {
        let text = |message: &ChatMessage| match message {
            ChatMessage::User(text) => text.len(),
            ChatMessage::Model(turn) => turn.text.len(),
            ChatMessage::Results(results) => results.iter().map(|result| result.text.len()).sum(),
        };
        let read = request.system.len() + request.messages.iter().map(text).sum::<usize>();
        let (input, output) = (estimated_tokens(read), estimated_tokens(answered));
        self.usage = self.usage.plus(TokenUsage { input, output, ..TokenUsage::default() });
        self.estimated = true;
    }
}

fn read<T: DeserializeOwned>(schema: &Value, answer: &ChatAnswer) -> Result<T, String> {
    let cut = matches!(answer.stop, ModelStop::MaxTokens | ModelStop::ContextFull);
    let cut = if cut { "; it was cut at the limit of its length: be brief" } else { "" };
    let found = json_in(&answer.turn.text, schema).map_err(|problem| format!("{problem}{cut}"))?;
    serde_json::from_value(found).map_err(|error| format!("it does not fit: {error}{cut}"))
}

/// The first JSON value in a text that fits the schema: the text itself, in a fence, or between words.
fn json_in(text: &str, schema: &Value) -> Result<Value, String> {
    let text = text.trim().trim_start_matches('\u{feff}');
    let text = &text[..text.floor_char_boundary(MAX_TEXT)];
    let mut problem = None;
    let mut fitting = |candidate: Result<Value, serde_json::Error>| match candidate {
        Ok(value) => match shape::fault(schema, &value) {
            None => Some(value),
            Some(fault) => {
                problem.get_or_insert(format!("it does not fit the schema: {fault}"));
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
        // What lies inside a value that was read is no answer of its own.
        from = if candidate.is_ok() { start + stream.byte_offset().max(1) } else { start + 1 };
        if let Some(value) = fitting(candidate) {
            return Ok(value);
        }
    }
    // Said of the whole text, as it was meant to be the value.
    let whole = serde_json::from_str::<Value>(text).err();
    Err(problem.unwrap_or_else(|| match whole {
        Some(error) => format!("there is no JSON in it ({error})"),
        None => "there is no JSON in it".to_owned(),
    }))
}

#[cfg(test)]
mod tests;
