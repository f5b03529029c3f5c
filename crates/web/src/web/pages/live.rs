//! Event streams for pages. An event only reports that a loop changed; the page then reloads its parts.

use std::sync::Arc;

use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;

use super::layout::PageError;
use crate::domain::model::ids::LoopId;
use crate::domain::trust::viewer::ViewRight;
use crate::store::feed::{self, FeedKind, FeedPosition};
use crate::store::listing;
use crate::web::live::{self, ListenError, LiveItem};
use crate::web::{Viewer, WebState};

/// Header for the id of the client's last received event.
const LAST_EVENT_ID: &str = "last-event-id";

/// Query of a stream.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct FeedQuery {
    /// Position shown by the page, for a client that has not received an event yet.
    after: Option<String>,
    /// Iteration shown by the page, whose agent's actions are streamed; without it, only steps of loops are streamed.
    iteration: Option<u32>,
}

/// Returns the newest position in the feed. A page reads it before its other data, so its stream misses no event.
pub(super) async fn position(state: &WebState) -> Result<FeedPosition, PageError> {
    Ok(state.engine.store.read(feed::newest).await?)
}

/// Returns the address of the stream below a path (`""` for all loops), starting at the page's position.
pub(super) fn address(path: &str, shown: FeedPosition) -> String {
    format!("{path}/events?after={shown}")
}

/// Streams the changes of all loops visible to the viewer.
pub(super) async fn all(
    State(state): State<Arc<WebState>>,
    viewer: Viewer,
    Query(query): Query<FeedQuery>,
    headers: HeaderMap,
) -> Response {
    stream(state, viewer, None, (&query, &headers)).await
}

/// Streams the changes of one loop.
pub(super) async fn of_loop(
    State(state): State<Arc<WebState>>,
    viewer: Viewer,
    Path(id): Path<String>,
    Query(query): Query<FeedQuery>,
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
    stream(state, viewer, Some(id), (&query, &headers)).await
}

async fn stream(
    state: Arc<WebState>,
    viewer: Viewer,
    of: Option<LoopId>,
    (query, headers): (&FeedQuery, &HeaderMap),
) -> Response {
    let last = headers.get(LAST_EVENT_ID).and_then(|value| value.to_str().ok()).map(str::trim);
    let (after, iteration) = (last.or(query.after.as_deref()), query.iteration);
    let refusal = match state.live.listen(&state, viewer.clone(), of, after).await {
        Ok(listener) => return live::stream(listener, move |item| changed(item, iteration)),
        Err(error) => error,
    };
    let status = match refusal {
        ListenError::Store(error) => return PageError::Store(error).page(&state, &viewer),
        ListenError::Full => StatusCode::SERVICE_UNAVAILABLE,
        ListenError::BadPosition => StatusCode::BAD_REQUEST,
    };
    (status, format!("{refusal}\n")).into_response()
}

/// Returns the stream event of an item that changes a page: a step, or an agent's action in the `shown` iteration. `None`
/// for other items.
fn changed(item: &LiveItem, shown: Option<u32>) -> Option<(&'static str, String)> {
    let LiveItem::Event { event, .. } = item else { return Some(("changed", String::new())) };
    let is_shown = match &event.what {
        FeedKind::Step { .. } => true,
        FeedKind::Activity(activity) => Some(activity.iteration) == shown,
        FeedKind::Output { iteration, .. } => Some(*iteration) == shown,
    };
    is_shown.then(|| ("changed", event.loop_id.to_string()))
}
