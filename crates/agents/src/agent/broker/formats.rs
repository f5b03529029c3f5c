//! Wire formats of models that the broker knows. Each defines the allowed requests, the authentication headers, the
//! features of the provider that need permission, and how responses report usage. Each format is one file. Other
//! formats are refused.

mod chat;
mod definition;
mod gemini;
mod messages;
mod responses;

use axum::http::Method;
use serde_json::Value;

pub(super) use definition::{AuthHeader, EndpointPurpose, WireFormat};

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
