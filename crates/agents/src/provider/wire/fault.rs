//! Parses error responses of servers in all known formats.

use serde_json::Value;

/// Maximum length of a message, in characters.
const MAX_MESSAGE: usize = 2_000;
/// Maximum number of messages.
const MAX_MESSAGES: usize = 8;
/// Error codes of temporarily unavailable servers, regardless of the HTTP status.
const TEMPORARY_CODES: [&str; 8] = [
    "overloaded_error",
    "api_error",
    "server_error",
    "internal_error",
    "internal_server_error",
    "timeout_error",
    "unavailable_error",
    "UNAVAILABLE",
];

/// Error that a server reported.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ProviderError {
    /// Error code.
    pub(crate) code: Option<String>,
    /// Messages.
    pub(crate) messages: Vec<String>,
    /// End of a limit, in seconds since the Unix epoch.
    pub(crate) resets_at: Option<i64>,
    /// Time until the end of a limit, in seconds.
    pub(crate) resets_in: Option<f64>,
}

impl ProviderError {
    /// Whether the code means a temporary error.
    pub(crate) fn is_temporary(&self) -> bool {
        self.code.as_deref().is_some_and(|code| TEMPORARY_CODES.contains(&code))
    }

    /// Returns the error in one line.
    pub(crate) fn summary(&self) -> String {
        match (&self.code, self.messages.first()) {
            (Some(code), Some(message)) => format!("{code}: {message}"),
            (Some(one), None) | (None, Some(one)) => one.clone(),
            (None, None) => "no details were given".to_owned(),
        }
    }
}

/// Parses the error in a body. A body that is not JSON is used as the message; for an HTML page, the message is "a web
/// page".
pub(crate) fn of_body(body: &[u8]) -> ProviderError {
    if let Ok(document) = serde_json::from_slice::<Value>(body) {
        return of_document(&document);
    }
    let text = String::from_utf8_lossy(&body[..body.len().min(4 * MAX_MESSAGE)]);
    let text = text.trim();
    let message = if text.starts_with('<') { "a web page" } else { text };
    let mut fault = ProviderError::default();
    note(&mut fault.messages, message);
    fault
}

/// Parses the error in a JSON document.
pub(crate) fn of_document(document: &Value) -> ProviderError {
    // Google's servers return a list.
    let document = document.as_array().and_then(|list| list.first()).unwrap_or(document);
    let mut fault = ProviderError::default();
    let error = match &document["error"] {
        Value::Null => document,
        Value::String(message) => {
            note(&mut fault.messages, message);
            document
        }
        error => error,
    };
    // The more specific field first: `insufficient_quota` is a code, `invalid_request_error` a type.
    let word = |name: &str| error[name].as_str().filter(|word| !word.is_empty() && word.len() <= 100);
    let kind = word("type").filter(|kind| *kind != "error");
    fault.code = word("code").or(kind).or(word("status")).map(str::to_owned);
    for message in [&error["message"], &error["detail"], &document["message"], &document["detail"]] {
        match message {
            Value::String(message) => note(&mut fault.messages, message),
            Value::Array(_) | Value::Object(_) => note(&mut fault.messages, &message.to_string()),
            _ => {}
        }
    }
    // A gateway's error contains the provider's error.
    if let Some(raw) = error["metadata"]["raw"].as_str() {
        note(&mut fault.messages, raw);
    }
    for detail in error["details"].as_array().into_iter().flatten() {
        if let Some(delay) = detail["retryDelay"].as_str() {
            note(&mut fault.messages, &format!("retryDelay: {delay}"));
        }
    }
    fault.resets_at = error["resets_at"].as_i64();
    fault.resets_in = error["resets_in_seconds"].as_f64().filter(|seconds| *seconds >= 0.0);
    fault
}

fn note(messages: &mut Vec<String>, message: &str) {
    let message: String = message.trim().chars().take(MAX_MESSAGE).collect();
    if !message.is_empty() && messages.len() < MAX_MESSAGES && !messages.contains(&message) {
        messages.push(message);
    }
}
