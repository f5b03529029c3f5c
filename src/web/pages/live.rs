//! Streams of events for pages, which say that a loop changed; the page then asks for its parts again.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};

use super::layout::PageError;
use crate::domain::model::ids::LoopId;
use crate::domain::trust::viewer::ViewRight;
use crate::store::listing;
use crate::web::live::{self, ListenError, LiveItem};
use crate::web::{Viewer, WebState};

/// Header in which a listener says what it has.
const LAST_EVENT_ID: &str = "last-event-id";

/// Streams the changes of all loops that the viewer may see.
pub(super) async fn all(State(state): State<Arc<WebState>>, viewer: Viewer, headers: HeaderMap) -> Response {
    stream(state, viewer, None, &headers).await
}

/// Streams the changes of one loop.
pub(super) async fn of_loop(
    State(state): State<Arc<WebState>>,
    viewer: Viewer,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Response {
    let id = LoopId::new(id);
    let wanted = id.clone();
    let repo = match state.engine.store.read(move |c| listing::row(c, &wanted)).await {
        Ok(Some(row)) => row.repo,
        Ok(None) => return PageError::NotFound.page(&state, &viewer),
        Err(error) => return PageError::Store(error).page(&state, &viewer),
    };
    if state.access.right(&state.engine, &viewer, &repo, false).await < ViewRight::Read {
        return PageError::NotFound.page(&state, &viewer);
    }
    stream(state, viewer, Some(id), &headers).await
}

async fn stream(state: Arc<WebState>, viewer: Viewer, of: Option<LoopId>, headers: &HeaderMap) -> Response {
    let after = headers.get(LAST_EVENT_ID).and_then(|value| value.to_str().ok()).map(str::trim);
    let refusal = match state.live.listen(&state, viewer.clone(), of, after).await {
        Ok(listener) => return live::stream(listener, changed),
        Err(error) => error,
    };
    let status = match refusal {
        ListenError::Store(error) => return PageError::Store(error).page(&state, &viewer),
        ListenError::Full => StatusCode::SERVICE_UNAVAILABLE,
        ListenError::BadPosition => StatusCode::BAD_REQUEST,
    };
    (status, format!("{refusal}\n")).into_response()
}

fn changed(item: &LiveItem) -> Option<(&'static str, String)> {
    Some(match item {
        LiveItem::Event { event, .. } => ("changed", event.loop_id.to_string()),
        LiveItem::Reset { .. } => ("changed", String::new()),
    })
}
