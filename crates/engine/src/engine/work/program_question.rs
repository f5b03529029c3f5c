//! Questions to programs: a run of an agent's command without write access, whose last message is the answer.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use ralph_types::failure::Failure;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::call_guard::CallGuard;
use super::remove_folder;
use super::run_monitor::{EVENT_QUEUE_CAPACITY, EventFilter, RunMonitor, with_waiting};
use super::run_outcome::{SeenBy, limit_of};
use crate::agent::{AgentOutcome, AgentRun, AgentStatus, Backend, RunImages, RunPurpose};
use crate::domain::knowledge::session::TreeRoots;
use crate::domain::loops::Loop;
use crate::domain::model::ids::Money;
use crate::domain::providers::chat::{CallError, ChatAnswer, ChatMessage, ChatRequest, ModelStop, ModelTurn};
use crate::domain::providers::limit::LimitSignals;
use crate::engine::context::{ServiceContext, random};
use crate::engine::programs::Programs;
use crate::engine::providers::{CallEnd, CallUsage, Calls};
use crate::process::{Cookie, RefusedHosts, private};
use crate::provider::assistant::Assistant;
use crate::store::calls::CallContext;

/// Maximum time without output of the program; shorter if the run's time limit is.
const IDLE: Duration = Duration::from_secs(600);
/// Part of a question's time limit in which its program is stopped.
const STOP_TIME: Duration = Duration::from_secs(6);
/// Minimum time limit of a program.
const MIN_WALL: Duration = Duration::from_secs(1);
/// Maximum number of input and output tokens of a program that answers a question. The program's own instructions are included.
const MAX_TOKENS: u64 = 100_000;
/// Maximum number of turns of a program that answers a question.
const MAX_TURNS: u32 = 3;

/// Run of a program that reads and answers.
pub(super) struct ProgramRun<'a> {
    /// Loop that the run is about.
    pub current: &'a Loop,
    /// Call of the backend.
    pub caller: &'a CallContext,
    /// Name of the backend.
    pub backend: &'a str,
    /// Model; `None` for the backend's default.
    pub model: Option<&'a str>,
    /// Purpose, which must not allow changes of the tree.
    pub purpose: RunPurpose,
    /// Prompt of the run.
    pub prompt: String,
    /// Absolute path of the working directory.
    pub tree: PathBuf,
    /// Absolute paths that the program may read.
    pub read_only: Vec<PathBuf>,
    /// Absolute path of the folder for prompt, report and home.
    pub scratch: PathBuf,
    /// Time limit.
    pub wall: Duration,
    /// Maximum number of turns, for programs that count them.
    pub max_turns: Option<u32>,
    /// Maximum number of input and output tokens.
    pub max_tokens: Option<u64>,
}

/// End of a program's run.
pub(super) struct ProgramEnd {
    /// End for the state of the backend.
    pub end: CallEnd,
    /// Tokens and cost.
    pub used: CallUsage,
    /// Last message, or the reason why there is none.
    pub message: Result<String, Failure>,
}

/// Runs programs that answer questions or give second opinions.
#[derive(Clone)]
pub(in crate::engine) struct ProgramRuns {
    pub(in crate::engine) context: ServiceContext,
    pub(in crate::engine) calls: Arc<Calls>,
    pub(in crate::engine) programs: Arc<Programs>,
}

impl ProgramRuns {
    /// Runs a program to its end. Stops it at its limits of time, tokens and cost.
    pub(super) async fn run_program(
        &self,
        agent: &dyn Backend,
        asked: ProgramRun<'_>,
        cancel: &CancellationToken,
    ) -> ProgramEnd {
        let ProgramRun { current, caller, backend, model, .. } = asked;
        let of_loop = Money((current.limits.cost.0 - current.spent.cost.0).max(0));
        // The broker limits answers by the run's budget, so a request without a limit stays below the purpose's limit.
        let most = caller.limits.of_purpose.map_or(of_loop, |most| Money(most.0.min(of_loop.0)));
        let tree = TreeRoots::new([asked.tree.display().to_string()]);
        let run = AgentRun {
            prompt: asked.prompt,
            tree: asked.tree,
            purpose: asked.purpose,
            images: RunImages::default(),
            read_only: asked.read_only,
            scratch: asked.scratch,
            loop_id: current.id.to_string(),
            iteration: current.spent.iterations,
            model: model.map(str::to_owned),
            wall: asked.wall,
            idle: asked.wall.min(IDLE),
            max_turns: asked.max_turns,
            max_cost: (current.limits.cost > Money(0)).then_some(most),
            session: None,
            keep: None,
            mcp_config: None,
            tools: None,
            home_prepared: false,
            cookie: Cookie::new(&self.programs.instance, current.id.as_str(), 0),
            sandboxed: self.programs.settings.sandbox.on,
            sandbox: self.programs.settings.sandbox.settings.clone(),
            network: self.programs.network(&RefusedHosts::default()),
            guard: Some(CallGuard::of(&self.context, caller)),
        };
        let by = (backend.to_owned(), model.map(str::to_owned));
        let mut monitor = RunMonitor::new(caller.clone(), by, (current.spent.iterations, tree), run.max_cost);
        monitor.max_tokens = asked.max_tokens;
        self.calls.learn_login(backend);
        let outcome = self.monitored(agent, run, monitor, cancel).await;
        self.calls.learn_login(backend);
        let limit = limit_of(&outcome, self.context.clock.now());
        let end = match (&limit, &outcome.status) {
            (Some((limit, SeenBy::Service)), _) => CallEnd::Limited(limit.clone()),
            (Some((limit, SeenBy::Run)), _) => CallEnd::Claimed(limit.clone()),
            (None, AgentStatus::Finished) => CallEnd::Succeeded,
            (None, AgentStatus::Cancelled | AgentStatus::OverBudget) => CallEnd::Ended,
            (None, status) => CallEnd::Failed(status.words()),
        };
        let used = self.calls.usage_of((backend, model), &outcome);
        let message = match (limit, outcome.status) {
            (Some((limit, _)), _) => Err(Failure::new(limit.evidence)),
            (None, AgentStatus::Finished) => Ok(outcome.final_message),
            (None, status) => Err(Failure::new(status.words())),
        };
        ProgramEnd { end, used, message }
    }

    /// Runs a program and stops it if it exceeds its limits of cost or tokens.
    async fn monitored(
        &self,
        agent: &dyn Backend,
        run: AgentRun,
        mut monitor: RunMonitor,
        cancel: &CancellationToken,
    ) -> AgentOutcome {
        let stop = cancel.child_token();
        let (heard, mut events) = mpsc::channel(EVENT_QUEUE_CAPACITY);
        let mut filter = EventFilter::default();
        let mut on_event = |event| {
            if filter.accepts(&event) {
                // Intermediate costs may be dropped; the total is counted at the end.
                drop(heard.try_send((self.context.clock.now(), event)));
            }
        };
        let running = agent.run(run, &stop, &mut on_event);
        tokio::pin!(running);
        let mut outcome = loop {
            tokio::select! {
                outcome = &mut running => break outcome,
                Some(event) = events.recv() => monitor.handle(&self.calls, with_waiting(event, &mut events), &stop).await,
            }
        };
        if monitor.over_budget && outcome.status == AgentStatus::Cancelled {
            outcome.status = AgentStatus::OverBudget;
        }
        outcome
    }
}

/// Program that answers the questions of one call. It runs in an empty folder.
pub(in crate::engine) struct ProgramAssistant<'a> {
    runs: &'a ProgramRuns,
    agent: &'a dyn Backend,
    current: &'a Loop,
    caller: &'a CallContext,
    backend: &'a str,
    model: &'a str,
    cancel: &'a CancellationToken,
    scratch: PathBuf,
    record: Mutex<ProgramRecord>,
}

/// Record of the runs of a [`ProgramAssistant`].
#[derive(Default)]
struct ProgramRecord {
    used: CallUsage,
    /// End of the last run that failed.
    failure: Option<CallEnd>,
}

impl<'a> ProgramAssistant<'a> {
    /// Creates the assistant of one call. `model` is empty for the backend's default.
    pub fn new(
        runs: &'a ProgramRuns,
        agent: &'a dyn Backend,
        current: &'a Loop,
        caller: &'a CallContext,
        backend: &'a str,
        model: &'a str,
        cancel: &'a CancellationToken,
    ) -> Self {
        let folder = format!("question-{}-{:08x}", caller.purpose, random());
        let scratch = runs.programs.scratch_of(&current.id, folder);
        Self { runs, agent, current, caller, backend, model, cancel, scratch, record: Mutex::default() }
    }

    /// Returns the usage of the runs, and the end of the last failed one.
    pub fn into_record(self) -> (CallUsage, Option<CallEnd>) {
        remove_folder(&self.scratch);
        let ProgramRecord { used, failure } = self.record.into_inner().unwrap_or_else(PoisonError::into_inner);
        (used, failure)
    }

    fn record(&self) -> MutexGuard<'_, ProgramRecord> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Assistant for ProgramAssistant<'_> {
    async fn complete(&self, request: &ChatRequest) -> Result<ChatAnswer, CallError> {
        let error = |what: String| CallError { signals: LimitSignals::default(), retryable: false, what };
        remove_folder(&self.scratch);
        let tree = self.scratch.join("tree");
        for folder in [&self.scratch, &tree] {
            private::create_folder(folder)
                .map_err(|cause| error(format!("could not create its folder {}: {cause}", folder.display())))?;
        }
        let run = ProgramRun {
            current: self.current,
            caller: self.caller,
            backend: self.backend,
            model: Some(self.model).filter(|model| !model.is_empty()),
            purpose: RunPurpose::Question,
            prompt: prompt(request),
            tree,
            read_only: Vec::new(),
            scratch: self.scratch.clone(),
            wall: request.timeout.saturating_sub(STOP_TIME).max(MIN_WALL),
            max_turns: Some(MAX_TURNS),
            max_tokens: Some(MAX_TOKENS),
        };
        let ended = self.runs.run_program(self.agent, run, self.cancel).await;
        let mut record = self.record();
        record.used.add(ended.used);
        let text = ended.message.map_err(|what| {
            record.failure = Some(match ended.end {
                // The backend may run agents as well: a failed question does not block it.
                CallEnd::Failed(_) => CallEnd::Ended,
                other => other,
            });
            error(what.to_string())
        })?;
        let turn = ModelTurn { text, ..ModelTurn::default() };
        let usage = Some(ended.used.usage);
        Ok(ChatAnswer { turn, stop: ModelStop::End, usage, model: self.model.to_owned() })
    }
}

/// Renders a request as one prompt.
fn prompt(request: &ChatRequest) -> String {
    let mut out = String::new();
    for message in &request.messages {
        match message {
            ChatMessage::User(text) | ChatMessage::UserWithImages(text, _) => out.push_str(text),
            ChatMessage::Model(turn) => out.push_str(&format!("Your previous answer was:\n{}", turn.text)),
            ChatMessage::Results(_) => {}
        }
        out.push_str("\n\n");
    }
    out.push_str("Do not use tools, and do not change files: everything that you need is above.\n");
    out.push_str(&request.system);
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompt_ends_with_the_answer_schema() {
        let user = |text: &str| ChatMessage::User(text.to_owned());
        let request = ChatRequest {
            model: "haiku".to_owned(),
            system: "Answer only with JSON.".to_owned(),
            messages: vec![
                user("Summarize."),
                ChatMessage::Model(ModelTurn { text: "No.".to_owned(), ..ModelTurn::default() }),
                user("That answer is invalid."),
            ],
            tools: Vec::new(),
            max_tokens: 10,
            schema: None,
            cache: false,
            timeout: Duration::from_secs(1),
        };
        insta::assert_snapshot!(prompt(&request), @r"
        Summarize.

        Your previous answer was:
        No.

        That answer is invalid.

        Do not use tools, and do not change files: everything that you need is above.
        Answer only with JSON.
        ");
    }
}
