//! `ralph-bot sandbox-exec`: starts a program in a sandbox with an egress proxy, or confines it. The service calls it.

use std::ffi::OsString;

use clap::Args;
use ralph_types::failure::Failure;

use super::error::{CliError, CliResult};
use crate::process;

/// Arguments of `sandbox-exec`.
#[derive(Debug, Clone, Args)]
pub struct SandboxExecArgs {
    /// Port to listen on at the sandbox's loopback; can be given several times
    #[arg(long = "port", value_name = "PORT", required_unless_present = "confine")]
    pub ports: Vec<u16>,
    /// Confine the program with Landlock, by the policy that the service passes
    #[arg(long, conflicts_with = "ports")]
    pub confine: bool,
    /// The program, and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub program: Vec<OsString>,
}

/// Replaces this process by the program, or supervises the confined one and returns its exit code.
///
/// # Errors
/// The service does not receive the sockets, or the program cannot be started.
pub fn run(args: &SandboxExecArgs) -> CliResult {
    let Some((program, arguments)) = args.program.split_first() else {
        return Err(CliError::usage("a program is missing"));
    };
    if args.confine {
        return Ok(process::confined_exec(program, arguments).into());
    }
    let error = process::sandbox_exec(&args.ports, program, arguments);
    Err(CliError::failed(
        Failure::new(format!("could not start {} with proxy access", program.display())).caused_by(error),
    ))
}
