//! A run of the built-in agent: turns until the model is done or a limit is reached.

use std::time::Duration;

use ralph_types::failure::Failure;
use tokio_util::sync::CancellationToken;

use super::bash::{AgentShell, BashCommand, BashOutcome};
use super::edit::{EditCommand, Tree};
use super::transcript::Transcript;
use super::{InternalAgent, context, images, setup};
use crate::agent::run_environment::{REPORT, RunFolders};
use crate::agent::text::{MAX_EVENT_TEXT, shortened};
use crate::agent::{AgentEvent, AgentOutcome, AgentRun, AgentStatus, Brokered, report};
use crate::clock::Stopwatch;
use crate::domain::model::ids::Money;
use crate::domain::model::tokens::BYTES_PER_TOKEN;
use crate::domain::providers::chat::{
    ChatAnswer, ChatMessage, ChatRequest, ModelStop, ModelTurn, ToolCall, ToolDefinition, ToolResult,
};
use crate::domain::providers::limit::{self, LimitKind, LimitSignals};
use crate::domain::providers::prices::TokenUsage;

/// Maximum number of errors in an outcome.
const MAX_ERRORS: usize = 50;
/// Maximum length of an error, in characters.
const MAX_ERROR: usize = 500;
/// Maximum length of the final message, in bytes.
const MAX_FINAL_MESSAGE: usize = 16 * 1024;
/// Maximum number of tool calls per turn; further ones are answered with an error.
const MAX_CALLS: usize = 32;
/// Maximum number of retries per request.
const RETRIES: u32 = 2;
/// Maximum time that a run waits for the end of a provider's limit.
const SHORT_LIMIT: Duration = Duration::from_secs(5);
/// Maximum number of consecutive requests to continue after a truncated or empty response.
const NUDGES: u32 = 2;
/// Number of remaining turns at which the model receives a warning.
const WARNED_AT: u32 = 3;
/// Percentage of the context window that the conversation can fill before it is shortened.
const FILL_PERCENT: u64 = 80;

/// State of a run.
struct InternalRun<'a> {
    agent: &'a InternalAgent,
    run: &'a AgentRun,
    model: String,
    shell: AgentShell,
    cancel: &'a CancellationToken,
    on_event: &'a mut (dyn FnMut(AgentEvent) + Send),
    watch: Stopwatch,
    messages: Vec<ChatMessage>,
    tools: Vec<ToolDefinition>,
    /// Whether commands may run.
    commands: bool,
    system: String,
    /// Number of tokens per byte of the conversation, measured with the last response.
    density: f64,
    usage: TokenUsage,
    cost: Option<Money>,
    tool_calls: u32,
    tool_errors: u32,
    errors: Vec<String>,
    final_message: String,
    /// Last stop reason of the model, or the limit that ended the run.
    stop_reason: String,
    /// Signs of a limit in the last call.
    signals: LimitSignals,
    transcript: Transcript,
}

/// Runs the built-in agent until the model is done or a limit is reached.
pub(super) async fn run(
    agent: &InternalAgent,
    run: &AgentRun,
    cancel: &CancellationToken,
    on_event: &mut (dyn FnMut(AgentEvent) + Send),
) -> AgentOutcome {
    let watch = Stopwatch::start();
    let folders = match RunFolders::prepare(run) {
        Ok(folders) => folders,
        Err(error) => {
            let reason = format!("could not create its folder {}: {error}", run.scratch.display());
            return AgentOutcome::only(AgentStatus::Failed { reason });
        }
    };
    let model = run.model.as_deref().unwrap_or(&agent.internal.default_model);
    let model = agent.settings.models.get(model).map_or(model, String::as_str).to_owned();
    let commands = run.sandboxed || agent.internal.commands_outside;
    let mut state = InternalRun {
        shell: setup::shell(agent, run, &folders, &model),
        system: setup::instructions(agent, run),
        messages: vec![images::first_message(run, agent.internal.takes_images)],
        tools: setup::tools(run, commands),
        commands,
        density: 1.0 / BYTES_PER_TOKEN as f64,
        usage: TokenUsage::default(),
        cost: None,
        tool_calls: 0,
        tool_errors: 0,
        errors: Vec::new(),
        final_message: String::new(),
        stop_reason: String::new(),
        signals: LimitSignals::default(),
        transcript: Transcript::default(),
        agent,
        run,
        model,
        cancel,
        on_event,
        watch,
    };
    let status = match state.turns().await {
        Ok(status) | Err(status) => status,
    };
    state.outcome(status, &folders)
}

impl InternalRun<'_> {
    /// Runs turns until the model is done. The error is the status of a run that ended early.
    async fn turns(&mut self) -> Result<AgentStatus, AgentStatus> {
        let turns = self.run.max_turns.unwrap_or(self.agent.internal.bounds.turns);
        let mut nudges = 0;
        for turn in 1..=turns {
            let answer = self.answer().await?;
            self.book(&answer);
            let nudge = match (&answer.stop, answer.turn.calls.is_empty()) {
                (ModelStop::Refused, _) => {
                    let reason = format!("the model refused to continue: {}", self.shown(&answer.turn.text, MAX_ERROR));
                    return Err(AgentStatus::Failed { reason });
                }
                (_, false) => None,
                (ModelStop::ContextFull, true) => {
                    let half = context::size(&self.messages) / 2;
                    context::trim(&mut self.messages, half);
                    Some("Your answer was cut, because the conversation was too long; it is shorter now. Continue.")
                }
                (ModelStop::MaxTokens, true) => Some("Your answer was cut at its maximum length. Continue."),
                (_, true) if answer.turn.text.trim().is_empty() => {
                    Some("Your answer was empty. Call a tool, or say what you did if you are done.")
                }
                (_, true) => return Ok(AgentStatus::Finished),
            };
            self.check_budget()?;
            nudges = if nudge.is_some() { nudges + 1 } else { 0 };
            if nudges > NUDGES {
                let reason = format!("the model's answers were cut or empty {nudges} times in a row");
                return Err(AgentStatus::Failed { reason });
            }
            let mut model_turn = answer.turn;
            if let Some(nudge) = nudge {
                if model_turn.text.trim().is_empty() {
                    model_turn = ModelTurn { text: "(nothing)".to_owned(), ..ModelTurn::default() };
                }
                self.messages.extend([ChatMessage::Model(model_turn), ChatMessage::User(nudge.to_owned())]);
                continue;
            }
            let results = self.use_tools(&model_turn.calls, turns - turn).await?;
            self.messages.extend([ChatMessage::Model(model_turn), ChatMessage::Results(results)]);
        }
        // Not an error: the next iteration continues the work.
        "max_turns".clone_into(&mut self.stop_reason);
        self.note(&format!("it stopped at its limit of {turns} turns"));
        Ok(AgentStatus::Finished)
    }

    /// Requests the next turn of the model; retries temporary errors.
    async fn answer(&mut self) -> Result<ChatAnswer, AgentStatus> {
        let bounds = &self.agent.internal.bounds;
        let mut most = self.room();
        let mut shrunk = false;
        let mut tries = 0;
        loop {
            context::trim(&mut self.messages, most);
            let error = match self.call().await? {
                Ok(answer) => {
                    self.signals = LimitSignals { succeeded: true, ..LimitSignals::default() };
                    return Ok(answer);
                }
                Err(error) => error,
            };
            self.signals = self.masked(error.signals.clone());
            let what = self.shown(&error.what, MAX_ERROR);
            if matches!(self.messages.first(), Some(ChatMessage::UserWithImages(..))) && images::are_refused(&error) {
                self.messages[0] = images::first_message(self.run, false);
                self.note(&format!("the images were left out: {what}"));
                continue;
            }
            let now = self.agent.internal.clock.now();
            let limit = limit::classify(&error.signals, now);
            let until = limit.as_ref().and_then(|limit| limit.until);
            let kind = limit.map(|limit| limit.kind);
            let wait = match kind {
                Some(LimitKind::ContextTooLong) if !shrunk => {
                    shrunk = true;
                    most = context::size(&self.messages) / 2;
                    self.note(&format!("the conversation was shortened: {what}"));
                    continue;
                }
                Some(LimitKind::Auth | LimitKind::Billing | LimitKind::ModelMissing) => {
                    return Err(AgentStatus::Unavailable { reason: what });
                }
                Some(LimitKind::Rate | LimitKind::Quota | LimitKind::Overload) => match until {
                    Some(until) => Duration::from_millis(u64::try_from(until.0 - now.0).unwrap_or(0)),
                    None if kind == Some(LimitKind::Overload) => bounds.retry.saturating_mul(4_u32.pow(tries)),
                    None => Duration::MAX,
                },
                None if error.retryable => bounds.retry.saturating_mul(4_u32.pow(tries)),
                None if self.is_unusable(error.signals.status) => {
                    return Err(AgentStatus::Unavailable { reason: what });
                }
                Some(LimitKind::ContextTooLong | LimitKind::Policy | LimitKind::Empty | LimitKind::OwnBudget)
                | None => {
                    return Err(AgentStatus::Failed { reason: what });
                }
            };
            if tries >= RETRIES || wait > SHORT_LIMIT {
                return Err(AgentStatus::Limited { until_ms: until.map(|until| until.0), reason: what });
            }
            tries += 1;
            self.note(&format!("a request to the provider was retried: {what}"));
            (self.on_event)(AgentEvent::Retried { reason: what });
            tokio::select! {
                () = self.cancel.cancelled() => return Err(AgentStatus::Cancelled),
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Whether an error that is neither a limit nor temporary shows that the endpoint is misconfigured: it denies
    /// access, or the first response has an unknown format because the address belongs to another server.
    fn is_unusable(&self, status: Option<u16>) -> bool {
        match status {
            Some(401..=405) => true,
            Some(200..=399) => self.usage == TokenUsage::default(),
            _ => false,
        }
    }

    /// Calls the model once, within the time limits of the run.
    async fn call(&mut self) -> Result<Result<ChatAnswer, crate::domain::providers::chat::CallError>, AgentStatus> {
        let remaining = self.remaining()?;
        let bounds = &self.agent.internal.bounds;
        let request = ChatRequest {
            model: self.model.clone(),
            system: self.system.clone(),
            messages: self.messages.clone(),
            tools: self.tools.clone(),
            max_tokens: bounds.answer_tokens,
            schema: None,
            cache: true,
            timeout: bounds.call,
        };
        let answer = (self.agent.internal.model)(request);
        tokio::select! {
            () = self.cancel.cancelled() => Err(AgentStatus::Cancelled),
            answer = tokio::time::timeout(remaining.min(self.run.idle), answer) => answer.map_err(|_| {
                if self.run.idle < remaining { self.silent() } else { self.too_long() }
            }),
        }
    }

    /// Returns the maximum size of the conversation in bytes.
    fn room(&self) -> usize {
        let bounds = &self.agent.internal.bounds;
        let tokens = (bounds.context_window - u64::from(bounds.answer_tokens)) / 100 * FILL_PERCENT;
        let fixed = self.system.len() + 4_000;
        ((tokens as f64 / self.density) as usize).saturating_sub(fixed).max(4_000)
    }

    /// Adds the usage of a response to the run and reports it.
    fn book(&mut self, answer: &ChatAnswer) {
        let sent = self.system.len() + 4_000 + context::size(&self.messages);
        let calls = answer.turn.calls.iter().map(|call| call.arguments.len()).sum::<usize>();
        let usage = answer.usage.unwrap_or_else(|| TokenUsage::estimated(sent, answer.turn.text.len() + calls));
        // Between one token per eight bytes and one per byte.
        self.density = (usage.read() as f64 / sent as f64).clamp(0.125, 1.0);
        self.usage = self.usage.plus(usage);
        match (self.agent.internal.price)(&answer.model, &usage) {
            Some(cost) => self.cost = Some(self.cost.unwrap_or(Money(0)).plus(cost)),
            None if self.run.max_cost.is_some() && self.usage == usage => {
                self.note(&format!("no price is known for {}: its cost is not counted", answer.model));
            }
            None => {}
        }
        (self.on_event)(AgentEvent::Used {
            tokens_in: self.usage.read(),
            tokens_out: self.usage.output,
            cache_read: self.usage.cache_read,
            cache_write: self.usage.cache_write,
            cost: self.cost,
            model: Some(answer.model.clone()),
        });
        answer.stop.word().clone_into(&mut self.stop_reason);
        let text = answer.turn.text.trim();
        if !text.is_empty() {
            let text = self.agent.secrets.mask(text).into_owned();
            self.transcript.add(&text);
            (self.on_event)(AgentEvent::Text { text: shortened(&text, MAX_EVENT_TEXT) });
            self.final_message = text;
        }
    }

    /// Returns an error with the run's status if the budget is used up.
    fn check_budget(&mut self) -> Result<(), AgentStatus> {
        if self.run.max_cost.zip(self.cost).is_some_and(|(most, cost)| cost >= most) {
            return Err(AgentStatus::OverBudget);
        }
        let most = self.agent.internal.bounds.tokens;
        if self.usage.total() >= most {
            self.note(&format!("it stopped at its limit of {most} tokens"));
            return Err(AgentStatus::OverBudget);
        }
        Ok(())
    }

    async fn use_tools(&mut self, calls: &[ToolCall], turns_left: u32) -> Result<Vec<ToolResult>, AgentStatus> {
        let mut results = Vec::with_capacity(calls.len());
        for (number, call) in calls.iter().enumerate() {
            self.remaining()?;
            let name = shortened(&call.name, 100);
            self.tool_calls = self.tool_calls.saturating_add(1);
            let input = self.shown(&about(&call.arguments), MAX_ERROR);
            (self.on_event)(AgentEvent::ToolCalled { name: self.agent.secrets.mask(&name).into_owned(), input });
            let done = if number < MAX_CALLS {
                self.use_tool(call).await?
            } else {
                Err(Failure::new(format!("more than {MAX_CALLS} calls in one turn; this one was not made")))
            };
            let failed = done.is_err();
            let text = done.unwrap_or_else(|failure| failure.to_string());
            let masked = self.agent.secrets.mask(&text).into_owned();
            let asked = self.agent.secrets.mask(&call.arguments).into_owned();
            self.transcript.add(&format!("> {name} {asked}\n{masked}"));
            if failed {
                self.tool_errors = self.tool_errors.saturating_add(1);
                (self.on_event)(AgentEvent::ToolFailed { text: shortened(&masked, MAX_EVENT_TEXT) });
            }
            results.push(ToolResult { id: call.id.clone(), text, failed });
        }
        if let Some(last) = results.last_mut().filter(|_| turns_left == WARNED_AT) {
            last.text.push_str(&format!("\n\n[{turns_left} turns are left. Bring the work to a working state.]"));
        }
        Ok(results)
    }

    /// Runs a tool call. Returns the text for the model, as an error if the call failed.
    async fn use_tool(&mut self, call: &ToolCall) -> Result<Result<String, Failure>, AgentStatus> {
        let wrong =
            |error: serde_json::Error| Failure::new(format!("the arguments of {} are invalid: {error}", call.name));
        Ok(match call.name.as_str() {
            "bash" if !self.commands => Err(Failure::new("commands cannot run: there is no sandbox here")),
            "bash" => match serde_json::from_str::<BashCommand>(&call.arguments).map_err(wrong) {
                Ok(bash) => match self.shell.run(bash, self.remaining()?, self.cancel).await {
                    BashOutcome::Completed { text, failed: false } => Ok(text),
                    BashOutcome::Completed { text, failed: true } => Err(text.into()),
                    BashOutcome::Cancelled => return Err(AgentStatus::Cancelled),
                    BashOutcome::Impossible(reason) => return Err(AgentStatus::Unavailable { reason }),
                },
                Err(error) => Err(error),
            },
            "edit" => {
                serde_json::from_str::<EditCommand>(&call.arguments).map_err(wrong).and_then(|edit| self.edit(edit))
            }
            other => match self.run.tools.as_ref().filter(|_| self.tools.iter().any(|tool| tool.name == other)) {
                Some(tools) => tools.call(other, &call.arguments).await,
                None => {
                    let known: Vec<&str> = self.tools.iter().map(|tool| tool.name.as_str()).collect();
                    Err(Failure::new(format!("there is no tool {other:?}; the tools are {}", known.join(", "))))
                }
            },
        })
    }

    fn edit(&mut self, edit: EditCommand) -> Result<String, Failure> {
        let changed = edit.changes().map(str::to_owned);
        if !self.run.purpose.changes_tree() && changed.is_some() {
            return Err(Failure::new("the files are read-only in this run"));
        }
        let text = Tree { top: &self.run.tree, read_only: &self.run.read_only }
            .edit(edit)
            .map_err(|failure| failure.to_string())?;
        if let Some(path) = changed {
            let path = self.shown(&path, MAX_ERROR);
            (self.on_event)(AgentEvent::FileChanged { path });
        }
        Ok(text)
    }

    /// Returns the remaining time of the run; an error with the run's status if there is none.
    fn remaining(&self) -> Result<Duration, AgentStatus> {
        if self.cancel.is_cancelled() {
            return Err(AgentStatus::Cancelled);
        }
        let remaining = self.run.wall.saturating_sub(self.watch.elapsed());
        if remaining.is_zero() { Err(self.too_long()) } else { Ok(remaining) }
    }

    fn too_long(&self) -> AgentStatus {
        AgentStatus::TimedOut { what: format!("it ran for longer than {} s", self.run.wall.as_secs_f64()) }
    }

    fn silent(&self) -> AgentStatus {
        AgentStatus::TimedOut { what: format!("the model sent nothing for {} s", self.run.idle.as_secs_f64()) }
    }

    /// Masks and shortens a text.
    fn shown(&self, text: &str, most: usize) -> String {
        shortened(self.agent.secrets.mask(text.trim()).as_ref(), most)
    }

    /// Returns signals with secrets masked.
    fn masked(&self, mut signals: LimitSignals) -> LimitSignals {
        let values = signals.headers.iter_mut().map(|(_, value)| value);
        let texts = [&mut signals.answer].into_iter().chain(&mut signals.messages).chain(&mut signals.code);
        for text in values.chain(texts) {
            *text = self.agent.secrets.mask(text).into_owned();
        }
        signals
    }

    fn note(&mut self, error: &str) {
        if self.errors.len() < MAX_ERRORS {
            self.errors.push(self.shown(error, MAX_ERROR));
        }
    }

    fn outcome(mut self, status: AgentStatus, folders: &RunFolders) -> AgentOutcome {
        let (report, report_problem) = report::read(&folders.report, REPORT, &self.agent.secrets);
        let start = self.final_message.len().saturating_sub(MAX_FINAL_MESSAGE);
        let start = self.final_message.ceil_char_boundary(start);
        AgentOutcome {
            report,
            report_problem,
            final_message: self.final_message.split_off(start),
            tokens_in: self.usage.read(),
            tokens_out: self.usage.output,
            cache_read: self.usage.cache_read,
            cache_write: self.usage.cache_write,
            stop_reason: self.stop_reason,
            // Its requests are the service's own.
            brokered: self
                .signals
                .status
                .is_some()
                .then(|| Brokered { refusal: Some(self.signals.clone()), ..Brokered::default() }),
            signals: self.signals,
            cost: self.cost,
            tool_calls: self.tool_calls,
            tool_errors: self.tool_errors,
            errors: self.errors,
            duration_ms: u64::try_from(self.watch.elapsed().as_millis()).unwrap_or(u64::MAX),
            output: self.transcript.text(),
            ..AgentOutcome::only(status)
        }
    }
}

/// Returns a summary of a tool call: its command or its path.
fn about(arguments: &str) -> String {
    let arguments = serde_json::from_str::<serde_json::Value>(arguments).unwrap_or_default();
    let named = ["path", "command", "query"].iter().find_map(|name| arguments[name].as_str());
    named.unwrap_or_default().to_owned()
}
