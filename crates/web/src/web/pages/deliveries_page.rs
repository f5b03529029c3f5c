//! Page of deliveries for operators.

use std::sync::Arc;

use axum::extract::{Form, Path, Query, State};
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};

use super::data::{self, DeliveryRow};
use super::layout::{
    self, PageDef, PageError, PageNav, PageRights, opened, page_template, require_operator, require_token, segment,
};
use crate::store::inbox;
use crate::web::{Viewer, WebState};

/// Row of the page.
pub(super) static PAGE: PageDef = PageDef {
    route: "/deliveries",
    template: page_template!("deliveries.html"),
    title: "Deliveries",
    nav: PageNav::Entry("Deliveries"),
    rights: PageRights::Operator,
    show: |page| opened(page, show),
};

/// Number of deliveries on a page.
const DELIVERIES_SHOWN: usize = 40;
/// States of deliveries.
const STATES: [&str; 5] = ["new", "done", "ignored", "refused", "dead"];

/// Query of the page.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct DeliveriesQuery {
    state: String,
    forge: String,
    /// Position before which rows are shown; `None` for the newest rows.
    before: Option<i64>,
}

/// Form with only the CSRF token.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct CsrfForm {
    csrf: String,
}

/// Data of the page.
#[derive(Debug, Serialize)]
struct DeliveriesView {
    rows: Vec<DeliveryRow>,
    counts: Vec<(String, u64)>,
    states: [&'static str; STATES.len()],
    forges: Vec<String>,
    /// Selected state; empty for all.
    state: &'static str,
    /// Selected forge; empty for all.
    forge: String,
    /// Address of the page with older rows; empty if there are none.
    older: String,
    /// Address of the page with the newest rows; empty on that page.
    newer: String,
}

/// Returns the page.
async fn show(
    state: Arc<WebState>,
    viewer: Viewer,
    Query(query): Query<DeliveriesQuery>,
) -> Result<Response, PageError> {
    let wanted = STATES.into_iter().find(|known| *known == query.state);
    let mut names: Vec<String> = state.engine.forges.accounts.keys().map(ToString::to_string).collect();
    names.sort();
    let forge = names.iter().find(|name| **name == query.forge).cloned();
    let before = query.before;
    let of = forge.clone();
    let read = state.engine.store.read(move |c| {
        Ok((data::deliveries(c, (wanted, of.as_deref()), before, DELIVERIES_SHOWN + 1)?, inbox::counts(c)?))
    });
    let (mut rows, counts) = read.await?;
    let more = rows.len() > DELIVERIES_SHOWN;
    rows.truncate(DELIVERIES_SHOWN);
    let forge = forge.unwrap_or_default();
    let newest = format!("/deliveries?state={}&forge={}", wanted.unwrap_or_default(), segment(&forge));
    let older = rows.last().filter(|_| more).map(|row| format!("{newest}&before={}", row.id));
    let view = DeliveriesView {
        rows,
        counts,
        states: STATES,
        forges: names,
        state: wanted.unwrap_or_default(),
        forge,
        older: older.unwrap_or_default(),
        newer: before.map(|_| newest).unwrap_or_default(),
    };
    Ok(layout::page(&state, &viewer, &PAGE, &view))
}

/// Processes a waiting or abandoned delivery again.
pub(super) async fn retry(
    State(state): State<Arc<WebState>>,
    viewer: Viewer,
    Path(id): Path<i64>,
    Form(form): Form<CsrfForm>,
) -> Response {
    let retried = async {
        require_token(&viewer, &form.csrf)?;
        require_operator(&viewer)?;
        if !state.engine.store.write(move |c| inbox::try_again(c, id)).await? {
            return Err(PageError::Invalid(
                "This delivery was already processed, or its content was deleted.".to_owned(),
            ));
        }
        tracing::info!(delivery = id, by = %viewer, "a person requested in the dashboard to process a delivery again");
        state.engine.context.wake.intake.notify_one();
        Ok((StatusCode::SEE_OTHER, [(LOCATION, "/deliveries")]).into_response())
    };
    let retried: Result<Response, PageError> = retried.await;
    retried
        .unwrap_or_else(|error| error.page_with(&state, &viewer, &[("/deliveries", "Deliveries"), ("/", "All loops")]))
}
