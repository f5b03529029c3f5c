//! Errors of the API as problem details (RFC 9457).

use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::store::StoreError;

/// Result of a handler.
pub(super) type ApiResult = Result<Response, ApiProblem>;

/// Error of the API.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ApiProblem {
    /// Kind of the problem: always `about:blank`, because the status identifies it.
    #[serde(rename = "type")]
    pub kind: String,
    /// The status in words.
    pub title: String,
    /// Status of the response.
    pub status: u16,
    /// Description of the problem and its location.
    pub detail: String,
    /// Advice.
    pub action: String,
    /// Seconds until a retry can succeed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_s: Option<u32>,
}

impl ApiProblem {
    /// Creates a problem from a status, a description and advice.
    pub fn new(status: StatusCode, detail: impl Into<String>, action: impl Into<String>) -> Self {
        Self {
            kind: "about:blank".into(),
            title: status.canonical_reason().unwrap_or("Error").into(),
            status: status.as_u16(),
            detail: detail.into(),
            action: action.into(),
            retry_after_s: None,
        }
    }

    /// Sets the time until a retry can succeed.
    pub fn retry_after(self, seconds: u32) -> Self {
        Self { retry_after_s: Some(seconds), ..self }
    }

    /// Returns the problem of a request without valid credentials.
    pub fn unauthorized() -> Self {
        Self::new(
            StatusCode::UNAUTHORIZED,
            "the request has no valid token and no session",
            "send `Authorization: Bearer TOKEN` with a token that has not expired; the dashboard makes tokens",
        )
    }

    /// Returns the problem of an object that does not exist or is not visible to the viewer. Both cases have the same
    /// response.
    pub fn unknown(what: &str, id: &str) -> Self {
        let shown: String = id.chars().filter(|c| !c.is_control()).take(100).collect();
        Self::new(
            StatusCode::NOT_FOUND,
            format!("there is no {what} {shown}, or you may not see it"),
            "check the id, and that you have access to the repository",
        )
    }

    /// Returns the problem of a viewer with insufficient rights.
    pub fn forbidden(detail: impl Into<String>, action: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, detail, action)
    }

    /// Returns the problem of an invalid request.
    pub fn invalid(detail: impl Into<String>, action: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail, action)
    }

    /// Returns the problem of a path without a route.
    pub fn no_route(path: &str) -> Self {
        let path: String = path.chars().take(200).collect();
        Self::new(
            StatusCode::NOT_FOUND,
            format!("the API has no path {path}"),
            format!("see {}/openapi.json for all paths", super::ROOT),
        )
    }

    /// Returns the problem of an unsupported method on a path.
    pub fn wrong_method(method: &Method, path: &str) -> Self {
        let path: String = path.chars().take(200).collect();
        Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            format!("{path} does not accept {method}"),
            format!("see {}/openapi.json for the methods of each path", super::ROOT),
        )
    }

    /// Returns the problem of an internal error of the service.
    pub fn internal(error: &impl std::fmt::Display) -> Self {
        tracing::warn!(%error, "a request to the API failed");
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the service could not make the answer",
            "see the log of the service; it names the cause",
        )
    }
}

impl From<StoreError> for ApiProblem {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Busy => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "the database is busy", "try again in a few seconds")
                    .retry_after(5)
            }
            other => Self::internal(&other),
        }
    }
}

impl IntoResponse for ApiProblem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let text = serde_json::to_string(&self).unwrap_or_default();
        let kind = HeaderValue::from_static("application/problem+json");
        let mut response = (status, [(header::CONTENT_TYPE, kind)], text).into_response();
        if let Some(seconds) = self.retry_after_s {
            response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
        }
        if status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
