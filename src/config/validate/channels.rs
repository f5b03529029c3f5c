//! Validates channels for escalations: addresses, which may be secrets, and keys.

use std::net::IpAddr;

use secrecy::{ExposeSecret, SecretString};
use url::{Host, Url};

use super::Validator;
use crate::config::ChannelConfig;
use crate::config::operator::{ChannelKindName, ChannelSection, LevelName};
use crate::config::secret::WEBHOOK_SECRET_MIN;
use crate::domain::report::notice::ChannelKind;
use crate::domain::supervision::oversight::EscalationLevel;
use crate::domain::trust::address::not_public;

/// PagerDuty's address for events, except for accounts in other regions.
const PAGERDUTY: &str = "https://events.pagerduty.com/v2/enqueue";

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
        if channel.levels.is_empty() {
            self.wrong(&format!("{key}.levels"), "at least one level is required");
        }
        let kind = match channel.kind {
            Some(ChannelKindName::Slack) => ChannelKind::Slack,
            Some(ChannelKindName::Discord) => ChannelKind::Discord,
            Some(ChannelKindName::Pagerduty) => ChannelKind::PagerDuty,
            Some(ChannelKindName::Generic) => ChannelKind::Generic,
            None => {
                self.wrong(key, "`kind` is missing; set it to `slack`, `discord`, `pagerduty` or `generic`");
                return None;
            }
        };
        let url = self.channel_url(key, channel, kind);
        let secret = self.channel_secret(key, channel, kind);
        let level = |name: &LevelName| match name {
            LevelName::Warning => EscalationLevel::Warning,
            LevelName::Critical => EscalationLevel::Critical,
            LevelName::Emergency => EscalationLevel::Emergency,
        };
        Some(ChannelConfig {
            name: channel.name.clone(),
            kind,
            url: url?,
            secret: secret?,
            levels: channel.levels.iter().map(level).collect(),
            allow_private: channel.allow_private,
        })
    }

    fn channel_url(&mut self, key: &str, channel: &ChannelSection, kind: ChannelKind) -> Option<SecretString> {
        let in_file = format!("{key}.url");
        let hidden = self.one_of(key, "url", &channel.url_env, &channel.url_file);
        let secret_address = matches!(kind, ChannelKind::Slack | ChannelKind::Discord);
        let (key, url) = match (&channel.url, hidden, kind) {
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
                self.url(&in_file, url)?;
                (in_file, SecretString::from(url.clone()))
            }
            (None, Some((key, source)), _) => {
                let secret = self.secret(&key, &source)?;
                (key, secret)
            }
            (None, None, ChannelKind::PagerDuty) => (in_file, SecretString::from(PAGERDUTY)),
            (None, None, _) => {
                let or_plain = if secret_address { "" } else { ", or `url` if it is not a secret" };
                self.wrong(key, format!("no address; set `url_env` or `url_file`{or_plain}"));
                return None;
            }
        };
        match address(url.expose_secret(), channel.allow_private) {
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
        let what = match kind {
            ChannelKind::PagerDuty => "the routing key",
            ChannelKind::Generic => "the signing key",
            ChannelKind::Slack | ChannelKind::Discord => {
                if let Some((key, _)) = self.one_of(key, "secret", &channel.secret_env, &channel.secret_file) {
                    self.wrong(&key, format!("{} has no key besides its address; remove this", kind.as_str()));
                    return None;
                }
                return Some(None);
            }
        };
        let Some((key, source)) = self.one_of(key, "secret", &channel.secret_env, &channel.secret_file) else {
            self.wrong(key, format!("{what} is missing; set `secret_env` or `secret_file`"));
            return None;
        };
        let secret = self.secret(&key, &source)?;
        let length = secret.expose_secret().len();
        if kind == ChannelKind::Generic && length < WEBHOOK_SECRET_MIN {
            self.wrong(&key, format!("{what} has {length} bytes; at least {WEBHOOK_SECRET_MIN} are required"));
            return None;
        }
        Some(Some(secret))
    }
}

/// Checks the address of a channel; the error message does not contain it.
fn address(text: &str, allow_private: bool) -> Result<(), String> {
    let url = Url::parse(text).map_err(|_| "expected an address such as https://hooks.example.org/ralph".to_owned())?;
    let literal = match url.host() {
        Some(Host::Ipv4(address)) => Some(IpAddr::V4(address)),
        Some(Host::Ipv6(address)) => Some(IpAddr::V6(address)),
        Some(Host::Domain(_)) => None,
        None => return Err("the address has no host".to_owned()),
    };
    match (url.scheme(), literal.and_then(not_public)) {
        _ if !url.username().is_empty() || url.password().is_some() => {
            Err("the address must not contain a user or password".to_owned())
        }
        ("https", Some(what)) if !allow_private => {
            Err(format!("the address is not public ({what}); `allow_private: true` allows it"))
        }
        ("https", _) => Ok(()),
        ("http", _) if allow_private => Ok(()),
        ("http", _) => Err("the address must begin with https://; http:// needs `allow_private: true`".to_owned()),
        _ => Err("the address must begin with https://".to_owned()),
    }
}
