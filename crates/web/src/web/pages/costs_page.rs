//! Page of daily costs by repository, backend or person: a chart and a table, also available as CSV and, through the API, as
//! JSON.

use std::sync::Arc;

use axum::extract::{Query, State};
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};

use super::charts;
use super::layout::{self, PageDef, PageError, PageFrame, PageNav, PageRights, opened, page_template};
use crate::domain::model::ids::Money;
use crate::domain::providers::money::{date_of, day_of};
use crate::store::costs::{CostGroup, DailyCost, daily};
use crate::web::visible::visible;
use crate::web::{Viewer, WebState};

/// Row of the page.
pub(super) static PAGE: PageDef = PageDef {
    route: "/costs",
    template: page_template!("costs.html"),
    title: "Costs",
    nav: PageNav::Entry("Costs"),
    rights: PageRights::Viewer,
    show: |page| opened(page, show),
};

/// Selectable ranges, in days; the second is the default.
const RANGES: [i64; 3] = [7, 30, 90];
/// Maximum number of rows with sums.
const SUMS_SHOWN: usize = 50;

/// Query of the page and the CSV file.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct CostsPageQuery {
    /// Name of a grouping.
    by: String,
    /// Number of days.
    days: String,
}

impl CostsPageQuery {
    fn by(&self) -> CostGroup {
        CostGroup::ALL.into_iter().find(|by| by.as_str() == self.by).unwrap_or_default()
    }

    fn days(&self) -> i64 {
        RANGES.into_iter().find(|days| days.to_string() == self.days).unwrap_or(RANGES[1])
    }
}

/// Sums of a repository, a backend or a person over all days.
#[derive(Debug, Clone, PartialEq)]
struct CostSum {
    of: String,
    calls: u64,
    cost: Money,
    tokens_in: u64,
    tokens_out: u64,
}

/// Data of the page. Costs are in millionths of a dollar.
#[derive(Debug, Serialize)]
struct CostsView {
    by: &'static str,
    groups: [&'static str; CostGroup::ALL.len()],
    days: i64,
    ranges: [i64; RANGES.len()],
    from: String,
    to: String,
    total: i64,
    calls: u64,
    /// Number of sums, of which the page shows the highest.
    count: usize,
    /// Highest sum.
    most: i64,
    /// Names in the chart's legend.
    keys: Vec<String>,
    /// Whether the chart combines further names.
    others: bool,
    sums: Vec<SumLine>,
    by_day: Vec<DayLine>,
}

/// Sums of a name over all days.
#[derive(Debug, Serialize)]
struct SumLine {
    of: String,
    calls: u64,
    cost: i64,
    tokens_in: u64,
    tokens_out: u64,
}

/// Sums of a day over all names.
#[derive(Debug, PartialEq, Serialize)]
struct DayLine {
    day: String,
    calls: u64,
    cost: i64,
}

/// Returns the page.
async fn show(
    state: Arc<WebState>,
    viewer: Viewer,
    Query(query): Query<CostsPageQuery>,
) -> Result<Response, PageError> {
    let (view, chart) = content(&state, &viewer, &query).await?;
    Ok(layout::page_in(&state, &viewer, &PAGE, &PageFrame::still(PAGE.title), &view, vec![("chart", chart)]))
}

/// Returns the costs visible to the viewer, with the first and last day.
async fn read(
    state: &WebState,
    viewer: &Viewer,
    query: &CostsPageQuery,
) -> Result<(Vec<DailyCost>, i64, i64), PageError> {
    let last = day_of(state.engine.clock.now());
    let (first, by) = (last - query.days() + 1, query.by());
    let scope = visible(state, viewer).await?.read;
    Ok((state.engine.store.read(move |c| daily(c, &scope, by, first, last)).await?, first, last))
}

async fn content(state: &WebState, viewer: &Viewer, query: &CostsPageQuery) -> Result<(CostsView, String), PageError> {
    let (rows, first, last) = read(state, viewer, query).await?;
    let (by, days) = (query.by(), query.days());
    let sums = sums(&rows);
    let total = sums.iter().fold(Money(0), |total, sum| total.plus(sum.cost));
    let most = sums.first().map_or(1, |sum| sum.cost.0.max(1));
    let name = |of: &str| if of.is_empty() { "not known".to_owned() } else { of.to_owned() };
    let drawn: Vec<&str> = sums.iter().take(charts::STACKED).map(|sum| sum.of.as_str()).collect();
    let line = |sum: &CostSum| SumLine {
        of: name(&sum.of),
        calls: sum.calls,
        cost: sum.cost.0,
        tokens_in: sum.tokens_in,
        tokens_out: sum.tokens_out,
    };
    let view = CostsView {
        by: by.as_str(),
        groups: CostGroup::ALL.map(CostGroup::as_str),
        days,
        ranges: RANGES,
        from: date_of(first),
        to: date_of(last),
        total: total.0,
        calls: sums.iter().map(|sum| sum.calls).sum(),
        count: sums.len(),
        most,
        keys: drawn.iter().map(|of| name(of)).collect(),
        others: sums.len() > drawn.len(),
        sums: sums.iter().take(SUMS_SHOWN).map(line).collect(),
        by_day: by_day(&rows),
    };
    Ok((view, charts::stacked(first, days, &rows, &drawn)))
}

/// Returns the sums over all days, highest first.
fn sums(rows: &[DailyCost]) -> Vec<CostSum> {
    let mut sums: Vec<CostSum> = Vec::new();
    let mut known = std::collections::HashMap::new();
    for row in rows {
        let at = *known.entry(row.of.as_str()).or_insert_with(|| {
            let of = row.of.clone();
            sums.push(CostSum { of, calls: 0, cost: Money(0), tokens_in: 0, tokens_out: 0 });
            sums.len() - 1
        });
        let sum = &mut sums[at];
        sum.calls += row.calls;
        sum.cost = sum.cost.plus(row.cost);
        sum.tokens_in += row.tokens_in;
        sum.tokens_out += row.tokens_out;
    }
    sums.sort_by(|a, b| (b.cost.0, &a.of).cmp(&(a.cost.0, &b.of)));
    sums
}

/// Returns the sums per day with calls, newest first.
fn by_day(rows: &[DailyCost]) -> Vec<DayLine> {
    rows.chunk_by(|a, b| a.day == b.day)
        .map(|day| {
            let cost = day.iter().fold(Money(0), |total, row| total.plus(row.cost));
            DayLine { day: date_of(day[0].day), calls: day.iter().map(|row| row.calls).sum(), cost: cost.0 }
        })
        .collect()
}

/// Returns the costs as a CSV file (RFC 4180).
pub(super) async fn csv(
    State(state): State<Arc<WebState>>,
    viewer: Viewer,
    Query(query): Query<CostsPageQuery>,
) -> Response {
    let (rows, first, last) = match read(&state, &viewer, &query).await {
        Ok(found) => found,
        Err(error) => return error.page(&state, &viewer),
    };
    let by = query.by().as_str();
    let text = state.engine.outbound.masked(&csv_text(by, &rows));
    let name = format!("attachment; filename=\"costs-{by}-{}-{}.csv\"", date_of(first), date_of(last));
    ([(CONTENT_TYPE, "text/csv; charset=utf-8".to_owned()), (CONTENT_DISPOSITION, name)], text).into_response()
}

fn csv_text(by: &str, rows: &[DailyCost]) -> String {
    let mut text = format!("day,{by},calls,cost_usd,tokens_in,tokens_out\r\n");
    for row in rows {
        let DailyCost { day, of, calls, cost, tokens_in, tokens_out } = row;
        let (day, usd) = (date_of(*day), cost.usd());
        text.push_str(&format!("{day},{},{calls},{usd},{tokens_in},{tokens_out}\r\n", csv_field(of)));
    }
    text
}

/// Formats a text as a CSV field. Escapes texts that start like a formula, because a spreadsheet would execute them.
fn csv_field(text: &str) -> String {
    let formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
    let guard = if formula { "'" } else { "" };
    format!("\"{guard}{}\"", text.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(day: i64, of: &str, cost: i64) -> DailyCost {
        DailyCost { day, of: of.into(), calls: 2, cost: Money(cost), tokens_in: 30, tokens_out: 4 }
    }

    #[test]
    fn rows_are_summed_by_name_and_by_day() {
        let rows = [row(9, "b", 500), row(9, "a", 300), row(7, "a", 900), row(7, "", 0)];
        let all = sums(&rows);
        let shown: Vec<_> = all.iter().map(|sum| (sum.of.as_str(), sum.calls, sum.cost.0)).collect();
        assert_eq!(shown, [("a", 4, 1200), ("b", 2, 500), ("", 2, 0)]);
        let days = by_day(&rows);
        assert_eq!(days.len(), 2);
        assert_eq!(days[0], DayLine { day: "1970-01-10".into(), calls: 4, cost: 800 });
    }

    #[test]
    fn cost_file_quotes_names_and_contains_no_formula() {
        let rows =
            [row(20_783, "gh:acme/a\"p,p", 1_500_000), row(20_783, "=HYPERLINK(\"x\")", 0), row(20_782, "-ann", 1)];
        insta::assert_snapshot!(csv_text("person", &rows).replace('\r', ""), @r#"
        day,person,calls,cost_usd,tokens_in,tokens_out
        2026-11-26,"gh:acme/a""p,p",2,1.5,30,4
        2026-11-26,"'=HYPERLINK(""x"")",2,0,30,4
        2026-11-25,"'-ann",2,0.000001,30,4
        "#);
    }

    #[test]
    fn unknown_query_values_fall_back_to_defaults() {
        let of = |by: &str, days: &str| {
            let query = CostsPageQuery { by: by.into(), days: days.into() };
            (query.by(), query.days())
        };
        assert_eq!(of("", ""), (CostGroup::Repository, 30));
        assert_eq!(of("person", "90"), (CostGroup::Person, 90));
        assert_eq!(of("<script>", "-1"), (CostGroup::Repository, 30));
    }
}
