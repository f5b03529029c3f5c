//! What clients and servers of HTTP have in common, whatever they are for.

pub mod serve;

use std::time::Duration;

use url::{Host, Url};

/// Time to connect to a model, TLS included.
const MODEL_CONNECTS: Duration = Duration::from_secs(10);
/// Between probes of a silent connection: an answer takes minutes to be thought of.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// What every client of ours is made of: it follows nobody elsewhere, and says who it is.
pub fn client() -> reqwest::ClientBuilder {
    // Fails when one is installed already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .user_agent(concat!("ralph-bot/", env!("CARGO_PKG_VERSION")))
}

/// The same for a model at this address; one on this machine is asked without a proxy.
pub fn client_of_model(at: &Url) -> reqwest::ClientBuilder {
    let client = client().connect_timeout(MODEL_CONNECTS).tcp_keepalive(KEEPALIVE);
    if is_local(at) { client.no_proxy() } else { client }
}

/// Whether an address is one of this machine.
fn is_local(address: &Url) -> bool {
    match address.host() {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}
