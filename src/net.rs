//! HTTP parts shared by clients and servers.

pub mod resolver;
pub mod serve;

use std::time::Duration;

use url::{Host, Url};

/// Time limit for connecting to a model, including TLS.
const MODEL_CONNECTS: Duration = Duration::from_secs(10);
/// Interval of keep-alive probes, because a response can take minutes.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// Returns the base configuration of all HTTP clients: no redirects, the service's user agent.
pub fn client() -> reqwest::ClientBuilder {
    // An error means that a provider is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .user_agent(concat!("ralph-bot/", env!("CARGO_PKG_VERSION")))
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
