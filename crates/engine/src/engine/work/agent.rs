//! One run of an agent, from the prompt to its outcome. If a provider refuses the call, the run continues with the
//! next backend; the loop waits only if no backend is left.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use failpoint::kill_point;
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use super::assist::Questions;
use super::call_guard::CallGuard;
use super::prompt_inputs::PromptInputs;
use super::remove_folder;
use super::run_monitor::{
    EVENT_QUEUE_CAPACITY, EventFilter, RunMemoryServer, RunMonitor, SessionTools, memory_server, with_waiting,
};
use super::run_outcome::{SeenBy, add, charge, limit_of, outcome_word, warm_up};
use super::run_records::{BATCH_INTERVAL, EndedTurn, RunTranscript, note_output};
use super::selected_backend::SelectedBackend;
use super::session_files::SessionFiles;
use crate::agent::{
    self, AgentOutcome, AgentRun, AgentStatus, ResumedSession, RunImages, RunPurpose, RunTools, ToolCalls,
};
use crate::domain::knowledge::intelligence::Block;
use crate::domain::knowledge::prompt::{self, Extras, PromptImage};
use crate::domain::knowledge::session::{OutputBuffer, TreeRoots};
use crate::domain::loops::{
    AgentEnd, AgentRunFacts, AgentSession, CallOutcome, CallPlan, CallPreparation, Loop, NextCall, RunCall, WorkOutcome,
};
use crate::domain::model::error_chain::error_chain;
use crate::domain::model::ids::{LoopId, Money, RepoRef, Sha};
use crate::domain::providers::backends::{BackendRole, CallAdvice, SessionUse};
use crate::domain::providers::call_refusal::CallRefusal;
use crate::engine::context::random;
use crate::engine::forges::account::ForgeAccount;
use crate::engine::providers::{CallEnd, CallUsage, LostCalls, PlannedCall};
use crate::engine::receipt::{EffectError, Receipt};
use crate::engine::spans::ModelCall;
use crate::engine::work::run_records::AgentRunInputs;
use crate::engine::work::second_opinion::reason;
use crate::engine::work::{Attempt, Runs};
use crate::mcp;
use crate::process::{Cookie, RefusedHosts, private};
use crate::store::calls::{self, CallDecision};
use crate::store::{StoreError, WriteGroup};
use crate::workspace::AgentView;

/// Maximum number of files that a note about saved files names.
const MOST_SET_ASIDE: usize = 20;

impl Runs {
    pub(super) async fn agent(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        current: &Loop,
        attempt: Attempt,
        cancel: &CancellationToken,
    ) -> Result<Receipt, EffectError> {
        self.verification.programs.end_processes(current).await;
        let plans = attempt.plans();
        let Attempt { ticket, iteration, attempt, lease, was_started } = attempt;
        if was_started {
            let LostCalls { cost, before_start } = self.calls.settle_lost(current, ticket, &lease).await?;
            let salvaged = self.verification.workspaces.salvage(&current.id, repo).await.unwrap_or_default();
            let lost = WorkOutcome::AgentLost { salvaged, cost, before_start };
            return Ok(Receipt::outcome("the run was lost", ticket, lost));
        }
        let Some(head) = &current.branch.head else {
            return Err(EffectError::Permanent { why: "the loop has no commit to work on".into() });
        };
        let questions = Questions::of(current, ticket, &lease, cancel);
        let tree = self.verification.workspaces.agent_view(&current.id, repo).tree;
        let put_back = self.put_tree_back(current, repo, head, cancel);
        let (note, mut prompt_inputs) = self.prompts.prompt_inputs(&questions, repo, (&tree, put_back)).await?;
        self.calls.mended(current).await;
        let images = self.images.images_before_run(account, repo, current, cancel).await;
        let failed = std::mem::take(&mut prompt_inputs.failed);
        kill_point("K39");
        let refused = RefusedHosts::default();
        let task = AgentRunInputs {
            current,
            repo,
            head,
            ticket,
            iteration,
            attempt,
            lease: lease.clone(),
            purpose: if plans { RunPurpose::Plan } else { RunPurpose::Iteration },
            prompt_inputs,
            images: images.clone(),
            refused: refused.clone(),
        };
        let mut run = self.run(task, note, cancel).await?;
        self.session_files(current).save(run.session.as_ref(), &lease).await;
        run.images = images;
        run.refused_hosts = refused.names();
        self.context.metrics.refused("network", run.refused_hosts.len() as u64);
        if plans {
            // Where nothing keeps the tree read-only, the run may have changed it.
            self.verification.workspaces.reset(&current.id, repo, head).await?;
        } else {
            self.prompts.read_message(&questions, &mut run).await;
        }
        charge(&mut run, questions.used());
        run.assistant_failure = questions.failure().map(|why| reason(&self.verification.checks.masker, &why));
        run.failed_elsewhere = failed;
        let (text, run) = (format!("{:?}", run.end), Box::new(run));
        let outcome = if plans { WorkOutcome::Planned { run } } else { WorkOutcome::AgentEnded { run } };
        Ok(Receipt::outcome(text, ticket, outcome))
    }

    /// Resets the tree to `head` and restores the pending merge; returns a note for the agent, if any.
    async fn put_tree_back(
        &self,
        current: &Loop,
        repo: &RepoRef,
        head: &Sha,
        cancel: &CancellationToken,
    ) -> Result<Option<String>, EffectError> {
        let note = self.verification.fresh_tree(current, repo, head, cancel).await?;
        if let Some(merging) = current.branch.merging() {
            self.verification.workspaces.merge_base_into(&current.id, repo, head, &merging.other).await?;
        }
        Ok(note)
    }

    /// Runs the agent with one backend after another until a provider accepts the call.
    async fn run(
        &self,
        mut task: AgentRunInputs<'_>,
        mut note: Option<String>,
        cancel: &CancellationToken,
    ) -> Result<AgentRunFacts, EffectError> {
        let mut sum = AgentRunFacts::ending(AgentEnd::Cancelled);
        let mut plan = CallPlan::default();
        let mut session = self.previous_session(task.current).await;
        loop {
            let outcome = match self.select_backend(&task, &plan, &mut session).await? {
                Ok(chosen) => {
                    let call = self.call_selected(&task, chosen, note.take(), &mut sum, cancel).await?;
                    if cancel.is_cancelled() {
                        break;
                    }
                    CallOutcome::Ended(call)
                }
                Err(refusal) => CallOutcome::NotStarted(refusal),
            };
            let now = self.context.clock.now();
            let was_called = matches!(outcome, CallOutcome::Ended(_));
            let next = plan.next(outcome, |name| self.calls.models_of(name, task.current, BackendRole::Agent, now));
            if was_called && next != NextCall::Ended {
                note = self.after_refusal(&task, &sum, cancel).await?;
            }
            match next {
                NextCall::Ended => break,
                NextCall::Unserved(end) => {
                    sum.end = end;
                    break;
                }
                NextCall::Start(CallPreparation::None) => {}
                NextCall::Start(CallPreparation::Enable(backend)) => self.calls.enable(&backend).await,
                NextCall::Start(CallPreparation::ShortenPrompt) => task.prompt_inputs.shorten(),
                NextCall::Start(CallPreparation::NewSession) => {
                    tracing::info!(loop_id = %task.current.id, "the run continues in a new session");
                }
            }
        }
        sum.served.switched = plan.refused_calls().to_vec();
        Ok(sum)
    }

    /// Selects a backend for the next call of a run, and takes the session if the call resumes it.
    async fn select_backend(
        &self,
        task: &AgentRunInputs<'_>,
        plan: &CallPlan,
        previous_session: &mut Option<AgentSession>,
    ) -> Result<Result<SelectedBackend, CallRefusal>, StoreError> {
        let number = plan.calls();
        let planned = PlannedCall {
            key: format!("{}{number}", calls::key_prefix(&task.current.id, task.ticket)),
            lease: task.lease.clone(),
            purpose: calls::AGENT,
            role: BackendRole::Agent,
            exclude: plan.excluded().to_vec(),
            model: None,
            likely: None,
            share: 1.0,
            previous_session: previous_session.clone(),
        };
        Ok(match self.calls.begin_call(task.current, planned).await? {
            CallDecision::Call { backend, model, at_most, session, caller, .. } => {
                let session = previous_session.take().filter(|_| session == SessionUse::Resume);
                let told = session.as_ref().map_or_else(Vec::new, |session| session.told.clone());
                Ok(SelectedBackend { caller: *caller, backend, model, at_most, session, told, number })
            }
            CallDecision::Refused(refusal) => Err(refusal),
        })
    }

    /// Calls a selected backend, stores the end of the call and adds the call to the run.
    async fn call_selected(
        &self,
        task: &AgentRunInputs<'_>,
        mut chosen: SelectedBackend,
        note: Option<String>,
        sum: &mut AgentRunFacts,
        cancel: &CancellationToken,
    ) -> Result<RunCall, EffectError> {
        self.calls.learn_login(&chosen.backend);
        let (outcome, tools, turn) = self.call(task, &mut chosen, note, cancel).await?;
        self.calls.learn_login(&chosen.backend);
        sum.tools = tools;
        let limit = limit_of(&outcome, self.context.clock.now());
        let end = match (&limit, &outcome.status) {
            _ if outcome.session_unknown => CallEnd::Ended,
            (Some((limit, SeenBy::Service)), _) => CallEnd::Limited(limit.clone()),
            (Some((limit, SeenBy::Run)), _) => CallEnd::Claimed(limit.clone()),
            (None, AgentStatus::Finished) => CallEnd::Succeeded,
            (None, AgentStatus::Cancelled | AgentStatus::OverBudget) => CallEnd::Ended,
            (None, status) => CallEnd::Failed(status.words()),
        };
        let mut used = self.used(&chosen, &outcome);
        if outcome.status == AgentStatus::Cancelled && used == CallUsage::default() {
            // The service ended the run before its agent reported a cost.
            let key = chosen.caller.key.clone();
            used.cost = Some(self.context.store.read(move |c| calls::assumed(c, &key)).await?);
            used.estimated = true;
        }
        let advice = self.end_run(task, &chosen, turn, &end, used).await?;
        kill_point("K18c");
        let is_unavailable = matches!(outcome.status, AgentStatus::Unavailable { .. });
        let ended = RunCall {
            backend: chosen.backend.clone(),
            model: chosen.model.clone(),
            session_unknown: outcome.session_unknown,
            limit: limit.map(|(limit, _)| limit),
            unavailable: is_unavailable.then(|| outcome.status.words()),
            advice,
            can_shorten: task.prompt_inputs.can_shorten(),
        };
        let window = self.calls.settings.context_window(&chosen.backend).or(outcome.context_window);
        add(sum, outcome, &chosen, used, window, task.ticket);
        Ok(ended)
    }

    /// Handles the tree of a run that a provider refused. Work of a successful run is kept for the next backend, with
    /// a note; otherwise the tree is reset.
    async fn after_refusal(
        &self,
        task: &AgentRunInputs<'_>,
        sum: &AgentRunFacts,
        cancel: &CancellationToken,
    ) -> Result<Option<String>, EffectError> {
        if sum.tool_calls == 0 || sum.tool_errors * 2 > sum.tool_calls {
            return self.put_tree_back(task.current, task.repo, task.head, cancel).await;
        }
        Ok(Some(
            "Another agent began this iteration and was cut off by its provider. What it changed is in the work tree: \
             look at it first, and go on from there or undo it."
                .to_owned(),
        ))
    }

    /// Stores the turn of a run and the end of its call, in one commit; returns advice if waiting does not help.
    async fn end_run(
        &self,
        task: &AgentRunInputs<'_>,
        chosen: &SelectedBackend,
        turn: Option<EndedTurn>,
        end: &CallEnd,
        used: CallUsage,
    ) -> Result<Option<CallAdvice>, StoreError> {
        let mut group = WriteGroup::default();
        let kept = turn.map(|turn| turn.add_to(&mut group));
        let by = (chosen.backend.as_str(), BackendRole::Agent);
        let advice = self.calls.end_call_after(group, &chosen.caller.key, by, end, used, |_| Ok(())).await;
        if let Some(kept) = kept
            && let Err(error) = self.context.store.outcome(kept).await
        {
            tracing::warn!(loop_id = %task.current.id, %error, "could not store a run in the session memory");
        }
        advice
    }

    /// Performs one call of a backend; returns the outcome, the tools used, and the turn to be stored.
    async fn call(
        &self,
        task: &AgentRunInputs<'_>,
        chosen: &mut SelectedBackend,
        note: Option<String>,
        cancel: &CancellationToken,
    ) -> Result<(AgentOutcome, Vec<String>, Option<EndedTurn>), EffectError> {
        let AgentRunInputs { current, iteration, attempt, .. } = *task;
        let Some(backend) = self.calls.backends.get(&chosen.backend) else {
            let reason = format!("the backend `{}` cannot be used here", chosen.backend);
            return Ok((AgentOutcome::only(AgentStatus::Unavailable { reason }), Vec::new(), None));
        };
        let scratch = self.verification.programs.scratch_of(&current.id, format!("run-{iteration}-{attempt}"));
        remove_folder(&scratch);
        private::create_folder(&scratch).map_err(|e| io_failure("make", &scratch, &e))?;
        let mut seen = self.verification.workspaces.agent_view(&current.id, task.repo);
        let left = self.set_aside_files(task, &scratch).await?;
        seen.read_only.extend(left.as_ref().map(|(folder, _)| folder.clone()));
        let notes: Vec<String> = note.into_iter().chain(left.map(|(_, words)| words)).collect();
        let note = (!notes.is_empty()).then(|| notes.join("\n"));
        let memory = self.prompts.recall.memory_of(current, &format!("{iteration}-{attempt}"));
        let tools = memory.clone().map(|session| Arc::new(SessionTools::new(session)) as Arc<dyn RunTools>);
        let server = memory.and_then(|session| memory_server(&self.verification.programs, session, &scratch));
        let asks = can_call(backend.tool_calls(), server.is_some(), tools.is_some());
        let images = self.images.place_images(current, &task.images, &scratch, &chosen.told);
        seen.read_only.extend(images.run.folder.clone());
        let (prompt, block) = self.prompt(task, chosen, (note, asks, images.listed), &scratch).await?;
        let carried = block.learnings;
        chosen.told.extend(block.told.into_iter().chain(images.told));
        let tree = roots_of(&seen.tree);
        let run = AgentRun {
            tools,
            home_prepared: self.verification.prepare_home((task.repo, current), &seen.tree, &scratch).await?,
            images: images.run,
            ..self.agent_run(task, chosen, (&prompt, &scratch), seen, server.as_ref())
        };
        let by = (chosen.backend.clone(), chosen.model.clone());
        let mut run_monitor = RunMonitor::new(chosen.caller.clone(), by, (iteration, tree), run.max_cost);
        let started = self.context.clock.now();
        let output = Mutex::new(OutputBuffer::default());
        // Compile the patterns for refusals now, not when another backend waits to take over.
        let _ready = tokio::task::spawn_blocking(warm_up);
        kill_point("K15");
        let stop = cancel.child_token();
        let (heard, mut events) = mpsc::channel(EVENT_QUEUE_CAPACITY);
        let mut event_filter = EventFilter::default();
        let mut on_event = |event| {
            let now = self.context.clock.now();
            note_output(&output, now, &event);
            if event_filter.accepts(&event) {
                // Intermediate costs may be dropped; the total is counted at the end.
                drop(heard.try_send((now, event)));
            }
        };
        let mut batches = tokio::time::interval(BATCH_INTERVAL);
        batches.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let served = CancellationToken::new();
        let serving = async {
            match server {
                Some(server) => mcp::serve(server.listener, server.session, served.clone()).await,
                None => served.cancelled().await,
            }
        };
        let running = async {
            let running = backend.run(run, &stop, &mut on_event);
            tokio::pin!(running);
            let outcome = loop {
                tokio::select! {
                    outcome = &mut running => break outcome,
                    Some(event) = events.recv() => {
                        run_monitor.handle(&self.calls, with_waiting(event, &mut events), &stop).await;
                    }
                    _ = batches.tick() => self.keep_batch(task, &mut run_monitor, &output).await,
                }
            };
            if let Ok(event) = events.try_recv() {
                run_monitor.handle(&self.calls, with_waiting(event, &mut events), &stop).await;
            }
            served.cancel();
            outcome
        };
        // Only shown and counted: the run does not wait for it. The turn is first, before the batches of its output.
        let shown = async {
            self.begin_turn(task, chosen, (&prompt, &carried), started).await;
            self.prompts.recall.carried(current, iteration, &carried).await;
        };
        let (mut outcome, (), ()) = tokio::join!(running, serving, shown);
        kill_point("K18");
        if run_monitor.over_budget && outcome.status == AgentStatus::Cancelled {
            outcome.status = AgentStatus::OverBudget;
        }
        self.tell_run(&task.current.id, chosen, &outcome);
        self.keep_log(task, chosen, &prompt, &outcome);
        let tools = run_monitor.tools();
        let events = run_monitor.unstored().to_vec();
        let transcript = RunTranscript { prompt, learnings: carried, events, started };
        let turn = self.ended_turn(task, chosen, transcript, &outcome);
        remove_folder(&scratch);
        Ok((outcome, tools, Some(turn)))
    }

    /// Counts a run in the metrics, and sends its span.
    fn tell_run(&self, id: &LoopId, chosen: &SelectedBackend, outcome: &AgentOutcome) {
        self.context.metrics.agent_run(
            &chosen.backend,
            outcome_word(&outcome.status),
            outcome.duration_ms as f64 / 1000.0,
        );
        let failed = (outcome.status != AgentStatus::Finished).then(|| outcome_word(&outcome.status));
        let call = ModelCall {
            operation: "invoke_agent",
            backend: &chosen.backend,
            model: outcome.model.as_deref().or(chosen.model.as_deref()),
            usage: outcome.usage(),
            usd: outcome.cost.unwrap_or_default().usd(),
            started: self.context.clock.now().plus_ms(-i64::try_from(outcome.duration_ms).unwrap_or_default()),
            error: failed,
        };
        self.calls.model_span(id, &call);
    }

    /// Copies the files that were saved when the agent of the previous iteration was killed. Returns the folder of the
    /// copies and a note for the agent.
    async fn set_aside_files(
        &self,
        task: &AgentRunInputs<'_>,
        scratch: &Path,
    ) -> Result<Option<(PathBuf, String)>, EffectError> {
        let before = task.current.retained_iterations().rev().find(|i| i.number < task.iteration);
        let Some(before) = before.filter(|before| !before.set_aside.is_empty()) else { return Ok(None) };
        let folder = scratch.join("set-aside");
        let of = (&task.current.id, task.repo);
        self.verification.workspaces.copy_set_aside(of, before.number, &before.set_aside, &folder).await?;
        let shown = before.set_aside.iter().take(MOST_SET_ASIDE).map(|path| format!("`{path}`"));
        let more = before.set_aside.len().saturating_sub(MOST_SET_ASIDE);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let words = format!(
            "The previous run was stopped before it ended. Files that it had created may be incomplete and are not in the work \
             tree: {}{more}. Copies are in `{}`: copy those that you need.",
            shown.collect::<Vec<_>>().join(", "),
            folder.display(),
        );
        Ok(Some((folder, words)))
    }

    /// Builds the run within the loop's remaining time and money.
    fn agent_run(
        &self,
        task: &AgentRunInputs<'_>,
        chosen: &SelectedBackend,
        (prompt, scratch): (&str, &Path),
        seen: AgentView,
        server: Option<&RunMemoryServer>,
    ) -> AgentRun {
        let AgentRunInputs { current, iteration, attempt, .. } = *task;
        let left_ms = (current.limits.time_ms - current.spent.time_at(self.context.clock.now())).max(1000);
        let limits = &current.settings.policy.limits;
        let course = current.supervision.course.as_ref();
        let wall = Duration::from_secs(limits.agent_timeout.as_seconds());
        let wall = course.map_or(wall, |course| course.wall(wall)).min(Duration::from_millis(left_ms as u64));
        let of_loop = Money((current.limits.cost.0 - current.spent.cost.0).max(0));
        let of_loop = (current.limits.cost > Money(0)).then_some(of_loop);
        AgentRun {
            prompt: prompt.to_owned(),
            tree: seen.tree,
            purpose: task.purpose,
            read_only: seen.read_only.into_iter().chain(server.iter().flat_map(|s| s.read_only.clone())).collect(),
            scratch: scratch.to_owned(),
            loop_id: current.id.to_string(),
            iteration,
            model: chosen.model.clone(),
            wall,
            idle: Duration::from_secs(limits.agent_idle.as_seconds()),
            max_turns: limits.agent_turns.map(|turns| course.map_or(turns, |course| course.turns(turns))),
            max_cost: [chosen.at_most, of_loop].into_iter().flatten().min(),
            session: chosen.session.as_ref().map(|previous| ResumedSession {
                id: previous.id.clone(),
                files: self.sessions_of(current).join(&previous.files),
                account: previous.account,
            }),
            // Who carries out a plan starts with the plan, not with the session of its author.
            keep: (task.purpose == RunPurpose::Iteration)
                .then(|| self.sessions_of(current).join(chosen.session_folder(task.ticket))),
            mcp_config: server.map(|server| server.config.clone()),
            tools: None,
            images: RunImages::default(),
            home_prepared: false,
            cookie: Cookie::new(&self.verification.programs.instance, current.id.as_str(), attempt),
            sandboxed: self.verification.programs.settings.sandbox.on,
            sandbox: self.verification.programs.settings.sandbox.settings.clone(),
            network: self.verification.programs.network(&task.refused),
            guard: Some(CallGuard::of(&self.context, &chosen.caller)),
        }
    }

    /// Renders the prompt and returns it with its context block, which is empty if there is none.
    async fn prompt(
        &self,
        task: &AgentRunInputs<'_>,
        chosen: &SelectedBackend,
        (note, asks_memory, images): (Option<String>, bool, Vec<PromptImage>),
        scratch: &Path,
    ) -> Result<(String, Block), EffectError> {
        let current = task.current;
        let nonce = format!("{:08x}{:08x}", random(), random());
        let intelligence = current.settings.policy.intelligence;
        let window = self.calls.settings.context_window(&chosen.backend);
        let by = (chosen.backend.as_str(), chosen.model.as_deref());
        let told = chosen.session.as_ref().map(|session| session.told.as_slice());
        let block = task.prompt_inputs.block(&self.prompts.assistants.settings.context, by, window, told);
        let PromptInputs { model_advice, tools, .. } = &task.prompt_inputs;
        let (model_advice, tools) = (model_advice.clone(), tools.clone());
        let resumed = chosen.session.is_some();
        let extras = Extras { intelligence, context: block.clone(), resumed, model_advice, tools };
        let report = agent::report_path(scratch).display().to_string();
        let mut view = prompt::view_with(current, &nonce, &report, &extras);
        view.warnings.extend(note);
        view.images = images;
        // Before the first run there is nothing to ask for.
        view.asks_memory = asks_memory && current.spent.iterations > 1;
        if let Some(base) = &current.branch.base {
            let patterns = &current.settings.policy.protected.paths;
            view.protected =
                self.verification.workspaces.protected_in(&current.issue.repo, base, patterns).await?.patterns;
        }
        let prompt =
            self.prompts.renderer.prompt(&view).map_err(|e| EffectError::Permanent { why: error_chain(&e) })?;
        Ok((prompt, block.unwrap_or_default()))
    }

    fn session_files<'a>(&'a self, current: &'a Loop) -> SessionFiles<'a> {
        SessionFiles { context: &self.context, current, folder: self.sessions_of(current) }
    }

    /// Returns the folder of a loop's sessions.
    fn sessions_of(&self, current: &Loop) -> PathBuf {
        self.folders.sessions.join(current.id.as_str())
    }

    /// Returns the session that a run can resume, if any; deletes the files of all others.
    async fn previous_session(&self, current: &Loop) -> Option<AgentSession> {
        let previous = current.agent.session.clone();
        for entry in std::fs::read_dir(self.sessions_of(current)).into_iter().flatten().flatten() {
            if previous.as_ref().is_none_or(|previous| entry.file_name() != *previous.files) {
                remove_folder(&entry.path());
            }
        }
        let previous = previous.filter(|previous| self.calls.can_resume(previous))?;
        self.session_files(current).restore(&previous).await.then_some(previous)
    }

    /// Deletes the sessions of a loop.
    pub(super) fn forget_sessions(&self, current: &Loop) {
        remove_folder(&self.sessions_of(current));
    }
}

/// Whether an agent can call the run's tools, given the ways in which they are offered: `by_server` or `in_process`.
fn can_call(calls: ToolCalls, by_server: bool, in_process: bool) -> bool {
    match calls {
        ToolCalls::None => false,
        ToolCalls::Servers => by_server,
        ToolCalls::InProcess => in_process,
    }
}

/// Returns the paths of a work tree: as given, and with symbolic links resolved.
fn roots_of(tree: &Path) -> TreeRoots {
    let real = std::fs::canonicalize(tree).ok();
    TreeRoots::new([tree.to_owned()].into_iter().chain(real).map(|path| path.display().to_string()))
}

fn io_failure(what: &str, path: &Path, error: &std::io::Error) -> EffectError {
    EffectError::Retry { after_ms: None, ambiguous: true, why: format!("could not {what} {}: {error}", path.display()) }
}
