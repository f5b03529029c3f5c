//! Tests of interventions: levels by severity and kind, rising levels, decisions, restoring, pausing, resuming, notifying.

use super::*;
use crate::domain::model::record::CheckFact;

fn same_error(at: usize, record: &mut Record) {
    record.tree = Some(at.to_string());
    record.error_signature = Some("error: no such table".to_owned());
}

/// Returns the severity and level of a kind in each iteration, as `high/redirect`; `-` if it is not detected.
fn course(it: &mut ReviewedLoop, kind: DetectionKind, records: &[Record]) -> String {
    let word = |verdict: &OversightVerdict| match (severity(verdict, kind), level(verdict, kind)) {
        (Some(severity), Some(level)) => format!("{severity:?}/{level:?}").to_lowercase(),
        _ => "-".to_owned(),
    };
    it.run(records).iter().map(word).collect::<Vec<_>>().join(" ")
}

#[test]
fn stuck_is_redirected_then_paused() {
    let mut it = ReviewedLoop::default();
    assert_eq!(
        course(&mut it, DetectionKind::Stuck, &flat(5, same_error)),
        "- - high/redirect high/redirect critical/pause"
    );
    // Without five occurrences of the same error, persistence causes the pause.
    let others = flat(8, |at, r| {
        same_error(at, r);
        r.error_signature = Some("x".repeat(at + 1));
    });
    assert_eq!(
        course(&mut ReviewedLoop::default(), DetectionKind::Stuck, &others),
        "- - - - high/redirect high/redirect critical/pause critical/pause"
    );
    // Progress after the REDIRECT ends the detection.
    let recovered = trace(&[0.3, 0.3, 0.3, 0.36, 0.42, 0.48], same_error);
    assert_eq!(course(&mut ReviewedLoop::default(), DetectionKind::Stuck, &recovered), "- - high/redirect - - -");
}

#[test]
fn same_error_is_critical_within_a_loop_of_ten_iterations() {
    let first_critical = |most: f64| {
        let settings = OversightSettings { climb_after: 50, ..OversightSettings::default() };
        let facts = TaskFacts { max_iterations: most, ..TaskFacts::default() };
        let mut it = ReviewedLoop { settings, facts, ..ReviewedLoop::default() };
        let verdicts = it.run(&flat(12, same_error));
        let is_critical =
            |verdict: &OversightVerdict| severity(verdict, DetectionKind::Stuck) == Some(DetectionSeverity::Critical);
        verdicts.iter().position(is_critical).map(|at| at + 1)
    };
    // Seven tenths of the limit, if less than `critical_error_count`.
    assert_eq!(first_critical(10.0), Some(7));
    assert_eq!(first_critical(30.0), Some(10));
    assert_eq!(first_critical(0.0), Some(10), "the limit is not known");
}

#[test]
fn oscillation_of_four_cycles_pauses() {
    let records = flat(6, |at, r| r.tree = Some(["a", "b"][at % 2].to_owned()));
    assert_eq!(
        course(&mut ReviewedLoop::default(), DetectionKind::Oscillation, &records),
        "- - - high/redirect high/redirect critical/pause"
    );
    let slow = OversightSettings { climb_after: 50, ..pinned_settings() };
    let mut it = ReviewedLoop { settings: slow, ..ReviewedLoop::default() };
    assert!(course(&mut it, DetectionKind::Oscillation, &records).ends_with("critical/pause"));
}

#[test]
fn detection_that_ended_causes_no_further_intervention() {
    let trees = ["a", "b", "a", "b", "c", "d", "e"];
    let back_and_on = flat(7, |at, r| r.tree = Some(trees[at].to_owned()));
    assert_eq!(
        course(&mut ReviewedLoop::default(), DetectionKind::Oscillation, &back_and_on),
        "- - - high/redirect - - -"
    );
    let swings = trace(&[0.3, 0.5, 0.3, 0.5, 0.3, 0.32, 0.34], |_, _| {});
    assert_eq!(course(&mut ReviewedLoop::default(), DetectionKind::Oscillation, &swings), "- - - - high/redirect - -");
    // Lost tests are restored, then lost again.
    let passing = [60.0, 50.0, 40.0, 44.0, 48.0, 47.0];
    let fallen = trace(&passing.map(|passing| passing / 100.0), |at, r| {
        (r.tests_passing, r.tests_failing) = (Some(passing[at]), Some(100.0 - passing[at]));
    });
    assert_eq!(course(&mut ReviewedLoop::default(), DetectionKind::Regression, &fallen), "- - high/warn - - high/warn");
}

#[test]
fn deviation_warns_and_redirects_but_never_pauses() {
    let mut it = ReviewedLoop::default();
    it.settings.climb_after = 10;
    let strange = |_: usize, r: &mut Record| r.objective_similarity = Some(0.1);
    assert_eq!(course(&mut it, DetectionKind::Deviation, &flat(5, strange)), "- - medium/warn high/warn high/warn");
    // Text alone never pauses the loop, regardless of its duration.
    assert_eq!(
        course(&mut ReviewedLoop::default(), DetectionKind::Deviation, &flat(9, strange)),
        "- - medium/warn high/warn high/redirect high/redirect high/redirect high/redirect high/redirect"
    );
}

#[test]
fn resource_burn_level_depends_on_ratio_and_outlook() {
    let facts = TaskFacts { estimated_iterations: Some(2.0), max_iterations: 90.0, ..TaskFacts::default() };
    let course = |completions: &[f64]| {
        course(
            &mut ReviewedLoop { facts: facts.clone(), ..ReviewedLoop::default() },
            DetectionKind::ResourceBurn,
            &trace(completions, |_, _| {}),
        )
    };
    assert_eq!(course(&[0.1, 0.2, 0.3, 0.4, 0.5, 0.6]), "- - - - critical/pause critical/pause");
    assert_eq!(course(&[0.1, 0.3, 0.5, 0.7, 0.92, 0.94]), "- - - - high/redirect high/redirect");
    assert_eq!(course(&[0.01, 0.01, 0.02, 0.02, 0.03]), "- - - - critical/abort");
    let facts = TaskFacts { estimated_iterations: Some(3.0), ..facts.clone() };
    let mut it = ReviewedLoop { facts, ..ReviewedLoop::default() };
    let nearly = trace(&[0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95], |_, _| {});
    assert_eq!(super::levels::course(&mut it, DetectionKind::ResourceBurn, &nearly), "- - - - - - medium/warn");
}

fn build(passed: bool) -> CheckFact {
    CheckFact { name: "build".to_owned(), passed, baseline: Some(true) }
}

fn test(passed: bool) -> CheckFact {
    CheckFact { name: "test".to_owned(), passed, baseline: Some(false) }
}

/// Returns a loop whose second iteration is its best and whose fourth iteration breaks the build.
fn broken(length: usize) -> Vec<Record> {
    trace(&[0.5, 0.6, 0.55, 0.3, 0.3, 0.31, 0.3][..length], |at, r| r.checks = vec![build(at < 3), test(false)])
}

#[test]
fn critical_regression_restores_the_best_iteration_and_pauses() {
    let mut it = ReviewedLoop::default();
    let verdicts = it.run(&broken(5));
    assert_eq!(level(&verdicts[3], DetectionKind::Regression), Some(InterventionLevel::Warn));
    let last = &verdicts[4];
    assert_eq!(
        (severity(last, DetectionKind::Regression), last.decision),
        (Some(DetectionSeverity::Critical), OversightDecision::Pause)
    );
    assert_eq!((last.restore, it.state.restores), (Some(2), 1));
    assert!(last.audit.iter().any(|entry| entry.event == AuditEvent::Restored && entry.reason.contains("iteration 2")));
    // A persistent regression is not restored again.
    let again = it.review(&broken(6));
    assert_eq!((again.restore, again.decision), (None, OversightDecision::Pause));
}

#[test]
fn second_critical_regression_or_failed_restore_ends_the_loop() {
    let mut it = ReviewedLoop::default();
    it.run(&broken(5));
    it.state.resume(5, "ann", &it.settings);
    let mut records = broken(5);
    for (at, passed) in [true, true, true, false, false].into_iter().enumerate() {
        let completion = 0.6 + 0.02 * at as f64;
        records.push(Record {
            iteration: 6.0 + at as f64,
            completion: Ratio::new(completion),
            checks: vec![build(passed), test(false)],
            ..Record::default()
        });
    }
    let verdicts: Vec<OversightVerdict> = (6..=10).map(|until| it.review(&records[..until])).collect();
    assert_eq!(verdicts[3].decision, OversightDecision::Continue);
    assert_eq!((verdicts[4].decision, verdicts[4].restore), (OversightDecision::Abort, None));

    let mut it = ReviewedLoop::default();
    it.run(&broken(5));
    let failed = restore_failed(&mut it.state, 5, "the commit is gone", &it.settings);
    assert_eq!((failed.decision, it.state.health), (OversightDecision::Abort, Health::Aborted));
    assert_eq!(failed.escalation, Some(Escalation { level: EscalationLevel::Emergency, outside: true }));

    let strict = OversightSettings { strict_regression: true, ..pinned_settings() };
    let mut it = ReviewedLoop { settings: strict, ..ReviewedLoop::default() };
    let last = it.run(&broken(5)).pop().unwrap_or_default();
    assert_eq!((last.decision, last.restore), (OversightDecision::Abort, None));
}

#[test]
fn state_before_the_first_iteration_can_be_the_best() {
    let last =
        ReviewedLoop::default().run(&trace(&[0.2, 0.2], |_, r| r.checks = vec![build(false), test(false)])).pop();
    assert_eq!(last.unwrap_or_default().restore, Some(0));
}

#[test]
fn regression_that_recovers_is_withdrawn() {
    let records = trace(&[0.5, 0.5, 0.55], |at, r| r.tests_passing = Some([10.0, 4.0, 10.0][at]));
    let mut it = ReviewedLoop::default();
    let verdicts = it.run(&records);
    assert_eq!(level(&verdicts[1], DetectionKind::Regression), Some(InterventionLevel::Warn));
    assert_eq!((verdicts[2].health, verdicts[2].audit[0].event), (Health::Healthy, AuditEvent::Withdrawn));
}

#[test]
fn tampering_after_a_redirect_pauses() {
    let records = trace(&[0.3, 0.4, 0.5, 0.6], |at, r| {
        r.tampering = if at % 2 == 0 { vec!["tests/a.rs: a test was removed".to_owned()] } else { Vec::new() };
    });
    assert_eq!(
        course(&mut ReviewedLoop::default(), DetectionKind::TestTampering, &records),
        "high/redirect - critical/pause -"
    );
    let often = flat(5, |_, r| r.tampering = vec!["tests/a.rs: a test was removed".to_owned()]);
    let mut now = ReviewedLoop { settings: OversightSettings::default(), ..ReviewedLoop::default() };
    assert_eq!(
        course(&mut now, DetectionKind::TestTampering, &often),
        "high/redirect high/redirect high/redirect critical/pause critical/pause"
    );
}

#[test]
fn repeated_no_change_and_agent_failure_raise_the_level() {
    let idle = flat(7, |_, r| r.tree = Some("a".to_owned()));
    let mut it = ReviewedLoop::default();
    it.settings.stuck.enabled = false;
    assert_eq!(
        course(&mut it, DetectionKind::NoChange, &idle),
        "- medium/warn high/warn high/redirect high/redirect critical/pause critical/pause"
    );
    let failing = flat(5, |_, r| r.agent_failure = Some("timed out".to_owned()));
    assert_eq!(
        course(&mut ReviewedLoop::default(), DetectionKind::AgentFailure, &failing),
        "- - high/redirect high/redirect critical/pause"
    );
}

#[test]
fn token_growth_raises_its_level_only_if_enabled() {
    let growing = flat(10, |at, r| {
        r.tree = Some(at.to_string());
        r.error_signature = Some("x".repeat(at + 1));
        r.tokens_in = if at < 3 { 1e5 } else { 3e5 };
    });
    let mut it = ReviewedLoop::default();
    it.settings.stuck.enabled = false;
    assert_eq!(course(&mut it, DetectionKind::TokenGrowth, &growing[..7]), "- - - - - medium/log medium/log");
    assert_eq!(it.state.detections.get(&DetectionKind::TokenGrowth), Some(&2));
    it.settings.token_growth.observe = false;
    it.state = OverseerState::default();
    assert_eq!(
        course(&mut it, DetectionKind::TokenGrowth, &growing[..8]),
        "- - - - - medium/warn medium/warn medium/redirect"
    );
}

/// Returns the stored text form of the directives.
fn texts(verdict: &OversightVerdict) -> String {
    let texts: Vec<String> = verdict.directives.iter().map(ToString::to_string).collect();
    let stored = serde_json::to_value(&verdict.directives).unwrap();
    assert_eq!(stored, serde_json::json!(texts));
    assert_eq!(serde_json::from_value::<Vec<Directive>>(stored).unwrap(), verdict.directives);
    texts.join("\n\n")
}

#[test]
fn directive_without_a_prefix_is_a_warning() {
    let read: Directive = serde_json::from_value("Run the linter.".into()).unwrap();
    assert_eq!((read.level, read.text.as_str()), (DirectiveLevel::Warning, "Run the linter."));
}

#[test]
fn each_cause_gives_one_directive() {
    let mut it = ReviewedLoop::default();
    let verdicts = it.run(&flat(4, same_error));
    assert_eq!(verdicts[2].decision, OversightDecision::ContinueWithDirectives);
    insta::assert_snapshot!(texts(&verdicts[2]), @r#"
        OVERRIDE: Stop the present approach; it does not work. Take one that was not tried. Evidence: the same error in 3 of the last 5 iterations: error: no such table.
        - Take a different approach; the previous ones do not work.
        - Find the cause with a minimal reproduction before changing more.
        - Split the task and do its smallest part first.
        "#);
    assert_eq!((verdicts[3].decision, verdicts[3].directives.len()), (OversightDecision::Continue, 0));
    assert!(!verdicts[3].interventions[0].fresh && verdicts[3].escalation.is_none());

    let falling = trace(&[0.6, 0.58, 0.56, 0.54], |_, r| r.coverage = None);
    let verdicts = ReviewedLoop::default().run(&falling);
    insta::assert_snapshot!(texts(&verdicts[2]), @r#"
        WARNING: A check that passed now fails. Evidence: completion fell by 4 % in 2 iterations in a row.
        - Fix the check that used to pass before anything else.
        - Compare with the best iteration and revert the change that broke it.
        "#);
    assert!(verdicts[3].directives.is_empty());
}

#[test]
fn most_severe_detection_decides_and_the_others_are_recorded() {
    let records = flat(5, |at, r| {
        same_error(at, r);
        r.tree = Some("a".to_owned());
    });
    let mut it = ReviewedLoop::default();
    let last = it.run(&records).pop().unwrap_or_default();
    assert_eq!(last.decision, OversightDecision::Pause);
    let levels: Vec<_> = last.interventions.iter().map(|done| (done.kind, done.level)).collect();
    assert_eq!(
        levels,
        [(DetectionKind::Stuck, InterventionLevel::Pause), (DetectionKind::NoChange, InterventionLevel::Redirect)]
    );
    assert_eq!(last.escalation, Some(Escalation { level: EscalationLevel::Critical, outside: true }));
}

#[test]
fn notifications_depend_on_the_level() {
    let cases = [
        (InterventionLevel::Log, EscalationLevel::Info, false),
        (InterventionLevel::Warn, EscalationLevel::Warning, false),
        (InterventionLevel::Redirect, EscalationLevel::Warning, false),
        (InterventionLevel::Pause, EscalationLevel::Critical, true),
        (InterventionLevel::Abort, EscalationLevel::Emergency, true),
    ];
    for (done, level, outside) in cases {
        assert_eq!(Escalation::of(done, true), Escalation { level, outside });
        assert_eq!(Escalation::of(done, false), Escalation { level, outside: false });
    }
}

#[test]
fn observed_detections_are_only_recorded() {
    let mut it = ReviewedLoop::default();
    it.settings.stuck.observe = true;
    let verdicts = it.run(&flat(9, same_error));
    assert!(
        verdicts
            .iter()
            .all(|verdict| verdict.decision == OversightDecision::Continue && verdict.health == Health::Healthy)
    );
    assert_eq!(
        (severity(&verdicts[8], DetectionKind::Stuck), level(&verdicts[8], DetectionKind::Stuck)),
        (Some(DetectionSeverity::Critical), Some(InterventionLevel::Log))
    );
    assert_eq!(it.state.interventions.get(&InterventionLevel::Log), Some(&1));
    it.settings.stuck.enabled = false;
    assert!(it.review(&flat(10, same_error)).detections.is_empty());
}

#[test]
fn pause_lasts_until_a_person_resumes() {
    let mut it = ReviewedLoop::default();
    it.run(&flat(5, same_error));
    assert_eq!(it.review(&flat(6, same_error)).decision, OversightDecision::Pause);
    let entry = it.state.resume(6, "ann", &it.settings);
    assert_eq!((entry.reason.as_str(), it.state.health), ("resumed by ann", Health::Healthy));
    // The cause of the pause only warns for a while, and then counts in full.
    let levels: Vec<_> =
        (7..=10).map(|length| level(&it.review(&flat(length, same_error)), DetectionKind::Stuck)).collect();
    assert_eq!(
        levels,
        [
            Some(InterventionLevel::Warn),
            Some(InterventionLevel::Warn),
            Some(InterventionLevel::Warn),
            Some(InterventionLevel::Pause)
        ]
    );
}

#[test]
fn report_states_whether_an_intervention_helped() {
    let reported = |records: &[Record]| {
        let mut it = ReviewedLoop::default();
        let verdicts = it.run(records);
        let given = |done: &Intervention| GivenIntervention { kind: done.kind, level: done.level };
        let step = |(record, verdict): (&Record, &OversightVerdict)| CourseStep {
            completion: record.completion.get(),
            interventions: verdict.interventions.iter().filter(|done| done.fresh).map(given).collect(),
        };
        let course: Vec<CourseStep> = records.iter().zip(&verdicts).map(step).collect();
        OversightReport::of(&it.state, &course, false, it.settings.min_progress)
    };
    let helped = reported(&trace(&[0.3, 0.3, 0.3, 0.4, 0.5], same_error));
    let sum = helped.plus(&reported(&flat(5, same_error)));
    assert_eq!(sum.followed[&InterventionLevel::Redirect].effectiveness(), Some(0.5));
    insta::assert_snapshot!(sum, @r#"
        Detections (iterations each):
          stuck               4   progress followed 1 of 2, false positives 0 of 2
        Interventions:
          REDIRECT            2   progress followed 1 of 2, false positives 0 of 2
          PAUSE               1
        "#);
    assert_eq!(OversightReport::default().to_string(), "Nothing was detected.\n");
}
