//! Wire formats of models that the broker knows: what a request may be, which header authenticates it, what the provider would
//! do besides answering, and how the answer tells its usage. One file a format; all else is refused.

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
    /// OpenAI Chat Completions and what speaks it.
    Chat,
    /// OpenAI Responses.
    Responses,
    /// Google Gemini.
    Gemini,
}

impl FormatName {
    /// All formats: those of a model that the operator's own configuration names.
    pub(in crate::agent) const ALL: &'static [Self] = &[Self::Messages, Self::Chat, Self::Responses, Self::Gemini];

    /// Returns the row of the format.
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

    /// Returns the token in a value of the header.
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
    /// An answer of the model, which costs money.
    Answer,
    /// A count of tokens, which is free.
    Count,
    /// Descriptions of models.
    Models,
}

/// A method and a path below the model's address.
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

/// A wire format.
pub(super) struct WireFormat {
    pub(super) name: &'static str,
    /// Headers of which one authenticates a request, in order of preference.
    pub(super) auth: &'static [AuthHeader],
    /// Versions that a path can begin with, unless the model's address already contains one.
    pub(super) versions: &'static [&'static str],
    pub(super) endpoints: &'static [Endpoint],
    /// Parameters of a query, each with the values that it may have; any text of letters, digits and `._-` if empty.
    pub(super) query: &'static [(&'static str, &'static [&'static str])],
    /// Fields of a request for an answer or a count. All others are features that must be allowed by name.
    pub(super) fields: &'static [&'static str],
    /// Returns the name of the feature that a tool is, if the provider runs it.
    pub(super) server_tool: fn(&Value) -> Option<String>,
    /// Returns the names of features that are requested by the values of allowed fields.
    pub(super) features: fn(&Map<String, Value>) -> Vec<&'static str>,
    /// Returns the maximum number of tokens of an answer, if the request limits it, and the number of answers.
    pub(super) output: fn(&Map<String, Value>) -> (Option<u64>, u64),
    /// Limits the number of tokens of an answer.
    pub(super) limit_output: fn(&mut Map<String, Value>, u64),
    /// Changes a request so that its answer reports its usage.
    pub(super) ask_usage: fn(&mut Map<String, Value>),
    /// Reader of the usage.
    pub(super) usage: ReadUsage,
    /// Vendor whose highest price holds for models without a known price; `None` for the highest of all.
    pub(super) vendor: Option<Vendor>,
}

/// Endpoint that a request asks for.
pub(super) struct Matched {
    pub(super) format: &'static WireFormat,
    pub(super) purpose: EndpointPurpose,
    /// Name of the model in the path.
    pub(super) model: Option<String>,
}

/// Returns the endpoint of the path below the model's address; the error says whether the path exists for other methods.
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

/// Whether a path is that of an endpoint; returns the name of the model in it.
fn matches(pattern: &str, path: &str) -> Option<Option<String>> {
    let Some((before, after)) = pattern.split_once("{}") else { return (pattern == path).then_some(None) };
    let model = path.strip_prefix(before)?.strip_suffix(after)?;
    let is_name = !model.is_empty() && !model.contains('/') && (after.is_empty() || !model.contains(':'));
    is_name.then(|| Some(model.to_owned()))
}

/// Returns a number of tokens, rounded up; 0 for anything else.
fn tokens(value: &Value) -> u64 {
    // A cast from a float stays within the integer's range.
    value.as_u64().unwrap_or_else(|| value.as_f64().map_or(0, |number| number.ceil() as u64))
}

/// Returns the name of a tool type without its date: `web_search_20250305` is `web_search`.
fn undated(kind: &str) -> String {
    let digits = |part: &str| part.len() >= 6 && part.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_');
    match kind.rsplit_once('_') {
        Some((name, date)) if digits(date) => name.to_owned(),
        _ => kind.to_owned(),
    }
}

/// Returns the name of a feature for a tool whose type is not one of those that the agent runs itself.
fn unless_own(tool: &Value, own: &[&str]) -> Option<String> {
    match tool.get("type") {
        Some(Value::String(kind)) if own.contains(&undated(kind).as_str()) => None,
        Some(Value::String(kind)) => Some(undated(kind)),
        _ => Some("untyped_tools".to_owned()),
    }
}

/// Returns the search feature of a model that searches by itself, by its name.
pub(super) fn searching_model(model: &str) -> Option<&'static str> {
    let model = model.to_ascii_lowercase();
    let searches =
        ["search", "research", ":online", "sonar", "compound", "browse"].iter().any(|word| model.contains(word));
    let last = model.rsplit('/').next().unwrap_or_default();
    (searches || last == "exa" || last.starts_with("exa-")).then_some("search_models")
}
