//! Findings of `check`, and their rows in the table of backends.

use serde::Serialize;

use crate::domain::providers::backends::BackendRole;
use crate::forge::{ForgeError, ForgeErrorKind};

/// Status of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FindingStatus {
    /// No problem.
    Ok,
    /// Works, but should be improved.
    Warn,
    /// Does not work.
    Fail,
}

/// Result of one part of `check`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CheckFinding {
    /// Subject ("disk", "backend claude").
    pub name: String,
    /// Status of the check.
    #[serde(rename = "outcome")]
    pub status: FindingStatus,
    /// Description in a sentence, without secrets.
    pub detail: String,
    /// Recommended action; empty if there is no problem.
    pub fix: String,
    /// Row in the table of backends, if the finding is about a backend.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend: Option<BackendRow>,
}

/// Row in the table of backends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BackendRow {
    /// Name of the backend.
    pub name: String,
    /// `preset`, or the backend's type.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// Roles of the backend.
    pub roles: Vec<BackendRole>,
    /// Version, if the backend reports one.
    pub version: Option<String>,
    /// Configured models.
    pub models: String,
    /// Thresholds that differ from the defaults.
    pub thresholds: String,
}

impl CheckFinding {
    /// Returns a finding without a problem.
    pub fn ok(name: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(FindingStatus::Ok, name.into(), detail.into(), String::new())
    }

    /// Returns a finding about a part that should be improved.
    pub fn warn(name: impl Into<String>, detail: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::new(FindingStatus::Warn, name.into(), detail.into(), fix.into())
    }

    /// Returns a finding about a part that does not work.
    pub fn fail(name: impl Into<String>, detail: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::new(FindingStatus::Fail, name.into(), detail.into(), fix.into())
    }

    fn new(status: FindingStatus, name: String, detail: String, fix: String) -> Self {
        Self { name, status, detail, fix, backend: None }
    }
}

/// Returns the finding for a call that a forge refused.
pub(super) fn refused(name: String, error: &ForgeError) -> CheckFinding {
    let fix = match error.kind {
        ForgeErrorKind::Unauthorized => "the credential is invalid; create a new one",
        ForgeErrorKind::Denied => "the credential lacks permission; grant more scopes",
        ForgeErrorKind::Transient { .. } => "check the address in `forges` and the network connection",
        ForgeErrorKind::RateLimited { .. } => "wait; the rate limit is reached",
        ForgeErrorKind::NotFound | ForgeErrorKind::Conflict | ForgeErrorKind::Moved | ForgeErrorKind::Bug => {
            "check the address and the kind in `forges`"
        }
    };
    CheckFinding::fail(name, error.to_string(), fix)
}
