//! Parts of requests: who asks, the query, and the body.

use std::sync::Arc;

use axum::body::to_bytes;
use axum::extract::{FromRequest, FromRequestParts, Query, Request};
use axum::http::request::Parts;
use axum::http::{Method, StatusCode, header};
use axum::response::IntoResponse;
use serde::de::DeserializeOwned;
use subtle::ConstantTimeEq;

use super::personal_token::{TokenViewer, viewer_of_token};
use super::problem::ApiProblem;
use crate::store::tokens::ApiScope;
use crate::web::{Viewer, WebState};

/// Maximum size of a body, in bytes.
pub const MAX_BODY: usize = 64 * 1024;
/// Header in which a session repeats its token against requests from other sites.
const CSRF_HEADER: &str = "x-csrf-token";

/// Viewer of a request, by session or token, and the scope of the token.
pub struct ApiViewer {
    /// The viewer.
    pub viewer: Viewer,
    /// Personal token of the request; `None` for a session and for the token that `serve` prints.
    pub token: Option<TokenViewer>,
}

impl FromRequestParts<Arc<WebState>> for ApiViewer {
    type Rejection = ApiProblem;

    async fn from_request_parts(parts: &mut Parts, state: &Arc<WebState>) -> Result<Self, Self::Rejection> {
        let changes = !matches!(parts.method, Method::GET | Method::HEAD);
        let bearer = parts.headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let bearer = bearer.and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default();
        let now = state.engine.clock.now();
        if let Some(token) = viewer_of_token(&state.engine.store, bearer, now).await? {
            if changes && token.scope == ApiScope::Read {
                return Err(ApiProblem::forbidden(
                    "the token only permits reading",
                    "make a token with the scope `write`",
                ));
            }
            let viewer = Viewer { account: token.account.clone(), operator: token.operator, csrf: String::new() };
            return Ok(Self { viewer, token: Some(token) });
        }
        // Anything that is no personal token, valid or not, is for sessions and their limits.
        let viewer = Viewer::from_request_parts(parts, state).await.map_err(|rejection| {
            match rejection.into_response().status() {
                StatusCode::UNAUTHORIZED => ApiProblem::unauthorized(),
                StatusCode::TOO_MANY_REQUESTS => ApiProblem::new(
                    StatusCode::TOO_MANY_REQUESTS,
                    "too many requests with invalid tokens came from this address",
                    "wait a minute and send a valid token",
                )
                .retry_after(60),
                status => ApiProblem::new(status, "the request was refused", "log in again, or use a token"),
            }
        })?;
        if changes && !viewer.csrf.is_empty() {
            let sent = parts.headers.get(CSRF_HEADER).map(|value| value.as_bytes()).unwrap_or_default();
            if !bool::from(sent.ct_eq(viewer.csrf.as_bytes())) {
                return Err(ApiProblem::forbidden(
                    format!("a change by a session needs its token in the header {CSRF_HEADER}"),
                    "send the token of the page's forms, or use a personal token",
                ));
            }
        }
        Ok(Self { viewer, token: None })
    }
}

/// Query of a request; unknown keys are refused.
pub struct ApiQuery<T>(pub T);

impl<T: DeserializeOwned + Send> FromRequestParts<Arc<WebState>> for ApiQuery<T> {
    type Rejection = ApiProblem;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<WebState>) -> Result<Self, Self::Rejection> {
        let read = Query::<T>::try_from_uri(&parts.uri);
        read.map(|Query(query)| Self(query)).map_err(|error| {
            // The text of the outer error says nothing; that of the inner one names the key.
            let why = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
            ApiProblem::invalid(
                format!("the query of {} is invalid: {why}", parts.uri.path()),
                "see the parameters of this path in the API's description",
            )
        })
    }
}

/// JSON body of a request.
pub struct ApiBody<T>(pub T);

impl<T: DeserializeOwned> FromRequest<Arc<WebState>> for ApiBody<T> {
    type Rejection = ApiProblem;

    async fn from_request(request: Request, _: &Arc<WebState>) -> Result<Self, Self::Rejection> {
        let kind =
            request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let is_json = kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"));
        if !is_json {
            return Err(ApiProblem::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "the body is not marked as JSON",
                "send JSON with the header `Content-Type: application/json`",
            ));
        }
        let bytes = to_bytes(request.into_body(), MAX_BODY).await.map_err(|_| {
            ApiProblem::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                format!("the body is larger than {MAX_BODY} bytes, or it broke off"),
                "send a smaller body",
            )
        })?;
        serde_json::from_slice(&bytes).map(Self).map_err(|error| {
            ApiProblem::invalid(
                format!("the body is invalid: {error}"),
                "see the body of this path in the API's description",
            )
        })
    }
}
