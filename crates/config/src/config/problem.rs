//! Problems in a configuration file, with positions, printed like compiler errors.

use std::fmt;
use std::path::Path;

use ralph_types::failure::Failure;

/// Origin of a value.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum SourceLocation {
    /// Line and column in the file, both 1-based.
    At { line: u64, column: u64 },
    /// Environment variable with this name.
    Variable(String),
    /// Whole file.
    #[default]
    File,
}

/// Problem in a configuration file. Messages never contain values that could be secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigProblem {
    /// Path of the file, as given.
    pub file: String,
    /// Position in the file, or environment variable.
    pub place: SourceLocation,
    /// Path of the key (`forges[0].url`); empty for the whole file.
    pub key: String,
    /// Description of the problem, with advice.
    pub message: String,
}

impl fmt::Display for ConfigProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            SourceLocation::At { line, column } => write!(f, "{}:{line}:{column}: ", self.file)?,
            SourceLocation::Variable(name) => write!(f, "environment variable {name}: ")?,
            SourceLocation::File => write!(f, "{}: ", self.file)?,
        }
        f.write_str(&self.message)
    }
}

/// All problems in a configuration, in file order; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigProblems(pub Vec<ConfigProblem>);

impl ConfigProblems {
    /// Creates the problems of a file that cannot be read.
    pub(super) fn of_file(file: &Path, problem: &Failure) -> Self {
        let mut report = ProblemCollector::new(file.display().to_string());
        report.add(SourceLocation::File, "", format!("{problem:#}"));
        report.into_problems()
    }
}

impl fmt::Display for ConfigProblems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for problem in &self.0 {
            writeln!(f, "{problem}")?;
        }
        match self.0.len() {
            1 => f.write_str("1 error in the configuration; the command did not run"),
            n => write!(f, "{n} errors in the configuration; the command did not run"),
        }
    }
}

impl std::error::Error for ConfigProblems {}

/// Collects the problems and warnings of one file.
#[derive(Debug)]
pub(super) struct ProblemCollector {
    file: String,
    found: Vec<ConfigProblem>,
    warnings: Vec<ConfigProblem>,
    /// Keys of invalid values that were removed.
    removed: Vec<String>,
}

impl ProblemCollector {
    /// Creates an empty list for `file`.
    pub(super) fn new(file: impl Into<String>) -> Self {
        Self { file: file.into(), found: Vec::new(), warnings: Vec::new(), removed: Vec::new() }
    }

    /// Adds a problem with the value at `key`. `message` is a complete sentence.
    pub(super) fn add(&mut self, place: SourceLocation, key: impl Into<String>, message: impl Into<String>) {
        let problem = ConfigProblem { file: self.file.clone(), place, key: key.into(), message: message.into() };
        let follows = self.removed.iter().any(|key| key.is_empty() || key.starts_with(&problem.key));
        if !follows && !self.found.contains(&problem) {
            self.found.push(problem);
        }
    }

    /// Adds a warning about the value at `key`. `message` is a complete sentence.
    pub(super) fn warn(&mut self, place: SourceLocation, key: impl Into<String>, message: impl Into<String>) {
        self.warnings.push(ConfigProblem { file: self.file.clone(), place, key: key.into(), message: message.into() });
    }

    /// Returns the warnings collected so far and clears them.
    pub(super) fn take_warnings(&mut self) -> Vec<ConfigProblem> {
        std::mem::take(&mut self.warnings)
    }

    /// Returns the keys with problems, whose values must be removed. Later problems of these keys or enclosing keys are
    /// ignored, because the removal causes them.
    pub(super) fn take_keys(&mut self) -> &[String] {
        self.removed = self.found.iter().map(|problem| problem.key.clone()).collect();
        &self.removed
    }

    /// Whether the value at `key` was removed.
    pub(super) fn is_removed(&self, key: &str) -> bool {
        self.removed.iter().any(|removed| removed == key)
    }

    /// Whether there are no problems.
    pub(super) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Returns `value`, or all problems if there are any.
    pub(super) fn into_result<T>(self, value: T) -> Result<T, ConfigProblems> {
        if self.found.is_empty() { Ok(value) } else { Err(self.into_problems()) }
    }

    /// Returns all problems, sorted by position.
    pub(super) fn into_problems(mut self) -> ConfigProblems {
        self.found.sort_by_key(|problem| match &problem.place {
            SourceLocation::File => (0, 0, 0, String::new()),
            SourceLocation::At { line, column } => (1, *line, *column, String::new()),
            SourceLocation::Variable(name) => (2, 0, 0, name.clone()),
        });
        ConfigProblems(self.found)
    }
}
