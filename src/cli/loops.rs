//! `ralph-bot loops`: lists and controls loops from the shell.

#[cfg(test)]
mod tests;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::{CliError, CliResult, Global, block_on, database, load, moment, one_line, print, table};
use crate::clock::Clock;
use crate::config::{Config, ConfigScope, Env};
use crate::domain::knowledge::intelligence::ClaimSums;
use crate::domain::loops::command::{self, LoopCommand};
use crate::domain::loops::{Loop, LoopInput, RunOptions};
use crate::domain::model::ids::{LoopId, Money, Timestamp};
use crate::domain::model::quantity;
use crate::domain::providers::backends::BackendRole;
use crate::domain::report::control_words;
use crate::domain::supervision::oversight::{AuditEntry, InterventionLevel, OversightReport, report};
use crate::store::{Store, StoreResult, audit, calls, loops, outbox, session};

/// Time to wait for the loop to process a command.
const REPLY_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval between two polls.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum number of listed loops.
const LIST_MAX: usize = 1000;
/// Maximum length of a reason in the table, in characters.
const REASON_MAX: usize = 60;

/// Arguments of `loops`; the default is `list`.
#[derive(Debug, Clone, Args)]
pub struct LoopsArgs {
    /// Subcommand.
    #[command(subcommand)]
    pub command: Option<LoopsCommand>,
}

/// Subcommands of `loops`.
#[derive(Debug, Clone, Subcommand)]
pub enum LoopsCommand {
    /// List open loops
    List(ListArgs),
    /// Show one loop
    Show(ShowLoopArgs),
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
    /// New maximum number of iterations
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_iterations: Option<u32>,
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
    let config = load(ConfigScope::Store, global, env)?;
    block_on(async {
        let store = Store::attach(&database(&config)).map_err(|error| CliError::Failed(error.to_string()))?;
        let outcome = LoopsShell::on(&store, &config, global).run(args).await;
        store.close().await;
        outcome
    })
}

/// Names of the backends that run agents.
fn agents(config: &Config) -> Vec<String> {
    let runs = config.backends.iter().filter(|(_, backend)| backend.settings.roles.contains(&BackendRole::Agent));
    runs.map(|(name, _)| name.clone()).collect()
}

/// Removes control characters from foreign text, for terminals; keeps line breaks and tabs.
fn printable(text: &str) -> String {
    text.chars().filter(|c| *c == '\n' || *c == '\t' || !c.is_control()).collect()
}

/// Formats the calls of a loop and their costs; empty if there are none.
fn calls_table(booked: &[calls::CallRecord]) -> String {
    let mut text = String::new();
    for call in booked {
        let model = call.model.as_ref().map_or_else(String::new, |model| format!(" ({model})"));
        let about = if call.estimated { "about " } else { "" };
        let (at, outcome) = (moment(call.started_at), call.outcome.as_deref().unwrap_or("in progress"));
        text.push_str(&format!(
            "  {at} {:>4} {} by {}{model}: {outcome}, {about}{}, {} tokens\n",
            call.iteration,
            call.purpose,
            call.backend,
            call.cost,
            call.usage.total(),
        ));
    }
    if text.is_empty() { text } else { format!("\nCalls:\n{text}") }
}

/// Loads a loop by its id.
pub(super) fn stored(id: &str, global: &Global, env: &Env) -> Result<Loop, CliError> {
    let config = load(ConfigScope::Store, global, env)?;
    let mut found = None;
    block_on(async {
        let store = Store::attach(&database(&config)).map_err(|error| CliError::Failed(error.to_string()))?;
        let outcome = LoopsShell::on(&store, &config, global).find(id).await;
        store.close().await;
        found = Some(outcome?);
        Ok(ExitCode::SUCCESS)
    })?;
    found.ok_or_else(|| CliError::Failed(format!("there is no loop {}", one_line(id))))
}

/// Command on an open database.
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
            options.set(name, value).map_err(CliError::Usage)?;
        }
        if let Some(name) = options.backend.as_ref().filter(|name| !self.agents.contains(name)) {
            let there = self.agents.join(", ");
            return Err(CliError::Usage(format!("there is no backend {}; available: {there}", one_line(name))));
        }
        Ok(options)
    }

    async fn list(&self, all: bool) -> CliResult {
        let loops = self.read(move |c| loops::list(c, !all, LIST_MAX)).await?;
        let now = self.clock.now();
        if self.json {
            return print(&loops.iter().map(|l| format!("{}\n", summary(l, now))).collect::<String>());
        }
        if loops.is_empty() {
            return print(if all { "no loops\n" } else { "no open loops; --all includes loops that ended\n" });
        }
        let header = ["LOOP", "STATE", "ISSUE", "ITERATION", "DONE", "COST", "AGE", "REASON"].map(str::to_owned);
        let rows = std::iter::once(header).chain(loops.iter().map(|l| row(l, now)));
        print(&table(&rows.collect::<Vec<_>>()))
    }

    /// Prints the prompts of an iteration.
    async fn prompts(&self, current: &Loop, iteration: u32) -> CliResult {
        let id = current.id.clone();
        let turns = self.read(move |c| session::turns(c, &id, iteration..=iteration)).await?;
        if turns.is_empty() {
            let last = current.spent.iterations;
            return Err(CliError::Failed(format!(
                "no prompt of iteration {iteration} is stored; the loop is at iteration {last}, and old prompts are deleted"
            )));
        }
        if self.json {
            return print(&format!("{}\n", serde_json::to_value(&turns).map_err(failed)?));
        }
        let told = turns.iter().map(|turn| {
            let model = turn.model.as_ref().map_or_else(String::new, |model| format!(" ({model})"));
            let head = format!("{} of {}{model}, attempt {}", turn.role.as_str(), turn.backend, turn.attempt);
            format!("{head}, {}\n\n{}\n", moment(turn.started), printable(&turn.prompt))
        });
        print(&told.collect::<Vec<_>>().join("\n"))
    }

    async fn show(&self, args: &ShowLoopArgs) -> CliResult {
        let audit = args.audit;
        let current = self.find(&args.id).await?;
        if let Some(iteration) = args.prompt {
            return self.prompts(&current, iteration).await;
        }
        let now = self.clock.now();
        let (known, subject) = (current.id.clone(), current.id.to_string());
        let log = self.read(move |c| {
            Ok((loops::history(c, &known)?, outbox::of_subject(c, &subject)?, audit::trail(c, &known)?))
        });
        let log = log.await?;
        let id = current.id.clone();
        let booked = self.read(move |c| calls::of_loop(c, &id)).await?;
        let reports = if args.report { self.reports(&current).await? } else { Vec::new() };
        if self.json {
            let mut value = summary(&current, now);
            if let Some(map) = value.as_object_mut() {
                map.insert("loop".into(), serde_json::to_value(&current).map_err(failed)?);
                map.insert("calls".into(), serde_json::to_value(&booked).map_err(failed)?);
                if args.report {
                    let reports: serde_json::Map<_, _> = reports
                        .iter()
                        .map(|(of, report, claims)| {
                            let mut value = serde_json::to_value(report)?;
                            value["claims"] = serde_json::to_value(claims)?;
                            Ok((of.clone(), value))
                        })
                        .collect::<Result<_, serde_json::Error>>()
                        .map_err(failed)?;
                    map.insert("report".into(), reports.into());
                }
                if audit {
                    map.insert("audit".into(), serde_json::to_value(&log.2).map_err(failed)?);
                    map.insert("events".into(), serde_json::to_value(&log.0).map_err(failed)?);
                    map.insert("effects".into(), serde_json::to_value(&log.1).map_err(failed)?);
                }
            }
            return print(&format!("{value}\n"));
        }
        let mut text = details(&current, now);
        text.push_str(&calls_table(&booked));
        for (of, report, claims) in &reports {
            text.push_str(&format!("\n{of}\n{report}"));
            text.extend(claims.words().map(|words| words + "\n"));
        }
        if audit {
            text.push_str("\nDecisions:\n");
            for line in &log.2 {
                let AuditEntry { iteration, level, reason, .. } = &line.entry;
                let level = level.map_or("-", InterventionLevel::name);
                text.push_str(&format!("  {} {iteration:>4} {level:<8} {}\n", moment(line.at), one_line(reason)));
            }
            text.push_str("\nEvents:\n");
            for line in &log.0 {
                let reasons = one_line(&line.reasons.join("; "));
                text.push_str(&format!(
                    "  {} {:>4} {}: {reasons}\n",
                    moment(line.at),
                    line.seq,
                    input_name(&line.input)
                ));
            }
            text.push_str("\nEffects:\n");
            for effect in &log.1 {
                let receipt = one_line(effect.receipt.as_deref().unwrap_or("-"));
                let tries = if effect.attempts > 1 { format!(" ({} tries)", effect.attempts) } else { String::new() };
                let (at, key, state) = (moment(effect.created_at), &effect.key, &effect.state);
                text.push_str(&format!("  {at} {key}: {state}{tries}: {receipt}\n"));
            }
        }
        print(&text)
    }

    /// Summarises oversight and the accuracy of agents' claims for the loop, its repository, and all loops.
    async fn reports(&self, current: &Loop) -> Result<Vec<(String, OversightReport, ClaimSums)>, CliError> {
        let all = self.read(|c| loops::list(c, false, usize::MAX >> 1)).await?;
        let sum = |of: String, belongs: &dyn Fn(&Loop) -> bool| {
            let loops = || all.iter().filter(|l| belongs(l));
            let states = loops().filter_map(|l| l.supervision.as_ref());
            let sum = states.fold(OversightReport::default(), |sum, known| sum.plus(&report(&known.overseer)));
            (of, sum, loops().map(ClaimSums::of).fold(ClaimSums::default(), ClaimSums::plus))
        };
        let repo = &current.place.repo;
        let of_repository = |l: &Loop| l.place.repo.id == repo.id && l.place.repo.forge == repo.forge;
        Ok(vec![
            sum(format!("Loop {}", current.id), &|l| l.id == current.id),
            sum(format!("Repository {}", repo.full_name()), &of_repository),
            sum(format!("All {} loops", all.len()), &|_| true),
        ])
    }

    /// Enqueues a command for a loop and waits briefly for its reply.
    async fn steer(&self, id: &str, command: LoopCommand) -> CliResult {
        let current = self.find(id).await?;
        if !current.state.is_open() {
            let state = current.state.as_str();
            return Err(CliError::Failed(format!("{id} is {state}; set the label again to start a new loop")));
        }
        let origin = format!("cli/{}", uuid::Uuid::now_v7());
        let input = LoopInput::Command { by: command.sender_for_operator(&current), command, comment: None };
        let (loop_id, key, told, now) = (current.id.clone(), origin.clone(), input.clone(), self.clock.now());
        let left = self.store.write(move |c| loops::enqueue_input(c, &loop_id, &key, &told, now)).await;
        left.map_err(|error| CliError::Failed(error.to_string()))?;
        let taken = tokio::time::timeout(self.reply_timeout, self.taken(&origin)).await;
        let next = self.find(id).await?;
        let Ok(taken) = taken else {
            let says = "the command is stored; the service is busy or not running and will process it later";
            self.answer(&next, false, says)?;
            return Ok(ExitCode::SUCCESS);
        };
        taken?;
        let (known, before, given) = (next.id.clone(), current.version, input.clone());
        let line = self.read(move |c| loops::step_of_input(c, &known, before, &given)).await?;
        let reason = line.as_ref().and_then(|line| line.reasons.first());
        let reason = reason.map(|reason| one_line(reason)).unwrap_or_default();
        let refused = input.was_refused(&reason);
        let says = match &input {
            LoopInput::Command { by, command: LoopCommand::Resume(_), .. } if !refused => {
                format!("resumed by the operator, on the authority of {}", one_line(&by.login))
            }
            _ => reason,
        };
        self.answer(&next, true, &says)?;
        Ok(if refused { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    async fn taken(&self, origin: &str) -> Result<(), CliError> {
        loop {
            let key = origin.to_owned();
            if self.read(move |c| loops::is_input_processed(c, &key)).await? {
                return Ok(());
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    fn answer(&self, current: &Loop, taken: bool, says: &str) -> CliResult {
        let (id, state) = (&current.id, current.state.as_str());
        if self.json {
            let line = serde_json::json!({ "id": id, "state": state, "taken": taken, "says": says });
            return print(&format!("{line}\n"));
        }
        print(&format!("{id} is {state}: {says}\n"))
    }

    /// Loads a loop by its id; the error for an unknown id names the nearest one.
    async fn find(&self, id: &str) -> Result<Loop, CliError> {
        let wanted = LoopId::new(id);
        if let Some(found) = self.read(move |c| loops::get(c, &wanted)).await? {
            return Ok(found);
        }
        let all = self.read(|c| loops::list(c, false, LIST_MAX)).await?;
        let alike = all.iter().map(|l| (strsim::jaro_winkler(id, l.id.as_str()), &l.id));
        let nearest = alike.max_by(|a, b| a.0.total_cmp(&b.0)).filter(|(score, _)| *score > 0.6);
        let hint = match nearest {
            Some((_, nearest)) => format!("did you mean {nearest}?"),
            None => "`ralph-bot loops list --all` lists all loops".to_owned(),
        };
        Err(CliError::Failed(format!("there is no loop {}; {hint}", one_line(id))))
    }

    async fn read<T, F>(&self, work: F) -> Result<T, CliError>
    where
        T: Send + 'static,
        F: FnOnce(&rusqlite::Connection) -> StoreResult<T> + Send + 'static,
    {
        self.store.read(work).await.map_err(|error| CliError::Failed(error.to_string()))
    }
}

fn failed(error: impl std::fmt::Display) -> CliError {
    CliError::Failed(error.to_string())
}

/// Formats a loop as JSON.
fn summary(current: &Loop, now: Timestamp) -> serde_json::Value {
    serde_json::json!({
        "id": current.id,
        "state": current.state,
        "repository": current.place.repo.to_string(),
        "issue": current.place.issue,
        "title": current.task.title,
        "iteration": current.spent.iterations,
        "max_iterations": current.limits.iterations,
        "completion": current.completion(),
        "cost_usd": current.spent.cost.usd(),
        "age_s": now.since(current.created_at) / 1000,
        "branch": current.branch,
        "pull": current.pull.as_ref().map(|pull| &pull.url),
        "why": current.why,
    })
}

fn row(current: &Loop, now: Timestamp) -> [String; 8] {
    let why = one_line(&current.why);
    let cut = if why.chars().count() > REASON_MAX {
        format!("{}…", why.chars().take(REASON_MAX).collect::<String>())
    } else {
        why
    };
    [
        current.id.to_string(),
        current.state.as_str().to_owned(),
        one_line(&format!("{}#{}", current.place.repo, current.place.issue)),
        format!("{}/{}", current.spent.iterations, current.limits.iterations),
        format!("{}%", current.completion().whole_percent()),
        current.spent.cost.to_string(),
        age(now.since(current.created_at)),
        cut,
    ]
}

/// Formats a time span in its largest unit.
fn age(ms: i64) -> String {
    let seconds = ms / 1000;
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// Name of an input in the log.
fn input_name(input: &LoopInput) -> String {
    let value = serde_json::to_value(input).unwrap_or_default();
    let word = |key: &str| value.get(key).and_then(serde_json::Value::as_str).map(str::to_owned);
    let inner = value.get("command").and_then(|c| c.get("command")).and_then(serde_json::Value::as_str);
    let name = word("input").unwrap_or_else(|| "input".into());
    inner.map_or(name.clone(), |command| format!("{name} {command}"))
}

fn details(current: &Loop, now: Timestamp) -> String {
    let mut text = String::new();
    let mut say = |name: &str, value: &str| text.push_str(&format!("{name:11} {}\n", one_line(value)));
    say("loop", current.id.as_str());
    say("state", current.state.as_str());
    say("reason", &current.why);
    say("issue", &format!("{}#{} {}", current.place.repo, current.place.issue, current.task.title));
    say("page", &current.task.url);
    let (least, most) = current.usual_iterations();
    let (at, limit) = (current.spent.iterations, current.limits.iterations);
    say("iteration", &format!("{at} of {limit} (typical for {}: {least} to {most})", current.task_type().as_str()));
    if let Some(judged) = current.judged() {
        say("health", judged.health.word());
        say("alarms", &control_words::raised(current.retained_iterations().filter_map(|i| i.judged.as_ref())));
    }
    say("completion", &format!("{}%", current.completion().whole_percent()));
    say("cost", &format!("{} of {}", current.spent.cost, current.limits.cost));
    say("time", &format!("{} of {}", age(current.spent.time_at(now)), age(current.limits.time_ms)));
    say("branch", &format!("{} from {}", current.branch, current.base_branch));
    say("pull", current.pull.as_ref().map_or("none", |pull| pull.url.as_str()));
    say("authority", &current.authority.login);
    say("sandbox", &current.sandbox);
    if let Some(words) = ClaimSums::of(current).words() {
        say("claims", &words);
    }
    text.push_str("\nChecks:\n");
    let latest = current.latest_checks();
    for check in &current.checks {
        let outcome = latest.and_then(|report| report.outcomes.iter().find(|o| o.name == check.name));
        let word = match outcome {
            Some(outcome) if outcome.holds => "passed".to_owned(),
            Some(outcome) => format!("failed: {}", outcome.why),
            None => "not run yet".to_owned(),
        };
        text.push_str(&format!("  {}: {}\n", one_line(&check.command), one_line(&word)));
    }
    text.push_str("\nIterations:\n");
    for i in &current.iterations {
        let (checks, held) = (i.checks.outcomes.len(), i.checks.held());
        let (added, removed) = i.stat.lines();
        let said = if i.report.summary.is_empty() { &i.agent_problem } else { &i.report.summary };
        let thrown = if i.discarded { " (discarded)" } else { "" };
        let commit = i.commit.as_ref().map_or("no commit", |sha| sha.short());
        text.push_str(&format!(
            "  {}{thrown}: {held} of {checks} checks, +{added} -{removed} in {} files, {commit}, {}, {}: {}\n",
            i.number,
            i.stat.files.len(),
            i.cost,
            age(i64::try_from(i.agent_ms).unwrap_or(i64::MAX)),
            one_line(said),
        ));
        let judgement = i.judged.iter().flat_map(control_words::lines);
        text.extend(judgement.map(|line| format!("     {}\n", one_line(&line))));
    }
    text
}

pub(super) fn duration(text: &str) -> Result<quantity::Duration, String> {
    quantity::Duration::parse(text).ok_or_else(|| "expected a duration such as 90s, 30m or 2h".to_owned())
}

pub(super) fn dollars(text: &str) -> Result<f64, String> {
    let amount = text.parse().ok().filter(|usd: &f64| usd.is_finite() && *usd > 0.0);
    amount.ok_or_else(|| "expected an amount in US dollars such as 5 or 2.50".to_owned())
}
