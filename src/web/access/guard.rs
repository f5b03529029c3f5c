//! Guard before every route of the dashboard and the API: who asks, from where, and whether a change comes from a page of
//! this server.

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

use super::cookies::{WebCookie, derived, digest};
use super::{SessionKey, Viewer, WebAccess, WebState, lock, peer};
use crate::domain::model::ids::ForgeName;
use crate::domain::model::ids::User;
use crate::domain::trust::viewer::{is_from_own_page, is_loopback_host};
use crate::engine::Engine;
use crate::store::web_sessions;
use crate::store::{StoreError, StoreResult};
use crate::web::personal_token::{TokenViewer, viewer_of_token};

/// Maximum size of a form, in bytes.
const MAX_FORM: usize = 256 * 1024;
/// Headers that proxies add. Without a login, a request through a proxy could come from anywhere.
const FORWARDING: [&str; 6] =
    ["forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip", "via"];
/// Purpose of the value that forms send back.
const CSRF: &str = "csrf";
/// Header with the value that forms send back.
const CSRF_HEADER: &str = "x-csrf-token";

/// Known facts about a request, an extension of it.
#[derive(Clone)]
pub(super) struct RequestFacts {
    /// Viewer, if there is one.
    pub(super) viewer: Option<Viewer>,
    /// Address that it came from.
    pub(super) from: IpAddr,
}

impl WebAccess {
    /// Whether browsers reach the dashboard over https.
    pub(super) fn https(&self) -> bool {
        self.settings.base.scheme() == "https"
    }

    /// Returns the milliseconds that an address has to wait after failed attempts; `None` if it need not.
    pub(super) fn wait_ms(&self, engine: &Engine, from: IpAddr) -> Option<i64> {
        lock(&self.failed).wait_ms(from, engine.clock.now())
    }

    /// Counts and logs a failed attempt.
    pub(super) fn has_failed(&self, engine: &Engine, from: IpAddr, why: &str) {
        lock(&self.failed).add(from, engine.clock.now());
        tracing::warn!(%from, why = ?why, "a login to the dashboard failed");
    }

    /// Whether a text is the token that `serve` prints.
    pub(super) fn is_token(&self, text: &str) -> bool {
        let same = |token: &secrecy::SecretString| bool::from(token.expose_secret().as_bytes().ct_eq(text.as_bytes()));
        self.settings.token.as_ref().is_some_and(same)
    }

    /// Returns the viewer of a session's cookie; `None` if the session has ended, or is one that can no longer begin: of the token
    /// where there is a login, or of a forge without one.
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

    /// Returns the viewer of a valid personal token; `None` if its owner can no longer log in here: the operator of the machine where
    /// there is a login, or an account of a forge without one.
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

    /// Returns the address that a request came from: behind a reverse proxy on this machine, the one that the proxy added last.
    fn source(&self, request: &Request) -> IpAddr {
        let peer = peer(request).map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.ip().to_canonical());
        if self.is_local() || !peer.is_loopback() {
            return peer;
        }
        let forwarded = request.headers().get_all("x-forwarded-for").iter().next_back();
        let last = forwarded.and_then(|line| line.to_str().ok()).and_then(|line| line.rsplit(',').next());
        last.and_then(|text| text.trim().parse().ok()).unwrap_or(peer)
    }

    /// Returns the refusal of a request that may come from elsewhere than this machine, where only this machine may ask.
    fn refused_from_elsewhere(&self, headers: &HeaderMap) -> Option<Response> {
        if !self.is_local() {
            return None;
        }
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        if headers.get_all(header::HOST).iter().count() != 1 || !is_loopback_host(host) {
            let why = "the dashboard has no login and is only at a loopback address such as http://127.0.0.1:8080; see docs/login.md\n";
            return Some((StatusCode::MISDIRECTED_REQUEST, why).into_response());
        }
        let proxy = FORWARDING.iter().find(|name| headers.contains_key(**name))?;
        let why = format!(
            "the dashboard has no login and takes no requests through a proxy (header {proxy}); see docs/login.md\n"
        );
        Some((StatusCode::FORBIDDEN, why).into_response())
    }

    /// Returns the origin of this server's pages. Without a login it is the one that was asked for, which is a loopback one.
    fn own_origin(&self, headers: &HeaderMap) -> String {
        match headers.get(header::HOST).and_then(|host| host.to_str().ok()) {
            Some(host) if self.is_local() => format!("http://{host}"),
            _ => self.settings.base.origin().ascii_serialization(),
        }
    }
}

/// Runs a route for a request that passed all checks.
pub(in crate::web) async fn guard(State(state): State<Arc<WebState>>, request: Request, next: Next) -> Response {
    let access = &state.access;
    if let Some(refusal) = access.refused_from_elsewhere(request.headers()) {
        return with_headers(refusal);
    }
    with_headers(checked(&state, request, next).await.unwrap_or_else(|refusal| refusal))
}

async fn checked(state: &WebState, mut request: Request, next: Next) -> Result<Response, Response> {
    let (access, engine) = (&state.access, &*state.engine);
    let from = access.source(&request);
    let mut viewer = identified(access, engine, (request.uri().path(), request.headers()), from).await?;
    let is_change = !request.method().is_safe();
    // A program that sends a token chose to; a browser sends its cookie whatever page it is on.
    let by_browser = viewer.as_ref().is_none_or(|viewer| viewer.session.is_some());
    if is_change && by_browser {
        if !has_own_origin(request.headers(), &access.own_origin(request.headers())) {
            tracing::warn!(%from, path = ?request.uri().path(), "a change from a page of another site was refused");
            return Err((StatusCode::FORBIDDEN, "this change comes from a page of another site\n").into_response());
        }
        if let Some(viewer) = &viewer {
            request = with_csrf(request, &viewer.csrf).await?;
        }
    }
    if let Some(viewer) = &mut viewer {
        viewer.from = Some(from);
    }
    let change = is_change.then(|| (request.method().clone(), request.uri().path().to_owned()));
    let unavailable = viewer.as_ref().map(|viewer| viewer.forge_unavailable.clone());
    let who = viewer.as_ref().map(ToString::to_string);
    request.extensions_mut().insert(RequestFacts { viewer, from });
    let response = next.run(request).await;
    if let (Some((method, path)), Some(who)) = (change, who) {
        tracing::info!(%who, %from, %method, ?path, status = response.status().as_u16(), "a change in the dashboard");
    }
    let hidden = matches!(response.status(), StatusCode::FORBIDDEN | StatusCode::NOT_FOUND);
    if hidden && unavailable.is_some_and(|flag| flag.load(Ordering::Relaxed)) {
        let why = "the forge cannot be asked what you may see or do here; try again in a minute\n";
        return Err((StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "60")], why).into_response());
    }
    Ok(response)
}

/// Whether a browser says that a change comes from a page of the origin `own`, or says nothing.
fn has_own_origin(headers: &HeaderMap, own: &str) -> bool {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    is_from_own_page(text("origin"), text("sec-fetch-site"), own)
}

/// Returns who sends a request, by its token or else by its cookie. Personal tokens are for the API, which knows their scopes.
async fn identified(
    access: &WebAccess,
    engine: &Engine,
    (path, headers): (&str, &HeaderMap),
    from: IpAddr,
) -> Result<Option<Viewer>, Response> {
    if let Some(value) = headers.get(header::AUTHORIZATION) {
        if let Some(wait) = access.wait_ms(engine, from) {
            return Err(too_many(wait));
        }
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
        access.has_failed(engine, from, "a wrong token in the header Authorization");
        return Ok(None);
    }
    let Some(held) = WebCookie::Session.of(headers, access.https()) else { return Ok(None) };
    access.viewer_of_session(engine, &held).await.map_err(|error| unavailable(&error))
}

/// Returns the answer to an address that has to wait.
pub(super) fn too_many(wait_ms: i64) -> Response {
    let seconds = (wait_ms / 1000 + 1).to_string();
    let why = format!("too many failed attempts from this address; try again in {seconds} s\n");
    (StatusCode::TOO_MANY_REQUESTS, [(header::RETRY_AFTER, seconds)], why).into_response()
}

/// Returns the answer while the database cannot be asked.
pub(super) fn unavailable(error: &StoreError) -> Response {
    tracing::error!(%error, "a session could not be read or written");
    (StatusCode::SERVICE_UNAVAILABLE, "the database cannot be asked; try again in a minute\n").into_response()
}

/// Checks that a change brings the session's value, in a header or as a field of its form, and returns the request.
async fn with_csrf(request: Request, expected: &str) -> Result<Request, Response> {
    let same = |given: &str| bool::from(expected.as_bytes().ct_eq(given.as_bytes()));
    let refused = || {
        let why = "the form has no valid `csrf` value; go back, reload the page and try again\n";
        (StatusCode::FORBIDDEN, why).into_response()
    };
    if let Some(given) = request.headers().get(CSRF_HEADER) {
        return if same(given.to_str().unwrap_or_default()) { Ok(request) } else { Err(refused()) };
    }
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if !kind.starts_with("application/x-www-form-urlencoded") {
        return Err(refused());
    }
    let (parts, body) = request.into_parts();
    let too_large = |_| (StatusCode::PAYLOAD_TOO_LARGE, "the form is too large\n").into_response();
    let body = to_bytes(body, MAX_FORM).await.map_err(too_large)?;
    let mut given = url::form_urlencoded::parse(&body).filter(|(key, _)| key == CSRF).map(|(_, value)| value);
    match (given.next(), given.next()) {
        (Some(given), None) if same(&given) => {}
        _ => return Err(refused()),
    }
    Ok(Request::from_parts(parts, Body::from(body)))
}

/// Adds the headers that all answers have, unless the route set them.
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
