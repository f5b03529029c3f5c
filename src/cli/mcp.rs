//! `ralph-bot mcp`: an agent's way to the session memory of its loop, over standard input and output.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::{CliError, CliResult, block_on};
use crate::config::Env;
use crate::mcp;

/// Arguments of `mcp`.
#[derive(Debug, Clone, Args)]
pub struct McpArgs {
    /// Socket on which the service serves this run of the agent; its token is expected in RALPH_MCP_TOKEN
    #[arg(long, value_name = "PATH")]
    pub socket: PathBuf,
}

/// Carries requests and answers until standard input ends. No configuration is read: where it runs there is none.
///
/// # Errors
/// When the token is missing or refused, nobody listens on the socket, or the service goes away.
pub fn run(args: &McpArgs, env: &Env) -> CliResult {
    let Some(token) = env.get(mcp::TOKEN_VARIABLE).map(str::trim).filter(|token| !token.is_empty()) else {
        let missing = format!("{} is not set: the service gives it to the agents that it runs", mcp::TOKEN_VARIABLE);
        return Err(CliError::Usage(missing));
    };
    block_on(async {
        let carried = mcp::bridge(&args.socket, token, tokio::io::stdin(), tokio::io::stdout()).await;
        carried.map(|()| ExitCode::SUCCESS).map_err(|error| CliError::Failed(error.to_string()))
    })
}
