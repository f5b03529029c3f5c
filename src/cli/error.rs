//! Errors of subcommands, with their exit codes.

use std::process::ExitCode;

use ralph_types::failure::Failure;

use crate::config::ConfigProblems;

/// Error of a subcommand.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// Invalid configuration; exit code 2.
    #[error(transparent)]
    Config(#[from] ConfigProblems),
    /// Invalid arguments; exit code 2.
    #[error("{0:#}")]
    Usage(#[source] Failure),
    /// Failed operation; exit code 1.
    #[error("{0:#}")]
    Failed(#[source] Failure),
}

impl CliError {
    /// Creates the error of invalid arguments.
    pub(super) fn usage(problem: impl Into<Failure>) -> Self {
        Self::Usage(problem.into())
    }

    /// Creates the error of a failed operation.
    pub(super) fn failed(problem: impl Into<Failure>) -> Self {
        Self::Failed(problem.into())
    }

    /// Returns the exit code: 1 for failures, 2 for invalid arguments or configuration.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Failed(_) => 1,
            Self::Config(_) | Self::Usage(_) => 2,
        }
    }
}

impl From<crate::setup::CompleteError> for CliError {
    fn from(error: crate::setup::CompleteError) -> Self {
        match error {
            crate::setup::CompleteError::Usage(what) => Self::Usage(what),
            crate::setup::CompleteError::Failed(what) => Self::Failed(what),
        }
    }
}

/// Result of a subcommand: its exit code, or an error.
pub type CliResult = Result<ExitCode, CliError>;
