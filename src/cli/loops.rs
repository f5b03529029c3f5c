//! `ralph-bot loops`: lists and controls loops from the shell.

mod details;
mod remote;
#[cfg(test)]
mod tests;
mod text;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use ralph_types::failure::Failure;

use super::error::{CliError, CliResult};
use super::global::Global;
use super::{attach, block_on, load, one_line, print};
use crate::clock::Clock;
use crate::config::{Config, ConfigScope, Env};
use crate::domain::knowledge::intelligence::ClaimSums;
use crate::domain::loops::command::{self, LoopCommand};
use crate::domain::loops::{CommandInput, Loop, LoopInput, RunOptions};
use crate::domain::model::ids::{LoopId, Money};
use crate::domain::model::quantity;
use crate::domain::providers::backends::BackendRole;
use crate::domain::report::loop_report::LoopReport;
use crate::domain::supervision::oversight::OversightReport;
use crate::store::listing::{self, LoopFilter, RepoScope};
use crate::store::loops::InputOutcome;
use crate::store::sql::Connection;
use crate::store::{Store, StoreResult, audit, calls, loops, outbox, session};
use remote::RemoteLoops;
use text::{LoopRecord, OversightSums};

/// Maximum wait for the loop to process a command.
const REPLY_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval between two polls.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum number of listed loops.
const LIST_MAX: usize = 1000;

/// Arguments of `loops`; the default is `list`.
#[derive(Debug, Clone, Args)]
pub struct LoopsArgs {
    /// Subcommand.
    #[command(subcommand)]
    pub command: Option<LoopsCommand>,
    /// Address of a running service whose API is used instead of the database, such as `https://ralph.example.org`
    #[arg(long, global = true, value_name = "URL")]
    pub server: Option<String>,
    /// Environment variable with a personal token for --server [default: RALPH_TOKEN]
    #[arg(long, global = true, value_name = "NAME", requires = "server")]
    pub token_env: Option<String>,
}

/// Subcommands of `loops`.
#[derive(Debug, Clone, Subcommand)]
pub enum LoopsCommand {
    /// List open loops
    List(ListArgs),
    /// Show one loop
    Show(ShowLoopArgs),
    /// Print a report on the supervision of a loop, as Markdown
    Report(ReportArgs),
    /// Export a loop for other commands
    Export(ExportLoopArgs),
    /// Pause a loop after the current iteration
    Pause(PauseArgs),
    /// Resume a loop
    Resume(ResumeArgs),
    /// End a loop
    Abort(AbortArgs),
}

/// Arguments of `loops list`.
#[derive(Debug, Clone, Args)]
pub struct ListArgs {
    /// Include loops that ended
    #[arg(long)]
    pub all: bool,
}

/// Arguments of `loops show`.
#[derive(Debug, Clone, Args)]
pub struct ShowLoopArgs {
    /// Id of the loop
    pub id: String,
    /// Print decisions, events and effects with their reasons
    #[arg(long)]
    pub audit: bool,
    /// Print detections, interventions and their effect, for this loop, its repository, and all loops
    #[arg(long)]
    pub report: bool,
    /// Print only the prompts of this iteration
    #[arg(long, value_name = "N", conflicts_with_all = ["audit", "report"])]
    pub prompt: Option<u32>,
}

/// Arguments of `loops report`.
#[derive(Debug, Clone, Args)]
pub struct ReportArgs {
    /// Id of the loop
    pub id: String,
}

/// Arguments of `loops export`.
#[derive(Debug, Clone, Args)]
pub struct ExportLoopArgs {
    /// Id of the loop
    pub id: String,
    /// Export the trace that `replay` reads: JSON Lines with the facts about the task, then one record per iteration
    #[arg(long, required = true)]
    pub trace: bool,
    /// File to create [default: standard output]
    pub file: Option<PathBuf>,
}

/// Arguments of `loops pause`.
#[derive(Debug, Clone, Args)]
pub struct PauseArgs {
    /// Id of the loop
    pub id: String,
    /// Stop the agent immediately
    #[arg(long)]
    pub now: bool,
    /// Reason
    pub reason: Vec<String>,
}

/// Arguments of `loops resume`.
#[derive(Debug, Clone, Args)]
pub struct ResumeArgs {
    /// Id of the loop
    pub id: String,
    /// New maximum number of iterations, or `unlimited`
    #[arg(long, value_name = "N", value_parser = iterations)]
    pub max_iterations: Option<quantity::IterationLimit>,
    /// New maximum working time, such as 90m
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub timeout: Option<quantity::Duration>,
    /// New maximum cost, in US dollars
    #[arg(long, value_name = "USD", value_parser = dollars)]
    pub budget: Option<f64>,
    /// Command that must exit with code 0, replacing the current checks; repeatable
    #[arg(long, value_name = "COMMAND")]
    pub check: Vec<String>,
    /// Name of the backend to continue with
    #[arg(long, value_name = "NAME")]
    pub backend: Option<String>,
    /// Base branch, if no work has started yet
    #[arg(long, value_name = "BRANCH")]
    pub base: Option<String>,
    /// Guidance for the next iteration
    pub guidance: Vec<String>,
}

/// Arguments of `loops abort`.
#[derive(Debug, Clone, Args)]
pub struct AbortArgs {
    /// Id of the loop
    pub id: String,
    /// Reason
    pub reason: Vec<String>,
}

/// Lists, shows or controls loops.
///
/// # Errors
/// Fails on an invalid configuration, a missing database, an unknown loop, or a refused command.
pub fn run(args: &LoopsArgs, global: &Global, env: &Env) -> CliResult {
    if let Some(server) = &args.server {
        let shell = RemoteLoops::new(server, args.token_env.as_deref(), global.json, env)?;
        return block_on(shell.run(args.command.as_ref()));
    }
    let config = load(ConfigScope::Store, global, env)?;
    block_on(async {
        let store = attach(&config).await?;
        let outcome = LoopsShell::on(&store, &config, global).run(args).await;
        store.close().await;
        outcome
    })
}

/// Returns the names of the backends that run agents.
fn agents(config: &Config) -> Vec<String> {
    let runs = config.backends.iter().filter(|(_, backend)| backend.settings.roles.contains(&BackendRole::Agent));
    runs.map(|(name, _)| name.clone()).collect()
}

/// Loads loops by their ids, in order.
pub(super) fn stored(ids: &[&str], global: &Global, env: &Env) -> Result<Vec<Loop>, CliError> {
    let config = load(ConfigScope::Store, global, env)?;
    let mut found = Vec::new();
    block_on(async {
        let store = attach(&config).await?;
        let shell = LoopsShell::on(&store, &config, global);
        let mut outcome = Ok(ExitCode::SUCCESS);
        for id in ids {
            match shell.find(id).await {
                Ok(one) => found.push(one),
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
        store.close().await;
        outcome
    })?;
    Ok(found)
}

/// Implementation of the subcommands on an open database.
struct LoopsShell<'a> {
    store: &'a Store,
    /// Names of the backends that run agents.
    agents: Vec<String>,
    json: bool,
    clock: Clock,
    reply_timeout: Duration,
}

impl<'a> LoopsShell<'a> {
    fn on(store: &'a Store, config: &Config, global: &Global) -> Self {
        Self { store, agents: agents(config), json: global.json, clock: Clock::System, reply_timeout: REPLY_TIMEOUT }
    }
}

impl LoopsShell<'_> {
    async fn run(&self, args: &LoopsArgs) -> CliResult {
        match &args.command {
            None => self.list(false).await,
            Some(LoopsCommand::List(args)) => self.list(args.all).await,
            Some(LoopsCommand::Show(args)) => self.show(args).await,
            Some(LoopsCommand::Report(args)) => {
                let report = LoopReport::of(&self.find(&args.id).await?, self.clock.now());
                print(&text::report(&report, self.json)?)
            }
            Some(LoopsCommand::Export(args)) => export(&self.find(&args.id).await?, args.file.as_deref(), self.json),
            Some(LoopsCommand::Pause(args)) => {
                let command = LoopCommand::Pause(command::Pause { now: args.now, reason: args.reason.join(" ") });
                self.steer(&args.id, command).await
            }
            Some(LoopsCommand::Abort(args)) => {
                let command = LoopCommand::Abort(command::Abort { reason: args.reason.join(" ") });
                self.steer(&args.id, command).await
            }
            Some(LoopsCommand::Resume(args)) => {
                let options = self.options(args)?;
                let command = LoopCommand::Resume(command::Resume { options, guidance: args.guidance.join(" ") });
                self.steer(&args.id, command).await
            }
        }
    }

    /// Converts the options of `resume`, with the same validation as in comments.
    fn options(&self, args: &ResumeArgs) -> Result<RunOptions, CliError> {
        let mut options = RunOptions {
            max_iterations: args.max_iterations,
            timeout_s: args.timeout.map(|timeout| timeout.as_seconds()),
            budget: args.budget.map(Money::from_usd),
            ..RunOptions::default()
        };
        let checks = args.check.iter().map(|command| ("--check", command));
        let named = [("--backend", &args.backend), ("--base", &args.base)];
        let named = named.into_iter().filter_map(|(name, value)| Some((name, value.as_ref()?)));
        for (name, value) in checks.chain(named) {
            options.set(name, value).map_err(CliError::usage)?;
        }
        if let Some(name) = options.backend.as_ref().filter(|name| !self.agents.contains(name)) {
            let there = self.agents.join(", ");
            return Err(CliError::usage(format!("there is no backend {}; available: {there}", one_line(name))));
        }
        Ok(options)
    }

    async fn list(&self, all: bool) -> CliResult {
        let filter = LoopFilter { open: (!all).then_some(true), ..LoopFilter::of(RepoScope::All) };
        let page = self.read(move |c| listing::page(c, &filter, None, LIST_MAX)).await?;
        print(&text::list(&page.rows, all, self.json, self.clock.now()))
    }

    /// Prints the prompts of an iteration.
    async fn prompts(&self, current: &Loop, iteration: u32) -> CliResult {
        let id = current.id.clone();
        let turns = self.read(move |c| session::turns(c, &id, iteration..=iteration)).await?;
        if turns.is_empty() {
            let last = current.spent.iterations;
            return Err(CliError::failed(format!(
                "no prompt of iteration {iteration} is stored; the loop is at iteration {last}, and old prompts are deleted"
            )));
        }
        print(&text::prompts(&turns, self.json)?)
    }

    async fn show(&self, args: &ShowLoopArgs) -> CliResult {
        let current = self.find(&args.id).await?;
        if let Some(iteration) = args.prompt {
            return self.prompts(&current, iteration).await;
        }
        let now = self.clock.now();
        let id = current.id.clone();
        let log = self.read(move |c| {
            let history = loops::history(c, &id)?;
            Ok((history, outbox::of_subject(c, id.as_str())?, audit::trail(c, &id)?, calls::of_loop(c, &id)?))
        });
        let (history, effects, trail, calls) = log.await?;
        let reports = if args.report { Some(self.reports(&current).await?) } else { None };
        let record = LoopRecord { current, calls, history, effects, trail };
        match self.json {
            true => print(&text::record_json(&record, reports.as_ref(), args.audit, now)?),
            false => print(&text::record_text(&record, reports.as_ref(), args.audit, now)),
        }
    }

    /// Summarizes oversight and the accuracy of agents' claims for the loop, its repository, and all loops.
    async fn reports(&self, current: &Loop) -> Result<OversightSums, CliError> {
        let all = self.read(|c| loops::list(c, false, usize::MAX >> 1)).await?;
        let sum = |of: String, belongs: &dyn Fn(&Loop) -> bool| {
            let loops = || all.iter().filter(|l| belongs(l));
            let sum = loops().fold(OversightReport::default(), |sum, l| sum.plus(&l.oversight_report()));
            (of, sum, loops().map(ClaimSums::of).fold(ClaimSums::default(), ClaimSums::plus))
        };
        let repo = &current.issue.repo;
        let of_repository = |l: &Loop| l.issue.repo.id == repo.id && l.issue.repo.forge == repo.forge;
        Ok(vec![
            sum(format!("Loop {}", current.id), &|l| l.id == current.id),
            sum(format!("Repository {}", repo.full_name()), &of_repository),
            sum(format!("All {} loops", all.len()), &|_| true),
        ])
    }

    /// Enqueues a command for a loop and waits briefly for the result.
    async fn steer(&self, id: &str, command: LoopCommand) -> CliResult {
        let current = self.find(id).await?;
        if !current.state.is_open() {
            let state = current.state.as_str();
            return Err(CliError::failed(format!("{id} is {state}; set the label again to start a new loop")));
        }
        let origin = format!("cli/{}", uuid::Uuid::now_v7());
        let input = LoopInput::Command(CommandInput::Given {
            by: command.sender_for_operator(&current),
            command,
            comment: None,
        });
        let (loop_id, key, told, now) = (current.id.clone(), origin.clone(), input.clone(), self.clock.now());
        let left = self.store.write(move |c| loops::enqueue_input(c, &loop_id, &key, &told, now)).await;
        left.map_err(|error| CliError::failed(Failure::of(error)))?;
        let taken = tokio::time::timeout(self.reply_timeout, self.taken(&origin)).await;
        let next = self.find(id).await?;
        let Ok(taken) = taken else {
            let says = "the command is stored; the service is busy or not running and will process it later";
            self.answer(&next, false, says)?;
            return Ok(ExitCode::SUCCESS);
        };
        let outcome = taken?;
        let (known, before, given) = (next.id.clone(), current.version, input.clone());
        let line = self.read(move |c| loops::step_of_input(c, &known, before, &given)).await?;
        let reason = line.as_ref().and_then(|line| line.reasons.first());
        let reason = reason.map(|reason| one_line(reason)).unwrap_or_default();
        let refused = outcome != InputOutcome::Taken;
        let says = if let LoopInput::Command(CommandInput::Given { by, command: LoopCommand::Resume(_), .. }) = &input
            && !refused
        {
            format!("resumed by the operator, on the authority of {}", one_line(&by.login))
        } else {
            reason
        };
        self.answer(&next, true, &says)?;
        Ok(if refused { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    async fn taken(&self, origin: &str) -> Result<InputOutcome, CliError> {
        loop {
            let key = origin.to_owned();
            if let Some(outcome) = self.read(move |c| loops::outcome_of_input(c, &key)).await? {
                return Ok(outcome);
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    fn answer(&self, current: &Loop, taken: bool, says: &str) -> CliResult {
        print(&text::answer(current.id.as_str(), current.state.as_str(), taken, says, self.json))
    }

    /// Loads a loop by its id; the error for an unknown id names the nearest one.
    async fn find(&self, id: &str) -> Result<Loop, CliError> {
        let wanted = LoopId::new(id);
        if let Some(found) = self.read(move |c| loops::get(c, &wanted)).await? {
            return Ok(found);
        }
        let filter = LoopFilter::of(RepoScope::All);
        let all = self.read(move |c| listing::page(c, &filter, None, LIST_MAX)).await?.rows;
        let alike = all.iter().map(|row| (strsim::jaro_winkler(id, row.id.as_str()), &row.id));
        let nearest = alike.max_by(|a, b| a.0.total_cmp(&b.0)).filter(|(score, _)| *score > 0.6);
        let hint = match nearest {
            Some((_, nearest)) => format!("did you mean {nearest}?"),
            None => "`ralph-bot loops list --all` lists all loops".to_owned(),
        };
        Err(CliError::failed(format!("there is no loop {}; {hint}", one_line(id))))
    }

    async fn read<T, F>(&self, work: F) -> Result<T, CliError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> StoreResult<T> + Send + 'static,
    {
        self.store.read(work).await.map_err(|error| CliError::failed(Failure::of(error)))
    }
}

/// Writes the trace of a loop to a new file or to standard output.
fn export(current: &Loop, file: Option<&Path>, json: bool) -> CliResult {
    let trace = current.trace();
    let text = trace.to_lines().map_err(failed)?;
    let Some(file) = file else { return print(&text) };
    let written = std::fs::File::create_new(file).and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| {
        CliError::failed(Failure::new(format!("could not write {}", file.display())).caused_by(error))
    })?;
    let records = trace.records.len();
    if json {
        return print(&format!("{}\n", serde_json::json!({ "file": file, "records": records })));
    }
    print(&format!("exported {records} records to {}\n", file.display()))
}

fn failed(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> CliError {
    CliError::failed(Failure::of(error))
}

pub(super) fn duration(text: &str) -> Result<quantity::Duration, Failure> {
    quantity::Duration::parse(text).ok_or_else(|| Failure::new("expected a duration such as 90s, 30m or 2h"))
}

pub(super) fn iterations(text: &str) -> Result<quantity::IterationLimit, Failure> {
    let limit = quantity::IterationLimit::parse(text).filter(|limit| !limit.is_reached(0));
    limit.ok_or_else(|| Failure::new("expected a number of iterations, at least 1, or `unlimited`"))
}

pub(super) fn dollars(text: &str) -> Result<f64, Failure> {
    let amount = text.parse().ok().filter(|usd: &f64| usd.is_finite() && *usd > 0.0);
    amount.ok_or_else(|| Failure::new("expected an amount in US dollars such as 5 or 2.50"))
}
