//! Wire formats of models that the broker knows. Each defines the allowed requests, the authentication headers, the
//! features of the provider that need permission, and how responses report usage. Each format is one file. Other
//! formats are refused.

mod chat;
mod gemini;
mod messages;
mod responses;

use axum::http::Method;
use serde_json::{Map, Value};

use super::usage::ReadUsage;
use crate::domain::providers::prices::Vendor;

/// Name of a wire format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::agent) enum FormatName {
    /// Anthropic Messages.
    Messages,
    /// OpenAI Chat Completions and compatible servers.
    Chat,
    /// OpenAI Responses.
    Responses,
    /// Google Gemini.
    Gemini,
}

impl FormatName {
    /// All formats. They apply to a model whose address the operator configured.
    pub(in crate::agent) const ALL: &'static [Self] = &[Self::Messages, Self::Chat, Self::Responses, Self::Gemini];

    /// Returns the definition of the format.
    pub(super) fn row(self) -> &'static WireFormat {
        match self {
            Self::Messages => &messages::FORMAT,
            Self::Chat => &chat::FORMAT,
            Self::Responses => &responses::FORMAT,
            Self::Gemini => &gemini::FORMAT,
        }
    }
}

/// Header that authenticates a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AuthHeader {
    /// `x-api-key: KEY`.
    ApiKey,
    /// `authorization: Bearer KEY`.
    Bearer,
    /// `x-goog-api-key: KEY`.
    GoogleKey,
}

impl AuthHeader {
    /// Name of the header.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::ApiKey => "x-api-key",
            Self::Bearer => "authorization",
            Self::GoogleKey => "x-goog-api-key",
        }
    }

    /// Returns the token in a value of the header; `None` if the value has another form.
    pub(super) fn token(self, value: &str) -> Option<&str> {
        match self {
            Self::ApiKey | Self::GoogleKey => Some(value),
            Self::Bearer => {
                let (scheme, token) = value.split_once(' ')?;
                scheme.eq_ignore_ascii_case("bearer").then_some(token)
            }
        }
    }

    /// Returns the value of the header for a key.
    pub(super) fn value(self, key: &str) -> String {
        match self {
            Self::ApiKey | Self::GoogleKey => key.to_owned(),
            Self::Bearer => format!("Bearer {key}"),
        }
    }
}

/// Purpose of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EndpointPurpose {
    /// Response of the model, which costs money.
    Answer,
    /// Count of tokens, which is free.
    Count,
    /// Descriptions of models.
    Models,
}

/// Method and path of an endpoint, relative to the model's address.
pub(super) struct Endpoint {
    pub(super) method: Method,
    /// Path after the version; `{}` is a placeholder for the name of a model.
    pub(super) path: &'static str,
    pub(super) purpose: EndpointPurpose,
}

impl Endpoint {
    const fn post(path: &'static str, purpose: EndpointPurpose) -> Self {
        Self { method: Method::POST, path, purpose }
    }

    const fn get(path: &'static str) -> Self {
        Self { method: Method::GET, path, purpose: EndpointPurpose::Models }
    }
}

/// Definition of a wire format.
pub(super) struct WireFormat {
    pub(super) name: &'static str,
    /// Headers that can authenticate a request, in order of preference.
    pub(super) auth: &'static [AuthHeader],
    /// Versions with which a path can begin, unless the model's address already contains one.
    pub(super) versions: &'static [&'static str],
    pub(super) endpoints: &'static [Endpoint],
    /// Query parameters with their allowed values. An empty list allows any text of letters, digits and `._-`.
    pub(super) query: &'static [(&'static str, &'static [&'static str])],
    /// Allowed fields of a request for a response or a token count. Other fields are features that the operator must
    /// allow by name.
    pub(super) fields: &'static [&'static str],
    /// Returns the name of the feature for a tool that the provider runs; `None` for a tool that the agent runs. The
    /// value has the tool's fields without what is nested in them.
    pub(super) server_tool: fn(&Value) -> Option<String>,
    /// Returns the names of the features that the request's settings ask for.
    pub(super) features: fn(&Map<String, Value>) -> Vec<&'static str>,
    /// Returns the maximum number of tokens of a response, if the request limits it, and the number of responses.
    pub(super) output: fn(&Map<String, Value>) -> (Option<u64>, u64),
    /// Sets the maximum number of tokens of a response.
    pub(super) limit_output: fn(&mut Map<String, Value>, u64),
    /// Changes a request so that its response reports the usage.
    pub(super) ask_usage: fn(&mut Map<String, Value>),
    /// Function that reads the usage from a response.
    pub(super) usage: ReadUsage,
    /// Vendor whose highest price is used for models without a known price; `None` for the highest price of all
    /// vendors.
    pub(super) vendor: Option<Vendor>,
}

/// Endpoint that matches a request.
pub(super) struct Matched {
    pub(super) format: &'static WireFormat,
    pub(super) purpose: EndpointPurpose,
    /// Name of the model in the path; `None` if the path contains none.
    pub(super) model: Option<String>,
}

/// Returns the endpoint of a path relative to the model's address. The error is `true` if the path exists with another
/// method.
pub(super) fn endpoint(formats: &[FormatName], method: &Method, path: &str) -> Result<Matched, bool> {
    let mut is_known = false;
    for format in formats.iter().map(|name| name.row()) {
        for version in format.versions.iter().copied().chain([""]) {
            let Some(rest) = path.strip_prefix(version) else { continue };
            for endpoint in format.endpoints {
                let Some(model) = matches(endpoint.path, rest) else { continue };
                if endpoint.method == *method {
                    return Ok(Matched { format, purpose: endpoint.purpose, model });
                }
                is_known = true;
            }
        }
    }
    Err(is_known)
}

/// Matches a path against an endpoint's pattern; returns the name of the model in it, if any. `None` if it does not
/// match.
fn matches(pattern: &str, path: &str) -> Option<Option<String>> {
    let Some((before, after)) = pattern.split_once("{}") else { return (pattern == path).then_some(None) };
    let model = path.strip_prefix(before)?.strip_suffix(after)?;
    let is_name = !model.is_empty() && !model.contains('/') && (after.is_empty() || !model.contains(':'));
    is_name.then(|| Some(model.to_owned()))
}

/// Returns the name of a tool type without its date: `web_search_20250305` is `web_search`.
fn undated(kind: &str) -> String {
    let digits = |part: &str| part.len() >= 6 && part.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_');
    match kind.rsplit_once('_') {
        Some((name, date)) if digits(date) => name.to_owned(),
        _ => kind.to_owned(),
    }
}

/// Returns the feature name of a tool that the provider runs; `None` if its type is in `own`, the types that the agent
/// runs itself.
fn unless_own(tool: &Value, own: &[&str]) -> Option<String> {
    match tool.get("type") {
        Some(Value::String(kind)) if own.contains(&undated(kind).as_str()) => None,
        Some(Value::String(kind)) => Some(undated(kind)),
        _ => Some("untyped_tools".to_owned()),
    }
}

/// Returns the search feature of a model that searches the web by itself, which is recognized by its name; `None` for
/// other models.
pub(super) fn searching_model(model: &str) -> Option<&'static str> {
    let model = model.to_ascii_lowercase();
    let searches =
        ["search", "research", ":online", "sonar", "compound", "browse"].iter().any(|word| model.contains(word));
    let last = model.rsplit('/').next().unwrap_or_default();
    (searches || last == "exa" || last.starts_with("exa-")).then_some("search_models")
}
