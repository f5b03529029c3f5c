//! Access to the setup for browsers that entered the token which `ralph-bot serve` prints.

use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use axum::http::{HeaderMap, HeaderValue, header};
use data_encoding::{BASE64URL_NOPAD, HEXLOWER};
use hmac::{Hmac, KeyInit, Mac};
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::config::webhook_secrets::{SECRET_BYTES, random_secret};
use crate::domain::model::ids::Timestamp;
use crate::domain::trust::viewer::{FailedAttempts, is_from_own_page};

const COOKIE: &str = "ralph-setup";
/// Maximum number of browsers that are remembered; the oldest are forgotten.
const MAX_BROWSERS: usize = 16;

/// Access token, and the browsers that entered it.
pub(super) struct SetupAccess {
    token: SecretString,
    browsers: Mutex<Vec<String>>,
    failed: Mutex<FailedAttempts>,
}

/// Browser that entered the token, identified by the value of its cookie.
#[derive(Clone)]
pub(super) struct SetupBrowser(String);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn same(a: &str, b: &str) -> bool {
    bool::from(a.as_bytes().ct_eq(b.as_bytes()))
}

fn digest(value: &str) -> String {
    HEXLOWER.encode(&Sha256::digest(value))
}

impl SetupBrowser {
    /// Returns an identifier of the browser that can be stored.
    pub(super) fn name(&self) -> String {
        digest(&self.0)
    }

    /// Returns the value that the browser's forms must send back.
    pub(super) fn csrf(&self) -> String {
        let mac = Hmac::<Sha256>::new_from_slice(self.0.as_bytes()).map(|mac| mac.chain_update("csrf").finalize());
        mac.map(|mac| BASE64URL_NOPAD.encode(&mac.into_bytes())).unwrap_or_default()
    }

    /// Whether a form contains this browser's value.
    pub(super) fn sent(&self, csrf: &str) -> bool {
        !csrf.is_empty() && same(&self.csrf(), csrf)
    }
}

impl SetupAccess {
    /// Creates the access control with a new token.
    ///
    /// # Errors
    /// The system provides no random numbers.
    pub(super) fn new() -> std::io::Result<Self> {
        let token = random_secret()?.into();
        Ok(Self { token, browsers: Mutex::default(), failed: Mutex::default() })
    }

    /// Returns the token.
    pub(super) fn token(&self) -> &SecretString {
        &self.token
    }

    /// Returns the time, in milliseconds, that an address has to wait after failed attempts; `None` if it need not
    /// wait.
    pub(super) fn wait_ms(&self, from: IpAddr, now: Timestamp) -> Option<i64> {
        lock(&self.failed).wait_ms(from, now)
    }

    /// Counts and logs a wrong token.
    pub(super) fn has_failed(&self, from: IpAddr, now: Timestamp) {
        lock(&self.failed).add(from, now);
        tracing::warn!(%from, "a wrong token for the set-up");
    }

    /// Admits a browser that sends the token, and returns the header that sets its cookie. `None` for a wrong token.
    ///
    /// # Errors
    /// The system provides no random numbers.
    pub(super) fn enter(&self, token: &str, secure: bool) -> std::io::Result<Option<HeaderValue>> {
        if !same(self.token.expose_secret(), token) {
            return Ok(None);
        }
        let value = random_secret()?;
        let mut browsers = lock(&self.browsers);
        if browsers.len() >= MAX_BROWSERS {
            browsers.remove(0);
        }
        browsers.push(digest(&value));
        let secure = if secure { "; Secure" } else { "" };
        // GitHub sends the browser back from its own pages: `Strict` would leave the cookie out.
        let text = format!("{COOKIE}={value}; Path=/; HttpOnly; SameSite=Lax{secure}");
        let mut cookie = HeaderValue::from_str(&text).map_err(std::io::Error::other)?;
        cookie.set_sensitive(true);
        Ok(Some(cookie))
    }

    /// Returns the browser of a request; `None` if it has not entered the token.
    pub(super) fn browser(&self, headers: &HeaderMap) -> Option<SetupBrowser> {
        let lines = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
        let mut pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
        let (_, value) = pairs.find(|(key, value)| *key == COOKIE && value.len() == 2 * SECRET_BYTES)?;
        let wanted = digest(value);
        let known = lock(&self.browsers).iter().fold(false, |found, known| found | same(known, &wanted));
        known.then(|| SetupBrowser(value.to_owned()))
    }
}

/// Returns the origin at which a browser reaches this server. The scheme comes from the browser's or a proxy's
/// headers.
pub(super) fn own_origin(headers: &HeaderMap) -> String {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let host = text("host").unwrap_or("localhost");
    let host: String = host.chars().filter(|c| c.is_ascii_alphanumeric() || ".-:[]".contains(*c)).collect();
    let secure = text("x-forwarded-proto") == Some("https")
        || text("origin").is_some_and(|origin| origin == format!("https://{host}"));
    format!("{}://{host}", if secure { "https" } else { "http" })
}

/// Whether a change comes from a page of this server, according to the browser's headers.
pub(super) fn is_own_change(headers: &HeaderMap) -> bool {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    is_from_own_page(text("origin"), text("sec-fetch-site"), &own_origin(headers))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    const NOW: Timestamp = Timestamp(1_000_000);

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (header::HeaderName::from_static(name), HeaderValue::from_str(value).unwrap()))
            .collect()
    }

    #[test]
    fn browser_is_recognized_by_cookie_and_forms_by_value() {
        let access = SetupAccess::new().unwrap();
        let token = access.token().expose_secret().to_owned();
        let set = access.enter(&token, false).unwrap().unwrap();
        let cookie = set.to_str().unwrap().split(';').next().unwrap().to_owned();
        assert!(set.to_str().unwrap().ends_with("; Path=/; HttpOnly; SameSite=Lax") && !cookie.contains(&token));
        let browser = access.browser(&headers(&[("cookie", &format!("a=b; {cookie}"))])).unwrap();
        assert!(browser.sent(&browser.csrf()) && !browser.sent("") && !browser.sent("x"));
        let other = format!("{COOKIE}={}", "0".repeat(64));
        assert!(access.browser(&headers(&[("cookie", &other)])).is_none());
        assert!(access.browser(&HeaderMap::new()).is_none());
        assert!(access.enter(&token, true).unwrap().unwrap().to_str().unwrap().ends_with("; Secure"));
    }

    #[test]
    fn wrong_tokens_delay_an_address() {
        let access = SetupAccess::new().unwrap();
        for _ in 0..20 {
            assert!(access.wait_ms(HERE, NOW).is_none());
            assert!(access.enter("wrong", false).unwrap().is_none());
            access.has_failed(HERE, NOW);
        }
        assert!(access.wait_ms(HERE, NOW).is_some());
    }

    #[test]
    fn change_from_another_site_is_recognized() {
        assert!(is_own_change(&headers(&[("host", "127.0.0.1:8080"), ("origin", "http://127.0.0.1:8080")])));
        assert!(is_own_change(&headers(&[("host", "r.example.org"), ("origin", "https://r.example.org")])));
        assert!(!is_own_change(&headers(&[("host", "r.example.org"), ("origin", "https://evil.example")])));
        assert!(!is_own_change(&headers(&[("host", "r.example.org"), ("sec-fetch-site", "cross-site")])));
        assert!(!is_own_change(&headers(&[("host", "r.example.org"), ("origin", "null")])));
    }
}
