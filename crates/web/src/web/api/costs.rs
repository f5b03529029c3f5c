//! Daily costs.

use std::sync::Arc;

use axum::extract::State;
use axum::routing::get;
use schemars::JsonSchema;
use serde::Deserialize;

use super::extract::{ApiQuery, ApiViewer};
use super::ok;
use super::openapi::{ApiRoute, Operation};
use super::problem::{ApiProblem, ApiResult};
use super::types::{ApiCosts, ApiDailyCost};
use crate::domain::model::ids::Money;
use crate::domain::providers::money::{date_of, day_of, day_of_date};
use crate::store::costs::{CostGroup, daily};
use crate::web::WebState;
use crate::web::visible::visible;

/// Number of days if `from` is missing.
const DEFAULT_DAYS: i64 = 30;
/// Maximum number of days.
const MAX_DAYS: i64 = 400;

/// Query of costs.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct CostsQuery {
    /// First day, such as 2026-11-01; 30 days by default.
    from: Option<String>,
    /// Last day; today (UTC) by default.
    to: Option<String>,
    /// Grouping of the sums.
    by: CostGroup,
}

/// Returns the routes of costs.
pub(super) fn routes() -> Vec<ApiRoute> {
    let operation = Operation::get(
        "/costs",
        "getCosts",
        "Sums costs over days by repository, backend or person, in the repositories that the viewer may read",
    );
    vec![ApiRoute::new(operation.query::<CostsQuery>().answers::<ApiCosts>(), get(costs))]
}

async fn costs(
    State(state): State<Arc<WebState>>,
    ApiViewer { viewer, .. }: ApiViewer,
    ApiQuery(query): ApiQuery<CostsQuery>,
) -> ApiResult {
    let to = query.to.as_deref().map(day).transpose()?.unwrap_or_else(|| day_of(state.engine.clock.now()));
    let from = query.from.as_deref().map(day).transpose()?.unwrap_or(to - DEFAULT_DAYS + 1);
    if from > to || to - from >= MAX_DAYS {
        return Err(ApiProblem::invalid(
            format!("the days from {} to {} are not 1 to {MAX_DAYS} days", date_of(from), date_of(to)),
            format!("send a first day that is not after the last, and at most {MAX_DAYS} days"),
        ));
    }
    let by = query.by;
    let scope = visible(&state, &viewer).await?.read;
    let days = state.engine.store.read(move |c| daily(c, &scope, by, from, to)).await?;
    let total = days.iter().fold(Money(0), |sum, day| sum.plus(day.cost));
    let days = days.into_iter().map(|day| ApiDailyCost {
        day: date_of(day.day),
        of: day.of,
        calls: day.calls,
        cost_usd: day.cost.usd(),
        tokens_in: day.tokens_in,
        tokens_out: day.tokens_out,
    });
    ok(&state, &ApiCosts { from: date_of(from), to: date_of(to), total_usd: total.usd(), days: days.collect() })
}

/// Parses a date.
fn day(text: &str) -> Result<i64, ApiProblem> {
    day_of_date(text).ok_or_else(|| ApiProblem::invalid("a day is invalid", "send days such as 2026-11-01"))
}
