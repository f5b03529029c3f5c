//! The section `escalation`: channels outside of the forge.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::domain::model::quantity::Duration;
use crate::domain::model::settings::config_section;
use crate::domain::trust::policy::Policy;

config_section! {
    /// How people are told that a loop needs them, beside the escalation issue on the forge.
    pub struct EscalationSection {
        /// Channels that are told; see `docs/channels.md`.
        pub channels: Vec<ChannelSection>;
        /// How long an escalation stays unanswered before the one reminder.
        pub remind_after: Duration = Duration::seconds(Policy::default().remind_after_s), in Duration::seconds(1)..;
    }
}

config_section! {
    /// A channel that is told of escalations.
    pub struct ChannelSection {
        /// Short name: lower-case letters, digits and hyphens.
        pub name: String;
        /// Which service it is; generic is our own signed JSON. Required.
        pub kind: Option<ChannelKindName>;
        /// Its address, where that is no secret: of generic, and of PagerDuty outside of its usual region.
        pub url: Option<String>;
        /// Environment variable with its address; those of Slack and Discord are secrets.
        pub url_env: Option<String>;
        /// File with its address.
        pub url_file: Option<PathBuf>;
        /// Environment variable with the key of the signature (generic, at least 32 bytes) or the routing key (PagerDuty).
        pub secret_env: Option<String>;
        /// File with the key of the signature (generic, at least 32 bytes) or the routing key (PagerDuty).
        pub secret_file: Option<PathBuf>;
        /// What it is told of.
        pub levels: Vec<LevelName> = vec![LevelName::Critical, LevelName::Emergency];
        /// Whether it may be at an address that is not public (loopback, private, link-local, …), and without TLS.
        pub allow_private: bool = false;
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
