//! Facts about a task, stated by people in `.ralph.yml`, for a label, or in an issue's `ralph` block.

use crate::domain::model::settings::{ConfigSection as _, config_section};

/// Maximum number of files and folders in a scope.
const MAX_SCOPE: usize = 50;
/// Maximum length of a path in a scope, in bytes.
const MAX_PLACE: usize = 200;

config_section! {
    /// Facts about a task; omitted facts are estimated. A `ralph` block in an issue can state them too.
    pub struct StatedFacts {
        /// Complexity: 1 for a word in the documentation, 10 for a rewrite.
        pub complexity: Option<u32>, in 1..=10;
        /// Whether a mistake could be a vulnerability.
        pub security_sensitive: Option<bool>;
        /// Whether the task breaks compatibility.
        pub breaking_changes: Option<bool>;
        /// Files and folders that the task concerns, from the root of the tree (`src/parser`).
        pub scope: Vec<String>;
        /// Number of iterations that such a task usually takes.
        pub estimated_iterations: Option<u32>, in 1..=1_000;
    }
}

impl StatedFacts {
    /// Returns the first problem with the facts as a sentence; `None` if they are valid. `key` is the key of the facts.
    pub fn problem(&self, key: &str) -> Option<String> {
        if let Some(wrong) = self.check(key).into_iter().next() {
            return Some(wrong.message);
        }
        if self.scope.len() > MAX_SCOPE {
            return Some(format!("`{key}.scope` has {} entries; at most {MAX_SCOPE} are allowed", self.scope.len()));
        }
        let wrong = self.scope.iter().position(|place| !is_place(place))?;
        Some(format!(
            "`{key}.scope[{wrong}]`: expected a file or folder below the root of the tree such as `src/parser`, at most \
             {MAX_PLACE} bytes"
        ))
    }

    /// Creates facts with only a scope. Drops entries that are not a path below the tree's root.
    pub fn of_scope(places: &[String]) -> Self {
        let scope = places.iter().filter(|place| is_place(place)).take(MAX_SCOPE).cloned().collect();
        Self { scope, ..Self::default() }
    }

    /// Returns the files and folders in the scope. Removes a trailing pattern such as `/**`.
    pub fn places(&self) -> Vec<String> {
        let plain = |place: &String| {
            let place = place.trim().trim_start_matches("./");
            place.trim_end_matches("**").trim_end_matches('*').trim_end_matches('/').to_owned()
        };
        self.scope.iter().map(plain).filter(|place| !place.is_empty()).collect()
    }

    /// Combines the facts of several labels. The higher number and `true` take precedence, and scopes are joined.
    #[must_use]
    pub fn and(mut self, other: &Self) -> Self {
        self.complexity = self.complexity.max(other.complexity);
        self.security_sensitive = self.security_sensitive.max(other.security_sensitive);
        self.breaking_changes = self.breaking_changes.max(other.breaking_changes);
        self.estimated_iterations = self.estimated_iterations.max(other.estimated_iterations);
        for place in &other.scope {
            if !self.scope.contains(place) {
                self.scope.push(place.clone());
            }
        }
        self
    }

    /// Whether no fact is stated.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

fn is_place(place: &str) -> bool {
    let place = place.trim();
    let parts = || place.trim_start_matches("./").split('/');
    !place.is_empty()
        && place.len() <= MAX_PLACE
        && !place.starts_with('/')
        && !place.chars().any(|c| c.is_control() || c == '`')
        && parts().all(|part| part != "..")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(yaml: &str) -> StatedFacts {
        serde_saphyr::from_str(yaml).expect("valid")
    }

    #[test]
    fn problems_name_key_and_bounds() {
        assert_eq!(of("complexity: 8\nscope: [src/parser/**, ./docs/, a.rs]").problem("task"), None);
        insta::assert_snapshot!(of("complexity: 11").problem("task").expect("wrong"), @"`task.complexity` is 11; it must be between 1 and 10");
        for place in ["/etc", "../x", "src/../../x", "", "a\u{7}b", "a`b"] {
            let facts = StatedFacts { scope: vec!["src".into(), place.into()], ..StatedFacts::default() };
            assert!(facts.problem("task").is_some_and(|text| text.contains("`task.scope[1]`")), "{place:?}");
        }
        let many = StatedFacts { scope: vec!["src".into(); 51], ..StatedFacts::default() };
        assert!(many.problem("task").is_some_and(|text| text.contains("51 entries")));
    }

    #[test]
    fn scope_patterns_are_parsed_into_places() {
        assert_eq!(
            of("scope: [src/parser/**, ./docs/, 'lib/*', a.rs, '**']").places(),
            ["src/parser", "docs", "lib", "a.rs"]
        );
    }

    #[test]
    fn facts_of_several_labels_are_combined() {
        let security = of("security_sensitive: true\ncomplexity: 3\nscope: [src/auth]");
        let easy = of("security_sensitive: false\ncomplexity: 2\nestimated_iterations: 2\nscope: [src/auth, docs]");
        let both = security.and(&easy);
        assert_eq!((both.complexity, both.security_sensitive, both.breaking_changes), (Some(3), Some(true), None));
        assert_eq!((both.estimated_iterations, both.scope), (Some(2), vec!["src/auth".to_owned(), "docs".to_owned()]));
    }
}
