//! Consumes the event stream of a run: stores events in the session memory and enforces the cost limit. Also starts
//! the run's MCP server.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use failpoint::kill_point;
use ralph_types::failure::Failure;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::agent::{AgentEvent, RunTools};
use crate::domain::knowledge::session::{EventKind, SessionEvent, TreeRoots};
use crate::domain::model::ids::{Money, Timestamp};
use crate::domain::providers::chat::ToolDefinition;
use crate::domain::providers::prices::TokenUsage;
use crate::domain::trust::outbound::{AnswerText, Outbound};
use crate::engine::programs::Programs;
use crate::engine::providers::Calls;
use crate::mcp;
use crate::process::private;
use crate::store::WriteGroup;
use crate::store::calls::{self as bookings, CallContext};

/// Maximum number of stored events per run.
const MAX_EVENTS: usize = 2_000;
/// Capacity of the queue of unprocessed events of a run.
pub(super) const EVENT_QUEUE_CAPACITY: usize = 2 * MAX_EVENTS;
/// Maximum number of stored tool names per run.
const MAX_TOOLS: usize = 20;

/// Consumer of the events of one run.
pub(super) struct RunMonitor {
    /// Call of the backend.
    pub caller: CallContext,
    /// Backend of the call.
    pub backend: String,
    /// Model of the call.
    pub model: Option<String>,
    /// 1-based number of the iteration.
    pub iteration: u32,
    /// Roots of the work tree.
    pub tree: TreeRoots,
    /// Maximum cost, which applies if the limits cannot be read from the store.
    pub at_most: Option<Money>,
    /// Maximum number of input and output tokens; `None` for no limit.
    pub max_tokens: Option<u64>,
    /// Whether any output was received.
    pub answered: bool,
    /// Whether the run was stopped for exceeding its limit of cost or tokens.
    pub over_budget: bool,
    /// Last tool called; empty before the first call.
    pub tool: String,
    /// Events of the run.
    pub events: Vec<SessionEvent>,
    /// Number of events that are stored already.
    pub stored: usize,
}

/// Filter that limits the events of a run: it accepts the first text, all costs, and a limited number of others.
/// Without it, events could arrive faster than they are processed.
#[derive(Debug, Default)]
pub(super) struct EventFilter {
    spoke: bool,
    passed: usize,
}

impl EventFilter {
    /// Whether the event should be processed.
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
    /// Creates the monitor of a run in a work tree. `at_most` is the maximum cost.
    pub fn new(
        caller: CallContext,
        (backend, model): (String, Option<String>),
        (iteration, tree): (u32, TreeRoots),
        at_most: Option<Money>,
    ) -> Self {
        Self {
            caller,
            backend,
            model,
            iteration,
            tree,
            at_most,
            max_tokens: None,
            answered: false,
            over_budget: false,
            tool: String::new(),
            events: Vec::new(),
            stored: 0,
        }
    }

    /// Processes events with their times, and stores their results in one commit; cancels `stop` once the run exceeds its
    /// cost limit.
    pub async fn handle(&mut self, calls: &Calls, events: Vec<(Timestamp, AgentEvent)>, stop: &CancellationToken) {
        let mut group = WriteGroup::default();
        let (mut answered, mut costs) = (None, Vec::new());
        for (at, event) in events {
            let speaks = matches!(event, AgentEvent::Text { .. } | AgentEvent::ToolCalled { .. });
            if speaks && !self.answered {
                self.answered = true;
                answered = Some(calls.answered(&mut group, &self.caller.key));
            }
            if let Some(cost) = self.note(calls, at, event) {
                let (caller, now) = (self.caller.clone(), calls.context.clock.now());
                costs.push((cost, group.add(move |c| bookings::record_cost(c, &caller, cost, now))));
            }
        }
        if self.over_budget {
            stop.cancel();
        }
        if answered.is_none() && costs.is_empty() {
            return;
        }
        if let Err(error) = calls.context.store.submit(group) {
            // Each of the writes reports it.
            tracing::debug!(%error, "could not store the activity of a run");
        }
        if let Some(answered) = answered {
            calls.tell_answered(answered).await;
        }
        for (cost, recorded) in costs {
            let reached = match calls.context.store.outcome(recorded).await {
                Ok(reached) => reached.is_some(),
                Err(error) => {
                    tracing::warn!(%error, "could not record the current cost of a run");
                    self.at_most.is_some_and(|most| cost > most)
                }
            };
            kill_point("K17");
            if reached {
                self.over_budget = true;
                stop.cancel();
            }
        }
    }

    /// Records an event of the run; returns the run's reported cost so far.
    fn note(&mut self, calls: &Calls, at: Timestamp, event: AgentEvent) -> Option<Money> {
        match event {
            AgentEvent::ToolCalled { name, input } => {
                self.tool.clone_from(&name);
                let path = self.tree.named(&input);
                let input = path.clone().unwrap_or(input);
                self.keep(at, EventKind::ToolCall, name, path, input, false);
            }
            AgentEvent::ToolFailed { text } => {
                // With parallel calls the failed tool is unknown; the last one called is recorded.
                let tool = self.tool.clone();
                self.keep(at, EventKind::ToolResult, tool, None, text, true);
            }
            AgentEvent::FileChanged { path } => {
                let (tool, path, text) =
                    (String::new(), Some(self.tree.relative(&path)), "edited by the agent".to_owned());
                self.keep(at, EventKind::FileChange, tool, path, text, false);
            }
            AgentEvent::Retried { reason } => {
                self.keep(at, EventKind::Error, String::new(), None, reason, true);
            }
            AgentEvent::Used { tokens_in, tokens_out, cache_read, cache_write, cost, model } => {
                let usage = TokenUsage::with_cached_in(tokens_in, tokens_out, cache_read, cache_write);
                self.over_budget |= self.max_tokens.is_some_and(|most| usage.total() > most);
                // The configured name of the model may be an alias without a price.
                let mut models = [self.model.as_deref(), model.as_deref()].into_iter();
                let estimate = || models.find_map(|model| calls.estimated(&self.backend, model, &usage));
                return cost.or_else(estimate);
            }
            AgentEvent::Session { .. } | AgentEvent::Text { .. } => {}
        }
        None
    }

    /// Returns the distinct names of the tools in the order of their first call.
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

    /// Returns the events that are not stored yet.
    pub fn unstored(&self) -> &[SessionEvent] {
        self.events.get(self.stored..).unwrap_or_default()
    }

    fn keep(&mut self, at: Timestamp, kind: EventKind, tool: String, path: Option<String>, text: String, failed: bool) {
        if self.events.len() < MAX_EVENTS {
            let tool = Some(tool).filter(|tool| !tool.is_empty());
            self.events.push(SessionEvent { iteration: self.iteration, kind, tool, path, text, failed, at });
        }
    }
}

/// Returns an event with the events that wait behind it.
pub(super) fn with_waiting<T>(event: T, events: &mut mpsc::Receiver<T>) -> Vec<T> {
    [event].into_iter().chain(std::iter::from_fn(|| events.try_recv().ok())).collect()
}

/// Session memory as tools for an agent that runs in this process.
pub(super) struct SessionTools(mcp::Tools);

impl SessionTools {
    /// Creates the tools of a session.
    pub fn new(session: mcp::Session) -> Self {
        Self(mcp::Tools::new(Arc::new(session)))
    }
}

impl fmt::Debug for SessionTools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionTools")
    }
}

#[async_trait]
impl RunTools for SessionTools {
    fn definitions(&self) -> Vec<ToolDefinition> {
        let named = |(name, description, parameters)| ToolDefinition {
            name: format!("{}_{name}", mcp::NAME),
            description,
            parameters,
        };
        self.0.described().into_iter().map(named).collect()
    }

    async fn call(&self, name: &str, arguments: &str) -> Result<String, Failure> {
        let own = name.strip_prefix(mcp::NAME).and_then(|name| name.strip_prefix('_')).unwrap_or(name);
        let told = |text: Outbound<AnswerText>| text.as_str().to_owned();
        self.0.call(own, arguments).await.map(told).map_err(|failure| Failure::new(told(failure)))
    }
}

/// MCP server of one run.
pub(super) struct RunMemoryServer {
    /// Socket of the server.
    pub listener: tokio::net::UnixListener,
    /// Session memory that it serves.
    pub session: mcp::Session,
    /// MCP configuration file for the agent.
    pub config: PathBuf,
    /// Paths that the sandbox must make readable.
    pub read_only: Vec<PathBuf>,
}

/// Creates the server of a run's session memory in its scratch folder; `None` if the agent cannot reach sockets or the socket
/// cannot be created.
pub(super) fn memory_server(
    programs: &Programs,
    session: mcp::Session,
    scratch: &std::path::Path,
) -> Option<RunMemoryServer> {
    // It is reached over a Unix socket.
    let reached = !programs.settings.sandbox.on || programs.settings.sandbox.settings.reaches_sockets();
    let program = programs.settings.program.as_ref().filter(|_| reached)?;
    let made = mcp::listen(scratch).and_then(|(listener, socket)| {
        let config = scratch.join("mcp.json");
        private::write(&config, mcp::config(&socket, &session.token, program).to_string())?;
        Ok((listener, socket, config))
    });
    let (listener, socket, config) = match made {
        Ok(made) => made,
        Err(error) => {
            tracing::warn!(loop_id = %session.loop_id, %error, "the agent runs without session memory");
            return None;
        }
    };
    let read_only = vec![socket, config.clone(), program.clone()];
    Some(RunMemoryServer { listener, session, config, read_only })
}
