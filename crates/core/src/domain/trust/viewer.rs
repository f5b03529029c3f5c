//! Rights of people who use the dashboard and the API, and checks of their browsers' requests.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::{Host, Url};

use super::permit::AccessLevel;
use crate::domain::model::ids::{AccountKind, Timestamp, UserId};

/// Time for which a permission is cached after the forge reported it, in milliseconds.
pub const RIGHT_KEPT_MS: i64 = 5 * 60_000;
/// Maximum age of a cached permission for an open event stream to continue, in milliseconds. Streams are checked once a minute,
/// so that a revoked right ends within [`RIGHT_KEPT_MS`].
pub const STREAM_RIGHT_KEPT_MS: i64 = 4 * 60_000;
/// Maximum lifetime of a session, in milliseconds.
pub const SESSION_MS: i64 = 12 * 3_600_000;
/// Time without requests after which a session ends, in milliseconds.
pub const SESSION_IDLE_MS: i64 = 2 * 3_600_000;
/// Time within which a login must be completed, in milliseconds.
pub const LOGIN_MS: i64 = 10 * 60_000;

/// Number of failed logins after which an address has to wait.
const MAX_FAILURES: u32 = 20;
/// Length of the window in which failures are counted, from the first failure, in milliseconds.
const FAILURE_WINDOW_MS: i64 = 10 * 60_000;
/// Maximum number of addresses whose failures are stored.
const MAX_ADDRESSES: usize = 10_000;
/// Maximum length of a path to return to after a login, in bytes.
const MAX_PATH: usize = 2_000;

/// Right of a viewer in a repository, lowest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ViewRight {
    /// Sees nothing of the repository, not even whether it exists in the service.
    None,
    /// Sees the states and summaries of loops.
    Read,
    /// Also sees prompts, transcripts and outputs, and may give commands.
    Write,
    /// Also sees all repositories, backends, deliveries and the operator's settings. Commands still require a person with the
    /// right to give them, or the operator's own token.
    Operate,
}

impl ViewRight {
    /// Returns the right that corresponds to an access level in the repository.
    pub fn of(level: AccessLevel) -> Self {
        match level {
            AccessLevel::None => Self::None,
            AccessLevel::Read | AccessLevel::Triage => Self::Read,
            AccessLevel::Write | AccessLevel::Maintain | AccessLevel::Admin => Self::Write,
        }
    }
}

/// Facts about an account in a repository, as reported by the forge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RightFacts {
    /// Level of access.
    pub level: AccessLevel,
    /// Whether a command of the account would currently be accepted: because of its level, a list, or a team.
    pub may_command: bool,
}

impl RightFacts {
    /// Facts about an account without access to the repository.
    pub const NOTHING: Self = Self { level: AccessLevel::None, may_command: false };

    /// Returns the right to view. An account whose commands are accepted because of a list or a team may also view the loops.
    pub fn to_view(self) -> ViewRight {
        let by_list = if self.may_command { ViewRight::Write } else { ViewRight::None };
        ViewRight::of(self.level).max(by_list)
    }

    /// Returns the right to change something. It is at least [`ViewRight::Write`] only if a command would be accepted, and never
    /// `Operate`.
    pub fn to_change(self) -> ViewRight {
        if self.may_command { ViewRight::Write } else { self.to_view().min(ViewRight::Read) }
    }
}

/// Returns the reason why an account may not log in; `None` if it may. Only people may log in, and not with the bot's own
/// account.
pub fn may_not_log_in(id: UserId, kind: AccountKind, suspended: bool, own: UserId) -> Option<&'static str> {
    if id.0 <= 0 {
        Some("this account no longer exists on the forge")
    } else if id == own || kind == AccountKind::Bot {
        Some("only people can log in, not bots")
    } else if suspended {
        Some("this account is suspended on the forge")
    } else {
        None
    }
}

/// Whether a session has ended at `now`, because of its age or because it was not used.
pub fn session_has_ended(created: Timestamp, used: Timestamp, now: Timestamp) -> bool {
    now.since(created) >= SESSION_MS || now.since(used) >= SESSION_IDLE_MS
}

/// Returns the path on this server to redirect to after a login: `asked` if it cannot lead to another server, else `/`.
pub fn local_path(asked: Option<&str>) -> &str {
    let Some(path) = asked else { return "/" };
    let plain = path.len() <= MAX_PATH && path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    let rooted = path.starts_with('/') && !path.starts_with("//");
    let outside = ["/login", "/logout"]
        .iter()
        .all(|own| path.strip_prefix(own).is_none_or(|rest| !rest.is_empty() && !rest.starts_with(['/', '?', '#'])));
    // As a browser reads it.
    let stays = || {
        let base = Url::parse("https://own.invalid/").ok()?;
        let joined = base.join(path).ok()?;
        Some(joined.origin() == base.origin() && !joined.path().starts_with("//"))
    };
    if plain && rooted && outside && stays() == Some(true) { path } else { "/" }
}

/// Whether the value of a `Host` header is a loopback name or address, which no public site can have.
pub fn is_loopback_host(header: &str) -> bool {
    let Ok(url) = Url::parse(&format!("http://{header}/")) else { return false };
    let is_only_a_host =
        url.username().is_empty() && url.password().is_none() && !header.contains(['/', '?', '#', '@', '\\']);
    is_only_a_host
        && match url.host() {
            Some(Host::Domain(name)) => name == "localhost",
            Some(Host::Ipv4(address)) => address.is_loopback(),
            Some(Host::Ipv6(address)) => address.is_loopback(),
            None => false,
        }
}

/// Whether a changing request comes from a page of this server, according to the headers `Origin` and `Sec-Fetch-Site`. `own` is
/// the server's origin. True if the browser sends neither header; then only the form's token protects.
pub fn is_from_own_page(origin: Option<&str>, fetch_site: Option<&str>, own: &str) -> bool {
    fetch_site.is_none_or(|site| matches!(site, "same-origin" | "none"))
        && origin.is_none_or(|origin| origin.eq_ignore_ascii_case(own))
}

/// Failed logins by address, in bounded memory.
#[derive(Debug, Default)]
pub struct FailedAttempts(HashMap<IpAddr, (u32, Timestamp)>);

impl FailedAttempts {
    /// Returns how long an address has to wait before its next attempt, in milliseconds; `None` if it need not wait.
    pub fn wait_ms(&self, from: IpAddr, now: Timestamp) -> Option<i64> {
        let (count, since) = self.0.get(&network(from))?;
        let wait_left = FAILURE_WINDOW_MS - now.since(*since);
        (*count >= MAX_FAILURES && wait_left > 0).then_some(wait_left)
    }

    /// Counts a failed login from an address.
    pub fn add(&mut self, from: IpAddr, now: Timestamp) {
        let is_over = |since: Timestamp| now.since(since) >= FAILURE_WINDOW_MS;
        let key = network(from);
        if !self.0.contains_key(&key) && self.0.len() >= MAX_ADDRESSES {
            self.0.retain(|_, (_, since)| !is_over(*since));
            let oldest = self.0.iter().min_by_key(|(_, (count, since))| (*since, *count)).map(|(key, _)| *key);
            if let Some(oldest) = oldest.filter(|_| self.0.len() >= MAX_ADDRESSES) {
                self.0.remove(&oldest);
            }
        }
        let entry = self.0.entry(key).or_insert((0, now));
        if is_over(entry.1) {
            *entry = (0, now);
        }
        entry.0 = entry.0.saturating_add(1);
    }
}

/// Returns the address under which failures of a client are counted: for IPv6, the /64 network.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn access_level_determines_the_right() {
        let rights = [
            (AccessLevel::None, ViewRight::None),
            (AccessLevel::Read, ViewRight::Read),
            (AccessLevel::Triage, ViewRight::Read),
            (AccessLevel::Write, ViewRight::Write),
            (AccessLevel::Maintain, ViewRight::Write),
            (AccessLevel::Admin, ViewRight::Write),
        ];
        for (level, right) in rights {
            assert_eq!(ViewRight::of(level), right, "{level:?}");
        }
    }

    #[test]
    fn change_needs_the_permission_of_a_command() {
        use AccessLevel as Level;
        use ViewRight::{None, Read, Write};
        let table = [
            (Level::None, false, None, None),
            (Level::None, true, Write, Write),
            (Level::Read, false, Read, Read),
            (Level::Read, true, Write, Write),
            (Level::Write, true, Write, Write),
            // The operator's floor is higher.
            (Level::Write, false, Write, Read),
            (Level::Admin, false, Write, Read),
        ];
        for (level, may_command, view, change) in table {
            let facts = RightFacts { level, may_command };
            assert_eq!((facts.to_view(), facts.to_change()), (view, change), "{facts:?}");
        }
    }

    #[test]
    fn only_people_log_in() {
        use AccountKind::{Bot, User};
        let refused = |id, kind, suspended| may_not_log_in(UserId(id), kind, suspended, UserId(1)).is_some();
        assert!(!refused(5, User, false));
        assert!(refused(5, Bot, false) && refused(5, User, true) && refused(1, User, false));
        assert!(refused(0, User, false) && refused(-1, User, false));
    }

    #[test]
    fn session_ends_by_age_and_by_idleness() {
        let at = |hours: f64| Timestamp((hours * 3_600_000.0) as i64);
        assert!(!session_has_ended(at(0.0), at(0.0), at(1.9)));
        assert!(session_has_ended(at(0.0), at(0.0), at(2.0)), "it was not used");
        assert!(!session_has_ended(at(0.0), at(11.0), at(11.9)));
        assert!(session_has_ended(at(0.0), at(11.9), at(12.0)), "however often it was used");
    }

    /// See docs/research/threats.md#v3.
    #[test]
    fn redirect_path_stays_on_this_server() {
        for path in ["/", "/loops/r-7-abc?tab=log#i4-L120", "/a/b", "/loginx", "/?next=//evil.example", "/a//b", "/:80"]
        {
            assert_eq!(local_path(Some(path)), path);
        }
        let elsewhere = [
            "",
            "//evil.example",
            "///evil.example",
            "/\\evil.example",
            "\\\\evil.example",
            "\\/evil.example",
            "https://evil.example",
            "https:evil.example",
            "http:/evil.example",
            "javascript:alert(1)",
            "data:text/html,x",
            "evil.example",
            "./x",
            "../x",
            "/\t/evil.example",
            "/\n/evil.example",
            "\t//evil.example",
            " //evil.example",
            "/ /evil.example",
            "/\u{0}/evil.example",
            "/a\r\nSet-Cookie: x=y",
            "/\u{2028}x",
            "/ä",
            "/login",
            "/login?token=x",
            "/login/start/x",
            "/logout",
            "?x",
            "#x",
            "/.//evil.example",
            "/..//evil.example",
            "/x/..//evil.example",
            "/%2e%2e//evil.example",
            "ht\ntps://evil.example",
            "@evil.example",
            ":@evil.example",
            "/login#x",
        ];
        for path in elsewhere {
            assert_eq!(local_path(Some(path)), "/", "{path:?}");
        }
        assert_eq!(local_path(Some(&format!("/{}", "a".repeat(MAX_PATH)))), "/");
        assert_eq!(local_path(None), "/");
    }

    /// See docs/research/threats.md#v4.
    #[test]
    fn host_is_a_loopback_name() {
        for host in ["localhost", "LOCALHOST:8080", "127.0.0.1", "127.0.0.1:8080", "127.9.9.9", "[::1]", "[::1]:8080"] {
            assert!(is_loopback_host(host), "{host}");
        }
        let others = [
            "",
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "evil.example:8080",
            "0.0.0.0",
            "10.0.0.1",
            "[::]",
            "[::ffff:10.0.0.1]",
            "user@localhost",
            "evil.example#@localhost",
            "localhost/evil",
            "localhost evil",
            "x.localhost",
            "evil.example\\localhost",
            "localhost?x",
            "169.254.169.254",
        ];
        for host in others {
            assert!(!is_loopback_host(host), "{host}");
        }
    }

    /// See docs/research/threats.md#v1.
    #[test]
    fn change_of_another_site_is_recognized() {
        const OWN: &str = "https://ralph.example.org";
        for (origin, site) in [(None, None), (Some(OWN), None), (Some(OWN), Some("same-origin")), (None, Some("none"))]
        {
            assert!(is_from_own_page(origin, site, OWN), "{origin:?} {site:?}");
        }
        let others = [
            (Some("https://evil.example"), None),
            (Some("null"), None),
            (Some(""), None),
            (Some("http://ralph.example.org"), Some("same-origin")),
            (Some("https://ralph.example.org.evil.example"), None),
            (Some("https://ralph.example.org:444"), None),
            (None, Some("cross-site")),
            (None, Some("same-site")),
            (Some(OWN), Some("cross-site")),
            (Some(OWN), Some("")),
        ];
        for (origin, site) in others {
            assert!(!is_from_own_page(origin, site, OWN), "{origin:?} {site:?}");
        }
    }

    #[test]
    fn address_is_delayed_after_failed_attempts() {
        let (mut failed, from, other) =
            (FailedAttempts::default(), "10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        let at = |minutes: i64| Timestamp(minutes * 60_000);
        for _ in 0..MAX_FAILURES {
            assert_eq!(failed.wait_ms(from, at(1)), None);
            failed.add(from, at(1));
        }
        assert_eq!(failed.wait_ms(from, at(3)), Some(8 * 60_000));
        assert_eq!(failed.wait_ms("::ffff:10.0.0.1".parse().unwrap(), at(3)), Some(8 * 60_000), "the same address");
        assert_eq!(failed.wait_ms(other, at(3)), None);
        assert_eq!(failed.wait_ms(from, at(11)), None, "the time is over");
        failed.add(from, at(11));
        assert_eq!(failed.wait_ms(from, at(11)), None, "counted anew");
    }

    #[test]
    fn addresses_of_one_network_count_together() {
        let mut failed = FailedAttempts::default();
        for host in 0..MAX_FAILURES {
            failed.add(format!("2001:db8:1:2::{host:x}").parse().unwrap(), Timestamp(0));
        }
        assert!(failed.wait_ms("2001:db8:1:2:ffff::1".parse().unwrap(), Timestamp(0)).is_some());
        assert!(failed.wait_ms("2001:db8:1:3::1".parse().unwrap(), Timestamp(0)).is_none());
    }

    #[test]
    fn number_of_stored_failures_is_bounded() {
        let mut failed = FailedAttempts::default();
        for number in 0..u32::try_from(MAX_ADDRESSES).unwrap() + 500 {
            failed.add(IpAddr::V4(Ipv4Addr::from_bits(number)), Timestamp(i64::from(number)));
        }
        assert_eq!(failed.0.len(), MAX_ADDRESSES);
        assert!(!failed.0.contains_key(&IpAddr::V4(Ipv4Addr::from_bits(0))), "the oldest goes");
    }
}
