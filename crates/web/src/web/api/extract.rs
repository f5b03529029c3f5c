//! Extractors for requests: the viewer, the query, and the body.

use std::sync::Arc;

use axum::body::to_bytes;
use axum::extract::{FromRequest, FromRequestParts, Query, Request};
use axum::http::request::Parts;
use axum::http::{Method, StatusCode, header};
use serde::de::DeserializeOwned;

use super::problem::ApiProblem;
use crate::store::tokens::ApiScope;
use crate::web::{Viewer, WebState};

/// Maximum size of a body, in bytes.
pub const MAX_BODY: usize = 64 * 1024;

/// Viewer of an API request, authenticated by session or token. Rejects changes with a read-only token.
pub struct ApiViewer {
    /// The viewer.
    pub viewer: Viewer,
}

impl FromRequestParts<Arc<WebState>> for ApiViewer {
    type Rejection = ApiProblem;

    async fn from_request_parts(parts: &mut Parts, state: &Arc<WebState>) -> Result<Self, Self::Rejection> {
        let changes = !matches!(parts.method, Method::GET | Method::HEAD);
        let viewer = Viewer::from_request_parts(parts, state).await.map_err(|_| ApiProblem::unauthorized())?;
        if changes && viewer.token.as_ref().is_some_and(|token| token.scope == ApiScope::Read) {
            return Err(ApiProblem::forbidden("the token only permits reading", "make a token with the scope `write`"));
        }
        Ok(Self { viewer })
    }
}

/// Query of a request; rejects unknown keys.
pub struct ApiQuery<T>(pub T);

impl<T: DeserializeOwned + Send> FromRequestParts<Arc<WebState>> for ApiQuery<T> {
    type Rejection = ApiProblem;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<WebState>) -> Result<Self, Self::Rejection> {
        let read = Query::<T>::try_from_uri(&parts.uri);
        read.map(|Query(query)| Self(query)).map_err(|error| {
            // The outer error's text has no details; the inner error names the key.
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
                format!("the body is larger than {MAX_BODY} bytes or incomplete"),
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
