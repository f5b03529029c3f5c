//! Who asks, and what they may see and do.

use std::sync::Arc;

use axum::Router;
use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use secrecy::{ExposeSecret, SecretString};
use subtle::ConstantTimeEq;

use super::WebState;
use crate::domain::model::ids::{ForgeName, RepoRef, User};
use crate::domain::trust::viewer::ViewRight;
use crate::engine::Engine;

/// Person or program that asks.
#[derive(Debug, Clone)]
pub struct Viewer {
    /// Account that logged in with its forge; `None` for the token that `serve` prints.
    pub account: Option<(ForgeName, User)>,
    /// Whether all repositories are visible.
    pub operator: bool,
    /// Token that forms send back with each change, against requests from other sites.
    pub csrf: String,
}

/// Sessions and rights.
pub struct Access {
    /// Token of the operator on this machine, for a dashboard without a login.
    pub token: SecretString,
}

impl Access {
    /// Returns the right of a viewer in a repository. `fresh` asks the forge again, as each change does; otherwise an answer of
    /// the last five minutes is enough.
    pub async fn right(&self, _engine: &Engine, viewer: &Viewer, _repo: &RepoRef, _fresh: bool) -> ViewRight {
        if viewer.operator { ViewRight::Operate } else { ViewRight::None }
    }
}

impl FromRequestParts<Arc<WebState>> for Viewer {
    type Rejection = StatusCode;

    async fn from_request_parts(parts: &mut Parts, state: &Arc<WebState>) -> Result<Self, Self::Rejection> {
        let header = parts.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let token = header.and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default();
        let known = state.access.token.expose_secret().as_bytes().ct_eq(token.as_bytes());
        if bool::from(known) {
            Ok(Self { account: None, operator: true, csrf: String::new() })
        } else {
            Err(StatusCode::UNAUTHORIZED)
        }
    }
}

/// Returns the routes of login and logout.
pub(super) fn routes() -> Router<Arc<WebState>> {
    Router::new()
}
