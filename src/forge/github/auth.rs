//! Who we are to GitHub: a personal token, or an App that signs for short-lived tokens of its installations.
//!
//! Tokens live in memory only. Each is narrowed to one repository and one purpose, renewed five minutes before it
//! ends, and asked for once however many calls wait for it.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jsonwebtoken::{Algorithm, EncodingKey, Header};
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use serde_json::{Value, json};

use crate::domain::model::ids::{RepoId, RepoRef, Timestamp};

/// How long before its end a token is no longer handed out, in milliseconds; git must be able to finish with it.
const RENEW_BEFORE_MS: i64 = 5 * 60_000;
/// How far back a signature is dated, in seconds, as GitHub recommends against clocks that run apart.
const ISSUED_BEFORE_S: i64 = 60;
/// How long a signature holds from its date, in seconds; GitHub takes at most 600.
const SIGNATURE_S: i64 = 9 * 60;
/// Differences between the clocks below this are not worth a second try, in milliseconds.
const SKEW_WORTH_MS: i64 = 2_000;

/// What a token of an installation is for; decides what it may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Purpose {
    /// Calls of the API. GitHub wants `contents: write` to take a pull request out of draft.
    Api,
    /// Reading with git.
    Fetch,
    /// Pushing with git.
    Push,
    /// Asking who is in a team of the organisation.
    Members,
    /// Reading what is public to the installation: its list of repositories, accounts.
    Metadata,
}

impl Purpose {
    fn permissions(self) -> Value {
        match self {
            Self::Api => super::PERMISSIONS.iter().map(|(name, access)| (*name, *access)).collect(),
            Self::Fetch => json!({ "contents": "read", "metadata": "read" }),
            Self::Push => json!({ "contents": "write", "metadata": "read" }),
            Self::Members => json!({ "members": "read", "metadata": "read" }),
            Self::Metadata => json!({ "metadata": "read" }),
        }
    }
}

/// In whose name a call is made.
#[derive(Debug, Clone, Copy)]
pub(super) enum Scope<'a> {
    /// Nobody's.
    Nobody,
    /// The App's own, or the personal token's.
    Own,
    /// An installation's, all of its repositories, to read what there is.
    Installation(u64),
    /// A repository's.
    Repository(&'a RepoRef, Purpose),
}

/// Which token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum TokenKey {
    /// Of an installation, metadata only.
    Installation(u64),
    /// Of one repository.
    Repository(RepoId, Purpose),
}

impl TokenKey {
    /// What GitHub is asked for: the token's repository and permissions.
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
pub(super) struct Minted {
    pub(super) token: SecretString,
    pub(super) expires_at: Timestamp,
}

/// The place of one token; held locked while it is asked for, so that it is asked for once.
pub(super) type Slot = Arc<tokio::sync::Mutex<Option<Minted>>>;

/// A GitHub App's key and what was made with it.
pub(super) struct App {
    id: u64,
    key: EncodingKey,
    /// How far the server's clock was ahead in its newest answer.
    pub(super) observed_ahead_ms: Arc<AtomicI64>,
    /// How far it is taken to be ahead: 0 until GitHub refuses a signature's dates.
    ahead_ms: AtomicI64,
    installations: Mutex<HashMap<RepoId, u64>>,
    slots: Mutex<HashMap<TokenKey, Slot>>,
}

#[derive(Serialize)]
struct Claims {
    iat: i64,
    exp: i64,
    iss: String,
}

impl App {
    /// Takes the key that GitHub made for the App.
    ///
    /// # Errors
    /// When it is no RSA key in PEM form.
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

    /// The server's time, as far as we know it.
    fn server_time(&self, now: Timestamp) -> Timestamp {
        now.plus_ms(self.ahead_ms.load(Ordering::Relaxed))
    }

    /// A signature that says we are the App.
    pub(super) fn signature(&self, now: Timestamp) -> Result<SecretString, jsonwebtoken::errors::Error> {
        let issued = self.server_time(now).0.div_euclid(1000) - ISSUED_BEFORE_S;
        let claims = Claims { iat: issued, exp: issued + SIGNATURE_S, iss: self.id.to_string() };
        jsonwebtoken::encode(&Header::new(Algorithm::RS256), &claims, &self.key).map(SecretString::from)
    }

    /// Takes over the server's clock when a refusal blames a signature's dates; whether another try is worth it.
    pub(super) fn corrects_clock(&self, refusal: &str) -> bool {
        let blamed = ["'Expiration time'", "'Issued at'"].iter().any(|claim| refusal.contains(claim));
        let observed = self.observed_ahead_ms.load(Ordering::Relaxed);
        if !blamed || (observed - self.ahead_ms.load(Ordering::Relaxed)).abs() < SKEW_WORTH_MS {
            return false;
        }
        tracing::warn!(ahead_ms = observed, "the clock of this machine and GitHub's differ; GitHub's is used");
        self.ahead_ms.store(observed, Ordering::Relaxed);
        true
    }

    /// Whether a token may still be handed out.
    pub(super) fn is_fresh(&self, minted: &Minted, now: Timestamp) -> bool {
        self.server_time(now).plus_ms(RENEW_BEFORE_MS) < minted.expires_at
    }

    /// The place of a token.
    pub(super) fn slot(&self, key: TokenKey) -> Slot {
        lock(&self.slots).entry(key).or_default().clone()
    }

    /// The installation that a repository belongs to, if it was asked for before.
    pub(super) fn installation(&self, repo: RepoId) -> Option<u64> {
        lock(&self.installations).get(&repo).copied()
    }

    /// Remembers, or with `None` forgets, a repository's installation.
    pub(super) fn set_installation(&self, repo: RepoId, installation: Option<u64>) {
        match installation {
            Some(id) => lock(&self.installations).insert(repo, id),
            None => lock(&self.installations).remove(&repo),
        };
    }

    /// Forgets a token that GitHub refused, unless another has taken its place; and where it came from, because the
    /// App may have been installed anew.
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

/// How we sign in.
pub(super) enum Identity {
    /// With a personal token.
    Token(SecretString),
    /// As an App.
    App(App),
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
    // Single map operations happen under these locks, so the maps are sound even after a panic elsewhere.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
