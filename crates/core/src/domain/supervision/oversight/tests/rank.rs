//! Tests of the order of detections, interventions and directives in one review.

use super::*;

#[test]
fn directives_are_ordered_by_rank() {
    let mut it = ReviewedLoop::on("Fix the authentication tests of the login service");
    it.settings.stuck.enabled = false;
    // Both are new in the third iteration; the text alone would cause a higher level than the measurement.
    it.settings.no_change.iterations = 3;
    it.settings.no_change.high_iterations = 4;
    it.settings.deviation.high_after = 3;
    let verdicts = it.run(&flat(3, |_, record| {
        record.tree = Some("a".to_owned());
        record.objective_similarity = Some(0.1);
    }));
    let last = &verdicts[2];
    let found: Vec<_> = last.detections.iter().map(|found| (found.kind, found.severity)).collect();
    let expected =
        [(DetectionKind::NoChange, DetectionSeverity::Medium), (DetectionKind::Deviation, DetectionSeverity::High)];
    assert_eq!(found, expected);
    let texts: Vec<String> = last.directives.iter().map(ToString::to_string).collect();
    assert!(texts[0].contains("changed nothing") && texts[1].contains("scope of the task"), "{texts:?}");
}
