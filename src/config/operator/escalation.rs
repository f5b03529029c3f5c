//! The section `escalation`: channels outside of the forge.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::domain::model::quantity::Duration;
use crate::domain::trust::policy::Policy;

/// How people are told that a loop needs them, beside the escalation issue on the forge.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EscalationSection {
    /// Channels that are told; see `docs/channels.md`.
    pub channels: Vec<ChannelSection>,
    /// How long an escalation stays unanswered before the one reminder.
    pub remind_after: Duration,
}

impl Default for EscalationSection {
    fn default() -> Self {
        Self { channels: Vec::new(), remind_after: Duration::seconds(Policy::default().remind_after_s) }
    }
}

/// A channel that is told of escalations.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ChannelSection {
    /// Short name: lower-case letters, digits and hyphens.
    pub name: String,
    /// Which service it is; generic is our own signed JSON. Required.
    pub kind: Option<ChannelKindName>,
    /// Its address, where that is no secret: of generic, and of PagerDuty outside of its usual region.
    pub url: Option<String>,
    /// Environment variable with its address; those of Slack and Discord are secrets.
    pub url_env: Option<String>,
    /// File with its address.
    pub url_file: Option<PathBuf>,
    /// Environment variable with the key of the signature (generic, at least 32 bytes) or the routing key (PagerDuty).
    pub secret_env: Option<String>,
    /// File with the key of the signature (generic, at least 32 bytes) or the routing key (PagerDuty).
    pub secret_file: Option<PathBuf>,
    /// What it is told of.
    pub levels: Vec<LevelName>,
    /// Whether it may be at an address that is not public (loopback, private, link-local, …), and without TLS.
    pub allow_private: bool,
}

impl Default for ChannelSection {
    fn default() -> Self {
        Self {
            name: String::new(),
            kind: None,
            url: None,
            url_env: None,
            url_file: None,
            secret_env: None,
            secret_file: None,
            levels: vec![LevelName::Critical, LevelName::Emergency],
            allow_private: false,
        }
    }
}

/// Services that news can go to, as written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ChannelKindName {
    Slack,
    Discord,
    Pagerduty,
    Generic,
}

/// How urgent an escalation is, as written: the loop goes on, waits for a person, or was ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LevelName {
    Warning,
    Critical,
    Emergency,
}
