//! Page of personal API tokens: create, show once, list and revoke.

use std::sync::Arc;

use axum::extract::{Form, Path, State};
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};

use super::layout::{self, PageDef, PageError, PageFrame, PageNav, PageRights, opened, page_template, require_token};
use crate::domain::model::ids::Timestamp;
use crate::store::tokens::{self, ApiScope, MAX_TOKENS, StoredToken};
use crate::web::markup::with_status;
use crate::web::personal_token::{DEFAULT_DAYS, MAX_DAYS, MAX_NAME, make_token, request_of};
use crate::web::{Viewer, WebState};

/// Row of the page.
pub(super) static PAGE: PageDef = PageDef {
    route: "/tokens",
    template: page_template!("tokens.html"),
    title: "Tokens",
    nav: PageNav::Entry("Tokens"),
    rights: PageRights::Viewer,
    show: |page| opened(page, show),
};

/// Maximum number of tokens on the page; the page shows the newest ones.
const TOKENS_SHOWN: usize = 100;

/// Form of a new token.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct NewTokenForm {
    csrf: String,
    name: String,
    /// `read` or `write`.
    scope: String,
    /// Number of days.
    days: String,
}

/// Form that revokes a token.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct RevokeForm {
    csrf: String,
}

/// Data of the page.
#[derive(Debug, Serialize)]
struct TokensView<'a> {
    tokens: Vec<TokenLine<'a>>,
    /// Problem of the sent form; empty if there is none.
    problem: &'a str,
    /// Whether the page shows a new token.
    is_new: bool,
    form: FormValues<'a>,
    most_days: u32,
    most_name: usize,
}

/// Values of the form's fields.
#[derive(Debug, Serialize)]
struct FormValues<'a> {
    name: &'a str,
    scope: &'a str,
    days: &'a str,
}

/// Token of the viewer. Times are in milliseconds.
#[derive(Debug, Serialize)]
struct TokenLine<'a> {
    id: i64,
    name: &'a str,
    hint: &'a str,
    scope: ApiScope,
    created_at: i64,
    used_at: Option<i64>,
    expires_at: i64,
    /// `revoked` or `expired`; empty if the token is valid.
    ended: &'static str,
}

/// Returns the page.
async fn show(state: Arc<WebState>, viewer: Viewer, (): ()) -> Result<Response, PageError> {
    page(&state, &viewer, StatusCode::OK, &NewTokenForm::default(), "", String::new()).await
}

/// Creates a token and shows it once.
pub(super) async fn make(
    State(state): State<Arc<WebState>>,
    viewer: Viewer,
    Form(form): Form<NewTokenForm>,
) -> Response {
    let shown = match made(&state, &viewer, &form).await {
        Ok(token) => page(&state, &viewer, StatusCode::CREATED, &NewTokenForm::default(), "", token).await,
        Err(PageError::Invalid(problem)) => {
            page(&state, &viewer, StatusCode::UNPROCESSABLE_ENTITY, &form, &problem, String::new()).await
        }
        Err(error) => Err(error),
    };
    shown.unwrap_or_else(|error| error.page(&state, &viewer))
}

async fn made(state: &WebState, viewer: &Viewer, form: &NewTokenForm) -> Result<String, PageError> {
    require_token(viewer, &form.csrf)?;
    let scope = match form.scope.as_str() {
        "read" => ApiScope::Read,
        "write" => ApiScope::Write,
        _ => return Err(PageError::Invalid("Choose the scope of the token: read or write.".to_owned())),
    };
    let (days, now) = (form.days.trim().parse().unwrap_or_default(), state.engine.clock.now());
    let request = request_of((viewer.token_owner(), viewer.token.is_some()), &form.name, scope, days, now);
    let request = request.map_err(|error| PageError::Invalid(format!("The {error}; {}.", error.action())))?;
    let name = request.name.clone();
    match make_token(&state.engine.store, request, now).await? {
        Some((token, stored)) => {
            tracing::info!(who = %viewer, token = stored.id, ?name, "a person created a personal token in the dashboard");
            Ok(token)
        }
        None => Err(PageError::Invalid(format!(
            "You have {MAX_TOKENS} valid tokens, which is the maximum; revoke one that you do not use."
        ))),
    }
}

/// Revokes one of the viewer's tokens.
pub(super) async fn revoke(
    State(state): State<Arc<WebState>>,
    viewer: Viewer,
    Path(id): Path<i64>,
    Form(form): Form<RevokeForm>,
) -> Response {
    let revoked = async {
        require_token(&viewer, &form.csrf)?;
        let (of, now) = (viewer.token_owner(), state.engine.clock.now());
        if !state.engine.store.write(move |c| tokens::revoke(c, &of, id, now)).await? {
            return Err(PageError::NotFound);
        }
        tracing::info!(who = %viewer, token = id, "a person revoked a personal token in the dashboard");
        Ok((StatusCode::SEE_OTHER, [(LOCATION, "/tokens")]).into_response())
    };
    let revoked = revoked.await;
    revoked.unwrap_or_else(|error| error.page(&state, &viewer))
}

/// Returns the page with the entered values and their problem, or with a new token.
async fn page(
    state: &WebState,
    viewer: &Viewer,
    status: StatusCode,
    form: &NewTokenForm,
    problem: &str,
    token: String,
) -> Result<Response, PageError> {
    let of = viewer.token_owner();
    let mut found = state.engine.store.read(move |c| tokens::of_owner(c, &of)).await?;
    let now = state.engine.clock.now();
    // Valid tokens first; each group stays sorted newest first.
    found.sort_by_key(|token| !token.is_valid(now));
    let days = if form.days.is_empty() { DEFAULT_DAYS.to_string() } else { form.days.clone() };
    let view = TokensView {
        tokens: found.iter().take(TOKENS_SHOWN).map(|token| line(token, now)).collect(),
        problem,
        is_new: !token.is_empty(),
        form: FormValues { name: &form.name, scope: &form.scope, days: &days },
        most_days: MAX_DAYS,
        most_name: MAX_NAME,
    };
    let frame = PageFrame::still(PAGE.title);
    // Masking the view would hide the token, but this page must show it. It contains only letters and digits generated by
    // the service.
    let response = layout::page_in(state, viewer, &PAGE, &frame, &view, vec![("token", token)]);
    Ok(with_status(response, status))
}

fn line(token: &StoredToken, now: Timestamp) -> TokenLine<'_> {
    let ended = match token.revoked_at {
        Some(_) => "revoked",
        None if !token.is_valid(now) => "expired",
        None => "",
    };
    TokenLine {
        id: token.id,
        name: &token.name,
        hint: &token.hint,
        scope: token.scope,
        created_at: token.created_at.0,
        used_at: token.used_at.map(|at| at.0),
        expires_at: token.expires_at.0,
        ended,
    }
}
