//! Pages for people. All pages work without scripts; with scripts, events update their parts.

mod ansi;
mod answers;
mod audit_page;
mod backends_page;
mod charts;
mod costs_page;
mod data;
mod deliveries_page;
mod diff;
mod home;
mod iteration_page;
mod layout;
mod live;
mod loop_page;
mod memory_page;
mod page_def;
#[cfg(test)]
mod query_plans;
mod report_page;
mod repositories;
mod search_page;
#[cfg(test)]
mod tests;
mod tokens_page;

use std::sync::Arc;

use axum::{Router, middleware};

use self::page_def::PageDef;
use super::routes::{WebRoute, router_of};
use super::{WebState, assets, markup};

/// Rows of all pages, in the order of the navigation.
static PAGES: [&PageDef; 12] = [
    &home::PAGE,
    &loop_page::PAGE,
    &report_page::PAGE,
    &iteration_page::PAGE,
    &search_page::PAGE,
    &costs_page::PAGE,
    &memory_page::PAGE,
    &backends_page::PAGE,
    &repositories::PAGE,
    &deliveries_page::PAGE,
    &audit_page::PAGE,
    &tokens_page::PAGE,
];

/// Returns the routes of the pages, and of their forms, files and event streams.
pub(super) fn routes() -> Vec<WebRoute> {
    let mut routes: Vec<WebRoute> = PAGES.iter().map(|page| WebRoute::page(page.route, (page.show)(page))).collect();
    routes.extend([
        WebRoute::get("/events", live::all),
        WebRoute::get("/loops/{id}/events", live::of_loop),
        WebRoute::get("/loops/{id}/audit.json", loop_page::audit),
        WebRoute::post("/loops/{id}/commands", loop_page::command),
        WebRoute::get("/loops/{id}/iterations/{number}/{part}", iteration_page::text),
        WebRoute::get("/costs.csv", costs_page::csv),
        WebRoute::post("/tokens", tokens_page::make),
        WebRoute::post("/tokens/{token}/revoke", tokens_page::revoke),
        WebRoute::post("/memory/forget", memory_page::forget),
        WebRoute::post("/memory/reflections/{id}/{number}", memory_page::reflection),
        WebRoute::post("/memory/proposals/{number}", memory_page::answer),
        WebRoute::post("/backends/{name}/enable", backends_page::enable),
        WebRoute::post("/deliveries/{id}/retry", deliveries_page::retry),
        WebRoute::get("/assets/{hash}/{*name}", assets::file),
    ]);
    routes
}

/// Returns the router of the pages.
pub(super) fn router() -> Router<Arc<WebState>> {
    router_of(routes()).layer(middleware::map_response(markup::with_headers))
}
