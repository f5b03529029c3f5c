//! Authentication: a personal token, or an App that signs requests for short-lived tokens of its installations.
//!
//! Tokens are kept in memory only. Each token is limited to one repository and one purpose, is renewed five minutes
//! before it expires, and is requested only once even if several calls wait for it.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jsonwebtoken::EncodingKey;
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use serde_json::{Value, json};

use crate::domain::model::ids::{RepoId, RepoRef, Timestamp};

/// Minimum remaining lifetime of a token that is used, in milliseconds, so that git has time to finish.
const RENEW_BEFORE_MS: i64 = 5 * 60_000;
/// Time by which a signature is backdated, in seconds; GitHub recommends it against clock drift.
const ISSUED_BEFORE_S: i64 = 60;
/// Lifetime of a signature from its date, in seconds; GitHub accepts at most 600.
const SIGNATURE_S: i64 = 9 * 60;
/// Minimum clock difference that justifies another attempt, in milliseconds.
const MIN_SKEW_MS: i64 = 2_000;

/// Purpose of an installation token, which determines its permissions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Purpose {
    /// API calls. GitHub requires `contents: write` to mark a pull request as ready.
    Api,
    /// Setting check runs. This needs a separate token, because installations may not have accepted the permission.
    Checks,
    /// Fetching with git.
    Fetch,
    /// Pushing with git.
    Push,
    /// Reading team memberships of the organization.
    Members,
    /// Reading accounts and the list of repositories.
    Metadata,
}

impl Purpose {
    fn permissions(self) -> Value {
        match self {
            Self::Api => {
                let access = |(name, access): &(&'static str, &'static str)| match *name {
                    "checks" => (*name, "read"),
                    _ => (*name, *access),
                };
                super::PERMISSIONS.iter().map(access).collect()
            }
            Self::Checks => json!({ "checks": "write", "metadata": "read" }),
            Self::Fetch => json!({ "contents": "read", "metadata": "read" }),
            Self::Push => json!({ "contents": "write", "metadata": "read" }),
            Self::Members => json!({ "members": "read", "metadata": "read" }),
            Self::Metadata => json!({ "metadata": "read" }),
        }
    }
}

/// Credential of a call.
#[derive(Debug, Clone, Copy)]
pub(super) enum Scope<'a> {
    /// No credential.
    Anonymous,
    /// The App itself, or the personal token.
    Own,
    /// An installation with all of its repositories, for metadata.
    Installation(u64),
    /// Token for a single repository.
    Repository(&'a RepoRef, Purpose),
}

/// Key of a cached token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum TokenKey {
    /// Token of an installation, for metadata only.
    Installation(u64),
    /// Token of one repository.
    Repository(RepoId, Purpose),
}

impl TokenKey {
    /// Returns the body of the request for a token: its repository and permissions.
    pub(super) fn request(self) -> Value {
        match self {
            Self::Installation(_) => json!({ "permissions": Purpose::Metadata.permissions() }),
            Self::Repository(id, purpose) => {
                json!({ "repository_ids": [id.0], "permissions": purpose.permissions() })
            }
        }
    }
}

/// A token of an installation.
#[derive(Clone)]
pub(super) struct InstallationToken {
    pub(super) token: SecretString,
    pub(super) expires_at: Timestamp,
    /// Time of its creation.
    pub(super) minted_at: Timestamp,
}

impl InstallationToken {
    /// Returns the remaining part of `settling_ms`, in milliseconds; 0 if the token is older. `settling_ms` is the
    /// time after its creation for which some servers may not know a token.
    pub(super) fn settles_in_ms(&self, settling_ms: i64, now: Timestamp) -> i64 {
        let age = now.since(self.minted_at);
        if (0..settling_ms).contains(&age) { settling_ms - age } else { 0 }
    }
}

/// Slot for a cached token. It is locked during the request, so that concurrent callers request the token once.
pub(super) type TokenSlot = Arc<tokio::sync::Mutex<Option<InstallationToken>>>;

/// GitHub App with its key, installations and cached tokens.
pub(super) struct GitHubApp {
    pub(super) id: u64,
    key: EncodingKey,
    /// Difference of the server's clock in its newest response, in milliseconds; positive if the server's clock is
    /// ahead.
    pub(super) observed_ahead_ms: Arc<AtomicI64>,
    /// Difference used for signatures, in milliseconds; 0 until GitHub rejects the dates of a signature.
    ahead_ms: AtomicI64,
    installations: Mutex<HashMap<RepoId, u64>>,
    slots: Mutex<HashMap<TokenKey, TokenSlot>>,
}

#[derive(Serialize)]
struct AppClaims {
    iat: i64,
    exp: i64,
    iss: String,
}

impl GitHubApp {
    /// Creates an App from its private key.
    ///
    /// # Errors
    /// The key is not an RSA key in PEM format.
    pub(super) fn new(id: u64, pem: &SecretString) -> Result<Self, jsonwebtoken::errors::Error> {
        Ok(Self {
            id,
            key: EncodingKey::from_rsa_pem(pem.expose_secret().as_bytes())?,
            observed_ahead_ms: Arc::default(),
            ahead_ms: AtomicI64::new(0),
            installations: Mutex::default(),
            slots: Mutex::default(),
        })
    }

    /// Returns the estimated time of the server.
    fn server_time(&self, now: Timestamp) -> Timestamp {
        now.plus_ms(self.ahead_ms.load(Ordering::Relaxed))
    }

    /// Returns a signed JSON Web Token of the App.
    pub(super) fn signature(&self, now: Timestamp) -> Result<SecretString, jsonwebtoken::errors::Error> {
        let issued = self.server_time(now).0.div_euclid(1000) - ISSUED_BEFORE_S;
        let claims = AppClaims { iat: issued, exp: issued + SIGNATURE_S, iss: self.id.to_string() };
        jwt_ring::encode(&claims, &self.key).map(SecretString::from)
    }

    /// Adopts the server's clock if GitHub rejected the dates of a signature. Returns whether a retry may succeed.
    pub(super) fn adjust_clock(&self, refusal: &str) -> bool {
        let rejects_dates = ["'Expiration time'", "'Issued at'"].iter().any(|claim| refusal.contains(claim));
        let observed = self.observed_ahead_ms.load(Ordering::Relaxed);
        if !rejects_dates || (observed - self.ahead_ms.load(Ordering::Relaxed)).abs() < MIN_SKEW_MS {
            return false;
        }
        tracing::warn!(
            ahead_ms = observed,
            "the clocks of this machine and of GitHub differ; using GitHub's time for signatures"
        );
        self.ahead_ms.store(observed, Ordering::Relaxed);
        true
    }

    /// Whether a token is valid for long enough.
    pub(super) fn is_fresh(&self, minted: &InstallationToken, now: Timestamp) -> bool {
        self.server_time(now).plus_ms(RENEW_BEFORE_MS) < minted.expires_at
    }

    /// Returns the slot of a token.
    pub(super) fn slot(&self, key: TokenKey) -> TokenSlot {
        lock(&self.slots).entry(key).or_default().clone()
    }

    /// Returns the cached installation of a repository.
    pub(super) fn installation(&self, repo: RepoId) -> Option<u64> {
        lock(&self.installations).get(&repo).copied()
    }

    /// Caches the installation of a repository; `None` removes it.
    pub(super) fn set_installation(&self, repo: RepoId, installation: Option<u64>) {
        match installation {
            Some(id) => lock(&self.installations).insert(repo, id),
            None => lock(&self.installations).remove(&repo),
        };
    }

    /// Removes a token that GitHub rejected, unless it was already replaced. Also removes the repository's cached
    /// installation, because the App may have been reinstalled.
    pub(super) async fn forget(&self, key: TokenKey, refused: &SecretString) {
        let slot = self.slot(key);
        let mut held = slot.lock().await;
        if held.as_ref().is_some_and(|minted| minted.token.expose_secret() == refused.expose_secret()) {
            *held = None;
            if let TokenKey::Repository(repo, _) = key {
                self.set_installation(repo, None);
            }
        }
    }
}

/// Identity on the server.
pub(super) enum Identity {
    /// Personal token.
    Token(SecretString),
    /// GitHub App.
    App(GitHubApp),
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Token(_) => f.write_str("Token(…)"),
            Self::App(app) => write!(f, "App({})", app.id),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Code under these locks runs single map operations, so the maps are valid even after a panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
