//! Pages for people. All pages work without scripts; with scripts, events update their parts.

mod ansi;
mod answers;
mod charts;
mod costs_page;
mod data;
mod diff;
mod home;
mod iteration_page;
mod layout;
mod live;
mod loop_page;
mod memory_page;
mod operator;
#[cfg(test)]
mod query_plans;
mod repositories;
mod search_page;
mod tokens_page;

use std::sync::Arc;

use axum::{Router, middleware};

use super::routes::{WebRoute, router_of};
use super::{WebState, assets, markup};

/// Returns the routes of the pages.
pub(super) fn routes() -> Vec<WebRoute> {
    vec![
        WebRoute::get("/", home::show),
        WebRoute::get("/loops/{id}", loop_page::show),
        WebRoute::get("/events", live::all),
        WebRoute::get("/loops/{id}/events", live::of_loop),
        WebRoute::get("/loops/{id}/audit.json", loop_page::audit),
        WebRoute::post("/loops/{id}/commands", loop_page::command),
        WebRoute::get("/loops/{id}/iterations/{number}", iteration_page::show),
        WebRoute::get("/loops/{id}/iterations/{number}/{part}", iteration_page::text),
        WebRoute::get("/search", search_page::show),
        WebRoute::get("/costs", costs_page::show),
        WebRoute::get("/costs.csv", costs_page::csv),
        WebRoute::get("/tokens", tokens_page::show),
        WebRoute::post("/tokens", tokens_page::make),
        WebRoute::post("/tokens/{token}/revoke", tokens_page::revoke),
        WebRoute::get("/memory", memory_page::show),
        WebRoute::post("/memory/forget", memory_page::forget),
        WebRoute::post("/memory/proposals/{number}", memory_page::answer),
        WebRoute::get("/backends", operator::backends),
        WebRoute::post("/backends/{name}/enable", operator::enable),
        WebRoute::get("/repositories", repositories::repositories),
        WebRoute::get("/deliveries", operator::deliveries),
        WebRoute::post("/deliveries/{id}/retry", operator::retry),
        WebRoute::get("/audit", operator::audit),
        WebRoute::get("/assets/{hash}/{*name}", assets::file),
    ]
}

/// Returns the router of the pages.
pub(super) fn router() -> Router<Arc<WebState>> {
    router_of(routes()).layer(middleware::map_response(markup::with_headers))
}
