//! Dashboard and API: pages for people at `/`, JSON for programs at `/api/v1`.
//!
//! `access` says who asks and what they may see; `pages` and `api` show the same data to both. A change is the same input of a
//! loop as the comment on the issue would be.

mod access;
pub mod api;
mod live;
mod pages;

use std::sync::Arc;

use axum::Router;

use crate::engine::Engine;

pub use access::{Access, Viewer};
pub use live::LiveFeed;

/// State shared by the handlers.
pub struct WebState {
    /// Engine, for the database, the forges and the commands.
    pub engine: Arc<Engine>,
    /// Sessions and rights.
    pub access: Access,
    /// Live feed of loops.
    pub live: LiveFeed,
}

/// Returns the routes of the dashboard and the API.
pub fn router(state: Arc<WebState>) -> Router {
    Router::new().merge(pages::routes()).merge(api::routes()).merge(access::routes()).with_state(state)
}
