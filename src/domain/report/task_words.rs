//! Facts about a task in words: what people stated and what is estimated, each with its source.

use crate::domain::loops::{FactSource, Loop, PastLoops, Quantiles};
use crate::domain::model::ids::Money;
use crate::domain::model::record::Record;
use crate::domain::report::view::PastLine;
use crate::domain::supervision::control::complexity;

/// Returns the facts that supervision uses, one line each.
pub fn task_facts(current: &Loop) -> Vec<String> {
    let (facts, stated) = (current.facts(), &current.stated);
    let guessed = "guessed from title and labels";
    let mut lines = vec![match stated.get(|facts| facts.complexity) {
        Some((complexity, source)) => format!("complexity {complexity} of 10, {}", source.words()),
        None => {
            let settings = current.policy.supervision().control.complexity;
            let estimate = complexity(&facts, &Record::default(), &settings);
            format!("complexity {estimate:.0} of 10, estimated from the text")
        }
    }];
    let mut flag = |name: &str, holds: bool, source: Option<FactSource>| match (holds, source) {
        (true, source) => lines.push(format!("{name}, {}", source.map_or(guessed, FactSource::words))),
        (false, Some(source)) => lines.push(format!("not {name}, {}", source.words())),
        (false, None) => {}
    };
    let source = |found: Option<(bool, FactSource)>| found.map(|(_, source)| source);
    flag("security-sensitive", facts.security_sensitive, source(stated.get(|facts| facts.security_sensitive)));
    flag("breaking", facts.breaking_changes, source(stated.get(|facts| facts.breaking_changes)));
    if let Some((places, source)) = stated.scope() {
        lines.push(format!("scope {}, {}", places.join(", "), source.words()));
    }
    if let Some((iterations, source)) = stated.get(|facts| facts.estimated_iterations) {
        lines.push(format!("about {iterations} iterations, {}", source.words()));
    }
    lines
}

/// Returns what earlier loops took, for people.
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
    use crate::domain::lifecycle::samples;
    use crate::domain::model::stated_facts::StatedFacts;

    #[test]
    fn facts_are_listed_with_their_sources() {
        let mut current = samples::fresh();
        current.task.title = "Fix the authentication of admins".into();
        insta::assert_snapshot!(task_facts(&current).join("\n"), @r"
        complexity 5 of 10, estimated from the text
        security-sensitive, guessed from title and labels
        ");
        current.stated.issue =
            StatedFacts { complexity: Some(8), scope: vec!["src/auth/**".into()], ..StatedFacts::default() };
        current.stated.file = StatedFacts {
            complexity: Some(3),
            security_sensitive: Some(false),
            breaking_changes: Some(true),
            estimated_iterations: Some(4),
            ..StatedFacts::default()
        };
        insta::assert_snapshot!(task_facts(&current).join("\n"), @r"
        complexity 8 of 10, stated in this issue
        not security-sensitive, stated in the repository's file
        breaking, stated in the repository's file
        scope src/auth, stated in this issue
        about 4 iterations, stated in the repository's file
        ");
        let facts = current.facts();
        assert_eq!((facts.complexity, facts.security_sensitive, facts.breaking_changes), (Some(8.0), false, true));
        assert_eq!((facts.scope, facts.estimated_iterations), (vec!["src/auth".to_owned()], Some(4.0)));
    }
}
