//! Repositories that are visible to a viewer.

use super::{Viewer, WebState};
use crate::domain::trust::viewer::ViewRight;
use crate::store::StoreError;
use crate::store::listing::{self, RepoScope};

/// Repositories that a viewer may read, and repositories whose texts the viewer may read.
pub struct Visible {
    /// Repositories with read access.
    pub read: RepoScope,
    /// Repositories with write access, which texts require.
    pub write: RepoScope,
}

/// Returns the repositories visible to a viewer.
pub async fn visible(state: &WebState, viewer: &Viewer) -> Result<Visible, StoreError> {
    narrowed(state, viewer, None, None).await
}

/// Returns the repositories visible to a viewer on a forge. Ignores letter case of owner and name; `None` matches any.
pub async fn narrowed(
    state: &WebState,
    viewer: &Viewer,
    forge: Option<&str>,
    repository: Option<(&str, &str)>,
) -> Result<Visible, StoreError> {
    if viewer.operator && forge.is_none() && repository.is_none() {
        return Ok(Visible { read: RepoScope::All, write: RepoScope::All });
    }
    let mut repositories = state.engine.store.read(listing::repositories).await?;
    repositories.retain(|repo| {
        forge.is_none_or(|forge| repo.forge.as_str() == forge)
            && repository.is_none_or(|(owner, name)| {
                repo.owner.eq_ignore_ascii_case(owner) && repo.name.eq_ignore_ascii_case(name)
            })
    });
    let rights = state.access.rights(&state.engine, viewer, &repositories).await;
    let with = |least: ViewRight| {
        let enough = repositories.iter().zip(&rights).filter(|(_, right)| **right >= least);
        RepoScope::Only(enough.map(|(repo, _)| (repo.forge.clone(), repo.id)).collect())
    };
    Ok(Visible { read: with(ViewRight::Read), write: with(ViewRight::Write) })
}
