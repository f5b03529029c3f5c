//! Learnings from their first sighting to the archive, what prompts carry, and what that is worth.

mod evolution;
mod observe;
mod retrieval;

use super::experiment::{Condition, play, table};
use super::*;
use crate::domain::criteria::TaskType;
use crate::domain::ids::{ForgeName, LoopId, RepoId, RepoRef, Timestamp};

const DAY: i64 = 86_400_000;

fn repository() -> RepoRef {
    RepoRef { forge: ForgeName::new("f"), id: RepoId(7), owner: "acme".into(), name: "app".into() }
}

fn source(loop_id: &str) -> Source {
    Source { loop_id: LoopId::new(loop_id), iteration: None }
}

fn strategy(approach: &str) -> Content {
    Content::Strategy {
        approach: approach.to_owned(),
        tools: Vec::new(),
        resolution: String::new(),
        iterations: Spread::of(3.0),
    }
}

fn antipattern(pattern: &str) -> Content {
    Content::Antipattern { pattern: pattern.to_owned(), consequence: String::new(), alternative: String::new() }
}

fn learning(content: Content, confidence: f64) -> Learning {
    Learning::new(&repository(), TaskType::TestFix, content, confidence, source("r-1"), Timestamp(0))
}

fn active(content: Content, confidence: f64) -> Learning {
    let evidence = Evidence { successes: 4.0, failures: 0.0 };
    Learning { state: State::Active, evidence, ..learning(content, confidence) }
}

#[test]
fn memory_helps_and_wrong_learnings_do_not_harm() {
    let settings = MemorySettings::default();
    let [off, on, poisoned] = Condition::ALL.map(|condition| play(1, 500, condition, &settings));
    let (gain, loss) = (on.gain_over(&off), -poisoned.gain_over(&off));
    assert!(gain >= 0.15, "memory saves {gain:.3}");
    assert!(loss <= 0.05, "poison costs {loss:.3}");
    assert!(on.done >= off.done && poisoned.done >= off.done, "{} {} {}", off.done, on.done, poisoned.done);
    assert!(poisoned.poison_left <= 2, "{} wrong learnings are still told", poisoned.poison_left);
    let first = table(1, 40);
    assert!(first.lines().count() == 5 && first == table(1, 40), "{first}");
}
