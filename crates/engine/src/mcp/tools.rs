//! Tools of the session memory: names, arguments and answers.
//!
//! Invalid arguments and failures are returned as tool results for the agent; only an unknown tool is a protocol error.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use ralph_types::failure::Failure;
use rmcp::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData, Implementation, JsonObject,
    ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool, ToolAnnotations,
};
use rmcp::service::{RequestContext, RoleServer};
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;

use super::{Learnings, Session};
use crate::domain::knowledge::session::{self, SessionQuery};
use crate::domain::trust::outbound::{AnswerText, Outbound};
use crate::store::sql::Connection;
use crate::store::{self, StoreError, within};

/// Maximum number of pending requests per connection.
const MAX_WAITING: usize = 16;
/// Time limit of a search.
const MAX_TIME: Duration = Duration::from_secs(5);
/// Maximum length of a query for learnings, in characters.
const MAX_LEARNINGS_QUERY: usize = 2_000;
/// Instructions of the server for the agent.
const INSTRUCTIONS: &str = "What happened earlier in this task: your own previous iterations, their tool calls, errors, \
    checks and summaries. Look here before you repeat an approach that may have failed already.";

/// Arguments of `list_summaries`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct SummaryArguments {
    /// Only summaries that cover this iteration or a later one; all if omitted.
    since: u32,
}

/// Arguments of `get_turn`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TurnArguments {
    /// Number of the iteration, from 1.
    iteration: u32,
}

/// Arguments of `learnings`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct LearningArguments {
    /// Search terms for learnings.
    query: String,
}

/// Tools for one connection, or for an agent that runs in this process.
#[derive(Clone)]
pub struct Tools {
    session: Arc<Session>,
    waiting: Arc<Semaphore>,
}

impl Tools {
    /// Creates the tools of a run.
    pub fn new(session: Arc<Session>) -> Self {
        Self { session, waiting: Arc::new(Semaphore::new(MAX_WAITING)) }
    }

    /// Returns each tool's name, description and JSON Schema of the arguments.
    pub fn described(&self) -> Vec<(String, String, serde_json::Value)> {
        let described = |tool: Tool| {
            let schema = serde_json::Value::Object(tool.input_schema.as_ref().clone());
            (tool.name.into_owned(), tool.description.unwrap_or_default().into_owned(), schema)
        };
        self.list().into_iter().map(described).collect()
    }

    /// Calls a tool. `arguments` is the model's text.
    ///
    /// # Errors
    /// A message for the agent: the tool does not exist, the arguments are invalid, or the memory cannot be read.
    pub async fn call(&self, name: &str, arguments: &str) -> Result<Outbound<AnswerText>, Outbound<AnswerText>> {
        let arguments = if arguments.trim().is_empty() { "{}" } else { arguments };
        let answer = match serde_json::from_str(arguments) {
            Ok(arguments) => self.answer(name, arguments).await.unwrap_or_else(|| Err(self.unknown(name).into())),
            Err(error) => Err(Failure::new(format!("the arguments are wrong: {error}"))),
        };
        self.passed(answer)
    }

    fn unknown(&self, name: &str) -> String {
        let known: Vec<Cow<'static, str>> = self.list().into_iter().map(|tool| tool.name).collect();
        format!("there is no tool {name:?}; available: {}", known.join(", "))
    }

    fn list(&self) -> Vec<Tool> {
        let mut tools = vec![
            tool::<SessionQuery>(
                "search",
                "Search this task's history: raw turns (prompts and answers), events (tool calls, results of failed \
                 ones, file changes, errors, checks, detections, interventions, commands, switches of backend and \
                 model) and summaries. Results of successful tool calls are not stored: repeat the call if you need \
                 its result. Words are searched for in full text; all must be there unless you say OR. Filters narrow \
                 it; the paths of files are relative to the work tree. Examples: {\"query\": \"migration lock\", \"tier\": \"summaries\"}; {\"query\": \"\", \
                 \"event_types\": [\"tool_result\"], \"tools\": [\"Bash\"], \"has_error\": true}; {\"query\": \
                 \"timeout\", \"paths\": [\"src/**/*.rs\"], \"iterations\": {\"from\": 3}}.",
            ),
            tool::<SummaryArguments>("list_summaries", "Summaries of earlier iterations of this task, newest first."),
            tool::<TurnArguments>(
                "get_turn",
                "One iteration of this task as it was: what you were asked and what you answered, with model, cost and \
                 error. Long texts are shortened in the middle.",
            ),
        ];
        if self.session.learnings.is_some() {
            tools.push(tool::<LearningArguments>(
                "learnings",
                "What was learned in other tasks of this repository: strategies that worked, mistakes to avoid, \
                 estimates, conventions.",
            ));
        }
        tools
    }

    fn passed(&self, answer: Result<String, Failure>) -> Result<Outbound<AnswerText>, Outbound<AnswerText>> {
        let outbound = &self.session.outbound;
        answer.map(|text| outbound.answer(&text)).map_err(|failure| outbound.answer(&format!("{failure:#}")))
    }

    /// Returns a tool's answer or an error for the agent; `None` if the tool does not exist. Answers one question of a run
    /// at a time, across its connections.
    async fn answer(&self, name: &str, arguments: JsonObject) -> Option<Result<String, Failure>> {
        let _turn = self.session.turn.lock().await;
        Some(match (name, &self.session.learnings) {
            ("search", _) => self.search(arguments).await,
            ("list_summaries", _) => self.list_summaries(arguments).await,
            ("get_turn", _) => self.get_turn(arguments).await,
            ("learnings", Some(learnings)) => self.learnings(learnings.as_ref(), arguments).await,
            _ => return None,
        })
    }

    async fn search(&self, arguments: JsonObject) -> Result<String, Failure> {
        let query: SessionQuery = read(arguments)?;
        let id = self.session.loop_id.clone();
        let found = self
            .session
            .store
            .read(move |c| within(c, MAX_TIME, |c| store::session::search(c, &id, &query)))
            .await
            .map_err(store_error_message)?;
        Ok(session::found_text(&found, self.session.answer_tokens))
    }

    async fn list_summaries(&self, arguments: JsonObject) -> Result<String, Failure> {
        let SummaryArguments { since } = read(arguments)?;
        let id = self.session.loop_id.clone();
        let read = self.session.store.read(move |c| within(c, MAX_TIME, |c| store::session::summaries(c, &id, since)));
        Ok(session::summaries_text(&read.await.map_err(store_error_message)?, self.session.answer_tokens))
    }

    async fn get_turn(&self, arguments: JsonObject) -> Result<String, Failure> {
        let TurnArguments { iteration } = read(arguments)?;
        let id = self.session.loop_id.clone();
        let turns = move |c: &Connection| store::session::turns(c, &id, iteration..=iteration);
        let read = self.session.store.read(move |c| within(c, MAX_TIME, turns));
        Ok(session::turns_text(iteration, &read.await.map_err(store_error_message)?, self.session.answer_tokens))
    }

    async fn learnings(&self, learnings: &dyn Learnings, arguments: JsonObject) -> Result<String, Failure> {
        let LearningArguments { query } = read(arguments)?;
        let query: String = query.chars().take(MAX_LEARNINGS_QUERY).collect();
        let found = learnings.search(&query).await?;
        if found.is_empty() {
            return Ok("there are no learnings about this yet".to_owned());
        }
        Ok(session::fit(&found, 0, false, self.session.answer_tokens))
    }
}

impl ServerHandler for Tools {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new(super::NAME, env!("CARGO_PKG_VERSION")))
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.list()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Ok(_waits) = self.waiting.try_acquire() else {
            let told = format!("more than {MAX_WAITING} questions wait for an answer; ask them one after the other");
            return Ok(told_back(self.passed(Err(told.into()))));
        };
        match self.answer(&request.name, request.arguments.unwrap_or_default()).await {
            Some(answer) => Ok(told_back(self.passed(answer))),
            None => Err(ErrorData::invalid_params(self.unknown(&request.name), None)),
        }
    }
}

fn told_back(answer: Result<Outbound<AnswerText>, Outbound<AnswerText>>) -> CallToolResponse {
    CallToolResponse::Complete(match answer {
        Ok(text) => CallToolResult::success(vec![ContentBlock::text(text.as_str())]),
        Err(text) => CallToolResult::error(vec![ContentBlock::text(text.as_str())]),
    })
}

fn tool<T: JsonSchema>(name: &'static str, description: &'static str) -> Tool {
    let schema = schemars::SchemaGenerator::from(schemars::generate::SchemaSettings::draft2020_12().with(|settings| {
        // Some agents pass schemas to providers without support for references.
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    }))
    .into_root_schema_for::<T>();
    let mut schema = schema.as_object().cloned().unwrap_or_default();
    schema.remove("title");
    schema.remove("description");
    let hints = ToolAnnotations::new().read_only(true).destructive(false).idempotent(true).open_world(false);
    Tool::new(name, description, schema).with_annotations(hints)
}

/// Parses a tool's arguments; the error names invalid ones.
fn read<T: DeserializeOwned>(arguments: JsonObject) -> Result<T, Failure> {
    // Null counts as missing, because agents fill in all fields of a schema.
    let given: JsonObject = arguments.into_iter().filter(|(_, value)| !value.is_null()).collect();
    serde_json::from_value(given.into()).map_err(|error| Failure::new(format!("the arguments are wrong: {error}")))
}

/// Returns the message for the agent after a store failure, and logs the cause.
fn store_error_message(error: StoreError) -> String {
    tracing::warn!(%error, "could not read the session memory");
    if matches!(error, StoreError::TooSlow) {
        return format!("the search took longer than {} s; narrow the query", MAX_TIME.as_secs());
    }
    "the session memory is unavailable now; continue without it".to_owned()
}
