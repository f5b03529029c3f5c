//! Channels of escalations: their addresses, which may be secrets, and their keys.

use std::net::IpAddr;

use secrecy::{ExposeSecret, SecretString};
use url::{Host, Url};

use super::Check;
use crate::config::ChannelConfig;
use crate::config::operator::{ChannelKindName, ChannelSection, LevelName};
use crate::config::secret::WEBHOOK_SECRET_MIN;
use crate::domain::report::notice::ChannelKind;
use crate::domain::supervision::oversight::EscalationLevel;
use crate::domain::trust::address::not_public;

/// Where PagerDuty takes events, unless an account is in another region.
const PAGERDUTY: &str = "https://events.pagerduty.com/v2/enqueue";

impl Check<'_> {
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
            self.wrong(&format!("{key}.levels"), "without levels it would never be told of anything");
        }
        let kind = match channel.kind {
            Some(ChannelKindName::Slack) => ChannelKind::Slack,
            Some(ChannelKindName::Discord) => ChannelKind::Discord,
            Some(ChannelKindName::Pagerduty) => ChannelKind::PagerDuty,
            Some(ChannelKindName::Generic) => ChannelKind::Generic,
            None => {
                self.wrong(key, "`kind` is missing; it is `slack`, `discord`, `pagerduty` or `generic`");
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
                self.wrong(key, "`url` contradicts `url_env` and `url_file`; keep one of them");
                return None;
            }
            (Some(_), None, _) if secret_address => {
                let why = "whoever has this address can post there; put it into an environment variable and name that \
                           with `url_env`, or into a file and name that with `url_file`";
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
                let or_plain = if secret_address { "" } else { ", or `url` where it is no secret" };
                self.wrong(key, format!("no address; name it with `url_env` or `url_file`{or_plain}"));
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

    /// The key of a channel; the outer `None` where something is wrong with it.
    fn channel_secret(
        &mut self,
        key: &str,
        channel: &ChannelSection,
        kind: ChannelKind,
    ) -> Option<Option<SecretString>> {
        let what = match kind {
            ChannelKind::PagerDuty => "the routing key",
            ChannelKind::Generic => "the key of the signature",
            ChannelKind::Slack | ChannelKind::Discord => {
                if let Some((key, _)) = self.one_of(key, "secret", &channel.secret_env, &channel.secret_file) {
                    self.wrong(&key, format!("{} takes no key beside its address", kind.as_str()));
                    return None;
                }
                return Some(None);
            }
        };
        let Some((key, source)) = self.one_of(key, "secret", &channel.secret_env, &channel.secret_file) else {
            self.wrong(key, format!("{what} is missing; name it with `secret_env` or `secret_file`"));
            return None;
        };
        let secret = self.secret(&key, &source)?;
        let length = secret.expose_secret().len();
        if kind == ChannelKind::Generic && length < WEBHOOK_SECRET_MIN {
            self.wrong(&key, format!("{what} has {length} bytes, and needs {WEBHOOK_SECRET_MIN} to be safe"));
            return None;
        }
        Some(Some(secret))
    }
}

/// Whether messages may go there; the error is a sentence without the address.
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
            Err("an address holds no user or password here".to_owned())
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
