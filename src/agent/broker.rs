//! Keeps the keys of models from agents.
//!
//! In a key's place an agent gets a token that is good for one run, and in place of its model's address one of this machine's
//! loopback. What it asks there goes on to its model, with the key where the token was. So whoever reads an agent's
//! environment, files or memory finds nothing that is of use elsewhere, and once the run has ended nothing answers.

#[cfg(test)]
mod tests;

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
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
use crate::net::serve::{Limits, serve};

/// Largest request that goes on, in bytes; models take 32 MB at most.
const MOST_ASKED: usize = 64 * 1024 * 1024;
/// Connections of a run to one model at the same time; more wait.
const MOST_CONNECTIONS: usize = 256;
/// Longest time for a request's head; between two requests of one connection too.
const HEAD: Duration = Duration::from_secs(120);
/// Headers that are about a connection and not about what is asked.
const OF_CONNECTION: [HeaderName; 8] =
    [CONNECTION, HOST, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE];

/// Where an agent looks for the key of its model, and for the model's address.
pub(super) struct ModelKey {
    /// Variables that hold a key; any of them.
    pub(super) keys: &'static [&'static str],
    /// Variables that say where the model is; the first that is given counts.
    pub(super) addresses: &'static [&'static str],
    /// Where it is without them; `None` where the agent knows no such place.
    pub(super) usual: Option<&'static str>,
    /// Variables with which it goes by settings of its own, and not by these addresses.
    pub(super) unless: &'static [&'static str],
}

/// A model whose keys stay here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HiddenKey {
    /// Variables that hold them.
    pub(super) keys: Vec<String>,
    /// Variables that are to name our address.
    addresses: Vec<String>,
    /// Where the model is.
    model: Url,
}

/// The keys that an agent does not get to see, by its settings and what is known of its program.
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
    let mut kept: Vec<HiddenKey> = Vec::new();
    for (key, at) in settings.config.keys.iter().filter(|(key, _)| value(key).is_some()) {
        match kept.iter_mut().find(|kept| kept.addresses.contains(at)) {
            Some(kept) => kept.keys.push(key.clone()),
            None => kept.extend(value(at).and_then(address).map(|model| HiddenKey {
                keys: vec![key.clone()],
                addresses: vec![at.clone()],
                model,
            })),
        }
    }
    for known in known.iter().filter(|known| !known.unless.iter().any(|name| value(name).is_some())) {
        let keys = known.keys.iter().filter(|key| value(key).is_some() && !settings.config.keys.contains_key(**key));
        let keys: Vec<String> = keys.map(|key| (*key).to_owned()).collect();
        let model = known.addresses.iter().find_map(|name| value(name)).or(known.usual).and_then(address);
        if let Some(model) = model.filter(|_| !keys.is_empty()) {
            kept.push(HiddenKey {
                keys,
                addresses: known.addresses.iter().map(|name| (*name).to_owned()).collect(),
                model,
            });
        }
    }
    kept
}

/// Answers an agent in place of its models, until it is dropped.
pub(super) struct Broker {
    /// The operator's variables, as the agent gets them.
    pub(super) variables: Vec<(String, SecretString)>,
    _serving: JoinSet<()>,
}

impl Broker {
    /// Begins to answer in place of the models whose keys are kept.
    ///
    /// # Errors
    /// A sentence for the operator: no port, no TLS roots.
    pub(super) async fn open(settings: &BackendSetup, kept: &[HiddenKey]) -> Result<Self, String> {
        let mut broker = Self { variables: settings.env.clone(), _serving: JoinSet::new() };
        for kept in kept {
            let model = BrokeredModel::of(kept, &settings.env)?;
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
            let bound = listener.and_then(|listener| Ok((listener.local_addr()?, listener)));
            let (at, listener) = bound.map_err(|error: io::Error| format!("no port for its model: {error}"))?;
            let mut address = format!("http://{at}{}", kept.model.path().trim_end_matches('/'));
            // A tool that puts paths together by hand may need what was there before.
            if kept.model.path().len() > 1 && kept.model.path().ends_with('/') {
                address.push('/');
            }
            for name in &kept.addresses {
                broker.set(name, address.clone());
            }
            for (name, token, _) in &model.keys {
                broker.set(name, token.clone());
            }
            let router = axum::Router::new().fallback(pass_on).with_state(Arc::new(model));
            let limits = Limits { connections: MOST_CONNECTIONS, head: HEAD };
            broker._serving.spawn(async move { drop(serve(listener, router, limits, std::future::pending()).await) });
        }
        Ok(broker)
    }

    fn set(&mut self, name: &str, value: String) {
        self.variables.retain(|(known, _)| known != name);
        self.variables.push((name.to_owned(), value.into()));
    }
}

/// A model, and the keys that it takes.
struct BrokeredModel {
    base: Url,
    client: reqwest::Client,
    /// Variable, the token that the agent has, and the key that it stands for.
    keys: Vec<(String, String, SecretString)>,
}

impl BrokeredModel {
    fn of(kept: &HiddenKey, variables: &[(String, SecretString)]) -> Result<Self, String> {
        let key = |name: &String| {
            let (_, key) = variables.iter().find(|(known, _)| known == name)?;
            let token = format!("ralph-{}{}", uuid::Uuid::new_v4().simple(), uuid::Uuid::new_v4().simple());
            Some((name.clone(), token, key.clone()))
        };
        let client = client_of_model(&kept.model).build().map_err(|error| error_chain(&error.without_url()))?;
        Ok(Self { base: kept.model.clone(), client, keys: kept.keys.iter().filter_map(key).collect() })
    }

    /// A text with a key in its token's place; `None` where there is none in it.
    fn with_key(&self, text: &str) -> Option<String> {
        let (_, token, key) = self.keys.iter().find(|(_, token, _)| text.contains(token))?;
        Some(text.replace(token, key.expose_secret()))
    }

    /// Headers as the model gets them, and whether a key was among them.
    fn headers(&self, of: &HeaderMap) -> (HeaderMap, bool) {
        let (mut headers, mut has_key) = (HeaderMap::new(), false);
        let about_it = |name: &HeaderName| OF_CONNECTION.contains(name) || *name == CONTENT_LENGTH;
        for (name, value) in of.iter().filter(|(name, _)| !about_it(name)) {
            let with_key = value.to_str().ok().and_then(|text| self.with_key(text));
            let with_key = with_key.and_then(|text| HeaderValue::from_str(&text).ok());
            has_key |= with_key.is_some();
            headers.append(name, with_key.unwrap_or_else(|| value.clone()));
        }
        (headers, has_key)
    }

    /// Where a request goes, and whether a key is in that; `None` where it is outside of what the model's address covers.
    fn address(&self, path: &str, query: Option<&str>) -> Option<(Url, bool)> {
        let mut url = self.base.clone();
        // This also takes out what leads upwards.
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

/// Asks the model what an agent asks, and gives its answer back as it comes.
async fn pass_on(State(model): State<Arc<BrokeredModel>>, request: Request) -> Response {
    let (asked, body) = request.into_parts();
    let (headers, in_headers) = model.headers(&asked.headers);
    let Some((url, in_query)) = model.address(asked.uri.path(), asked.uri.query()) else {
        return refused(StatusCode::NOT_FOUND, "not_found_error", "this is not below the address of the model");
    };
    if !in_headers && !in_query {
        let why = "what came as key is not what this run was given in its place";
        return refused(StatusCode::UNAUTHORIZED, "authentication_error", why);
    }
    let Ok(body) = axum::body::to_bytes(body, MOST_ASKED).await else {
        let why = "the request is larger than 64 MiB, or broke off";
        return refused(StatusCode::PAYLOAD_TOO_LARGE, "invalid_request_error", why);
    };
    match model.client.request(asked.method, url).headers(headers).body(body).send().await {
        Ok(answer) => {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = answer.status();
            for (name, value) in answer.headers().iter().filter(|(name, _)| !OF_CONNECTION.contains(name)) {
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

/// A refusal of ours, in a shape that clients of all vendors find a message in.
fn refused(status: StatusCode, kind: &str, why: &str) -> Response {
    let error = json!({ "type": kind, "code": status.as_u16(), "message": format!("ralph-bot: {why}") });
    let body = json!({ "type": "error", "error": error }).to_string();
    (status, [(CONTENT_TYPE, "application/json")], body).into_response()
}
