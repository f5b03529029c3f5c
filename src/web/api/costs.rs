//! Costs over days.

use std::sync::Arc;

use axum::extract::State;
use axum::routing::get;
use jiff::civil::Date;
use schemars::JsonSchema;
use serde::Deserialize;

use super::extract::{ApiQuery, ApiViewer};
use super::openapi::Operation;
use super::problem::ApiProblem;
use super::types::{ApiCosts, ApiDailyCost};
use super::visibility::visible;
use super::{ApiResult, ApiRoute, ok};
use crate::domain::model::ids::Money;
use crate::domain::providers::money::day_of;
use crate::store::costs::{CostGroup, daily};
use crate::web::WebState;

/// Number of days without `from`.
const DEFAULT_DAYS: i64 = 30;
/// Maximum number of days.
const MAX_DAYS: i64 = 400;

/// Query of costs.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct CostsQuery {
    /// First day, such as 2026-11-01; without it, 30 days.
    from: Option<String>,
    /// Last day; without it, today (UTC).
    to: Option<String>,
    /// Grouping of the sums.
    by: CostsBy,
}

/// Grouping of costs.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum CostsBy {
    /// Repository.
    Repository,
    /// Backend.
    Backend,
    /// Person who asked for the loop.
    Person,
}

impl Default for CostsQuery {
    fn default() -> Self {
        Self { from: None, to: None, by: CostsBy::Repository }
    }
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
            format!("the days from {} to {} are not 1 to {MAX_DAYS} days", date(from), date(to)),
            format!("send a first day that is not after the last, and at most {MAX_DAYS} days"),
        ));
    }
    let by = match query.by {
        CostsBy::Repository => CostGroup::Repository,
        CostsBy::Backend => CostGroup::Backend,
        CostsBy::Person => CostGroup::Person,
    };
    let scope = visible(&state, &viewer).await?.read;
    let days = state.engine.store.read(move |c| daily(c, &scope, by, from, to)).await?;
    let total = days.iter().fold(Money(0), |sum, day| sum.plus(day.cost));
    let days = days.into_iter().map(|day| ApiDailyCost {
        day: date(day.day),
        of: day.of,
        calls: day.calls,
        cost_usd: day.cost.usd(),
        tokens_in: day.tokens_in,
        tokens_out: day.tokens_out,
    });
    ok(&state, &ApiCosts { from: date(from), to: date(to), total_usd: total.usd(), days: days.collect() })
}

/// Parses a date to days since 1970-01-01.
fn day(text: &str) -> Result<i64, ApiProblem> {
    let parsed = text.parse::<Date>().ok().filter(|date| (1970..=9000).contains(&date.year()));
    let days = parsed.and_then(|date| date.since(epoch()).ok()).map(|span| i64::from(span.get_days()));
    days.ok_or_else(|| ApiProblem::invalid("a day is invalid", "send days such as 2026-11-01"))
}

/// Formats days since 1970-01-01.
fn date(day: i64) -> String {
    let span = jiff::Span::new().try_days(day);
    let date = span.ok().and_then(|span| epoch().checked_add(span).ok());
    date.map_or_else(|| day.to_string(), |date| date.to_string())
}

fn epoch() -> Date {
    Date::constant(1970, 1, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_counted_from_1970() {
        for (text, number) in [("1970-01-01", 0), ("1970-01-02", 1), ("2024-02-29", 19_782), ("2026-11-26", 20_783)] {
            assert_eq!(day(text).expect("a day"), number, "{text}");
            assert_eq!(date(number), text);
        }
        for text in ["", "yesterday", "2026-02-30", "1969-12-31", "9999-01-01", "2026-11"] {
            assert!(day(text).is_err(), "{text}");
        }
    }
}
