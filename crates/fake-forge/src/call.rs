//! API requests and responses: paths, queries, bodies and pages.

use axum::body::Body;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use serde_json::Value;

use super::core::Core;
use super::state::apps::TokenScope;
use super::state::{Access, FakeRefusal};
use ralph_types::ids::{Number, RepoId, Timestamp, UserId};

/// Credential of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SignedIn {
    /// No credential.
    Nobody,
    /// Token of an account.
    Person(UserId),
    /// Signature of a GitHub App.
    App(i64),
    /// Installation token of a GitHub App, with the App's bot.
    Installation(UserId, TokenScope),
}

impl SignedIn {
    /// Returns the acting account; `None` for anonymous requests and Apps.
    pub fn user(&self) -> Option<UserId> {
        match self {
            Self::Nobody | Self::App(_) => None,
            Self::Person(user) | Self::Installation(user, _) => Some(*user),
        }
    }
}

/// Parsed API request.
#[derive(Debug, Clone)]
pub(super) struct FakeCall {
    pub method: Method,
    /// Path segments below the API's root, percent-decoded.
    pub path: Vec<String>,
    pub query: Vec<(String, String)>,
    pub headers: HeaderMap,
    /// JSON body; `Null` without a body.
    pub body: Value,
    /// Acting account; `None` without an account.
    pub caller: Option<UserId>,
    /// Credential.
    pub signed_in: SignedIn,
}

/// Result of an API request.
pub(super) type FakeAnswer = Result<FakeReply, FakeRefusal>;

/// API response.
#[derive(Debug, Clone)]
pub(super) struct FakeReply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

impl FakeReply {
    /// Creates a JSON response.
    pub fn json(status: u16, value: &Value) -> Self {
        let mut reply = Self::text(status, value.to_string());
        reply.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json; charset=utf-8"));
        reply
    }

    /// Creates a plain-text response.
    pub fn text(status: u16, body: String) -> Self {
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        Self { status, headers, body: body.into_bytes() }
    }

    /// Creates a response with a file's content.
    pub fn file(content: &[u8]) -> Self {
        Self { body: content.to_vec(), ..Self::empty(200) }.with("content-type", "application/octet-stream")
    }

    /// Creates a response without a body.
    pub fn empty(status: u16) -> Self {
        let mut reply = Self::text(status, String::new());
        reply.headers.remove(header::CONTENT_TYPE);
        reply
    }

    /// Adds a header; ignores an invalid one.
    pub fn with(mut self, name: &'static str, value: &str) -> Self {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.insert(name, value);
        }
        self
    }

    pub fn into_response(self) -> http::Response<Body> {
        let mut response = http::Response::new(Body::from(self.body));
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers;
        response
    }
}

impl FakeCall {
    /// Applies the repository settings in the body, as the repository's administrator.
    pub fn edit_repo(&self, core: &Core, repo: RepoId) -> Result<(), FakeRefusal> {
        let actor = self.actor()?;
        let flag = |name: &str| self.body.get(name).and_then(Value::as_bool);
        core.act(|state| {
            state.require(repo, actor, Access::Admin)?;
            if let Some(name) = self.text("name").filter(|name| state.repo(repo).is_ok_and(|entry| entry.name != *name))
            {
                state.rename_repo(actor, repo, name)?;
            }
            if let Some(archived) = flag("archived") {
                state.set_archived(actor, repo, archived)?;
            }
            if let Some(on) = flag("has_issues") {
                state.switch_issues(actor, repo, on)?;
            }
            if let Some(private) = flag("private") {
                state.show_repo(actor, repo, private)?;
            }
            Ok(())
        })
    }

    /// Returns the acting account, or `Unauthorized`.
    pub fn actor(&self) -> Result<UserId, FakeRefusal> {
        self.caller.ok_or(FakeRefusal::Unauthorized)
    }

    /// Returns a query parameter; `None` if it is missing or empty.
    pub fn param(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(key, value)| key == name && !value.is_empty()).map(|(_, value)| value.as_str())
    }

    /// Returns a string field of the body.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.body.get(name).and_then(Value::as_str)
    }

    /// Returns the strings of a list in the body; empty if the list is missing.
    pub fn list(&self, name: &str) -> Vec<String> {
        let list = self.body.get(name).and_then(Value::as_array);
        list.map(|list| list.iter().filter_map(Value::as_str).map(str::to_owned).collect()).unwrap_or_default()
    }

    /// Returns a required string field of the body.
    pub fn needed(&self, name: &str) -> Result<&str, FakeRefusal> {
        self.text(name).ok_or_else(|| FakeRefusal::Invalid(format!("[{name}]: Required")))
    }

    /// Parses a time in the query; `None` if it is missing.
    pub fn moment(&self, name: &str) -> Result<Option<Timestamp>, FakeRefusal> {
        let parse = |text: &str| {
            let moment: Result<jiff::Timestamp, _> = text.parse();
            moment.map(|moment| Timestamp(moment.as_millisecond()))
        };
        let moment = self.param(name).map(parse).transpose();
        moment.map_err(|error| FakeRefusal::Invalid(format!("{name}: {error}")))
    }

    /// Returns one page of a list. `size` is the query parameter for the page size, its default and its maximum. `url` is
    /// the list's address for the `Link` header.
    pub fn page(&self, items: Vec<Value>, url: &str, size: (&str, usize, usize)) -> FakeReply {
        let (name, default, most) = size;
        let number = |name: &str| self.param(name).and_then(|text| text.parse::<usize>().ok()).filter(|n| *n > 0);
        let length = number(name).unwrap_or(default).min(most);
        let page = number("page").unwrap_or(1);
        let total = items.len();
        let last = total.div_ceil(length).max(1);
        let shown: Vec<Value> = items.into_iter().skip((page - 1).saturating_mul(length)).take(length).collect();
        let mut reply = FakeReply::json(200, &Value::Array(shown)).with("x-total-count", &total.to_string());
        let link = |target: usize, relation: &str| {
            let mut query = url::form_urlencoded::Serializer::new(String::new());
            for (key, value) in self.query.iter().filter(|(key, _)| key != "page") {
                query.append_pair(key, value);
            }
            query.append_pair("page", &target.to_string());
            format!("<{url}?{}>; rel=\"{relation}\"", query.finish())
        };
        let mut links = Vec::new();
        if page < last {
            links.extend([link(page + 1, "next"), link(last, "last")]);
        }
        if page > 1 {
            links.extend([link(1, "first"), link((page - 1).min(last), "prev")]);
        }
        if !links.is_empty() {
            reply = reply.with("link", &links.join(","));
        }
        reply
    }
}

/// Parses the number of an issue in a path.
pub(super) fn number(text: &str) -> Result<Number, FakeRefusal> {
    text.parse().map(Number).map_err(|_| FakeRefusal::NotFound(format!("number {text:?}")))
}

/// Parses an id in a path.
pub(super) fn id(text: &str) -> Result<i64, FakeRefusal> {
    text.parse().map_err(|_| FakeRefusal::NotFound(format!("id {text:?}")))
}

/// Formats a time as RFC 3339 in whole seconds, in UTC.
pub(super) fn utc(at: Timestamp) -> String {
    let seconds = jiff::Timestamp::from_second(at.0.div_euclid(1000)).unwrap_or_default();
    seconds.to_string()
}

/// Formats a time as RFC 3339 in whole seconds, with offset +02:00.
pub(super) fn zoned(at: Timestamp) -> String {
    let seconds = jiff::Timestamp::from_second(at.0.div_euclid(1000)).unwrap_or_default();
    seconds.display_with_offset(jiff::tz::offset(2)).to_string()
}
