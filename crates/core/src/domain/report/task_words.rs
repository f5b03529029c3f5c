//! Describes the stated and estimated facts about a task, each with its source.

use crate::domain::loops::{FactSource, Loop, PastLoops, Quantiles};
use crate::domain::model::ids::Money;
use crate::domain::model::record::Record;
use crate::domain::report::view::PastLine;
use crate::domain::supervision::control::complexity;
use crate::domain::supervision::oversight::named_places;

/// Maximum number of displayed estimated files and folders.
const PLACES_SHOWN: usize = 5;

/// Describes the facts used by supervision, one line each. A stated fact is shown together with the estimate that it
/// replaces.
pub fn task_facts(current: &Loop) -> Vec<String> {
    let (guessed, stated) = (current.guessed_facts(), &current.knowledge.stated);
    let settings = current.settings.policy.supervision().control.complexity;
    let estimate = complexity(&guessed, &Record::default(), &settings);
    let mut lines = vec![match stated.get(|facts| facts.complexity) {
        Some((complexity, source)) => {
            format!("complexity {complexity} of 10, {} (guess: {estimate:.0})", source.words())
        }
        None => format!("complexity {estimate:.0} of 10, estimated from the text"),
    }];
    let mut flag = |name: &str, found: Option<(bool, FactSource)>, guess: bool| match found {
        Some((holds, source)) => {
            let (not, guess) = (if holds { "" } else { "not " }, if guess { "yes" } else { "no" });
            lines.push(format!("{not}{name}, {} (guess: {guess})", source.words()));
        }
        None if guess => lines.push(format!("{name}, guessed from title and labels")),
        None => {}
    };
    flag("security-sensitive", stated.get(|facts| facts.security_sensitive), guessed.security_sensitive);
    flag("breaking", stated.get(|facts| facts.breaking_changes), guessed.breaking_changes);
    let named = places(&named_places(&guessed.task));
    match (stated.scope(), named.is_empty()) {
        (Some((places, source)), none) => {
            let named = if none { "none" } else { &named };
            lines.push(format!("scope {}, {} (guess: {named})", places.join(", "), source.words()));
        }
        (None, false) => lines.push(format!("scope {named}, guessed from the text")),
        (None, true) => {}
    }
    let (least, most) = current.usual_iterations();
    lines.push(match stated.get(|facts| facts.estimated_iterations) {
        Some((iterations, source)) => {
            format!("about {iterations} iterations, {} (guess: {least} to {most})", source.words())
        }
        None if current.knowledge.estimate.is_some() => {
            format!("{least} to {most} iterations, guessed from earlier loops")
        }
        None => format!("{least} to {most} iterations, guessed from its type ({})", current.task_type().as_str()),
    });
    lines
}

/// Formats distinct places: the first ones, and the number of remaining ones.
fn places(all: &[&str]) -> String {
    let mut different: Vec<&str> = Vec::new();
    all.iter().filter(|place| !place.is_empty()).for_each(|place| {
        if !different.contains(place) {
            different.push(place);
        }
    });
    let shown = different[..different.len().min(PLACES_SHOWN)].join(", ");
    match different.len().saturating_sub(PLACES_SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// Returns the resources used by earlier loops, for display.
pub fn past_line(past: &PastLoops) -> PastLine {
    let none = Quantiles { median: 0, most: 0 };
    let (iterations, time) = (past.iterations.unwrap_or(none), past.time_ms.unwrap_or(none));
    let seconds = |ms: i64| u64::try_from(ms / 1000).unwrap_or(0);
    PastLine {
        loops: past.loops,
        task_type: past.task_type.map_or_else(String::new, |kind| kind.as_str().to_owned()),
        usual_iterations: iterations.median,
        most_iterations: iterations.most,
        usual_seconds: seconds(time.median),
        most_seconds: seconds(time.most),
        usual_cost: past.cost.map(|cost| Money(cost.median)),
        most_cost: past.cost.map(|cost| Money(cost.most)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::checks::criteria::TaskType;
    use crate::domain::lifecycle::samples;
    use crate::domain::loops::{Estimate, TaskText};
    use crate::domain::model::stated_facts::StatedFacts;

    #[test]
    fn facts_are_listed_with_their_sources_and_guesses() {
        let mut current = samples::fresh();
        current.task.text = TaskText::new("Fix the authentication of admins", current.task.text.body(), None);
        insta::assert_snapshot!(task_facts(&current).join("\n"), @r"
        complexity 5 of 10, estimated from the text
        security-sensitive, guessed from title and labels
        2 to 5 iterations, guessed from its type (test-fix)
        ");
        let body = "See src/auth/login.rs, docs/login.md and https://example.org/a/b.html.";
        current.task.text = TaskText::new(current.task.text.title(), body, None);
        current.knowledge.stated.issue =
            StatedFacts { complexity: Some(8), scope: vec!["src/auth/**".into()], ..StatedFacts::default() };
        current.knowledge.stated.file = StatedFacts {
            complexity: Some(3),
            security_sensitive: Some(false),
            breaking_changes: Some(true),
            estimated_iterations: Some(4),
            ..StatedFacts::default()
        };
        insta::assert_snapshot!(task_facts(&current).join("\n"), @r"
        complexity 8 of 10, stated in this issue (guess: 2)
        not security-sensitive, stated in the repository's file (guess: yes)
        breaking, stated in the repository's file (guess: no)
        scope src/auth, stated in this issue (guess: src/auth/login.rs, docs/login.md)
        about 4 iterations, stated in the repository's file (guess: 2 to 5)
        ");
        let facts = current.facts();
        assert_eq!((facts.complexity, facts.security_sensitive, facts.breaking_changes), (Some(8.0), false, true));
        assert_eq!((facts.scope, facts.estimated_iterations), (vec!["src/auth".to_owned()], Some(4.0)));
    }

    #[test]
    fn missing_scope_and_iterations_are_estimated() {
        let mut current = samples::fresh();
        let body: String =
            (0..8).map(|n| format!("`src/part{n}/mod.rs` ")).chain(["src/part0/mod.rs".into()]).collect();
        current.task.text = TaskText::new(current.task.text.title(), body, None);
        current.knowledge.estimate = Some(Estimate { mean: 2.0, deviation: 0.5, samples: 9 });
        insta::assert_snapshot!(task_facts(&current).join("\n"), @r"
        complexity 7 of 10, estimated from the text
        scope src/part0/mod.rs, src/part1/mod.rs, src/part2/mod.rs, src/part3/mod.rs, src/part4/mod.rs and 3 more, guessed from the text
        1 to 4 iterations, guessed from earlier loops
        ");
        assert!(current.facts().scope.is_empty(), "a guess is not a stated scope");
    }

    #[test]
    fn summary_of_past_loops_has_time_and_cost() {
        let past = PastLoops {
            loops: 7,
            task_type: Some(TaskType::TestFix),
            iterations: Some(Quantiles { median: 3, most: 8 }),
            time_ms: Some(Quantiles { median: 61_500, most: 3_600_000 }),
            cost: Some(Quantiles { median: 1_250_000, most: 4_000_000 }),
        };
        let line = past_line(&past);
        assert_eq!((line.loops, line.task_type.as_str()), (7, "test-fix"));
        assert_eq!((line.usual_iterations, line.most_iterations), (3, 8));
        assert_eq!((line.usual_seconds, line.most_seconds), (61, 3600));
        assert_eq!((line.usual_cost, line.most_cost), (Some(Money(1_250_000)), Some(Money(4_000_000))));
        let none = past_line(&PastLoops::default());
        assert_eq!((none.loops, none.usual_iterations, none.usual_seconds, none.usual_cost), (0, 0, 0, None));
    }
}
