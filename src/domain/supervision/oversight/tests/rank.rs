//! Rank of the causes of an iteration: what was measured stands before what was read from words.

use proptest::prelude::*;

use super::*;
use crate::domain::loops::{IterationJudgement, JudgedDetection};
use crate::domain::supervision::control::{Trend, Urgency};
use crate::domain::supervision::strategy::Approach;

const LEVELS: [InterventionLevel; 5] = [
    InterventionLevel::Log,
    InterventionLevel::Warn,
    InterventionLevel::Redirect,
    InterventionLevel::Pause,
    InterventionLevel::Abort,
];
const SEVERITIES: [DetectionSeverity; 4] =
    [DetectionSeverity::Low, DetectionSeverity::Medium, DetectionSeverity::High, DetectionSeverity::Critical];

/// Judgement with these detections.
fn judgement(found: Vec<JudgedDetection>) -> IterationJudgement {
    IterationJudgement {
        p: 0.0,
        i: 0.0,
        d: 0.0,
        signal: 0.0,
        urgency: Urgency::Normal,
        trend: Trend::default(),
        profile: String::new(),
        forecast: None,
        health: Health::Healthy,
        found,
        approach: Approach::Persist,
        way: String::new(),
        reasoning: String::new(),
        moved: Vec::new(),
        stops: None,
    }
}

fn found(kind: DetectionKind, basis: Basis, severity: DetectionSeverity, level: InterventionLevel) -> JudgedDetection {
    JudgedDetection {
        kind,
        severity,
        basis: Some(basis),
        level,
        fresh: true,
        evidence: String::new(),
        recommendations: Vec::new(),
    }
}

/// Kind of the headline of these detections, given as kind, basis, level, each of high severity.
fn headline(causes: &[(DetectionKind, Basis, InterventionLevel)]) -> DetectionKind {
    let high = |(kind, basis, level): &(_, _, _)| found(*kind, *basis, DetectionSeverity::High, *level);
    let judged = judgement(causes.iter().map(high).collect());
    judged.headline().expect("a headline").kind
}

#[test]
fn headline_is_the_most_direct_cause_of_the_deciding_level() {
    use Basis::{Derived, Measured, Words};
    use DetectionKind::{AgentFailure, Deviation, NoChange, Oscillation, ResourceBurn, Stuck};
    use InterventionLevel::{Log, Pause, Redirect, Warn};
    assert_eq!(headline(&[(Stuck, Derived, Pause), (Oscillation, Measured, Pause)]), Oscillation);
    assert_eq!(headline(&[(Stuck, Derived, Pause), (NoChange, Measured, Warn)]), Stuck);
    assert_eq!(headline(&[(Deviation, Words, Redirect), (NoChange, Measured, Warn)]), NoChange);
    assert_eq!(headline(&[(Stuck, Words, Redirect), (ResourceBurn, Derived, Warn)]), ResourceBurn);
    assert_eq!(headline(&[(Deviation, Words, Warn), (ResourceBurn, Derived, Log)]), Deviation);
    assert_eq!(headline(&[(Stuck, Measured, Pause), (AgentFailure, Measured, Pause)]), AgentFailure);
}

#[test]
fn more_severe_cause_of_the_same_level_and_basis_is_first() {
    let at = |kind, severity| found(kind, Basis::Measured, severity, InterventionLevel::Pause);
    let judged = judgement(vec![
        at(DetectionKind::Oscillation, DetectionSeverity::High),
        at(DetectionKind::Stuck, DetectionSeverity::Critical),
    ]);
    assert_eq!(judged.headline().map(|found| found.kind), Some(DetectionKind::Stuck));
}

#[test]
fn detection_stored_without_a_basis_has_that_of_its_kind() {
    let stored = serde_json::json!({
        "kind": "deviation", "severity": "high", "level": "redirect", "fresh": true, "evidence": "x", "recommendations": []
    });
    let read: JudgedDetection = serde_json::from_value(stored).expect("readable");
    assert_eq!((read.basis, read.basis()), (None, Basis::Words));
}

#[test]
fn redirect_by_words_is_told_by_the_measured_cause() {
    let words = found(DetectionKind::Deviation, Basis::Words, DetectionSeverity::High, InterventionLevel::Redirect);
    let measured = found(DetectionKind::NoChange, Basis::Measured, DetectionSeverity::High, InterventionLevel::Warn);
    let judged = judgement(vec![measured, words.clone()]);
    assert_eq!(judged.named(&words).kind, DetectionKind::NoChange);
    assert_eq!(judged.named(&judged.found[0]).kind, DetectionKind::NoChange);
    assert_eq!(judgement(vec![words.clone()]).named(&words).kind, DetectionKind::Deviation);
}

#[test]
fn directives_stand_in_the_order_of_the_rank() {
    let mut it = ReviewedLoop::on("Fix the authentication tests of the login service");
    it.settings.stuck.enabled = false;
    // Both are new in the third iteration; words ask for more than the measurement.
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

proptest! {
    #[test]
    fn headline_is_never_by_words_where_something_was_measured(
        causes in prop::collection::vec(
            (
                prop::sample::select(DetectionKind::ALL.to_vec()),
                prop::sample::select(Basis::ALL.to_vec()),
                prop::sample::select(SEVERITIES.to_vec()),
                prop::sample::select(LEVELS.to_vec()),
            ),
            1..10,
        ),
    ) {
        let causes: Vec<_> = causes.into_iter().map(|(kind, basis, severity, level)| {
            found(kind, basis, severity, level.min(basis.strongest()))
        }).collect();
        let acted = causes.iter().any(|found| found.basis() != Basis::Words && found.level > InterventionLevel::Log);
        let judged = judgement(causes);
        let headline = judged.headline().expect("a headline");
        prop_assert!(!acted || headline.basis() != Basis::Words, "{:?}", judged.found);
        // A pause has a cause that pauses.
        let most = judged.level().expect("a level");
        prop_assert!(most < InterventionLevel::Pause || headline.level == most, "{:?}", judged.found);
    }
}
