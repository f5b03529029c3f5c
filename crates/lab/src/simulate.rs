//! `lab simulate`: measures the value of supervision and of each of its parts with simulated agents.

mod page;
#[cfg(test)]
mod tests;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anstyle::Style;
use anyhow::{Context as _, bail};
use clap::Args;
use ralph_bot::cli::replay;
use ralph_bot::config::Env;
use ralph_bot::domain::supervision::SupervisionSettings;
use serde::Serialize;

use crate::tasks::{
    HELD_OUT, IntervalEstimate, Mix, PartVariant, PolicyFigures, TUNED_ON, TaskPolicy, TaskResult, contenders,
    part_variants, play_all, policy_figures, worth_difference,
};
use crate::{print, write_page};

/// Maximum number of tasks per mix.
const TASKS_MAX: u64 = 100_000;
/// Maximum size of a mix file, in bytes.
const MIX_MAX: u64 = 1 << 20;
/// Name of the policy whose parts are measured.
const OURS: &str = "ours";

/// Arguments of `lab simulate`.
#[derive(Debug, Clone, Args)]
pub struct SimulateArgs {
    /// Tasks of each mix
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=TASKS_MAX))]
    pub tasks: u64,
    /// Seed of the random numbers; the same seed gives the same figures
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Built-in mix (everyday, rough, bleak, gentle, hopeless, shifty, drawn-N) or YAML file [default: all mixes that
    /// thresholds were not tuned on]
    #[arg(long, value_name = "FILE|NAME")]
    pub mix: Vec<String>,
    /// Omit the value of each part
    #[arg(long)]
    pub brief: bool,
    /// Write the page docs/research/simulation.md to this file
    #[arg(long, value_name = "FILE", conflicts_with = "brief")]
    pub markdown: Option<PathBuf>,
    /// Configuration file with the settings of supervision [default: RALPH_CONFIG, else ralph-control.yaml, else the
    /// defaults]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Results of all policies over a mix.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct MixFigures {
    /// Name of the mix.
    mix: String,
    /// Number of tasks.
    tasks: u64,
    /// Compared policies.
    policies: Vec<PolicyFigures>,
    /// Pipeline with one part removed, or added if it is disabled by default.
    parts: Vec<PartFigures>,
}

/// Results of the pipeline with one part removed or added.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct PartFigures {
    #[serde(flatten)]
    figures: PolicyFigures,
    /// Increase of the value per task caused by the part, in usual iterations.
    brings: IntervalEstimate,
}

/// Runs the simulation and prints its figures.
///
/// # Errors
/// A mix or the settings are invalid, or the output cannot be written.
pub fn run(args: &SimulateArgs, env: &Env) -> anyhow::Result<()> {
    let settings = replay::settings(args.config.as_deref(), env)?;
    let names: Vec<String> = match args.mix.as_slice() {
        [] => HELD_OUT.iter().map(|name| (*name).to_owned()).collect(),
        names => names.to_vec(),
    };
    let mixes = names.iter().map(|name| load_mix(name)).collect::<anyhow::Result<Vec<Mix>>>()?;
    let simulate = |mix: &Mix| simulate_mix(mix, &settings, args.seed, args.tasks, !args.brief);
    let figures: Vec<MixFigures> = mixes.iter().map(simulate).collect();
    let mut text = String::new();
    for figures in &figures {
        if args.json {
            text.push_str(&serde_json::to_string(figures)?);
            text.push('\n');
        } else {
            table(&mut text, figures);
        }
    }
    print(&text)?;
    match &args.markdown {
        Some(file) => write_page(file, &page::markdown(args, &figures, &settings)),
        None => Ok(()),
    }
}

/// Returns a built-in mix, or reads one from a file; omitted keys have the values of `everyday`.
fn load_mix(name: &str) -> anyhow::Result<Mix> {
    if let Some(mix) = Mix::named(name) {
        return Ok(mix);
    }
    let path = Path::new(name);
    let Ok(metadata) = std::fs::metadata(path) else {
        let known = TUNED_ON.iter().chain(&HELD_OUT).copied().collect::<Vec<_>>().join(", ");
        bail!("{name} is neither a file nor one of the mixes {known}");
    };
    if metadata.len() > MIX_MAX {
        bail!("{name} has {} bytes, more than the limit of {MIX_MAX}", metadata.len());
    }
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
    let mix: Mix = serde_saphyr::from_str(&text).with_context(|| format!("cannot parse {name}"))?;
    let problems = mix.problems();
    if !problems.is_empty() {
        bail!("{name}: {}", problems.join("; "));
    }
    Ok(mix)
}

/// Plays every policy over a mix, and every part of the pipeline if `parts` is set.
fn simulate_mix(mix: &Mix, settings: &SupervisionSettings, seed: u64, tasks: u64, parts: bool) -> MixFigures {
    let play = |policy: &TaskPolicy| play_all(mix, policy, seed, tasks);
    let (ten, oracle) = (play(&TaskPolicy::Limit(10)), play(&TaskPolicy::Oracle));
    let results = contenders(settings).into_iter().map(|(name, policy)| (name, play(&policy)));
    let results: Vec<(String, Vec<TaskResult>)> = results.collect();
    let ours = results.iter().find(|(name, _)| name == OURS).map_or(&[][..], |(_, results)| results);
    let part = |PartVariant { name, policy, baseline, added }: &PartVariant| {
        let changed = play(policy);
        let baseline = baseline.as_ref().map(play);
        let baseline = baseline.as_deref().unwrap_or(ours);
        let (with, without) = if *added { (&changed[..], baseline) } else { (baseline, &changed[..]) };
        let figures = policy_figures(name, &changed, &ten, &oracle, mix);
        PartFigures { figures, brings: worth_difference(with, without, mix) }
    };
    MixFigures {
        mix: mix.name.clone(),
        tasks,
        policies: results.iter().map(|(name, results)| policy_figures(name, results, &ten, &oracle, mix)).collect(),
        parts: if parts { part_variants(settings).iter().map(part).collect() } else { Vec::new() },
    }
}

fn table(text: &mut String, mix: &MixFigures) {
    let bold = Style::new().bold();
    let _ = writeln!(
        text,
        "{bold}{} ({} tasks){bold:#}\n{:<31} {:>14} {:>14} {:>14} {:>14} {:>13} {:>12} {:>14} {:>12} {:>18}",
        mix.mix,
        mix.tasks,
        "",
        "done",
        "falsely done",
        "value",
        "iter. per done",
        "cost per done",
        "hopeless",
        "disturbed",
        "asked",
        "gap closed",
    );
    let parts = mix.parts.iter().map(|part| (format!("  {}", part.figures.policy), &part.figures));
    let policies = mix.policies.iter().map(|figures| (figures.policy.clone(), figures));
    for (name, figures) in policies.chain(parts) {
        let _ = writeln!(
            text,
            "{name:<31} {:>14} {:>14} {:>14} {:>14} {:>13} {:>12} {:>14} {:>12} {:>18}",
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

/// Formats an estimate with half its interval's width.
fn about(figure: IntervalEstimate, decimals: usize) -> String {
    format!("{:.decimals$} ± {:.decimals$}", figure.value, (figure.high - figure.low) / 2.0)
}

/// Formats a share in percent with half its interval's width.
fn percent(figure: IntervalEstimate) -> String {
    let IntervalEstimate { value, low, high } = figure;
    format!("{} %", about(IntervalEstimate { value: value * 100.0, low: low * 100.0, high: high * 100.0 }, 1))
}

/// Formats a share in percent with its interval's ends.
fn interval(figure: IntervalEstimate) -> String {
    format!("{:.0} % ({:.0} to {:.0})", figure.value * 100.0, figure.low * 100.0, figure.high * 100.0)
}
