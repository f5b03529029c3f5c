//! Section `escalation`: channels outside of the forge.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::domain::model::quantity::Duration;
use crate::domain::model::settings::config_section;
use crate::domain::trust::policy::Policy;

config_section! {
    /// Notifications that a loop needs a person, in addition to the escalation issue on the forge.
    pub struct EscalationSection {
        /// Channels that receive escalations; see `docs/channels.md`.
        pub channels: Vec<ChannelSection>;
        /// Time without an answer after which a reminder is sent, once.
        pub remind_after: Duration = Duration::seconds(Policy::default().remind_after_s), in Duration::seconds(1)..;
    }
}

config_section! {
    /// A channel for escalations.
    pub struct ChannelSection {
        /// Short name: lower-case letters, digits and hyphens.
        pub name: String;
        /// Service; `generic` is a signed JSON request. Required.
        pub kind: Option<ChannelKindName>;
        /// Address, if it is not a secret: for `generic`, and for PagerDuty accounts in other regions.
        pub url: Option<String>;
        /// Environment variable with the address; addresses of Slack and Discord are secrets.
        pub url_env: Option<String>;
        /// File with the address.
        pub url_file: Option<PathBuf>;
        /// Environment variable with the signing key (`generic`, at least 32 bytes) or the routing key (PagerDuty).
        pub secret_env: Option<String>;
        /// File with the signing key (`generic`, at least 32 bytes) or the routing key (PagerDuty).
        pub secret_file: Option<PathBuf>;
        /// Levels that are sent.
        pub levels: Vec<LevelName> = vec![LevelName::Critical, LevelName::Emergency];
        /// Whether the address may be private (loopback, private network, link-local, …) and without TLS.
        pub allow_private: bool = false;
    }
}

/// Service of a channel in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ChannelKindName {
    Slack,
    Discord,
    Pagerduty,
    Generic,
}

/// Level of an escalation in the file: the loop continues, waits for a person, or was ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LevelName {
    Warning,
    Critical,
    Emergency,
}
