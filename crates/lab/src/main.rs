//! Simulations for tuning and evaluating supervision and memory: `cargo run --release -p lab -- --help`.

mod memory;
mod simulate;
mod tasks;

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use ralph_bot::config::Env;

/// Simulations for tuning and evaluating supervision and memory.
#[derive(Debug, Parser)]
#[command(name = "lab", arg_required_else_help = true)]
struct LabArgs {
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Debug, Subcommand)]
enum LabCommand {
    /// Measure the value of supervision and of each of its parts with simulated agents
    Simulate(simulate::SimulateArgs),
    /// Measure the value of memory with simulated agents: without it, with it, and with wrong learnings in it
    Memory(memory::LabMemoryArgs),
}

fn main() -> ExitCode {
    let result = match LabArgs::parse().command {
        LabCommand::Simulate(args) => simulate::run(&args, &Env::of_process()),
        LabCommand::Memory(args) => memory::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            anstream::eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Writes `text` to standard output. A closed pipe (`| head`) is not an error.
fn print(text: &str) -> anyhow::Result<()> {
    match anstream::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error).context("cannot write the output"),
        _ => Ok(()),
    }
}

/// Writes a generated page.
fn write_page(file: &Path, page: &str) -> anyhow::Result<()> {
    std::fs::write(file, page).with_context(|| format!("cannot write {}", file.display()))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn arguments_are_parsed_as_documented() {
        LabArgs::command().debug_assert();
        let parse = |line: &str| LabArgs::try_parse_from(std::iter::once("lab").chain(line.split(' ')));
        let parsed = parse("simulate --tasks 50 --seed 3 --mix rough --mix my.yaml").map(|args| args.command);
        assert!(matches!(parsed, Ok(LabCommand::Simulate(a)) if (a.tasks, a.seed, a.mix.len()) == (50, 3, 2)));
        let parsed = parse("memory --seed 8801 --json").map(|args| args.command);
        assert!(matches!(parsed, Ok(LabCommand::Memory(a)) if (a.tasks, a.seed, a.json) == (500, 8801, true)));
        for refused in ["simulate --tasks 0", "simulate --brief --markdown x.md", "memory --mix rough"] {
            assert!(parse(refused).is_err(), "{refused}");
        }
    }
}
