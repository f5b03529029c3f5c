//! `ralph-bot schema`: the JSON Schema of a configuration file, or the reference of both.

use clap::{Args, ValueEnum};

use super::{CliError, CliResult, print};
use crate::config::schema;

/// Arguments of `schema`.
#[derive(Debug, Clone, Args)]
pub struct SchemaArgs {
    /// Which file
    #[arg(value_enum, default_value_t = Which::Operator)]
    pub which: Which,
    /// Print the reference of both files for people instead, as Markdown
    #[arg(long)]
    pub markdown: bool,
}

/// The configuration files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Which {
    /// `ralph-control.yaml`.
    Operator,
    /// `.github/ralph.yml`, `.gitea/ralph.yml`, `.ralph.yml`.
    Repository,
}

/// Prints it.
///
/// # Errors
/// When standard output cannot be written.
pub fn run(args: &SchemaArgs) -> CliResult {
    if args.markdown {
        return print(&schema::markdown());
    }
    let schema = match args.which {
        Which::Operator => schema::operator(),
        Which::Repository => schema::repository(),
    };
    let text = serde_json::to_string_pretty(&schema).map_err(|error| CliError::Failed(error.to_string()))?;
    print(&format!("{text}\n"))
}
