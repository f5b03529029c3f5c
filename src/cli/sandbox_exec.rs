//! `ralph-bot sandbox-exec`: what the service puts before a program in a sandbox from which single hosts can be reached.

use std::ffi::OsString;

use clap::Args;

use super::{CliError, CliResult};
use crate::process;

/// Arguments of `sandbox-exec`.
#[derive(Debug, Clone, Args)]
pub struct SandboxExecArgs {
    /// Port of the loopback to listen on for the service; several may be given
    #[arg(long = "port", value_name = "PORT", required = true)]
    pub ports: Vec<u16>,
    /// The program, and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub program: Vec<OsString>,
}

/// Becomes the program.
///
/// # Errors
/// Where nothing of the service listens for the sockets, or the program cannot be started.
pub fn run(args: &SandboxExecArgs) -> CliResult {
    let Some((program, arguments)) = args.program.split_first() else {
        return Err(CliError::Usage("a program is missing".to_owned()));
    };
    let error = process::sandbox_exec(&args.ports, program, arguments);
    Err(CliError::Failed(format!("{} could not be begun with a way out of its sandbox: {error}", program.display())))
}
