//! Options of every subcommand.

use std::path::PathBuf;

use clap::ValueEnum;

/// Options of every subcommand.
#[derive(Debug, Clone, clap::Args)]
pub struct Global {
    /// Configuration file [default: RALPH_CONFIG, else ralph-control.yaml]
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print JSON
    #[arg(long, global = true)]
    pub json: bool,
    /// Use of colors; NO_COLOR is respected
    #[arg(long, global = true, value_enum, default_value_t = Color::Auto)]
    pub color: Color,
}

/// Use of colors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal, unless `NO_COLOR` is set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}
