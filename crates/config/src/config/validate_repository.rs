//! Parses the repository's file and checks constraints that its types cannot express. Has no side effects.

use std::collections::BTreeSet;

use super::problem::{ConfigProblem, ProblemCollector};
use super::repository::{CheckEntry, CheckKind, CheckSection, RepositoryEnvironment, RepositoryFile};
use super::schema_check::SchemaView;
use super::supervision_keys::{self, SupervisionKeys};
use super::yaml::YamlNode;
use super::{removed, renamed, schema, typed, validate};
use crate::domain::checks::criteria::report_path;
use crate::domain::checks::dependencies::{EnvironmentSettings, ecosystem_names};
use crate::domain::model::ids::Percent;
use crate::domain::model::quantity::Duration;
use crate::domain::model::settings::ConfigSection as _;
use crate::domain::model::stated_facts::StatedFacts;
use crate::domain::model::task::{Check, CheckRule, CheckSource};
use crate::domain::trust::bounds::REPOSITORY_FILE_BYTES;
use crate::domain::trust::commit_rules::CommitRules;
use crate::domain::trust::egress::Hosts;
use crate::domain::trust::policy::{CHECK_NAME_MAX, Policy, RepositorySettings, check_name_for, valid_check_name};

/// Maximum number of checks, and of setup commands.
const COMMANDS_MAX: usize = 50;

/// Maximum length of a command, in bytes.
const COMMAND_MAX: usize = 4096;

/// Parses `text`, the file at `path`. Validates thresholds after merging them with the thresholds of `operator`.
///
/// # Errors
/// All problems in the file, in file order; never empty.
pub fn parse_repository(path: &str, text: &str, operator: &Policy) -> Result<RepositorySettings, Vec<ConfigProblem>> {
    let mut report = ProblemCollector::new(path);
    if text.len() > REPOSITORY_FILE_BYTES {
        report.add(
            Default::default(),
            "",
            format!("{} bytes; at most {REPOSITORY_FILE_BYTES} are allowed", text.len()),
        );
        return Err(report.into_problems().0);
    }
    let Some(mut root) = YamlNode::parse(text, &mut report) else { return Err(report.into_problems().0) };
    removed::drop_from(&mut root, "", &mut report);
    renamed::supervision(&mut root, &mut report);
    let schema = schema::repository_types();
    let Some(file) = typed::<RepositoryFile>(&root, SchemaView::new(schema), &mut report) else {
        return Err(report.into_problems().0);
    };
    let mut check = RepositoryValidator { root: &root, operator, report };
    let settings = check.settings(file);
    check.report.into_result(settings).map_err(|problems| problems.0)
}

struct RepositoryValidator<'a> {
    root: &'a YamlNode,
    operator: &'a Policy,
    report: ProblemCollector,
}

impl RepositoryValidator<'_> {
    fn wrong(&mut self, key: &str, message: impl std::fmt::Display) {
        let place = self.root.place_at(key);
        self.report.add(place, key, format!("`{key}`: {message:#}"));
    }

    fn settings(&mut self, file: RepositoryFile) -> RepositorySettings {
        for problem in file.check("") {
            self.report.add(self.root.place_at(&problem.key), problem.key, problem.message);
        }
        let checks = self.checks(&file.checks);
        self.facts("task", &file.task);
        for (name, facts) in &file.labels {
            self.facts(&format!("labels.{name}"), facts);
        }
        self.setup(&file.setup);
        self.environment(&file.environment);
        for (index, glob) in file.protected.paths.iter().enumerate() {
            if let Err(error) = globset::Glob::new(glob) {
                self.wrong(&format!("protected.paths[{index}]"), format!("invalid pattern: {}", error.kind()));
            }
        }
        for (index, login) in file.reviewers.iter().flatten().enumerate() {
            let harmless = |name: &str| {
                let plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
                plain && !name.is_empty() && name.len() <= 64
            };
            let parts: Vec<&str> = login.split('/').collect();
            if parts.len() > 2 || !parts.into_iter().all(harmless) {
                self.wrong(&format!("reviewers[{index}]"), "expected a login or `organization/team`, without `@`");
            }
        }
        validate::labels::check(&mut self.report, self.root, "runs_on", &file.runs_on);
        if file
            .base
            .as_ref()
            .is_some_and(|base| !validate::commits::valid_branch_prefix(base) || base.ends_with(['/', '.']))
        {
            self.wrong("base", "expected the name of a branch");
        }
        if let Some(title) = &file.commits.title
            && (!title.contains("{title}") || title.contains(char::is_control) || title.len() > 200)
        {
            self.wrong("commits.title", "expected a line of at most 200 characters that contains `{title}`");
        }
        for (index, name) in file.hooks.iter().enumerate() {
            if !self.operator.hooks.iter().any(|hook| hook.name == *name) {
                self.wrong(&format!("hooks[{index}]"), "the operator has no hook of this name");
            }
        }
        supervision_keys::refuse_operator_keys(self.root, &mut self.report);
        let thresholds = SupervisionKeys {
            preset: file.preset,
            control: file.control,
            oversight: file.oversight,
            strategy: file.strategy,
        };
        let thresholds = thresholds.check(&self.operator.thresholds, self.root, &mut self.report);
        RepositorySettings {
            checks,
            setup: file.setup,
            environment: EnvironmentSettings { cache: file.environment.cache, network: file.environment.network },
            task_type: file.task_type,
            task: file.task,
            task_labels: file.labels,
            progress: file.progress,
            plan: file.plan,
            protected: file.protected.policy,
            protected_paths: file.protected.paths,
            reviewers: file.reviewers,
            base: file.base,
            limits: file.limits,
            detect_checks: file.detect,
            intelligence: file.intelligence,
            tampering_iterations: file.tampering.iterations,
            thresholds,
            ci_wait_s: file.ci_wait.map(Duration::as_seconds),
            commits: CommitRules { signoff: file.commits.signoff, title: file.commits.title, ..CommitRules::default() },
            runs_on: file.runs_on,
            hooks: file.hooks,
            review: file.review.when,
            warnings: self.report.take_warnings().iter().map(ToString::to_string).collect(),
        }
    }

    /// Checks stated facts; the schema check has already reported numbers out of range.
    fn facts(&mut self, key: &str, facts: &StatedFacts) {
        let in_range = facts.check(key).is_empty();
        if let Some(message) = facts.problem(key).filter(|_| in_range) {
            self.report.add(self.root.place_at(&format!("{key}.scope")), format!("{key}.scope"), message);
        }
    }

    fn setup(&mut self, commands: &[String]) {
        if commands.len() > COMMANDS_MAX {
            self.wrong("setup", format!("{} commands; at most {COMMANDS_MAX} are allowed", commands.len()));
        }
        for (index, command) in commands.iter().enumerate() {
            self.command(&format!("setup[{index}]"), command);
        }
    }

    fn environment(&mut self, environment: &RepositoryEnvironment) {
        for (index, glob) in environment.cache.iter().enumerate() {
            let key = format!("environment.cache[{index}]");
            if let Err(error) = globset::Glob::new(glob) {
                self.wrong(&key, format!("invalid pattern: {}", error.kind()));
            } else if glob.starts_with('/') || glob.split('/').any(|part| part == "..") {
                self.wrong(&key, "expected a path below the root of the tree");
            }
        }
        for (index, host) in environment.network.iter().flatten().enumerate() {
            let is_ecosystem = ecosystem_names().any(|name| name == host);
            // A host with a port would also be reachable at private addresses, which only the operator may allow.
            let is_public = host.contains('.') && !host.contains([':', '/', '[']) && Hosts::parse([host]).is_ok();
            if !is_ecosystem && !is_public {
                let names = ecosystem_names().collect::<Vec<_>>().join(", ");
                let message = format!("expected a host such as `example.org`, without a port, or one of {names}");
                self.wrong(&format!("environment.network[{index}]"), message);
            }
        }
    }

    fn command(&mut self, key: &str, command: &str) {
        if command.trim().is_empty() {
            self.wrong(key, "the command is empty");
        } else if command.len() > COMMAND_MAX || command.contains('\0') {
            self.wrong(key, format!("a command must have at most {COMMAND_MAX} bytes and no zero byte"));
        }
    }

    fn checks(&mut self, entries: &[CheckEntry]) -> Vec<Check> {
        if entries.len() > COMMANDS_MAX {
            self.wrong("checks", format!("{} checks; at most {COMMANDS_MAX} are allowed", entries.len()));
        }
        let mut names = BTreeSet::new();
        let mut checks = Vec::new();
        for (index, entry) in entries.iter().enumerate().take(COMMANDS_MAX) {
            let key = format!("checks[{index}]");
            let section = match entry {
                CheckEntry::Command(run) => {
                    self.command(&key, run);
                    CheckSection { run: run.clone(), ..CheckSection::default() }
                }
                CheckEntry::Full(section) => {
                    let run = if section.run.is_empty() { key.clone() } else { format!("{key}.run") };
                    self.command(&run, &section.run);
                    section.clone()
                }
            };
            let name = self.check_name(&key, &section, &names);
            names.insert(name.clone());
            checks.push(Check {
                name,
                rule: self.rule(&key, &section),
                timeout_s: self.check_timeout(&key, section.timeout),
                counts: section.counts.as_deref().and_then(|pattern| self.counts(&key, pattern)),
                junit: section.junit.filter(|glob| self.report(&key, glob)),
                command: section.run,
                source: CheckSource::RepositoryFile,
            });
        }
        checks
    }

    fn check_name(&mut self, key: &str, section: &CheckSection, taken: &BTreeSet<String>) -> String {
        let Some(name) = &section.name else {
            let stem = check_name_for(&section.run);
            let numbered = (2..).map(|n| {
                let tail = format!(" {n}");
                let head: String = stem.chars().take(CHECK_NAME_MAX - tail.len()).collect();
                format!("{}{tail}", head.trim_end())
            });
            return std::iter::once(stem.clone()).chain(numbered).find(|n| !taken.contains(n)).unwrap_or(stem);
        };
        let key = format!("{key}.name");
        if !valid_check_name(name) {
            let rule = format!("expected 1 to {CHECK_NAME_MAX} letters, digits, spaces and `-_./:+,=@%`");
            self.wrong(&key, rule);
        } else if taken.contains(name) {
            self.wrong(&key, format!("two checks are named `{name}`"));
        }
        name.clone()
    }

    fn check_timeout(&mut self, key: &str, timeout: Option<Duration>) -> Option<u64> {
        let seconds = timeout.map(Duration::as_seconds);
        if seconds == Some(0) {
            self.wrong(&format!("{key}.timeout"), "must be at least 1s");
        }
        seconds
    }

    /// Returns the rule of a check. Keys required by its kind must be present, and keys that it does not read must be
    /// absent.
    fn rule(&mut self, key: &str, section: &CheckSection) -> CheckRule {
        let (needs_pattern, reads): (bool, &[&str]) = match section.kind {
            CheckKind::ExitCode | CheckKind::EmptyOutput => (false, &[]),
            CheckKind::Coverage => (true, &["pattern", "min"]),
            CheckKind::Count => (true, &["pattern", "at_least", "at_most", "any_exit"]),
        };
        let given = [
            ("pattern", section.pattern.is_some()),
            ("min", section.min.is_some()),
            ("at_least", section.at_least.is_some()),
            ("at_most", section.at_most.is_some()),
            ("any_exit", section.any_exit),
        ];
        for (field, is_given) in given {
            if is_given && !reads.contains(&field) {
                let kind = if field == "min" { "coverage" } else { "count" };
                self.wrong(&format!("{key}.{field}"), format!("has no effect without `kind: {kind}`; remove it"));
            }
        }
        if needs_pattern {
            self.number_pattern(key, section.pattern.as_deref());
        }
        let pattern = section.pattern.clone().unwrap_or_default();
        match section.kind {
            CheckKind::ExitCode => CheckRule::ExitCode,
            CheckKind::EmptyOutput => CheckRule::EmptyOutput,
            CheckKind::Coverage => {
                match section.min {
                    None => self.wrong(key, "`min` is missing; set it to the minimum percentage"),
                    Some(min) if !(0.0..=100.0).contains(&min) => {
                        self.wrong(&format!("{key}.min"), "expected a percentage from 0 to 100");
                    }
                    Some(_) => {}
                }
                CheckRule::Coverage { pattern, min: Percent(section.min.unwrap_or_default()) }
            }
            CheckKind::Count => {
                match (section.at_least, section.at_most) {
                    (None, None) => self.wrong(key, "`at_least` or `at_most` is missing"),
                    (Some(low), Some(high)) if low > high => {
                        self.wrong(&format!("{key}.at_least"), format!("more than `at_most`, which is {high}"));
                    }
                    _ => {}
                }
                let CheckSection { at_least, at_most, any_exit, .. } = *section;
                CheckRule::Count { pattern, at_least, at_most, any_exit }
            }
        }
    }

    fn number_pattern(&mut self, key: &str, pattern: Option<&str>) {
        let Some(pattern) = pattern else {
            return self.wrong(key, "`pattern` is missing; its first group must match the number");
        };
        let key = format!("{key}.pattern");
        match regex::Regex::new(pattern) {
            Ok(regex) if regex.captures_len() < 2 => self.wrong(&key, "the pattern needs a group `(…)` for the number"),
            Ok(_) => {}
            Err(_) => self.wrong(&key, "invalid regular expression"),
        }
    }

    /// Whether a pattern for JUnit reports is valid.
    fn report(&mut self, key: &str, glob: &str) -> bool {
        let valid = report_path(glob);
        if let Err(reason) = &valid {
            self.wrong(&format!("{key}.junit"), reason.to_string());
        }
        valid.is_ok()
    }

    fn counts(&mut self, key: &str, pattern: &str) -> Option<String> {
        let key = format!("{key}.counts");
        match regex::Regex::new(pattern) {
            Ok(regex) if regex.capture_names().flatten().any(|n| matches!(n, "passed" | "failed" | "skipped")) => {
                return Some(pattern.to_owned());
            }
            Ok(_) => self.wrong(&key, "the pattern needs a group named `passed`, `failed` or `skipped`"),
            Err(_) => self.wrong(&key, "invalid regular expression"),
        }
        None
    }
}
