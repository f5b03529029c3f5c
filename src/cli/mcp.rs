//! `ralph-bot mcp`: serves the session memory of a loop to an agent, over standard input and output.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use ralph_types::failure::Failure;

use super::block_on;
use super::error::{CliError, CliResult};
use crate::config::Env;
use crate::mcp;

/// Arguments of `mcp`.
#[derive(Debug, Clone, Args)]
pub struct McpArgs {
    /// Socket of the service for this run; the token is read from RALPH_MCP_TOKEN
    #[arg(long, value_name = "PATH")]
    pub socket: PathBuf,
}

/// Forwards requests and responses until standard input ends. Reads no configuration, because the sandbox contains
/// none.
///
/// # Errors
/// The token is missing or refused, nothing listens on the socket, or the service stops.
pub fn run(args: &McpArgs, env: &Env) -> CliResult {
    let Some(token) = env.get(mcp::TOKEN_VARIABLE).map(str::trim).filter(|token| !token.is_empty()) else {
        let missing = format!("{} is not set; the service sets it for the agents that it runs", mcp::TOKEN_VARIABLE);
        return Err(CliError::usage(missing));
    };
    block_on(async {
        let carried = mcp::bridge(&args.socket, token, tokio::io::stdin(), tokio::io::stdout()).await;
        carried.map(|()| ExitCode::SUCCESS).map_err(|error| CliError::failed(Failure::of(error)))
    })
}
