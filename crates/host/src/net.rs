//! HTTP parts shared by clients and servers.

pub mod resolver;
pub mod serve;

use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use ralph_types::failure::Failure;
use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::Verifier;
use url::{Host, Url};

/// Time limit for connecting to a model, including TLS.
const MODEL_CONNECTS: Duration = Duration::from_secs(10);
/// Interval of keep-alive probes, because a response can take minutes.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// TLS configuration of all HTTP clients, with the certificates of the system. These are read once and not for each client of each
/// forge, backend and channel. `None` if they cannot be read; then building a client fails with the reason.
static TLS: LazyLock<Option<ClientConfig>> = LazyLock::new(|| {
    let mut config = tls(None).ok()?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Some(config)
});

/// Returns the TLS configuration of a client that trusts the certificates in a file (PEM) or the system's certificates.
///
/// # Errors
/// Fails if the certificates cannot be read.
pub fn tls(root_certificates: Option<&Path>) -> Result<ClientConfig, Failure> {
    let provider = Arc::new(ring::default_provider());
    let versions = ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions();
    let versions = versions.map_err(|error| Failure::new("TLS is not available").caused_by(error))?;
    let Some(path) = root_certificates else {
        let verifier = Verifier::new(provider);
        let verifier =
            verifier.map_err(|error| Failure::new("cannot read the certificates of the system").caused_by(error))?;
        return Ok(versions.dangerous().with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth());
    };
    let unreadable = || Failure::new(format!("cannot read the certificates in {}", path.display()));
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|error| unreadable().caused_by(error))? {
        let certificate = certificate.map_err(|error| unreadable().caused_by(error))?;
        roots.add(certificate).map_err(|error| unreadable().caused_by(error))?;
    }
    if roots.is_empty() {
        return Err(unreadable().with_detail("the file contains no certificate"));
    }
    Ok(versions.with_root_certificates(roots).with_no_client_auth())
}

/// Returns the base configuration of all HTTP clients: no redirects, the service's user agent.
pub fn client() -> reqwest::ClientBuilder {
    // An error means that a provider is installed already.
    let _ = ring::default_provider().install_default();
    let client = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .user_agent(concat!("ralph-bot/", env!("CARGO_PKG_VERSION")));
    match &*TLS {
        Some(config) => client.tls_backend_preconfigured(config.clone()),
        None => client,
    }
}

/// Returns the configuration for a model at this address. Local addresses bypass the proxy.
pub fn client_of_model(at: &Url) -> reqwest::ClientBuilder {
    let client = client().connect_timeout(MODEL_CONNECTS).tcp_keepalive(KEEPALIVE);
    if is_local(at) { client.no_proxy() } else { client }
}

/// Whether an address refers to this machine.
fn is_local(address: &Url) -> bool {
    match address.host() {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}
