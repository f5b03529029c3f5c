//! OAuth 2.0 applications for logins, and the codes issued for them.

use std::collections::BTreeMap;

use data_encoding::BASE64URL_NOPAD;
use sha2::{Digest, Sha256};

use super::{FakeState, FakeToken};
use ralph_types::ids::{Timestamp, UserId};

/// Validity of a code, in milliseconds, on both forges.
const CODE_MS: i64 = 10 * 60_000;
/// Validity of a login's token, in milliseconds.
const TOKEN_MS: i64 = 3_600_000;

/// OAuth application for logins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FakeLoginApp {
    /// Id of the application.
    pub id: i64,
    /// Owner of the application.
    pub owner: UserId,
    /// Name of the application.
    pub name: String,
    /// Client id.
    pub client_id: String,
    /// Client secret.
    pub secret: String,
    /// Allowed redirect addresses for codes.
    pub redirects: Vec<String>,
}

/// Code issued to a browser.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FakeCode {
    client_id: String,
    user: UserId,
    redirect: String,
    challenge: Option<String>,
    scopes: Vec<String>,
    expires_at: Timestamp,
}

/// Applications and codes.
#[derive(Debug, Default)]
pub struct FakeLogins {
    /// Applications, oldest first.
    pub apps: Vec<FakeLoginApp>,
    codes: BTreeMap<String, FakeCode>,
    /// Number of tokens issued to logins.
    pub tokens_given: u32,
}

/// Request for access by a login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LoginAsked {
    pub client_id: String,
    pub redirect: String,
    pub challenge: Option<String>,
    pub scopes: Vec<String>,
}

/// Reason for rejecting a code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CodeRefusal {
    /// The client id or secret is wrong.
    Client,
    /// The redirect address differs from the code's redirect address.
    Redirect,
    /// The code is unknown, used or expired, or belongs to another client.
    Code,
    /// The verifier is missing or wrong.
    Verifier,
}

impl FakeState {
    /// Creates an application.
    pub fn add_login_app(&mut self, owner: UserId, name: &str, redirects: Vec<String>) -> FakeLoginApp {
        let id = self.fresh_id();
        let client_id = format!("client-{id}");
        let app = FakeLoginApp { id, owner, name: name.to_owned(), client_id, secret: self.fresh_secret(), redirects };
        self.logins.apps.push(app.clone());
        app
    }

    /// Returns a new secret, which is predictable.
    pub(crate) fn fresh_secret(&mut self) -> String {
        format!("secret-{:032x}", (self.fresh_id() as u128).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c8a9))
    }

    pub(crate) fn login_app(&self, client_id: &str) -> Option<&FakeLoginApp> {
        self.logins.apps.iter().find(|app| app.client_id == client_id)
    }

    /// Returns a code for an account that grants access.
    pub(crate) fn agree_to_login(&mut self, user: UserId, asked: &LoginAsked) -> String {
        let code = format!("code-{}", self.fresh_secret());
        let entry = FakeCode {
            client_id: asked.client_id.clone(),
            user,
            redirect: asked.redirect.clone(),
            challenge: asked.challenge.clone(),
            scopes: asked.scopes.clone(),
            expires_at: self.clock.now().plus_ms(CODE_MS),
        };
        self.logins.codes.insert(code.clone(), entry);
        code
    }

    /// Exchanges a code for a token. The first request with the client's secret invalidates the code.
    pub(crate) fn exchange_code(
        &mut self,
        (client_id, secret): (&str, &str),
        code: &str,
        redirect: &str,
        verifier: Option<&str>,
    ) -> Result<(String, Vec<String>), CodeRefusal> {
        let known = self.login_app(client_id).is_some_and(|app| app.secret == secret);
        if !known {
            return Err(CodeRefusal::Client);
        }
        let found = self.logins.codes.remove(code).ok_or(CodeRefusal::Code)?;
        if found.client_id != client_id || found.expires_at <= self.clock.now() {
            return Err(CodeRefusal::Code);
        }
        if found.redirect != redirect {
            return Err(CodeRefusal::Redirect);
        }
        if let Some(challenge) = &found.challenge {
            let given = verifier.map(|verifier| BASE64URL_NOPAD.encode(&Sha256::digest(verifier)));
            if given.as_ref() != Some(challenge) {
                return Err(CodeRefusal::Verifier);
            }
        }
        let token = format!("login-{}", self.fresh_secret());
        let expires_at = Some(self.clock.now().plus_ms(TOKEN_MS));
        let scopes = Some(found.scopes.clone());
        self.tokens.insert(token.clone(), FakeToken { user: found.user, scopes, expires_at });
        self.logins.tokens_given += 1;
        Ok((token, found.scopes))
    }
}
