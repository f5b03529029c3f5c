//! Dashboard and API: pages for people at `/`, JSON for programs at `/api/v1`.
//!
//! `access` determines the viewer of a request and their rights. `pages` and `api` show the same data. A change through
//! either becomes the same input of a loop as the corresponding comment on the issue.

mod access;
pub mod api;
mod assets;
mod live;
mod markup;
mod pages;
mod personal_token;
mod routes;
mod visible;

use std::sync::Arc;

use axum::{Router, middleware};

use crate::engine::Engine;

pub use access::{AccessSettings, ChangeRight, NotLoggedIn, SessionKey, Viewer, WebAccess};
pub use assets::routes as asset_routes;
pub use live::LiveFeed;
pub use markup::stand_alone_page;
pub use personal_token::{TokenViewer, viewer_of_token};

/// State shared by the handlers.
pub struct WebState {
    /// Engine, which gives access to the database, the forges and the commands.
    pub engine: Arc<Engine>,
    /// Sessions and rights.
    pub access: WebAccess,
    /// Live feed of loops.
    pub live: LiveFeed,
}

/// Returns the routes of the dashboard and the API.
pub fn router(state: Arc<WebState>) -> Router {
    let routes = Router::new().merge(pages::router()).merge(api::routes()).merge(access::router());
    let routes = routes.route_layer(middleware::from_fn_with_state(state.clone(), access::guard));
    routes.fallback(markup::no_page).with_state(state)
}

/// Returns the method and path of each route, with parameters in braces.
pub fn routes() -> Vec<(String, String)> {
    let own = pages::routes().into_iter().chain(access::routes());
    let own = own.map(|route| (route.method.to_owned(), route.path.to_owned()));
    own.chain(api::listed()).collect()
}
