//! Markup of the pages: templates with their filters, headers, and pages without a viewer.

use std::sync::LazyLock;

use axum::http::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use minijinja::syntax::SyntaxConfig;
use minijinja::{AutoEscape, Environment, UndefinedBehavior, Value};
use serde_json::{Value as Json, json};
use tokio::runtime::{Handle, RuntimeFlavor};

use super::assets;
use crate::domain::model::ids::{Money, Timestamp};
use crate::domain::report;
use crate::render;

/// Content security policy without the part for scripts.
pub(super) const POLICY: &str = "default-src 'none'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; \
    frame-ancestors 'none'; base-uri 'none'";
/// Part of [`POLICY`] that limits the targets of forms.
const FORMS_TO_SELF: &str = "form-action 'self'";

/// Template of a page: its name, and its text in `templates/page/`.
#[derive(Debug, Clone, Copy)]
pub(super) struct PageTemplate {
    /// Name of the file.
    pub name: &'static str,
    /// Text.
    pub text: &'static str,
}

/// Embeds a template by the name of its file.
macro_rules! page_template {
    ($name:literal) => {
        $crate::web::markup::PageTemplate {
            name: $name,
            text: include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../templates/page/", $name)),
        }
    };
}
pub(super) use page_template;

/// Templates that all pages use, and templates of pages without a viewer.
const SHARED: [PageTemplate; 4] = [
    page_template!("layout.html"),
    page_template!("parts.html"),
    page_template!("error.html"),
    page_template!("setup.html"),
];

/// Environment with a set of templates, or the reason why a template is invalid.
pub(super) type Templates = Result<Environment<'static>, minijinja::Error>;

static ENVIRONMENT: LazyLock<Templates> = LazyLock::new(|| templates([]));

/// Returns the environment of the shared templates and `pages`. All values are HTML-escaped, and unknown names are errors.
pub(super) fn templates(pages: impl IntoIterator<Item = PageTemplate>) -> Templates {
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    environment.add_filter("segment", |text: String| segment(&text));
    environment.add_filter("web", |address: String| web_address(&address));
    environment.add_filter("duration", |seconds: i64| duration(seconds));
    environment
        .add_filter("money", |millionths: Option<i64>| millionths.map_or_else(String::new, |m| Money(m).to_string()));
    environment.add_filter("capital", |text: String| render::capital(&text));
    environment.add_filter("words", |name: String| name.replace('_', " "));
    environment.add_filter("moment", |ms: i64| report::moment(Timestamp(ms)));
    environment.add_filter("iso", |ms: i64| iso(ms));
    for template in SHARED.into_iter().chain(pages) {
        environment.add_template(template.name, template.text)?;
    }
    Ok(environment)
}

/// Percent-encodes a text as a path segment or query value.
pub(super) fn segment(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'~' => encoded.push(char::from(byte)),
            // A segment of only dots would name another folder.
            b'.' if text.chars().any(|c| c != '.') => encoded.push('.'),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

/// Returns the size of a text as HTML, in bytes; some characters become entities.
pub(super) fn markup_size(text: &str) -> usize {
    let entity = |byte: u8| match byte {
        b'"' | b'\'' | b'/' => 5,
        b'&' => 4,
        b'<' | b'>' => 3,
        _ => 0,
    };
    text.len() + text.bytes().map(entity).sum::<usize>()
}

/// Returns the start of a text, limited to `most` bytes of HTML, with a note if it was cut.
pub(super) fn beginning(text: &str, most: usize) -> String {
    if markup_size(text) <= most {
        return text.to_owned();
    }
    let mut size = 0;
    let fits = text.char_indices().take_while(|(at, c)| {
        size += markup_size(&text[*at..*at + c.len_utf8()]);
        size <= most
    });
    let end = fits.last().map_or(0, |(at, c)| at + c.len_utf8());
    format!("{}\n… ({} more bytes)", text[..end].trim_end(), text.len() - end)
}

/// Returns an address if it uses http or https; otherwise an empty text, which disables the link.
pub(super) fn web_address(address: &str) -> String {
    match url::Url::parse(address) {
        Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => url.to_string(),
        _ => String::new(),
    }
}

/// Formats a duration in its two largest units.
fn duration(seconds: i64) -> String {
    match seconds {
        ..0 => "0 s".to_owned(),
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

fn iso(ms: i64) -> String {
    jiff::Timestamp::from_millisecond(ms).map_or_else(|_| String::new(), |at| at.to_string())
}

/// Renders a page that needs neither a viewer nor a running service, such as the setup pages. Its forms may target this
/// server and `form_targets`, the origins of forges.
pub fn stand_alone_page(template: &str, title: &str, context: Json, form_targets: &[String]) -> Response {
    let all = match context {
        Json::Object(map) => map,
        _ => serde_json::Map::new(),
    };
    let frame = json!({
        "title": title, "route": "", "here": "", "feed": "", "icon": assets::address("icon-rest.svg"), "csrf": "", "viewer": "",
        "navigation": [],
    });
    let forms = form_targets.iter().fold(FORMS_TO_SELF.to_owned(), |forms, target| format!("{forms} {target}"));
    rendered(&ENVIRONMENT, template, frame, all, Vec::new(), POLICY.replace(FORMS_TO_SELF, &forms))
}

/// Returns an error page without a viewer, with a link to the home page.
pub fn error_page(status: StatusCode, title: &str, problem: &str) -> Response {
    let context = error_context(&[problem], "", &[("/", "All loops")]);
    with_status(stand_alone_page("error.html", title, context, &[]), status)
}

/// Returns the response to a form after the session ended: a link to the login, and the text typed into the form.
pub fn session_ended_page(login: &str, typed: &str) -> Response {
    let problem = "Your session has ended, and the service changed nothing. Log in again to return to the page.";
    let context = error_context(&[problem], typed, &[(login, "Log in")]);
    with_status(stand_alone_page("error.html", "Log in again", context, &[]), StatusCode::UNAUTHORIZED)
}

/// Returns the response to a path without a route: a page for people, a text for programs.
pub async fn no_page(headers: HeaderMap) -> Response {
    let accepted = headers.get(ACCEPT).and_then(|accepted| accepted.to_str().ok()).unwrap_or_default();
    let response = match accepted.contains("text/html") {
        true => error_page(StatusCode::NOT_FOUND, "No such page", "There is no page at this address."),
        false => (StatusCode::NOT_FOUND, "there is nothing at this path\n").into_response(),
    };
    with_headers(response).await
}

pub(super) fn error_context(problem: &[&str], typed: &str, links: &[(&str, &str)]) -> Json {
    let links: Vec<Json> = links.iter().map(|(address, text)| json!({ "address": address, "text": text })).collect();
    json!({ "problem": problem, "typed": typed, "links": links })
}

pub(super) fn with_status(mut response: Response, status: StatusCode) -> Response {
    if response.status().is_success() {
        *response.status_mut() = status;
    }
    response
}

/// Runs work that occupies a processor for milliseconds, and moves the thread's other tasks elsewhere.
pub(super) fn beside_tasks<T>(work: impl FnOnce() -> T) -> T {
    let flavor = Handle::try_current().map(|handle| handle.runtime_flavor());
    match flavor {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}

/// Renders a template of an environment. The texts in `trusted` are inserted unescaped.
pub(super) fn rendered(
    templates: &Templates,
    template: &str,
    mut frame: Json,
    mut all: serde_json::Map<String, Json>,
    trusted: Vec<(&'static str, String)>,
    policy: String,
) -> Response {
    let nonce = uuid::Uuid::new_v4().simple().to_string();
    let scripts = ["vendor/htmx.min.js", "vendor/hx-sse.min.js", "vendor/hx-csp.min.js", "app.js"].map(assets::address);
    frame["style"] = json!(assets::address("page.css"));
    frame["scripts"] = json!(scripts);
    frame["nonce"] = json!(nonce);
    all.insert("frame".into(), frame);
    let mut values: Vec<(String, Value)> = all.into_iter().map(|(name, value)| (name, render::value(&value))).collect();
    values.extend(trusted.into_iter().map(|(name, markup)| (name.to_owned(), Value::from_safe_string(markup))));
    let rendered = templates.as_ref().map_err(|error| format!("{error:#}")).and_then(|environment| {
        let found = environment.get_template(template).map_err(|error| format!("{error:#}"))?;
        found.render(Value::from_pairs(values)).map_err(|error| format!("{error:#}"))
    });
    match rendered {
        Ok(text) => {
            let policy = format!("{policy}; script-src 'self' 'nonce-{nonce}'");
            let policy = HeaderValue::from_str(&policy).unwrap_or(HeaderValue::from_static(POLICY));
            let kind = HeaderValue::from_static("text/html; charset=utf-8");
            ([(CONTENT_TYPE, kind), (CONTENT_SECURITY_POLICY, policy)], text).into_response()
        }
        Err(error) => {
            tracing::warn!(template, error, "could not render a page");
            (StatusCode::INTERNAL_SERVER_ERROR, "The service could not render the page; its log has the reason.\n")
                .into_response()
        }
    }
}

/// Sets the headers common to all responses of the pages.
pub(super) async fn with_headers(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.entry(CONTENT_SECURITY_POLICY).or_insert(HeaderValue::from_static(POLICY));
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    // With `no-referrer`, browsers would send forms with the origin `null`, and the guard would reject them.
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_by_the_size_of_its_markup() {
        assert_eq!(markup_size("a<b>\"c\"/&ü"), "a&lt;b&gt;&quot;c&quot;&#x2f;&amp;ü".len());
        assert_eq!(beginning("short", 5), "short");
        assert_eq!(beginning("shorter", 5), "short\n… (2 more bytes)");
        assert_eq!(beginning("ab<<<", 6), "ab<\n… (2 more bytes)");
        assert_eq!(beginning("üüü", 5), "üü\n… (2 more bytes)");
    }

    #[test]
    fn names_are_encoded_in_links_and_only_web_addresses_are_linked() {
        let table = [("a b/../c", "a%20b%2F..%2Fc"), ("..", "%2E%2E"), ("x\"><", "x%22%3E%3C"), ("ü", "%C3%BC")];
        for (text, expected) in table {
            assert_eq!(segment(text), expected);
        }
        for bad in ["javascript:alert(1)", "data:text/html,x", "//evil", "http:", "", "ftp://x/y"] {
            assert_eq!(web_address(bad), "", "{bad}");
        }
        assert_eq!(web_address("https://x.example/a\"b"), "https://x.example/a%22b");
    }
}
