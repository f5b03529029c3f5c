//! Egress policy: the hosts that a sandboxed program may reach.

use std::fmt;
use std::sync::LazyLock;

use ralph_types::failure::Failure;
use regex::Regex;
use url::{Host, Url};

/// Ports that are allowed for a host that is listed without a port: HTTPS and HTTP.
const USUAL_PORTS: [u16; 2] = [443, 80];

/// List of allowed hosts. An entry is a name or an address, optionally with a port. A name can start with `*.`, which matches all
/// its subdomains. An entry without a port allows the usual ports at public addresses. An entry with a port allows only that
/// port, but at any address.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Hosts(Vec<HostEntry>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct HostEntry {
    /// Name or address, normalized as in [`Target::host`].
    name: String,
    /// Whether only subdomains of the name match, and not the name itself.
    below: bool,
    port: Option<u16>,
}

/// Network access of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Egress {
    /// Every destination that the machine can reach.
    Everything,
    /// No network.
    Nothing,
    /// Only the listed hosts.
    Only(Hosts),
}

/// Target server of a program's connection.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// Name in lower case without a trailing dot, or IP address without brackets.
    pub host: String,
    /// Port of the host.
    pub port: u16,
}

/// Decision whether a target may be reached, and at which addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Admission {
    /// The target is not listed and may not be reached.
    Refused,
    /// The target may be reached, but only at public addresses.
    Public,
    /// The target may be reached at any address.
    Anywhere,
}

impl Target {
    /// Parses `host`, `host:port`, `[address]` or `[address]:port`. Without a port in the text, uses `usual`. `None` if the text
    /// is invalid or there is no port at all.
    pub fn parse(authority: &str, usual: Option<u16>) -> Option<Self> {
        let (host, port) = split(authority)?;
        Some(Self { host: normal(host)?, port: port.or(usual)? })
    }

    /// Returns the servers of all `http` and `https` URLs in a text, such as the JSON configuration of a tool.
    pub fn named_in(text: &str) -> Vec<Self> {
        static ADDRESS: LazyLock<Regex> =
            LazyLock::new(|| Regex::new(r#"https?://[^\s"'`<>\\,;|]+"#).expect("the pattern is fixed"));
        ADDRESS.find_iter(text).filter_map(|found| Self::of_url(found.as_str())).collect()
    }

    /// Returns the server of an absolute `http` or `https` URL; `None` for other URLs.
    fn of_url(url: &str) -> Option<Self> {
        let url = Url::parse(url).ok().filter(|url| matches!(url.scheme(), "http" | "https"))?;
        Some(Self { host: normal(url.host_str()?)?, port: url.port_or_known_default()? })
    }

    /// Whether the host names the loopback interface.
    pub fn is_loopback(&self) -> bool {
        self.host == "localhost" || self.host.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback())
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

impl Hosts {
    /// Parses a list of entries. The error names the first invalid entry and the reason.
    pub fn parse<S: AsRef<str>>(entries: impl IntoIterator<Item = S>) -> Result<Self, Failure> {
        let entry = |text: S| {
            let text = text.as_ref();
            HostEntry::parse(text).ok_or_else(|| {
                Failure::new(format!(
                    "`{text}` is not a host; write `example.org`, `*.example.org` or `models.lan:8080`"
                ))
            })
        };
        entries.into_iter().map(entry).collect::<Result<_, _>>().map(Self)
    }

    /// Adds a server, which may then be reached at any address.
    pub fn add(&mut self, target: Target) {
        self.0.push(HostEntry { name: target.host, below: false, port: Some(target.port) });
    }

    /// Adds all entries of another list.
    pub fn extend(&mut self, others: Self) {
        self.0.extend(others.0);
    }

    /// Decides whether a target may be reached.
    pub fn admits(&self, target: &Target) -> Admission {
        let by_entry = |entry: &HostEntry| match entry.port {
            _ if !entry.matches(&target.host) => Admission::Refused,
            Some(port) if port == target.port => Admission::Anywhere,
            None if USUAL_PORTS.contains(&target.port) => Admission::Public,
            _ => Admission::Refused,
        };
        self.0.iter().map(by_entry).max().unwrap_or(Admission::Refused)
    }

    /// Returns the listed servers on the loopback interface, which need a port.
    pub fn on_loopback(&self) -> Vec<Target> {
        let targets = self.0.iter().filter(|entry| !entry.below).filter_map(|entry| {
            let target = Target { host: entry.name.clone(), port: entry.port? };
            target.is_loopback().then_some(target)
        });
        let mut found: Vec<Target> = targets.collect();
        found.sort_by_key(|target| target.port);
        found.dedup_by_key(|target| target.port);
        found
    }
}

impl HostEntry {
    fn parse(text: &str) -> Option<Self> {
        let (below, rest) = text.strip_prefix("*.").map_or((false, text), |rest| (true, rest));
        let (host, port) = split(rest)?;
        let name = normal(host)?;
        let is_address = name.parse::<std::net::IpAddr>().is_ok();
        (!(name.contains('*') || below && is_address)).then_some(Self { name, below, port })
    }

    fn matches(&self, host: &str) -> bool {
        if self.below {
            host.strip_suffix(&self.name).is_some_and(|above| above.len() > 1 && above.ends_with('.'))
        } else {
            host == self.name
        }
    }
}

/// Splits an authority into the host and the port, if it has one. `None` if it is invalid.
fn split(authority: &str) -> Option<(&str, Option<u16>)> {
    let (host, port) = match authority.rfind(']') {
        Some(end) => authority.split_at(end + 1),
        None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
    };
    match port.strip_prefix(':') {
        Some(port) => Some((host, Some(port.parse().ok().filter(|port| *port > 0)?))),
        None => port.is_empty().then_some((host, None)),
    }
}

/// Returns the canonical form of a host, so that alternative spellings (`0x7f.1`, `EXAMPLE.org.`) do not bypass the list. `None`
/// if it is not a host.
fn normal(host: &str) -> Option<String> {
    match Host::parse(host.strip_suffix('.').unwrap_or(host)).ok()? {
        Host::Domain(name) => Some(name).filter(|name| !name.is_empty() && !name.split('.').any(str::is_empty)),
        Host::Ipv4(address) => Some(address.to_string()),
        Host::Ipv6(address) => Some(address.to_canonical().to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(text: &str) -> Target {
        Target::parse(text, None).unwrap_or_else(|| panic!("{text} is a target"))
    }

    fn hosts(entries: &[&str]) -> Hosts {
        Hosts::parse(entries).expect("hosts")
    }

    /// See docs/research/threats.md#s5, docs/research/threats.md#s6.
    #[test]
    fn only_listed_hosts_are_admitted() {
        let listed = hosts(&["registry.npmjs.org", "*.PyPI.org", "models.lan:8080", "10.0.0.5:9000", "[fd00::1]:80"]);
        for (text, expected) in [
            ("registry.npmjs.org:443", Admission::Public),
            ("Registry.NPMJS.org.:80", Admission::Public),
            ("registry.npmjs.org:22", Admission::Refused),
            ("evil-registry.npmjs.org:443", Admission::Refused),
            ("registry.npmjs.org.evil.example:443", Admission::Refused),
            ("files.pypi.org:443", Admission::Public),
            ("a.b.pypi.org:443", Admission::Public),
            ("pypi.org:443", Admission::Refused),
            ("evilpypi.org:443", Admission::Refused),
            ("models.lan:8080", Admission::Anywhere),
            ("models.lan:443", Admission::Refused),
            ("10.0.0.5:9000", Admission::Anywhere),
            ("0xa.5:9000", Admission::Anywhere),
            ("10.0.0.5:443", Admission::Refused),
            ("[fd00:0::1]:80", Admission::Anywhere),
            ("169.254.169.254:80", Admission::Refused),
            ("127.0.0.1:443", Admission::Refused),
        ] {
            assert_eq!(listed.admits(&target(text)), expected, "{text}");
        }
        assert_eq!(Hosts::default().admits(&target("example.org:443")), Admission::Refused);
    }

    #[test]
    fn invalid_host_is_refused_by_name() {
        for text in [
            "",
            "*",
            "*.",
            "a b",
            "https://example.org",
            "example.org/x",
            "a:b",
            "a:0",
            "a:70000",
            "*.10.0.0.1",
            "*.*.org",
            "a..b",
            "[::1",
            "user@example.org",
        ] {
            let why = Hosts::parse([text]).expect_err(text);
            assert!(why.to_string().contains(&format!("`{text}`")), "{why}");
        }
        for text in ["", ":443", "example.org", "[::1]", "a:b:443"] {
            assert_eq!(Target::parse(text, None), None, "{text}");
        }
        assert_eq!(Target::parse("example.org", Some(80)), Some(target("example.org:80")));
    }

    #[test]
    fn server_addresses_are_parsed() {
        let read = |text: &str| Target::named_in(text).iter().map(Target::to_string).collect::<Vec<_>>().join(" ");
        for (text, servers) in [
            ("https://Api.Example.org/v1", "api.example.org:443"),
            ("http://127.0.0.1:8080", "127.0.0.1:8080"),
            ("http://[::1]:9/x", "[::1]:9"),
            (r#"{"a":{"baseURL":"http://one.lan:1/v1"},"b":["https://two.lan"]}"#, "one.lan:1 two.lan:443"),
            ("ftp://example.org", ""),
            ("https://", ""),
            ("sk-secret", ""),
        ] {
            assert_eq!(read(text), servers, "{text}");
        }
    }

    #[test]
    fn loopback_servers_are_recognized() {
        let mut listed = hosts(&["localhost:11434", "127.0.0.1", "example.org:80", "*.localhost:1"]);
        Target::named_in("http://127.0.0.1:8080/v1").into_iter().for_each(|target| listed.add(target));
        listed.extend(hosts(&["[::1]:11434"]));
        let found: Vec<String> = listed.on_loopback().iter().map(Target::to_string).collect();
        assert_eq!(found, ["127.0.0.1:8080", "localhost:11434"]);
    }
}
