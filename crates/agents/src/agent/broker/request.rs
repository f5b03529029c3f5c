//! Checks a request before any part of it is sent: its form, endpoint, token, and the work that its body requests of the
//! provider. The request to the model is built only from checked parts.

use std::borrow::Cow;

use axum::http::header::{ACCEPT, CONTENT_ENCODING, CONTENT_TYPE, HOST, TRANSFER_ENCODING, UPGRADE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version};
use serde_json::{Map, Value};

use super::body::RequestBody;
use super::formats::{self, AuthHeader, EndpointPurpose, FormatName, Matched, WireFormat};

/// Headers that are forwarded; names that end with `-` are prefixes.
const FORWARDED: [&str; 14] = [
    "user-agent",
    "anthropic-version",
    "anthropic-beta",
    "anthropic-dangerous-direct-browser-access",
    "x-app",
    "x-stainless-",
    "openai-beta",
    "originator",
    "session_id",
    "session-id",
    "thread-id",
    "x-client-request-id",
    "x-codex-",
    "x-goog-api-client",
];
/// Headers that can make a server use another method, path or host.
const OVERRIDES: [&str; 10] = [
    "x-http-method-override",
    "x-http-method",
    "x-method-override",
    "x-original-url",
    "x-original-uri",
    "x-rewrite-url",
    "x-forwarded-host",
    "x-forwarded-path",
    "x-goog-encode-response-if-executable",
    "http2-settings",
];
/// Maximum number of features that a refusal names.
const MAX_NAMED: usize = 20;
/// Fields with a length or a number of responses, which limit the cost of a request.
const COUNTS: [&str; 8] = [
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "maxOutputTokens",
    "n",
    "candidateCount",
    "candidate_count",
    "budget_tokens",
];
/// Fields that contain objects with such limits.
const WITH_COUNTS: [&str; 3] = ["generationConfig", "generation_config", "thinking"];
/// Refusal of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RefusedRequest {
    /// HTTP status of the response.
    pub(super) status: StatusCode,
    /// Kind of the error, in the vendors' terms.
    pub(super) kind: &'static str,
    /// Reason, as a sentence without a full stop.
    pub(super) why: String,
}

impl RefusedRequest {
    pub(super) fn invalid(why: impl Into<String>) -> Self {
        Self { status: StatusCode::BAD_REQUEST, kind: "invalid_request_error", why: why.into() }
    }

    fn not_found(why: &str) -> Self {
        Self { status: StatusCode::NOT_FOUND, kind: "not_found_error", why: why.to_owned() }
    }
}

/// Token of a run and the headers in which it is allowed.
pub(super) struct RunToken {
    pub(super) token: String,
    /// Name of the environment variable that contains the token.
    pub(super) variable: String,
}

impl RunToken {
    /// Whether the agent's program sends this variable in a header of this kind.
    fn belongs_in(&self, header: AuthHeader) -> bool {
        match self.variable.as_str() {
            "ANTHROPIC_API_KEY" => header == AuthHeader::ApiKey,
            "ANTHROPIC_AUTH_TOKEN" | "CLAUDE_CODE_OAUTH_TOKEN" => header == AuthHeader::Bearer,
            _ => true,
        }
    }
}

/// Rules for the requests to one model.
pub(super) struct RequestRules<'a> {
    pub(super) formats: &'a [FormatName],
    /// Values of the `Host` header that a request may have.
    pub(super) hosts: [String; 2],
    /// Path of the model's address, without a trailing slash.
    pub(super) base_path: &'a str,
    pub(super) tokens: &'a [RunToken],
    /// Names of the provider's features that the operator allows.
    pub(super) allowed: &'a [String],
}

/// Head of a request that passed its checks; the body is checked separately.
pub(super) struct CheckedHead {
    pub(super) matched: Matched,
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) query: Option<String>,
    pub(super) headers: HeaderMap,
    /// Header for the key, and the index of the run token in it.
    pub(super) auth: (AuthHeader, usize),
}

/// Checks the head of a request.
pub(super) fn check_head(rules: &RequestRules<'_>, head: &Parts) -> Result<CheckedHead, RefusedRequest> {
    check_form(rules, head)?;
    let path = head.uri.path();
    let below = path.strip_prefix(rules.base_path).filter(|below| below.starts_with('/') && is_plain(path));
    let below = below
        .ok_or_else(|| RefusedRequest::not_found("the path is not a plain path below the address of the model"))?;
    let matched = formats::endpoint(rules.formats, &head.method, below).map_err(|is_known| {
        if is_known {
            let why = "this endpoint does not have that method".to_owned();
            RefusedRequest { status: StatusCode::METHOD_NOT_ALLOWED, kind: "invalid_request_error", why }
        } else {
            let names: Vec<_> = rules.formats.iter().map(|name| name.row().name).collect();
            let names = names.join(", ");
            RefusedRequest::not_found(&format!("only requests for answers, counts and models ({names}) are forwarded"))
        }
    })?;
    let auth = token(rules, matched.format, &head.headers)?;
    check_query(matched.format, head.uri.query())?;
    if head.method == Method::POST {
        check_content(&head.headers)?;
    }
    Ok(CheckedHead {
        method: head.method.clone(),
        path: path.to_owned(),
        query: head.uri.query().filter(|query| !query.is_empty()).map(str::to_owned),
        headers: forwarded(&head.headers),
        matched,
        auth,
    })
}

/// Checks that a request is addressed to the broker and is not a protocol upgrade or tunnel.
fn check_form(rules: &RequestRules<'_>, head: &Parts) -> Result<(), RefusedRequest> {
    if head.uri.authority().is_some() || head.uri.scheme().is_some() || head.method == Method::CONNECT {
        return Err(RefusedRequest::invalid("this server is not a proxy: the request target must be a path"));
    }
    if head.version != Version::HTTP_11 {
        return Err(RefusedRequest::invalid("only HTTP/1.1 is supported"));
    }
    let names_broker = |host: &str| rules.hosts.iter().any(|known| known.eq_ignore_ascii_case(host));
    if !single(&head.headers, HOST.as_str())?.is_some_and(names_broker) {
        let why = "the header `host` does not name this address".to_owned();
        return Err(RefusedRequest { status: StatusCode::MISDIRECTED_REQUEST, kind: "invalid_request_error", why });
    }
    if head.headers.contains_key(UPGRADE) {
        return Err(RefusedRequest::invalid("connections cannot be upgraded"));
    }
    if let Some(name) = OVERRIDES.into_iter().find(|name| head.headers.contains_key(*name)) {
        return Err(RefusedRequest::invalid(format!("the header `{name}` would change the request")));
    }
    let encodings = single(&head.headers, TRANSFER_ENCODING.as_str())?;
    if encodings.is_some_and(|encoding| !encoding.eq_ignore_ascii_case("chunked")) {
        return Err(RefusedRequest::invalid("the body has another transfer encoding than `chunked`"));
    }
    Ok(())
}

/// Returns the value of a header that must occur at most once; `None` if it is missing.
fn single<'h>(headers: &'h HeaderMap, name: &str) -> Result<Option<&'h str>, RefusedRequest> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let value = value
        .to_str()
        .map_err(|_| RefusedRequest::invalid(format!("the header `{name}` contains other characters than ASCII")))?;
    if values.next().is_some() {
        return Err(RefusedRequest::invalid(format!("the header `{name}` occurs twice")));
    }
    Ok(Some(value))
}

/// Whether all servers interpret the path in the same way: it has no escapes, empty or dotted segments, parameters or
/// backslashes.
fn is_plain(path: &str) -> bool {
    let is_plain =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~' | b':' | b'@' | b'+');
    let mut segments = path.split('/').skip(1);
    path.starts_with('/')
        && segments.all(|part| !part.is_empty() && part.bytes().all(is_plain) && part.bytes().any(|byte| byte != b'.'))
}

/// Returns the header that contains the run's token, and the token's index.
fn token(
    rules: &RequestRules<'_>,
    format: &WireFormat,
    headers: &HeaderMap,
) -> Result<(AuthHeader, usize), RefusedRequest> {
    for header in format.auth {
        let Some(given) = single(headers, header.name())?.and_then(|value| header.token(value)) else { continue };
        let known = rules.tokens.iter().position(|known| known.token == given && known.belongs_in(*header));
        if let Some(index) = known {
            return Ok((*header, index));
        }
    }
    let names: Vec<_> = format.auth.iter().map(|header| format!("`{}`", header.name())).collect();
    let why = format!("the token of this run is not in the header {}", names.join(" or "));
    Err(RefusedRequest { status: StatusCode::UNAUTHORIZED, kind: "authentication_error", why })
}

fn check_query(format: &WireFormat, query: Option<&str>) -> Result<(), RefusedRequest> {
    let is_value = |value: &str| value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
    for pair in query.into_iter().flat_map(|query| query.split('&')).filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let known = format.query.iter().find(|(known, _)| *known == name);
        if !known.is_some_and(|(_, values)| if values.is_empty() { is_value(value) } else { values.contains(&value) }) {
            return Err(RefusedRequest::invalid("the query contains a parameter that this endpoint does not need"));
        }
    }
    Ok(())
}

/// Checks that the headers declare the body as plain JSON.
fn check_content(headers: &HeaderMap) -> Result<(), RefusedRequest> {
    let kind = single(headers, CONTENT_TYPE.as_str())?.unwrap_or_default().to_ascii_lowercase();
    let (kind, parameters) = kind.split_once(';').unwrap_or((kind.as_str(), ""));
    let is_utf8 = matches!(parameters.trim().trim_matches('"'), "" | "charset=utf-8" | "charset=\"utf-8");
    if kind.trim() != "application/json" || !is_utf8 {
        return Err(RefusedRequest::invalid(
            "the body is not announced as JSON in UTF-8 (`content-type: application/json`)",
        ));
    }
    match single(headers, CONTENT_ENCODING.as_str())? {
        None => Ok(()),
        Some(encoding) if encoding.eq_ignore_ascii_case("identity") => Ok(()),
        Some(_) => Err(RefusedRequest::invalid("the body is compressed; send it without `content-encoding`")),
    }
}

/// Returns the headers that are forwarded.
fn forwarded(headers: &HeaderMap) -> HeaderMap {
    let is_forwarded = |name: &HeaderName| {
        let name = name.as_str();
        FORWARDED.iter().any(|known| if known.ends_with('-') { name.starts_with(known) } else { name == *known })
    };
    let mut sent: HeaderMap = headers
        .iter()
        .filter(|(name, _)| is_forwarded(name))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    let streams = headers.get_all(ACCEPT).iter().any(|value| value.to_str().is_ok_and(|v| v.contains("event-stream")));
    let accept = if streams { "application/json, text/event-stream" } else { "application/json" };
    sent.insert(ACCEPT, HeaderValue::from_static(accept));
    // A compressed answer could not be searched for the key.
    sent.insert(axum::http::header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    sent
}

/// Reads the body of a request and checks the requested work of the provider.
pub(super) fn check_body(
    rules: &RequestRules<'_>,
    matched: &Matched,
    body: &[u8],
) -> Result<RequestBody, RefusedRequest> {
    let body = RequestBody::read(matched.format, body)
        .map_err(|error| RefusedRequest::invalid(format!("the body is not an unambiguous JSON object: {error}")))?;
    let settings = &body.settings;
    let model = matched.model.as_deref().or_else(|| settings.get("model").and_then(Value::as_str));
    if matched.purpose == EndpointPurpose::Answer && model.is_none() {
        return Err(RefusedRequest::invalid("the request names no model"));
    }
    check_counts(settings)?;
    let mut features: Vec<Cow<'static, str>> = unknown_fields(matched.format, &body);
    features.extend((matched.format.features)(settings).into_iter().map(Cow::from));
    features.extend(model.and_then(formats::searching_model).map(Cow::from));
    features.extend(expensive_tier(settings).map(Cow::from));
    features.extend(body.features.iter().cloned());
    features.retain(|feature| !rules.allowed.iter().any(|allowed| *allowed == **feature));
    features.dedup();
    features.truncate(MAX_NAMED);
    match features.first() {
        None => Ok(body),
        Some(first) => Err(RefusedRequest::invalid(format!(
            "the request asks the provider for `{}`, which can pass data outside of the allowed hosts or cost more than is \
             counted; the operator can allow it (`server_tools: [{first}]` of the backend)",
            features.join("`, `")
        ))),
    }
}

/// Checks that fields that limit the cost have the form that the broker reads. Servers also accept strings and
/// fractions.
fn check_counts(body: &Map<String, Value>) -> Result<(), RefusedRequest> {
    if let Some(value) = body.get("stream").filter(|value| !value.is_boolean() && !value.is_null()) {
        let value: String = value.to_string().chars().take(20).collect();
        return Err(RefusedRequest::invalid(format!("`stream` is {value}; write `true` or `false`")));
    }
    for (name, value) in body.iter().filter(|(_, value)| !value.is_null()) {
        if COUNTS.contains(&name.as_str()) && !value.is_u64() {
            return Err(RefusedRequest::invalid(format!("`{name}` must be a non-negative integer")));
        }
        if WITH_COUNTS.contains(&name.as_str()) {
            match value {
                Value::Object(fields) => check_counts(fields)?,
                Value::Bool(_) | Value::String(_) if name == "thinking" => {}
                _ => return Err(RefusedRequest::invalid(format!("`{name}` is not an object"))),
            }
        }
    }
    Ok(())
}

fn unknown_fields(format: &WireFormat, body: &RequestBody) -> Vec<Cow<'static, str>> {
    let unknown = body.fields().filter(|name| !format.fields.contains(name));
    unknown.map(|name| name.chars().take(60).collect::<String>().into()).collect()
}

/// Returns the name of a service tier that costs more than the usual price; `None` if none is requested.
fn expensive_tier(body: &Map<String, Value>) -> Option<&'static str> {
    let usual = ["auto", "default", "standard", "standard_only", "flex"];
    let tier = body.get("service_tier").filter(|tier| !tier.is_null())?;
    (!tier.as_str().is_some_and(|tier| usual.contains(&tier))).then_some("priority_tier")
}

#[cfg(test)]
mod tests;
