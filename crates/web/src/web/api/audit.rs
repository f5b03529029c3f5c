//! Audit log of changes, for operators.

use std::sync::Arc;

use axum::extract::State;
use axum::routing::get;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::extract::{ApiQuery, ApiViewer};
use super::ok;
use super::openapi::{ApiRoute, Operation};
use super::problem::{ApiProblem, ApiResult};
use super::types::time;
use super::visibility::needs_operator;
use crate::domain::model::ids::Timestamp;
use crate::store::access_audit::{self, AccessRow};
use crate::web::WebState;

/// Default and maximum number of changes per response.
const DEFAULT_LIMIT: usize = 100;
const MAX_LIMIT: usize = 500;

/// Query of the audit log.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct ChangesQuery {
    /// `next` of the previous response.
    cursor: Option<i64>,
    /// Number of changes, 1 to 500; 100 by default.
    limit: Option<usize>,
}

/// Changes, newest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
struct ApiChanges {
    /// Logins and changes.
    changes: Vec<ApiChange>,
    /// `cursor` for the next request; null at the end.
    next: Option<i64>,
}

/// Login or change requested through the dashboard or the API.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
struct ApiChange {
    /// Position; later entries have greater positions.
    id: i64,
    /// Time of the request.
    at: String,
    /// Name of the account's forge; null for the operator of the machine.
    forge: Option<String>,
    /// Numeric id of the account.
    account_id: Option<i64>,
    /// Login of the account at the time of the request.
    login: String,
    /// Client's IP address.
    address: String,
    /// `login`, `session`, `printed token` or `personal token`.
    via: String,
    /// Name of the personal token.
    token: Option<String>,
    /// HTTP method.
    method: String,
    /// Path without its query.
    path: String,
    /// Status of the response; null while the request runs, or if it was interrupted.
    status: Option<u16>,
}

impl From<AccessRow> for ApiChange {
    fn from(row: AccessRow) -> Self {
        let at = time(Timestamp(row.at));
        let AccessRow { id, forge, account_id, login, address, via, token, method, path, status, .. } = row;
        Self { id, at, forge, account_id, login, address, via, token, method, path, status }
    }
}

/// Returns the route of the audit log.
pub(super) fn routes() -> Vec<ApiRoute> {
    let operation = Operation::get(
        "/audit",
        "listChanges",
        "Lists logins and changes with their account, address and result, for operators",
    );
    vec![ApiRoute::new(operation.query::<ChangesQuery>().answers::<ApiChanges>(), get(list))]
}

async fn list(
    State(state): State<Arc<WebState>>,
    ApiViewer { viewer, .. }: ApiViewer,
    ApiQuery(query): ApiQuery<ChangesQuery>,
) -> ApiResult {
    needs_operator(&viewer)?;
    let limit = query.limit.unwrap_or(DEFAULT_LIMIT);
    if !(1..=MAX_LIMIT).contains(&limit) {
        return Err(ApiProblem::invalid("limit is out of range", format!("send a number from 1 to {MAX_LIMIT}")));
    }
    let before = query.cursor;
    let mut rows = state.engine.store.read(move |c| access_audit::newest(c, before, limit + 1)).await?;
    let more = rows.len() > limit;
    rows.truncate(limit);
    let next = rows.last().filter(|_| more).map(|row| row.id);
    ok(&state, &ApiChanges { changes: rows.into_iter().map(ApiChange::from).collect(), next })
}
