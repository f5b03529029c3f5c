//! Forges and their availability.

use std::sync::Arc;

use axum::extract::State;
use axum::routing::get;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::extract::ApiViewer;
use super::ok;
use super::openapi::{ApiRoute, Operation};
use super::problem::ApiResult;
use crate::domain::model::ids::ForgeName;
use crate::web::WebState;

/// Forges of the service.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
struct ApiForges {
    /// Forges, by name.
    forges: Vec<ApiForge>,
}

/// A forge.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
struct ApiForge {
    /// Name in the configuration.
    name: String,
    /// `there`, `absent` if it does not respond, or `refused` if it rejects the bot's credential.
    state: String,
    /// Whether its deliveries wait, because the bot's account on the forge is not known yet.
    waits: bool,
    /// Forge's response, or the cause, for operators; empty if it is available.
    detail: String,
}

/// Returns the route of forges.
pub(super) fn routes() -> Vec<ApiRoute> {
    let operation = Operation::get(
        "/forges",
        "listForges",
        "Lists forges and their availability: all for operators, the caller's forge for other people",
    );
    vec![ApiRoute::new(operation.answers::<ApiForges>(), get(list))]
}

async fn list(State(state): State<Arc<WebState>>, ApiViewer { viewer, .. }: ApiViewer) -> ApiResult {
    let absences = state.engine.forges.absent_forges();
    let mut names: Vec<&ForgeName> = state.engine.forges.accounts.keys().filter(|name| viewer.hears_of(name)).collect();
    names.sort();
    let forges = names.into_iter().map(|name| {
        let absence = absences.iter().find(|absence| absence.forge == *name);
        let word = absence.map_or("there", |absence| if absence.refused { "refused" } else { "absent" });
        ApiForge {
            name: name.to_string(),
            state: word.to_owned(),
            waits: absence.is_some_and(|absence| absence.waits),
            detail: absence.filter(|_| viewer.operator).map(|absence| absence.detail.clone()).unwrap_or_default(),
        }
    });
    ok(&state, &ApiForges { forges: forges.collect() })
}
