//! `ralph-bot backup`: a consistent copy of the database while the service runs.

use std::path::PathBuf;

use clap::Args;

/// Arguments of `backup`.
#[derive(Debug, Clone, Args)]
pub struct BackupArgs {
    /// File to write; it must not exist
    pub file: PathBuf,
}
