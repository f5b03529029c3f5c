//! Proposals of conventions from review remarks.

use crate::domain::knowledge::memory::*;
use crate::domain::loops::SEE_REMARKS;
use crate::domain::model::ids::LoopId;

fn remark(loop_id: &str, text: &str) -> Remark {
    Remark { loop_id: LoopId::new(loop_id), text: text.into() }
}

#[test]
fn only_remarks_that_say_something_are_kept() {
    for text in ["", "LGTM", "nit", "please fix this", "@mona thoughts?", SEE_REMARKS, " \n ", "👍"] {
        assert_eq!(remark_text(text), None, "{text}");
    }
    let kept = remark_text("Please log the\n request  id in every handler").expect("kept");
    assert_eq!(kept, "Please log the request id in every handler");
    let long = remark_text(&"log every request id ä ".repeat(200)).expect("kept");
    assert!(long.chars().count() <= 601 && long.ends_with('…'), "{}", long.len());
}

#[test]
fn remark_recurs_in_different_loops_only() {
    let settings = MemorySettings::default();
    let known = [
        remark("r-1", "Log the request id in each handler"),
        remark("r-1", "Please log the request id in the handlers"),
        remark("r-2", "Handlers must log the request id"),
        remark("r-3", "Use the shared fixture for the database"),
    ];
    let new = remark("r-4", "The handler doesn't log the request id");
    let (found, loops) = sightings(&new, &known, &settings);
    assert_eq!((found, loops), (vec![0, 1, 2], 3));
    assert!(is_proposed(loops, &settings) && !is_proposed(2, &settings));
    let again = remark("r-1", "Log the request id in each handler");
    assert_eq!(sightings(&again, &known[..2], &settings).1, 1, "one loop says it often");
    assert_eq!(sightings(&remark("r-9", "Rename the module for parsing"), &known, &settings), (vec![], 1));
}

#[test]
fn threshold_is_configurable() {
    let settings = MemorySettings { propose_after: 2, remark_similarity: 0.9, ..MemorySettings::default() };
    assert!(is_proposed(2, &settings));
    let (one, other) = ("Handlers must log the request id", "Log the request id in each handler");
    assert!(!asks_for_the_same(one, other, &settings) || asks_for_the_same(one, one, &settings));
    assert!(asks_for_the_same(one, "handlers MUST log the request id!", &settings));
    for state in [ProposalState::Open, ProposalState::Accepted, ProposalState::Rejected] {
        assert_eq!(ProposalState::parse(state.as_str()), Some(state));
    }
    assert_eq!(ProposalState::parse("gone"), None);
}
