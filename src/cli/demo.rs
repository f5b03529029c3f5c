//! `ralph-bot demo`: the whole thing on this machine with nothing else.

use clap::Args;

/// Arguments of `demo`. With the global `--json`, one JSON line an event, the last with `"state":"review"`.
#[derive(Debug, Clone, Args)]
pub struct DemoArgs {
    /// End when the pull request is ready, instead of waiting for Ctrl-C
    #[arg(long)]
    pub exit: bool,
    /// Without pauses for the reader
    #[arg(long)]
    pub fast: bool,
}
