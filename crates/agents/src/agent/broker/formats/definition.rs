//! Definition of a wire format.

use axum::http::Method;
use serde_json::{Map, Value};

use crate::agent::broker::usage::ReadUsage;
use crate::domain::providers::prices::Vendor;

/// Header that authenticates a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::agent::broker) enum AuthHeader {
    /// `x-api-key: KEY`.
    ApiKey,
    /// `authorization: Bearer KEY`.
    Bearer,
    /// `x-goog-api-key: KEY`.
    GoogleKey,
}

impl AuthHeader {
    /// Name of the header.
    pub(in crate::agent::broker) fn name(self) -> &'static str {
        match self {
            Self::ApiKey => "x-api-key",
            Self::Bearer => "authorization",
            Self::GoogleKey => "x-goog-api-key",
        }
    }

    /// Returns the token in a value of the header; `None` if the value has another form.
    pub(in crate::agent::broker) fn token(self, value: &str) -> Option<&str> {
        match self {
            Self::ApiKey | Self::GoogleKey => Some(value),
            Self::Bearer => {
                let (scheme, token) = value.split_once(' ')?;
                scheme.eq_ignore_ascii_case("bearer").then_some(token)
            }
        }
    }

    /// Returns the value of the header for a key.
    pub(in crate::agent::broker) fn value(self, key: &str) -> String {
        match self {
            Self::ApiKey | Self::GoogleKey => key.to_owned(),
            Self::Bearer => format!("Bearer {key}"),
        }
    }
}

/// Purpose of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::agent::broker) enum EndpointPurpose {
    /// Response of the model, which costs money.
    Answer,
    /// Count of tokens, which is free.
    Count,
    /// Descriptions of models.
    Models,
}

/// Method and path of an endpoint, relative to the model's address.
pub(in crate::agent::broker) struct Endpoint {
    pub(in crate::agent::broker) method: Method,
    /// Path after the version; `{}` is a placeholder for the name of a model.
    pub(in crate::agent::broker) path: &'static str,
    pub(in crate::agent::broker) purpose: EndpointPurpose,
}

impl Endpoint {
    pub(super) const fn post(path: &'static str, purpose: EndpointPurpose) -> Self {
        Self { method: Method::POST, path, purpose }
    }

    pub(super) const fn get(path: &'static str) -> Self {
        Self { method: Method::GET, path, purpose: EndpointPurpose::Models }
    }
}

/// Definition of a wire format.
pub(in crate::agent::broker) struct WireFormat {
    pub(in crate::agent::broker) name: &'static str,
    /// Headers that can authenticate a request, in order of preference.
    pub(in crate::agent::broker) auth: &'static [AuthHeader],
    /// Versions with which a path can start, unless the model's address already contains one.
    pub(in crate::agent::broker) versions: &'static [&'static str],
    pub(in crate::agent::broker) endpoints: &'static [Endpoint],
    /// Query parameters with their allowed values. An empty list allows any text of letters, digits and `._-`.
    pub(in crate::agent::broker) query: &'static [(&'static str, &'static [&'static str])],
    /// Allowed fields of a request for a response or a token count. Other fields are features that the operator must
    /// allow by name.
    pub(in crate::agent::broker) fields: &'static [&'static str],
    /// Returns the name of the feature for a tool that the provider runs; `None` for a tool that the agent runs. The
    /// value has the tool's fields without nested values.
    pub(in crate::agent::broker) server_tool: fn(&Value) -> Option<String>,
    /// Returns the names of the features that the request's settings ask for.
    pub(in crate::agent::broker) features: fn(&Map<String, Value>) -> Vec<&'static str>,
    /// Returns the maximum number of tokens of a response, if the request limits it, and the number of responses.
    pub(in crate::agent::broker) output: fn(&Map<String, Value>) -> (Option<u64>, u64),
    /// Sets the maximum number of tokens of a response.
    pub(in crate::agent::broker) limit_output: fn(&mut Map<String, Value>, u64),
    /// Changes a request so that its response reports the usage.
    pub(in crate::agent::broker) ask_usage: fn(&mut Map<String, Value>),
    /// Function that reads the usage from a response.
    pub(in crate::agent::broker) usage: ReadUsage,
    /// Vendor whose highest price is used for models without a known price; `None` for the highest price of all
    /// vendors.
    pub(in crate::agent::broker) vendor: Option<Vendor>,
}
