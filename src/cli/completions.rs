//! `ralph-bot completions`: prints shell completions.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::error::CliResult;
use super::{Cli, print};

/// Arguments of `completions`.
#[derive(Debug, Clone, Args)]
pub struct CompletionsArgs {
    /// Shell
    pub shell: Shell,
}

/// Prints the completions.
///
/// # Errors
/// Fails if standard output cannot be written.
pub fn run(args: &CompletionsArgs) -> CliResult {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "ralph-bot", &mut script);
    print(&String::from_utf8_lossy(&script))
}
