//! Requests over the network by octocrab, which neither tries again nor follows redirects nor adds credentials here:
//! all of that is decided above, once for both forges.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::header::DATE;
use http::{Request, Response};
use http_body_util::{BodyExt, Limited};
use url::Url;

use crate::clock::Clock;
use crate::domain::model::error_chain::error_chain;
use crate::forge::http::{MAX_ANSWER_BYTES, Patience, Transport, TransportError};

/// The network.
pub(super) struct OctocrabTransport {
    client: octocrab::Octocrab,
    total: Duration,
}

impl OctocrabTransport {
    /// A client with its own connections; must be called within the runtime that it will work in.
    ///
    /// # Errors
    /// When the TLS roots of the system cannot be used.
    pub(super) fn new(api_url: &Url, patience: Patience) -> Result<Self, TransportError> {
        // Only the origin: octocrab would put a base path such as `/api/v3` in front of GraphQL's `/api/graphql`.
        let client = octocrab::Octocrab::builder()
            .base_uri(api_url.origin().ascii_serialization())
            .map(|builder| {
                builder
                    .set_connect_timeout(Some(patience.connect))
                    .set_read_timeout(Some(patience.idle))
                    .set_write_timeout(Some(patience.idle))
            })
            .and_then(|builder| builder.build())
            .map_err(|error| failed(&error))?;
        Ok(Self { client, total: patience.total })
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
                detail: format!("the answer was not read to its end: {}", error_chain(error.as_ref())),
            })?;
            Ok(Response::from_parts(parts, body.to_bytes()))
        };
        let late = |_| TransportError {
            ambiguous: true,
            detail: format!("no complete answer within {} s", self.total.as_secs_f64()),
        };
        tokio::time::timeout(self.total, exchange).await.map_err(late)?
    }
}

/// Only a connection that was never made is certain to have had no effect.
fn failed(error: &octocrab::Error) -> TransportError {
    let detail = error_chain(error);
    TransportError { ambiguous: !detail.contains("(Connect)"), detail }
}

/// Notes by how much the server's clock is ahead of ours, from the `Date` of each answer.
pub(super) struct ClockWatch {
    inner: Arc<dyn Transport>,
    clock: Clock,
    ahead_ms: Arc<AtomicI64>,
}

impl ClockWatch {
    /// `ahead_ms` is where the newest observation is kept.
    pub(super) fn new(inner: Arc<dyn Transport>, clock: Clock, ahead_ms: Arc<AtomicI64>) -> Self {
        Self { inner, clock, ahead_ms }
    }
}

#[async_trait]
impl Transport for ClockWatch {
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
