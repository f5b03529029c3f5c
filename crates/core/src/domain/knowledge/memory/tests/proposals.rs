//! Tests of proposals of conventions from review comments.

use crate::domain::knowledge::memory::*;
use crate::domain::loops::SEE_REMARKS;
use crate::domain::model::ids::LoopId;
use crate::domain::model::similarity::words;

fn remark(loop_id: &str, text: &str) -> Remark {
    Remark { loop_id: LoopId::new(loop_id), text: text.into() }
}

#[test]
fn remarks_without_content_are_dropped() {
    for text in ["", "LGTM", "nit", "please fix this", "@mona thoughts?", SEE_REMARKS, " \n ", "👍"] {
        assert_eq!(remark_text(text), None, "{text}");
    }
    let remark = remark_text("Please log the\n request  id in every handler").expect("kept");
    assert_eq!(remark, "Please log the request id in every handler");
    let long = remark_text(&"log every request id ä ".repeat(200)).expect("kept");
    assert!(long.chars().count() <= 601 && long.ends_with('…'), "{}", long.len());
}

#[test]
fn remark_recurs_only_across_loops() {
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

/// Returns labeled pairs of review comments: whether they request the same change, and both comments.
fn labeled() -> Vec<(bool, &'static str, &'static str)> {
    let lines = include_str!("../../../../../../../tests/fixtures/memory/remarks.tsv").lines();
    let pair = |line: &'static str| {
        let mut parts = line.split('\t');
        let (label, one, other) = (parts.next(), parts.next().expect("a remark"), parts.next().expect("a remark"));
        assert!(matches!(label, Some("same" | "different")) && parts.next().is_none(), "{line}");
        (label == Some("same"), one, other)
    };
    lines.map(pair).collect()
}

/// Returns the numbers of pairs that are correctly and wrongly recognized as equal requests, among the pairs whose index
/// `counts` selects.
fn found(remark_similarity: f64, counts: impl Fn(usize) -> bool) -> (usize, usize) {
    let settings = MemorySettings { remark_similarity, ..MemorySettings::default() };
    let pairs = labeled().into_iter().enumerate().filter(|(at, _)| counts(*at)).map(|(_, pair)| pair);
    let (right, wrong): (Vec<_>, Vec<_>) =
        pairs.filter(|(_, one, other)| asks_for_the_same(one, other, &settings)).partition(|(same, ..)| *same);
    (right.len(), wrong.len())
}

#[test]
fn default_similarity_has_the_published_precision_and_recall() {
    let pairs = labeled();
    let same = pairs.iter().filter(|(same, ..)| *same).count();
    assert_eq!((same, pairs.len()), (50, 100));
    let default = MemorySettings::default().remark_similarity;
    assert_eq!(found(default, |_| true), (44, 16), "precision 73 %, recall 88 %");
    // Every second pair was used to choose the default; the others are the result.
    assert_eq!(found(default, |at| at % 2 == 0), (21, 9));
    assert_eq!(found(default, |at| at % 2 == 1), (23, 7), "precision 77 %, recall 92 %");
    for (threshold, figures) in [(0.4, (47, 21)), (0.55, (33, 12)), (0.6, (28, 7)), (0.7, (20, 2))] {
        assert_eq!(found(threshold, |_| true), figures, "{threshold}");
    }
}

#[test]
fn remarks_without_common_words_are_never_similar() {
    let settings = MemorySettings { remark_similarity: 0.2, ..MemorySettings::default() };
    let common = |one: &str, other: &str| words(one).iter().any(|word| words(other).contains(word));
    let unrelated = labeled().into_iter().filter(|(_, one, other)| !common(one, other)).collect::<Vec<_>>();
    assert!(unrelated.len() >= 15, "{}", unrelated.len());
    for (_, one, other) in unrelated {
        assert!(!asks_for_the_same(one, other, &settings), "{one} | {other}");
    }
}
