//! Pages for people. Each is readable without scripts; with them, its parts are updated as events arrive.

mod ansi;
mod answers;
mod assets;
mod charts;
mod data;
mod diff;
mod home;
mod iteration_page;
mod layout;
mod live;
mod loop_page;
mod memory_page;
mod operator;
mod transcript;

use std::sync::Arc;

use axum::routing::{get, post};
use axum::{Router, middleware};

use super::WebState;

pub use assets::routes as asset_routes;
pub use layout::stand_alone_page;

/// Returns the routes of the pages.
pub(super) fn routes() -> Router<Arc<WebState>> {
    Router::new()
        .route("/", get(home::show))
        .route("/loops/{id}", get(loop_page::show))
        .route("/events", get(live::all))
        .route("/loops/{id}/events", get(live::of_loop))
        .route("/loops/{id}/audit.json", get(loop_page::audit))
        .route("/loops/{id}/commands", post(loop_page::command))
        .route("/loops/{id}/iterations/{number}", get(iteration_page::show))
        .route("/loops/{id}/iterations/{number}/{part}", get(iteration_page::text))
        .route("/memory", get(memory_page::show))
        .route("/memory/forget", post(memory_page::forget))
        .route("/memory/proposals/{number}", post(memory_page::answer))
        .route("/backends", get(operator::backends))
        .route("/repositories", get(operator::repositories))
        .route("/deliveries", get(operator::deliveries))
        .route("/deliveries/{id}/retry", post(operator::retry))
        .merge(assets::routes())
        .layer(middleware::map_response(layout::with_headers))
}
