//! JSON API for programs, at `/api/v1`.
//!
//! Each route is an entry in a file's `routes`, with its types. The router and the OpenAPI description are built from the
//! same entries. All responses pass through the outbound filter, which masks secrets. A repository without read access for
//! the viewer is reported as nonexistent.

mod audit;
mod backends;
mod commands;
mod costs;
mod extract;
mod figures;
mod forges;
mod loops;
mod memory;
mod openapi;
pub mod problem;
mod search;
mod tokens;
pub mod types;
mod visibility;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::OriginalUri;
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tower_http::timeout::TimeoutLayer;

use super::WebState;
use super::markup::beside_tasks;
use openapi::ApiRoute;
use problem::{ApiProblem, ApiResult};

/// Path of the API.
pub const ROOT: &str = "/api/v1";
/// Header with the version of the service.
pub const VERSION_HEADER: HeaderName = HeaderName::from_static("ralph-bot-version");
/// Time limit of a request other than a stream.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Returns all routes.
fn table() -> Vec<ApiRoute> {
    let files = [
        loops::routes(),
        commands::routes(),
        search::routes(),
        costs::routes(),
        backends::routes(),
        forges::routes(),
        audit::routes(),
        memory::routes(),
        tokens::routes(),
        openapi::routes(),
    ];
    files.into_iter().flatten().collect()
}

/// Returns the method and path of each route.
pub(super) fn listed() -> Vec<(String, String)> {
    let of = |route: ApiRoute| (route.operation.method.to_uppercase(), format!("{ROOT}{}", route.operation.path));
    table().into_iter().map(of).collect()
}

/// Returns the routes of the API.
pub(super) fn routes() -> Router<Arc<WebState>> {
    let mut api = Router::new();
    for ApiRoute { operation, handler } in table() {
        let handler = if operation.streams {
            handler
        } else {
            handler.layer(TimeoutLayer::with_status_code(StatusCode::REQUEST_TIMEOUT, REQUEST_TIMEOUT))
        };
        api = api.route(operation.path, handler);
    }
    let api = api
        .fallback(|uri: OriginalUri| async move { ApiProblem::no_route(uri.0.path()) })
        .method_not_allowed_fallback(|method: Method, uri: OriginalUri| async move {
            ApiProblem::wrong_method(&method, uri.0.path())
        })
        .layer(axum::middleware::map_response(finished));
    Router::new().nest(ROOT, api)
}

/// Adds the headers common to all responses.
async fn finished(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(VERSION_HEADER, HeaderValue::from_static(env!("CARGO_PKG_VERSION")));
    response
}

/// Returns a JSON response with secrets masked.
fn answer(state: &WebState, status: StatusCode, body: &impl Serialize) -> ApiResult {
    let text = beside_tasks(|| {
        let value = serde_json::to_value(body)?;
        Ok::<_, serde_json::Error>(state.engine.outbound.json(value).into_value().to_string())
    });
    let text = text.map_err(|error| ApiProblem::internal(&error))?;
    let kind = HeaderValue::from_static("application/json");
    Ok((status, [(header::CONTENT_TYPE, kind)], text).into_response())
}

/// Returns a JSON response with status 200.
fn ok(state: &WebState, body: &impl Serialize) -> ApiResult {
    answer(state, StatusCode::OK, body)
}

#[cfg(test)]
mod tests;
