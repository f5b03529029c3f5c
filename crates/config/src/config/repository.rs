//! The repository's file, `.github/ralph.yml`, `.gitea/ralph.yml` or `.ralph.yml`. Maintainers write it, and the service
//! reads it only from the default branch.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::domain::checks::criteria::TaskType;
use crate::domain::model::quantity::Duration;
use crate::domain::model::settings::config_section;
use crate::domain::model::stated_facts::StatedFacts;
use crate::domain::supervision::SupervisionPreset;
use crate::domain::supervision::control::ControlSettings;
use crate::domain::supervision::oversight::OversightSettings;
use crate::domain::supervision::strategy::StrategySettings;
use crate::domain::trust::limits::RepositoryLimits;
use crate::domain::trust::policy::{Intelligence, PlanPolicy, ProgressReport, ReviewTime};
use crate::domain::trust::protected::ProtectedPolicy;

/// Paths of the file, in lookup order.
pub const REPOSITORY_FILES: &[&str] = &[".github/ralph.yml", ".gitea/ralph.yml", ".ralph.yml"];

config_section! {
    /// The repository's file. Limits can only be lower than the operator's, protection can only be stricter.
    pub struct RepositoryFile {
        /// Commands that must pass for a loop to be complete, in order.
        pub checks: Vec<CheckEntry>;
        /// Commands that install the dependencies of the checks. They run at the base, with the network of the package registries; work trees
        /// get a copy of the result, which is kept until a lock file changes. A command that writes other files than `environment.cache`
        /// runs again in each work tree: `docs/guides/your-repository.md`.
        pub setup: Vec<String>;
        /// Network of `setup`, and results that are kept: `docs/guides/your-repository.md`.
        pub environment: RepositoryEnvironment;
        /// Type of work in this repository; estimated by default.
        pub task_type: Option<TaskType>;
        /// Facts about every task in this repository; omitted facts are estimated. A `ralph` block in an issue can state them too.
        pub task: StatedFacts => section;
        /// Facts about tasks by label of the issue; they take precedence over `task`.
        pub labels: BTreeMap<String, StatedFacts> => section;
        /// Progress reports on the issue: a comment per iteration, or the status comment only.
        pub progress: Option<ProgressReport>;
        /// Loops that make a plan for approval before the first iteration: loops with `/ralph plan` or the label `ralph:plan`,
        /// or every loop; the operator's if omitted or less strict.
        pub plan: Option<PlanPolicy>;
        /// Protected paths, which an agent may not change.
        pub protected: RepositoryProtected;
        /// Response to weakened tests.
        pub tampering: RepositoryTampering => section;
        /// Logins of accounts, and teams as `organization/team`, that are requested as reviewers.
        pub reviewers: Option<Vec<String>>;
        /// Labels that a host of the service needs for the work of this repository, such as `gpu`: `docs/guides/hosts.md`.
        pub runs_on: Vec<String>;
        /// Base branch; the default branch if omitted.
        pub base: Option<String>;
        /// Limits at which the bot stops.
        pub limits: RepositoryLimits => section;
        /// Maximum wait for CI to start on a ready pull request, before `/ralph merge-when-ready` merges it without. By default
        /// `10m`; two minutes if neither workflows nor checks of the base show that the repository has CI.
        pub ci_wait: Option<Duration>, in Duration::seconds(1)..;
        /// Rules for the bot's commits and pull requests.
        pub commits: RepositoryCommits;
        /// Names of the operator's optional hooks that run for this repository as well.
        pub hooks: Vec<String>;
        /// Second opinion of another backend before a pull request becomes ready.
        pub review: RepositoryReview;
        /// Whether checks are detected from the tree, or proposed, if none are given.
        pub detect: Option<bool>;
        /// Level of prompt adaptation; at most the operator's.
        pub intelligence: Option<Intelligence>;
        /// Defaults of `control`, `oversight` and `strategy`; the operator's if omitted.
        pub preset: Option<SupervisionPreset>;
        /// Control of loops, merged over the operator's; without `enabled` and `auto_intervene`.
        #[schemars(with = "ControlSettings")]
        pub control: Map<String, Value>;
        /// Detections and interventions, merged over the operator's; without the keys that are `true` or `false`, which only the
        /// operator can set.
        #[schemars(with = "OversightSettings")]
        pub oversight: Map<String, Value>;
        /// Planning of iterations, merged over the operator's.
        #[schemars(with = "StrategySettings")]
        pub strategy: Map<String, Value>;
    }
}

config_section! {
    /// Network of `setup`, and results that are kept: `docs/guides/your-repository.md`.
    pub struct RepositoryEnvironment {
        /// Globs of ignored files and folders, from the root of the tree, that `setup` creates and that are kept, in addition to
        /// the usual ones (`node_modules`, `.venv`, `target`, `vendor`, …); `*` does not match `/`.
        pub cache: Vec<String>;
        /// Hosts that `setup` can reach at the base, without a port and at public addresses, and names of ecosystems (`npm`,
        /// `pypi`, `cargo`, `go`, …), which mean their registries; the registries of the detected ecosystems if omitted, no network if
        /// empty or if the operator's `sandbox.network` is `none`.
        pub network: Option<Vec<String>>;
    }
}

/// A check: a command that must exit 0, or a command with a rule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum CheckEntry {
    Command(String),
    Full(CheckSection),
}

config_section! {
    /// A command with a rule for its outcome.
    pub struct CheckSection {
        /// Short name; derived from the command by default.
        pub name: Option<String>;
        /// Command, run by `sh -c` in the root of the tree. Required.
        pub run: String;
        /// Condition to pass: exit code 0, also no output, also a minimum percentage, or also a number within bounds. The
        /// report of a test runner can count against exit code 0, except for `count`: see docs/reference/runners.md.
        pub kind: CheckKind;
        /// Regular expression whose first group is the number, for `coverage` and `count`.
        pub pattern: Option<String>;
        /// Minimum percentage, for `coverage`.
        pub min: Option<f64>;
        /// Minimum number, for `count`.
        pub at_least: Option<f64>;
        /// Maximum number, for `count`.
        pub at_most: Option<f64>;
        /// Whether the number alone decides, for `count`, independently of the exit code: for example for a linter that exits with 1 if it finds something.
        pub any_exit: bool;
        /// Time limit of one run; the operator's `checks.timeout` if omitted.
        pub timeout: Option<Duration>;
        /// Regular expression with groups named `passed`, `failed` or `skipped` that reads test counts from the output.
        pub counts: Option<String>;
        /// Path of the JUnit report that it writes, or a pattern for several (`*` does not match `/`); preferred to printed test
        /// counts.
        pub junit: Option<String>;
    }
}

/// Condition for a check to pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CheckKind {
    #[default]
    ExitCode,
    EmptyOutput,
    Coverage,
    Count,
}

config_section! {
    /// Protected paths, which an agent may not change.
    pub struct RepositoryProtected {
        /// Reaction to a change; the operator's if omitted or less strict.
        pub policy: Option<ProtectedPolicy>;
        /// Globs from the root of the tree, in addition to the operator's; `*` does not match `/`.
        pub paths: Vec<String>;
    }
}

config_section! {
    /// Rules for the bot's commits and pull requests.
    pub struct RepositoryCommits {
        /// Whether commits have a `Signed-off-by` line of the bot. By default, if the base has `.github/dco.yml`, a workflow that
        /// names DCO, or signed-off lines in most of its newest commits.
        pub signoff: Option<bool>;
        /// Title of commits and pull requests: text with `{title}`, the title of the issue, and optionally `{type}`, its type, such as
        /// `feat` or `fix`, and `{issue}`, its number. By default `{type}: {title}` if the repository has a configuration of
        /// commitlint, otherwise the title.
        pub title: Option<String>;
    }
}

config_section! {
    /// Response to weakened tests.
    pub struct RepositoryTampering {
        /// Iterations with an open finding after which the bot puts the tests of the base back itself; the operator's if
        /// omitted.
        pub iterations: Option<u32>, in 1..=100;
    }
}

config_section! {
    /// Second opinion of another backend before a pull request becomes ready.
    pub struct RepositoryReview {
        /// Time at which the service asks the operator's backend; the operator's time if omitted. `never` turns it off.
        pub when: Option<ReviewTime>;
    }
}
