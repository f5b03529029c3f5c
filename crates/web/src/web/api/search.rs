//! Search of the texts of all loops.

use std::sync::Arc;

use axum::extract::State;
use axum::routing::get;
use schemars::JsonSchema;
use serde::Deserialize;

use super::extract::{ApiQuery, ApiViewer};
use super::loops::{bad_cursor, limited, repository, states, words};
use super::ok;
use super::openapi::{ApiRoute, Operation};
use super::problem::{ApiProblem, ApiResult};
use super::types::{ApiHit, ApiSearchPage};
use super::visibility::visible_loop;
use crate::store::session::{TextKind, TextPosition, TextQuery, search_texts};
use crate::web::WebState;
use crate::web::visible::narrowed;

const DEFAULT_LIMIT: usize = 20;
const MAX_LIMIT: usize = 50;

/// Query of a search.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SearchQuery {
    /// Words that a text must all contain.
    q: String,
    /// Only texts of this loop.
    #[serde(rename = "loop")]
    of: Option<String>,
    /// Only texts of this kind.
    kind: Option<TextKind>,
    /// Only loops of this forge.
    forge: Option<String>,
    /// Only loops of this repository: `owner/name`.
    repository: Option<String>,
    /// Only loops in one of these states, separated by commas.
    state: Option<String>,
    /// `next` of the previous response.
    cursor: Option<String>,
    /// Maximum number of results, 1 to 50.
    #[schemars(range(min = 1, max = 50))]
    limit: Option<usize>,
}

/// Returns the routes of the search.
pub(super) fn routes() -> Vec<ApiRoute> {
    let operation = Operation::get(
        "/search",
        "search",
        "Searches titles and reasons of loops that the viewer may read, and prompts, answers and outputs of those where the viewer may write",
    );
    vec![ApiRoute::new(operation.query::<SearchQuery>().answers::<ApiSearchPage>(), get(search))]
}

async fn search(
    State(state): State<Arc<WebState>>,
    ApiViewer { viewer, .. }: ApiViewer,
    ApiQuery(query): ApiQuery<SearchQuery>,
) -> ApiResult {
    let limit = limited(query.limit, DEFAULT_LIMIT, MAX_LIMIT)?;
    let before = match query.cursor.as_deref() {
        Some(text) => TextPosition::parse(text).ok_or_else(bad_cursor)?,
        None => TextPosition::default(),
    };
    let text = words(query.q)?;
    if !text.chars().any(char::is_alphanumeric) {
        return Err(ApiProblem::invalid("q contains no word", "search for at least one word"));
    }
    let of = match query.of.as_deref() {
        Some(id) => Some(visible_loop(&state, &viewer, id, false).await?.0.id),
        None => None,
    };
    let states = states(query.state.as_deref().unwrap_or_default())?;
    let repository = query.repository.as_deref().map(repository).transpose()?;
    let named = repository.as_ref().map(|(owner, name)| (owner.as_str(), name.as_str()));
    let scope = narrowed(&state, &viewer, query.forge.as_deref(), named).await?;
    let query =
        TextQuery { of, states, kind: query.kind, before, ..TextQuery::of(text, scope.read, scope.write, limit) };
    let outbound = state.engine.outbound.clone();
    let found = state.engine.store.read(move |c| search_texts(c, &query, &|text| outbound.masked(text))).await?;
    let next = found.next.map(|next| next.to_string());
    ok(&state, &ApiSearchPage { hits: found.hits.into_iter().map(ApiHit::from).collect(), next, early: found.early })
}
