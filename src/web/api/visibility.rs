//! Visibility of repositories and loops, and checks of rights.

use std::sync::Arc;

use futures::StreamExt;

use super::problem::ApiProblem;
use crate::domain::model::ids::{LoopId, RepoRef};
use crate::domain::trust::viewer::ViewRight;
use crate::store::listing::{self, LoopRow, RepoScope};
use crate::web::{Viewer, WebState};

/// Number of concurrent questions for rights.
const CONCURRENT: usize = 8;

/// Repositories that a viewer may read, and those whose texts they may read.
pub struct Visible {
    /// With the right to read.
    pub read: RepoScope,
    /// With the right to write.
    pub write: RepoScope,
}

/// Returns the repositories that a viewer may see.
pub async fn visible(state: &Arc<WebState>, viewer: &Viewer) -> Result<Visible, ApiProblem> {
    if viewer.operator {
        return Ok(Visible { read: RepoScope::All, write: RepoScope::All });
    }
    let repositories = state.engine.store.read(listing::repositories).await?;
    let rights = futures::stream::iter(repositories).map(|repo| async move {
        let right = state.access.right(&state.engine, viewer, &repo, false).await;
        ((repo.forge, repo.id), right)
    });
    let rights: Vec<_> = rights.buffer_unordered(CONCURRENT).collect().await;
    let with = |least: ViewRight| {
        RepoScope::Only(rights.iter().filter(|(_, right)| *right >= least).map(|(key, _)| key.clone()).collect())
    };
    Ok(Visible { read: with(ViewRight::Read), write: with(ViewRight::Write) })
}

/// Returns the row of a loop that the viewer may see, with their right. One that they may not read is unknown.
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

/// Fails unless a right suffices to write.
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
