//! Requests over the network by reqwest: limits on time and size, no redirects, no decompression.

use std::error::Error;
use std::time::Duration;

use ::http::{Request, Response};
use async_trait::async_trait;
use bytes::{Bytes, BytesMut};

use super::{MAX_ANSWER_BYTES, Transport, TransportError};

/// Time to connect, TLS included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time in which the next bytes must come.
const IDLE_TIMEOUT: Duration = Duration::from_secs(15);
/// Time for the whole exchange.
const TOTAL_TIMEOUT: Duration = Duration::from_secs(60);

/// The network.
pub struct ReqwestTransport {
    client: reqwest::Client,
    max_bytes: usize,
}

impl ReqwestTransport {
    /// A client with its own connections.
    ///
    /// # Errors
    /// When the TLS roots of the system cannot be used.
    pub fn new() -> Result<Self, TransportError> {
        // Fails when one is installed already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(IDLE_TIMEOUT)
            .timeout(TOTAL_TIMEOUT)
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("ralph-bot/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| failed(error, false))?;
        Ok(Self { client, max_bytes: MAX_ANSWER_BYTES })
    }
}

#[async_trait]
impl Transport for ReqwestTransport {
    async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, TransportError> {
        let request = reqwest::Request::try_from(request).map_err(|error| failed(error, false))?;
        let mut response = self.client.execute(request).await.map_err(|error| {
            let ambiguous = !error.is_connect() && !error.is_builder();
            failed(error, ambiguous)
        })?;
        let mut body = BytesMut::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| failed(error, true))? {
            if body.len() + chunk.len() > self.max_bytes {
                let detail = format!("the answer is larger than {} bytes", self.max_bytes);
                return Err(TransportError { ambiguous: true, detail });
            }
            body.extend_from_slice(&chunk);
        }
        let mut answer = Response::new(body.freeze());
        *answer.status_mut() = response.status();
        *answer.headers_mut() = std::mem::take(response.headers_mut());
        Ok(answer)
    }
}

/// An error with its causes in one line, without the address.
fn failed(error: reqwest::Error, ambiguous: bool) -> TransportError {
    let error = error.without_url();
    let mut detail = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let text = inner.to_string();
        if !detail.contains(&text) {
            detail = format!("{detail}: {text}");
        }
        cause = inner.source();
    }
    TransportError { ambiguous, detail }
}
