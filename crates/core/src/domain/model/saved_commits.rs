//! Commits of a loop that another host needs to continue it.

use serde::{Deserialize, Serialize};

use crate::domain::model::ids::Sha;

/// Ref of a loop's store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedRef {
    /// Complete name.
    pub name: String,
    /// Hash of the commit.
    pub commit: Sha,
}

/// Commits of a loop's store.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SavedCommits {
    /// Refs of the loop's store.
    pub refs: Vec<SavedRef>,
    /// Commits of the forge that the pack builds on.
    pub have: Vec<Sha>,
    /// Pack of git with the objects that the forge did not have; `None` if it had all.
    #[serde(skip)]
    pub pack: Option<Vec<u8>>,
}
