//! What is heard of a run while it lasts: kept for the session memory, shown to the money limits, and the sign that its
//! provider answers. Beside it the run's own MCP server.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use failpoint::kill_point;
use tokio_util::sync::CancellationToken;

use crate::agent::AgentEvent;
use crate::clock::Clock;
use crate::domain::checks::criteria::TaskType;
use crate::domain::knowledge::memory::{LearningQuery, MemorySettings};
use crate::domain::knowledge::session::{EventKind, SessionEvent};
use crate::domain::loops::Loop;
use crate::domain::model::ids::{Money, RepoRef, Timestamp};
use crate::domain::providers::prices::TokenUsage;
use crate::embed::StaticModel;
use crate::engine::Engine;
use crate::mcp;
use crate::store::calls::{self, CallContext};
use crate::store::{Store, memory};

/// Events of one run that are kept.
const MAX_EVENTS: usize = 2_000;
/// Events of one run that may wait to be heard.
pub(super) const EVENT_QUEUE_CAPACITY: usize = 2 * MAX_EVENTS;
/// Names of tools of one run that are kept.
const MAX_TOOLS: usize = 20;

/// The ear at one run.
pub(super) struct RunMonitor {
    /// The call.
    pub caller: CallContext,
    /// Its backend.
    pub backend: String,
    /// Its model.
    pub model: Option<String>,
    /// Number of the iteration.
    pub iteration: u32,
    /// What it may cost, where the limits cannot be asked.
    pub at_most: Option<Money>,
    /// Whether it was heard yet.
    pub answered: bool,
    /// Whether it was ended because it cost more.
    pub over_budget: bool,
    /// The tool that was called last; empty before the first.
    pub tool: String,
    /// What was kept of it.
    pub events: Vec<SessionEvent>,
}

/// What of a run's events is heard: the first word, what things cost, and no more of the rest than is kept. A flood, which
/// is read faster than it is heard, would pile up.
#[derive(Debug, Default)]
pub(super) struct EventFilter {
    spoke: bool,
    passed: usize,
}

impl EventFilter {
    /// Whether this event, of all that come in turn, is to be heard.
    pub fn accepts(&mut self, event: &AgentEvent) -> bool {
        match event {
            AgentEvent::Session { .. } => false,
            AgentEvent::Text { .. } => !std::mem::replace(&mut self.spoke, true),
            AgentEvent::Used { .. } => true,
            _ => {
                self.passed = self.passed.saturating_add(1);
                self.passed <= MAX_EVENTS
            }
        }
    }
}

impl RunMonitor {
    /// Takes an event. Ends the run by `stop` once it has cost more than it may.
    pub async fn handle(&mut self, engine: &Engine, event: AgentEvent, stop: &CancellationToken) {
        let speaks = matches!(event, AgentEvent::Text { .. } | AgentEvent::ToolCalled { .. });
        if speaks && !self.answered {
            self.answered = true;
            engine.answered(&self.caller.key).await;
        }
        match event {
            AgentEvent::ToolCalled { name, input } => {
                self.tool.clone_from(&name);
                self.keep(engine.clock.now(), EventKind::ToolCall, name, None, input, false);
            }
            AgentEvent::ToolFailed { text } => {
                // Of calls side by side it is not told which one failed; it counts against the last of them.
                let tool = self.tool.clone();
                self.keep(engine.clock.now(), EventKind::ToolResult, tool, None, text, true);
            }
            AgentEvent::FileChanged { path } => {
                self.keep(engine.clock.now(), EventKind::FileChange, String::new(), Some(path), String::new(), false);
            }
            AgentEvent::Retried { reason } => {
                self.keep(engine.clock.now(), EventKind::Error, String::new(), None, reason, true);
            }
            AgentEvent::Used { tokens_in, tokens_out, cache_read, cache_write, cost, model } => {
                let usage = TokenUsage::with_cached_in(tokens_in, tokens_out, cache_read, cache_write);
                // Whoever chose it may have a name for it that has no price.
                let mut models = [self.model.as_deref(), model.as_deref()].into_iter();
                let estimate = || models.find_map(|model| engine.estimated(&self.backend, model, &usage));
                let cost = cost.or_else(estimate);
                let Some(cost) = cost else { return };
                let (caller, now) = (self.caller.clone(), engine.clock.now());
                let reached = match engine.store.write(move |c| calls::record_cost(c, &caller, cost, now)).await {
                    Ok(reached) => reached.is_some(),
                    Err(error) => {
                        tracing::warn!(%error, "what a run has cost up to now could not be noted");
                        self.at_most.is_some_and(|most| cost > most)
                    }
                };
                kill_point("K17");
                if reached {
                    self.over_budget = true;
                    stop.cancel();
                }
            }
            AgentEvent::Session { .. } | AgentEvent::Text { .. } => {}
        }
    }

    /// The tools that were called, in order, each once.
    pub fn tools(&self) -> Vec<String> {
        let mut tools = Vec::new();
        let called = self.events.iter().filter(|event| event.kind == EventKind::ToolCall);
        for tool in called.filter_map(|event| event.tool.as_ref()) {
            if !tools.contains(tool) && tools.len() < MAX_TOOLS {
                tools.push(tool.clone());
            }
        }
        tools
    }

    fn keep(&mut self, at: Timestamp, kind: EventKind, tool: String, path: Option<String>, text: String, failed: bool) {
        if self.events.len() < MAX_EVENTS {
            let tool = Some(tool).filter(|tool| !tool.is_empty());
            self.events.push(SessionEvent { iteration: self.iteration, kind, tool, path, text, failed, at });
        }
    }
}

/// What loops of a repository learnt, for the agent of one.
struct RepositoryLearnings {
    store: Store,
    settings: MemorySettings,
    embedder: Option<Arc<StaticModel>>,
    clock: Clock,
    repository: RepoRef,
    task_type: TaskType,
}

#[async_trait]
impl mcp::Learnings for RepositoryLearnings {
    async fn search(&self, query: &str) -> Result<Vec<String>, String> {
        let embedding = self.embedder.as_ref().map(|model| model.embed(query));
        let (task_type, repository) = (self.task_type, self.repository.clone());
        let query = LearningQuery { text: query.to_owned(), task_type, repository, embedding };
        let now = self.clock.now();
        let found = memory::recall(&self.store, query, self.settings.clone(), now).await;
        let found = found.map_err(|error| format!("the memory cannot be read now: {error}"))?;
        Ok(found.into_iter().map(|recalled| recalled.learning.line()).collect())
    }
}

/// The MCP server of one run.
pub(super) struct RunMemoryServer {
    /// What it listens on.
    pub listener: tokio::net::UnixListener,
    /// Whose memory it tells.
    pub session: mcp::Session,
    /// The file that tells the agent of it.
    pub config: PathBuf,
    /// What the agent has to be able to read for it.
    pub read_only: Vec<PathBuf>,
}

impl Engine {
    /// The session memory's server for a run with this scratch folder; `None` where memory is off or it cannot be.
    pub(super) fn memory_server(&self, current: &Loop, run: &str, scratch: &std::path::Path) -> Option<RunMemoryServer> {
        let program = self.settings.program.as_ref().filter(|_| self.settings.memory.enabled)?;
        let token = mcp::Token::new(self.mcp_key.as_bytes(), &current.id, run);
        let made = mcp::listen(scratch).and_then(|(listener, socket)| {
            let config = scratch.join("mcp.json");
            std::fs::write(&config, mcp::config(&socket, &token, program).to_string())?;
            Ok((listener, socket, config))
        });
        let (listener, socket, config) = match made {
            Ok(made) => made,
            Err(error) => {
                tracing::warn!(loop_id = %current.id, %error, "the agent runs without session memory");
                return None;
            }
        };
        let learnings = RepositoryLearnings {
            store: self.store.clone(),
            settings: self.settings.memory.clone(),
            embedder: self.settings.embedder.clone(),
            clock: self.clock.clone(),
            repository: current.place.repo.clone(),
            task_type: current.task_type(),
        };
        let session = mcp::Session {
            store: self.store.clone(),
            loop_id: current.id.clone(),
            token,
            learnings: Some(Arc::new(learnings)),
            answer_tokens: mcp::ANSWER_TOKENS,
        };
        let read_only = vec![socket, config.clone(), program.clone()];
        Some(RunMemoryServer { listener, session, config, read_only })
    }
}
