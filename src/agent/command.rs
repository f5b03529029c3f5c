//! Runs a coding agent that is a command: folders, environment, sandbox, limits, report; the same for every preset.

mod provider_wait_limit;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use secrecy::SecretString;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use self::provider_wait_limit::run_with_provider_wait_limit;
use super::broker::{Broker, HiddenKey, hidden_keys};
use super::mcp;
use super::placeholder::filled;
use super::preset::{
    AgentPreset, MAX_ARGUMENT, OutputReader, ParsedOutput, PromptDelivery, RunContext, VERSION_WAIT, see_file,
    shortened,
};
use super::report;
use super::run_environment::{self, GRACE, LeftoverFiles, REPORT, RunFolders};
use super::session::{self, SessionUsage};
use super::{AgentEvent, AgentOutcome, AgentRun, AgentStatus, Backend, BackendSetup, OutputFormat};
use crate::domain::providers::money::Cumulative;
use crate::domain::providers::prices::TokenUsage;
use crate::process::{
    self, Finished, Flow, Masker, ProcessEnd, ProcessError, ProcessLimits, ProcessSpec, Stdin, Stream, executable,
};

/// Bytes kept of each output stream of an agent.
const KEEP_BYTES: usize = 4 * 1024 * 1024;
/// Longest time that an agent may spend with asking again a provider that refuses.
const MAX_PROVIDER_WAIT: Duration = Duration::from_secs(60);
/// Most errors that an outcome lists.
const MAX_ERRORS: usize = 50;
/// Longest final message, in bytes.
const MAX_FINAL_MESSAGE: usize = 16 * 1024;
/// A preset with an operator's settings.
pub(super) struct CommandBackend {
    name: String,
    preset: &'static AgentPreset,
    settings: BackendSetup,
    program: PathBuf,
    secrets: Masker,
    /// Keys that agents do not get to see.
    hidden_keys: Vec<HiddenKey>,
}

impl CommandBackend {
    pub(super) fn new(name: &str, preset: &'static AgentPreset, mut settings: BackendSetup) -> Result<Self, String> {
        settings.path = run_environment::path(&settings);
        let program = match settings.config.command.first() {
            Some(program) => program.clone(),
            None => {
                preset.program.ok_or("`command` is missing: give the program and its arguments as a list")?.to_owned()
            }
        };
        if preset.prompt == PromptDelivery::Stdin && !settings.prompt_on_stdin {
            let named = ["{prompt}", "{prompt_file}"];
            if !settings.config.args.iter().any(|argument| named.iter().any(|name| argument.contains(name))) {
                return Err("it would be started without its prompt: leave out `stdin: none`, or put {prompt} or \
                            {prompt_file} into `args`"
                    .to_owned());
            }
        }
        let program =
            executable(Path::new(&program), &settings.config_folder, &settings.path).map_err(|e| e.to_string())?;
        let (secrets, hidden_keys) = (run_environment::secrets(&settings), hidden_keys(&settings, preset.keys));
        Ok(Self { name: name.to_owned(), preset, settings, program, secrets, hidden_keys })
    }

    /// The run as the preset sees it.
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
            prompt_file: &folders.prompt,
            variables,
            servers,
        }
    }

    fn spec(&self, call: &RunContext<'_>, folders: &RunFolders) -> ProcessSpec {
        let (run, model) = (call.run, call.model);
        let mut spec = ProcessSpec::new(&self.program, &run.tree)
            .args(self.settings.config.command.iter().skip(1))
            .args((self.preset.arguments)(call));
        let report = folders.report.join(REPORT);
        let long = see_file(&folders.prompt);
        let prompt = if run.prompt.len() < MAX_ARGUMENT { &run.prompt } else { &long };
        let values = [
            ("model", model.unwrap_or_default().as_ref()),
            ("prompt", prompt.as_ref()),
            ("prompt_file", folders.prompt.as_os_str()),
            ("report", report.as_os_str()),
            ("session", run.session.as_ref().map_or("", |session| session.id.as_str()).as_ref()),
            ("mcp_config", run.mcp_config.as_deref().unwrap_or(Path::new("")).as_os_str()),
        ];
        spec = spec.args(self.settings.config.args.iter().map(|argument| filled(argument, &values)));
        spec.env = self.environment(&folders.home, &folders.temporary);
        spec.env.extend(folders.told(run, model.unwrap_or_default()));
        for (name, value) in (self.preset.environment)(call) {
            spec = spec.env(name, value);
        }
        spec.env.extend(run_environment::granted(call.variables));
        if self.settings.prompt_on_stdin {
            spec.stdin = Stdin::Bytes(run.prompt.clone().into_bytes());
        }
        spec.limits = ProcessLimits { wall: run.wall, idle: Some(run.idle), grace: GRACE, keep_bytes: KEEP_BYTES };
        spec.cookie = Some(run.cookie.clone());
        spec.secrets = self.secrets.clone();
        // Whoever has no key of its own has no business at its model's but through us.
        let model_at = if self.hidden_keys.is_empty() { self.preset.model_at } else { &[] };
        spec.sandbox = folders.sandbox(run, &self.settings, run_environment::servers(call.variables, model_at));
        spec
    }

    /// Files and folders of its home that hold its sessions.
    fn session_files(&self) -> impl Iterator<Item = &str> {
        self.preset.sessions.iter().copied().chain(self.settings.config.session_files.iter().map(String::as_str))
    }

    /// Brings the files of the session that goes on into the home of this run.
    fn bring_session(&self, run: &AgentRun, folders: &RunFolders) -> std::io::Result<()> {
        match &run.session {
            Some(resumed) if self.session_files().next().is_some() => {
                session::copy(&resumed.files, self.session_files(), &folders.home).map(drop)
            }
            _ => Ok(()),
        }
    }

    /// Keeps the files of the session that a run leaves; whether a later run can go on with it.
    fn keep_session(&self, id: &str, keep: &Path, folders: &RunFolders) -> bool {
        if self.session_files().next().is_none() {
            return true;
        }
        match session::copy(&folders.home, self.session_files(), keep) {
            Ok(files) => files > 0,
            Err(error) => {
                tracing::warn!(backend = self.name, session = id, %error, "a session could not be kept; the next run begins anew");
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

    fn hidden_keys(&self) -> Vec<&str> {
        self.hidden_keys.iter().flat_map(|hidden| &hidden.keys).map(String::as_str).collect()
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
                let reason = format!("its folder {} could not be made: {e}", run.scratch.display());
                return nothing(AgentStatus::Failed { reason });
            }
        };
        let servers = match run.mcp_config.as_deref().map(mcp::read).transpose() {
            Ok(servers) => servers.unwrap_or_default(),
            Err(reason) => return nothing(AgentStatus::Unavailable { reason }),
        };
        let broker = match Broker::open(&self.settings, &self.hidden_keys).await {
            Ok(broker) => broker,
            Err(reason) => return nothing(AgentStatus::Failed { reason }),
        };
        let call = self.call(&run, &folders, &servers, &broker.variables);
        if let Err(e) = folders.write((self.preset.files)(&call)) {
            let reason = format!("its settings in {} could not be written: {e}", folders.home.display());
            return nothing(AgentStatus::Failed { reason });
        }
        if let Err(error) = self.bring_session(&run, &folders) {
            let reason = format!("the files of its session could not be brought: {error}");
            return AgentOutcome { session_unknown: true, ..nothing(AgentStatus::Failed { reason }) };
        }
        let mut reader = self.settings.output.map_or_else(self.preset.reader, OutputFormat::reader);
        let (waits, mut waiting) = watch::channel(false);
        let mut lines = |stream: Stream, line: &str| {
            let mut heard = Vec::new();
            reader.line(stream, line, &mut |event| heard.push(event));
            for event in heard {
                on_event(masked(of_run(event, &run, reader.observed_tokens()), &self.secrets));
            }
            waits.send_if_modified(|waits| std::mem::replace(waits, reader.is_waiting()) != *waits);
            reader.reason_to_stop().map_or(Flow::Continue, Flow::Stop)
        };
        let (spec, stop) = (self.spec(&call, &folders), cancel.child_token());
        let leftovers = LeftoverFiles::before(&run.tree, self.preset.leftovers);
        let running = process::run(spec, &stop, Some(&mut lines));
        let (ended, gave_up) = run_with_provider_wait_limit(running, &mut waiting, MAX_PROVIDER_WAIT, &stop).await;
        leftovers.clear();
        match ended {
            Ok(mut finished) => {
                if gave_up && finished.ended == ProcessEnd::Cancelled && !cancel.is_cancelled() {
                    let reason = format!("its provider refused it for {} s", MAX_PROVIDER_WAIT.as_secs());
                    finished.ended = ProcessEnd::Stopped(reason);
                }
                self.outcome(&run, &folders, finished, reader.as_mut())
            }
            Err(error @ ProcessError::Wait { .. }) => nothing(AgentStatus::Failed { reason: error.to_string() }),
            Err(error) => nothing(AgentStatus::Unavailable { reason: error.to_string() }),
        }
    }

    async fn probe(&self) -> Result<String, String> {
        let Some(arguments) = self.preset.version else { return Ok("no version".to_owned()) };
        let home = tempfile::tempdir().map_err(|e| format!("no temporary folder: {e}"))?;
        let mut spec = ProcessSpec::new(&self.program, home.path())
            .args(self.settings.config.command.iter().skip(1))
            .args(arguments.iter().copied());
        spec.env = self.environment(home.path(), home.path());
        spec.limits = ProcessLimits { wall: VERSION_WAIT, keep_bytes: 8 * 1024, ..ProcessLimits::default() };
        let finished = process::run(spec, &CancellationToken::new(), None).await.map_err(|e| e.to_string())?;
        let said = finished.stdout.text();
        match said.trim().lines().next() {
            Some(version) if finished.success() => Ok(shortened(version, 100)),
            _ => Err(format!(
                "{} {} did not answer: {}",
                self.program.display(),
                arguments.join(" "),
                super::script::how_it_ended(&finished.ended, &finished)
            )),
        }
    }
}

impl CommandBackend {
    fn outcome(
        &self,
        run: &AgentRun,
        folders: &RunFolders,
        finished: Finished,
        reader: &mut dyn OutputReader,
    ) -> AgentOutcome {
        let complete = reader.is_complete();
        let mut reading = reader.finish(&finished);
        reading.signals.zone = run_environment::zone(&self.settings);
        self.add_up(&mut reading, folders);
        reading.model = reading.model.or_else(|| self.model_of(run, folders));
        let account = take_off(&mut reading, run, reader.observed_tokens());
        let session_unknown = run.session.is_some() && session::is_unknown(&reading);
        let status = match &finished.ended {
            ProcessEnd::Cancelled => AgentStatus::Cancelled,
            // One that hangs after its last word has done its work.
            ProcessEnd::WallLimit | ProcessEnd::IdleLimit if complete => reading.status.clone(),
            // One that waits for a login says so.
            ProcessEnd::WallLimit | ProcessEnd::IdleLimit
                if matches!(reading.status, AgentStatus::Unavailable { .. }) =>
            {
                reading.status.clone()
            }
            ProcessEnd::WallLimit => {
                AgentStatus::TimedOut { what: format!("it ran for longer than {} s", run.wall.as_secs_f64()) }
            }
            ProcessEnd::IdleLimit => {
                AgentStatus::TimedOut { what: format!("it printed nothing for {} s", run.idle.as_secs_f64()) }
            }
            ProcessEnd::Exited(_) | ProcessEnd::Signalled(_) | ProcessEnd::Stopped(_) => reading.status.clone(),
        };
        let (report, report_problem) = report::read(&folders.report, REPORT, &self.secrets);
        let mut output = finished.stdout.text();
        if finished.stderr.total_bytes > 0 {
            output.push_str("\n--- standard error ---\n");
            output.push_str(&finished.stderr.text());
        }
        let mut outcome = assembled(status, reading);
        outcome.account = account;
        outcome.session_unknown = session_unknown;
        self.keep(run, folders, &mut outcome);
        outcome.report = report;
        outcome.report_problem = report_problem;
        outcome.duration_ms = u64::try_from(finished.duration.as_millis()).unwrap_or(u64::MAX);
        outcome.output = output;
        outcome
    }

    /// Takes what the run used from the files of its session, where the output does not say it.
    fn add_up(&self, reading: &mut ParsedOutput, folders: &RunFolders) {
        let Some(read) = self.preset.ledger.filter(|_| self.settings.output.is_none()) else { return };
        match session::ledger(&folders.home, self.session_files(), read) {
            Ok(SessionUsage { tokens, filled }) => {
                (reading.tokens_in, reading.tokens_out) = (tokens.read, tokens.written);
                (reading.cache_read, reading.cache_write) = (tokens.cache_read, tokens.cache_write);
                reading.filled = filled;
            }
            Err(error) => tracing::warn!(backend = self.name, %error, "what a run used cannot be read"),
        }
    }

    /// The model by the files of the session, where nobody chose one and the output does not say it.
    fn model_of(&self, run: &AgentRun, folders: &RunFolders) -> Option<String> {
        let read = self.preset.model.filter(|_| run.model.is_none() && self.settings.output.is_none())?;
        session::model(&folders.home, self.session_files(), read).ok().flatten()
    }

    /// Keeps the session of a run that ended well, and looks how full it is where the output did not say it.
    fn keep(&self, run: &AgentRun, folders: &RunFolders, outcome: &mut AgentOutcome) {
        let ended_well = outcome.status == AgentStatus::Finished && self.resumes();
        let (Some(id), Some(keep), true) = (&outcome.session, &run.keep, ended_well) else { return };
        outcome.session_kept = self.keep_session(id, keep, folders);
        if let (Some(read), None) = (self.preset.filled, outcome.context_tokens) {
            // Names of files have the id, or how it begins.
            let mark: String = id.chars().take(8).collect();
            let filled = session::filled(keep, &mark, read);
            outcome.context_tokens = filled.map(|filled| filled.tokens);
            outcome.context_window = filled.and_then(|filled| filled.window);
        }
    }
}

/// Leaves in the reading what the run itself used; gives the figures as the backend gave them.
fn take_off(reading: &mut ParsedOutput, run: &AgentRun, seen: Option<u64>) -> Cumulative {
    let usage =
        TokenUsage::with_cached_in(reading.tokens_in, reading.tokens_out, reading.cache_read, reading.cache_write);
    let account = Cumulative { usage, cost: reading.cost };
    if let (Some(resumed), Some(seen)) = (&run.session, seen) {
        let Cumulative { usage, cost } = account.since(&resumed.account, seen);
        reading.tokens_in = usage.total().saturating_sub(usage.output);
        (reading.tokens_out, reading.cache_read, reading.cache_write) =
            (usage.output, usage.cache_read, usage.cache_write);
        reading.cost = cost;
    }
    account
}

/// The event with what the run itself used, not the session that it goes on with.
fn of_run(event: AgentEvent, run: &AgentRun, seen: Option<u64>) -> AgentEvent {
    match (event, &run.session, seen) {
        (
            AgentEvent::Used { tokens_in, tokens_out, cache_read, cache_write, cost, model },
            Some(resumed),
            Some(seen),
        ) => {
            let usage = TokenUsage::with_cached_in(tokens_in, tokens_out, cache_read, cache_write);
            let Cumulative { usage, cost } = Cumulative { usage, cost }.since(&resumed.account, seen);
            let TokenUsage { output, cache_read, cache_write, .. } = usage;
            let tokens_in = usage.total().saturating_sub(output);
            AgentEvent::Used { tokens_in, tokens_out: output, cache_read, cache_write, cost, model }
        }
        (event, _, _) => event,
    }
}

/// The event without secrets. Lines are masked as they come, but JSON can write a secret in another way.
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

/// The outcome of a run that never came about.
fn nothing(status: AgentStatus) -> AgentOutcome {
    assembled(status.clone(), ParsedOutput::only(status))
}

fn assembled(status: AgentStatus, mut reading: ParsedOutput) -> AgentOutcome {
    reading.errors.truncate(MAX_ERRORS);
    reading.signals.succeeded = status == AgentStatus::Finished;
    let start = reading.final_message.len().saturating_sub(MAX_FINAL_MESSAGE);
    let start = reading.final_message.ceil_char_boundary(start);
    AgentOutcome {
        status,
        report: None,
        report_problem: None,
        final_message: reading.final_message.split_off(start),
        session: reading.session,
        session_kept: false,
        session_unknown: false,
        context_tokens: reading.filled.map(|filled| filled.tokens),
        context_window: reading.filled.and_then(|filled| filled.window),
        account: Cumulative::default(),
        tokens_in: reading.tokens_in,
        tokens_out: reading.tokens_out,
        cache_read: reading.cache_read,
        cache_write: reading.cache_write,
        cost: reading.cost,
        model: reading.model,
        tool_calls: reading.tool_calls,
        tool_errors: reading.tool_errors,
        errors: reading.errors,
        duration_ms: 0,
        output: String::new(),
        denied: reading.denied,
        stop_reason: reading.stop_reason,
        signals: reading.signals,
    }
}

#[cfg(test)]
mod tests;
