//! Routes for deliveries while the set-up listens: those of the test or of the trial that waits for one.

use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;

/// Place for the routes that take deliveries at the moment.
#[derive(Clone, Default)]
pub struct DeliveryRoutes(Arc<Mutex<Option<Router>>>);

impl DeliveryRoutes {
    /// Sets the routes; `None` refuses deliveries, which forges repeat or the service finds by its look at the forge.
    pub fn set(&self, routes: Option<Router>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = routes;
    }

    /// Returns the routes that forward deliveries.
    pub fn router(&self) -> Router {
        // A route with a parameter would add it to those of the inner routes.
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
            let why = "the set-up is not finished; nothing takes deliveries yet\n";
            (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "60")], why).into_response()
        }
    }
}
