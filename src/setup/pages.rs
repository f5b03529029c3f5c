//! Pages of the setup, and handlers of their forms.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::{Form, Query, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use ralph_types::failure::Failure;
use secrecy::ExposeSecret;
use serde::Deserialize;
use serde_json::{Value, json};
use url::Url;

use super::access::{SetupBrowser, is_own_change, own_origin};
use super::complete::{CompleteOptions, complete};
use super::github::{AppRequest, SetupFailure, configure, installed_on, pending};
use super::state::{SetupMode, SetupState};
use super::token::{BotTokenRequest, TokenSource};
use super::trial::{self, TrialRepository};
use super::{SetupReport, StepState};
use crate::agent::presets::names as agent_names;
use crate::app;
use crate::clock::Clock;
use crate::config::webhook_secrets::random_secret;
use crate::config::{Config, ConfigProblems, ForgeAuth, ForgeConfig};
use crate::forge::http::RateSettings;
use crate::net::serve::PeerAddress;
use crate::web::stand_alone_page;

/// Number of seconds after which a page that shows running work is reloaded.
const RELOAD: &str = "2";
/// Number of seconds between two checks of the App's installation.
const INSTALLATION_RELOAD: &str = "5";
/// Path to which GitHub redirects the browser with a code.
pub(super) const CREATED: &str = "/setup/github/created";

type SetupFields = HashMap<String, String>;

/// Returns the routes of the pages.
pub(super) fn routes() -> Router<Arc<SetupState>> {
    Router::new()
        .route("/setup", get(show))
        .route("/setup/enter", post(enter))
        .route("/setup/github", post(github))
        .route(CREATED, get(created))
        .route("/setup/github/continue", post(go_on))
        .route("/setup/token", post(token))
        .route("/setup/check", post(check))
        .route("/setup/try", post(try_it))
        .route("/setup/clean-up", post(clean_up))
        .route("/setup/finish", post(finish))
}

fn to_setup() -> Response {
    (StatusCode::SEE_OTHER, [(header::LOCATION, HeaderValue::from_static("/setup"))]).into_response()
}

fn page(status: StatusCode, context: Value, targets: &[String]) -> Response {
    let mut whole = json!({ "problem": null, "shown": null });
    if let (Some(all), Value::Object(more)) = (whole.as_object_mut(), context) {
        all.extend(more);
    }
    let mut response = stand_alone_page("setup.html", "Set-up", whole, targets);
    if response.status().is_success() {
        *response.status_mut() = status;
    }
    response
}

fn lines(text: &str) -> Vec<&str> {
    text.lines().collect()
}

/// Returns the page that asks for the token.
fn ask_for_token(status: StatusCode, problem: Option<&str>) -> Response {
    page(status, json!({ "stage": "enter", "problem": problem.map(lines) }), &[])
}

/// Query of the set-up page.
#[derive(Default, Deserialize)]
struct SetupQuery {
    token: Option<String>,
}

async fn show(
    State(state): State<Arc<SetupState>>,
    peer: Option<Extension<PeerAddress>>,
    headers: HeaderMap,
    Query(query): Query<SetupQuery>,
) -> Response {
    if let Some(token) = query.token {
        return by_token(&state, peer, (&headers, false), &token);
    }
    match state.access.browser(&headers) {
        Some(browser) => overview(&state, &browser, StatusCode::OK, None).await,
        None => ask_for_token(StatusCode::UNAUTHORIZED, None),
    }
}

async fn enter(
    State(state): State<Arc<SetupState>>,
    peer: Option<Extension<PeerAddress>>,
    headers: HeaderMap,
    Form(fields): Form<SetupFields>,
) -> Response {
    if !is_own_change(&headers) {
        return (StatusCode::FORBIDDEN, "this change comes from a page of another site\n").into_response();
    }
    by_token(&state, peer, (&headers, true), fields.get("token").map(|token| token.trim()).unwrap_or_default())
}

/// Admits a browser that sends the token by a form or in the address.
fn by_token(
    state: &SetupState,
    peer: Option<Extension<PeerAddress>>,
    (headers, is_form): (&HeaderMap, bool),
    token: &str,
) -> Response {
    let from = peer.map_or(std::net::Ipv4Addr::UNSPECIFIED.into(), |peer| peer.0.0.ip());
    let now = state.clock.now();
    match state.access.enter(token, own_origin(headers).starts_with("https:")) {
        Ok(Some(cookie)) => {
            let mut response = to_setup();
            response.headers_mut().insert(header::SET_COOKIE, cookie);
            response
        }
        // The right token always works, so that the operator cannot be locked out.
        Ok(None) => {
            if let Some(wait) = state.access.wait_ms(from, now) {
                let seconds = (wait / 1000 + 1).to_string();
                let why = format!("too many wrong tokens from this address; try again in {seconds} s\n");
                return (StatusCode::TOO_MANY_REQUESTS, [(header::RETRY_AFTER, seconds)], why).into_response();
            }
            // Any page can contain an image with this address and a wrong token.
            let names_site = is_form || headers.contains_key("sec-fetch-site");
            if names_site && is_own_change(headers) {
                state.access.has_failed(from, now);
            }
            ask_for_token(StatusCode::FORBIDDEN, Some("This is not the token. It is new at each start."))
        }
        Err(error) => {
            (StatusCode::INTERNAL_SERVER_ERROR, format!("could not read random numbers from the system: {error}\n"))
                .into_response()
        }
    }
}

/// Checks that a change comes from a form of this server in a browser that entered the token.
fn admitted(state: &SetupState, headers: &HeaderMap, fields: &SetupFields) -> Result<SetupBrowser, Response> {
    let browser = state.access.browser(headers).ok_or_else(|| ask_for_token(StatusCode::UNAUTHORIZED, None))?;
    let csrf = fields.get("csrf").map(String::as_str).unwrap_or_default();
    if !is_own_change(headers) || !browser.sent(csrf) {
        tracing::warn!("a change of the set-up from a page of another site was refused");
        let why = "the form has no valid `csrf` value, or is of another site; go back, reload the page and try again\n";
        return Err((StatusCode::FORBIDDEN, why).into_response());
    }
    Ok(browser)
}

fn text_of(fields: &SetupFields, name: &str) -> Option<String> {
    fields.get(name).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
}

fn names_of(fields: &SetupFields) -> Vec<String> {
    let text = text_of(fields, "repositories").unwrap_or_default();
    text.split([',', ' ']).map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

fn backend_of(fields: &SetupFields) -> Result<String, Failure> {
    let name = text_of(fields, "backend").unwrap_or_else(|| "claude".to_owned());
    if agent_names().contains(&name.as_str()) {
        Ok(name)
    } else {
        Err(Failure::new(format!("there is no backend `{name}`")))
    }
}

/// Returns the entered values, so that a form that is shown again contains them. Tokens are left out.
fn entered(state: &SetupState, fields: Option<&SetupFields>) -> Value {
    let of = |name: &str| fields.and_then(|fields| text_of(fields, name)).unwrap_or_default();
    let is_token_form = fields.is_some_and(|fields| fields.contains_key("token"));
    let known = state.place.base().ok().and_then(|config| config.server.public_url);
    let public = match fields {
        Some(_) => of("public_url"),
        None => known.map(|url| url.to_string()).unwrap_or_default(),
    };
    let backend = Some(of("backend")).filter(|name| !name.is_empty()).unwrap_or_else(|| "claude".to_owned());
    json!({
        "organization": of("organization"), "api_url": of("api_url"), "public_url": public, "backend": backend,
        "url": if is_token_form { String::new() } else { of("url") },
        "server": if is_token_form { of("url") } else { String::new() },
        "repositories": of("repositories"),
    })
}

/// Returns the last page, which links to the dashboard.
fn done(state: &SetupState) -> Response {
    let config = configured(state).ok().flatten().map(|(config, _)| config);
    let (dashboard, has_login) = config.as_ref().map_or((None, false), app::address_after_setup);
    let context = json!({ "stage": "done", "dashboard": dashboard, "has_login": has_login });
    page(StatusCode::OK, context, &[])
}

/// Returns the page for the current stage of the setup.
async fn overview(
    state: &Arc<SetupState>,
    browser: &SetupBrowser,
    status: StatusCode,
    problem: Option<(Failure, Option<&SetupFields>)>,
) -> Response {
    let fields = problem.as_ref().and_then(|(_, fields)| *fields);
    let problem = problem.map(|(problem, _)| format!("{problem:#}"));
    let problem = problem.as_deref().map(lines);
    if state.finished.is_cancelled() {
        return done(state);
    }
    if let SetupMode::CreateApp(request) = &state.mode {
        return match state.created() {
            Some(created) => {
                let forge = json!({ "install": created.installation_page.as_str() });
                page(
                    status,
                    json!({ "stage": "created", "problem": problem, "steps": created.report.steps, "forge": forge }),
                    &[],
                )
            }
            None if problem.is_some() => page(status, json!({ "stage": "failed", "problem": problem }), &[]),
            None => offer(state, browser, request.clone()),
        };
    }
    match configured(state) {
        Ok(Some((config, name))) => match config.forges.iter().find(|forge| forge.name.as_str() == name) {
            Some(forge) => of_forge(state, browser, forge, status, problem, fields).await,
            None => page(
                status,
                json!({ "stage": "failed", "problem": ["the configured forge no longer exists; restart the service"] }),
                &[],
            ),
        },
        Ok(None) => {
            let kept = pending(&state.place).ok().flatten().map(|file| file.display().to_string());
            let context = json!({
                "stage": "choose", "problem": problem, "file": state.place.file.display().to_string(), "kept": kept,
                "csrf": browser.csrf(), "form": entered(state, fields), "backends": agent_names(),
            });
            page(status, context, &[])
        }
        Err(why) => {
            let all: Vec<String> = problem
                .into_iter()
                .flatten()
                .map(str::to_owned)
                .chain(format!("{why:#}").lines().map(str::to_owned))
                .collect();
            page(status, json!({ "stage": "failed", "problem": all }), &[])
        }
    }
}

/// Returns the problems of a configuration as one problem.
fn invalid(problems: ConfigProblems) -> Failure {
    Failure::new(problems.to_string())
}

/// Returns the configuration with the name of its first forge; `None` if there is no forge yet.
fn configured(state: &SetupState) -> Result<Option<(Config, String)>, Failure> {
    let place = &state.place;
    if !crate::config::forge_entry::has_forge(&place.file, &place.env).map_err(invalid)? {
        return Ok(None);
    }
    let config = place.config().map_err(invalid)?;
    let name = config.forges.first().map(|forge| forge.name.to_string());
    Ok(name.map(|name| (config, name)))
}

async fn of_forge(
    state: &Arc<SetupState>,
    browser: &SetupBrowser,
    forge: &ForgeConfig,
    status: StatusCode,
    problem: Option<Vec<&str>>,
    fields: Option<&SetupFields>,
) -> Response {
    let is_app = matches!(forge.auth, ForgeAuth::App { .. });
    let (repositories, asked) = match installed_on(forge).await {
        Ok(names) => (names, None),
        Err(why) => (Vec::new(), Some(format!("{why:#}"))),
    };
    let install = match (is_app, state.created()) {
        (true, Some(created)) => Some(created.installation_page.to_string()),
        (true, None) => installation_page(forge).await,
        (false, _) => None,
    };
    let job = state.job();
    let reload = match (&job.running, is_app && repositories.is_empty()) {
        (true, _) => Some(RELOAD),
        (false, true) => Some(INSTALLATION_RELOAD),
        _ => None,
    };
    let context = json!({
        "stage": "configured", "problem": problem, "csrf": browser.csrf(), "steps": state.report().steps,
        "forge": { "name": forge.name.as_str(), "install": install, "by_token": !is_app, "problem": asked },
        "repositories": repositories, "form": entered(state, fields),
        "job": {
            "running": job.running, "lines": job.lines, "error": job.error, "pull": job.pull,
            "can_clean_up": trial::is_recorded(&state.place),
        },
    });
    let mut response = page(status, context, &[]);
    if let Some(seconds) = reload {
        response.headers_mut().insert("refresh", HeaderValue::from_static(seconds));
    }
    response
}

/// Returns the address of the page for installing an App, which is derived from the login of its bot.
async fn installation_page(forge: &ForgeConfig) -> Option<String> {
    let adapter = app::connect(forge, RateSettings::default(), &Clock::System).ok()?;
    let own = adapter.own_account().await.ok()?;
    let slug = own.login.strip_suffix("[bot]")?;
    let mut page = forge.url.clone();
    page.path_segments_mut().ok()?.pop_if_empty().extend(["apps", slug, "installations", "new"]);
    Some(page.into())
}

fn not_an_address(error: url::ParseError) -> Failure {
    Failure::new("the address of this page is not valid").caused_by(error)
}

/// Returns the page with the form that is posted to GitHub.
fn offer(state: &Arc<SetupState>, browser: &SetupBrowser, request: AppRequest) -> Response {
    let base = state.origin(browser);
    let redirect = Url::parse(&format!("{base}{CREATED}"));
    let back = Url::parse(&format!("{base}/setup")).ok().filter(|_| matches!(state.mode, SetupMode::Service));
    let started = redirect.map_err(not_an_address).and_then(|redirect| request.start(&state.place, redirect, back));
    let prepared = started.and_then(|started| {
        let value = random_secret()
            .map_err(|error| Failure::new("could not read random numbers from the system").caused_by(error))?;
        Ok((started.plan.manifest()?, started.plan.form_address(&value), value, started))
    });
    match prepared {
        Ok((manifest, address, value, started)) => {
            let target = started.plan.web.origin().ascii_serialization();
            let create =
                json!({ "address": address.as_str(), "manifest": manifest, "host": started.plan.web.host_str() });
            state.give(value, &browser.name(), started.request);
            page(StatusCode::OK, json!({ "stage": "create", "create": create }), &[target])
        }
        Err(why) => page(
            StatusCode::UNPROCESSABLE_ENTITY,
            json!({ "stage": "failed", "problem": lines(&format!("{why:#}")) }),
            &[],
        ),
    }
}

async fn github(State(state): State<Arc<SetupState>>, headers: HeaderMap, Form(fields): Form<SetupFields>) -> Response {
    let browser = match admitted(&state, &headers, &fields) {
        Ok(browser) => browser,
        Err(refusal) => return refusal,
    };
    state.remember_origin(&browser, own_origin(&headers));
    let request = backend_of(&fields).map(|backend| AppRequest {
        name: "github".to_owned(),
        url: text_of(&fields, "url"),
        api_url: text_of(&fields, "api_url"),
        organization: text_of(&fields, "organization"),
        public_url: text_of(&fields, "public_url"),
        backend,
    });
    // A value that is wrong is shown with the form, before anybody is sent away.
    let checked = request.and_then(|request| {
        let here = Url::parse(&format!("{}{CREATED}", state.origin(&browser))).map_err(not_an_address)?;
        request.clone().start(&state.place, here, None).map(|_| request)
    });
    match checked {
        Ok(request) => offer(&state, &browser, request),
        Err(why) => overview(&state, &browser, StatusCode::UNPROCESSABLE_ENTITY, Some((why, Some(&fields)))).await,
    }
}

/// Query of GitHub's redirect.
#[derive(Default, Deserialize)]
struct CreatedQuery {
    code: Option<String>,
    state: Option<String>,
}

/// Finishes the creation of an App after GitHub's redirect.
async fn created(
    State(state): State<Arc<SetupState>>,
    headers: HeaderMap,
    Query(query): Query<CreatedQuery>,
) -> Response {
    let Some(browser) = state.access.browser(&headers) else { return ask_for_token(StatusCode::UNAUTHORIZED, None) };
    let taken = state.take(query.state.as_deref().unwrap_or_default(), &browser.name());
    let request = match taken {
        Ok(request) => request,
        Err(refusal) => {
            tracing::warn!(%refusal, "GitHub's answer was refused");
            let why = Failure::new(refusal.to_string());
            return overview(&state, &browser, StatusCode::FORBIDDEN, Some((why, None))).await;
        }
    };
    let code = query.code.unwrap_or_default();
    let again = request.clone();
    match request.finish(&state.place, &code).await {
        Ok(done) => {
            state.was_created(done);
            to_setup()
        }
        Err(SetupFailure::Shown { why, file, answer }) => {
            let problem = [format!("The service could not write GitHub's answer ({why}).")];
            let shown = json!({ "file": file, "answer": answer.expose_secret() });
            page(
                StatusCode::INTERNAL_SERVER_ERROR,
                json!({ "stage": "failed", "problem": problem, "shown": shown }),
                &[],
            )
        }
        Err(failure @ (SetupFailure::Failed(_) | SetupFailure::Unavailable(_))) => {
            // With a valid code, the same address can be loaded again.
            if let (SetupFailure::Unavailable(_), Some(value)) = (&failure, query.state) {
                state.give(value, &browser.name(), again);
            }
            let why = failure.to_string();
            state.has_failed(&why);
            overview(&state, &browser, StatusCode::BAD_GATEWAY, Some((why.into(), None))).await
        }
    }
}

async fn go_on(State(state): State<Arc<SetupState>>, headers: HeaderMap, Form(fields): Form<SetupFields>) -> Response {
    let browser = match admitted(&state, &headers, &fields) {
        Ok(browser) => browser,
        Err(refusal) => return refusal,
    };
    match configure(&state.place) {
        Ok(done) => {
            state.was_created(done);
            to_setup()
        }
        Err(why) => overview(&state, &browser, StatusCode::CONFLICT, Some((why, None))).await,
    }
}

async fn token(State(state): State<Arc<SetupState>>, headers: HeaderMap, Form(fields): Form<SetupFields>) -> Response {
    let browser = match admitted(&state, &headers, &fields) {
        Ok(browser) => browser,
        Err(refusal) => return refusal,
    };
    let request = backend_of(&fields).map(|backend| BotTokenRequest {
        name: "gitea".to_owned(),
        url: text_of(&fields, "url").unwrap_or_default(),
        token: TokenSource::Given(text_of(&fields, "token").unwrap_or_default().into()),
        public_url: text_of(&fields, "public_url"),
        backend,
    });
    let report = match request {
        Ok(request) => request.configure(&state.place).await,
        Err(why) => Err(why),
    };
    match report {
        Ok(report) => {
            state.set_report(report);
            completed(&state, &names_of(&fields)).await;
            to_setup()
        }
        Err(why) => overview(&state, &browser, StatusCode::UNPROCESSABLE_ENTITY, Some((why, Some(&fields)))).await,
    }
}

/// Creates and tests everything that the service needs on the forge, and adds the steps to the report.
async fn completed(state: &SetupState, repositories: &[String]) {
    let mut report: SetupReport = state.report();
    let outcome = match configured(state) {
        Ok(Some((config, name))) => match config.forges.iter().find(|forge| forge.name.as_str() == name) {
            Some(forge) => {
                let options =
                    CompleteOptions { repositories, patience: state.patience, routes: Some(&state.deliveries) };
                complete(&config, forge, options).await.map_err(Failure::of)
            }
            None => Err("the configured forge no longer exists".into()),
        },
        Ok(None) => Err("no forge is configured".into()),
        Err(why) => Err(why),
    };
    match outcome {
        Ok(more) => report.steps.extend(more.steps),
        Err(why) => report.add(StepState::Failed, format!("{why:#}")),
    }
    state.set_report(report);
}

async fn check(State(state): State<Arc<SetupState>>, headers: HeaderMap, Form(fields): Form<SetupFields>) -> Response {
    if let Err(refusal) = admitted(&state, &headers, &fields) {
        return refusal;
    }
    state.set_report(SetupReport::default());
    completed(&state, &names_of(&fields)).await;
    to_setup()
}

async fn try_it(State(state): State<Arc<SetupState>>, headers: HeaderMap, Form(fields): Form<SetupFields>) -> Response {
    let browser = match admitted(&state, &headers, &fields) {
        Ok(browser) => browser,
        Err(refusal) => return refusal,
    };
    let wanted = TrialRepository::parse(&text_of(&fields, "repository").unwrap_or_default());
    let begun = match (wanted, configured(&state)) {
        (Ok(wanted), Ok(Some((config, name)))) => {
            match config.forges.into_iter().find(|forge| forge.name.as_str() == name) {
                Some(forge) => state.begin_trial(forge, wanted),
                None => Err("the configured forge no longer exists".into()),
            }
        }
        (Ok(_), Ok(None)) => Err("no forge is configured".into()),
        (Err(why), _) | (_, Err(why)) => Err(why),
    };
    match begun {
        Ok(()) => to_setup(),
        Err(why) => overview(&state, &browser, StatusCode::CONFLICT, Some((why, None))).await,
    }
}

async fn clean_up(
    State(state): State<Arc<SetupState>>,
    headers: HeaderMap,
    Form(fields): Form<SetupFields>,
) -> Response {
    let browser = match admitted(&state, &headers, &fields) {
        Ok(browser) => browser,
        Err(refusal) => return refusal,
    };
    if state.job().running {
        let why = "the trial is not finished".into();
        return overview(&state, &browser, StatusCode::CONFLICT, Some((why, None))).await;
    }
    match trial::clean_up(&state.place).await {
        Ok(lines) => {
            state.cleaned_up(lines);
            to_setup()
        }
        Err(error) => overview(&state, &browser, StatusCode::BAD_GATEWAY, Some((Failure::of(error), None))).await,
    }
}

async fn finish(State(state): State<Arc<SetupState>>, headers: HeaderMap, Form(fields): Form<SetupFields>) -> Response {
    let browser = match admitted(&state, &headers, &fields) {
        Ok(browser) => browser,
        Err(refusal) => return refusal,
    };
    let ready = match (state.job().running, configured(&state)) {
        (true, _) => Err("the trial is not finished".into()),
        (_, Ok(Some(_))) => Ok(()),
        (_, Ok(None)) => Err("no forge is configured".into()),
        (_, Err(why)) => Err(why),
    };
    match ready {
        Ok(()) => {
            state.finished.cancel();
            done(&state)
        }
        Err(why) => overview(&state, &browser, StatusCode::CONFLICT, Some((why, None))).await,
    }
}
