//! Visibility of loops, and checks of rights.

use std::sync::Arc;

use super::problem::ApiProblem;
use crate::domain::model::ids::{LoopId, RepoRef};
use crate::domain::trust::viewer::ViewRight;
use crate::store::listing::{self, LoopRow};
use crate::web::{Viewer, WebState};

/// Returns the row of a loop and the viewer's right. Reports a loop without read access as unknown.
pub async fn visible_loop(
    state: &Arc<WebState>,
    viewer: &Viewer,
    id: &str,
    fresh: bool,
) -> Result<(LoopRow, ViewRight), ApiProblem> {
    let wanted = LoopId::new(id);
    let row = state.engine.store.read(move |c| listing::row(c, &wanted)).await?;
    let row = row.ok_or_else(|| ApiProblem::unknown("loop", id))?;
    let right = state.access.right(&state.engine, viewer, &row.repo, fresh).await;
    if right < ViewRight::Read { Err(ApiProblem::unknown("loop", id)) } else { Ok((row, right)) }
}

/// Fails unless the right includes write access.
pub fn needs_write(right: ViewRight, repo: &RepoRef) -> Result<(), ApiProblem> {
    if right >= ViewRight::Write {
        return Ok(());
    }
    let place = repo.full_name();
    Err(ApiProblem::forbidden(
        format!("this needs write access to {place}"),
        format!("ask a maintainer of {place} for write access"),
    ))
}

/// Fails unless the viewer is an operator.
pub fn needs_operator(viewer: &Viewer) -> Result<(), ApiProblem> {
    if viewer.operator {
        return Ok(());
    }
    Err(ApiProblem::forbidden(
        "this is for operators of the service",
        "ask the operator to add your account to the operators in the service's file",
    ))
}
