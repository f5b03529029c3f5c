//! Page of personal API tokens: create, show once, list and revoke.

use std::sync::Arc;

use axum::extract::{Form, Path, State};
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::layout::{self, PageError, PageFrame, require_token};
use crate::domain::model::ids::Timestamp;
use crate::store::tokens::{self, ApiScope, MAX_TOKENS, StoredToken};
use crate::web::personal_token::{DEFAULT_DAYS, MAX_DAYS, MAX_NAME, make_token, request_of};
use crate::web::{Viewer, WebState};

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

/// Returns the page.
pub(super) async fn show(State(state): State<Arc<WebState>>, viewer: Viewer) -> Response {
    page(&state, &viewer, StatusCode::OK, &NewTokenForm::default(), "", String::new()).await
}

/// Creates a token and shows it once.
pub(super) async fn make(
    State(state): State<Arc<WebState>>,
    viewer: Viewer,
    Form(form): Form<NewTokenForm>,
) -> Response {
    match made(&state, &viewer, &form).await {
        Ok(token) => page(&state, &viewer, StatusCode::CREATED, &NewTokenForm::default(), "", token).await,
        Err(PageError::Invalid(problem)) => {
            page(&state, &viewer, StatusCode::UNPROCESSABLE_ENTITY, &form, &problem, String::new()).await
        }
        Err(error) => error.page(&state, &viewer),
    }
}

async fn made(state: &WebState, viewer: &Viewer, form: &NewTokenForm) -> Result<String, PageError> {
    require_token(viewer, &form.csrf)?;
    let scope = match form.scope.as_str() {
        "read" => ApiScope::Read,
        "write" => ApiScope::Write,
        _ => return Err(PageError::Invalid("Choose what the token permits: read or write.".to_owned())),
    };
    let (days, now) = (form.days.trim().parse().unwrap_or_default(), state.engine.clock.now());
    let request = request_of((viewer.token_owner(), viewer.token.is_some()), &form.name, scope, days, now);
    let request = request.map_err(|error| PageError::Invalid(format!("The {error}; {}.", error.action())))?;
    let name = request.name.clone();
    match make_token(&state.engine.store, request, now).await? {
        Some((token, stored)) => {
            tracing::info!(who = %viewer, token = stored.id, ?name, "a personal token was made in the dashboard");
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
        tracing::info!(who = %viewer, token = id, "a personal token was revoked in the dashboard");
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
) -> Response {
    let of = viewer.token_owner();
    let mut found = match state.engine.store.read(move |c| tokens::of_owner(c, &of)).await {
        Ok(found) => found,
        Err(error) => return PageError::Store(error).page(state, viewer),
    };
    let now = state.engine.clock.now();
    // Valid tokens first; each group stays sorted newest first.
    found.sort_by_key(|token| !token.is_valid(now));
    let days = if form.days.is_empty() { DEFAULT_DAYS.to_string() } else { form.days.clone() };
    let context = json!({
        "tokens": found.iter().take(TOKENS_SHOWN).map(|token| row(token, now)).collect::<Vec<_>>(),
        "problem": problem,
        "is_new": !token.is_empty(),
        "form": { "name": form.name, "scope": form.scope, "days": days },
        "most_days": MAX_DAYS,
        "most_name": MAX_NAME,
    });
    let frame = PageFrame::still("Tokens", "tokens");
    // Masking `context` would hide the token, but this page must show it. It contains only letters and digits generated by
    // the service.
    let mut response = layout::page(state, viewer, "tokens.html", &frame, context, vec![("token", token)]);
    if response.status() == StatusCode::OK {
        *response.status_mut() = status;
    }
    response
}

fn row(token: &StoredToken, now: Timestamp) -> Json {
    let ended = match token.revoked_at {
        Some(_) => "revoked",
        None if !token.is_valid(now) => "expired",
        None => "",
    };
    json!({
        "id": token.id,
        "name": token.name,
        "hint": token.hint,
        "scope": token.scope,
        "created_at": token.created_at.0,
        "used_at": token.used_at.map(|at| at.0),
        "expires_at": token.expires_at.0,
        "ended": ended,
    })
}
