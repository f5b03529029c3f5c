//! Estimate of a task's complexity from its text, 1 to 10.

use crate::domain::model::record::Record;
use crate::domain::model::settings::config_section;
use crate::domain::supervision::TaskFacts;

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Maximum number of characters read from the task.
const MAX_CHARS: usize = 20_000;

config_section! {
    /// Estimate of a task's complexity if it is not stated.
    pub struct ComplexitySettings {
        /// Complexity of a task with none of `simple_words` and `hard_words`.
        pub usual: f64 = 5.0, in 1.0..=10.0;
        /// Complexity of a task with one of `simple_words`.
        pub simple: f64 = 2.0, in 1.0..=10.0;
        /// Complexity of a task with one of `hard_words`.
        pub hard: f64 = 8.0, in 1.0..=10.0;
        /// Words that indicate a simple task; whole words, case-insensitive.
        pub simple_words: Vec<String> = words(&[
        "bump",
        "changelog",
        "comment",
        "comments",
        "config",
        "configuration",
        "doc",
        "docs",
        "documentation",
        "readme",
        "rename",
        "spelling",
        "typo",
        "typos",
        "wording",
        ]);
        /// Words that indicate a hard task; whole words, case-insensitive.
        pub hard_words: Vec<String> = words(&[
        "architecture",
        "concurrency",
        "deadlock",
        "migrate",
        "migration",
        "port",
        "protocol",
        "redesign",
        "refactor",
        "refactoring",
        "rewrite",
        ]);
        /// Amount added per named file.
        pub per_file: f64 = 0.2, in 0.0..=10.0;
        /// Amount added per hundred words.
        pub per_hundred_words: f64 = 0.5, in 0.0..=10.0;
        /// Amount subtracted if there are tests, which give fast feedback.
        pub tests: f64 = 1.0, in 0.0..=10.0;
    }
}

/// Returns the stated complexity, or an estimate. `first` is the first iteration's record, which contains the number of
/// tests.
pub fn complexity(facts: &TaskFacts, first: &Record, settings: &ComplexitySettings) -> f64 {
    if let Some(stated) = facts.complexity.filter(|stated| !stated.is_nan()) {
        return stated.clamp(1.0, 10.0);
    }
    let text: String = facts.task.chars().take(MAX_CHARS).flat_map(char::to_lowercase).collect();
    let is = |words: &[String]| {
        let mut spoken = text.split(|c: char| !c.is_alphanumeric());
        spoken.any(|word| words.iter().any(|known| known.to_lowercase() == word))
    };
    let kind = match (is(&settings.simple_words), is(&settings.hard_words)) {
        (true, false) => settings.simple,
        (false, true) => settings.hard,
        _ => settings.usual,
    };
    let files = text.split_whitespace().filter(|word| names_a_file(word)).count() as f64;
    let hundreds = text.split_whitespace().count() as f64 / 100.0;
    let tests = if first.tests_passing.is_some_and(|passing| passing > 0.0) { settings.tests } else { 0.0 };
    (kind + settings.per_file * files + settings.per_hundred_words * hundreds - tests).clamp(1.0, 10.0)
}

/// Whether a word looks like a path (`src/lib.rs`, `setup.py`) and not like a sentence end or a URL.
fn names_a_file(word: &str) -> bool {
    let word = word.trim_matches(|c: char| !c.is_alphanumeric());
    let Some((stem, ending)) = word.rsplit_once('.') else { return false };
    let plain = |c: char| c.is_alphanumeric() || "_-./".contains(c);
    !stem.is_empty()
        && stem.chars().all(plain)
        && (1..=5).contains(&ending.len())
        && ending.starts_with(|c: char| c.is_ascii_alphabetic())
        && ending.chars().all(|c| c.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(task: &str) -> f64 {
        let facts = TaskFacts { task: task.to_owned(), ..TaskFacts::default() };
        complexity(&facts, &Record::default(), &ComplexitySettings::default())
    }

    #[test]
    fn complexity_depends_on_type_files_and_length() {
        assert_eq!(of(""), 5.0);
        assert!(of("Fix a typo in README.md") < 3.0);
        assert!(of("Rewrite the scheduler in src/a.rs, src/b.rs and src/c.rs.") > 8.5);
        assert!(of(&"word ".repeat(1000)) > 9.9);
        assert_eq!(of("Update the latest React contest page"), of("Improve the fastest flow contest page"));
    }

    #[test]
    fn stated_complexity_wins_and_tests_lower_estimate() {
        let stated = |complexity| TaskFacts { complexity, ..TaskFacts::default() };
        let settings = ComplexitySettings::default();
        assert_eq!(complexity(&stated(Some(70.0)), &Record::default(), &settings), 10.0);
        assert_eq!(complexity(&stated(Some(f64::NAN)), &Record::default(), &settings), 5.0);
        let tested = Record { tests_passing: Some(3.0), ..Record::default() };
        assert_eq!(complexity(&stated(None), &tested, &settings), 4.0);
    }

    #[test]
    fn path_is_distinguished_from_sentence() {
        let paths = ["src/lib.rs", "`setup.py`,", "(Cargo.toml)"];
        let others = ["end.", "and", "3.5", "e.g.,", "https://example.com"];
        assert!(paths.into_iter().all(names_a_file));
        assert!(!others.into_iter().filter(|word| *word != "e.g.,").any(names_a_file));
    }
}
