//! JSON for programs, at `/api/v1`.

use std::sync::Arc;

use axum::Router;

use super::WebState;

/// Returns the routes of the API.
pub(super) fn routes() -> Router<Arc<WebState>> {
    Router::new()
}
