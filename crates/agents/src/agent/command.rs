//! Runs coding agents that are commands. Folders, environment, sandbox, limits and report are the same for every
//! preset.

mod phases;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ralph_types::failure::Failure;
use secrecy::SecretString;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use self::phases::{RunPhase, run_with_phase_limits};
use super::acp::{AcpClient, AcpRun};
use super::broker::meter::RunMeter;
use super::broker::{Broker, BrokerParts, HiddenKey, ModelClients, forms_of_keys, hidden_keys};
use super::login::PlacedLogin;
use super::mcp;
use super::placeholder::fill_in;
use super::preset::{AgentPreset, OutputReader, ParsedOutput, PromptDelivery, RunContext, prompt_reference};
use super::refusal::{asks_for_login, with_refusal};
use super::report;
use super::run_environment::{self, GRACE, LeftoverFiles, REPORT, RunFolders};
use super::session;
use super::text::{MAX_ARGUMENT, describe_end, shortened};
use super::{
    AgentEvent, AgentOutcome, AgentRun, AgentStatus, Backend, BackendSetup, Brokered, OutputFormat, ToolCalls,
};
use crate::clock::Clock;
use crate::domain::model::ids::Money;
use crate::domain::providers::limit::OWN_BUDGET;
use crate::domain::providers::money::Cumulative;
use crate::domain::providers::prices::{PriceTable, TokenUsage};
use crate::domain::trust::bounds::AGENT_OUTPUT_BYTES;
use crate::domain::trust::secret_forms::SecretForms;
use crate::process::{
    self, Dialog, Finished, LineDecision, Masker, ProcessEnd, ProcessError, ProcessLimits, ProcessSpec, Stdin, Stream,
    executable,
};

/// Time between the refusal of a request because the budget is used up and the end of the run.
const BUDGET_GRACE: Duration = Duration::from_secs(2);
/// Share of the run's maximum cost below which a program that stopped for its cost did so by its own settings.
const OWN_BUDGET_SHARE: f64 = 0.9;
/// Time limit for printing the version.
const VERSION_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of errors in an outcome.
const MAX_ERRORS: usize = 50;
/// Maximum length of the final message, in bytes.
const MAX_FINAL_MESSAGE: usize = 16 * 1024;

/// Preset with an operator's configuration.
pub(super) struct CommandBackend {
    name: String,
    preset: &'static AgentPreset,
    settings: BackendSetup,
    program: PathBuf,
    secrets: Masker,
    /// API keys that are hidden from the agent.
    hidden_keys: Vec<HiddenKey>,
    model_clients: ModelClients,
    /// All forms of the hidden keys.
    key_forms: Arc<SecretForms>,
    /// Prices of the models that the agent reaches through the broker.
    prices: Arc<PriceTable>,
}

impl CommandBackend {
    pub(super) fn new(name: &str, preset: &'static AgentPreset, mut settings: BackendSetup) -> Result<Self, Failure> {
        settings.path = run_environment::path(&settings);
        let program = match settings.config.command.first() {
            Some(program) => program.clone(),
            None => preset
                .program
                .as_ref()
                .ok_or("`command` is missing: give the program and its arguments as a list")?
                .name
                .to_owned(),
        };
        if preset.prompt == PromptDelivery::Stdin && !settings.prompt_on_stdin {
            let named = ["{prompt}", "{prompt_file}"];
            if !settings.config.args.iter().any(|argument| named.iter().any(|name| argument.contains(name))) {
                return Err(Failure::new(
                    "it would be started without its prompt: remove `stdin: none`, or add {prompt} or {prompt_file} to `args`",
                ));
            }
        }
        let program = executable(Path::new(&program), &settings.config_folder, &settings.path).map_err(Failure::of)?;
        let (secrets, hidden_keys) = (run_environment::secrets(&settings), hidden_keys(&settings, preset.keys));
        let (model_clients, key_forms) = (ModelClients::default(), forms_of_keys(&settings, &hidden_keys));
        let prices = PriceTable::with_entries(&settings.config.prices, "prices");
        let prices =
            Arc::new(prices.map_err(|problems| {
                problems.into_iter().map(|problem| problem.message).collect::<Vec<_>>().join("; ")
            })?);
        Ok(Self {
            name: name.to_owned(),
            preset,
            settings,
            program,
            secrets,
            hidden_keys,
            model_clients,
            key_forms,
            prices,
        })
    }

    /// Returns the run in the form that presets use.
    fn call<'a>(
        &'a self,
        run: &'a AgentRun,
        folders: &'a RunFolders,
        servers: &'a [mcp::McpServer],
        variables: &'a [(String, SecretString)],
    ) -> RunContext<'a> {
        RunContext {
            run,
            model: run.model.as_deref().map(|m| self.settings.models.get(m).map_or(m, String::as_str)),
            root: rustix::process::geteuid().is_root(),
            has_login: self.settings.login.is_some(),
            prompt_file: &folders.prompt,
            variables,
            servers,
        }
    }

    fn spec(&self, call: &RunContext<'_>, folders: &RunFolders, secrets: &Masker) -> ProcessSpec {
        let (run, model) = (call.run, call.model);
        let mut spec = ProcessSpec::new(&self.program, &run.tree)
            .args(self.settings.config.command.iter().skip(1))
            .args((self.preset.arguments)(call))
            .args(self.preset.images.arguments(&run.images));
        let report = folders.report.join(REPORT);
        let long = prompt_reference(&folders.prompt);
        let prompt = if run.prompt.len() < MAX_ARGUMENT { &run.prompt } else { &long };
        let values = [
            ("model", model.unwrap_or_default().as_ref()),
            ("prompt", prompt.as_ref()),
            ("prompt_file", folders.prompt.as_os_str()),
            ("report", report.as_os_str()),
            ("session", run.session.as_ref().map_or("", |session| session.id.as_str()).as_ref()),
            ("mcp_config", run.mcp_config.as_deref().unwrap_or(Path::new("")).as_os_str()),
        ];
        spec = spec.args(self.settings.config.args.iter().map(|argument| fill_in(argument, &values)));
        spec.env = self.environment(&folders.home, &folders.temporary);
        spec.env.extend(folders.variables(run, model.unwrap_or_default()));
        for (name, value) in (self.preset.environment)(call) {
            spec = spec.env(name, value);
        }
        spec.env.extend(run_environment::passed_on(call.variables));
        if self.settings.prompt_on_stdin {
            spec.stdin = Stdin::Bytes(run.prompt.clone().into_bytes());
        }
        spec.limits =
            ProcessLimits { wall: run.wall, idle: Some(run.idle), grace: GRACE, keep_bytes: AGENT_OUTPUT_BYTES };
        spec.cookie = Some(run.cookie.clone());
        spec.secrets = secrets.clone();
        // With hidden keys, the model is reached through the broker only.
        let model_hosts = if self.hidden_keys.is_empty() { self.preset.model_hosts } else { &[] };
        spec.sandbox = folders.sandbox(run, &self.settings, run_environment::servers(call.variables, model_hosts));
        spec
    }

    /// Creates the reader of a run's output, and the input for its answers to the agent, if the format has any.
    fn reader(&self, call: &RunContext<'_>) -> (Option<Dialog>, Box<dyn OutputReader>) {
        if self.preset.prompt == PromptDelivery::Acp {
            let dialog = Dialog::default();
            return (Some(dialog.clone()), Box::new(AcpClient::new(AcpRun::of(call), dialog)));
        }
        (None, self.settings.output.map_or_else(self.preset.reader, OutputFormat::reader))
    }

    /// Returns the files and folders of the agent's home that contain sessions.
    fn session_files(&self) -> impl Iterator<Item = &str> {
        self.preset.sessions.iter().copied().chain(self.settings.config.session_files.iter().map(String::as_str))
    }

    /// Copies the files of the session to resume into the home of this run.
    fn restore_session(&self, run: &AgentRun, folders: &RunFolders) -> std::io::Result<()> {
        match &run.session {
            Some(resumed) if self.session_files().next().is_some() => {
                session::copy(&resumed.files, self.session_files(), &folders.home).map(drop)
            }
            _ => Ok(()),
        }
    }

    /// Copies the files of the run's session; returns `true` if a later run can resume it.
    fn keep_session(&self, id: &str, keep: &Path, folders: &RunFolders) -> bool {
        if self.session_files().next().is_none() {
            return true;
        }
        match session::copy(&folders.home, self.session_files(), keep) {
            Ok(files) => files > 0,
            Err(error) => {
                tracing::warn!(backend = self.name, session = id, %error, "could not copy the files of a session; the next run starts a new session");
                false
            }
        }
    }

    fn environment(&self, home: &Path, temporary: &Path) -> Vec<(OsString, OsString)> {
        run_environment::environment(&self.settings.path, &self.settings.tools, home, temporary)
    }
}

#[async_trait]
impl Backend for CommandBackend {
    fn name(&self) -> &str {
        &self.name
    }

    fn resumes(&self) -> bool {
        self.session_files().next().is_some()
            || self.settings.config.args.iter().any(|argument| argument.contains("{session}"))
    }

    fn tool_calls(&self) -> ToolCalls {
        let named = self.settings.config.args.iter().any(|argument| argument.contains("{mcp_config}"));
        if named || self.preset.takes_mcp_servers { ToolCalls::Servers } else { ToolCalls::None }
    }

    fn hidden_keys(&self) -> Vec<&str> {
        self.hidden_keys.iter().flat_map(|hidden| &hidden.keys).map(String::as_str).collect()
    }

    fn login_secrets(&self) -> Vec<String> {
        self.settings.login.iter().flat_map(|login| login.secrets()).collect()
    }

    async fn run(
        &self,
        run: AgentRun,
        cancel: &CancellationToken,
        on_event: &mut (dyn FnMut(AgentEvent) + Send),
    ) -> AgentOutcome {
        let folders = match RunFolders::prepare(&run) {
            Ok(folders) => folders,
            Err(e) => {
                let reason = format!("could not create its folder {}: {e}", run.scratch.display());
                return not_started(AgentStatus::Failed { reason });
            }
        };
        let servers = match run.mcp_config.as_deref().map(mcp::read).transpose() {
            Ok(servers) => servers.unwrap_or_default(),
            Err(failure) => return not_started(AgentStatus::Unavailable { reason: format!("{failure:#}") }),
        };
        let meter = RunMeter::new(run.max_cost, run.guard.clone(), self.prices.clone());
        let parts = BrokerParts { hidden: &self.hidden_keys, clients: &self.model_clients, forms: &self.key_forms };
        let broker = match Broker::open(&self.settings, &parts, &meter).await {
            Ok(broker) => broker,
            Err(failure) => return not_started(AgentStatus::Failed { reason: format!("{failure:#}") }),
        };
        let call = self.call(&run, &folders, &servers, &broker.variables);
        if let Err(e) = folders.write((self.preset.files)(&call)) {
            let reason = format!("could not write its settings in {}: {e}", folders.home.display());
            return not_started(AgentStatus::Failed { reason });
        }
        let secrets = self.secrets.with(&Masker::new(self.login_secrets()));
        let login = match self.settings.login.as_ref().map(|login| login.place(&folders.home)).transpose() {
            Ok(login) => login,
            Err(failure) => return not_started(AgentStatus::Unavailable { reason: format!("{failure:#}") }),
        };
        if let Err(error) = self.restore_session(&run, &folders) {
            let reason = format!("could not copy the files of its session: {error}");
            return AgentOutcome { session_unknown: true, ..not_started(AgentStatus::Failed { reason }) };
        }
        let (dialog, mut reader) = self.reader(&call);
        let (phase, mut phases) = watch::channel(phase_of(reader.as_ref()));
        let mut lines = |stream: Stream, line: &str| {
            let mut events = Vec::new();
            reader.line(stream, line, &mut |event| events.push(event));
            for event in events {
                on_event(masked(without_earlier_runs(event, &run, reader.observed_tokens()), &secrets));
            }
            let next = phase_of(reader.as_ref());
            phase.send_if_modified(|phase| std::mem::replace(phase, next) != next);
            reader.reason_to_stop().map_or(LineDecision::Continue, LineDecision::Stop)
        };
        let (mut spec, stop) = (self.spec(&call, &folders, &secrets), cancel.child_token());
        if let Some(dialog) = dialog {
            spec.stdin = Stdin::Dialog(dialog);
        }
        let leftovers = LeftoverFiles::before(&run.tree, self.preset.leftovers);
        let running = process::run(spec, &stop, Some(&mut lines));
        let mut model = meter.model();
        let running = run_with_phase_limits(running, &mut phases, &mut model, RunPhase::longest, &stop);
        let (ended, stopped_in) = tokio::select! {
            ended = running => ended,
            never = stop_when_exhausted(&meter, &stop) => match never {},
        };
        leftovers.remove();
        self.write_login_back(login);
        meter.finish();
        drop(broker);
        let outcome = match ended {
            Ok(mut finished) => {
                if finished.ended == ProcessEnd::Cancelled && !cancel.is_cancelled() {
                    finished.ended =
                        stopped_in.and_then(RunPhase::excess).map_or(ProcessEnd::Cancelled, ProcessEnd::Stopped);
                }
                self.outcome((&run, &secrets), &folders, finished, reader.as_mut())
            }
            Err(error @ ProcessError::Wait { .. }) => not_started(AgentStatus::Failed { reason: error.to_string() }),
            Err(error) => not_started(AgentStatus::Unavailable { reason: error.to_string() }),
        };
        if self.hidden_keys.is_empty() {
            return outcome;
        }
        let is_acp = self.preset.prompt == PromptDelivery::Acp;
        let outcome = if is_acp { with_refusal(outcome, &meter) } else { outcome };
        with_brokered(outcome, &meter, cancel)
    }

    async fn probe(&self) -> Result<String, Failure> {
        let Some(arguments) = self.preset.version else { return Ok("no version".to_owned()) };
        let home = tempfile::tempdir().map_err(|error| Failure::new("no temporary folder").caused_by(error))?;
        let mut spec = ProcessSpec::new(&self.program, home.path())
            .args(self.settings.config.command.iter().skip(1))
            .args(arguments.iter().copied());
        spec.env = self.environment(home.path(), home.path());
        spec.limits = ProcessLimits { wall: VERSION_TIMEOUT, keep_bytes: 8 * 1024, ..ProcessLimits::default() };
        let finished = process::run(spec, &CancellationToken::new(), None).await.map_err(Failure::of)?;
        let output = finished.stdout.text();
        match output.trim().lines().next() {
            Some(version) if finished.success() => Ok(shortened(version, 100)),
            _ => Err(Failure::new(format!(
                "{} {} did not answer: {}",
                self.program.display(),
                arguments.join(" "),
                describe_end(&finished.ended, &finished)
            ))),
        }
    }
}

impl CommandBackend {
    fn outcome(
        &self,
        (run, secrets): (&AgentRun, &Masker),
        folders: &RunFolders,
        finished: Finished,
        reader: &mut dyn OutputReader,
    ) -> AgentOutcome {
        let complete = reader.is_complete();
        let mut output = reader.finish(&finished);
        output.signals.zone = run_environment::zone(&self.settings);
        output.model = output.model.or_else(|| self.model_of(run, folders));
        let account = subtract_earlier_runs(&mut output, run, reader.observed_tokens());
        if output.status == AgentStatus::OverBudget && !is_budget_of_run(run, output.cost) {
            output.signals.code = Some(OWN_BUDGET.to_owned());
            output.status = AgentStatus::Failed { reason: "it stopped at a budget in its own settings".to_owned() };
        }
        let session_unknown = run.session.is_some() && session::is_unknown(&output);
        let status = match &finished.ended {
            ProcessEnd::Cancelled => AgentStatus::Cancelled,
            // A program that hangs after its result has done its work.
            ProcessEnd::WallLimit | ProcessEnd::IdleLimit if complete => output.status.clone(),
            // A program that waits for a login has reported it.
            ProcessEnd::WallLimit | ProcessEnd::IdleLimit
                if matches!(output.status, AgentStatus::Unavailable { .. }) =>
            {
                output.status.clone()
            }
            ProcessEnd::WallLimit => {
                AgentStatus::TimedOut { what: format!("it ran for longer than {} s", run.wall.as_secs_f64()) }
            }
            ProcessEnd::IdleLimit => {
                AgentStatus::TimedOut { what: format!("it printed nothing for {} s", run.idle.as_secs_f64()) }
            }
            ProcessEnd::ResourceLimit(reason) => AgentStatus::Failed { reason: reason.clone() },
            ProcessEnd::Exited(_) | ProcessEnd::Signalled(_) | ProcessEnd::Stopped(_) => output.status.clone(),
        };
        let status = self.with_login_advice(status);
        let (report, report_problem) = report::read(&folders.report, REPORT, secrets);
        let mut text = finished.stdout.text();
        if finished.stderr.total_bytes > 0 {
            text.push_str("\n--- standard error ---\n");
            text.push_str(&finished.stderr.text());
        }
        let mut outcome = assembled(status, output);
        outcome.account = account;
        // A program that hangs after its result has done its work.
        outcome.killed = outcome.status != AgentStatus::Finished && is_killed(&finished.ended);
        outcome.session_unknown = session_unknown;
        self.keep(run, folders, &mut outcome);
        outcome.report = report;
        outcome.report_problem = report_problem;
        outcome.duration_ms = u64::try_from(finished.duration.as_millis()).unwrap_or(u64::MAX);
        outcome.output = text;
        outcome
    }

    /// Adds to the status of a run that has no login how to give it one, because the program's own advice has no effect on runs.
    fn with_login_advice(&self, status: AgentStatus) -> AgentStatus {
        let is_given = self.settings.login.is_some() || !self.hidden_keys.is_empty();
        match (status, &self.preset.program) {
            (AgentStatus::Unavailable { reason }, Some(program)) if !is_given && asks_for_login(&reason) => {
                let advice = program.login_advice;
                AgentStatus::Unavailable { reason: format!("{reason} (runs see no login of this account: {advice})") }
            }
            (status, _) => status,
        }
    }

    /// Writes a login back that the program refreshed.
    fn write_login_back(&self, login: Option<PlacedLogin<'_>>) {
        let Some(login) = login else { return };
        match login.write_back(Clock::System.now()) {
            Ok(true) => tracing::info!(backend = self.name, "the program refreshed its login, which was written back"),
            Ok(false) => {}
            Err(why) => {
                tracing::warn!(backend = self.name, why = %format_args!("{why:#}"), "the login file stays as it is")
            }
        }
    }

    /// Returns the model according to the session's files, if none was requested and the output does not report it.
    fn model_of(&self, run: &AgentRun, folders: &RunFolders) -> Option<String> {
        let read = self.preset.model.filter(|_| run.model.is_none() && self.settings.output.is_none())?;
        session::model(&folders.home, self.session_files(), read).ok().flatten()
    }

    /// Copies the session of a successful run. Also reads how full its context window is if the output does not report
    /// it.
    fn keep(&self, run: &AgentRun, folders: &RunFolders, outcome: &mut AgentOutcome) {
        let ended_well = outcome.status == AgentStatus::Finished && self.resumes();
        let (Some(id), Some(keep), true) = (&outcome.session, &run.keep, ended_well) else { return };
        outcome.session_kept = self.keep_session(id, keep, folders);
        if let (Some(read), None) = (self.preset.context_fill, outcome.context_tokens) {
            // Names of files contain the id or its start.
            let mark: String = id.chars().take(8).collect();
            let fill = session::context_fill(keep, &mark, read);
            outcome.context_tokens = fill.map(|fill| fill.tokens);
            outcome.context_window = fill.and_then(|fill| fill.window);
        }
    }
}

/// Subtracts the usage of earlier runs of the session from the output; returns the total as the backend reported it.
fn subtract_earlier_runs(output: &mut ParsedOutput, run: &AgentRun, observed: Option<u64>) -> Cumulative {
    let usage = TokenUsage::with_cached_in(output.tokens_in, output.tokens_out, output.cache_read, output.cache_write);
    let account = Cumulative { usage, cost: output.cost };
    if let (Some(resumed), Some(observed)) = (&run.session, observed) {
        let Cumulative { usage, cost } = account.since(&resumed.account, observed);
        output.tokens_in = usage.total().saturating_sub(usage.output);
        (output.tokens_out, output.cache_read, output.cache_write) =
            (usage.output, usage.cache_read, usage.cache_write);
        output.cost = cost;
    }
    account
}

/// Returns the phase of an agent, according to its output.
fn phase_of(reader: &dyn OutputReader) -> RunPhase {
    match (reader.is_complete(), reader.is_waiting()) {
        (true, _) => RunPhase::Complete,
        (false, true) => RunPhase::Refused,
        (false, false) if reader.is_starting() => RunPhase::Starting,
        (false, false) if reader.awaits_model() => RunPhase::AwaitingModel,
        (false, false) => RunPhase::Working,
    }
}

/// Whether a program that stopped at a cost limit spent about the run's maximum. Otherwise its own settings have a lower one.
fn is_budget_of_run(run: &AgentRun, cost: Option<Money>) -> bool {
    run.max_cost.zip(cost).is_some_and(|(most, cost)| cost.usd() >= most.usd() * OWN_BUDGET_SHARE)
}

/// Stops a run some time after a request was refused because its budget is used up, so that the agent can report the
/// error first.
async fn stop_when_exhausted(meter: &RunMeter, stop: &CancellationToken) -> std::convert::Infallible {
    meter.until_exhausted().await;
    tokio::time::sleep(BUDGET_GRACE).await;
    stop.cancel();
    std::future::pending().await
}

/// Adds the broker's measurements to an outcome: usage that the program did not report, and whether the budget ended
/// the run.
fn with_brokered(mut outcome: AgentOutcome, meter: &RunMeter, cancel: &CancellationToken) -> AgentOutcome {
    let counted = meter.counted();
    if meter.is_exhausted() && !cancel.is_cancelled() {
        outcome.status = AgentStatus::OverBudget;
    }
    let usage = &counted.usage;
    if usage.total() > outcome.tokens_in.saturating_add(outcome.tokens_out) {
        (outcome.tokens_in, outcome.tokens_out) = (usage.read(), usage.output);
        (outcome.cache_read, outcome.cache_write) = (usage.cache_read, usage.cache_write);
    }
    outcome.brokered = Some(Brokered { counted, refusal: meter.refusal(), refused_requests: meter.refused() });
    outcome
}

/// Returns an event with only this run's usage, without the usage of earlier runs of the session.
fn without_earlier_runs(event: AgentEvent, run: &AgentRun, observed: Option<u64>) -> AgentEvent {
    match (event, &run.session, observed) {
        (
            AgentEvent::Used { tokens_in, tokens_out, cache_read, cache_write, cost, model },
            Some(resumed),
            Some(observed),
        ) => {
            let usage = TokenUsage::with_cached_in(tokens_in, tokens_out, cache_read, cache_write);
            let Cumulative { usage, cost } = Cumulative { usage, cost }.since(&resumed.account, observed);
            let TokenUsage { output, cache_read, cache_write, .. } = usage;
            let tokens_in = usage.total().saturating_sub(output);
            AgentEvent::Used { tokens_in, tokens_out: output, cache_read, cache_write, cost, model }
        }
        (event, _, _) => event,
    }
}

/// Returns the event with secrets masked. Output lines are masked before they are parsed, but JSON escapes can hide a
/// secret.
fn masked(mut event: AgentEvent, secrets: &Masker) -> AgentEvent {
    match &mut event {
        AgentEvent::Session { id: text }
        | AgentEvent::Text { text }
        | AgentEvent::ToolFailed { text }
        | AgentEvent::FileChanged { path: text }
        | AgentEvent::Retried { reason: text }
        | AgentEvent::ToolCalled { input: text, .. } => *text = secrets.mask(text).into(),
        AgentEvent::Used { model, .. } => {
            *model = model.take().map(|model| secrets.mask(&model).into());
        }
    }
    event
}

/// Returns the outcome of a run that did not start.
fn not_started(status: AgentStatus) -> AgentOutcome {
    assembled(status.clone(), ParsedOutput::only(status))
}

fn assembled(status: AgentStatus, mut output: ParsedOutput) -> AgentOutcome {
    output.errors.truncate(MAX_ERRORS);
    output.signals.succeeded = status == AgentStatus::Finished;
    let start = output.final_message.len().saturating_sub(MAX_FINAL_MESSAGE);
    let start = output.final_message.ceil_char_boundary(start);
    AgentOutcome {
        status,
        report: None,
        report_problem: None,
        final_message: output.final_message.split_off(start),
        session: output.session,
        session_kept: false,
        session_unknown: false,
        context_tokens: output.context_fill.map(|fill| fill.tokens),
        context_window: output.context_fill.and_then(|fill| fill.window),
        account: Cumulative::default(),
        tokens_in: output.tokens_in,
        tokens_out: output.tokens_out,
        cache_read: output.cache_read,
        cache_write: output.cache_write,
        cost: output.cost,
        model: output.model,
        tool_calls: output.tool_calls,
        tool_errors: output.tool_errors,
        errors: output.errors,
        duration_ms: 0,
        output: String::new(),
        denied: output.denied,
        stop_reason: output.stop_reason,
        signals: output.signals,
        killed: false,
        brokered: None,
    }
}

/// Whether a signal ended the program; a shell reports this as an exit code above 128.
fn is_killed(end: &ProcessEnd) -> bool {
    let exits = matches!(end, ProcessEnd::Exited(code) if *code <= 128);
    !exits && !matches!(end, ProcessEnd::Stopped(_))
}

#[cfg(test)]
mod tests;
