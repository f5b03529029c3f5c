//! Cookies with random values, inaccessible to scripts, and values derived from them.

use axum::http::{HeaderMap, HeaderValue, header};
use data_encoding::{BASE64URL_NOPAD, HEXLOWER};
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

use crate::config::webhook_secrets::SECRET_BYTES;
use crate::domain::trust::viewer::{LOGIN_MS, SESSION_MS};

/// Cookie of the dashboard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WebCookie {
    /// Cookie of a session.
    Session,
    /// Cookie of a browser with a started login.
    Login,
}

impl WebCookie {
    /// Returns the cookie's name. With https, browsers accept a cookie with this name only from this host and over https.
    fn name(self, https: bool) -> &'static str {
        match (self, https) {
            (Self::Session, true) => "__Host-ralph-session",
            (Self::Session, false) => "ralph-session",
            (Self::Login, true) => "__Host-ralph-login",
            (Self::Login, false) => "ralph-login",
        }
    }

    fn seconds(self) -> i64 {
        match self {
            Self::Session => SESSION_MS / 1000,
            Self::Login => LOGIN_MS / 1000,
        }
    }

    /// Returns the cookie's value in a request; `None` if it is missing or not in the format of the service's random
    /// secrets.
    pub(super) fn of(self, headers: &HeaderMap, https: bool) -> Option<String> {
        let name = self.name(https);
        let lines = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
        let pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
        let value = pairs.filter(|(key, _)| *key == name).map(|(_, value)| value).next()?;
        let ours = value.len() == 2 * SECRET_BYTES && value.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        ours.then(|| value.to_owned())
    }

    /// Returns the header that sets the cookie; an empty value removes it.
    pub(super) fn set(self, value: &str, https: bool) -> HeaderValue {
        let (name, seconds) = (self.name(https), if value.is_empty() { 0 } else { self.seconds() });
        let secure = if https { "; Secure" } else { "" };
        let text = format!("{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Lax{secure}");
        let mut header = HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static(""));
        header.set_sensitive(true);
        header
    }
}

/// Returns the digest that identifies a random value in the database.
pub(super) fn digest(value: &str) -> String {
    HEXLOWER.encode(&Sha256::digest(value))
}

/// Derives a value for one purpose from a browser's secret value.
pub(super) fn derived(held: &str, purpose: &str) -> String {
    let mac = Hmac::<Sha256>::new_from_slice(held.as_bytes()).map(|mac| mac.chain_update(purpose).finalize());
    // HMAC accepts keys of any length. The empty value of an error would match no request.
    mac.map(|mac| BASE64URL_NOPAD.encode(&mac.into_bytes())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::webhook_secrets::random_secret;

    fn random() -> String {
        random_secret().unwrap()
    }

    fn sent(line: &str) -> HeaderMap {
        HeaderMap::from_iter([(header::COOKIE, HeaderValue::from_str(line).unwrap())])
    }

    #[test]
    fn cookie_is_bound_to_the_host_over_https() {
        let value = random();
        assert_eq!(
            WebCookie::Session.set(&value, true).to_str().unwrap(),
            format!("__Host-ralph-session={value}; Path=/; Max-Age=43200; HttpOnly; SameSite=Lax; Secure")
        );
        assert_eq!(
            WebCookie::Login.set("", false).to_str().unwrap(),
            "ralph-login=; Path=/; Max-Age=0; HttpOnly; SameSite=Lax"
        );
        assert!(WebCookie::Session.set(&value, true).is_sensitive());
    }

    #[test]
    fn cookie_value_is_read_if_it_has_a_valid_format() {
        let value = random();
        let of = |line: &str| WebCookie::Session.of(&sent(line), false);
        assert_eq!(of(&format!("a=b; ralph-session={value}; c=d")), Some(value.clone()));
        for other in [String::new(), "short".into(), format!("{value}x"), "'".repeat(64)] {
            assert_eq!(of(&format!("ralph-session={other}")), None, "{other}");
        }
        assert_eq!(WebCookie::Session.of(&sent(&format!("ralph-session={value}")), true), None, "not the host's");
        assert_eq!(WebCookie::Login.of(&sent(&format!("ralph-session={value}")), false), None);
    }

    #[test]
    fn random_values_differ_and_derived_ones_depend_on_the_purpose() {
        let (one, two) = (random(), random());
        assert_ne!(one, two);
        assert_eq!(derived(&one, "csrf").len(), 43);
        assert_ne!(derived(&one, "csrf"), derived(&one, "pkce"));
        assert_ne!(derived(&one, "csrf"), derived(&two, "csrf"));
        assert_ne!(digest(&one), one);
    }
}
