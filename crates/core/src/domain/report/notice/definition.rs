//! Properties of the services that accept notices. To add a service, write a definition beside its body, and add one row to
//! `channel_kinds!`.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Notice;
use crate::domain::supervision::oversight::EscalationLevel;

/// Occasion of a notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Occasion {
    /// The loop needs a person.
    Raised,
    /// Repetition of a notice without a reply.
    Reminder,
    /// The loop continues or has ended. Sent only to services that display this.
    Resolved,
}

impl Occasion {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Raised => "raised",
            Self::Reminder => "reminder",
            Self::Resolved => "resolved",
        }
    }
}

/// Inputs for the body of a notice.
#[derive(Debug, Clone, Copy)]
pub struct NoticeBody<'n> {
    /// The notice.
    pub notice: &'n Notice,
    /// Identifier of the notice, unchanged across retries.
    pub delivery: &'n str,
    /// URL of the escalation issue; `None` if unknown.
    pub answer: Option<&'n str>,
    /// Whether the notice is posted again although an earlier attempt may have succeeded.
    pub again: bool,
}

/// Transport of notices to a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoticeTransport {
    /// One HTTP request with the body. Ignores the response's content.
    Request,
    /// One HTTP request with the body, signed with the channel's key.
    SignedRequest,
    /// One HTTP request with the body, which contains the channel's key in this field.
    KeyedRequest(&'static str),
    /// Editable Slack messages.
    SlackMessage,
    /// Editable Discord messages.
    DiscordMessage,
    /// Mail over SMTP.
    Mail,
}

/// Address of a service, by its configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChannelAddress {
    /// The address is secret, because anyone who knows it can post.
    Secret,
    /// The operator configures the address.
    Named,
    /// Most accounts have this address; the operator can override it.
    Usual(&'static str),
}

/// Properties of a service.
#[derive(Debug, Clone, Copy)]
pub struct ChannelDefinition {
    /// Name for people.
    pub name: &'static str,
    /// Value of the key `kind` in the operator's file.
    pub configured: &'static str,
    /// Address of the service.
    pub address: ChannelAddress,
    /// Name of the key that the service needs in addition to the address, such as "the routing key"; `None` if it needs
    /// none.
    pub secret: Option<&'static str>,
    /// Minimum length of the key, in bytes.
    pub secret_min: usize,
    /// Levels sent by default.
    pub levels: &'static [EscalationLevel],
    /// Whether the service manages incidents: it repeats notifications until a person acknowledges them.
    pub keeps_incidents: bool,
    /// Transport.
    pub transport: NoticeTransport,
    /// Builds a notice's body.
    pub body: fn(NoticeBody<'_>) -> Value,
}

impl ChannelDefinition {
    /// Creates the definition of a service that receives notices as unsigned requests.
    pub(super) const fn new(name: &'static str, body: fn(NoticeBody<'_>) -> Value) -> Self {
        use EscalationLevel::{Critical, Emergency, Info};
        Self {
            name,
            configured: name,
            address: ChannelAddress::Named,
            secret: None,
            secret_min: 0,
            levels: &[Info, Critical, Emergency],
            keeps_incidents: false,
            transport: NoticeTransport::Request,
            body,
        }
    }
}
