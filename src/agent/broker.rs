//! Hides the API keys of models from agents.
//!
//! An agent gets a token for one run in place of each key, and an address on loopback in place of the model's. Requests to that
//! address are forwarded to the model with the token replaced by the key. The token is useless elsewhere and after the run.

#[cfg(test)]
mod tests;

use std::io;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{
    CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use secrecy::{ExposeSecret, SecretString};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use url::Url;

use super::BackendSetup;
use crate::domain::model::error_chain::error_chain;
use crate::net::client_of_model;
use crate::net::serve::{ConnectionLimits, serve};

/// Maximum size of a forwarded request, in bytes; models accept at most 32 MB.
const MAX_REQUEST: usize = 64 * 1024 * 1024;
/// Maximum number of concurrent connections of a run to one model; further ones wait.
const MOST_CONNECTIONS: usize = 256;
/// Time limit for a request's head, also between two requests of one connection.
const HEAD_TIMEOUT: Duration = Duration::from_secs(120);
/// Headers that concern the connection and are not forwarded.
const CONNECTION_HEADERS: [HeaderName; 8] =
    [CONNECTION, HOST, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE];

/// Environment variables from which an agent reads the key and the address of a model.
pub(super) struct ModelKey {
    /// Variables that contain a key.
    pub(super) keys: &'static [&'static str],
    /// Variables that contain the model's address; the first that is set counts.
    pub(super) addresses: &'static [&'static str],
    /// Address if none of them is set; `None` if the agent has no default.
    pub(super) default_address: Option<&'static str>,
    /// Variables that make the agent ignore these addresses.
    pub(super) unless_set: &'static [&'static str],
}

/// Keys of one model that are hidden from the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HiddenKey {
    /// Variables that contain the keys.
    pub(super) keys: Vec<String>,
    /// Variables that are set to the broker's address.
    addresses: Vec<String>,
    /// Address of the model.
    model: Url,
}

/// Returns the keys to hide from an agent, from its configuration and the known variables of its program.
pub(super) fn hidden_keys(settings: &BackendSetup, known: &[ModelKey]) -> Vec<HiddenKey> {
    if !settings.config.hide_keys {
        return Vec::new();
    }
    let value = |name: &str| {
        let (_, value) = settings.env.iter().find(|(known, _)| known == name)?;
        Some(value.expose_secret()).filter(|value| !value.is_empty())
    };
    let address = |text: &str| {
        Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.host_str().is_some())
    };
    let mut hidden: Vec<HiddenKey> = Vec::new();
    for (key, at) in settings.config.keys.iter().filter(|(key, _)| value(key).is_some()) {
        match hidden.iter_mut().find(|hidden| hidden.addresses.contains(at)) {
            Some(hidden) => hidden.keys.push(key.clone()),
            None => hidden.extend(value(at).and_then(address).map(|model| HiddenKey {
                keys: vec![key.clone()],
                addresses: vec![at.clone()],
                model,
            })),
        }
    }
    for known in known.iter().filter(|known| !known.unless_set.iter().any(|name| value(name).is_some())) {
        let keys = known.keys.iter().filter(|key| value(key).is_some() && !settings.config.keys.contains_key(**key));
        let keys: Vec<String> = keys.map(|key| (*key).to_owned()).collect();
        let model = known.addresses.iter().find_map(|name| value(name)).or(known.default_address).and_then(address);
        if let Some(model) = model.filter(|_| !keys.is_empty()) {
            hidden.push(HiddenKey {
                keys,
                addresses: known.addresses.iter().map(|name| (*name).to_owned()).collect(),
                model,
            });
        }
    }
    hidden
}

/// HTTP clients of the models of one backend, by address. Each is created on first use and shared by all runs, because
/// reading the TLS root certificates takes longer than starting an agent.
#[derive(Default)]
pub(super) struct ModelClients(Mutex<Vec<(Url, reqwest::Client)>>);

impl ModelClients {
    fn of(&self, model: &Url) -> Result<reqwest::Client, String> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, client)) = known.iter().find(|(at, _)| at == model) {
            return Ok(client.clone());
        }
        let client = client_of_model(model).build().map_err(|error| error_chain(&error.without_url()))?;
        known.push((model.clone(), client.clone()));
        Ok(client)
    }
}

/// Forwards an agent's requests to its models until it is dropped.
pub(super) struct Broker {
    /// Operator's variables with keys and addresses replaced.
    pub(super) variables: Vec<(String, SecretString)>,
    _serving: JoinSet<()>,
}

impl Broker {
    /// Starts to listen for requests to the models whose keys are hidden.
    ///
    /// # Errors
    /// A sentence for the operator: no free port, or no TLS root certificates.
    pub(super) async fn open(
        settings: &BackendSetup,
        hidden: &[HiddenKey],
        clients: &ModelClients,
    ) -> Result<Self, String> {
        let mut broker = Self { variables: settings.env.clone(), _serving: JoinSet::new() };
        for hidden in hidden {
            let model = BrokeredModel::of(hidden, clients.of(&hidden.model)?, &settings.env);
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
            let bound = listener.and_then(|listener| Ok((listener.local_addr()?, listener)));
            let (at, listener) =
                bound.map_err(|error: io::Error| format!("no port could be opened for its model: {error}"))?;
            let mut address = format!("http://{at}{}", hidden.model.path().trim_end_matches('/'));
            // Tools that concatenate paths may rely on a trailing slash.
            if hidden.model.path().len() > 1 && hidden.model.path().ends_with('/') {
                address.push('/');
            }
            for name in &hidden.addresses {
                broker.set(name, address.clone());
            }
            for (name, token, _) in &model.keys {
                broker.set(name, token.clone());
            }
            let router = axum::Router::new().fallback(pass_on).with_state(Arc::new(model));
            let limits = ConnectionLimits { connections: MOST_CONNECTIONS, head: HEAD_TIMEOUT };
            broker._serving.spawn(async move { drop(serve(listener, router, limits, std::future::pending()).await) });
        }
        Ok(broker)
    }

    fn set(&mut self, name: &str, value: String) {
        self.variables.retain(|(known, _)| known != name);
        self.variables.push((name.to_owned(), value.into()));
    }
}

/// A model and its keys.
struct BrokeredModel {
    base: Url,
    client: reqwest::Client,
    /// Variable, token of the agent, and key that replaces the token.
    keys: Vec<(String, String, SecretString)>,
}

impl BrokeredModel {
    fn of(hidden: &HiddenKey, client: reqwest::Client, variables: &[(String, SecretString)]) -> Self {
        let key = |name: &String| {
            let (_, key) = variables.iter().find(|(known, _)| known == name)?;
            let token = format!("ralph-{}{}", uuid::Uuid::new_v4().simple(), uuid::Uuid::new_v4().simple());
            Some((name.clone(), token, key.clone()))
        };
        Self { base: hidden.model.clone(), client, keys: hidden.keys.iter().filter_map(key).collect() }
    }

    /// Returns the text with the token replaced by its key; `None` if it contains no token.
    fn with_key(&self, text: &str) -> Option<String> {
        let (_, token, key) = self.keys.iter().find(|(_, token, _)| text.contains(token))?;
        Some(text.replace(token, key.expose_secret()))
    }

    /// Returns the headers for the model, and whether a key is among them.
    fn headers(&self, of: &HeaderMap) -> (HeaderMap, bool) {
        let (mut headers, mut has_key) = (HeaderMap::new(), false);
        let is_dropped = |name: &HeaderName| CONNECTION_HEADERS.contains(name) || *name == CONTENT_LENGTH;
        for (name, value) in of.iter().filter(|(name, _)| !is_dropped(name)) {
            let with_key = value.to_str().ok().and_then(|text| self.with_key(text));
            let with_key = with_key.and_then(|text| HeaderValue::from_str(&text).ok());
            has_key |= with_key.is_some();
            headers.append(name, with_key.unwrap_or_else(|| value.clone()));
        }
        (headers, has_key)
    }

    /// Returns the address to forward to, and whether its query contains a key; `None` if the path is not below the model's
    /// address.
    fn address(&self, path: &str, query: Option<&str>) -> Option<(Url, bool)> {
        let mut url = self.base.clone();
        // This also removes `..`.
        url.set_path(path);
        let below = url.path().strip_prefix(self.base.path().trim_end_matches('/'))?;
        if !(below.is_empty() || below.starts_with('/')) {
            return None;
        }
        let with_key = query.and_then(|query| self.with_key(query));
        let has_key = with_key.is_some();
        match (self.base.query(), with_key.as_deref().or(query)) {
            (Some(own), Some(query)) => url.set_query(Some(&format!("{own}&{query}"))),
            (None, query) => url.set_query(query),
            (Some(_), None) => {}
        }
        Some((url, has_key))
    }
}

/// Forwards a request to the model and streams its answer back.
async fn pass_on(State(model): State<Arc<BrokeredModel>>, request: Request) -> Response {
    let (asked, body) = request.into_parts();
    let (headers, in_headers) = model.headers(&asked.headers);
    let Some((url, in_query)) = model.address(asked.uri.path(), asked.uri.query()) else {
        return refused(StatusCode::NOT_FOUND, "not_found_error", "the path is not below the address of the model");
    };
    if !in_headers && !in_query {
        let why = "the request does not contain the token of this run";
        return refused(StatusCode::UNAUTHORIZED, "authentication_error", why);
    }
    let Ok(body) = axum::body::to_bytes(body, MAX_REQUEST).await else {
        let why = "the request is larger than 64 MiB or incomplete";
        return refused(StatusCode::PAYLOAD_TOO_LARGE, "invalid_request_error", why);
    };
    match model.client.request(asked.method, url).headers(headers).body(body).send().await {
        Ok(answer) => {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = answer.status();
            for (name, value) in answer.headers().iter().filter(|(name, _)| !CONNECTION_HEADERS.contains(name)) {
                response.headers_mut().append(name, value.clone());
            }
            *response.body_mut() = Body::from_stream(answer.bytes_stream());
            response
        }
        Err(error) => {
            let why = format!("the model cannot be reached: {}", error_chain(&error.without_url()));
            refused(StatusCode::BAD_GATEWAY, "api_error", &why)
        }
    }
}

/// Returns an error in a shape in which the clients of all vendors find the message.
fn refused(status: StatusCode, kind: &str, why: &str) -> Response {
    let error = json!({ "type": kind, "code": status.as_u16(), "message": format!("ralph-bot: {why}") });
    let body = json!({ "type": "error", "error": error }).to_string();
    (status, [(CONTENT_TYPE, "application/json")], body).into_response()
}
