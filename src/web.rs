//! Dashboard and API: pages for people at `/`, JSON for programs at `/api/v1`.
//!
//! `access` says who asks and what they may see; `pages` and `api` show the same data to both. A change is the same input of a
//! loop as the comment on the issue would be.

mod access;
pub mod api;
mod live;
mod pages;
mod personal_token;

use std::sync::Arc;

use axum::{Router, middleware};

use crate::engine::Engine;

pub use access::{AccessSettings, NotLoggedIn, SessionKey, Viewer, WebAccess};
pub use live::LiveFeed;
pub use pages::{asset_routes, stand_alone_page};

/// State shared by the handlers.
pub struct WebState {
    /// Engine, for the database, the forges and the commands.
    pub engine: Arc<Engine>,
    /// Sessions and rights.
    pub access: WebAccess,
    /// Live feed of loops.
    pub live: LiveFeed,
}

/// Returns the routes of the dashboard and the API.
pub fn router(state: Arc<WebState>) -> Router {
    let routes = Router::new().merge(pages::routes()).merge(api::routes()).merge(access::routes());
    routes.route_layer(middleware::from_fn_with_state(state.clone(), access::guard)).with_state(state)
}
