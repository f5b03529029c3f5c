//! What is wrong with a configuration, and where; reads like a compiler's errors.

use std::fmt;

/// Where a value was written.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Place {
    /// Line and column of the file, both from 1.
    At { line: u64, column: u64 },
    /// An environment variable, by name.
    Variable(String),
    /// The file as a whole.
    #[default]
    File,
}

/// One thing that is wrong. Messages never hold values that could be secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file, as it was named.
    pub file: String,
    /// Where in it, or which environment variable.
    pub place: Place,
    /// Path of the key (`forges[0].url`); empty for the file as a whole.
    pub key: String,
    /// What is wrong, and what to do about it.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::At { line, column } => write!(f, "{}:{line}:{column}: ", self.file)?,
            Place::Variable(name) => write!(f, "environment variable {name}: ")?,
            Place::File => write!(f, "{}: ", self.file)?,
        }
        f.write_str(&self.message)
    }
}

/// Everything that is wrong with a configuration, in the order of the file; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for problem in &self.0 {
            writeln!(f, "{problem}")?;
        }
        match self.0.len() {
            1 => f.write_str("1 error in the configuration; nothing was started"),
            n => write!(f, "{n} errors in the configuration; nothing was started"),
        }
    }
}

impl std::error::Error for Problems {}

/// Collects problems of one file.
#[derive(Debug)]
pub(super) struct Reporter {
    file: String,
    found: Vec<Problem>,
    /// Keys of values that were taken out before what follows was looked at.
    settled: Vec<String>,
}

impl Reporter {
    /// Nothing is wrong with `file` yet.
    pub(super) fn new(file: impl Into<String>) -> Self {
        Self { file: file.into(), found: Vec::new(), settled: Vec::new() }
    }

    /// Notes that the value at `key` is wrong. `message` is the whole sentence.
    pub(super) fn add(&mut self, place: Place, key: impl Into<String>, message: impl Into<String>) {
        let problem = Problem { file: self.file.clone(), place, key: key.into(), message: message.into() };
        let follows = self.settled.iter().any(|key| key.is_empty() || key.starts_with(&problem.key));
        if !follows && !self.found.contains(&problem) {
            self.found.push(problem);
        }
    }

    /// Keys of what was found so far, to be taken out. From here on a problem that only follows from their absence (it
    /// is about the same key or one around it) is left out.
    pub(super) fn settle(&mut self) -> &[String] {
        self.settled = self.found.iter().map(|problem| problem.key.clone()).collect();
        &self.settled
    }

    /// Whether the value at `key` was taken out.
    pub(super) fn is_settled(&self, key: &str) -> bool {
        self.settled.iter().any(|settled| settled == key)
    }

    /// Whether nothing is wrong.
    pub(super) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// `value`, or everything that is wrong.
    pub(super) fn into_result<T>(self, value: T) -> Result<T, Problems> {
        if self.found.is_empty() { Ok(value) } else { Err(self.into_problems()) }
    }

    /// Everything that is wrong, sorted by place.
    pub(super) fn into_problems(mut self) -> Problems {
        self.found.sort_by_key(|problem| match &problem.place {
            Place::File => (0, 0, 0, String::new()),
            Place::At { line, column } => (1, *line, *column, String::new()),
            Place::Variable(name) => (2, 0, 0, name.clone()),
        });
        Problems(self.found)
    }
}
