//! `ralph-bot schema`: prints the JSON Schemas or the reference of the configuration files.

use clap::{Args, ValueEnum};

use super::{CliError, CliResult, print};
use crate::config::{reference, schema};

/// Arguments of `schema`.
#[derive(Debug, Clone, Args)]
pub struct SchemaArgs {
    /// Configuration file
    #[arg(value_enum, default_value_t = ConfigFile::Operator)]
    pub which: ConfigFile,
    /// Print the reference of both files as Markdown instead
    #[arg(long)]
    pub markdown: bool,
    /// Print the reference of the supervision thresholds as Markdown instead
    #[arg(long, conflicts_with = "markdown")]
    pub thresholds: bool,
}

/// Configuration files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ConfigFile {
    /// `ralph-control.yaml`.
    Operator,
    /// `.github/ralph.yml`, `.gitea/ralph.yml`, `.ralph.yml`.
    Repository,
}

/// Prints the schema or the reference.
///
/// # Errors
/// Fails if standard output cannot be written.
pub fn run(args: &SchemaArgs) -> CliResult {
    if args.markdown {
        return print(&reference::configuration());
    }
    if args.thresholds {
        return print(&reference::thresholds());
    }
    let schema = match args.which {
        ConfigFile::Operator => schema::operator(),
        ConfigFile::Repository => schema::repository(),
    };
    let text = serde_json::to_string_pretty(&schema).map_err(|error| CliError::Failed(error.to_string()))?;
    print(&format!("{text}\n"))
}
