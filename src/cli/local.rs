//! `ralph-bot local`: runs one loop on a local repository, without a forge.

#[cfg(feature = "desktop")]
mod desktop;
mod progress;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use sha2::{Digest, Sha256};

use super::serve::Signals;
use super::{CliError, CliResult, Global, block_on, print};
use crate::agent::presets;
use crate::app::{self, Application, Options};
use crate::clock::Clock;
use crate::config::{Config, ConfigScope, Env, FILE_VARIABLE, operator_file};
use crate::domain::loops::{Loop, LoopInput, LoopStart, LoopState, LoopTask, RunOptions};
use crate::domain::model::event::IssueSnapshot;
use crate::domain::model::ids::IssueRef;
use crate::domain::model::ids::{LoopId, Number};
use crate::engine::EngineSettings;
use crate::forge::local::{Local, LocalMessage};
use crate::store::{StoreResult, loops};
use crate::telemetry::{self, FILTER_VARIABLE};
use progress::{LocalProgress, ProgressEvent};

/// Interval between two polls of the loop.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Exit code after a signal, as shells report Ctrl-C.
const INTERRUPTED: u8 = 130;
/// Maximum length of the title, in characters.
const TITLE_MAX: usize = 100;
/// Arguments of `local`.
#[derive(Debug, Clone, Args)]
pub struct LocalArgs {
    /// Folder of the repository
    #[arg(long, value_name = "DIR")]
    pub repo: PathBuf,
    /// Task, or a file that contains it
    #[arg(long, value_name = "TEXT|FILE")]
    pub task: String,
    /// Command that must exit with code 0; repeatable [default: detected from the repository]
    #[arg(long, value_name = "COMMAND")]
    pub check: Vec<String>,
    /// Name of the backend
    #[arg(long, value_name = "NAME")]
    pub backend: Option<String>,
    /// Maximum number of iterations
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_iterations: Option<u32>,
    /// Folder for database, work trees and logs [default: temporary]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
}

/// Runs one loop to its end.
///
/// # Errors
/// Fails on invalid arguments or configuration, an unusable repository, or a fatal error.
pub fn run(args: &LocalArgs, global: &Global, env: &Env) -> CliResult {
    if env.get(FILTER_VARIABLE).is_some() {
        telemetry::init(env).map_err(|error| CliError::Usage(error.to_string()))?;
    }
    block_on(local(args, global, env))
}

async fn local(args: &LocalArgs, global: &Global, env: &Env) -> CliResult {
    let (title, body) = task(&args.task)?;
    if let Some(empty) = args.check.iter().position(|check| check.trim().is_empty()) {
        return Err(CliError::Usage(format!("--check number {} is empty", empty + 1)));
    }
    let temporary = tempfile::Builder::new().prefix("ralph-local-").tempdir();
    let temporary =
        temporary.map_err(|error| CliError::Failed(format!("could not create a temporary folder: {error}")))?;
    let mut config = configuration(args, global, env)?;
    config.data_dir = args.data.clone().unwrap_or_else(|| temporary.path().join("data"));
    // The operator's list of repositories does not apply to a local one.
    config.repositories.clear();
    let backend = backend(args, &config, env)?;
    let mut signals = Signals::new()?;
    let json = global.json;
    let path = OsString::from(env.get("PATH").unwrap_or("/usr/local/bin:/usr/bin:/bin"));
    let message = Box::new(move |message: LocalMessage| progress::print_forge_output(&message, json));
    let forge = Local::open(&args.repo, path, env.get("HOME").unwrap_or("/"), Clock::System, message).await;
    let forge = Arc::new(forge.map_err(CliError::Usage)?);
    let options =
        Options { listen: false, extra_forges: vec![forge.clone()], tune: remove_comment_limits, ..Options::default() };
    let started = Application::start(&config, env, options).await;
    let app = started.map_err(|error| CliError::Failed(format!("could not start: {error:#}")))?;
    let run_options = RunOptions {
        checks: args.check.clone(),
        max_iterations: args.max_iterations,
        backend: Some(backend),
        ..RunOptions::default()
    };
    let outcome = match begin(&app, &config, &forge, (&title, &body), run_options).await {
        Ok(id) => follow(&app, &id, &mut signals, json).await,
        Err(error) => Err(error),
    };
    tokio::select! {
        () = app.stop() => {}
        () = signals.next() => return Ok(ExitCode::from(INTERRUPTED)),
    }
    let outcome = outcome?;
    #[cfg(feature = "desktop")]
    if let Some(notification) = outcome.as_ref().and_then(desktop::notification) {
        desktop::show(&notification, env).await;
    }
    match outcome {
        Some(ended) => finish(&ended, forge.default_branch(), json),
        None => Ok(ExitCode::from(INTERRUPTED)),
    }
}

/// Removes the limits on comments, which protect forges.
fn remove_comment_limits(settings: &mut EngineSettings) {
    for policy in settings.policies.values_mut() {
        policy.limits.comments_per_hour = u32::MAX;
        policy.limits.comments_per_day = u32::MAX;
    }
}

/// Reads the task; its first line is the title.
fn task(given: &str) -> Result<(String, String), CliError> {
    let file = Path::new(given);
    let text = if file.is_file() {
        let read = std::fs::read_to_string(file);
        read.map_err(|error| CliError::Usage(format!("could not read the task in {}: {error}", file.display())))?
    } else {
        given.to_owned()
    };
    let first = text.lines().map(|line| line.trim_start_matches('#').trim()).find(|line| !line.is_empty());
    match first {
        Some(first) => Ok((first.chars().take(TITLE_MAX).collect(), text.trim().to_owned())),
        None => Err(CliError::Usage("--task is empty; describe the task".into())),
    }
}

/// Loads the operator's configuration if there is one, else a configuration with only the backend.
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
        return Err(CliError::Usage(message));
    }
    let variables = presets::variables(backend).join(", ");
    let text = format!("backends: {{ {backend}: {{ enabled: true, env: [{variables}] }} }}\n");
    Ok(Config::parse_for(ConfigScope::Local, &file, &text, env)?)
}

/// Chooses the backend and verifies that it can run.
fn backend(args: &LocalArgs, config: &Config, env: &Env) -> Result<String, CliError> {
    let agents = config
        .backends
        .iter()
        .filter(|(_, b)| b.settings.roles.contains(&crate::domain::providers::backends::BackendRole::Agent));
    let names: Vec<&str> = agents.map(|(name, _)| name.as_str()).collect();
    let name = match &args.backend {
        Some(name) if names.contains(&name.as_str()) => name.clone(),
        Some(name) => {
            return Err(CliError::Usage(format!("there is no backend `{name}`; available: {}", names.join(", "))));
        }
        None => names.first().map(|name| (*name).to_owned()).unwrap_or_default(),
    };
    app::backend(config, &name, env).map_err(CliError::Failed)?;
    Ok(name)
}

/// Starts the loop; ends open loops of earlier runs in the same folder.
async fn begin(
    app: &Application,
    config: &Config,
    forge: &Local,
    (title, body): (&str, &str),
    options: RunOptions,
) -> Result<LoopId, CliError> {
    let failed = |error: &dyn std::fmt::Display| CliError::Failed(format!("could not start the loop: {error}"));
    let store = &app.engine.store;
    let earlier = store.read(|c| loops::list(c, false, usize::MAX >> 1)).await.map_err(|e| failed(&e))?;
    let above = earlier.iter().map(|l| l.place.issue).max().unwrap_or(Number(0));
    let mut policy = config.policy(&forge.repo().forge);
    policy.limits.comments_per_hour = u32::MAX;
    policy.limits.comments_per_day = u32::MAX;
    let issue = forge.add_task(title, body, &policy.branch_prefix, above).await.map_err(|e| failed(&e))?;
    let random = (uuid::Uuid::now_v7().as_u128() & u128::from(u32::MAX)) as u32;
    let id = LoopId::from_parts(issue.number, random);
    let start = LoopStart {
        id: id.clone(),
        place: IssueRef { repo: forge.repo().clone(), issue: issue.number },
        by: forge.user(),
        task: loop_task(issue),
        options,
        policy,
        comment: None,
        hidden_removed: 0,
        round: 1,
    };
    let now = app.engine.clock.now();
    let begun = store.write(move |c| -> StoreResult<bool> {
        for old in earlier.iter().filter(|old| old.state.is_open()) {
            let input = LoopInput::IssueEnded { how: "left over from an earlier run".into() };
            loops::enqueue_input(c, &old.id, &format!("local/{}/{}", old.id, start.id), &input, now)?;
        }
        let origin = format!("local/{}", start.id);
        loops::begin(c, start, &origin, now)
    });
    match begun.await.map_err(|e| failed(&e))? {
        true => {
            app.engine.wake.loop_stepped();
            Ok(id)
        }
        false => Err(failed(&"another run uses the same folder; choose another --data")),
    }
}

fn loop_task(issue: IssueSnapshot) -> LoopTask {
    let digest = Sha256::digest(format!("{}\n{}", issue.title, issue.body));
    LoopTask {
        hash: data_encoding::HEXLOWER.encode(&digest),
        title: issue.title,
        body: issue.body,
        url: issue.url,
        author: issue.author,
        author_trusted: true,
        unconfirmed_editor: None,
        labels: issue.labels,
    }
}

/// Prints progress until the loop stops; `None` after a signal.
async fn follow(app: &Application, id: &LoopId, signals: &mut Signals, json: bool) -> Result<Option<Loop>, CliError> {
    let mut progress = LocalProgress::default();
    loop {
        let known = id.clone();
        let found = app.engine.store.read(move |c| loops::get(c, &known)).await;
        let current = found.map_err(|error| CliError::Failed(error.to_string()))?;
        let current = current.ok_or_else(|| CliError::Failed(format!("loop {id} no longer exists")))?;
        for news in progress.take(&current) {
            print(&news.text(json))?;
        }
        if !matches!(current.state, LoopState::Queued | LoopState::Running | LoopState::Waiting) {
            return Ok(Some(current));
        }
        tokio::select! {
            () = tokio::time::sleep(POLL_INTERVAL) => {}
            () = signals.next() => {
                print(&ProgressEvent::Interrupted { branch: current.pushed.is_some().then_some(current.branch) }.text(json))?;
                return Ok(None);
            }
            () = app.stopped() => {
                return Err(CliError::Failed("stopped after a fatal error; set RALPH_LOG=info for details".into()));
            }
        }
    }
}

/// Prints the result and returns the exit code.
fn finish(ended: &Loop, from: &str, json: bool) -> CliResult {
    let nothing_to_do = ended.state == LoopState::Closed && ended.iterations.is_empty();
    let good = ended.state == LoopState::Review || nothing_to_do;
    let branch = ended.pushed.is_some().then(|| ended.branch.clone());
    let diff = branch.as_ref().map(|branch| format!("git diff {from}...{branch}"));
    let mut why = ended.why.clone();
    if ended.state == LoopState::NeedsCriteria {
        why.push_str("; name a check with --check COMMAND");
    }
    let news = ProgressEvent::Ended { state: ended.state.as_str().to_owned(), good, why, branch, diff };
    print(&news.text(json))?;
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
