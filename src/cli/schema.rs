//! `ralph-bot schema`: prints the JSON Schemas of the files that people write or exchange, or the reference of the
//! configuration files.

use clap::{Args, ValueEnum};
use ralph_types::failure::Failure;

use super::error::{CliError, CliResult};
use super::print;
use crate::config::{reference, schema};
use crate::domain::supervision::replay;
use crate::store::memory;

/// Arguments of `schema`.
#[derive(Debug, Clone, Args)]
pub struct SchemaArgs {
    /// File
    #[arg(value_enum, default_value_t = SchemaFile::Operator)]
    pub which: SchemaFile,
    /// Print the reference of both configuration files as Markdown instead
    #[arg(long)]
    pub markdown: bool,
    /// Print the reference of the supervision thresholds as Markdown instead
    #[arg(long, conflicts_with = "markdown")]
    pub thresholds: bool,
}

/// Files with a JSON Schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SchemaFile {
    /// `ralph-control.yaml`.
    Operator,
    /// `.github/ralph.yml`, `.gitea/ralph.yml`, `.ralph.yml`.
    Repository,
    /// Line of a trace, as `loops export --trace` writes and `replay` reads it.
    Trace,
    /// Line of an export of learnings, as `memory export` writes and `memory import` reads it.
    Learnings,
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
        SchemaFile::Operator => schema::operator(),
        SchemaFile::Repository => schema::repository(),
        SchemaFile::Trace => replay::schema(),
        SchemaFile::Learnings => memory::export_schema(),
    };
    let text = serde_json::to_string_pretty(&schema).map_err(|error| CliError::failed(Failure::of(error)))?;
    print(&format!("{text}\n"))
}
