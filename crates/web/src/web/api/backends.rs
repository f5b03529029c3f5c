//! Backends, and the viewer of the request.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::routing::{get, post};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::extract::{ApiBody, ApiViewer};
use super::ok;
use super::openapi::{ApiRoute, Operation};
use super::problem::{ApiProblem, ApiResult};
use super::tokens::ApiTokenInfo;
use super::types::{ApiNothing, time};
use super::visibility::needs_operator;
use crate::domain::model::ids::Timestamp;
use crate::domain::providers::backends::{self, BackendObservation, BackendState, BackendStatus};
use crate::store::calls;
use crate::web::WebState;

const DAY_MS: i64 = 86_400_000;

/// Backends of the service.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
struct ApiBackends {
    /// Backends, by name.
    backends: Vec<ApiBackend>,
}

/// A backend.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
struct ApiBackend {
    /// Name in the configuration.
    name: String,
    /// Roles: `agent` or `assistant`.
    roles: Vec<String>,
    /// `active`, `parked` or `disabled`.
    state: String,
    /// Reason for the state; empty if active.
    reason: String,
    /// End of a cooldown.
    parked_until: Option<String>,
    /// Number of calls in flight.
    in_flight: usize,
    /// Number of finished calls.
    calls: u64,
    /// Number of calls that failed or reached a limit.
    failed: u64,
    /// Tokens of all calls.
    tokens: u64,
    /// Cost of all calls, in US dollars.
    cost_usd: f64,
    /// Cost of the last 24 hours, in US dollars.
    cost_usd_last_day: f64,
    /// Newest error since the last successful call.
    last_error: Option<String>,
}

/// Re-enabled backend.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
struct ApiEnabledBackend {
    /// Whether it was parked or disabled before the request.
    changed: bool,
    /// Current state.
    backend: ApiBackend,
}

/// Viewer of a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
struct ApiMe {
    /// Account; null for the operator of the machine.
    account: Option<ApiAccount>,
    /// Whether the viewer can see all repositories.
    operator: bool,
    /// Personal token of the request; null for a session.
    token: Option<ApiTokenInfo>,
    /// Version of the service.
    version: String,
}

/// Account on a forge.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
struct ApiAccount {
    /// Name of the forge.
    forge: String,
    /// Numeric id.
    id: i64,
    /// Login of the account.
    login: String,
}

/// Returns the routes of backends and the viewer.
pub(super) fn routes() -> Vec<ApiRoute> {
    let list =
        Operation::get("/backends", "listBackends", "Lists backends with their state, calls and cost, for operators");
    let enable = Operation::post(
        "/backends/{name}/enable",
        "enableBackend",
        "Enables a backend that cools down or is disabled, for operators",
    );
    let me = Operation::get("/me", "getMe", "Returns the caller's account and the version of the service");
    vec![
        ApiRoute::new(list.answers::<ApiBackends>(), get(self::list)),
        ApiRoute::new(enable.body::<ApiNothing>().answers::<ApiEnabledBackend>(), post(self::enable)),
        ApiRoute::new(me.answers::<ApiMe>(), get(self::me)),
    ]
}

async fn me(State(state): State<Arc<WebState>>, ApiViewer { viewer }: ApiViewer) -> ApiResult {
    let account =
        viewer.account.map(|(forge, user)| ApiAccount { forge: forge.to_string(), id: user.id.0, login: user.login });
    let token = viewer.token.map(|token| ApiTokenInfo::from(&token.stored));
    ok(&state, &ApiMe { account, operator: viewer.operator, token, version: env!("CARGO_PKG_VERSION").into() })
}

async fn list(State(state): State<Arc<WebState>>, ApiViewer { viewer, .. }: ApiViewer) -> ApiResult {
    needs_operator(&viewer)?;
    ok(&state, &ApiBackends { backends: known(&state).await? })
}

async fn enable(
    State(state): State<Arc<WebState>>,
    ApiViewer { viewer, .. }: ApiViewer,
    Path(name): Path<String>,
    ApiBody(ApiNothing {}): ApiBody<ApiNothing>,
) -> ApiResult {
    needs_operator(&viewer)?;
    let unknown = || {
        let mut problem = ApiProblem::unknown("backend", &name);
        problem.action = "see `GET /backends` for the names of the configured backends".into();
        problem
    };
    let changed = state.engine.calls.enable_backend(&name).await?.ok_or_else(unknown)?;
    tracing::info!(backend = ?name, changed, by = %viewer, "the API enabled a backend again");
    let backend = known(&state).await?.into_iter().find(|known| known.name == name).ok_or_else(unknown)?;
    ok(&state, &ApiEnabledBackend { changed, backend })
}

/// Returns the configured backends by name, with their states.
async fn known(state: &WebState) -> Result<Vec<ApiBackend>, ApiProblem> {
    let known = state.engine.store.read(calls::state).await?;
    let (settings, now) = (&state.engine.calls.settings.backends, state.engine.clock.now());
    // Not stored; only marks expired cooldowns as over.
    let known = backends::transition(known, &BackendObservation::Elapsed, settings, now).state;
    let unused = BackendState::default();
    let described = settings.backends.iter().map(|(name, of)| {
        let roles = of.roles.iter().map(|role| role.word().to_owned()).collect();
        described(name, roles, known.backends.get(name).unwrap_or(&unused), now)
    });
    Ok(described.collect())
}

fn described(name: &str, roles: Vec<String>, state: &BackendState, now: Timestamp) -> ApiBackend {
    let with = |kind: &dyn std::fmt::Display, reason: &str| match reason {
        "" => kind.to_string(),
        reason => format!("{kind}: {reason}"),
    };
    let (reason, until) = match &state.status {
        BackendStatus::Active { .. } => (String::new(), None),
        BackendStatus::Parked(park) => (with(&park.kind, &park.reason), Some(time(park.until))),
        BackendStatus::Disabled { kind, reason, .. } => (with(kind, reason), None),
    };
    ApiBackend {
        name: name.to_owned(),
        roles,
        state: state.status.word(now).to_owned(),
        reason,
        parked_until: until,
        in_flight: state.in_flight.len(),
        calls: state.succeeded.saturating_add(state.failed),
        failed: state.failed,
        tokens: state.tokens,
        cost_usd: state.cost.usd(),
        cost_usd_last_day: state.ledger.cost(DAY_MS, now).usd(),
        last_error: state.last_error.as_ref().map(|error| error.text.clone()),
    }
}
