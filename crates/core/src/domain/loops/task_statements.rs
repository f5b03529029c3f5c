//! Facts about a loop's task that people stated, by source.

use serde::{Deserialize, Serialize};

use crate::domain::model::stated_facts::StatedFacts;

/// Source of a stated fact, in the order of precedence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FactSource {
    /// The plan that a maintainer approved.
    Plan,
    /// The `ralph` block of the issue.
    Issue,
    /// A label of the issue, for which the repository's file states facts.
    Label,
    /// The repository's file.
    RepositoryFile,
}

impl FactSource {
    /// Returns the name of the source for use within a sentence.
    pub fn words(self) -> &'static str {
        match self {
            Self::Plan => "stated in the approved plan",
            Self::Issue => "stated in this issue",
            Self::Label => "stated by a label",
            Self::RepositoryFile => "stated in the repository's file",
        }
    }
}

/// Facts about a task that people stated, by source.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TaskStatements {
    /// Facts from the approved plan, which are its scope.
    #[serde(skip_serializing_if = "StatedFacts::is_empty")]
    pub plan: StatedFacts,
    /// Facts from the `ralph` block of the issue; ignored if its author has no write access.
    pub issue: StatedFacts,
    /// Combined facts for the labels of the issue.
    pub labels: StatedFacts,
    /// Facts of the repository's file.
    pub file: StatedFacts,
}

impl TaskStatements {
    /// Returns a fact from the first source that states it, with that source.
    pub fn get<T>(&self, of: impl Fn(&StatedFacts) -> Option<T>) -> Option<(T, FactSource)> {
        let sources = [
            (&self.plan, FactSource::Plan),
            (&self.issue, FactSource::Issue),
            (&self.labels, FactSource::Label),
            (&self.file, FactSource::RepositoryFile),
        ];
        sources.into_iter().find_map(|(facts, source)| Some((of(facts)?, source)))
    }

    /// Returns the scope from the first source that states it, with that source.
    pub fn scope(&self) -> Option<(Vec<String>, FactSource)> {
        self.get(|facts| Some(facts.places()).filter(|places| !places.is_empty()))
    }

    /// Whether people state that the task is security-sensitive or breaks compatibility. Such a loop starts with a plan, has half of
    /// the configured iterations before it pauses, and keeps no change of a protected path by itself.
    pub fn asks_care(&self) -> bool {
        let holds = |of: fn(&StatedFacts) -> Option<bool>| self.get(of).is_some_and(|(holds, _)| holds);
        holds(|facts| facts.security_sensitive) || holds(|facts| facts.breaking_changes)
    }

    /// Whether no source states any fact.
    pub fn is_empty(&self) -> bool {
        self.plan.is_empty() && self.issue.is_empty() && self.labels.is_empty() && self.file.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_specific_source_decides_a_fact() {
        let facts = |complexity, scope: &[&str]| StatedFacts {
            complexity,
            scope: scope.iter().map(|place| (*place).to_owned()).collect(),
            ..StatedFacts::default()
        };
        let stated = TaskStatements {
            issue: facts(None, &["src/**"]),
            labels: facts(Some(2), &[]),
            file: facts(Some(9), &["x"]),
            ..TaskStatements::default()
        };
        assert_eq!(stated.get(|facts| facts.complexity), Some((2, FactSource::Label)));
        assert_eq!(stated.scope(), Some((vec!["src".to_owned()], FactSource::Issue)));
        assert_eq!(stated.get(|facts| facts.security_sensitive), None);
        let planned = TaskStatements { plan: facts(None, &["src/a.rs"]), ..stated.clone() };
        assert_eq!(planned.scope(), Some((vec!["src/a.rs".to_owned()], FactSource::Plan)));
        assert!(TaskStatements::default().is_empty() && !stated.is_empty());
        let care = |holds| StatedFacts { security_sensitive: holds, ..StatedFacts::default() };
        assert!(!stated.asks_care());
        assert!(TaskStatements { labels: care(Some(true)), ..stated.clone() }.asks_care());
        let denied = TaskStatements { issue: care(Some(false)), labels: care(Some(true)), ..stated };
        assert!(!denied.asks_care(), "the issue precedes the label");
    }
}
