//! Commands for loops, with the same text as in comments.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::post;

use super::answer;
use super::extract::{ApiBody, ApiViewer};
use super::openapi::{ApiRoute, Operation};
use super::problem::{ApiProblem, ApiResult};
use super::types::{ApiCommand, ApiCommandResult};
use super::visibility::{needs_write, visible_loop};
use crate::engine::{CommandPath, DashboardAuthor, DashboardCommandError, DashboardOutcome};
use crate::store::loops;
use crate::web::WebState;

/// Returns the routes of commands.
pub(super) fn routes() -> Vec<ApiRoute> {
    let operation = Operation::post(
        "/loops/{id}/commands",
        "giveCommand",
        "Gives a loop a command and waits up to 5 s for its answer: 202 if it is stored and not processed yet, 409 with the reason if the loop refuses it",
    );
    vec![ApiRoute::new(operation.body::<ApiCommand>().answers::<ApiCommandResult>(), post(give))]
}

async fn give(
    State(state): State<Arc<WebState>>,
    ApiViewer { viewer, .. }: ApiViewer,
    Path(id): Path<String>,
    ApiBody(ApiCommand { command }): ApiBody<ApiCommand>,
) -> ApiResult {
    let (row, right) = visible_loop(&state, &viewer, &id, true).await?;
    needs_write(right, &row.repo)?;
    let author = match &viewer.account {
        Some((_, user)) => DashboardAuthor::Account(user.clone()),
        None => DashboardAuthor::Operator,
    };
    let by = CommandPath::Api { token: viewer.token.as_ref().map(|token| token.stored.name.clone()) };
    let given = state.engine.intake.command_from_dashboard(&row.id, (&author, &by), &command).await.map_err(problem)?;
    let wanted = row.id.clone();
    let current = state.engine.store.read(move |c| loops::get(c, &wanted)).await?;
    let current = current.ok_or_else(|| ApiProblem::unknown("loop", &id))?;
    let says = given.reply.lines.join("\n");
    let nearest = given.reply.nearest.map(|nearest| format!("did you mean `{nearest}`?"));
    let action = nearest.unwrap_or_else(|| "`/ralph help` lists the commands".to_owned());
    let status = match given.outcome {
        DashboardOutcome::Invalid => return Err(ApiProblem::invalid(says, action)),
        DashboardOutcome::Refused => return Err(ApiProblem::new(StatusCode::CONFLICT, says, action)),
        DashboardOutcome::Stored => StatusCode::ACCEPTED,
        DashboardOutcome::Taken(_) | DashboardOutcome::Answered => StatusCode::OK,
    };
    let taken = status == StatusCode::OK;
    answer(&state, status, &ApiCommandResult { loop_id: row.id.to_string(), state: current.state, taken, says })
}

/// Returns the error of an unprocessed command.
fn problem(error: DashboardCommandError) -> ApiProblem {
    let text = error.to_string();
    match error {
        DashboardCommandError::UnknownLoop(id) => ApiProblem::unknown("loop", id.as_str()),
        DashboardCommandError::Denied { .. } => ApiProblem::forbidden(text, "ask a maintainer for write access"),
        DashboardCommandError::Unavailable(_) => {
            ApiProblem::new(StatusCode::SERVICE_UNAVAILABLE, text, "try again in a minute").retry_after(60)
        }
        DashboardCommandError::Store(error) => error.into(),
    }
}
