//! Tests of each rule, and of the rules' order.

use proptest::prelude::*;

use super::*;
use crate::domain::model::ids::Ratio;
use crate::domain::model::record::{CheckFact, Record};
use crate::domain::model::task::{CheckOutcome, CheckReport, DiffStat, FileStat};
use crate::domain::supervision::TaskFacts;
use crate::domain::supervision::oversight::{Basis, DetectionKind, DetectionSeverity, Intervention, InterventionLevel};
use crate::domain::supervision::{SupervisionPreset, SupervisionSettings};

/// Returns the thresholds of the preset `pinned`, which are independent of the defaults.
fn pinned_settings() -> StrategySettings {
    SupervisionSettings::of(SupervisionPreset::Pinned).strategy
}

fn history(completions: &[f64]) -> Vec<Record> {
    let record = |(at, completion): (usize, &f64)| Record {
        iteration: at as f64 + 1.0,
        completion: Ratio::new(*completion),
        ..Record::default()
    };
    completions.iter().enumerate().map(record).collect()
}

fn assessed(history: &[Record]) -> StateAssessment {
    assess(history, &TaskFacts { max_iterations: 20.0, ..TaskFacts::default() }, None, None, &pinned_settings())
}

fn blocked(history: &mut [Record], times: usize, what: &str) {
    let from = history.len() - times;
    history[from..].iter_mut().for_each(|record| record.blockers = vec![what.to_owned()]);
}

fn situation(assessment: &StateAssessment) -> PlanInput<'_> {
    PlanInput { assessment, redirect: None, stuck: false, oscillating: false, reviews: &[], failed: &[] }
}

fn planned(situation: &PlanInput<'_>) -> StrategyPlan {
    plan(&mut StrategyState::default(), situation, &pinned_settings())
}

fn redirected(reason: &str) -> Intervention {
    Intervention {
        level: InterventionLevel::Redirect,
        kind: DetectionKind::Oscillation,
        cause: "oscillation".to_owned(),
        severity: DetectionSeverity::High,
        basis: Basis::Measured,
        fresh: true,
        reason: reason.to_owned(),
    }
}

#[test]
fn redirect_by_words_alone_never_escalates_for_lack_of_an_approach() {
    let begun = assessed(&history(&[0.3]));
    let mut state = StrategyState::default();
    let mut plan_by = |basis| {
        let redirect = Intervention { basis, ..redirected("the work does not match the task") };
        plan(&mut state, &PlanInput { redirect: Some(&redirect), ..situation(&begun) }, &pinned_settings()).approach
    };
    let pivots = (0..40).take_while(|_| plan_by(Basis::Measured) == Approach::Pivot).count();
    assert!((1..40).contains(&pivots), "{pivots}");
    assert_eq!(plan_by(Basis::Measured), Approach::Escalate);
    assert_eq!(plan_by(Basis::Words), Approach::Persist);
}

fn outcome(name: &str, holds: bool, output: &str) -> CheckOutcome {
    CheckOutcome {
        name: name.to_owned(),
        command: name.to_owned(),
        holds,
        why: if holds { String::new() } else { "exited with 1".to_owned() },
        exit_code: Some(1),
        duration_ms: 1,
        output: output.to_owned(),
        ..CheckOutcome::default()
    }
}

#[test]
fn phase_follows_budget_and_completion() {
    let phase = |completions: &[f64]| assessed(&history(completions)).phase;
    assert_eq!(phase(&[]), Phase::Early);
    assert_eq!(phase(&[0.1, 0.2, 0.3]), Phase::Early);
    assert_eq!(phase(&[0.1, 0.2, 0.3, 0.4]), Phase::Mid);
    assert_eq!(phase(&[0.81]), Phase::Late);
    assert_eq!(phase(&[0.3; 17]), Phase::Late);
    let facts = TaskFacts { max_iterations: 20.0, max_cost_usd: Some(1.0), ..TaskFacts::default() };
    let mut costly_history = history(&[0.1, 0.2]);
    costly_history[0].cost_usd = 0.5;
    let assessment = assess(&costly_history, &facts, None, None, &pinned_settings());
    assert_eq!((assessment.phase, assessment.budget_used, assessment.iterations_left), (Phase::Mid, 0.5, 2.0));
}

#[test]
fn failing_checks_have_first_error_and_dependents() {
    let report = CheckReport {
        outcomes: vec![
            outcome("npm test", false, "  ● sum › adds\n\n    expect(received).toBe(expected)\n"),
            outcome("lint", true, ""),
            outcome("coverage", false, "quiet"),
            outcome("npm run build", false, "src/a.ts(3,5): error TS2304: Cannot find name 'x'.\n"),
        ],
    };
    let file = |path: &str| FileStat { path: path.to_owned(), added: 3, removed: 1, binary: false, change: None };
    let change = DiffStat { files: vec![file("a"), file("b")] };
    let settings = pinned_settings();
    let found = assess(&history(&[0.4]), &TaskFacts::default(), Some(&report), Some(&change), &settings);
    let failing: Vec<_> = found.failing.iter().map(|c| (c.name.as_str(), c.error.as_deref(), c.waiting)).collect();
    let build = Some("src/a.ts(#): error TS2304: Cannot find name 'x'.");
    let test = Some("● sum › adds expect(received).toBe(expected)");
    assert_eq!(failing, [("npm run build", build, 2), ("npm test", test, 1), ("coverage", Some("exited with 1"), 0)]);
    assert_eq!(found.last_change, Some(LastChange { files: 2, added: 6, removed: 2 }));

    let mut by_record = history(&[0.4]);
    by_record[0].checks = vec![CheckFact { name: "test".to_owned(), passed: false, baseline: None }];
    by_record[0].error_signature = Some("boom".to_owned());
    assert_eq!(assessed(&by_record).failing[0].error.as_deref(), Some("boom"));
}

#[test]
fn blockers_are_counted_ignoring_digits() {
    let mut records = history(&[0.1, 0.2, 0.3]);
    records[0].blockers = vec!["port 8080 is taken".to_owned()];
    records[2].blockers =
        vec!["No credentials".to_owned(), "port 9090 is taken".to_owned(), "port 1 is taken".to_owned()];
    let found = assessed(&records).blockers;
    let found: Vec<_> = found.iter().map(|blocker| (blocker.text.as_str(), blocker.seen)).collect();
    assert_eq!(found, [("port 9090 is taken", 2), ("No credentials", 1)]);
}

#[test]
fn first_matching_rule_decides() {
    // All rules match at the start; then each is disabled in turn, from the first to the last.
    let redirect = redirected("The loop oscillates between approaches: 2 returns");
    let mut all = history(&[0.85; 8]);
    blocked(&mut all, 3, "no database");
    let at_rest = assessed(&all);
    let full = PlanInput { redirect: Some(&redirect), stuck: true, oscillating: true, ..situation(&at_rest) };
    assert_eq!((at_rest.without_progress, planned(&full).approach), (7, Approach::Escalate));

    let mut moving = history(&[0.5, 0.6, 0.7, 0.85]);
    blocked(&mut moving, 3, "no database");
    let assessment = assessed(&moving);
    let full = PlanInput { assessment: &assessment, ..full };
    let found = planned(&full);
    let reasoning = "the overseer redirected the loop: The loop oscillates between approaches: 2 returns";
    assert_eq!((found.approach, found.reasoning.as_str()), (Approach::Pivot, reasoning));

    let found = planned(&PlanInput { redirect: None, ..full });
    assert_eq!((found.approach, found.name.as_str()), (Approach::Pivot, "blocker: no database"));

    let assessment = assessed(&history(&[0.5, 0.6, 0.7, 0.85]));
    let clear = PlanInput { assessment: &assessment, redirect: None, ..full };
    let found = planned(&clear);
    assert_eq!((found.approach, found.name.as_str()), (Approach::Pivot, "find the cause first"));

    let found = planned(&PlanInput { stuck: false, ..clear });
    assert_eq!((found.approach, found.name.as_str()), (Approach::Simplify, "one change at a time"));

    let found = planned(&PlanInput { stuck: false, oscillating: false, ..clear });
    assert_eq!(
        (found.approach, found.reasoning.as_str(), found.adjustments.len()),
        (Approach::Persist, "85 % are done", 1)
    );

    let begun = assessed(&history(&[0.3]));
    let found = planned(&situation(&begun));
    assert_eq!((found.approach, found.adjustments.len()), (Approach::Persist, 0));
}

#[test]
fn no_approach_is_proposed_twice() {
    let mut state = StrategyState::default();
    let mut names = Vec::new();
    let failed = vec!["Minimal reproduction did not show the failure.".to_owned()];
    for iteration in 1..40 {
        let assessment = StateAssessment { iteration, ..assessed(&history(&[0.3])) };
        let stuck = PlanInput { stuck: true, failed: &failed, ..situation(&assessment) };
        let found = plan(&mut state, &stuck, &pinned_settings());
        if found.approach == Approach::Escalate {
            assert!(found.reasoning.contains("no approach is left; tried before: find the cause first, "));
            break;
        }
        assert!(!found.reasoning.is_empty());
        names.push(found.name);
    }
    // Each approach has its two iterations, one after another; approaches that failed elsewhere are omitted.
    assert_eq!(names.len(), 12);
    names.dedup();
    assert_eq!(names.len(), 6);
    assert!(!names.contains(&"minimal reproduction".to_owned()));
}

#[test]
fn blocker_is_addressed_once() {
    let mut state = StrategyState::default();
    let mut records = history(&[0.1, 0.2]);
    blocked(&mut records, 2, "no database");
    let assessment = assessed(&records);
    let mut approaches = Vec::new();
    for iteration in 3..6 {
        let assessment = StateAssessment { iteration, ..assessment.clone() };
        approaches.push(plan(&mut state, &situation(&assessment), &pinned_settings()).approach);
    }
    assert_eq!(approaches, [Approach::Pivot, Approach::Pivot, Approach::Persist]);
    let stored = serde_json::to_string(&state).expect("a state is JSON");
    assert_eq!(serde_json::from_str::<StrategyState>(&stored).expect("and comes back"), state);
}

#[test]
fn priorities_are_ordered() {
    let mut records = history(&[0.4]);
    let check = |name: &str| CheckFact { name: name.to_owned(), passed: false, baseline: None };
    records[0].checks = vec![check("test"), check("build")];
    records[0].blockers = vec!["no key".to_owned()];
    let reviews = vec!["Rename this.".to_owned()];
    let priorities = |records: &[Record]| {
        let assessment = assessed(records);
        planned(&PlanInput { reviews: &reviews, ..situation(&assessment) }).priorities
    };
    let checks = [WorkPriority::Check("build".to_owned()), WorkPriority::Check("test".to_owned())];
    let others = [WorkPriority::Blocker("no key".to_owned()), WorkPriority::Review("Rename this.".to_owned())];
    assert_eq!(priorities(&records), [checks.clone(), others].concat());
    records[0].completion = Ratio::new(0.9);
    assert_eq!(priorities(&records), checks, "near completion only what still fails");
}

#[test]
fn validation_before_iteration_finds_issues() {
    let settings = pinned_settings();
    let mut records = history(&[0.5; 4]);
    blocked(&mut records, 1, "no key");
    let assessment = assessed(&records);
    let planned = planned(&situation(&assessment));
    let check = |plan: &StrategyPlan, assessment: &StateAssessment, forecast: Option<f64>| {
        let found = validate_before(plan, assessment, forecast, &settings);
        (found.issues.iter().map(|issue| issue.severity).collect::<Vec<_>>(), found.stops())
    };
    assert_eq!(check(&planned, &assessment, Some(2.0)), (vec![], false));
    let late = StateAssessment { budget_used: 0.95, iterations_left: 2.0, ..assessment.clone() };
    assert_eq!(check(&planned, &late, Some(2.0)), (vec![DetectionSeverity::Low], false));
    assert!(check(&planned, &late, Some(3.0)).1);
    assert!(check(&planned, &late, None).1);
    let forgetful = StrategyPlan { priorities: Vec::new(), ..planned };
    let mut several = assessment;
    several.blockers.extend([several.blockers[0].clone(), several.blockers[0].clone()]);
    let found = validate_before(&forgetful, &several, None, &settings);
    let issue = ("the plan does not address a blocker: no key and 2 more", DetectionSeverity::Medium);
    assert_eq!(found.issues.iter().map(|i| (i.text.as_str(), i.severity)).collect::<Vec<_>>(), [issue]);
}

#[test]
fn validation_after_iteration_finds_issues() {
    let check = |record: Record| {
        let found = validate_after(&record, &pinned_settings());
        found.into_iter().map(|issue| (issue.text, issue.advice.is_some())).collect::<Vec<_>>()
    };
    let record = Record { completion: Ratio::new(0.9), ..Record::default() };
    assert_eq!(check(record.clone()), []);
    let claims = Record { completion_signal: true, ..record.clone() };
    assert_eq!(check(claims), [("the agent reports completion, but checks fail".to_owned(), false)]);
    assert_eq!(check(Record { completion: Ratio::new(1.0), completion_signal: true, ..record.clone() }), []);
    let failed = CheckFact { name: "test".to_owned(), passed: false, baseline: None };
    let tools = |errors| Record { errors, checks: vec![failed.clone()], ..record.clone() };
    assert_eq!(check(tools(6.0)), []);
    assert_eq!(check(tools(7.0)), [("6 errors of the agent's tools".to_owned(), true)]);
    assert_eq!(check(Record { quality: 0.5, ..record.clone() }), []);
    assert_eq!(check(Record { quality: 0.3, ..record }), [("quality is 0.30".to_owned(), true)]);
}

proptest! {
    #[test]
    fn any_history_gives_a_plan(
        completions in prop::collection::vec(prop_oneof![any::<f64>(), 0.0..=1.0], 0..12),
        texts in prop::collection::vec(any::<String>(), 0..4),
        flags in any::<[bool; 3]>(),
        limit in any::<f64>(),
    ) {
        let settings = pinned_settings();
        let mut records = history(&completions);
        records.iter_mut().for_each(|record| record.blockers.clone_from(&texts));
        let facts = TaskFacts { max_iterations: limit, max_cost_usd: Some(limit), ..TaskFacts::default() };
        let assessment = assess(&records, &facts, None, None, &settings);
        let redirect = redirected(&texts.concat());
        let situation = PlanInput {
            assessment: &assessment,
            redirect: flags[0].then_some(&redirect),
            stuck: flags[1],
            oscillating: flags[2],
            reviews: &texts,
            failed: &texts,
        };
        let (mut state, mut twin) = (StrategyState::default(), StrategyState::default());
        let first = plan(&mut state, &situation, &settings);
        prop_assert_eq!(&first, &plan(&mut twin, &situation, &settings));
        prop_assert_eq!(&state, &twin);
        validate_before(&first, &assessment, Some(limit), &settings);
        for record in &records {
            validate_after(record, &settings);
        }
    }
}

#[test]
fn invalid_settings_are_rejected() {
    use crate::domain::model::settings::{Settings, lines, without_range};
    let settings = pinned_settings();
    assert_eq!(settings.validate(), []);
    assert_eq!(without_range::<StrategySettings>(), [""; 0], "every number has a range");
    let wrong = |layer| lines(&settings.merged(&layer).unwrap_err());
    insta::assert_snapshot!(wrong(serde_json::json!({ "early": 0.8, "patience": 8, "blocker_count": 0, "min_quality": 2 })), @r"
    `strategy.blocker_count` is 0; it must be between 1 and 100
    `strategy.min_quality` is 2; it must be between 0 and 1
    `strategy.early` is 0.8; it must be below `strategy.late`, which is 0.8
    `strategy.patience` is 8; it must be at most `strategy.escalation_threshold`, which is 7
    ");
    insta::assert_snapshot!(wrong(serde_json::json!({ "earl": 0.8, "late": "soon" })), @r#"
    `strategy.earl` is 0.8; there is no such key
    `strategy.late` is "soon"; expected a number
    "#);
}
