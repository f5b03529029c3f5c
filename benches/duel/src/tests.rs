//! Tests of the data and the comparison.

use super::*;
use referee::Harm;

fn outcome(verdict: Verdict, calls: usize) -> DuelOutcome {
    DuelOutcome { verdict, calls, seconds: 1.0, harm: Vec::new(), decided: None, known: None }
}

#[test]
fn scenarios_fit_repositories_and_the_published_table() {
    let data = Data::load().expect("the data is valid");
    assert!(data.scenarios.len() >= 40, "{}", data.scenarios.len());
    let published = read_table(&folder().join("expected.yml")).expect("a table");
    let mut names: Vec<&str> = data.scenarios.iter().map(|scenario| scenario.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, published.keys().map(String::as_str).collect::<Vec<_>>());
    for scenario in &data.scenarios {
        let row = &published[&scenario.name];
        let is_known = row.known.as_ref().is_some_and(|reason| !reason.is_empty());
        assert!(row.is_best(scenario.best) || is_known, "{}: the published failure has no reason", scenario.name);
    }
}

#[test]
fn page_contains_the_tables() {
    let page = page::page(&Data::load().expect("the data is valid")).expect("a page");
    let written = fs::read_to_string(page::file()).expect("docs/research/duel.md");
    assert!(page == written, "docs/research/duel.md is out of date; run: cargo run -p duel -- page");
}

#[test]
fn only_losses_have_reasons() {
    let data = Data::load().expect("the data is valid");
    let columns = page::columns().expect("tables");
    let mut lost: Vec<&str> = page::losses(&data, &columns).iter().map(|loss| loss.scenario.name.as_str()).collect();
    lost.sort_unstable();
    let reasons = page::reasons().expect("losses.yml");
    let named: Vec<&str> = reasons.keys().map(String::as_str).collect();
    assert_eq!(named, lost);
    for (name, reason) in &reasons {
        assert!(reason.trim().len() > 40 && !reason.trim().contains('\n'), "{name}: {reason:?}");
    }
}

#[test]
fn contestants_are_valid() {
    for contestant in
        [contestants("ours.yml"), contestants("peers.yml")].into_iter().flat_map(|read| read.expect("valid"))
    {
        let patterns = [&contestant.done, &contestant.branch];
        patterns.into_iter().flatten().for_each(|pattern| drop(regex::Regex::new(pattern).expect("a pattern")));
        assert_eq!(contestant.command.is_empty(), contestant.unavailable.is_some(), "{}", contestant.name);
    }
}

#[test]
fn worse_outcomes_are_found() {
    let published = OutcomeTable::from([
        ("a".to_owned(), outcome(Verdict::Done, 2)),
        ("b".to_owned(), DuelOutcome { known: Some("a reason".into()), ..outcome(Verdict::FalseCompletion, 1) }),
        ("c".to_owned(), outcome(Verdict::Stopped, 3)),
    ]);
    let complaints =
        |name: &str, outcome: DuelOutcome| compare(&OutcomeTable::from([(name.to_owned(), outcome)]), &published).len();
    assert_eq!(complaints("a", outcome(Verdict::Done, 1)), 0, "fewer calls");
    assert_eq!(complaints("a", outcome(Verdict::Done, 3)), 1, "more calls");
    assert_eq!(complaints("a", outcome(Verdict::Stopped, 2)), 1, "not done");
    assert_eq!(complaints("a", DuelOutcome { harm: vec![Harm::Secret], ..outcome(Verdict::Done, 2) }), 1, "damage");
    assert_eq!(complaints("b", outcome(Verdict::FalseCompletion, 1)), 0, "a known failure");
    assert_eq!(complaints("c", outcome(Verdict::FalseCompletion, 3)), 1, "a new failure");
    assert_eq!(complaints("d", outcome(Verdict::Done, 1)), 1, "an unpublished scenario");
}

#[test]
fn reasons_of_known_failures_are_kept() {
    let failure = || DuelOutcome { known: Some("a reason".into()), ..outcome(Verdict::FalseCompletion, 1) };
    let merge = |new: DuelOutcome| {
        merged(OutcomeTable::from([("a".to_owned(), new)]), OutcomeTable::from([("a".to_owned(), failure())]))
    };
    assert!(merge(outcome(Verdict::FalseCompletion, 2))["a"].known.is_some());
    assert!(merge(outcome(Verdict::Stopped, 2))["a"].known.is_none());
}
