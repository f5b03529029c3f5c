//! File for `ralph-bot local --tasks`: tasks with their checks and limits.

use std::path::Path;

use super::problem::ProblemCollector;
use super::schema_check::SchemaView;
use super::yaml::YamlNode;
use super::{ConfigProblems, read_limited, typed};
use crate::domain::loops::RunOptions;
use crate::domain::model::quantity::{Duration, IterationLimit, Usd};
use crate::domain::model::settings::{ConfigSection as _, config_section};

/// Maximum number of tasks in a file.
const TASKS_MAX: usize = 1_000;

config_section! {
    /// A file with tasks.
    pub struct TasksFile {
        /// Options of every task that does not set them itself.
        pub defaults: TaskOptions => section;
        /// Tasks, in order; at least one.
        pub tasks: Vec<TaskSection>;
    }
}

config_section! {
    /// Options of a task.
    pub struct TaskOptions {
        /// Commands that must exit with code 0; detected from the repository if empty.
        pub checks: Vec<String>;
        /// Maximum number of iterations.
        pub max_iterations: Option<IterationLimit>, in 1..=1_000;
        /// Maximum working time.
        pub timeout: Option<Duration>, in Duration::seconds(1)..=Duration::hours(720);
        /// Maximum cost in US dollars.
        pub budget_usd: Option<Usd>, in Usd::MIN..;
        /// Name of the backend.
        pub backend: Option<String>;
        /// Branch to start from; the checked-out one if omitted.
        pub base: Option<String>;
    }
}

config_section! {
    /// A task.
    pub struct TaskSection {
        /// Title, one line. Required, and unique among the tasks.
        pub title: String;
        /// Description in Markdown; the title if omitted.
        pub body: String;
        /// Commands that must exit with code 0; the commands of `defaults` if omitted.
        pub checks: Vec<String>;
        /// Maximum number of iterations.
        pub max_iterations: Option<IterationLimit>, in 1..=1_000;
        /// Maximum working time.
        pub timeout: Option<Duration>, in Duration::seconds(1)..=Duration::hours(720);
        /// Maximum cost in US dollars.
        pub budget_usd: Option<Usd>, in Usd::MIN..;
        /// Name of the backend.
        pub backend: Option<String>;
        /// Branch to start from; the checked-out one if omitted.
        pub base: Option<String>;
    }
}

/// Task in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedTask {
    /// Title, one line.
    pub title: String,
    /// Description; not empty.
    pub body: String,
    /// Options of its loop.
    pub options: RunOptions,
}

/// Reads the tasks of the file at `path`.
///
/// # Errors
/// All problems in the file, in file order.
pub fn read_tasks(path: &Path) -> Result<Vec<ListedTask>, ConfigProblems> {
    let name = path.display().to_string();
    let mut report = ProblemCollector::new(&name);
    match read_limited(path) {
        Ok(text) => parse_tasks(&text, report),
        Err(problem) => {
            // The hint refers to the operator's file.
            report.add(Default::default(), "", format!("{:#}", problem.without_hint()));
            Err(report.into_problems())
        }
    }
}

fn parse_tasks(text: &str, mut report: ProblemCollector) -> Result<Vec<ListedTask>, ConfigProblems> {
    let Some(root) = YamlNode::parse(text, &mut report) else { return Err(report.into_problems()) };
    let schema = schemars::schema_for!(TasksFile).to_value();
    let Some(file) = typed::<TasksFile>(&root, SchemaView::new(&schema), &mut report) else {
        return Err(report.into_problems());
    };
    for problem in file.check("") {
        report.add(root.place_at(&problem.key), problem.key.clone(), problem.message);
    }
    if (file.tasks.is_empty() || file.tasks.len() > TASKS_MAX) && !report.is_removed("tasks") && report.is_empty() {
        let message = format!("`tasks`: name 1 to {TASKS_MAX} tasks; there are {}", file.tasks.len());
        report.add(root.place_at("tasks"), "tasks", message);
    }
    let mut tasks: Vec<ListedTask> = Vec::new();
    for (number, task) in file.tasks.into_iter().enumerate() {
        let key = format!("tasks[{number}]");
        let title = task.title.trim().to_owned();
        let out_of_range = task.check(&key);
        let reported: Vec<String> = out_of_range.iter().map(|problem| problem.key.clone()).collect();
        for problem in out_of_range {
            report.add(root.place_at(&problem.key), problem.key, problem.message);
        }
        if title.is_empty() || title.lines().count() > 1 {
            report.add(
                root.place_at(&format!("{key}.title")),
                &key,
                format!("`{key}.title`: give it a title of one line"),
            );
        } else if let Some(same) = tasks.iter().position(|earlier| earlier.title == title) {
            let message = format!("`{key}.title`: task {} has the same title", same + 1);
            report.add(root.place_at(&format!("{key}.title")), format!("{key}.title"), message);
        }
        let mut options = RunOptions::default();
        for (option, key, value) in task.options(&file.defaults, &key) {
            if let Err(problem) = options.set(option, &value)
                && !reported.contains(&key)
            {
                report.add(root.place_at(&key), &key, format!("`{key}`: {problem}"));
            }
        }
        let body = if task.body.trim().is_empty() { title.clone() } else { task.body.trim().to_owned() };
        tasks.push(ListedTask { title, body, options });
    }
    report.into_result(tasks)
}

impl TaskSection {
    /// Returns the options of the task as options of a command: name, key and value.
    fn options(&self, defaults: &TaskOptions, key: &str) -> Vec<(&'static str, String, String)> {
        let (own, shared) = (|name: &str| format!("{key}.{name}"), |name: &str| format!("defaults.{name}"));
        let (checks, of) = match self.checks.is_empty() {
            true => (&defaults.checks, shared("checks")),
            false => (&self.checks, own("checks")),
        };
        let numbered = checks.iter().enumerate();
        let mut options: Vec<_> = numbered.map(|(n, check)| ("--check", format!("{of}[{n}]"), check.clone())).collect();
        let mut add = |option, name: &str, set: Option<String>, default: Option<String>| match (set, default) {
            (Some(value), _) => options.push((option, own(name), value)),
            (None, Some(value)) => options.push((option, shared(name), value)),
            (None, None) => {}
        };
        let text = |value: &Option<IterationLimit>| value.map(|value| value.to_string());
        add("--max-iterations", "max_iterations", text(&self.max_iterations), text(&defaults.max_iterations));
        let text = |value: &Option<Duration>| value.map(|value| format!("{}s", value.as_seconds()));
        add("--timeout", "timeout", text(&self.timeout), text(&defaults.timeout));
        let text = |value: &Option<Usd>| value.map(|value| format!("{:.4}", value.0.usd()));
        add("--budget", "budget_usd", text(&self.budget_usd), text(&defaults.budget_usd));
        add("--backend", "backend", self.backend.clone(), defaults.backend.clone());
        add("--base", "base", self.base.clone(), defaults.base.clone());
        options
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::model::ids::Money;

    fn parse(text: &str) -> Result<Vec<ListedTask>, String> {
        parse_tasks(text, ProblemCollector::new("tasks.yaml")).map_err(|problems| problems.to_string())
    }

    #[test]
    fn tasks_inherit_defaults_and_override_them() {
        let text = "defaults: { checks: [make test], max_iterations: 4, backend: claude }
tasks:
  - title: Fix the parser
    body: |
      It fails on empty input.
    checks: [cargo test parser, cargo clippy]
    timeout: 90m
    budget_usd: 2.5
  - { title: Rename, max_iterations: 9, base: develop }
";
        let tasks = parse(text).expect("valid");
        let first = &tasks[0];
        assert_eq!((first.title.as_str(), first.body.as_str()), ("Fix the parser", "It fails on empty input."));
        assert_eq!(first.options.checks, ["cargo test parser", "cargo clippy"]);
        assert_eq!((first.options.max_iterations, first.options.timeout_s), (Some(IterationLimit::of(4)), Some(5400)));
        assert_eq!(first.options.budget, Some(Money::from_usd(2.5)));
        let second = &tasks[1];
        assert_eq!((second.body.as_str(), second.options.checks.as_slice()), ("Rename", &["make test".to_owned()][..]));
        assert_eq!(
            (second.options.max_iterations, second.options.base.as_deref()),
            (Some(IterationLimit::of(9)), Some("develop"))
        );
        assert_eq!(second.options.backend.as_deref(), Some("claude"));
    }

    #[test]
    fn problems_name_file_and_line() {
        insta::assert_snapshot!(parse("tasks: []\n").expect_err("none"), @r"
        tasks.yaml:1:8: `tasks`: name 1 to 1000 tasks; there are 0
        1 error in the configuration; the command did not run
        ");
        insta::assert_snapshot!(parse("task: [{ title: a }]\n").expect_err("unknown"), @r"
        tasks.yaml:1:1: unknown key `task`; did you mean `tasks`?
        1 error in the configuration; the command did not run
        ");
        insta::assert_snapshot!(
            parse("tasks:\n  - title: a\n  - body: x\n  - title: a\n    max_iterations: 0\n    checks: ['']\n").expect_err("four"),
            @r#"
        tasks.yaml:3:5: `tasks[1].title`: give it a title of one line
        tasks.yaml:4:12: `tasks[2].title`: task 1 has the same title
        tasks.yaml:5:21: `tasks[2].max_iterations` is 0; it must be between 1 and 1000
        tasks.yaml:6:14: `tasks[2].checks[0]`: `--check` needs a command, such as `--check "cargo test"`.
        4 errors in the configuration; the command did not run
        "#
        );
        insta::assert_snapshot!(parse("defaults: { base: '-x' }\ntasks: [{ title: a, timeout: soon }]\n").expect_err("two"), @r"
        tasks.yaml:1:19: `defaults.base`: `-x` is not the name of a branch.
        tasks.yaml:2:30: `tasks[0].timeout`: expected a duration such as 90s, 30m, 2h or 1h30m, at most a year
        2 errors in the configuration; the command did not run
        ");
    }

    #[test]
    fn missing_file_is_reported_by_its_path() {
        let error = read_tasks(Path::new("/nowhere/tasks.yaml")).expect_err("missing").to_string();
        assert!(error.starts_with("/nowhere/tasks.yaml: file not found\n"), "{error}");
    }
}
