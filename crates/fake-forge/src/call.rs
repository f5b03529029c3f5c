//! Requests to the fake forge's API and answers, apart from what they mean: paths, queries, bodies, pages.

use axum::body::Body;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use serde_json::Value;

use super::state::Refusal;
use super::state::apps::Narrowed;
use ralph_types::ids::{Number, Timestamp, UserId};

/// In whose name a request is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SignedIn {
    /// Nobody's: it has no credential.
    Nobody,
    /// An account's.
    Person(UserId),
    /// A GitHub App's own.
    App(i64),
    /// The bot's of a GitHub App, narrowed.
    Installation(UserId, Narrowed),
}

impl SignedIn {
    /// The account that acts.
    pub fn user(&self) -> Option<UserId> {
        match self {
            Self::Nobody | Self::App(_) => None,
            Self::Person(user) | Self::Installation(user, _) => Some(*user),
        }
    }
}

/// A request, taken apart.
#[derive(Debug, Clone)]
pub(super) struct Call {
    pub method: Method,
    /// Segments below the API's root, percent-decoded.
    pub path: Vec<String>,
    pub query: Vec<(String, String)>,
    pub headers: HeaderMap,
    /// `Null` where the request has no body.
    pub body: Value,
    /// Who asks; `None` without an account.
    pub caller: Option<UserId>,
    /// With which sort of credential.
    pub signed_in: SignedIn,
}

/// What the API answers.
pub(super) type Answer = Result<Reply, Refusal>;

/// An answer before it is written down.
#[derive(Debug, Clone)]
pub(super) struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

impl Reply {
    /// JSON.
    pub fn json(status: u16, value: &Value) -> Self {
        let mut reply = Self::text(status, value.to_string());
        reply.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json; charset=utf-8"));
        reply
    }

    /// Plain text.
    pub fn text(status: u16, body: String) -> Self {
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        Self { status, headers, body: body.into_bytes() }
    }

    /// No body.
    pub fn empty(status: u16) -> Self {
        let mut reply = Self::text(status, String::new());
        reply.headers.remove(header::CONTENT_TYPE);
        reply
    }

    /// With one more header; one that cannot be written is left out.
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

impl Call {
    /// Who asks, or `Unauthorized`.
    pub fn actor(&self) -> Result<UserId, Refusal> {
        self.caller.ok_or(Refusal::Unauthorized)
    }

    /// A parameter of the query; `None` where it is missing or empty.
    pub fn param(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(key, value)| key == name && !value.is_empty()).map(|(_, value)| value.as_str())
    }

    /// A text of the body.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.body.get(name).and_then(Value::as_str)
    }

    /// A text of the body that has to be there.
    pub fn needed(&self, name: &str) -> Result<&str, Refusal> {
        self.text(name).ok_or_else(|| Refusal::Invalid(format!("[{name}]: Required")))
    }

    /// A moment in the query.
    pub fn moment(&self, name: &str) -> Result<Option<Timestamp>, Refusal> {
        let parse = |text: &str| {
            let moment: Result<jiff::Timestamp, _> = text.parse();
            moment.map(|moment| Timestamp(moment.as_millisecond()))
        };
        let moment = self.param(name).map(parse).transpose();
        moment.map_err(|error| Refusal::Invalid(format!("{name}: {error}")))
    }

    /// One page of a list. `size` names the parameter for its length, of which `default` and `most` are the usual and
    /// the greatest; `url` is the address of the list for the `Link` header.
    pub fn page(&self, items: Vec<Value>, url: &str, size: (&str, usize, usize)) -> Reply {
        let (name, default, most) = size;
        let number = |name: &str| self.param(name).and_then(|text| text.parse::<usize>().ok()).filter(|n| *n > 0);
        let length = number(name).unwrap_or(default).min(most);
        let page = number("page").unwrap_or(1);
        let total = items.len();
        let last = total.div_ceil(length).max(1);
        let shown: Vec<Value> = items.into_iter().skip((page - 1).saturating_mul(length)).take(length).collect();
        let mut reply = Reply::json(200, &Value::Array(shown)).with("x-total-count", &total.to_string());
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

/// A number in a path.
pub(super) fn number(text: &str) -> Result<Number, Refusal> {
    text.parse().map(Number).map_err(|_| Refusal::NotFound(format!("number {text:?}")))
}

/// An id in a path.
pub(super) fn id(text: &str) -> Result<i64, Refusal> {
    text.parse().map_err(|_| Refusal::NotFound(format!("id {text:?}")))
}

/// A moment as RFC 3339 in whole seconds, in UTC.
pub(super) fn utc(at: Timestamp) -> String {
    let whole = jiff::Timestamp::from_second(at.0.div_euclid(1000)).unwrap_or_default();
    whole.to_string()
}

/// A moment as RFC 3339 in whole seconds, in the zone of a server two hours east.
pub(super) fn zoned(at: Timestamp) -> String {
    let whole = jiff::Timestamp::from_second(at.0.div_euclid(1000)).unwrap_or_default();
    whole.display_with_offset(jiff::tz::offset(2)).to_string()
}
