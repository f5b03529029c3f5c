//! Set of repositories to which a query is limited.

use crate::domain::model::ids::{ForgeName, RepoId, RepoRef};
use crate::store::sql::Value;

/// Repositories whose rows a query selects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RepoScope {
    /// All repositories.
    All,
    /// These repositories, by forge and id.
    Only(Vec<(ForgeName, RepoId)>),
}

impl RepoScope {
    /// Whether a repository is selected.
    pub fn contains(&self, repo: &RepoRef) -> bool {
        match self {
            Self::All => true,
            Self::Only(repos) => repos.iter().any(|(forge, id)| *forge == repo.forge && *id == repo.id),
        }
    }

    /// Returns the SQL condition on the columns `forge` and `repo_id` of a table, and appends its values to `values`.
    pub(super) fn condition(&self, table: &str, values: &mut Vec<Value>) -> String {
        match self {
            Self::All => "TRUE".to_owned(),
            Self::Only(repos) if repos.is_empty() => "FALSE".to_owned(),
            Self::Only(repos) => {
                let places: Vec<String> = repos
                    .iter()
                    .map(|(forge, id)| {
                        values.push(forge.as_str().to_owned().into());
                        values.push(id.0.into());
                        format!("(?{}, CAST(?{} AS BIGINT))", values.len() - 1, values.len())
                    })
                    .collect();
                format!("({table}.forge, {table}.repo_id) IN (VALUES {})", places.join(", "))
            }
        }
    }
}
