//! `ralph-bot local`: one loop on a local repository without a forge.

use std::path::PathBuf;

use clap::Args;

/// Arguments of `local`.
#[derive(Debug, Clone, Args)]
pub struct LocalArgs {
    /// Folder of the repository
    #[arg(long, value_name = "DIR")]
    pub repo: PathBuf,
    /// What is to be done: text, or a file that holds it
    #[arg(long, value_name = "TEXT|FILE")]
    pub task: String,
    /// A command that must exit 0 for the task to be done; detected where none is given
    #[arg(long, value_name = "COMMAND")]
    pub check: Vec<String>,
    /// Name of the backend that does it
    #[arg(long, value_name = "NAME")]
    pub backend: Option<String>,
    /// Most iterations
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_iterations: Option<u32>,
}
