//! Routes with method and path. They build the router and can be listed.

use std::sync::Arc;

use axum::Router;
use axum::handler::Handler;
use axum::routing::{self, MethodRouter};

use super::WebState;

/// Route of a page or of the login.
pub(super) struct WebRoute {
    /// Method; `GET` also answers `HEAD`.
    pub(super) method: &'static str,
    /// Path, with parameters in braces.
    pub(super) path: &'static str,
    handler: MethodRouter<Arc<WebState>>,
}

impl WebRoute {
    /// Creates a route that reads.
    pub(super) fn get<T: 'static>(path: &'static str, handler: impl Handler<T, Arc<WebState>>) -> Self {
        Self { method: "GET", path, handler: routing::get(handler) }
    }

    /// Creates the route of a page from the handler of its row.
    pub(super) fn page(path: &'static str, handler: MethodRouter<Arc<WebState>>) -> Self {
        Self { method: "GET", path, handler }
    }

    /// Creates a route that makes a change.
    pub(super) fn post<T: 'static>(path: &'static str, handler: impl Handler<T, Arc<WebState>>) -> Self {
        Self { method: "POST", path, handler: routing::post(handler) }
    }
}

/// Returns a router for the routes. Combines methods with the same path.
pub(super) fn router_of(routes: Vec<WebRoute>) -> Router<Arc<WebState>> {
    routes.into_iter().fold(Router::new(), |router, route| router.route(route.path, route.handler))
}
