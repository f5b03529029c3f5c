//! Pages for people.

use std::sync::Arc;

use axum::Router;

use super::WebState;

/// Returns the routes of the pages.
pub(super) fn routes() -> Router<Arc<WebState>> {
    Router::new()
}
