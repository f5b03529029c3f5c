//! `ralph-bot serve`: the service.

use clap::{Args, ValueEnum};

/// Arguments of `serve`.
#[derive(Debug, Clone, Args)]
pub struct ServeArgs {
    /// Which part of the service this process is; several processes can share one database
    #[arg(long, value_enum, default_value_t = ServeRole::All)]
    pub role: ServeRole,
}

/// Parts of the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ServeRole {
    /// Takes deliveries.
    Ingest,
    /// Decides and talks to the forges.
    Control,
    /// Runs agents and checks.
    Runner,
    /// Everything.
    All,
}
