//! Policy: settings that decisions depend on, merged from the operator's and the repository's configuration.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::domain::checks::criteria::TaskType;
use crate::domain::checks::dependencies::EnvironmentSettings;
use crate::domain::model::event::names_label;
use crate::domain::model::hook::{HookEvent, HookName};
use crate::domain::model::ids::UserId;
use crate::domain::model::settings::{config_section, overlay};
use crate::domain::model::stated_facts::StatedFacts;
use crate::domain::model::task::Check;
use crate::domain::providers::rules::ScheduleEntry;
use crate::domain::supervision::SupervisionSettings;
use crate::domain::trust::commit_rules::CommitRules;
use crate::domain::trust::limits::{self, Limits, RepositoryLimits};
use crate::domain::trust::permit::TeamRef;
use crate::domain::trust::protected::{Protected, ProtectedPolicy};

/// Default user id of the first sandbox user. No package, container or systemd unit uses this id or higher ones, because the
/// range from 1,879,048,192 on is unassigned.
pub const SANDBOX_USER: u32 = 2_000_000_000;
/// Number of sandbox users. Each run has a separate user.
pub const SANDBOX_USERS: u32 = 256;

/// Extent to which a loop uses the intelligence layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Intelligence {
    /// The plain prompt: task, checks, failures, guidance, directives of supervision. No model is called.
    Off,
    /// Everything that needs no model: the context block, situational advice, reports extracted from final
    /// messages.
    #[serde(alias = "fallback")]
    Facts,
    /// Like `facts`. In addition, an assistant writes the context block and the summaries, each at most once per
    /// `memory.summary_interval` iterations. Without an assistant or its answer it is like `facts`.
    #[default]
    Summaries,
    /// Like `summaries`, at every iteration. The assistant also advises on prompts, reflects on failed iterations, and reads
    /// final messages.
    Full,
}

impl Intelligence {
    /// Whether the parts that need no model are used.
    pub fn adapts(self) -> bool {
        self != Self::Off
    }

    /// Whether the service asks assistants.
    pub fn asks(self) -> bool {
        matches!(self, Self::Summaries | Self::Full)
    }
}

/// Maximum length of the name of a check, in characters.
pub const CHECK_NAME_MAX: usize = 60;

/// Lowest access level for commands and the label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MinimumAccess {
    /// Can push.
    #[default]
    Write,
    /// Can manage some settings.
    Maintain,
    /// Can do everything.
    Admin,
}

/// Way in which a loop reports on its issue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ProgressReport {
    /// A comment per iteration, in addition to the status comment.
    #[default]
    Comments,
    /// Only the status comment.
    StatusOnly,
}

/// Policy that decides which loops start with a plan for approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PlanPolicy {
    /// Only loops that are requested with `/ralph plan` or the label for plans.
    #[default]
    OnRequest,
    /// Every loop.
    Required,
}

config_section! {
    /// Response to weakened tests: while a finding is open, a loop does not reach `review`.
    pub struct TamperingPolicy {
        /// Number of iterations with an open finding after which the loop asks a maintainer.
        pub iterations: u32 = 2, in 1..=100;
    }
}

/// Time at which the service asks another backend for a second opinion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReviewTime {
    /// Never.
    Never,
    /// Before a pull request becomes ready for review.
    #[default]
    Ready,
}

/// Second opinion before a pull request becomes ready for review.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReviewPolicy {
    /// Backend that gives the opinion.
    pub backend: String,
    /// Maximum duration of the review run, in seconds.
    pub timeout_s: u64,
}

/// Settings that the decisions about one repository depend on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Policy {
    /// Prefix of the bot's labels (`ralph:`).
    pub label_prefix: String,
    /// Lowest access level for commands and the label.
    pub floor: MinimumAccess,
    /// Accounts of this forge that may give commands at any access level.
    pub allow: Vec<UserId>,
    /// Teams of this forge whose members may give commands at any access level.
    #[serde(default)]
    pub teams: Vec<TeamRef>,
    /// Bot accounts of this forge whose commands are accepted.
    pub allow_bots: Vec<UserId>,
    /// Limits of loops, of runs of agents and of the service.
    #[serde(deserialize_with = "limits::stored")]
    pub limits: Limits,
    /// Way in which loops report.
    pub progress: ProgressReport,
    /// Policy that decides which loops start with a plan for approval.
    #[serde(default)]
    pub plan: PlanPolicy,
    /// Whether checks are detected in the tree if none are configured.
    pub detect_checks: bool,
    /// Paths that agents must not change.
    pub protected: Protected,
    /// Logins of people whose review is requested, in addition to the person who started the loop.
    pub reviewers: Vec<String>,
    /// Prefix of the bot's branches (`ralph/`).
    pub branch_prefix: String,
    /// Whether the branch of an ended loop is deleted.
    pub delete_branch: bool,
    /// Commands that install the dependencies of the checks, run at the base and, where necessary, in each work tree.
    pub setup: Vec<String>,
    /// Network of these commands, and results that are kept.
    #[serde(default)]
    pub environment: EnvironmentSettings,
    /// Checks of the repository's file.
    pub checks: Vec<Check>,
    /// Branch to work from; `None` for the default branch.
    pub base: Option<String>,
    /// Type of every task, if the repository's file states it.
    pub task_type: Option<TaskType>,
    /// Facts that the repository's file states about every task.
    #[serde(default, skip_serializing_if = "StatedFacts::is_empty")]
    pub task: StatedFacts,
    /// Facts that the repository's file states about tasks with a label, by label.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub task_labels: BTreeMap<String, StatedFacts>,
    /// Schedule of the operator: rules that act on a condition or at a time.
    #[serde(default)]
    pub schedule: Vec<ScheduleEntry>,
    /// Extent to which a loop uses the intelligence layer.
    #[serde(default = "off")]
    pub intelligence: Intelligence,
    /// Response to weakened tests.
    #[serde(default)]
    pub tampering: TamperingPolicy,
    /// Time after which an unanswered escalation is repeated once, in seconds.
    #[serde(default = "remind_after_default")]
    pub remind_after_s: u64,
    /// Keys of `preset`, `control`, `oversight` and `strategy` that the configuration files set. The repository's keys override
    /// the operator's.
    pub thresholds: Map<String, Value>,
    /// Hooks of the operator, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<HookName>,
    /// Second opinion; `None` if none is requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub review: Option<ReviewPolicy>,
    /// Maximum wait of a merge for CI to start, in seconds.
    #[serde(default = "ci_wait_default")]
    pub ci_wait_s: u64,
    /// Rules of commits and pull requests.
    #[serde(default)]
    pub commits: CommitRules,
    /// Labels that a host needs for the work of the loop.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs_on: Vec<String>,
}

/// Returns ten minutes, in seconds.
fn ci_wait_default() -> u64 {
    600
}

/// Default for loops that were stored before this setting existed.
fn off() -> Intelligence {
    Intelligence::Off
}

/// Returns one day, in seconds.
fn remind_after_default() -> u64 {
    24 * 3_600
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            label_prefix: "ralph:".to_owned(),
            floor: MinimumAccess::default(),
            allow: Vec::new(),
            teams: Vec::new(),
            allow_bots: Vec::new(),
            limits: Limits::default(),
            progress: ProgressReport::default(),
            plan: PlanPolicy::default(),
            detect_checks: true,
            protected: Protected::default(),
            reviewers: Vec::new(),
            branch_prefix: "ralph/".to_owned(),
            delete_branch: false,
            setup: Vec::new(),
            environment: EnvironmentSettings::default(),
            checks: Vec::new(),
            base: None,
            task_type: None,
            task: StatedFacts::default(),
            task_labels: BTreeMap::new(),
            schedule: Vec::new(),
            intelligence: Intelligence::Off,
            tampering: TamperingPolicy::default(),
            remind_after_s: remind_after_default(),
            thresholds: Map::new(),
            hooks: Vec::new(),
            review: None,
            ci_wait_s: ci_wait_default(),
            commits: CommitRules::default(),
            runs_on: Vec::new(),
        }
    }
}

/// Settings of the repository's configuration file.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RepositorySettings {
    /// Checks, in order.
    pub checks: Vec<Check>,
    /// Commands that install the dependencies of the checks.
    pub setup: Vec<String>,
    /// Network of these commands, and results that are kept.
    #[serde(default)]
    pub environment: EnvironmentSettings,
    /// Type of every task.
    pub task_type: Option<TaskType>,
    /// Facts about every task.
    #[serde(default, skip_serializing_if = "StatedFacts::is_empty")]
    pub task: StatedFacts,
    /// Facts about tasks with a label, by label.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub task_labels: BTreeMap<String, StatedFacts>,
    /// Way in which loops report.
    pub progress: Option<ProgressReport>,
    /// Policy for plans. It can only be stricter than the operator's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanPolicy>,
    /// Response to a change of a protected path. It can only be stricter than the operator's.
    pub protected: Option<ProtectedPolicy>,
    /// Protected paths in addition to the operator's.
    pub protected_paths: Vec<String>,
    /// Logins of people whose review is requested.
    pub reviewers: Option<Vec<String>>,
    /// Branch to work from.
    pub base: Option<String>,
    /// Limits. They can only be lower than the operator's.
    #[serde(deserialize_with = "limits::stored")]
    pub limits: RepositoryLimits,
    /// Whether checks are detected in the tree. Cannot be true if the operator disabled detection.
    pub detect_checks: Option<bool>,
    /// Extent to which loops use the intelligence layer. It can only be less than the operator's.
    #[serde(default)]
    pub intelligence: Option<Intelligence>,
    /// Number of iterations with weakened tests after which the loop asks a maintainer.
    #[serde(default)]
    pub tampering_iterations: Option<u32>,
    /// Keys of `preset`, `control`, `oversight` and `strategy` that the file sets.
    pub thresholds: Map<String, Value>,
    /// Names of the operator's optional hooks that run for this repository as well.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<String>,
    /// Maximum wait of a merge for CI to start, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ci_wait_s: Option<u64>,
    /// Rules of commits and pull requests.
    #[serde(default)]
    pub commits: CommitRules,
    /// Labels that a host needs for the work of loops.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs_on: Vec<String>,
    /// Time of the second opinion. Has no effect if the operator configured none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub review: Option<ReviewTime>,
    /// Warnings about keys that have no effect any more, for the log.
    #[serde(skip)]
    pub warnings: Vec<String>,
}

impl Policy {
    /// Returns the maximum wait of a merge for CI to start, in milliseconds.
    pub fn ci_wait_ms(&self) -> i64 {
        i64::try_from(self.ci_wait_s).unwrap_or(i64::MAX).saturating_mul(1_000)
    }

    /// Returns the time after which an unanswered escalation is repeated, in milliseconds.
    pub fn remind_after_ms(&self) -> i64 {
        i64::try_from(self.remind_after_s).unwrap_or(i64::MAX).saturating_mul(1_000)
    }

    /// Returns the names of the labels that start loops: first the one without a plan, then the one with a plan.
    pub fn start_labels(&self) -> [String; 2] {
        ["run", "plan"].map(|name| format!("{}{name}", self.label_prefix))
    }

    /// Whether a task with these labels starts with a plan.
    pub fn plans_first(&self, labels: &[String]) -> bool {
        let [_, plan] = self.start_labels();
        self.plan == PlanPolicy::Required || names_label(labels, &plan)
    }

    /// Returns this policy combined with the repository's file, which can only lower limits and tighten protection.
    pub fn with_repository(&self, file: &RepositorySettings) -> Policy {
        let mut policy = self.clone();
        policy.limits = self.limits.lowered_to(&file.limits).0;
        policy.protected.policy = policy.protected.policy.max(file.protected.unwrap_or(ProtectedPolicy::Allow));
        for path in &file.protected_paths {
            if !policy.protected.paths.contains(path) {
                policy.protected.paths.push(path.clone());
            }
        }
        policy.detect_checks = self.detect_checks && file.detect_checks.unwrap_or(true);
        policy.intelligence = file.intelligence.map_or(self.intelligence, |wanted| wanted.min(self.intelligence));
        policy.tampering.iterations = file.tampering_iterations.unwrap_or(self.tampering.iterations);
        policy.progress = file.progress.unwrap_or(self.progress);
        policy.plan = self.plan.max(file.plan.unwrap_or_default());
        policy.runs_on = file.runs_on.clone();
        policy.reviewers = file.reviewers.clone().unwrap_or_else(|| self.reviewers.clone());
        policy.base = file.base.clone().or_else(|| self.base.clone());
        policy.task_type = file.task_type.or(self.task_type);
        policy.task.clone_from(&file.task);
        policy.task_labels.clone_from(&file.task_labels);
        policy.setup.extend(file.setup.iter().cloned());
        policy.environment = file.environment.clone();
        policy.checks = file.checks.clone();
        overlay(&mut policy.thresholds, &file.thresholds);
        for hook in &mut policy.hooks {
            hook.optional &= !file.hooks.contains(&hook.name);
        }
        policy.review = policy.review.filter(|_| file.review != Some(ReviewTime::Never));
        policy.ci_wait_s = file.ci_wait_s.unwrap_or(self.ci_wait_s);
        policy.commits.clone_from(&file.commits);
        policy
    }

    /// Returns the names of the hooks that run at an event, in order.
    pub fn hook_names(&self, event: HookEvent) -> impl Iterator<Item = &str> {
        self.hooks.iter().filter(move |hook| hook.event == event && !hook.optional).map(|hook| hook.name.as_str())
    }

    /// Whether any hook runs at an event.
    pub fn has_hooks(&self, event: HookEvent) -> bool {
        self.hook_names(event).next().is_some()
    }

    /// Returns the settings of control, oversight and strategy. A stored group that is no longer valid is replaced by its preset.
    pub fn supervision(&self) -> SupervisionSettings {
        SupervisionSettings::tolerant(&self.thresholds)
    }

    /// Returns one sentence for each setting of `file` that has no effect because the operator's is stricter.
    pub fn overruled(&self, file: &RepositorySettings) -> Vec<String> {
        let (_, mut notes) = self.limits.lowered_to(&file.limits);
        if file.protected.is_some_and(|wanted| wanted < self.protected.policy) {
            notes.push("`protected.policy`: less strict than the operator's, which applies".to_owned());
        }
        if file.plan.is_some_and(|wanted| wanted < self.plan) {
            notes.push("`plan`: less strict than the operator's, which applies".to_owned());
        }
        if file.detect_checks == Some(true) && !self.detect_checks {
            notes.push("`detect`: the operator disabled the detection of checks".to_owned());
        }
        if file.intelligence.is_some_and(|wanted| wanted > self.intelligence) {
            notes.push("`intelligence`: more than the operator's, which applies".to_owned());
        }
        if file.review == Some(ReviewTime::Ready) && self.review.is_none() {
            notes.push("`review.when`: the operator's file asks for no second opinion".to_owned());
        }
        notes
    }
}

/// Whether `c` is valid in the name of a check. Names are displayed, logged and used as keys, so characters with a special
/// meaning in shells, terminals or Markdown are invalid.
fn name_character(c: char) -> bool {
    c.is_alphanumeric() || " -_./:+,=@%".contains(c)
}

/// Whether `name` is a valid name of a check: 1 to [`CHECK_NAME_MAX`] valid characters, without a space at either end.
pub fn valid_check_name(name: &str) -> bool {
    !name.is_empty()
        && name.trim() == name
        && name.chars().count() <= CHECK_NAME_MAX
        && name.chars().all(name_character)
}

/// Derives a valid name for a check from its command: the valid characters, shortened.
pub fn check_name_for(command: &str) -> String {
    let harmless: String = command.chars().map(|c| if name_character(c) { c } else { ' ' }).collect();
    let words = harmless.split_whitespace().collect::<Vec<_>>().join(" ");
    let name: String = words.chars().take(CHECK_NAME_MAX).collect();
    let name = name.trim_end();
    if name.is_empty() { "check".to_owned() } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::model::quantity::IterationLimit;
    use crate::domain::trust::protected::PROTECTED_PATHS;

    fn settings(change: impl FnOnce(&mut RepositorySettings)) -> RepositorySettings {
        let mut file = RepositorySettings::default();
        change(&mut file);
        file
    }

    #[test]
    fn empty_repository_file_changes_no_setting() {
        let policy = Policy { checks: Vec::new(), ..Policy::default() };
        assert_eq!(policy.with_repository(&RepositorySettings::default()), policy);
        assert!(policy.overruled(&RepositorySettings::default()).is_empty());
    }

    #[test]
    fn repository_limits_apply_and_higher_ones_are_reported() {
        let policy = Policy::default();
        let file = settings(|f| {
            f.limits = RepositoryLimits {
                iterations: Some(IterationLimit::of(3)),
                comments_per_day: Some(1000),
                ..Default::default()
            };
        });
        let expected = Limits { iterations: IterationLimit::of(3), ..policy.limits.clone() };
        assert_eq!(policy.with_repository(&file).limits, expected);
        assert_eq!(
            policy.overruled(&file),
            ["`limits.comments_per_day`: 1000 is above the operator's limit; 30 applies"]
        );
    }

    #[test]
    fn repository_can_only_raise_protection() {
        for (operator, repository, result) in [
            (ProtectedPolicy::Restore, Some(ProtectedPolicy::Allow), ProtectedPolicy::Restore),
            (ProtectedPolicy::Restore, Some(ProtectedPolicy::Block), ProtectedPolicy::Block),
            (ProtectedPolicy::Allow, None, ProtectedPolicy::Allow),
            (ProtectedPolicy::Block, None, ProtectedPolicy::Block),
        ] {
            let mut policy = Policy::default();
            policy.protected.policy = operator;
            let file = settings(|f| {
                f.protected = repository;
                f.protected_paths = vec!["deploy/**".to_owned(), "CODEOWNERS".to_owned()];
            });
            let merged = policy.with_repository(&file).protected;
            assert_eq!(merged.policy, result);
            assert_eq!(merged.paths.len(), PROTECTED_PATHS.len() + 1, "added once, none taken away");
            assert_eq!(policy.overruled(&file).len(), usize::from(repository.is_some_and(|r| r < operator)));
        }
    }

    #[test]
    fn repository_can_only_require_plans() {
        use PlanPolicy::{OnRequest, Required};
        let of = |ours, theirs| {
            let operator = Policy { plan: ours, ..Policy::default() };
            let file = settings(|f| f.plan = theirs);
            (operator.with_repository(&file).plan, operator.overruled(&file).len())
        };
        assert_eq!(of(OnRequest, None), (OnRequest, 0));
        assert_eq!(of(OnRequest, Some(Required)), (Required, 0));
        assert_eq!(of(Required, None), (Required, 0));
        assert_eq!(of(Required, Some(OnRequest)), (Required, 1));
    }

    #[test]
    fn label_or_policy_asks_for_a_plan() {
        let labels = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let policy = Policy::default();
        assert_eq!(policy.start_labels(), ["ralph:run", "ralph:plan"]);
        assert!(!policy.plans_first(&labels(&["ralph:run", "plan"])));
        assert!(policy.plans_first(&labels(&["ralph:run", "Ralph:Plan"])));
        assert!(Policy { plan: PlanPolicy::Required, ..policy }.plans_first(&[]));
    }

    #[test]
    fn check_detection_disabled_by_operator_stays_disabled() {
        let refused = Policy { detect_checks: false, ..Policy::default() };
        let file = settings(|f| f.detect_checks = Some(true));
        assert!(!refused.with_repository(&file).detect_checks);
        assert_eq!(refused.overruled(&file).len(), 1);
        assert!(!Policy::default().with_repository(&settings(|f| f.detect_checks = Some(false))).detect_checks);
    }

    #[test]
    fn repository_can_only_lower_intelligence() {
        let of = |ours, theirs| {
            let operator = Policy { intelligence: ours, ..Policy::default() };
            let file = settings(|f| f.intelligence = theirs);
            (operator.with_repository(&file).intelligence, operator.overruled(&file).len())
        };
        use Intelligence::{Facts, Full, Off, Summaries};
        assert_eq!(of(Full, None), (Full, 0));
        assert_eq!(of(Full, Some(Off)), (Off, 0));
        assert_eq!(of(Full, Some(Summaries)), (Summaries, 0));
        assert_eq!(of(Facts, Some(Facts)), (Facts, 0));
        assert_eq!(of(Facts, Some(Summaries)), (Facts, 1));
        assert_eq!(serde_json::from_str::<Intelligence>("\"fallback\"").expect("the old name"), Facts);
        assert_eq!(of(Off, Some(Full)), (Off, 1));
    }

    #[test]
    fn repository_can_only_switch_the_second_opinion_off() {
        let review = ReviewPolicy { backend: "codex".to_owned(), timeout_s: 60 };
        for (operator, wanted, applies, notes) in [
            (Some(review.clone()), None, true, 0),
            (Some(review.clone()), Some(ReviewTime::Ready), true, 0),
            (Some(review), Some(ReviewTime::Never), false, 0),
            (None, Some(ReviewTime::Ready), false, 1),
            (None, Some(ReviewTime::Never), false, 0),
        ] {
            let policy = Policy { review: operator, ..Policy::default() };
            let file = settings(|f| f.review = wanted);
            assert_eq!(policy.with_repository(&file).review.is_some(), applies, "{policy:?} {wanted:?}");
            assert_eq!(policy.overruled(&file).len(), notes, "{policy:?} {wanted:?}");
        }
    }

    #[test]
    fn policy_stored_without_intelligence_uses_none() {
        let mut stored = serde_json::to_value(Policy::default()).unwrap();
        let fields = stored.as_object_mut().unwrap();
        assert!(fields.remove("intelligence").is_some() && fields.remove("schedule").is_some());
        let policy: Policy = serde_json::from_value(stored).unwrap();
        assert_eq!((policy.intelligence, policy.schedule), (Intelligence::Off, Vec::new()));
    }

    #[test]
    fn repository_thresholds_override_operator_thresholds() {
        let map = |value: Value| value.as_object().cloned().unwrap();
        let operator = Policy {
            thresholds: map(
                serde_json::json!({ "control": { "window": 9, "decay": 0.8 }, "oversight": { "climb_after": 3 } }),
            ),
            ..Policy::default()
        };
        let file = settings(|f| {
            f.thresholds = map(serde_json::json!({ "control": { "decay": 0.7 }, "strategy": { "late": 0.7 } }))
        });
        let merged = operator.with_repository(&file);
        assert_eq!(
            Value::Object(merged.thresholds.clone()),
            serde_json::json!({
                "control": { "window": 9, "decay": 0.7 },
                "oversight": { "climb_after": 3 },
                "strategy": { "late": 0.7 },
            })
        );
        let supervision = merged.supervision();
        assert_eq!((supervision.control.window, supervision.control.decay), (9, 0.7));
        assert_eq!((supervision.oversight.climb_after, supervision.strategy.late), (3, 0.7));
        assert_eq!(Policy::default().supervision(), SupervisionSettings::default());
        let old = Policy { thresholds: map(serde_json::json!({ "control": { "gone": 1 }, "stuck": 4 })), ..operator };
        assert_eq!(old.supervision(), SupervisionSettings::default());
    }

    #[test]
    fn check_names_contain_no_shell_characters() {
        for good in ["test", "cargo test --all", "täst", "lint/ui"] {
            assert!(valid_check_name(good), "{good}");
        }
        let long = "x".repeat(CHECK_NAME_MAX + 1);
        for bad in
            ["", " a", "a ", "a;b", "a\nb", "$(id)", "`id`", "a|b", "a&b", "a>b", "a'b", "a\"b", "\u{1b}[1m", &long]
        {
            assert!(!valid_check_name(bad), "{bad:?}");
        }
    }

    #[test]
    fn name_derived_from_command_is_valid() {
        let long = "a;".repeat(500);
        for (command, name) in [
            ("cargo test", "cargo test"),
            ("npm ci && npm test", "npm ci npm test"),
            ("$()`", "check"),
            ("", "check"),
            ("\n\n", "check"),
        ] {
            assert_eq!(check_name_for(command), name);
        }
        assert!(valid_check_name(&check_name_for(&long)));
    }
}
