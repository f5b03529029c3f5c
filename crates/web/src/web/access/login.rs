//! Routes for login and logout.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, LazyLock};

use axum::Extension;
use axum::Router;
use axum::extract::{Form, Path, Query, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use data_encoding::BASE64;
use minijinja::{AutoEscape, Environment, context};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use url::Url;

use super::cookies::{WebCookie, derived, digest};
use super::guard::{AskedForm, RequestFacts, has_own_origin, too_many, unavailable};
use super::{SessionKey, Viewer, WebAccess, WebState};
use crate::config::webhook_secrets::random_secret;
use crate::domain::model::ids::{ForgeName, User, UserId};
use crate::domain::trust::viewer::{LOGIN_MS, local_path, may_not_log_in};
use crate::engine::Engine;
use crate::forge::Login;
use crate::forge::login::{CodeExchange, LoginClient, LoginFailure, account_of_code, authorize_address};
use crate::store::access_audit::{self, AccessRequest, AccessVia};
use crate::store::web_sessions::{self, BegunLogin};
use crate::web::routes::{WebRoute, router_of};

const PAGE: &str = include_str!("login.html");
const STYLE: &str = include_str!("login.css");
/// Purpose of the derived value that proves to the forge that the same browser starts and completes a login (PKCE).
const PKCE: &str = "pkce";

/// Content security policy of the login pages: no scripts, one style sheet, and forms only to this server.
static POLICY: LazyLock<HeaderValue> = LazyLock::new(|| {
    let style = BASE64.encode(&Sha256::digest(STYLE));
    let text = format!(
        "default-src 'none'; style-src 'sha256-{style}'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    );
    HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("default-src 'none'"))
});

/// Returns the routes of login and logout.
pub(in crate::web) fn routes() -> Vec<WebRoute> {
    vec![
        WebRoute::get("/login", page),
        WebRoute::post("/login", by_form),
        WebRoute::get("/login/start/{forge}", start),
        WebRoute::get("/login/callback/{forge}", callback),
        WebRoute::post("/logout", logout),
    ]
}

/// Returns the router of login and logout.
pub(in crate::web) fn router() -> Router<Arc<WebState>> {
    router_of(routes())
}

/// Query of the login page.
#[derive(Default, Deserialize)]
struct LoginQuery {
    next: Option<String>,
    token: Option<String>,
}

/// Form that submits the token.
#[derive(Deserialize)]
struct TokenForm {
    token: String,
    next: Option<String>,
}

async fn page(
    State(state): State<Arc<WebState>>,
    Extension(facts): Extension<RequestFacts>,
    headers: HeaderMap,
    Query(query): Query<LoginQuery>,
) -> Response {
    match query.token {
        Some(token) => by_token(&state, (&facts, "GET"), &headers, &token, query.next.as_deref()).await,
        None if facts.viewer.is_some() => to(local_path(query.next.as_deref())),
        None => login_page(&state, StatusCode::OK, "Log in", "", query.next.as_deref()),
    }
}

async fn by_form(
    State(state): State<Arc<WebState>>,
    Extension(facts): Extension<RequestFacts>,
    headers: HeaderMap,
    Form(form): Form<TokenForm>,
) -> Response {
    by_token(&state, (&facts, "POST"), &headers, form.token.trim(), form.next.as_deref()).await
}

/// Logs in the holder of the token printed by `ralph-bot serve`, and redirects to an address without the token.
async fn by_token(
    state: &WebState,
    (facts, method): (&RequestFacts, &'static str),
    headers: &HeaderMap,
    token: &str,
    next: Option<&str>,
) -> Response {
    let (access, engine) = (&state.access, &*state.engine);
    // The correct token always works, so an attacker cannot lock out the operator.
    if !access.is_token(token) {
        if let Some(wait) = access.wait_ms(engine, facts.from) {
            return too_many(AskedForm::of(headers), wait);
        }
        // Any page can contain an image with this address and a wrong token. Browsers send the site of such a request, or at
        // least the origin of a form.
        let names_site = method == "POST" || headers.contains_key("sec-fetch-site");
        if names_site && has_own_origin(headers, &access.own_origin(headers)) {
            access.has_failed(engine, facts.from, "a wrong token");
        }
        let words = if access.is_local() {
            "This is not the token. `ralph-bot serve` prints a new one at each start."
        } else {
            "There is no token here: log in with your account."
        };
        return login_page(state, StatusCode::FORBIDDEN, "Log in", words, next);
    }
    match begin_session(access, engine, headers, None, (method, facts.from)).await {
        Ok(cookie) => {
            tracing::info!(who = "the operator's token", from = %facts.from, "logged in to the dashboard");
            with_cookies(to(local_path(next)), [cookie])
        }
        Err(refusal) => refusal,
    }
}

/// Returns the login capability and OAuth client of a configured forge; `None` without a login.
fn login_of<'a>(state: &'a WebState, name: &ForgeName) -> Option<(&'a dyn Login, &'a LoginClient, UserId)> {
    let account = state.engine.forges.accounts.get(name)?;
    Some((account.forge.login()?, state.access.settings.logins.get(name)?, account.user_id()?))
}

fn redirect_address(access: &WebAccess, forge: &ForgeName) -> Option<Url> {
    access.settings.base.join(&format!("/login/callback/{forge}")).ok()
}

/// Starts a login: redirects the browser to the forge.
async fn start(
    State(state): State<Arc<WebState>>,
    Extension(facts): Extension<RequestFacts>,
    Path(forge): Path<String>,
    headers: HeaderMap,
    Query(query): Query<LoginQuery>,
) -> Response {
    let (access, engine, forge) = (&state.access, &*state.engine, ForgeName::new(forge));
    if let Some(wait) = access.wait_ms(engine, facts.from) {
        return too_many(AskedForm::of(&headers), wait);
    }
    let found = login_of(&state, &forge).zip(redirect_address(access, &forge));
    let Some(((login, client, _), redirect)) = found else {
        let words = "There is no login with this forge.";
        return login_page(&state, StatusCode::NOT_FOUND, "Log in", words, query.next.as_deref());
    };
    let (Ok(browser), Ok(asked)) = (random_secret(), random_secret()) else { return no_randomness() };
    let now = engine.clock.now();
    let begun = BegunLogin {
        browser: digest(&browser),
        forge,
        next: local_path(query.next.as_deref()).to_owned(),
        expires_at: now.plus_ms(LOGIN_MS),
    };
    let key = digest(&asked);
    if let Err(error) = engine.store.write(move |c| web_sessions::begin_login(c, &key, &begun, now)).await {
        return unavailable(&error);
    }
    let verifier = derived(&browser, PKCE);
    let address = authorize_address(&login.login_addresses(), client, &redirect, &asked, &verifier);
    with_cookies(to(address.as_str()), [WebCookie::Login.set(&browser, access.https())])
}

/// Query of the forge's redirect after a login.
#[derive(Default, Deserialize)]
struct CallbackQuery {
    code: Option<String>,
    state: Option<String>,
    error: Option<String>,
}

/// Reason for a failed login.
enum LoginRefusal {
    /// Rejected, with this message for the person; counts as a failed attempt.
    Refused(&'static str),
    /// The person did not grant access on the forge.
    Denied,
    /// The account may not log in.
    NotAllowed(&'static str),
    /// The forge or the service caused the failure.
    Fault(String),
    /// Other failure with this response.
    Other(Response),
}

/// Completes a login after the forge redirects the browser back.
async fn callback(
    State(state): State<Arc<WebState>>,
    Extension(facts): Extension<RequestFacts>,
    Path(forge): Path<String>,
    headers: HeaderMap,
    Query(query): Query<CallbackQuery>,
) -> Response {
    let (access, engine, forge) = (&state.access, &*state.engine, ForgeName::new(forge));
    if let Some(wait) = access.wait_ms(engine, facts.from) {
        return too_many(AskedForm::of(&headers), wait);
    }
    let forget = WebCookie::Login.set("", access.https());
    let refusal = match finished(&state, &forge, &headers, &query).await {
        Ok((user, next)) => {
            let account = (forge, user);
            let who = format!("{}:{} {:?}", account.0, account.1.id, account.1.login);
            match begin_session(access, engine, &headers, Some(account), ("GET", facts.from)).await {
                Ok(cookie) => {
                    tracing::info!(%who, from = %facts.from, "logged in to the dashboard");
                    return with_cookies(to(local_path(Some(&next))), [cookie, forget]);
                }
                Err(refusal) => LoginRefusal::Other(refusal),
            }
        }
        Err(refusal) => refusal,
    };
    let failed = |status, words: &str| login_page(&state, status, "Not logged in", words, None);
    let response = match refusal {
        LoginRefusal::Refused(why) => {
            // Browsers do not send this cookie with an image or frame of another site.
            if WebCookie::Login.of(&headers, access.https()).is_some() {
                access.has_failed(engine, facts.from, why);
            }
            failed(
                StatusCode::FORBIDDEN,
                "This login is not valid: it was started in another browser, is older than 10 minutes, or was used before. Log in again.",
            )
        }
        LoginRefusal::Denied => {
            tracing::info!(from = %facts.from, "a login was declined on the forge");
            failed(StatusCode::FORBIDDEN, "You declined the login on the forge's page.")
        }
        LoginRefusal::NotAllowed(why) => {
            access.has_failed(engine, facts.from, why);
            failed(StatusCode::FORBIDDEN, &format!("You cannot log in: {why}."))
        }
        LoginRefusal::Fault(why) => {
            tracing::warn!(from = %facts.from, why = ?why, "a login to the dashboard failed");
            failed(StatusCode::SERVICE_UNAVAILABLE, &format!("The login failed: {why}. Try again in a minute."))
        }
        LoginRefusal::Other(response) => response,
    };
    with_cookies(response, [forget])
}

/// Checks the query of the forge's redirect and determines the account of the code; returns the account and the path to
/// redirect to.
async fn finished(
    state: &WebState,
    forge: &ForgeName,
    headers: &HeaderMap,
    query: &CallbackQuery,
) -> Result<(User, String), LoginRefusal> {
    use LoginRefusal::{Denied, Fault, NotAllowed, Other, Refused};
    let (access, engine) = (&state.access, &*state.engine);
    let browser =
        WebCookie::Login.of(headers, access.https()).ok_or(Refused("no login was started in this browser"))?;
    let key = digest(query.state.as_deref().ok_or(Refused("the state is missing"))?);
    let now = engine.clock.now();
    let taken = engine.store.write(move |c| web_sessions::take_login(c, &key, now)).await;
    let begun = taken.map_err(|error| Other(unavailable(&error)))?.ok_or(Refused("the state is not known"))?;
    if begun.browser != digest(&browser) {
        return Err(Refused("the login was started in another browser"));
    }
    if begun.forge != *forge {
        return Err(Refused("the login was started with another forge"));
    }
    if let Some(error) = query.error.as_deref() {
        return Err(if error == "access_denied" {
            Denied
        } else {
            Fault("the forge did not accept the request".into())
        });
    }
    let code = query.code.as_deref().ok_or(Refused("the code is missing"))?;
    let (login, client, own) = login_of(state, forge).ok_or(Refused("there is no login with this forge"))?;
    let redirect = redirect_address(access, forge).ok_or_else(|| Fault("the service's address is not valid".into()))?;
    let verifier = derived(&browser, PKCE);
    let exchange = CodeExchange { client, redirect: &redirect, code, verifier: &verifier };
    let answer = account_of_code(&access.transport, &login.login_addresses(), exchange).await;
    let answer = answer.map_err(|failure| match failure {
        LoginFailure::Refused(_) => {
            tracing::warn!(%forge, %failure, "a code was refused");
            Refused("the forge refused the code")
        }
        LoginFailure::Client(_) | LoginFailure::Unavailable(_) => {
            tracing::warn!(%forge, %failure, "could not finish a login");
            Fault(match failure {
                LoginFailure::Client(_) => {
                    "the forge does not accept the service as a client; the service's log has the reason".into()
                }
                _ => "could not query the forge".into(),
            })
        }
    })?;
    let account =
        login.login_account(&answer).map_err(|why| Fault(format!("cannot read the forge's answer ({why:#})")))?;
    match may_not_log_in(account.user.id, account.user.kind, account.suspended, own) {
        Some(why) => Err(NotAllowed(why)),
        None => Ok((account.user, begun.next)),
    }
}

/// Starts a session with a new random value and an audit row, ends the browser's previous session, and returns the cookie.
async fn begin_session(
    access: &WebAccess,
    engine: &Engine,
    headers: &HeaderMap,
    account: Option<(ForgeName, User)>,
    (method, from): (&'static str, IpAddr),
) -> Result<HeaderValue, Response> {
    let Ok(held) = random_secret() else { return Err(no_randomness()) };
    let (id, now) = (digest(&held), engine.clock.now());
    let earlier = WebCookie::Session.of(headers, access.https()).map(|held| digest(&held));
    let begun = engine.store.write(move |c| {
        if let Some(earlier) = &earlier {
            web_sessions::end(c, earlier)?;
        }
        web_sessions::start(c, &id, account.as_ref(), now)?;
        let login =
            AccessRequest { account, from, via: AccessVia::Login, method: method.into(), path: "/login".into() };
        let row = access_audit::begin(c, &login, now)?;
        access_audit::finish(c, row, StatusCode::SEE_OTHER.as_u16())
    });
    begun.await.map_err(|error| unavailable(&error))?;
    Ok(WebCookie::Session.set(&held, access.https()))
}

async fn logout(State(state): State<Arc<WebState>>, viewer: Viewer) -> Response {
    if let Some(SessionKey(id)) = viewer.session.clone()
        && let Err(error) = state.engine.store.write(move |c| web_sessions::end(c, &id)).await
    {
        return unavailable(&error);
    }
    let from = viewer.from.map(|from: IpAddr| from.to_string()).unwrap_or_default();
    tracing::info!(who = %viewer, from, "logged out of the dashboard");
    with_cookies(to("/login"), [WebCookie::Session.set("", state.access.https())])
}

/// Returns the login page.
fn login_page(state: &WebState, status: StatusCode, title: &str, message: &str, next: Option<&str>) -> Response {
    let access = &state.access;
    let next = local_path(next);
    let query = url::form_urlencoded::Serializer::new(String::new()).append_pair("next", next).finish();
    let mut names: Vec<&ForgeName> = access.settings.logins.keys().collect();
    names.sort();
    let forges: Vec<HashMap<&str, String>> = names
        .into_iter()
        .map(|name| HashMap::from([("name", name.to_string()), ("address", format!("/login/start/{name}?{query}"))]))
        .collect();
    let mut page = Environment::new();
    page.set_auto_escape_callback(|_| AutoEscape::Html);
    let values = context! { title, message, next, forges, style => STYLE, is_local => access.is_local() };
    match page.render_str(PAGE, values) {
        Ok(text) => (status, [(header::CONTENT_SECURITY_POLICY, POLICY.clone())], Html(text)).into_response(),
        Err(error) => {
            tracing::warn!(%error, "could not write the login page");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

fn no_randomness() -> Response {
    tracing::error!("could not read random numbers from the system");
    (StatusCode::SERVICE_UNAVAILABLE, "could not read random numbers from the system\n").into_response()
}

/// Returns a redirect that browsers follow with GET.
fn to(address: &str) -> Response {
    match HeaderValue::from_str(address) {
        Ok(address) => (StatusCode::SEE_OTHER, [(header::LOCATION, address)]).into_response(),
        Err(_) => (StatusCode::SEE_OTHER, [(header::LOCATION, HeaderValue::from_static("/"))]).into_response(),
    }
}

fn with_cookies<const N: usize>(mut response: Response, cookies: [HeaderValue; N]) -> Response {
    for cookie in cookies {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    response
}
