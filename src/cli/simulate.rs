//! `ralph-bot simulate`: what supervision and each part of it are worth, and what memory is, over seeded agents.

mod memory;
mod page;
#[cfg(test)]
mod tests;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anstyle::Style;
use clap::Args;
use serde::Serialize;

use super::replay::settings;
use super::{CliError, CliResult, Global, print};
use crate::config::Env;
use crate::domain::simulate::{
    Change, Figure, Figures, HELD_OUT, Mix, Played, Policy, TUNED_ON, changes, contenders, figures, lost, play_all,
};
use crate::domain::supervision::SupervisionSettings;

/// Tasks of a mix where nobody says how many.
const TASKS: u64 = 1000;
/// Largest number of tasks.
const TASKS_MAX: u64 = 100_000;
/// Largest file of a mix, bytes.
const MIX_MAX: u64 = 1 << 20;
/// Name of the policy that parts are taken from.
const OURS: &str = "ours";

/// Arguments of `simulate`.
#[derive(Debug, Clone, Args)]
pub struct SimulateArgs {
    /// Tasks of each mix; 1000 where left out, 500 with --memory
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=TASKS_MAX))]
    pub tasks: Option<u64>,
    /// What luck begins with; the same seed gives the same figures
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// A mix that is built in (everyday, rough, bleak, gentle, hopeless, shifty, drawn-N), or a YAML file; all that
    /// thresholds were not tuned on, where it is left out
    #[arg(long, value_name = "FILE|NAME")]
    pub mix: Vec<String>,
    /// Find out what memory is worth instead: none, some, and some with wrong learnings in it, over ten seeds from --seed
    /// on
    #[arg(long, conflicts_with_all = ["mix", "brief"])]
    pub memory: bool,
    /// Leave out what each part is worth
    #[arg(long)]
    pub brief: bool,
    /// Write a page about it
    #[arg(long, value_name = "FILE", conflicts_with = "brief")]
    pub markdown: Option<PathBuf>,
}

impl SimulateArgs {
    /// Tasks to be played.
    fn count(&self) -> u64 {
        self.tasks.unwrap_or(if self.memory { memory::TASKS } else { TASKS })
    }
}

/// What policies come to over a mix.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Outcome {
    /// The mix's name.
    mix: String,
    /// Tasks played.
    tasks: u64,
    /// The policies that are compared.
    policies: Vec<Figures>,
    /// Ours without each part, or with it where it is off.
    parts: Vec<Part>,
}

/// Ours without a part, or with it.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Part {
    /// What it comes to.
    #[serde(flatten)]
    figures: Figures,
    /// What a task is worth more with the part than without it, in usual iterations.
    brings: Figure,
}

/// Simulates, and prints the figures.
///
/// # Errors
/// When a mix or the settings are wrong, or the output cannot be written.
pub fn run(args: &SimulateArgs, global: &Global, env: &Env) -> CliResult {
    if args.memory {
        return memory::run(args, global);
    }
    let settings = settings(global.config.as_deref(), env)?;
    let named: Vec<String> = match args.mix.as_slice() {
        [] => HELD_OUT.iter().map(|name| (*name).to_owned()).collect(),
        named => named.to_vec(),
    };
    let mixes: Result<Vec<Mix>, CliError> = named.iter().map(|named| mix(named)).collect();
    let play = |mix: &Mix| outcome(mix, &settings, args.seed, args.count(), !args.brief);
    let outcomes: Vec<Outcome> = mixes?.iter().map(play).collect();
    let mut text = String::new();
    for outcome in &outcomes {
        if global.json {
            text.push_str(&serde_json::to_string(outcome).map_err(|error| CliError::Failed(error.to_string()))?);
            text.push('\n');
        } else {
            table(&mut text, outcome);
        }
    }
    print(&text)?;
    if let Some(file) = &args.markdown {
        write(file, &page::markdown(args, &outcomes, &settings))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn write(file: &Path, page: &str) -> Result<(), CliError> {
    std::fs::write(file, page)
        .map_err(|error| CliError::Failed(format!("{} cannot be written: {error}", file.display())))
}

/// A mix by its name, or from a file; what the file leaves out is as in `everyday`.
fn mix(named: &str) -> Result<Mix, CliError> {
    if let Some(mix) = Mix::named(named) {
        return Ok(mix);
    }
    let wrong = |what: String| CliError::Usage(format!("{named}: {what}"));
    let path = Path::new(named);
    let Ok(metadata) = std::fs::metadata(path) else {
        let known = TUNED_ON.iter().chain(&HELD_OUT).copied().collect::<Vec<_>>().join(", ");
        return Err(wrong(format!("this is neither a file nor one of the mixes {known}")));
    };
    if metadata.len() > MIX_MAX {
        return Err(wrong(format!("{} bytes are too many", metadata.len())));
    }
    let text = std::fs::read_to_string(path).map_err(|error| wrong(format!("not readable: {error}")))?;
    let mix: Mix = serde_saphyr::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    match mix.faults() {
        faults if faults.is_empty() => Ok(mix),
        faults => Err(wrong(faults.join("; "))),
    }
}

/// Plays all policies over a mix.
pub(super) fn outcome(mix: &Mix, settings: &SupervisionSettings, seed: u64, tasks: u64, parts: bool) -> Outcome {
    let play = |policy: &Policy| play_all(mix, policy, seed, tasks);
    let (ten, oracle) = (play(&Policy::Fixed(10)), play(&Policy::Oracle));
    let all = contenders(settings).into_iter().map(|(name, policy)| (name, play(&policy)));
    let all: Vec<(String, Vec<Played>)> = all.collect();
    let ours = all.iter().find(|(name, _)| name == OURS).map_or(&[][..], |(_, played)| played);
    let part = |Change { name, policy, against, added }: &Change| {
        let played = play(policy);
        let against = against.as_ref().map(play);
        let against = against.as_deref().unwrap_or(ours);
        let (with, without) = if *added { (&played[..], against) } else { (against, &played[..]) };
        Part { figures: figures(name, &played, &ten, &oracle, mix), brings: lost(with, without, mix) }
    };
    Outcome {
        mix: mix.name.clone(),
        tasks,
        policies: all.iter().map(|(name, played)| figures(name, played, &ten, &oracle, mix)).collect(),
        parts: if parts { changes(settings).iter().map(part).collect() } else { Vec::new() },
    }
}

fn table(text: &mut String, outcome: &Outcome) {
    let bold = Style::new().bold();
    let _ = writeln!(
        text,
        "{bold}{} ({} tasks){bold:#}\n{:<31} {:>14} {:>14} {:>14} {:>12} {:>12} {:>12} {:>14} {:>12} {:>18}",
        outcome.mix,
        outcome.tasks,
        "",
        "done",
        "falsely done",
        "worth",
        "iter. a done",
        "cost a done",
        "hopeless",
        "disturbed",
        "asked",
        "gap closed",
    );
    let parts = outcome.parts.iter().map(|part| (format!("  {}", part.figures.policy), &part.figures));
    let policies = outcome.policies.iter().map(|figures| (figures.policy.clone(), figures));
    for (name, figures) in policies.chain(parts) {
        let _ = writeln!(
            text,
            "{name:<31} {:>14} {:>14} {:>14} {:>12} {:>12} {:>12} {:>14} {:>12} {:>18}",
            percent(figures.done),
            percent(figures.false_done),
            about(figures.worth, 2),
            about(figures.iterations_each, 1),
            about(figures.cost_each, 1),
            about(figures.hopeless, 1),
            percent(figures.disturbed),
            about(figures.asked, 2),
            interval(figures.gap),
        );
    }
    text.push('\n');
}

/// A figure with half the width of its interval.
fn about(figure: Figure, decimals: usize) -> String {
    format!("{:.decimals$} ± {:.decimals$}", figure.value, (figure.high - figure.low) / 2.0)
}

/// A share in percent, with half the width of its interval.
fn percent(figure: Figure) -> String {
    let Figure { value, low, high } = figure;
    format!("{} %", about(Figure { value: value * 100.0, low: low * 100.0, high: high * 100.0 }, 1))
}

/// A share in percent with the ends of its interval.
fn interval(figure: Figure) -> String {
    format!("{:.0} % ({:.0} to {:.0})", figure.value * 100.0, figure.low * 100.0, figure.high * 100.0)
}
