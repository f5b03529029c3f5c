//! Routes for personal tokens. Only sessions can create tokens.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::{delete, get, post};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::extract::{ApiBody, ApiViewer};
use super::openapi::{ApiRoute, Operation};
use super::problem::{ApiProblem, ApiResult};
use super::types::time;
use super::{answer, ok};
use crate::store::tokens::{self, ApiScope, MAX_TOKENS, StoredToken};
use crate::web::WebState;
use crate::web::personal_token::{DEFAULT_DAYS, TokenWishError, make_token, request_of};

/// Token without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ApiTokenInfo {
    /// Number of the token.
    pub id: i64,
    /// Name of the token.
    pub name: String,
    /// Last four characters.
    pub hint: String,
    /// Scope of the token.
    pub scope: ApiScope,
    /// Time of creation.
    #[schemars(extend("format" = "date-time"))]
    pub created_at: String,
    /// Expiry of the token.
    #[schemars(extend("format" = "date-time"))]
    pub expires_at: String,
    /// Time of its last use, to the minute.
    pub used_at: Option<String>,
    /// Time of revocation.
    pub revoked_at: Option<String>,
}

impl From<&StoredToken> for ApiTokenInfo {
    fn from(token: &StoredToken) -> Self {
        Self {
            id: token.id,
            name: token.name.clone(),
            hint: token.hint.clone(),
            scope: token.scope,
            created_at: time(token.created_at),
            expires_at: time(token.expires_at),
            used_at: token.used_at.map(time),
            revoked_at: token.revoked_at.map(time),
        }
    }
}

/// Tokens of the viewer, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
struct ApiTokenList {
    /// Tokens, including invalid ones.
    tokens: Vec<ApiTokenInfo>,
}

/// Request for a token.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ApiTokenWish {
    /// Name, 1 to 100 characters.
    name: String,
    /// Scope; `read` by default.
    scope: Option<ApiScope>,
    /// Days of validity, 1 to 366; 90 by default.
    #[schemars(range(min = 1, max = 366))]
    days: Option<u32>,
}

/// New token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
struct ApiNewToken {
    /// Token; shown only once.
    token: String,
    /// Stored data of the token.
    info: ApiTokenInfo,
}

/// Returns the routes of tokens.
pub(super) fn routes() -> Vec<ApiRoute> {
    let list = Operation::get("/tokens", "listTokens", "Lists the personal tokens of the viewer");
    let make =
        Operation::post("/tokens", "makeToken", "Creates a personal token; requires a session instead of a token");
    let revoke =
        Operation::delete("/tokens/{token}", "revokeToken", "Revokes a personal token of the viewer by its number");
    vec![
        ApiRoute::new(list.answers::<ApiTokenList>(), get(self::list)),
        ApiRoute::new(
            make.body::<ApiTokenWish>().answers::<ApiNewToken>().status(StatusCode::CREATED),
            post(self::make),
        ),
        ApiRoute::new(revoke, delete(self::revoke)),
    ]
}

async fn list(State(state): State<Arc<WebState>>, ApiViewer { viewer, .. }: ApiViewer) -> ApiResult {
    let of = viewer.token_owner();
    let found = state.engine.store.read(move |c| tokens::of_owner(c, &of)).await?;
    ok(&state, &ApiTokenList { tokens: found.iter().map(ApiTokenInfo::from).collect() })
}

async fn make(
    State(state): State<Arc<WebState>>,
    ApiViewer { viewer }: ApiViewer,
    ApiBody(wish): ApiBody<ApiTokenWish>,
) -> ApiResult {
    let (now, scope) = (state.engine.clock.now(), wish.scope.unwrap_or(ApiScope::Read));
    let request = request_of(
        (viewer.token_owner(), viewer.token.is_some()),
        &wish.name,
        scope,
        wish.days.unwrap_or(DEFAULT_DAYS),
        now,
    );
    let request = request.map_err(|error| match error {
        TokenWishError::ByToken => ApiProblem::forbidden(error.to_string(), error.action()),
        _ => ApiProblem::invalid(error.to_string(), error.action()),
    })?;
    let Some((token, stored)) = make_token(&state.engine.store, request, now).await? else {
        return Err(ApiProblem::new(
            StatusCode::CONFLICT,
            format!("you have {MAX_TOKENS} valid tokens, which is the maximum"),
            "revoke one that you do not use",
        ));
    };
    answer(&state, StatusCode::CREATED, &ApiNewToken { token, info: ApiTokenInfo::from(&stored) })
}

async fn revoke(
    State(state): State<Arc<WebState>>,
    ApiViewer { viewer, .. }: ApiViewer,
    Path(number): Path<String>,
) -> ApiResult {
    let (of, now) = (viewer.token_owner(), state.engine.clock.now());
    let id = number.parse::<i64>().map_err(|_| ApiProblem::unknown("token", &number))?;
    if state.engine.store.write(move |c| tokens::revoke(c, &of, id, now)).await? {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    Err(ApiProblem::unknown("valid token", &number))
}
