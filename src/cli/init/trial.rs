//! `ralph-bot init --try`: creates a first verified pull request with a scripted agent, and removes it on request.

use std::process::ExitCode;

use ralph_types::failure::Failure;

use super::super::serve::{INTERRUPTED, Signals};
use super::{InitArgs, chosen};
use crate::cli::{CliError, CliResult, Global, block_on, one_line, print};
use crate::setup::{OperatorFileLocation, TrialRepository, clean_up, run_trial};

/// Runs the trial, or removes the objects that the last trial created.
pub(super) fn run(args: &InitArgs, global: &Global, place: &OperatorFileLocation) -> CliResult {
    let config = place.config()?;
    block_on(async {
        if let Some(text) = &args.try_in {
            let wanted = TrialRepository::parse(text).map_err(CliError::usage)?;
            let forge = chosen(&config, args.name.as_deref())?;
            let say = |line: String| tell(global.json, "event", &line);
            let mut signals = Signals::new()?;
            let outcome = tokio::select! {
                outcome = run_trial(place, forge, &wanted, None, &say) => outcome,
                () = signals.next() => {
                    tell(global.json, "note", "stopped; `ralph-bot init --clean-up` removes the trial's objects");
                    return Ok(ExitCode::from(INTERRUPTED));
                }
            };
            let outcome =
                outcome.map_err(|error| CliError::failed(Failure::new("the trial failed").caused_by(error)))?;
            if global.json {
                print(&format!("{}\n", serde_json::json!({ "trial": outcome })))?;
            } else {
                print(&format!("Everything but the model is known to work: {}\n", outcome.pull))?;
            }
        }
        if args.clean_up {
            let lines = clean_up(place).await.map_err(|error| CliError::failed(Failure::of(error)))?;
            if lines.is_empty() {
                tell(global.json, "event", "There is nothing of a trial to remove.");
            }
            lines.iter().for_each(|line| tell(global.json, "event", line));
        } else {
            tell(global.json, "note", "`ralph-bot init --clean-up` removes the trial's objects on the forge");
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// Prints a line. Errors of standard output are ignored here, because printing the result reports them.
fn tell(json: bool, key: &str, line: &str) {
    let text = if json { serde_json::json!({ key: line }).to_string() } else { one_line(line) };
    let _ = print(&format!("{text}\n"));
}
