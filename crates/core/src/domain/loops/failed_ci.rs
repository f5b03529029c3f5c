//! Failed CI of the pull request.

use serde::{Deserialize, Serialize};

use crate::domain::model::ids::Sha;

/// Failed CI of a commit of the pull request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedCi {
    /// Hash of the commit.
    pub commit: Sha,
    /// Names of the failed checks that do not fail on the base as well.
    pub names: Vec<String>,
    /// Names of the failed checks that also fail on the base.
    pub on_base: Vec<String>,
}

impl FailedCi {
    /// Whether this value is about `commit` and has the failed checks `names`, in any order.
    pub fn is_about<'a>(&self, commit: &Sha, names: impl Iterator<Item = &'a str>) -> bool {
        let mut known: Vec<&str> = self.names.iter().chain(&self.on_base).map(String::as_str).collect();
        let mut names: Vec<&str> = names.collect();
        known.sort_unstable();
        names.sort_unstable();
        self.commit == *commit && known == names
    }
}

/// Formats names of checks for people: `` `build`, `lint` ``.
pub fn check_names(names: &[String]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}
