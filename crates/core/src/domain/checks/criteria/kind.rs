//! Type of a task, derived from its issue's labels, title and checks.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::domain::model::task::{Check, CheckRule};

/// Type of a task; determines its budgets, reflection windows and learnings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TaskType {
    /// Failing or flaky tests.
    TestFix,
    /// Errors of a type checker.
    TypeErrors,
    /// Style and lint errors.
    Lint,
    /// Migration of a library, language or interface.
    Migration,
    /// Change of structure without a change of behavior.
    Refactor,
    /// Higher test coverage.
    Coverage,
    /// New feature.
    Feature,
    /// Documentation.
    Docs,
    /// Another version of a dependency.
    Dependency,
    /// Any other task.
    #[default]
    Other,
}

impl TaskType {
    /// All types.
    pub const ALL: [Self; 10] = [
        Self::TestFix,
        Self::TypeErrors,
        Self::Lint,
        Self::Migration,
        Self::Refactor,
        Self::Coverage,
        Self::Feature,
        Self::Docs,
        Self::Dependency,
        Self::Other,
    ];

    /// Returns the name used in settings and in the store.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TestFix => "test-fix",
            Self::TypeErrors => "type-errors",
            Self::Lint => "lint",
            Self::Migration => "migration",
            Self::Refactor => "refactor",
            Self::Coverage => "coverage",
            Self::Feature => "feature",
            Self::Docs => "docs",
            Self::Dependency => "dependency",
            Self::Other => "other",
        }
    }

    /// Parses a name returned by `as_str`; `None` if unknown.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }

    /// Returns the usual minimum and maximum number of iterations.
    pub fn usual_iterations(self) -> (u32, u32) {
        match self {
            Self::TestFix => (2, 5),
            Self::TypeErrors => (3, 8),
            Self::Lint | Self::Docs => (2, 4),
            Self::Migration => (5, 15),
            Self::Refactor | Self::Dependency | Self::Other => (3, 10),
            Self::Coverage => (5, 20),
            Self::Feature => (10, 30),
        }
    }
}

/// Words and phrases of each type, in lower case. The first matching type is used; specific types come first.
const WORDS: [(TaskType, &[&str]); 10] = [
    (TaskType::Coverage, &["coverage", "untested"]),
    (
        TaskType::TypeErrors,
        &["type error", "type errors", "typing", "mypy", "pyright", "tsc", "typecheck", "type check"],
    ),
    (
        TaskType::Lint,
        &["lint", "linter", "lints", "clippy", "eslint", "ruff", "formatting", "prettier", "rustfmt", "style"],
    ),
    (
        TaskType::TestFix,
        &[
            "failing test",
            "failing tests",
            "fix test",
            "fix tests",
            "flaky",
            "broken test",
            "broken tests",
            "test failure",
            "test failures",
            "tests fail",
            "test fails",
            "test fix",
        ],
    ),
    (TaskType::Migration, &["migrate", "migrating", "migration", "port to", "convert"]),
    (TaskType::Dependency, &["dependency", "dependencies", "deps", "bump", "upgrade", "renovate", "dependabot"]),
    (
        TaskType::Refactor,
        &[
            "refactor",
            "refactoring",
            "clean up",
            "cleanup",
            "simplify",
            "rename",
            "restructure",
            "tech debt",
            "extract",
        ],
    ),
    (TaskType::Docs, &["docs", "documentation", "readme", "docstring", "docstrings", "changelog", "typo"]),
    (TaskType::TestFix, &["bug", "fix", "fixes", "regression", "crash", "crashes"]),
    (TaskType::Feature, &["feature", "enhancement", "add", "implement", "support", "introduce", "new"]),
];

/// Returns the type of a task from its labels, otherwise its title, otherwise its checks (a coverage rule, a type checker, a
/// linter). Returns `Other` if nothing matches.
pub fn task_type(title: &str, labels: &[String], checks: &[Check]) -> TaskType {
    let labels = labels.join(" ; ");
    by_words(&labels).or_else(|| by_words(title)).unwrap_or_else(|| by_checks(checks))
}

fn by_words(text: &str) -> Option<TaskType> {
    let spaced: String =
        text.to_lowercase().chars().map(|c| if c.is_alphanumeric() || c == '-' { c } else { ' ' }).collect();
    let split: String = spaced.replace('-', " ");
    let padded = |text: &str| format!(" {} ", text.split_whitespace().collect::<Vec<_>>().join(" "));
    let (whole, split) = (padded(&spaced), padded(&split));
    let holds = |word: &&str| whole.contains(&format!(" {word} ")) || split.contains(&format!(" {word} "));
    WORDS.iter().find(|(_, words)| words.iter().any(holds)).map(|(kind, _)| *kind)
}

fn by_checks(checks: &[Check]) -> TaskType {
    if checks.iter().any(|check| matches!(check.rule, CheckRule::Coverage { .. })) {
        return TaskType::Coverage;
    }
    let all = |programs: &[&str]| {
        let is_one = |check: &Check| programs.iter().any(|program| check.command.contains(program));
        !checks.is_empty() && checks.iter().all(is_one)
    };
    if all(&["tsc", "mypy", "pyright", "typecheck"]) {
        TaskType::TypeErrors
    } else if all(&["lint", "clippy", "ruff", "fmt", "prettier", "flake8", "stylelint"]) {
        TaskType::Lint
    } else {
        TaskType::Other
    }
}
