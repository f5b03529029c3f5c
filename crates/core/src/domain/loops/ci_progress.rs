//! Progress of the CI of a commit, in comparison with the last commit of its base.

use serde::{Deserialize, Serialize};

/// Whether the CI of a commit has started, which a merge waits for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CiProgress {
    /// Whether a check has started that belongs to a workflow of the repository, or that also ran on the base.
    #[serde(default)]
    pub begun: bool,
    /// Names of checks that ran on the base and are missing on the commit, and paths of workflows that have not started.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub awaited: Vec<String>,
    /// Names of checks that were skipped on the commit, but not on the base.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<String>,
}

impl CiProgress {
    /// Compares the checks of a commit with the checks of its base. `unstarted` has the paths of the workflows that have not started
    /// on the commit, and `from_workflows` states whether any check belongs to a workflow.
    pub fn of(commit: &SeenChecks, base: &SeenChecks, unstarted: Vec<String>, from_workflows: bool) -> Self {
        let seen = |name: &String| commit.ran.contains(name) || commit.skipped.contains(name);
        let on_base = |name: &&String| base.ran.contains(*name);
        let missing = base.ran.iter().filter(|name| !seen(name)).cloned();
        Self {
            begun: from_workflows || commit.ran.iter().any(|name| on_base(&name)),
            awaited: missing.chain(unstarted).collect(),
            skipped: commit
                .skipped
                .iter()
                .filter(|name| !base.skipped.contains(name) && !commit.ran.contains(name))
                .cloned()
                .collect(),
        }
    }
}

/// Names of the checks of a commit.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SeenChecks {
    /// Checks that started.
    pub ran: Vec<String>,
    /// Checks that never ran: skipped, or without a result.
    pub skipped: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checks(ran: &[&str], skipped: &[&str]) -> SeenChecks {
        let names = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect();
        SeenChecks { ran: names(ran), skipped: names(skipped) }
    }

    #[test]
    fn checks_of_the_base_are_awaited_until_they_appear() {
        let base = checks(&["build", "test"], &["deploy"]);
        let early = CiProgress::of(&checks(&["DCO"], &[]), &base, Vec::new(), false);
        assert_eq!((early.begun, early.awaited), (false, vec!["build".to_owned(), "test".to_owned()]));
        let later = CiProgress::of(&checks(&["DCO", "build"], &["test", "deploy"]), &base, Vec::new(), false);
        assert_eq!((later.begun, later.awaited, later.skipped), (true, vec![], vec!["test".to_owned()]));
    }

    #[test]
    fn workflows_that_have_not_started_are_awaited() {
        let none = SeenChecks::default();
        let workflow = vec![".github/workflows/ci.yml".to_owned()];
        let waits = CiProgress::of(&checks(&["label"], &[]), &none, workflow.clone(), false);
        assert_eq!((waits.begun, waits.awaited), (false, workflow));
        assert!(CiProgress::of(&checks(&["ci"], &[]), &none, Vec::new(), true).begun);
        assert_eq!(CiProgress::of(&none, &none, Vec::new(), false), CiProgress::default());
    }
}
