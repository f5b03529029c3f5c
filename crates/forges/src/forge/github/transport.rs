//! HTTP transport with octocrab. Its own retries, redirects and credentials are disabled, because the request layer
//! provides them for all forges.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::header::DATE;
use http::{Request, Response};
use http_body_util::{BodyExt, Limited};
use ralph_types::failure::Failure;
use url::Url;

use crate::clock::Clock;
use crate::domain::model::error_chain::error_chain;
use crate::forge::http::{MAX_ANSWER_BYTES, Timeouts, Transport, TransportError};

/// HTTP transport with octocrab.
pub(super) struct OctocrabTransport {
    client: octocrab::Octocrab,
    total: Duration,
}

impl OctocrabTransport {
    /// Creates a transport with its own connections; must be called within the runtime that uses it.
    ///
    /// # Errors
    /// The TLS roots of the system cannot be used.
    pub(super) fn new(api_url: &Url, timeouts: Timeouts) -> Result<Self, TransportError> {
        // Only the origin: octocrab would prefix GraphQL's `/api/graphql` with a base path such as `/api/v3`.
        let client = octocrab::Octocrab::builder()
            .base_uri(api_url.origin().ascii_serialization())
            .map(|builder| {
                builder
                    .set_connect_timeout(Some(timeouts.connect))
                    .set_read_timeout(Some(timeouts.idle))
                    .set_write_timeout(Some(timeouts.idle))
            })
            .and_then(|builder| builder.build())
            .map_err(|error| failed(&error))?;
        Ok(Self { client, total: timeouts.total })
    }
}

#[async_trait]
impl Transport for OctocrabTransport {
    async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, TransportError> {
        let exchange = async {
            let response = self.client.send(request.map(Into::into)).await.map_err(|error| failed(&error))?;
            let (parts, body) = response.into_parts();
            let body = Limited::new(body, MAX_ANSWER_BYTES).collect().await.map_err(|error| TransportError {
                ambiguous: true,
                detail: Failure::new("could not read the response").caused_by(error),
            })?;
            Ok(Response::from_parts(parts, body.to_bytes()))
        };
        let late = |_| TransportError {
            ambiguous: true,
            detail: format!("no complete response within {} s", self.total.as_secs_f64()).into(),
        };
        tokio::time::timeout(self.total, exchange).await.map_err(late)?
    }
}

/// Converts an error to its text, because octocrab's own text ends with a backtrace. It is ambiguous unless the connection
/// failed.
fn failed(error: &octocrab::Error) -> TransportError {
    let detail = error_chain(error);
    TransportError { ambiguous: !detail.contains("(Connect)"), detail: detail.into() }
}

/// Transport that measures the difference to the server's clock by the `Date` header of each response.
pub(super) struct ClockSkewTransport {
    inner: Arc<dyn Transport>,
    clock: Clock,
    ahead_ms: Arc<AtomicI64>,
}

impl ClockSkewTransport {
    /// Creates a transport that stores the newest difference in `ahead_ms`, in milliseconds.
    pub(super) fn new(inner: Arc<dyn Transport>, clock: Clock, ahead_ms: Arc<AtomicI64>) -> Self {
        Self { inner, clock, ahead_ms }
    }
}

#[async_trait]
impl Transport for ClockSkewTransport {
    async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, TransportError> {
        let response = self.inner.send(request).await?;
        let date = response.headers().get(DATE).and_then(|value| value.to_str().ok());
        if let Some(server) = date.and_then(|text| jiff::fmt::rfc2822::parse(text).ok()) {
            let ahead = server.timestamp().as_millisecond().saturating_sub(self.clock.now().0);
            self.ahead_ms.store(ahead, Ordering::Relaxed);
        }
        Ok(response)
    }
}
