//! Tests of learnings, from the first sighting to the archive, and of their selection for prompts.

mod evolution;
mod observe;
mod proposals;
mod retrieval;

use super::*;
use crate::domain::checks::criteria::TaskType;
use crate::domain::model::dispersion::Dispersion;
use crate::domain::model::ids::{ForgeName, LoopId, RepoId, RepoRef, Timestamp};

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
        iterations: Dispersion::of(3.0),
    }
}

fn antipattern(pattern: &str) -> Content {
    Content::Antipattern { pattern: pattern.to_owned(), consequence: String::new(), alternative: String::new() }
}

fn learning(content: Content, confidence: f64) -> Learning {
    Learning::new(&repository(), TaskType::TestFix, content, confidence, source("r-1"), Timestamp(0))
}

fn active(content: Content, confidence: f64) -> Learning {
    let evidence = LearningEvidence { successes: 4.0, failures: 0.0 };
    Learning { state: LearningState::Active, evidence, ..learning(content, confidence) }
}
