//! Routes for deliveries while the setup server listens. They belong to the current test or trial.

use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;

/// Shared slot for the routes that currently receive deliveries.
#[derive(Clone, Default)]
pub struct DeliveryRoutes(Arc<Mutex<Option<Router>>>);

impl DeliveryRoutes {
    /// Sets the routes. With `None`, deliveries are refused; forges repeat them, or the service finds their events
    /// later by polling.
    pub fn set(&self, routes: Option<Router>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = routes;
    }

    /// Returns a router that forwards deliveries to the current routes.
    pub fn router(&self) -> Router {
        // A route with a parameter would add it to the parameters of the inner routes.
        Router::new().fallback(forward).with_state(self.clone())
    }
}

async fn forward(State(routes): State<DeliveryRoutes>, request: Request) -> Response {
    if !request.uri().path().starts_with("/webhooks/") {
        return StatusCode::NOT_FOUND.into_response();
    }
    let current = routes.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
    match current {
        Some(router) => match TowerToHyperService::new(router).call(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        },
        None => {
            let why = "the set-up is not finished; deliveries are not accepted yet\n";
            (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "60")], why).into_response()
        }
    }
}
