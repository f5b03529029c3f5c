//! Section `escalation`: channels outside the forge.

use std::borrow::Cow;
use std::path::PathBuf;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use crate::domain::model::quantity::Duration;
use crate::domain::model::settings::config_section;
use crate::domain::report::notice::ChannelKind;
use crate::domain::trust::policy::Policy;

config_section! {
    /// Notifications that a loop needs a person, in addition to the escalation issue on the forge.
    pub struct EscalationSection {
        /// Channels that receive escalations; see `docs/guides/channels.md`.
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
        /// Address, if it is not a secret: for `generic`; of the mail server, `smtp://HOST` with STARTTLS or `smtps://HOST`; for
        /// accounts of PagerDuty in other regions and of GovSlack (`https://slack-gov.com/api/`).
        pub url: Option<String>;
        /// Environment variable with the address; addresses of Slack and Discord are secrets.
        pub url_env: Option<String>;
        /// File with the address.
        pub url_file: Option<PathBuf>;
        /// Environment variable with the signing key (`generic`, at least 32 bytes), the routing key (PagerDuty), the bot token
        /// (Slack, instead of an address) or the password (mail).
        pub secret_env: Option<String>;
        /// File with this key, token or password.
        pub secret_file: Option<PathBuf>;
        /// Id of the room (`C0123456789`); only for Slack with a bot token.
        pub room: Option<String>;
        /// Sender, such as `ralph-bot <ralph@example.org>`; only for mail.
        pub from: Option<String>;
        /// Recipients; only for mail.
        pub to: Vec<String>;
        /// User of the mail server, if it requires a login; only for mail.
        pub user: Option<String>;
        /// Whether `smtp://` requires STARTTLS. Without it, the connection is not encrypted, and `allow_private` is required.
        pub starttls: bool = true;
        /// File with certificates (PEM) of authorities that may have signed the mail server's certificate, besides the system's certificates.
        pub ca_file: Option<PathBuf>;
        /// Levels that are sent. By default `info`, `critical` and `emergency`; PagerDuty gets no `info`.
        pub levels: Option<Vec<LevelName>>;
        /// Whether the address may be private (loopback, private network, link-local, …) and without TLS.
        pub allow_private: bool = false;
    }
}

/// Service of a channel, as named in the file. Slack has one name for webhooks and bot tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ChannelKindName(&'static str);

impl ChannelKindName {
    /// Returns the names of all services.
    pub fn all() -> Vec<&'static str> {
        let mut names: Vec<_> = ChannelKind::ALL.iter().map(|kind| kind.definition().configured).collect();
        names.dedup();
        names
    }

    /// Returns the services with this name, at least one.
    pub fn kinds(self) -> impl Iterator<Item = ChannelKind> {
        ChannelKind::ALL.iter().copied().filter(move |kind| kind.definition().configured == self.0)
    }
}

impl<'de> Deserialize<'de> for ChannelKindName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        let names = Self::all();
        names.iter().find(|known| **known == name).map(|known| Self(known)).ok_or_else(|| {
            D::Error::custom(format!("unknown variant `{name}`, expected one of `{}`", names.join("`, `")))
        })
    }
}

impl JsonSchema for ChannelKindName {
    fn schema_name() -> Cow<'static, str> {
        "ChannelKindName".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "description": "Service of a channel.", "type": "string", "enum": Self::all() })
    }
}

/// Level of a notice in the file: the loop waits for an approval, continues in spite of a problem, needs a decision, or was
/// ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LevelName {
    Info,
    Warning,
    Critical,
    Emergency,
}
