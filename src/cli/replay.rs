//! `ralph-bot replay`: runs supervision again over a recorded loop, to explain its decisions and to tune thresholds.

mod chart;
mod compare;
mod read;
mod table;
#[cfg(test)]
mod tests;

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use ralph_types::failure::Failure;
use serde::Serialize;

use super::error::{CliError, CliResult};
use super::global::Global;
use super::{loops, print};
use crate::config::Env;
use crate::domain::model::record::Record;
use crate::domain::supervision::SupervisionReview;
use crate::domain::supervision::replay::{ReplayLine, ReplaySummary};

use read::NamedTrace;
pub use read::settings;

/// Arguments of `replay`.
#[derive(Debug, Clone, Args)]
pub struct ReplayArgs {
    /// Trace (JSON Lines, one record per iteration) or id of a stored loop; with --compare also several, or a folder of
    /// traces
    #[arg(value_name = "TRACE.jsonl|LOOP", required = true)]
    pub traces: Vec<PathBuf>,
    /// Print totals and the point at which the loop would have ended
    #[arg(long)]
    pub summary: bool,
    /// Draw a chart to an SVG file
    #[arg(long, value_name = "FILE.svg")]
    pub plot: Option<PathBuf>,
    /// Compare the settings of two files side by side
    #[arg(long, value_names = ["A.yaml", "B.yaml"], num_args = 2, conflicts_with_all = ["summary", "plot"])]
    pub compare: Option<Vec<PathBuf>>,
}

/// Replays a trace and prints one line per iteration: a table on a terminal, JSON Lines otherwise.
///
/// # Errors
/// Fails on an invalid trace or invalid settings, or if the output cannot be written.
pub fn run(args: &ReplayArgs, global: &Global, env: &Env) -> CliResult {
    if let Some([a, b]) = args.compare.as_deref() {
        return compare::run(named_traces(&args.traces, global, env)?, [a, b], global.json);
    }
    let [source] = args.traces.as_slice() else {
        return Err(CliError::usage("several traces need --compare"));
    };
    let (trace, settings) = match loop_id(source) {
        Some(id) => {
            let stored = loops::stored(&[id], global, env)?.remove(0);
            let named = global.config.as_deref().map(read::settings_of).transpose()?.flatten();
            // By default, the settings of the original run.
            let settings = named.unwrap_or_else(|| stored.settings.policy.supervision());
            (stored.trace(), settings)
        }
        None => (read::trace(source)?, read::settings(global.config.as_deref(), env)?),
    };
    let reviews: Vec<(Record, SupervisionReview)> = trace.reviews(&settings).collect();
    for warning in reviews.iter().flat_map(|(_, review)| &review.control.warnings) {
        anstream::eprintln!("warning: {}: {warning}", source.display());
    }
    let json = global.json || args.plot.is_none() && !std::io::stdout().is_terminal();
    print(&if json { json_lines(&reviews, args.summary)? } else { table::text(&reviews, args.summary) })?;
    if let Some(file) = &args.plot {
        let svg = chart::svg(&read::name(source), &reviews).map_err(CliError::failed)?;
        std::fs::write(file, svg).map_err(|error| {
            CliError::failed(Failure::new(format!("could not write {}", file.display())).caused_by(error))
        })?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the argument as a loop's id (`r-1-aaaaaa`); `None` if it is a path.
fn loop_id(trace: &Path) -> Option<&str> {
    let name = trace.to_str()?;
    (!trace.exists() && !name.contains(['/', '.'])).then_some(name)
}

/// Reads the traces of files, folders and stored loops, in order.
fn named_traces(sources: &[PathBuf], global: &Global, env: &Env) -> Result<Vec<NamedTrace>, CliError> {
    let ids: Vec<&str> = sources.iter().filter_map(|source| loop_id(source)).collect();
    let mut stored = if ids.is_empty() { Vec::new() } else { loops::stored(&ids, global, env)? }.into_iter();
    let mut named = Vec::new();
    for source in sources {
        match loop_id(source).and_then(|_| stored.next()) {
            Some(found) => named.push(NamedTrace { name: found.id.to_string(), trace: found.trace() }),
            None => named.extend(read::traces(source)?),
        }
    }
    Ok(named)
}

fn json_lines(reviews: &[(Record, SupervisionReview)], summary: bool) -> Result<String, CliError> {
    let mut text = String::new();
    for (_, review) in reviews {
        push_json(&mut text, &ReplayLine::from(review))?;
    }
    if summary {
        push_json(&mut text, &ReplaySummary::of(reviews))?;
    }
    Ok(text)
}

/// Appends a value as a line of JSON.
fn push_json(text: &mut String, value: &impl Serialize) -> Result<(), CliError> {
    text.push_str(&serde_json::to_string(value).map_err(|error| CliError::failed(Failure::of(error)))?);
    text.push('\n');
    Ok(())
}
