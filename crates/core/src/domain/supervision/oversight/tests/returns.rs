//! Tests of returns to exactly an earlier tree. They are detected at the tree's second occurrence, and only if the agent
//! restored it.

use super::*;
use crate::domain::model::record::TreeChange;

/// Returns the severity of oscillation in each iteration with the defaults; `-` if not detected. Each iteration is given as
/// its tree, the origin of the tree's change, and its completion.
fn severities(iterations: &[(&str, TreeChange, f64)]) -> String {
    let completions: Vec<f64> = iterations.iter().map(|(_, _, completion)| *completion).collect();
    let records = trace(&completions, |at, record| {
        record.tree = Some(iterations[at].0.to_owned());
        record.change = iterations[at].1;
    });
    let mut it = ReviewedLoop { settings: OversightSettings::default(), ..ReviewedLoop::default() };
    let word = |verdict: &OversightVerdict| {
        severity(verdict, DetectionKind::Oscillation).map_or_else(|| "-".to_owned(), |severity| severity.to_string())
    };
    it.run(&records).iter().map(word).collect::<Vec<_>>().join(" ")
}

/// Returns iterations of the agent without progress, one per tree.
fn agent(trees: &str) -> Vec<(&str, TreeChange, f64)> {
    trees.split(' ').map(|tree| (tree, TreeChange::Agent, 0.3)).collect()
}

#[test]
fn return_is_found_at_the_second_occurrence_of_a_tree() {
    assert_eq!(severities(&agent("a b a")), "- - medium");
    assert_eq!(severities(&agent("a b c a")), "- - - medium");
    assert_eq!(severities(&agent("a b a b")), "- - medium high");
    assert_eq!(severities(&agent("a b a b a")), "- - medium high critical", "the REDIRECT was in vain");
    assert_eq!(severities(&agent("a b c d a b c")), "- - - - medium high critical");
    assert_eq!(severities(&agent("a b a b c a")), "- - medium high - critical");
    assert_eq!(severities(&agent("a b a c d")), "- - medium - -");
    let unknown: Vec<_> = agent("a b a").into_iter().map(|(tree, _, done)| (tree, TreeChange::Unknown, done)).collect();
    assert_eq!(severities(&unknown), "- - medium", "traces without the field are judged by their trees");
}

#[test]
fn return_names_the_iteration_that_the_files_equal() {
    let records = flat(12, |at, record| {
        let trees = ["x", "x1", "x2", "x3", "x4", "x5", "a", "b", "c", "d", "e", "b"];
        record.tree = Some(trees[at].to_owned());
    });
    let mut it = ReviewedLoop { settings: OversightSettings::default(), ..ReviewedLoop::default() };
    let verdict = it.review(&records);
    let found = verdict.detections.iter().find(|found| found.kind == DetectionKind::Oscillation).expect("a return");
    assert_eq!(found.evidence_text(), "the files are again exactly as after iteration 8");
}

#[test]
fn unchanged_tree_is_not_a_return() {
    assert_eq!(severities(&agent("a a a a")), "- - - -");
    assert_eq!(severities(&agent("a b b b")), "- - - -");
}

#[test]
fn tree_restored_by_the_service_is_not_a_return() {
    let (agent, nothing, service) = (TreeChange::Agent, TreeChange::Nothing, TreeChange::Service);
    // The best state was restored after the second iteration, and then the agent changed nothing.
    let restored = [("a", agent, 0.3), ("b", agent, 0.2), ("a", nothing, 0.3), ("c", agent, 0.3)];
    assert_eq!(severities(&restored), "- - - -");
    // This iteration contains no change, although its neighbor has another tree.
    let idle = [("a", agent, 0.3), ("b", agent, 0.2), ("a", nothing, 0.3), ("a", nothing, 0.3)];
    let records = trace(&idle.map(|(_, _, completion)| completion), |at, record| {
        (record.tree, record.change) = (Some(idle[at].0.to_owned()), idle[at].1);
    });
    let mut it = ReviewedLoop { settings: OversightSettings::default(), ..ReviewedLoop::default() };
    assert_eq!(severity(&it.review(&records), DetectionKind::NoChange), Some(DetectionSeverity::Medium));
    // The service restored the base's tests, which gives the tree before their change.
    let put_back = [("a", agent, 0.3), ("b", agent, 0.3), ("a", service, 0.3), ("c", agent, 0.3)];
    assert_eq!(severities(&put_back), "- - - -");
    // The agent makes the same change again.
    let again = [("a", agent, 0.3), ("b", agent, 0.3), ("a", service, 0.3), ("b", agent, 0.3)];
    assert_eq!(severities(&again), "- - - medium");
}

#[test]
fn change_by_the_service_is_not_counted_as_no_change() {
    let records = flat(4, |at, record| {
        record.tree = Some("a".to_owned());
        record.change = if at == 0 { TreeChange::Agent } else { TreeChange::Service };
    });
    let mut it = ReviewedLoop { settings: OversightSettings::default(), ..ReviewedLoop::default() };
    assert_eq!(severity(&it.review(&records), DetectionKind::NoChange), None);
}

#[test]
fn returns_after_a_loss_or_with_progress_do_not_count() {
    let worse_and_back = [("a", TreeChange::Agent, 0.5), ("b", TreeChange::Agent, 0.3), ("a", TreeChange::Agent, 0.5)];
    assert_eq!(severities(&worse_and_back), "- - -");
    let better_and_back = [("a", TreeChange::Agent, 0.3), ("b", TreeChange::Agent, 0.4), ("a", TreeChange::Agent, 0.3)];
    assert_eq!(severities(&better_and_back), "- - -");
    // Two round trips count as oscillation regardless.
    let twice = [0.5, 0.3, 0.5, 0.3].iter().zip(["a", "b", "a", "b"]);
    let twice: Vec<_> = twice.map(|(completion, tree)| (tree, TreeChange::Agent, *completion)).collect();
    assert_eq!(severities(&twice), "- - - high");
}

#[test]
fn weakened_tests_between_equal_trees_prevent_a_return() {
    let records = flat(3, |at, record| {
        (record.tree, record.change) = (Some(["a", "b", "a"][at].to_owned()), TreeChange::Agent);
        record.tampering = if at == 1 { vec!["tests/a.rs: a test was removed".to_owned()] } else { Vec::new() };
    });
    let mut it = ReviewedLoop { settings: OversightSettings::default(), ..ReviewedLoop::default() };
    let verdicts = it.run(&records);
    assert_eq!(signals(&verdicts, DetectionKind::Oscillation), Vec::<&str>::new());
}
