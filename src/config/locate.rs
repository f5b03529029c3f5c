//! Finding the operator's file.

use std::path::{Path, PathBuf};

use super::env::Env;

/// Name of the operator's file where nothing else is said.
pub const DEFAULT_FILE: &str = "ralph-control.yaml";

/// Variable that names the operator's file.
pub const FILE_VARIABLE: &str = "RALPH_CONFIG";

/// The operator's file: `explicit` (`--config`), else `RALPH_CONFIG`, else `ralph-control.yaml` here.
pub fn operator_file(explicit: Option<&Path>, env: &Env) -> PathBuf {
    explicit
        .map(Path::to_path_buf)
        .or_else(|| env.get(FILE_VARIABLE).filter(|name| !name.is_empty()).map(PathBuf::from))
        .unwrap_or_else(|| PathBuf::from(DEFAULT_FILE))
}
