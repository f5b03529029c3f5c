//! Downloads files that people uploaded to issues: only from the forge's servers, with limits on size and time.
//!
//! Invariants: the forge's credential is sent only to the forge's own server. Servers on the internet are contacted
//! only at public addresses. Each redirect is checked like the first address. Nothing is read beyond the size limit.

use std::sync::Arc;
use std::time::Duration;

use ::http::header::{AUTHORIZATION, CONTENT_LENGTH, LOCATION};
use ::http::{HeaderValue, StatusCode};
use ralph_types::failure::Failure;
use url::Url;

use super::{DownloadLimits, FetchedImage, ImageFailure};
use crate::domain::model::error_chain::error_chain;
use crate::domain::model::image::{FORMAT_BYTES, format_of, header_of};
use crate::domain::trust::images::{AttachmentAddresses, ServerAccess};
use crate::net::client;
use crate::net::resolver::{self, Resolver};

/// Time limit for connecting, including TLS.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of redirects of a download.
const MAX_REDIRECTS: usize = 5;
/// Maximum number of attempts; a second attempt follows a failed connection or a server error.
const ATTEMPTS: u32 = 2;

/// Client for downloads from one forge.
pub(super) struct Downloader {
    pub(super) addresses: AttachmentAddresses,
    /// Client for the forge and for other servers of its operator.
    own: reqwest::Client,
    /// Client for servers on the internet.
    public: reqwest::Client,
}

/// Failure of a download.
enum DownloadFailure {
    /// Another attempt may succeed.
    Transient(String),
    /// The server refuses the request now, but may accept it later or with another address.
    Refused(String),
    /// Another attempt gives the same result.
    Final(String),
}

use DownloadFailure::{Final, Refused, Transient};

impl Downloader {
    /// Creates a downloader with its own connections.
    ///
    /// # Errors
    /// The TLS roots of the system cannot be used.
    pub(super) fn new(addresses: AttachmentAddresses) -> Result<Self, Failure> {
        let failed = |error: reqwest::Error| {
            Failure::new("cannot prepare the download of attachments").caused_by(error.without_url())
        };
        let own = client().connect_timeout(CONNECT_TIMEOUT).build().map_err(failed)?;
        let public = client()
            .connect_timeout(CONNECT_TIMEOUT)
            .dns_resolver(Arc::new(Resolver { allow_private: false, hint: "" }))
            // A proxy would bypass the address check.
            .no_proxy()
            .build()
            .map_err(failed)?;
        Ok(Self { addresses, own, public })
    }

    /// Downloads an image. `credential` is the value of the header `Authorization` for the forge's own server.
    ///
    /// # Errors
    /// The reason why the image is not used. It contains no secret and no query of an address.
    pub(super) async fn image(
        &self,
        address: &Url,
        credential: Option<&HeaderValue>,
        limits: &DownloadLimits,
    ) -> Result<FetchedImage, ImageFailure> {
        let work = async {
            for _ in 1..ATTEMPTS {
                match self.attempt(address, credential, limits).await {
                    Err(Transient(_)) => {}
                    outcome => return outcome,
                }
            }
            self.attempt(address, credential, limits).await
        };
        let late = |_| Err(Transient(format!("it was not received within {} s", limits.timeout.as_secs_f64())));
        let outcome = tokio::time::timeout(limits.timeout, work).await.unwrap_or_else(late);
        outcome.map_err(|failure| match failure {
            Transient(why) | Refused(why) => ImageFailure { why, is_temporary: true },
            Final(why) => ImageFailure { why, is_temporary: false },
        })
    }

    async fn attempt(
        &self,
        address: &Url,
        credential: Option<&HeaderValue>,
        limits: &DownloadLimits,
    ) -> Result<FetchedImage, DownloadFailure> {
        let mut address = address.clone();
        for _ in 0..=MAX_REDIRECTS {
            let response = self.request(&address, credential, limits).await?;
            let status = response.status();
            if status.is_redirection() {
                let to = response.headers().get(LOCATION).and_then(|to| to.to_str().ok());
                let to = to.and_then(|to| address.join(to).ok());
                address = to.ok_or_else(|| Final("the forge redirects it to no valid address".to_owned()))?;
                continue;
            }
            return self.body(status, response, limits).await;
        }
        Err(Final(format!("the forge redirected it more than {MAX_REDIRECTS} times")))
    }

    async fn request(
        &self,
        address: &Url,
        credential: Option<&HeaderValue>,
        limits: &DownloadLimits,
    ) -> Result<reqwest::Response, DownloadFailure> {
        let access = self.addresses.access(address, &limits.hosts).map_err(|why| Final(why.to_string()))?;
        let client = if access == ServerAccess::Public { &self.public } else { &self.own };
        let mut request = client.get(address.clone());
        if let Some(credential) = credential.filter(|_| access == ServerAccess::Forge) {
            request = request.header(AUTHORIZATION, credential.clone());
        }
        request.send().await.map_err(|error| unreachable(address, error))
    }

    /// Reads a response up to the size limit; stops at the first bytes if the file is not an image.
    async fn body(
        &self,
        status: StatusCode,
        mut response: reqwest::Response,
        limits: &DownloadLimits,
    ) -> Result<FetchedImage, DownloadFailure> {
        if !status.is_success() {
            let why = format!("the forge answered {status}");
            return Err(if status.is_server_error() { Transient(why) } else { Refused(why) });
        }
        let too_large = || Final(limits.too_large.clone());
        let announced = response.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        if announced.is_some_and(|length: u64| length > limits.max_bytes) {
            return Err(too_large());
        }
        let address = response.url().clone();
        let (mut bytes, mut is_image) = (Vec::new(), false);
        while let Some(chunk) = response.chunk().await.map_err(|error| unreachable(&address, error))? {
            if (bytes.len() + chunk.len()) as u64 > limits.max_bytes {
                return Err(too_large());
            }
            bytes.extend_from_slice(&chunk);
            if !is_image && bytes.len() >= FORMAT_BYTES {
                format_of(&bytes).map_err(|fault| Final(fault.to_string()))?;
                is_image = true;
            }
        }
        let header = header_of(&bytes, limits.max_pixels).map_err(|fault| Final(fault.to_string()))?;
        Ok(FetchedImage { header, bytes })
    }
}

/// Describes a failed request without the query of its address, which may contain a signature.
fn unreachable(address: &Url, error: reqwest::Error) -> DownloadFailure {
    let refused = resolver::Refused::caused(&error);
    let host = address.host_str().unwrap_or_default();
    let why = format!("`{host}` cannot be reached: {}", error_chain(&error.without_url()));
    if refused { Final(why) } else { Transient(why) }
}

#[cfg(test)]
mod tests;
