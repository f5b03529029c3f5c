//! Guard that runs before every route of the dashboard and the API. It determines the viewer, the client address, and
//! whether a page of this server sent the change.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use secrecy::ExposeSecret;
use subtle::ConstantTimeEq;
use url::Url;

use super::cookies::{WebCookie, derived, digest};
use super::{NotLoggedIn, SessionKey, Viewer, WebAccess, WebState, lock, peer};
use crate::domain::model::ids::ForgeName;
use crate::domain::model::ids::User;
use crate::domain::trust::viewer::{is_from_own_page, is_loopback_host};
use crate::engine::Engine;
use crate::store::access_audit::{self, AccessRequest, AccessVia};
use crate::store::web_sessions;
use crate::store::{StoreError, StoreResult};
use crate::web::markup::error_page;
use crate::web::personal_token::{TokenViewer, viewer_of_token};

/// Maximum size of a form, in bytes.
const MAX_FORM: usize = 256 * 1024;
/// Headers added by proxies. Without a login, the guard rejects requests with these headers, because they could come from
/// any machine.
const FORWARDING: [&str; 6] =
    ["forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip", "via"];
/// Purpose of the derived value that forms must return.
const CSRF: &str = "csrf";
/// Header for the value that forms must return.
const CSRF_HEADER: &str = "x-csrf-token";

/// Facts about a request, attached to it as an extension.
#[derive(Clone)]
pub(super) struct RequestFacts {
    /// Viewer; `None` if the request is not authenticated.
    pub(super) viewer: Option<Viewer>,
    /// Client address.
    pub(super) from: IpAddr,
}

impl WebAccess {
    /// Whether browsers reach the dashboard over https.
    pub(super) fn https(&self) -> bool {
        self.settings.base.scheme() == "https"
    }

    /// Returns the time, in milliseconds, for which an address must wait after failed attempts; `None` if it need not wait.
    pub(super) fn wait_ms(&self, engine: &Engine, from: IpAddr) -> Option<i64> {
        lock(&self.failed).wait_ms(from, engine.clock.now())
    }

    /// Counts and logs a failed attempt.
    pub(super) fn has_failed(&self, engine: &Engine, from: IpAddr, why: &str) {
        lock(&self.failed).add(from, engine.clock.now());
        tracing::warn!(%from, why = ?why, "a login to the dashboard failed");
    }

    /// Whether a text is the token printed by `ralph-bot serve`.
    pub(super) fn is_token(&self, text: &str) -> bool {
        let same = |token: &secrecy::SecretString| bool::from(token.expose_secret().as_bytes().ct_eq(text.as_bytes()));
        self.settings.token.as_ref().is_some_and(same)
    }

    /// Returns the viewer of a session cookie. `None` if the session has ended, or if it could no longer be started: a token
    /// session although there is a login, or a session of a forge without a login.
    async fn viewer_of_session(&self, engine: &Engine, held: &str) -> StoreResult<Option<Viewer>> {
        let (id, now) = (digest(held), engine.clock.now());
        let key = id.clone();
        let Some(session) = engine.store.read(move |c| web_sessions::find(c, &key, now)).await? else {
            return Ok(None);
        };
        let still = match &session.account {
            Some((forge, _)) => self.settings.logins.contains_key(forge),
            None => self.is_local(),
        };
        if !still {
            return Ok(None);
        }
        if web_sessions::is_use_due(&session, now) {
            let key = id.clone();
            engine.store.write(move |c| web_sessions::used(c, &key, now)).await?;
        }
        let operator = session.account.as_ref().is_none_or(|account| self.is_operator(account));
        Ok(Some(Viewer {
            account: session.account,
            operator,
            csrf: derived(held, CSRF),
            session: Some(SessionKey(id)),
            token: None,
            from: None,
            forge_unavailable: Arc::new(AtomicBool::new(false)),
        }))
    }

    /// Returns the viewer of a valid personal token. `None` if its owner can no longer log in: the machine's operator
    /// although there is a login, or an account of a forge without a login.
    fn viewer_of_token(&self, token: TokenViewer) -> Option<Viewer> {
        let still = match &token.account {
            Some((forge, _)) => self.settings.logins.contains_key(forge),
            None => token.operator && self.is_local(),
        };
        still.then(|| Viewer {
            account: token.account.clone(),
            operator: token.account.as_ref().is_none_or(|account| self.is_operator(account)),
            token: Some(Arc::new(token)),
            ..Viewer::of_token()
        })
    }

    fn is_operator(&self, (forge, user): &(ForgeName, User)) -> bool {
        self.settings.operators.iter().any(|(of, id)| of == forge && *id == user.id)
    }

    /// Returns the client address of a request. Behind a reverse proxy on this machine, it is the last address added by the
    /// proxy.
    fn source(&self, request: &Request) -> IpAddr {
        let peer = peer(request).map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.ip().to_canonical());
        if self.is_local() || !peer.is_loopback() {
            return peer;
        }
        let forwarded = request.headers().get_all("x-forwarded-for").iter().next_back();
        let last = forwarded.and_then(|line| line.to_str().ok()).and_then(|line| line.rsplit(',').next());
        last.and_then(|text| text.trim().parse().ok()).unwrap_or(peer)
    }

    /// Returns the rejection of a request that may come from another machine if only this machine is allowed; otherwise
    /// `None`.
    fn refused_from_elsewhere(&self, headers: &HeaderMap) -> Option<Response> {
        if !self.is_local() {
            return None;
        }
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        if headers.get_all(header::HOST).iter().count() != 1 || !is_loopback_host(host) {
            let why = "the dashboard has no login and is only at a loopback address such as http://127.0.0.1:8080; see docs/guides/dashboard.md\n";
            return Some(AskedForm::of(headers).refusal(StatusCode::MISDIRECTED_REQUEST, "Only on this machine", why));
        }
        let proxy = FORWARDING.iter().find(|name| headers.contains_key(**name))?;
        let why = format!(
            "the dashboard has no login and accepts no requests through a proxy (header {proxy}); see docs/guides/dashboard.md\n"
        );
        Some(AskedForm::of(headers).refusal(StatusCode::FORBIDDEN, "Only on this machine", &why))
    }

    /// Returns the origin of this server's pages. Without a login, it is the requested origin, which is a loopback address.
    pub(super) fn own_origin(&self, headers: &HeaderMap) -> String {
        match headers.get(header::HOST).and_then(|host| host.to_str().ok()) {
            Some(host) if self.is_local() => format!("http://{host}"),
            _ => self.settings.base.origin().ascii_serialization(),
        }
    }
}

/// Middleware that runs the route of a request if all checks pass.
pub(in crate::web) async fn guard(State(state): State<Arc<WebState>>, request: Request, next: Next) -> Response {
    let access = &state.access;
    if let Some(refusal) = access.refused_from_elsewhere(request.headers()) {
        return with_headers(refusal);
    }
    with_headers(checked(&state, request, next).await.unwrap_or_else(|refusal| refusal))
}

async fn checked(state: &WebState, request: Request, next: Next) -> Result<Response, Response> {
    let (access, engine) = (&state.access, &*state.engine);
    let from = access.source(&request);
    let mut viewer = identified(access, engine, (request.uri().path(), request.headers()), from).await?;
    if let Some(viewer) = &mut viewer {
        viewer.from = Some(from);
    }
    let is_change = !request.method().is_safe();
    let facts = RequestFacts { viewer, from };
    match facts.viewer.clone().filter(|_| is_change) {
        None if is_change => changed_by_nobody(access, request, next, facts).await,
        None => passed(request, next, facts).await,
        Some(viewer) => {
            let asked = asked_for(&viewer, &request, from);
            let change = ChangeRecord::begin(engine, &viewer, asked).await.map_err(|error| unavailable(&error))?;
            let response = changed(access, &viewer, request, next, facts).await.unwrap_or_else(|refusal| refusal);
            change.end(engine, response.status()).await;
            Ok(response)
        }
    }
}

/// Runs the route of a request that passed the first checks.
async fn passed(mut request: Request, next: Next, facts: RequestFacts) -> Result<Response, Response> {
    let unavailable = facts.viewer.as_ref().map(|viewer| viewer.forge_unavailable.clone());
    let asks = AskedForm::of(request.headers());
    request.extensions_mut().insert(facts);
    let response = next.run(request).await;
    let hidden = matches!(response.status(), StatusCode::FORBIDDEN | StatusCode::NOT_FOUND);
    if hidden && unavailable.is_some_and(|flag| flag.load(Ordering::Relaxed)) {
        let why = "cannot check your rights on the forge; try again in a minute\n";
        let mut refusal = asks.refusal(StatusCode::SERVICE_UNAVAILABLE, "The forge does not answer", why);
        refusal.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("60"));
        return Err(refusal);
    }
    Ok(response)
}

/// Runs the route of a viewer's change if a page of this server or a program sent it.
async fn changed(
    access: &WebAccess,
    viewer: &Viewer,
    mut request: Request,
    next: Next,
    facts: RequestFacts,
) -> Result<Response, Response> {
    // A program sends a token deliberately; a browser sends its cookie from any page.
    if viewer.session.is_some() {
        refuse_other_sites(access, &request, facts.from)?;
        request = with_csrf(request, &viewer.csrf).await?;
    }
    passed(request, next, facts).await
}

/// Runs the route of a change without a viewer if it is a login. Otherwise, responds with a page that links to the login and
/// contains the text typed into the form.
async fn changed_by_nobody(
    access: &WebAccess,
    mut request: Request,
    next: Next,
    facts: RequestFacts,
) -> Result<Response, Response> {
    refuse_other_sites(access, &request, facts.from)?;
    let headers = request.headers();
    if AskedForm::of(headers) != AskedForm::Page || !is_form(headers) || request.uri().path() == "/login" {
        return passed(request, next, facts).await;
    }
    let own = access.own_origin(headers);
    let page = page_of_form(headers, request.uri().path(), &own);
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, MAX_FORM).await.map_err(|_| too_large(AskedForm::Page))?;
    let field = |wanted: &str| {
        let mut values = url::form_urlencoded::parse(&body).filter(|(name, _)| name == wanted);
        values.next().map(|(_, value)| value.trim().to_owned()).unwrap_or_default()
    };
    let typed =
        [field("command"), field("text")].into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(" ");
    request = Request::from_parts(parts, Body::from(body));
    let response = passed(request, next, facts).await?;
    Ok(match response.status() {
        StatusCode::UNAUTHORIZED => NotLoggedIn::Form { page, typed }.into_response(),
        _ => response,
    })
}

/// Returns the path of the page with the form: the path in the header `Referer` if it is a page of this server, otherwise
/// the target path of the form.
fn page_of_form(headers: &HeaderMap, sent_to: &str, own: &str) -> String {
    let referer = headers.get(header::REFERER).and_then(|value| value.to_str().ok());
    let known = referer.and_then(|address| own_path(address, own));
    known.unwrap_or_else(|| {
        let mut segments = sent_to.split('/').skip(1);
        match (segments.next(), segments.next()) {
            (Some("loops"), Some(id)) => format!("/loops/{id}"),
            (Some(page), _) => format!("/{page}"),
            _ => "/".to_owned(),
        }
    })
}

/// Returns the path and query of an address; `None` if its origin is not `own`.
pub(super) fn own_path(address: &str, own: &str) -> Option<String> {
    let url = Url::parse(address).ok().filter(|url| url.origin().ascii_serialization() == own)?;
    Some(url[url::Position::BeforePath..url::Position::AfterQuery].to_owned())
}

fn is_form(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    kind.starts_with("application/x-www-form-urlencoded")
}

fn refuse_other_sites(access: &WebAccess, request: &Request, from: IpAddr) -> Result<(), Response> {
    let headers = request.headers();
    if has_own_origin(headers, &access.own_origin(headers)) {
        return Ok(());
    }
    tracing::warn!(%from, path = ?request.uri().path(), "refused a change from a page of another site");
    let why = "this change comes from a page of another site\n";
    Err(AskedForm::of(headers).refusal(StatusCode::FORBIDDEN, "Not changed", why))
}

/// Returns the audit row for a change.
fn asked_for(viewer: &Viewer, request: &Request, from: IpAddr) -> AccessRequest {
    let via = match (&viewer.token, &viewer.session) {
        (Some(token), _) => AccessVia::PersonalToken(token.stored.name.clone()),
        (None, Some(_)) => AccessVia::Session,
        (None, None) => AccessVia::PrintedToken,
    };
    let (method, path) = (request.method().to_string(), request.uri().path().to_owned());
    AccessRequest { account: viewer.account.clone(), from, via, method, path }
}

/// Running change with its audit row.
struct ChangeRecord {
    id: i64,
    who: String,
    asked: AccessRequest,
}

impl ChangeRecord {
    /// Stores the request for a change before executing it.
    async fn begin(engine: &Engine, viewer: &Viewer, asked: AccessRequest) -> StoreResult<Self> {
        let (stored, now) = (asked.clone(), engine.clock.now());
        let id = engine.store.write(move |c| access_audit::begin(c, &stored, now)).await?;
        Ok(Self { id, who: viewer.to_string(), asked })
    }

    /// Stores and logs the result of the change.
    async fn end(self, engine: &Engine, status: StatusCode) {
        let Self { id, who, asked: AccessRequest { from, method, path, .. } } = self;
        let status = status.as_u16();
        tracing::info!(%who, %from, %method, ?path, status, "a change in the dashboard");
        if let Err(error) = engine.store.write(move |c| access_audit::finish(c, id, status)).await {
            tracing::error!(%error, id, status, "could not write the audit");
        }
    }
}

/// Whether, according to the browser, a change comes from a page of the origin `own`. Also true if the headers contain no
/// origin.
pub(super) fn has_own_origin(headers: &HeaderMap, own: &str) -> bool {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    is_from_own_page(text("origin"), text("sec-fetch-site"), own)
}

/// Returns the viewer of a request, authenticated by its token or otherwise by its cookie. Only the API accepts personal
/// tokens, because it checks their scopes.
async fn identified(
    access: &WebAccess,
    engine: &Engine,
    (path, headers): (&str, &HeaderMap),
    from: IpAddr,
) -> Result<Option<Viewer>, Response> {
    if let Some(value) = headers.get(header::AUTHORIZATION) {
        let text = value.to_str().unwrap_or_default();
        let token = text.split_once(' ').filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
        let token = token.map(|(_, token)| token.trim()).unwrap_or_default();
        if access.is_token(token) {
            return Ok(Some(Viewer::of_token()));
        }
        if path.starts_with("/api/")
            && let Some(personal) =
                viewer_of_token(&engine.store, token, engine.clock.now()).await.map_err(|error| unavailable(&error))?
            && let Some(viewer) = access.viewer_of_token(personal)
        {
            return Ok(Some(viewer));
        }
        if let Some(wait) = access.wait_ms(engine, from) {
            return Err(too_many(AskedForm::of(headers), wait));
        }
        access.has_failed(engine, from, "a wrong token in the header Authorization");
        return Ok(None);
    }
    let Some(held) = WebCookie::Session.of(headers, access.https()) else { return Ok(None) };
    access.viewer_of_session(engine, &held).await.map_err(|error| unavailable(&error))
}

/// Returns the response to an address that must wait.
pub(super) fn too_many(asks: AskedForm, wait_ms: i64) -> Response {
    let seconds = wait_ms / 1000 + 1;
    let why = format!("too many failed attempts from this address; try again in {seconds} s\n");
    let mut refusal = asks.refusal(StatusCode::TOO_MANY_REQUESTS, "Too many attempts", &why);
    refusal.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    refusal
}

fn too_large(asks: AskedForm) -> Response {
    asks.refusal(StatusCode::PAYLOAD_TOO_LARGE, "Not changed", "the form is too large\n")
}

/// Kind of response that a request accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AskedForm {
    /// HTML page for a person.
    Page,
    /// Anything else.
    Text,
}

impl AskedForm {
    /// Returns the kind according to the headers of a request. Scripts of pages request parts of pages.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let accepted = headers.get(header::ACCEPT).and_then(|accepted| accepted.to_str().ok());
        let is_page = accepted.is_some_and(|accepted| accepted.contains("text/html"));
        if is_page && !headers.contains_key("hx-request") { Self::Page } else { Self::Text }
    }

    /// Returns an error response: a page with a title and a link for people, otherwise the text.
    pub(super) fn refusal(self, status: StatusCode, title: &str, why: &str) -> Response {
        match self {
            Self::Text => (status, why.to_owned()).into_response(),
            Self::Page => error_page(status, title, &sentence(why)),
        }
    }
}

/// Formats a reason as a sentence.
fn sentence(why: &str) -> String {
    let mut chars = why.trim().chars();
    let first = chars.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", chars.as_str())
}

/// Returns the response for a failed database query.
pub(super) fn unavailable(error: &StoreError) -> Response {
    tracing::warn!(%error, "could not read or write a session");
    (StatusCode::SERVICE_UNAVAILABLE, "the database is unavailable; try again in a minute\n").into_response()
}

/// Checks that a change contains the session's CSRF value, in a header or a form field; returns the request.
async fn with_csrf(request: Request, expected: &str) -> Result<Request, Response> {
    let same = |given: &str| bool::from(expected.as_bytes().ct_eq(given.as_bytes()));
    let asks = AskedForm::of(request.headers());
    let refused = || {
        let why = "the form has no valid `csrf` value; go back, reload the page and try again\n";
        asks.refusal(StatusCode::FORBIDDEN, "Not changed", why)
    };
    if let Some(given) = request.headers().get(CSRF_HEADER) {
        return if same(given.to_str().unwrap_or_default()) { Ok(request) } else { Err(refused()) };
    }
    if !is_form(request.headers()) {
        return Err(refused());
    }
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, MAX_FORM).await.map_err(|_| too_large(asks))?;
    let mut given = url::form_urlencoded::parse(&body).filter(|(key, _)| key == CSRF).map(|(_, value)| value);
    match (given.next(), given.next()) {
        (Some(given), None) if same(&given) => {}
        _ => return Err(refused()),
    }
    Ok(Request::from_parts(parts, Body::from(body)))
}

/// Adds the headers common to all responses, unless the route has set them.
fn with_headers(mut response: Response) -> Response {
    let headers = response.headers_mut();
    let all = [
        ("x-content-type-options", "nosniff"),
        // With `no-referrer`, browsers would send changes with the origin `null`.
        ("referrer-policy", "same-origin"),
        ("cache-control", "no-store"),
        ("content-security-policy", "default-src 'none'; frame-ancestors 'none'; base-uri 'none'"),
        ("cross-origin-resource-policy", "same-origin"),
    ];
    for (name, value) in all {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| ((*name).try_into().expect("a name"), value.parse().expect("a value")))
            .collect()
    }

    #[test]
    fn page_after_a_form_stays_on_this_server() {
        let own = "https://ralph.example.org";
        let table = [
            ("https://ralph.example.org/?person=mira", "/loops/r-1/commands", "/?person=mira"),
            ("https://ralph.example.org//evil.example/x", "/loops/r-1/commands", "//evil.example/x"),
            ("https://evil.example/loops/r-2", "/loops/r-1/commands", "/loops/r-1"),
            ("https://ralph.example.org.evil.example/", "/loops/r-1/commands", "/loops/r-1"),
            ("http://ralph.example.org/", "/memory/forget", "/memory"),
            ("javascript:alert(1)", "/deliveries/1/retry", "/deliveries"),
        ];
        for (referer, sent_to, expected) in table {
            assert_eq!(page_of_form(&headers(&[("referer", referer)]), sent_to, own), expected, "{referer}");
        }
        assert_eq!(page_of_form(&HeaderMap::new(), "/", own), "/");
        // The login does not follow a path that leads to another site.
        assert_eq!(crate::domain::trust::viewer::local_path(Some("//evil.example/x")), "/");
    }

    #[test]
    fn refusal_is_a_page_for_browsers_and_text_for_programs() {
        let browser = [("accept", "text/html,application/xhtml+xml,*/*;q=0.8")];
        assert_eq!(AskedForm::of(&headers(&browser)), AskedForm::Page);
        for other in [vec![], vec![("accept", "*/*")], vec![browser[0], ("hx-request", "true")]] {
            assert_eq!(AskedForm::of(&headers(&other)), AskedForm::Text, "{other:?}");
        }
        let page = too_many(AskedForm::Page, 5_000);
        assert_eq!(
            (page.status(), &page.headers()["retry-after"]),
            (StatusCode::TOO_MANY_REQUESTS, &HeaderValue::from(6))
        );
        assert!(page.headers()["content-type"].to_str().is_ok_and(|kind| kind.starts_with("text/html")));
        assert!(
            too_many(AskedForm::Text, 5_000).headers()["content-type"]
                .to_str()
                .is_ok_and(|kind| kind.starts_with("text/plain"))
        );
        assert_eq!(sentence("the form is too large\n"), "The form is too large.");
    }
}
