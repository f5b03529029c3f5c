//! Properties of the services that accept notices. A service has one definition beside its body, and one row in `channel_kinds!`.

use serde_json::Value;

use super::Notice;
use crate::domain::supervision::oversight::EscalationLevel;

/// Notice as a body shows it.
#[derive(Debug, Clone, Copy)]
pub struct NoticeBody<'n> {
    /// The notice.
    pub notice: &'n Notice,
    /// Identifier of the notice across retries.
    pub delivery: &'n str,
    /// Address of the escalation issue, if known.
    pub answer: Option<&'n str>,
    /// Whether it is posted once more, although an earlier attempt may have arrived.
    pub again: bool,
}

/// Delivery of a notice to a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoticeTransport {
    /// One HTTP request with the body, whose answer does not matter.
    Request,
    /// The same, with a signature by the channel's key.
    SignedRequest,
    /// The same, with the channel's key in a field of the body.
    KeyedRequest(&'static str),
    /// Messages of Slack, which are changed.
    SlackMessage,
    /// Messages of Discord, which are changed.
    DiscordMessage,
    /// Mail by SMTP.
    Mail,
}

/// Address of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChannelAddress {
    /// Whoever knows the address can post, so it is a secret.
    Secret,
    /// The operator names it.
    Named,
    /// The address of most accounts, which the operator can replace.
    Usual(&'static str),
}

/// Properties of a service.
#[derive(Debug, Clone, Copy)]
pub struct ChannelDefinition {
    /// Name for people.
    pub name: &'static str,
    /// Value of `kind` in the operator's file.
    pub configured: &'static str,
    /// Address.
    pub address: ChannelAddress,
    /// Name of the key that it needs besides the address, such as "the routing key"; `None` if it needs none.
    pub secret: Option<&'static str>,
    /// Minimum length of the key, in bytes.
    pub secret_min: usize,
    /// Levels that are sent unless the operator names some.
    pub levels: &'static [EscalationLevel],
    /// Whether the service keeps incidents: it repeats them by itself until somebody acknowledges them.
    pub keeps_incidents: bool,
    /// Delivery.
    pub transport: NoticeTransport,
    /// Returns the body of a notice.
    pub body: fn(NoticeBody<'_>) -> Value,
}

impl ChannelDefinition {
    /// Creates the definition of a service that gets one unsigned request with a notice.
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
