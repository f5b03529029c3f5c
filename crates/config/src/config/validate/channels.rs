//! Validates channels for escalations: addresses, which may be secret, keys, rooms, and mail.

use std::net::IpAddr;

use ralph_types::failure::Failure;
use secrecy::{ExposeSecret, SecretString};
use url::{Host, Url};

use super::Validator;
use crate::config::operator::{ChannelKindName, ChannelSection, LevelName};
use crate::config::{ChannelConfig, MailConfig};
use crate::domain::report::notice::{ChannelAddress, ChannelKind};
use crate::domain::supervision::oversight::EscalationLevel;
use crate::domain::trust::address::not_public;

/// Maximum number of recipients of a mail.
const RECIPIENTS: usize = 50;

impl Validator<'_> {
    pub(super) fn channels(&mut self, channels: &[ChannelSection]) -> Vec<ChannelConfig> {
        let mut checked = Vec::new();
        for (index, channel) in channels.iter().enumerate() {
            let key = format!("escalation.channels[{index}]");
            let good_name = self.short_name(&key, &channel.name);
            if good_name && channels.iter().take(index).any(|other| other.name == channel.name) {
                self.wrong(&format!("{key}.name"), format!("two channels are named `{}`", channel.name));
            }
            checked.extend(self.channel(&key, channel));
        }
        checked
    }

    fn channel(&mut self, key: &str, channel: &ChannelSection) -> Option<ChannelConfig> {
        if channel.levels.as_ref().is_some_and(Vec::is_empty) {
            self.wrong(&format!("{key}.levels"), "at least one level is required");
        }
        let has_secret = channel.secret_env.is_some() || channel.secret_file.is_some();
        let has_hidden_address = channel.url_env.is_some() || channel.url_file.is_some();
        let Some(name) = channel.kind else {
            let names = ChannelKindName::all().join("`, `");
            self.wrong(key, format!("`kind` is missing; set it to one of `{names}`"));
            return None;
        };
        // Slack accepts messages at a webhook's secret address or with a bot token.
        let by_token = (has_secret || channel.room.is_some()) && !has_hidden_address;
        let secret_address = |kind: &ChannelKind| kind.definition().address == ChannelAddress::Secret;
        let kind = name.kinds().find(|kind| secret_address(kind) != by_token).or_else(|| name.kinds().next())?;
        let url = self.channel_url(key, channel, kind);
        let secret = self.channel_secret(key, channel, kind);
        let room = self.room(key, channel, kind);
        let mail = self.mail(key, channel, kind);
        let level = |name: &LevelName| match name {
            LevelName::Info => EscalationLevel::Info,
            LevelName::Warning => EscalationLevel::Warning,
            LevelName::Critical => EscalationLevel::Critical,
            LevelName::Emergency => EscalationLevel::Emergency,
        };
        Some(ChannelConfig {
            name: channel.name.clone(),
            kind,
            url: url?,
            secret: secret?,
            room: room?,
            mail: mail?,
            levels: channel
                .levels
                .as_ref()
                .map_or_else(|| kind.definition().levels.to_vec(), |levels| levels.iter().map(level).collect()),
            allow_private: channel.allow_private,
        })
    }

    fn channel_url(&mut self, key: &str, channel: &ChannelSection, kind: ChannelKind) -> Option<SecretString> {
        let in_file = format!("{key}.url");
        let hidden = self.one_of(key, "url", &channel.url_env, &channel.url_file);
        let service = kind.definition();
        let secret_address = service.address == ChannelAddress::Secret;
        let (key, url) = match (&channel.url, hidden, service.address) {
            (Some(_), Some(_), _) => {
                self.wrong(key, "`url` cannot be combined with `url_env` or `url_file`; keep one of them");
                return None;
            }
            (Some(_), None, _) if secret_address => {
                let why = "the address is a secret; put it into an environment variable and set `url_env` to its name, \
                           or into a file and set `url_file` to its path";
                self.wrong(&in_file, why);
                return None;
            }
            (Some(url), None, _) => {
                if kind != ChannelKind::Mail {
                    self.url(&in_file, url)?;
                }
                (in_file, SecretString::from(url.clone()))
            }
            (None, Some((key, source)), _) => {
                let secret = self.secret(&key, &source)?;
                (key, secret)
            }
            (None, None, ChannelAddress::Usual(address)) => (in_file, SecretString::from(address)),
            (None, None, _) => {
                let or_plain = if secret_address { "" } else { ", or `url` if it is not a secret" };
                self.wrong(key, format!("no address; set `url_env` or `url_file`{or_plain}"));
                return None;
            }
        };
        let checked = match kind {
            ChannelKind::Mail => mail_server(url.expose_secret(), channel.starttls, channel.allow_private),
            _ => address(url.expose_secret(), channel.allow_private),
        };
        match checked {
            Ok(()) => Some(url),
            Err(why) => {
                self.wrong(&key, why);
                None
            }
        }
    }

    /// Returns the key of a channel; the outer `None` after a problem.
    fn channel_secret(
        &mut self,
        key: &str,
        channel: &ChannelSection,
        kind: ChannelKind,
    ) -> Option<Option<SecretString>> {
        let service = kind.definition();
        let needed = service
            .secret
            .or_else(|| channel.user.as_ref().filter(|_| kind == ChannelKind::Mail).map(|_| "the password"));
        let Some(what) = needed else {
            if let Some((key, _)) = self.one_of(key, "secret", &channel.secret_env, &channel.secret_file) {
                let why = match kind {
                    ChannelKind::Mail => "a password needs `user`; set it, or remove this".to_owned(),
                    _ => format!("{} has no key besides its address; remove this one", service.name),
                };
                self.wrong(&key, why);
                return None;
            }
            return Some(None);
        };
        let Some((key, source)) = self.one_of(key, "secret", &channel.secret_env, &channel.secret_file) else {
            self.wrong(key, format!("{what} is missing; set `secret_env` or `secret_file`"));
            return None;
        };
        let secret = self.secret(&key, &source)?;
        let length = secret.expose_secret().len();
        if length < service.secret_min {
            self.wrong(&key, format!("{what} has {length} bytes; at least {} are required", service.secret_min));
            return None;
        }
        Some(Some(secret))
    }

    /// Returns the room of a channel; the outer `None` after a problem.
    fn room(&mut self, key: &str, channel: &ChannelSection, kind: ChannelKind) -> Option<Option<String>> {
        let key = format!("{key}.room");
        match (&channel.room, kind) {
            (None, ChannelKind::SlackBot) => {
                self.wrong(&key, "a bot token needs the id of a room, such as `C0123456789`");
                None
            }
            (Some(room), ChannelKind::SlackBot) => {
                let is_id = room.starts_with(['C', 'D', 'G'])
                    && (9..=20).contains(&room.len())
                    && room.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit());
                if !is_id {
                    self.wrong(
                        &key,
                        "expected the id of a room, such as `C0123456789`; Slack shows it in the room's details",
                    );
                }
                is_id.then(|| Some(room.clone()))
            }
            (Some(_), ChannelKind::Slack) => {
                self.wrong(&key, "the address of a webhook has a room already; use a bot token, or remove this");
                None
            }
            (Some(_), _) => {
                self.wrong(&key, format!("{} has no rooms; remove this", kind.as_str()));
                None
            }
            (None, _) => Some(None),
        }
    }

    /// Returns the settings of a mail channel; the outer `None` after a problem.
    fn mail(&mut self, key: &str, channel: &ChannelSection, kind: ChannelKind) -> Option<Option<MailConfig>> {
        if kind != ChannelKind::Mail {
            let only = [
                ("from", channel.from.is_some()),
                ("to", !channel.to.is_empty()),
                ("user", channel.user.is_some()),
                ("ca_file", channel.ca_file.is_some()),
            ];
            for (name, _) in only.iter().filter(|(_, set)| *set) {
                self.wrong(&format!("{key}.{name}"), format!("{} has no `{name}`; remove this", kind.as_str()));
            }
            return only.iter().all(|(_, set)| !set).then_some(None);
        }
        if cfg!(not(feature = "mail")) {
            self.wrong(
                &format!("{key}.kind"),
                "this program was built without mail; build it with `--features mail`, or use a released package",
            );
            return None;
        }
        let from = match &channel.from {
            Some(from) => self.mailbox(&format!("{key}.from"), from),
            None => {
                self.wrong(key, "no sender; set `from` to an address such as `ralph-bot <ralph@example.org>`");
                None
            }
        };
        if channel.to.is_empty() || channel.to.len() > RECIPIENTS {
            self.wrong(&format!("{key}.to"), format!("between one and {RECIPIENTS} recipients are required"));
        }
        let to: Vec<_> = channel
            .to
            .iter()
            .enumerate()
            .filter_map(|(index, to)| self.mailbox(&format!("{key}.to[{index}]"), to))
            .collect();
        let ca = match &channel.ca_file {
            Some(path) => self.certificates(&format!("{key}.ca_file"), path)?,
            None => Vec::new(),
        };
        let complete = to.len() == channel.to.len() && !to.is_empty();
        let (user, starttls) = (channel.user.clone(), channel.starttls);
        from.filter(|_| complete).map(|from| Some(MailConfig { user, from, to, starttls, ca }))
    }

    fn mailbox(&mut self, key: &str, text: &str) -> Option<String> {
        if text.contains(char::is_control) || !is_mailbox(text) {
            self.wrong(key, "expected an address such as `team@example.org` or `The team <team@example.org>`");
            return None;
        }
        Some(text.to_owned())
    }

    fn certificates(&mut self, key: &str, path: &std::path::Path) -> Option<Vec<u8>> {
        let path = self.base.join(path);
        match std::fs::read(&path) {
            Ok(text) if String::from_utf8_lossy(&text).contains("-----BEGIN CERTIFICATE-----") => Some(text),
            Ok(_) => {
                self.wrong(key, format!("file {} has no certificate in PEM", path.display()));
                None
            }
            Err(error) => {
                self.wrong(key, format!("cannot read file {}: {error}", path.display()));
                None
            }
        }
    }
}

#[cfg(feature = "mail")]
fn is_mailbox(text: &str) -> bool {
    text.parse::<lettre::message::Mailbox>().is_ok()
}

/// The channel is rejected before the result is used.
#[cfg(not(feature = "mail"))]
fn is_mailbox(_: &str) -> bool {
    true
}

/// Returns the problem of an address that is not public, for this reason.
fn not_allowed(why: &str) -> Failure {
    Failure::new(format!("the address is not public ({why})")).with_hint("`allow_private: true` allows it")
}

/// Checks a mail server's address; the error message does not contain the address.
fn mail_server(text: &str, starttls: bool, allow_private: bool) -> Result<(), Failure> {
    let expected = "expected a mail server such as smtp://mail.example.org or smtps://mail.example.org";
    let url = Url::parse(text).map_err(|_| expected)?;
    if !matches!(url.scheme(), "smtp" | "smtps") || url.host_str().is_none_or(str::is_empty) {
        return Err(expected.into());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(Failure::new("the address must not contain a user or password")
            .with_hint("set `user`, and `secret_env` or `secret_file`"));
    }
    if !matches!(url.path(), "" | "/") || url.query().is_some() || url.fragment().is_some() {
        return Err(Failure::new("the address must end after host and port"));
    }
    if url.scheme() == "smtp" && !starttls && !allow_private {
        return Err(Failure::new("mail without STARTTLS is not encrypted and needs `allow_private: true`"));
    }
    // The URL parser does not parse hosts of this scheme as IP addresses.
    let literal = url.host_str().and_then(|host| host.trim_matches(['[', ']']).parse::<IpAddr>().ok());
    match literal.and_then(not_public) {
        Some(what) if !allow_private => Err(not_allowed(what)),
        _ => Ok(()),
    }
}

/// Checks a channel's address; the error message does not contain the address.
fn address(text: &str, allow_private: bool) -> Result<(), Failure> {
    let url = Url::parse(text).map_err(|_| "expected an address such as https://hooks.example.org/ralph")?;
    let literal = match url.host() {
        Some(Host::Ipv4(address)) => Some(IpAddr::V4(address)),
        Some(Host::Ipv6(address)) => Some(IpAddr::V6(address)),
        Some(Host::Domain(_)) => None,
        None => return Err(Failure::new("the address has no host")),
    };
    match (url.scheme(), literal.and_then(not_public)) {
        _ if !url.username().is_empty() || url.password().is_some() => {
            Err(Failure::new("the address must not contain a user or password"))
        }
        ("https", Some(what)) if !allow_private => Err(not_allowed(what)),
        ("https", _) => Ok(()),
        ("http", _) if allow_private => Ok(()),
        ("http", _) => {
            Err(Failure::new("the address must start with https://").with_hint("http:// needs `allow_private: true`"))
        }
        _ => Err(Failure::new("the address must start with https://")),
    }
}
