//! Broker of keys: hides the API keys of models from agents and counts the cost of their requests.
//!
//! For each key, an agent receives a token that is valid for one run, and an address on loopback instead of the
//! model's. A request to that address is checked ([`request`]) against the endpoints of the model's [`formats`], its
//! cost is reserved ([`meter`]), and the token in its header is replaced with the key. The response's usage is counted
//! ([`usage`]) and the key is removed from it ([`answer`], [`events`]). The token is useless elsewhere and after the
//! run.

mod answer;
mod body;
mod events;
pub(super) mod formats;
#[cfg(any(test, fuzzing, feature = "testing"))]
pub(super) mod fuzzing;
pub(super) mod meter;
mod request;
#[cfg(test)]
mod tests;
mod usage;

use std::io;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use ralph_types::failure::Failure;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use url::Url;

use self::answer::ModelAnswer;
use self::body::RequestBody;
use self::formats::{EndpointPurpose, FormatName};
use self::meter::{OpenCall, Quote, RunMeter};
use self::request::{CheckedHead, RefusedRequest, RequestRules, RunToken};
use super::BackendSetup;
use crate::domain::model::error_chain::error_chain;
use crate::domain::trust::bounds::BROKER_BODY_BYTES;
use crate::domain::trust::secret_forms::SecretForms;
use crate::net::client_of_model;
use crate::net::serve::{ConnectionLimits, serve};

/// Maximum number of concurrent connections of a run to one model; further ones wait.
const MOST_CONNECTIONS: usize = 256;
/// Time limit for receiving the body of a request.
const BODY_TIMEOUT: Duration = Duration::from_secs(120);
/// Time limit for receiving the head of a request, which includes the time between two requests on a connection.
const HEAD_TIMEOUT: Duration = Duration::from_secs(120);

/// Environment variables from which an agent reads the key and the address of one model.
pub(super) struct ModelKey {
    /// Variables that contain a key.
    pub(super) keys: &'static [&'static str],
    /// Variables that contain the model's address; the first one that is set is used.
    pub(super) addresses: &'static [&'static str],
    /// Address if none of the variables is set; `None` if the agent has no default.
    pub(super) default_address: Option<&'static str>,
    /// Variables that make the agent ignore these addresses.
    pub(super) unless_set: &'static [&'static str],
    /// Wire formats that the agent speaks with this model.
    pub(super) formats: &'static [FormatName],
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
    /// Wire formats of its requests.
    formats: &'static [FormatName],
}

/// Returns the keys to hide from an agent, according to its configuration and the known variables of its program.
pub(super) fn hidden_keys(settings: &BackendSetup, known: &[ModelKey]) -> Vec<HiddenKey> {
    if !settings.config.hide_keys {
        return Vec::new();
    }
    let value = |name: &str| {
        let (_, value) = settings.env.iter().find(|(known, _)| known == name)?;
        Some(value.expose_secret()).filter(|value| !value.is_empty())
    };
    let mut hidden: Vec<HiddenKey> = Vec::new();
    for (key, at) in settings.config.keys.iter().filter(|(key, _)| value(key).is_some()) {
        match hidden.iter_mut().find(|hidden| hidden.addresses.contains(at)) {
            Some(hidden) => hidden.keys.push(key.clone()),
            None => hidden.extend(value(at).and_then(address_in).map(|model| HiddenKey {
                keys: vec![key.clone()],
                addresses: vec![at.clone()],
                model,
                formats: FormatName::ALL,
            })),
        }
    }
    for known in known.iter().filter(|known| !known.unless_set.iter().any(|name| value(name).is_some())) {
        let keys = known.keys.iter().filter(|key| value(key).is_some() && !settings.config.keys.contains_key(**key));
        let keys: Vec<String> = keys.map(|key| (*key).to_owned()).collect();
        let model = known.addresses.iter().find_map(|name| value(name)).or(known.default_address).and_then(address_in);
        if let Some(model) = model.filter(|_| !keys.is_empty()) {
            hidden.push(HiddenKey {
                keys,
                addresses: known.addresses.iter().map(|name| (*name).to_owned()).collect(),
                model,
                formats: known.formats,
            });
        }
    }
    hidden
}

fn address(text: &str) -> Option<Url> {
    Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.host_str().is_some())
}

/// Returns the address in a variable: its value, or the only address in settings as JSON.
fn address_in(value: &str) -> Option<Url> {
    address(value).or_else(|| {
        let (mut settings, mut found) = (settings_in(value)?, Vec::new());
        each_text(&mut settings, &mut |text| found.extend(address(text)));
        found.pop().filter(|_| found.is_empty())
    })
}

/// Returns the value of a variable with `new` in place of the address.
fn with_address(value: &str, new: &str) -> String {
    let Some(mut settings) = settings_in(value) else { return new.to_owned() };
    each_text(&mut settings, &mut |text| {
        if address(text).is_some() {
            new.clone_into(text);
        }
    });
    settings.to_string()
}

fn settings_in(value: &str) -> Option<Value> {
    serde_json::from_str(value).ok().filter(Value::is_object)
}

fn each_text(value: &mut Value, visit: &mut impl FnMut(&mut String)) {
    match value {
        Value::String(text) => visit(text),
        Value::Array(values) => values.iter_mut().for_each(|value| each_text(value, visit)),
        Value::Object(fields) => fields.values_mut().for_each(|value| each_text(value, visit)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// HTTP clients for the models of one backend, by address. A client is created on first use and shared by all runs,
/// because reading the TLS root certificates takes longer than starting an agent.
#[derive(Default)]
pub(super) struct ModelClients(Mutex<Vec<(Url, reqwest::Client)>>);

impl ModelClients {
    fn of(&self, model: &Url) -> Result<reqwest::Client, Failure> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, client)) = known.iter().find(|(at, _)| at == model) {
            return Ok(client.clone());
        }
        let client = client_of_model(model).build().map_err(|error| Failure::of(error.without_url()))?;
        known.push((model.clone(), client.clone()));
        Ok(client)
    }
}

/// Returns all forms of the hidden keys, such as encoded ones, that are removed from responses.
pub(super) fn forms_of_keys(settings: &BackendSetup, hidden: &[HiddenKey]) -> Arc<SecretForms> {
    let is_hidden = |name: &String| hidden.iter().any(|hidden| hidden.keys.contains(name));
    let keys = settings.env.iter().filter(|(name, _)| is_hidden(name));
    Arc::new(SecretForms::new(keys.map(|(_, key)| key.expose_secret())))
}

/// Data that the brokers of all runs of a backend share.
pub(super) struct BrokerParts<'a> {
    pub(super) hidden: &'a [HiddenKey],
    pub(super) clients: &'a ModelClients,
    /// Forms of all keys.
    pub(super) forms: &'a Arc<SecretForms>,
}

/// Forwards an agent's requests to its models until it is dropped.
pub(super) struct Broker {
    /// Operator's environment variables, with keys and addresses replaced.
    pub(super) variables: Vec<(String, SecretString)>,
    _serving: JoinSet<()>,
}

impl Broker {
    /// Starts listening for requests to the models whose keys are hidden.
    ///
    /// # Errors
    /// A message for the operator: no free port, or no TLS root certificates.
    pub(super) async fn open(
        settings: &BackendSetup,
        parts: &BrokerParts<'_>,
        meter: &Arc<RunMeter>,
    ) -> Result<Self, Failure> {
        let mut broker = Self { variables: settings.env.clone(), _serving: JoinSet::new() };
        for hidden in parts.hidden {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
            let bound = listener.and_then(|listener| Ok((listener.local_addr()?, listener)));
            let (at, listener) = bound
                .map_err(|error: io::Error| Failure::new("no port could be opened for its model").caused_by(error))?;
            let mut address = format!("http://{at}{}", hidden.model.path().trim_end_matches('/'));
            // Tools that concatenate paths may rely on a trailing slash.
            if hidden.model.path().len() > 1 && hidden.model.path().ends_with('/') {
                address.push('/');
            }
            for name in &hidden.addresses {
                let value =
                    settings.env.iter().find(|(known, _)| known == name).map(|(_, value)| value.expose_secret());
                broker.set(name, with_address(value.unwrap_or_default(), &address));
            }
            let (tokens, keys) = tokens_for(hidden, &settings.env);
            for token in &tokens {
                broker.set(&token.variable, token.token.clone());
            }
            let model = BrokeredModel {
                hosts: [at.to_string(), format!("localhost:{}", at.port())],
                base: hidden.model.clone(),
                base_path: hidden.model.path().trim_end_matches('/').to_owned(),
                client: parts.clients.of(&hidden.model)?,
                formats: hidden.formats,
                allowed: settings.config.server_tools.clone(),
                tokens,
                keys,
                forms: parts.forms.clone(),
                meter: meter.clone(),
            };
            let router = axum::Router::new().fallback(forward).with_state(Arc::new(model));
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

/// Creates a token for each key whose variable is set. Also returns the keys, in the same order.
fn tokens_for(hidden: &HiddenKey, variables: &[(String, SecretString)]) -> (Vec<RunToken>, Vec<SecretString>) {
    let of = |name: &String| {
        let (_, key) = variables.iter().find(|(known, _)| known == name)?;
        let token = format!("ralph-{}{}", uuid::Uuid::new_v4().simple(), uuid::Uuid::new_v4().simple());
        Some((RunToken { token, variable: name.clone() }, key.clone()))
    };
    hidden.keys.iter().filter_map(of).unzip()
}

/// Model with its keys and the rules for a run's requests.
struct BrokeredModel {
    /// Values of the `Host` header under which clients reach the broker.
    hosts: [String; 2],
    base: Url,
    base_path: String,
    client: reqwest::Client,
    formats: &'static [FormatName],
    /// Names of the provider's features that the operator allows.
    allowed: Vec<String>,
    tokens: Vec<RunToken>,
    /// Keys that replace the tokens, in the same order.
    keys: Vec<SecretString>,
    forms: Arc<SecretForms>,
    meter: Arc<RunMeter>,
}

impl BrokeredModel {
    fn rules(&self) -> RequestRules<'_> {
        RequestRules {
            formats: self.formats,
            hosts: self.hosts.clone(),
            base_path: &self.base_path,
            tokens: &self.tokens,
            allowed: &self.allowed,
        }
    }

    /// Checks a request, sends it to the model and returns the response.
    async fn answer(self: &Arc<Self>, request: Request) -> Result<Response, RefusedRequest> {
        let (head, body) = request.into_parts();
        let mut checked = request::check_head(&self.rules(), &head)?;
        let (mut fields, mut call) = (None, None);
        // Held until the body was sent.
        let mut room = None;
        if checked.method == Method::POST {
            let length = body_length(&head.headers)?;
            room = Some(self.meter.body_room(length).await);
            let body = receive(body).await?;
            let read;
            (checked, read) = self.clone().read_body(checked, body).await?;
            fields = Some(read);
        }
        if let (EndpointPurpose::Answer, Some(fields)) = (checked.matched.purpose, fields.as_mut()) {
            call = Some(self.reserve(&checked, fields).await?);
        }
        let format = checked.matched.format;
        let outgoing = self.outgoing(checked, fields)?;
        if let Some(call) = &mut call {
            call.sent();
        }
        let sent = outgoing.send().await.map_err(|error| {
            // Nothing was sent, so nothing is charged.
            if error.is_connect()
                && let Some(call) = &mut call
            {
                call.refused();
            }
            let why = format!("cannot reach the model: {}", error_chain(&error.without_url()));
            RefusedRequest { status: StatusCode::BAD_GATEWAY, kind: "api_error", why }
        });
        let upstream = sent?;
        drop(room);
        let answer = ModelAnswer { upstream, format, call, forms: self.forms.clone() };
        answer.into_response(|refusal| self.meter.note_answer(refusal)).await
    }

    /// Checks the body of a request. A large one takes a while, so it does not run on the thread of other requests.
    async fn read_body(
        self: Arc<Self>,
        checked: CheckedHead,
        body: Bytes,
    ) -> Result<(CheckedHead, RequestBody), RefusedRequest> {
        let check = move || -> Result<_, RefusedRequest> {
            let read = request::check_body(&self.rules(), &checked.matched, &body)?;
            Ok((checked, read))
        };
        let failed = |_: tokio::task::JoinError| RefusedRequest::invalid("the broker could not check the body");
        tokio::task::spawn_blocking(check).await.map_err(failed)?
    }

    /// Reserves the cost of a request. Limits the length of the response if the remaining budget requires it.
    async fn reserve(&self, checked: &CheckedHead, body: &mut RequestBody) -> Result<OpenCall, RefusedRequest> {
        let format = checked.matched.format;
        let keeps_long = body.keeps_long;
        let settings = &mut body.settings;
        (format.ask_usage)(settings);
        let named = checked.matched.model.as_deref().or_else(|| settings.get("model").and_then(Value::as_str));
        let model = named.unwrap_or_default().to_owned();
        let (output, choices) = (format.output)(settings);
        let bytes = body.len();
        let longest = meter::most_tokens(bytes);
        let quote = Quote {
            price: self.meter.prices().price_or_highest([model.as_str()], format.vendor, longest),
            bytes,
            keeps_long,
            output,
            choices,
            model,
            vendor: format.vendor,
        };
        let (call, most) = self.meter.reserve(&quote).await.map_err(|why| RefusedRequest {
            status: StatusCode::PAYMENT_REQUIRED,
            kind: "billing_error",
            why: format!("the budget is used up: {why}"),
        })?;
        if let Some(most) = most {
            (format.limit_output)(&mut body.settings, most);
        }
        Ok(call)
    }

    /// Builds the request to the model from the checked parts, with the key in the authentication header.
    fn outgoing(
        &self,
        checked: CheckedHead,
        body: Option<RequestBody>,
    ) -> Result<reqwest::RequestBuilder, RefusedRequest> {
        let (header, index) = checked.auth;
        let key = self.keys.get(index).map_or("", |key| key.expose_secret().trim());
        let mut url = self.base.clone();
        url.set_path(&checked.path);
        match (self.base.query(), checked.query.as_deref()) {
            (Some(own), Some(query)) => url.set_query(Some(&format!("{own}&{query}"))),
            (None, query) => url.set_query(query),
            (Some(_), None) => {}
        }
        let mut headers = checked.headers;
        let mut value = HeaderValue::from_str(&header.value(key)).map_err(|_| RefusedRequest {
            status: StatusCode::BAD_GATEWAY,
            kind: "api_error",
            why: "the key contains invalid characters (a line break?)".to_owned(),
        })?;
        value.set_sensitive(true);
        headers.insert(header.name(), value);
        let request = self.client.request(checked.method, url).headers(headers);
        Ok(match body {
            Some(body) => request.header(CONTENT_TYPE, "application/json").body(body.to_bytes()),
            None => request,
        })
    }

    /// Reports a refused request to the operator, each kind once per run.
    fn report(&self, asked: &str, refusal: &RefusedRequest) {
        // Some clients look whether the address answers before they send anything.
        if asked.starts_with("HEAD ") || asked.starts_with("OPTIONS ") {
            return;
        }
        let what = format!("{asked}: {}", refusal.why);
        if self.meter.note_refused(&what) {
            tracing::warn!(model = %self.base.host_str().unwrap_or_default(), what, "a request of an agent to its model was refused");
        }
    }
}

/// Returns the announced length of a body, or the maximum if no length is announced.
fn body_length(headers: &HeaderMap) -> Result<usize, RefusedRequest> {
    let announced = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    let length = announced.unwrap_or(BROKER_BODY_BYTES);
    if length > BROKER_BODY_BYTES { Err(too_large()) } else { Ok(length) }
}

/// Reads the body of a request.
async fn receive(body: Body) -> Result<Bytes, RefusedRequest> {
    let read = tokio::time::timeout(BODY_TIMEOUT, axum::body::to_bytes(body, BROKER_BODY_BYTES)).await;
    let late = |_| RefusedRequest::invalid("the body of the request did not arrive within two minutes");
    read.map_err(late)?.map_err(|_| too_large())
}

fn too_large() -> RefusedRequest {
    let why = "the request is larger than 32 MiB or incomplete".to_owned();
    RefusedRequest { status: StatusCode::PAYLOAD_TOO_LARGE, kind: "invalid_request_error", why }
}

async fn forward(State(model): State<Arc<BrokeredModel>>, request: Request) -> Response {
    let path: String = request.uri().path().chars().take(80).collect();
    let asked = format!("{} {}", request.method(), path);
    match model.answer(request).await {
        Ok(response) => response,
        Err(refusal) => {
            model.report(&asked, &refusal);
            refused(&refusal, &model.forms)
        }
    }
}

/// Returns an error response whose message the clients of all vendors can read.
fn refused(refusal: &RefusedRequest, forms: &Arc<SecretForms>) -> Response {
    let RefusedRequest { status, kind, why } = refusal;
    let error = json!({ "type": kind, "code": status.as_u16(), "message": format!("ralph-bot: {why}") });
    let body = json!({ "type": "error", "error": error }).to_string();
    let body = forms.redact(body.as_bytes(), answer::MARK);
    (*status, [(CONTENT_TYPE, "application/json")], body).into_response()
}
