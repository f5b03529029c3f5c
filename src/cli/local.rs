//! `ralph-bot local`: runs loops on a local repository, without a forge.

#[cfg(any(feature = "desktop", test))]
mod desktop;
mod folder;
mod keep_setup;
mod list;
pub mod login;
mod next_steps;
mod progress;
mod records;
mod session;
mod tasks;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use ralph_types::failure::Failure;
use tokio_util::sync::CancellationToken;

use super::error::{CliError, CliResult};
use super::global::Global;
use super::loops::{dollars, duration, iterations};
use super::serve::{INTERRUPTED, Signals};
use super::{block_on, print};
use crate::agent::presets;
use crate::app;
use crate::clock::Clock;
use crate::config::forge_entry::quoted;
use crate::config::tasks::{ListedTask, read_tasks};
use crate::config::{Config, ConfigScope, Env, FILE_VARIABLE, operator_file};
use crate::domain::loops::Loop;
use crate::domain::loops::RunOptions;
use crate::domain::model::ids::{LoopId, Money};
use crate::domain::model::quantity;
use crate::domain::providers::backends::BackendRole;
use crate::forge::local::{Local, LocalMessage};
use crate::telemetry::{self, TelemetryError};
pub use folder::state_folder;
use folder::{DataFolder, FolderChoice};
use list::StoredLoop;
use login::FoundLogin;
use next_steps::Invocation;
use progress::{ProgressEvent, ProgressLine};
use session::{IdleEngine, LocalSession, MOST_JOBS, has_open_findings, is_done};
use tasks::PlannedTask;

/// Exit code if a finding about tests waits for a decision, as `--help` states.
const OPEN_FINDINGS: u8 = 3;
/// Maximum length of the title, in characters.
const TITLE_MAX: usize = 100;

/// Arguments of `local`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Exit code: 0 if the task is done; 3 if it is not while a finding about tests is open; 1 if it is not for another reason; 2 for wrong arguments; 130 after Ctrl-C"
)]
#[command(group(clap::ArgGroup::new("work").required(true).args(["task", "tasks", "resume", "list", "login"])))]
pub struct LocalArgs {
    /// Folder of the repository
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub repo: PathBuf,
    /// Task, or a file that contains it
    #[arg(long, value_name = "TEXT|FILE")]
    pub task: Option<String>,
    /// YAML file with tasks, each with its checks and limits; tasks that are done are not repeated
    #[arg(long, value_name = "FILE", conflicts_with_all = ["check", "max_iterations", "timeout", "budget"])]
    pub tasks: Option<PathBuf>,
    /// Number of tasks that run at once
    #[arg(long, value_name = "N", conflicts_with_all = ["task", "resume", "list"], default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_JOBS)))]
    pub jobs: u32,
    /// Continue a loop [default: the last one that is not done]
    #[arg(long, value_name = "LOOP", num_args = 0..=1)]
    pub resume: Option<Option<String>>,
    /// Guidance for the next iteration of the resumed loop
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["task", "tasks", "list"])]
    pub guide: Option<String>,
    /// Accept the changes to tests that keep the resumed loop from completion
    #[arg(long, requires = "resume")]
    pub accept_tests: bool,
    /// List the loops of the repository
    #[arg(long)]
    pub list: bool,
    /// Use your login of a preset, such as the login of `codex login`, in runs without a configuration file from now on; asks first
    #[arg(long, value_name = "NAME")]
    pub login: Option<String>,
    /// Do not ask, with --login
    #[arg(long, requires = "login")]
    pub yes: bool,
    /// Command that must exit with code 0; repeatable [default: detected from the repository]
    #[arg(long, value_name = "COMMAND")]
    pub check: Vec<String>,
    /// Only backend to use [default: all, in the order of `priority`]
    #[arg(long, value_name = "NAME")]
    pub backend: Option<String>,
    /// Maximum number of iterations, or `unlimited`
    #[arg(long, value_name = "N", value_parser = iterations)]
    pub max_iterations: Option<quantity::IterationLimit>,
    /// Maximum working time, such as 90m
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub timeout: Option<quantity::Duration>,
    /// Maximum cost, in US dollars
    #[arg(long, value_name = "USD", value_parser = dollars)]
    pub budget: Option<f64>,
    /// Folder for database, work trees and logs [default: one per repository below $XDG_STATE_HOME/ralph-bot/local]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
}

/// Runs, resumes or lists loops.
///
/// # Errors
/// Fails on invalid arguments or configuration, an unusable repository, or a fatal error.
pub fn run(args: &LocalArgs, global: &Global, env: &Env) -> CliResult {
    match telemetry::init_warnings(env) {
        Ok(()) | Err(TelemetryError::Started) => {}
        Err(error) => return Err(CliError::usage(Failure::of(error))),
    }
    block_on(local(args, global, env))
}

/// Kind of work of one run.
enum LocalWork {
    Task { title: String, body: String },
    Tasks(Vec<ListedTask>),
    Resume(Box<StoredLoop>),
}

async fn local(args: &LocalArgs, global: &Global, env: &Env) -> CliResult {
    if let Some(name) = &args.login {
        return login::take_over(name, args.yes, env).map(|()| ExitCode::SUCCESS);
    }
    let task = args.task.as_deref().map(task).transpose()?;
    let listed = args.tasks.as_deref().map(read_tasks).transpose()?;
    if let Some(empty) = args.check.iter().position(|check| check.trim().is_empty()) {
        return Err(CliError::usage(format!("--check number {} is empty", empty + 1)));
    }
    let json = global.json;
    if args.list {
        let forge = open(args, env, json).await?;
        return list::print_list(&FolderChoice::of(args.data.as_deref(), forge.repo(), env), &forge, json).await;
    }
    let mut config = configuration(args, global, env)?;
    let first = first_backend(args, &config, env)?;
    let forge = open(args, env, json).await?;
    forge.check_push(&config.policy.branch_prefix).await.map_err(CliError::usage)?;
    for text in notes(args, &config, &first, &forge, env).await {
        print(&ProgressLine { task: None, event: ProgressEvent::Note { text } }.text(json))?;
    }
    let choice = FolderChoice::of(args.data.as_deref(), forge.repo(), env);
    let (work, folder) = match (task, listed, &args.resume) {
        (Some((title, body)), ..) => (LocalWork::Task { title, body }, choice.claim()?),
        (None, Some(tasks), _) => (LocalWork::Tasks(tasks), choice.claim()?),
        (None, None, named) => {
            let named = named.as_ref().and_then(|name| name.as_deref());
            let found = list::find(&choice, &forge, named).await?;
            let folder = folder::claim_of(&found.database)?;
            (LocalWork::Resume(Box::new(found)), folder)
        }
    };
    config.data_dir.clone_from(&folder.path);
    // The operator's list of repositories does not apply to a local one.
    config.repositories.clear();
    session::remove_forge_limits(&mut config.policy.limits);
    let mut signals = Signals::new()?;
    let idle = IdleEngine::build(&config, env, &forge).await?;
    let options = run_options(args)?;
    let planned = Plan::of(work, &idle.known, args, options);
    let invocation = invocation(args, global, &folder);
    let session = idle.start(&config, forge, &planned.cut_off(), (&folder.path, invocation, json)).await?;
    let interrupted = CancellationToken::new();
    let outcome = {
        let work = planned.run(&session, args, json, &interrupted);
        tokio::pin!(work);
        tokio::select! {
            outcome = &mut work => outcome,
            () = signals.next() => {
                interrupted.cancel();
                tokio::select! {
                    outcome = &mut work => outcome,
                    () = signals.next() => return Ok(ExitCode::from(INTERRUPTED)),
                }
            }
        }
    };
    tokio::select! {
        () = session.stop() => {}
        () = signals.next() => return Ok(ExitCode::from(INTERRUPTED)),
    }
    let outcome = outcome?;
    if let Some(ended) = outcome.stopped.as_ref().filter(|_| !json) {
        keep_setup::ask(ended, &args.repo, &folder.path)?;
    }
    #[cfg(feature = "desktop")]
    for notification in outcome.stopped.iter().filter_map(desktop::notification) {
        desktop::show(&notification, env).await;
    }
    Ok(match outcome.done {
        Some(true) => ExitCode::SUCCESS,
        Some(false) if outcome.open_findings => ExitCode::from(OPEN_FINDINGS),
        Some(false) => ExitCode::FAILURE,
        None => ExitCode::from(INTERRUPTED),
    })
}

/// Loops to start or continue.
enum Plan {
    Start { title: String, body: String, options: RunOptions },
    Continue { known: Box<Loop>, options: RunOptions },
    List(Vec<PlannedTask>),
}

/// Result of a run.
struct RunOutcome {
    /// Whether all tasks are done; `None` if the run was interrupted.
    done: Option<bool>,
    /// Whether any task is not done because a finding about tests is open.
    open_findings: bool,
    /// Loop that stopped, if the run had only one.
    stopped: Option<Loop>,
}

impl Plan {
    fn of(work: LocalWork, known: &[Loop], args: &LocalArgs, options: RunOptions) -> Self {
        match work {
            LocalWork::Task { title, body } => Self::Start { title, body, options },
            LocalWork::Tasks(tasks) => Self::List(PlannedTask::all(tasks, known, args.backend.as_deref())),
            LocalWork::Resume(found) => Self::Continue { known: Box::new(found.known), options },
        }
    }

    /// Returns the loops of a killed run that will continue. If there are new options, they are paused first.
    fn cut_off(&self) -> Vec<LoopId> {
        match self {
            Self::Start { .. } => Vec::new(),
            Self::Continue { known, options } if *options == RunOptions::default() => vec![known.id.clone()],
            Self::Continue { .. } => Vec::new(),
            Self::List(tasks) => tasks.iter().filter_map(PlannedTask::cut_off).collect(),
        }
    }

    async fn run(
        self,
        session: &LocalSession<'_>,
        args: &LocalArgs,
        json: bool,
        interrupted: &CancellationToken,
    ) -> Result<RunOutcome, CliError> {
        let id = match self {
            Self::List(tasks) => {
                let (done, open_findings) = tasks::run_tasks(session, tasks, args.jobs, json, interrupted).await?;
                return Ok(RunOutcome { done, open_findings, stopped: None });
            }
            Self::Start { title, body, options } => session.begin(&title, &body, options).await?,
            Self::Continue { known, options } => {
                if args.accept_tests {
                    session.accept_tests(&known.id).await?;
                }
                session.resume(&known.id, options, args.guide.as_deref().unwrap_or_default()).await?;
                known.id
            }
        };
        let stopped = session.follow(&id, None, interrupted).await?;
        let open_findings = stopped.as_ref().is_some_and(has_open_findings);
        Ok(RunOutcome { done: stopped.as_ref().map(is_done), open_findings, stopped })
    }
}

/// Returns surprising properties of a run, one sentence each.
async fn notes(args: &LocalArgs, config: &Config, backend: &str, forge: &Local, env: &Env) -> Vec<String> {
    let uncommitted = forge.uncommitted(&args.repo).await;
    let branch = forge.default_branch();
    let of_base = (uncommitted > 0).then(|| {
        let changes =
            if uncommitted == 1 { "1 changed file is".to_owned() } else { format!("{uncommitted} changed files are") };
        format!("{changes} not committed, so the run, which starts at the last commit of `{branch}`, lacks the changes")
    });
    let settings = config.backends.get(backend);
    let has_login = settings.is_none_or(|backend| {
        !backend.env.is_empty() || backend.settings.kind.is_some() || backend.settings.login_file.is_some()
    });
    let login = match login::found(backend, env).filter(|_| !has_login) {
        Some(FoundLogin::File(file)) => Some(format!(
            "runs have no login of {backend}, because they do not see your home; `ralph-bot local --login {backend}` has them use {}",
            file.display()
        )),
        Some(FoundLogin::None(advice)) => Some(format!("runs have no login of {backend}; {advice}")),
        Some(FoundLogin::Variable(_)) | None => None,
    };
    of_base.into_iter().chain(login).chain(app::hidden_arguments(config, backend, env)).collect()
}

/// Opens the repository.
async fn open(args: &LocalArgs, env: &Env, json: bool) -> Result<Arc<Local>, CliError> {
    let path = OsString::from(env.get("PATH").unwrap_or("/usr/local/bin:/usr/bin:/bin"));
    let message = Box::new(move |message: LocalMessage| progress::print_forge_output(&message, json));
    let forge = Local::open(&args.repo, path, env.get("HOME").unwrap_or("/"), Clock::System, message).await;
    forge.map(Arc::new).map_err(CliError::usage)
}

/// Returns the options of the command line, with the same validation as in comments.
fn run_options(args: &LocalArgs) -> Result<RunOptions, CliError> {
    let mut options = RunOptions {
        max_iterations: args.max_iterations,
        timeout_s: args.timeout.map(|timeout| timeout.as_seconds()),
        budget: args.budget.map(Money::from_usd),
        backend: args.backend.clone(),
        ..RunOptions::default()
    };
    for check in &args.check {
        options.set("--check", check).map_err(CliError::usage)?;
    }
    Ok(options)
}

/// Returns the arguments that suggested commands must repeat.
fn invocation(args: &LocalArgs, global: &Global, folder: &DataFolder) -> Invocation {
    let shown = |path: &Path| path.display().to_string();
    Invocation {
        repo: shown(&args.repo),
        data: args.data.as_deref().map(shown),
        config: global.config.as_deref().map(shown),
        lasting: !folder.temporary,
    }
}

/// Reads the task; its first line is the title.
fn task(given: &str) -> Result<(String, String), CliError> {
    let file = Path::new(given);
    let text = if file.is_file() {
        let read = std::fs::read_to_string(file);
        read.map_err(|error| {
            CliError::usage(Failure::new(format!("could not read the task in {}", file.display())).caused_by(error))
        })?
    } else {
        given.to_owned()
    };
    let first = text.lines().map(|line| line.trim_start_matches('#').trim()).find(|line| !line.is_empty());
    match first {
        Some(first) => Ok((first.chars().take(TITLE_MAX).collect(), text.trim().to_owned())),
        None => Err(CliError::usage("--task is empty; describe the task")),
    }
}

/// Loads the operator's configuration if there is one; otherwise returns a configuration that contains only the
/// backend.
fn configuration(args: &LocalArgs, global: &Global, env: &Env) -> Result<Config, CliError> {
    let file = operator_file(global.config.as_deref(), env);
    let named = global.config.is_some() || env.get(FILE_VARIABLE).is_some_and(|name| !name.is_empty());
    if named || file.exists() {
        return Ok(Config::load_for(ConfigScope::Local, &file, env)?);
    }
    let backend = args.backend.as_deref().unwrap_or("claude");
    if !presets::is_known(backend) {
        let presets = presets::names().join(", ");
        let message = format!("there is no preset `{backend}`; without a configuration file, choose one of {presets}");
        return Err(CliError::usage(message));
    }
    let variables = presets::variables(backend).join(", ");
    let login =
        login::consented(backend, env).map(|file| format!(", login_file: {}", quoted(&file.display().to_string())));
    let login = login.unwrap_or_default();
    let text = format!("backends: {{ {backend}: {{ enabled: true, env: [{variables}]{login} }} }}\n");
    Ok(Config::parse_for(ConfigScope::Local, &file, &text, env)?)
}

/// Verifies that the named backend can run, or at least one of all.
fn first_backend(args: &LocalArgs, config: &Config, env: &Env) -> Result<String, CliError> {
    let settings = config.backends_settings();
    let names = settings.in_order(BackendRole::Agent);
    let wanted = match &args.backend {
        Some(name) if names.contains(&name.as_str()) => vec![name.as_str()],
        Some(name) => {
            return Err(CliError::usage(format!("there is no backend `{name}`; available: {}", names.join(", "))));
        }
        None => names,
    };
    let mut first_problem = None;
    for name in wanted {
        match app::backend(config, name, env) {
            Ok(_) => return Ok(name.to_owned()),
            Err(problem) => first_problem = first_problem.or(Some(problem)),
        }
    }
    Err(CliError::failed(first_problem.unwrap_or_else(|| "no backend for agents is configured".into())))
}
