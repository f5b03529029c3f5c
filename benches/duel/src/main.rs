//! Compares ralph-bot with other agent loops on scripted agents.
//!
//! `cargo run -p duel -- ours` runs the bot on all scenarios and compares the results with `expected.yml`. `-- peers` runs
//! the other loops, `-- page` writes `docs/research/duel.md` from both tables, and `-- rates` measures times between calls.

#![expect(clippy::disallowed_methods, reason = "the duel starts programs and reads the clock; it is no service")]

mod agent;
mod arena;
mod decider;
mod page;
mod rates;
mod referee;
mod run;
mod scenario;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Context;
use clap::{Parser, Subcommand};

use arena::Arena;
use referee::{DuelOutcome, Verdict};
use run::DuelTools;
use scenario::{Contestant, Data, Scenario, contestants, folder};

/// Rows by scenario.
pub type OutcomeTable = BTreeMap<String, DuelOutcome>;

/// Time limit of a run of the bot.
const OUR_LIMIT: Duration = Duration::from_secs(100);
/// Time limit of a run of another loop.
const PEER_LIMIT: Duration = Duration::from_secs(25);
/// Number of concurrent runs.
const WORKERS: usize = 2;

/// Runs agent loops on scripted agents.
#[derive(Debug, Parser)]
struct DuelArguments {
    #[command(subcommand)]
    command: DuelCommand,
    /// Program of the bot [default: ralph-bot beside this program]
    #[arg(long, global = true, value_name = "FILE")]
    bot: Option<PathBuf>,
    /// Only scenarios whose name contains one of these texts
    #[arg(long, global = true, value_name = "TEXT")]
    only: Vec<String>,
    /// Print the output of each run
    #[arg(long, global = true)]
    show: bool,
}

#[derive(Debug, Subcommand)]
enum DuelCommand {
    /// Runs the bot, and fails where it is worse than published
    Ours {
        /// Replace the published table
        #[arg(long)]
        write: bool,
    },
    /// Runs other loops and writes their tables
    Peers {
        /// Only contestants whose names contain one of these texts
        names: Vec<String>,
        /// Only scenarios that are not in their tables
        #[arg(long)]
        missing: bool,
    },
    /// Writes docs/research/duel.md from the tables
    Page,
    /// Measures the time between two calls of an idle agent, compared with a bare loop
    Rates,
}

fn main() -> ExitCode {
    let is_agent =
        std::env::args_os().next().is_some_and(|name| Path::new(&name).file_name() == Some(agent::NAME.as_ref()));
    if is_agent {
        return agent::main();
    }
    match duel(&DuelArguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a command; returns whether all results are at least as good as published.
fn duel(arguments: &DuelArguments) -> anyhow::Result<bool> {
    let data = Data::load()?;
    match &arguments.command {
        DuelCommand::Ours { write } => {
            let tools = DuelTools::find(arguments.bot.clone())?;
            let [ours] = &contestants("ours.yml")?[..] else { anyhow::bail!("ours.yml has one contestant") };
            let mut table = run_all(ours, &data, &tools, (OUR_LIMIT, &|_| false), arguments)?;
            let file = folder().join("expected.yml");
            let published = read_table(&file)?;
            let mut complaints = compare(&table, &published);
            if *write {
                write_table(
                    &file,
                    &merged(table, published),
                    "The bot's outcomes; `known` is the reason of a known failure.",
                )?;
                return Ok(true);
            }
            // On a busy machine, a run may need one more call. Damage and false completions get no second chance.
            for (name, complaint) in std::mem::take(&mut complaints) {
                let outcome = &table[&name];
                let scenario = data.scenarios.iter().find(|scenario| scenario.name == name);
                if let (Some(scenario), true) = (scenario, outcome.is_harmless() && published.contains_key(&name)) {
                    println!("again, because it was worse than published: {name}: {complaint}");
                    table.insert(name, run_one(ours, scenario, &data, &tools, OUR_LIMIT, arguments.show)?);
                }
            }
            complaints = compare(&table, &published);
            for (name, complaint) in &complaints {
                println!("worse than published: {name}: {complaint}");
            }
            println!("{} scenarios, {} worse than published", table.len(), complaints.len());
            Ok(complaints.is_empty())
        }
        DuelCommand::Peers { names, missing } => {
            let tools = DuelTools::find(arguments.bot.clone())?;
            let asked = |name: &str| names.is_empty() || names.iter().any(|text| name.contains(text.as_str()));
            for peer in contestants("peers.yml")?.iter().filter(|peer| asked(&peer.name) && peer.unavailable.is_none())
            {
                let file = folder().join("peers").join(format!("{}.yml", peer.name));
                let before = read_table(&file)?;
                let known = |scenario: &Scenario| *missing && before.contains_key(&scenario.name);
                let table = run_all(peer, &data, &tools, (PEER_LIMIT, &known), arguments)?;
                write_table(&file, &merged(table, before), &format!("Outcomes of {}.", peer.package))?;
            }
            Ok(true)
        }
        DuelCommand::Page => {
            fs::write(page::file(), page::page(&data)?)?;
            Ok(true)
        }
        DuelCommand::Rates => {
            rates::measure(&DuelTools::find(arguments.bot.clone())?)?;
            Ok(true)
        }
    }
}

/// Runs a contestant on all scenarios except those for which `known` returns `true`, a few at a time.
fn run_all(
    contestant: &Contestant,
    data: &Data,
    tools: &DuelTools,
    (limit, known): (Duration, &dyn Fn(&Scenario) -> bool),
    arguments: &DuelArguments,
) -> anyhow::Result<OutcomeTable> {
    let only = &arguments.only;
    let named = |scenario: &Scenario| only.is_empty() || only.iter().any(|text| scenario.name.contains(text.as_str()));
    let asked = |scenario: &&Scenario| named(scenario) && !known(scenario);
    let mut scenarios: Vec<&Scenario> = data.scenarios.iter().filter(asked).collect();
    let mut skipped = Vec::new();
    scenarios.retain(|scenario| match tools.missing(&data.repositories[&scenario.repository].needs) {
        None => true,
        Some(part) => {
            skipped.push(format!("{} needs {} ({})", scenario.name, part.program, part.package));
            false
        }
    });
    for text in &skipped {
        println!("skipped: {text}");
    }
    // Like tests, whose parts must be installed in CI.
    let is_ci = std::env::var_os("CI").is_some_and(|value| !value.is_empty());
    anyhow::ensure!(skipped.is_empty() || !is_ci, "parts are missing for {} scenarios", skipped.len());
    let next = AtomicUsize::new(0);
    let table = Mutex::new(OutcomeTable::new());
    let work = || -> anyhow::Result<()> {
        while let Some(scenario) = scenarios.get(next.fetch_add(1, Ordering::Relaxed)) {
            let outcome = run_one(contestant, scenario, data, tools, limit, arguments.show);
            let outcome = outcome.with_context(|| format!("{} on {}", contestant.name, scenario.name))?;
            let mark = if outcome.is_best(scenario.best) { ' ' } else { '*' };
            let harm = if outcome.harm.is_empty() { String::new() } else { format!(" {:?}", outcome.harm) };
            println!(
                "{mark} {:<24} {:<32} {:<15} {:>2} calls {:>5.1} s{harm}",
                contestant.name,
                scenario.name,
                format!("{:?}", outcome.verdict),
                outcome.calls,
                outcome.seconds
            );
            table.lock().expect("no panic in another worker").insert(scenario.name.clone(), outcome);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("a worker does not panic"))
    })?;
    Ok(table.into_inner()?)
}

/// Runs a contestant on a scenario and judges the result.
fn run_one(
    contestant: &Contestant,
    scenario: &Scenario,
    data: &Data,
    tools: &DuelTools,
    limit: Duration,
    show: bool,
) -> anyhow::Result<DuelOutcome> {
    let repository = &data.repositories[&scenario.repository];
    let arena = Arena::new(scenario, repository, &contestant.claim)?;
    let ended = run::run(contestant, scenario, repository, &arena, tools, limit)?;
    let logs = folder().join("../../target/duel").join(&contestant.name);
    fs::create_dir_all(&logs)?;
    fs::write(logs.join(format!("{}.log", scenario.name)), &ended.output)?;
    if show {
        println!("{}", ended.output);
    }
    referee::judge(contestant, repository, &arena, tools, &ended)
}

/// Reads a table; empty if it does not exist.
fn read_table(file: &Path) -> anyhow::Result<OutcomeTable> {
    if file.exists() { scenario::read(file) } else { Ok(OutcomeTable::new()) }
}

/// Writes a table, one scenario per line.
fn write_table(file: &Path, table: &OutcomeTable, about: &str) -> anyhow::Result<()> {
    let mut text = format!("# Written by the duel. {about}\n");
    for (name, outcome) in table {
        text.push_str(&format!("{name}: {}\n", serde_json::to_string(outcome)?));
    }
    fs::write(file, text).with_context(|| format!("could not write {}", file.display()))
}

/// Returns the old rows replaced with the new ones; keeps the reason for a known failure if the scenario still fails.
fn merged(new: OutcomeTable, mut old: OutcomeTable) -> OutcomeTable {
    for (name, mut outcome) in new {
        let before = old.get(&name).filter(|before| before.verdict == outcome.verdict && before.harm == outcome.harm);
        outcome.known = before.and_then(|before| before.known.clone());
        old.insert(name, outcome);
    }
    old
}

/// Returns a message for each row that is worse than its published row.
fn compare(measured: &OutcomeTable, published: &OutcomeTable) -> Vec<(String, String)> {
    let mut complaints = Vec::new();
    for (name, outcome) in measured {
        let mut complain = |text: String| complaints.push((name.clone(), text));
        let Some(before) = published.get(name) else {
            complain("not published".into());
            continue;
        };
        let known = before.known.is_some();
        if outcome.verdict == Verdict::FalseCompletion && !known {
            complain("false completion".into());
        } else if badness(outcome.verdict) > badness(before.verdict) {
            complain(format!("{:?}, published is {:?}", outcome.verdict, before.verdict));
        }
        if outcome.calls > before.calls {
            complain(format!("{} calls, published are {}", outcome.calls, before.calls));
        }
        for harm in outcome.harm.iter().filter(|harm| !(known && before.harm.contains(harm))) {
            complain(format!("{harm:?}"));
        }
    }
    complaints
}

/// Returns a verdict's order, from 0 for the best.
fn badness(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::Done => 0,
        Verdict::Stopped | Verdict::Unclaimed => 1,
        Verdict::Endless => 2,
        Verdict::FalseCompletion => 3,
    }
}

#[cfg(test)]
mod tests;
