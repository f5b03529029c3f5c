//! HTTP transport with reqwest: timeouts, a size limit, no redirects, no decompression.

use std::time::Duration;

use ::http::{Request, Response};
use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use ralph_types::failure::Failure;

use super::{MAX_ANSWER_BYTES, Timeouts, Transport, TransportError};
use crate::net::client;

/// Time after which the kernel drops data that the forge does not acknowledge. It is shorter than the default wait before a lost
/// call is looked up (10 s). Otherwise a change could arrive after a broken connection recovers, when another attempt has made it.
const UNACKNOWLEDGED: Duration = Duration::from_secs(5);

/// HTTP transport with reqwest.
pub struct ReqwestTransport {
    client: reqwest::Client,
    max_bytes: usize,
}

impl ReqwestTransport {
    /// Creates a transport with its own connections.
    ///
    /// # Errors
    /// The TLS roots of the system cannot be used.
    pub fn new(timeouts: Timeouts) -> Result<Self, TransportError> {
        Self::with_limit(timeouts, MAX_ANSWER_BYTES)
    }

    /// Creates a transport with its own connections, for responses of at most `max_bytes`.
    ///
    /// # Errors
    /// The TLS roots of the system cannot be used.
    pub fn with_limit(timeouts: Timeouts, max_bytes: usize) -> Result<Self, TransportError> {
        let client = client()
            .connect_timeout(timeouts.connect)
            .read_timeout(timeouts.idle)
            .timeout(timeouts.total)
            .tcp_user_timeout(UNACKNOWLEDGED)
            .build()
            .map_err(|error| failed(error, false))?;
        Ok(Self { client, max_bytes })
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
                let detail = format!("the response is larger than {} bytes", self.max_bytes).into();
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

/// Converts an error, without the address.
fn failed(error: reqwest::Error, ambiguous: bool) -> TransportError {
    TransportError { ambiguous, detail: Failure::of(error.without_url()) }
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// Sends one request to a server that writes `answer` and closes.
    async fn exchange(answer: &[u8], max_bytes: usize) -> (Result<Response<Bytes>, TransportError>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}/a?b=1", listener.local_addr().unwrap());
        let serve = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut seen = vec![0; 4096];
            let read = stream.read(&mut seen).await.unwrap();
            stream.write_all(answer).await.unwrap();
            drop(stream);
            String::from_utf8_lossy(&seen[..read]).into_owned()
        };
        let transport = ReqwestTransport { max_bytes, ..ReqwestTransport::new(Timeouts::USUAL).unwrap() };
        let request = Request::get(address).header("x-own", "1").body(Bytes::new()).unwrap();
        tokio::join!(transport.send(request), serve)
    }

    #[tokio::test]
    async fn redirect_response_is_returned_unchanged() {
        let redirect = b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 2\r\n\r\nhi";
        let (answer, seen) = exchange(redirect, 100).await;
        let answer = answer.unwrap();
        assert_eq!((answer.status().as_u16(), &answer.body()[..]), (302, &b"hi"[..]));
        assert_eq!(answer.headers()["location"], "http://127.0.0.1:1/");
        assert!(seen.starts_with("GET /a?b=1 HTTP/1.1\r\n") && seen.contains("x-own: 1"), "{seen}");
        assert!(!seen.to_lowercase().contains("accept-encoding"), "compression is not requested: {seen}");
    }

    /// See docs/research/faults.md#f2, docs/research/faults.md#f9.
    #[tokio::test]
    async fn broken_and_oversized_responses_are_ambiguous() {
        let chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n6\r\nabcdef\r\n0\r\n\r\n";
        assert!(exchange(chunked, 6).await.0.is_ok());
        let cases: [&[u8]; 5] =
            [chunked, b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc", b"", b"HTTP/1.1", b"not http at all\r\n\r\n"];
        for answer in cases {
            let failure = exchange(answer, 5).await.0.unwrap_err();
            assert!(failure.ambiguous, "{failure}");
            assert!(!failure.to_string().contains("127.0.0.1"), "the address is left out: {failure}");
        }
    }

    /// See docs/research/faults.md#f2.
    #[tokio::test]
    async fn refused_connection_is_not_ambiguous() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}/", listener.local_addr().unwrap());
        drop(listener);
        let request = Request::get(address).body(Bytes::new()).unwrap();
        let failure = ReqwestTransport::new(Timeouts::USUAL).unwrap().send(request).await.unwrap_err();
        assert!(!failure.ambiguous);
        let mut causes = std::iter::successors(Error::source(&failure), |&cause| cause.source());
        assert!(causes.any(|cause| cause.is::<reqwest::Error>()), "{failure:?}");
        assert!(failure.to_string().starts_with("error sending request: ") && failure.to_string().contains("refused"));
    }
}
