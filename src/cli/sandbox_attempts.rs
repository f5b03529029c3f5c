//! `ralph-bot sandbox-attempts`: tries to leave a sandbox. The service calls it when it tests its sandbox.

use std::path::PathBuf;

use clap::Args;

use super::error::CliResult;
use crate::process;

/// Arguments of `sandbox-attempts`.
#[derive(Debug, Clone, Args)]
pub struct SandboxAttemptsArgs {
    /// Path of a socket of the host
    #[arg(long, value_name = "PATH")]
    pub socket: PathBuf,
    /// Name of an abstract socket of the host
    #[arg(long, value_name = "NAME")]
    pub name: String,
}

/// Prints which attempts succeeded.
///
/// # Errors
/// None.
pub fn run(args: &SandboxAttemptsArgs) -> CliResult {
    for line in process::attempts(&args.socket, &args.name) {
        anstream::println!("{line}");
    }
    Ok(std::process::ExitCode::SUCCESS)
}
