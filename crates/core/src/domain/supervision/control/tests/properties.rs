//! Property tests for arbitrary input.

use proptest::prelude::*;

use super::{completions, long, run};
use crate::domain::model::ids::Ratio;
use crate::domain::model::record::{CheckFact, Record};
use crate::domain::supervision::TaskFacts;
use crate::domain::supervision::control::{ControlSettings, ControlState, MAX_STATE};

/// Generates numbers, mostly plausible ones.
fn number() -> impl Strategy<Value = f64> {
    prop_oneof![3 => 0.0..1.0, 1 => -10.0..100.0, 1 => proptest::num::f64::ANY]
}

fn texts() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(prop_oneof![Just("db timeout".to_owned()), ".{0,40}", "[a-c\"\\\\]{0,3}"], 0..5)
}

prop_compose! {
    fn record()(
        numbers in prop::array::uniform8(number()),
        tests in prop::array::uniform2(prop::option::of(number())),
        blockers in texts(),
        learnings in texts(),
        names in texts(),
        error_signature in prop::option::of(".{0,200}"),
    ) -> Record {
        let [iteration, completion, quality, errors, duration_s, cost_usd, tokens_in, tool_calls] = numbers;
        let [tests_passing, tests_failing] = tests;
        let checks = names.into_iter().map(|name| CheckFact { name, passed: false, baseline: None }).collect();
        Record {
            iteration, completion: Ratio::new(completion), quality, errors, duration_s, cost_usd, tokens_in, tool_calls,
            tests_passing, tests_failing, blockers, learnings, checks, error_signature,
            ..Record::default()
        }
    }
}

prop_compose! {
    fn task()(
        task in ".{0,100}",
        max_iterations in number(),
        limits in prop::array::uniform3(prop::option::of(number())),
        security_sensitive in any::<bool>(),
    ) -> TaskFacts {
        let [timeout_minutes, max_cost_usd, complexity] = limits;
        TaskFacts { task, max_iterations, timeout_minutes, max_cost_usd, complexity, security_sensitive, ..TaskFacts::default() }
    }
}

/// Whether all required figures in a value are non-null. JSON represents NaN and infinity as null.
fn finite(value: &serde_json::Value, key: &str) -> bool {
    const MAY_BE_MISSING: [&str; 4] = ["forecast", "transition", "seconds_left", "usd_left"];
    match value {
        serde_json::Value::Null => MAY_BE_MISSING.contains(&key),
        serde_json::Value::Array(items) => items.iter().all(|item| finite(item, key)),
        serde_json::Value::Object(fields) => fields.iter().all(|(key, field)| finite(field, key)),
        _ => true,
    }
}

proptest! {
    #[test]
    fn figures_are_finite_and_in_range(records in prop::collection::vec(record(), 1..20), facts in task()) {
        for decision in run(&records, &facts, &ControlSettings::default()) {
            prop_assert!(finite(&serde_json::to_value(&decision).unwrap(), ""), "{decision:?}");
            let metrics = decision.metrics;
            prop_assert!((0.0..=1.0).contains(&decision.control_signal) && (0.0..=1.0).contains(&metrics.p));
            prop_assert!((-1.0..=5.0).contains(&metrics.i) && (-1.0..=1.0).contains(&metrics.d));
            prop_assert!((0.5..=1.5).contains(&decision.actuation.effort));
            prop_assert!((0.0..=0.5).contains(&decision.actuation.memory_share));
        }
    }

    #[test]
    fn same_history_gives_same_decisions(records in prop::collection::vec(record(), 1..20), facts in task()) {
        let settings = ControlSettings::default();
        prop_assert_eq!(run(&records, &facts, &settings), run(&records, &facts, &settings));
    }

    #[test]
    fn state_survives_export_and_import(records in prop::collection::vec(record(), 2..20), facts in task()) {
        let settings = ControlSettings::default();
        let (last, before) = records.split_last().unwrap();
        let mut state = ControlState::rebuild(before, &facts, &settings);
        let text = state.export();
        prop_assert!(text.len() < MAX_STATE);
        let mut again = ControlState::import(&text).expect("an export is sound");
        prop_assert_eq!(&again, &state);
        prop_assert_eq!(again.step(last, &facts, &settings), state.step(last, &facts, &settings));
        prop_assert_eq!(again, state);
    }

    #[test]
    fn broken_text_is_rejected_without_panic(cut in 0_usize..2000, text in ".{0,200}") {
        let exported = ControlState::rebuild(&completions(&[0.1; 6]), &long(), &ControlSettings::default()).export();
        let part = &exported[..cut.min(exported.len() - 1)];
        prop_assert_eq!(ControlState::import(part), None);
        prop_assert_eq!(ControlState::import(&text), None);
    }
}

#[test]
fn state_with_impossible_figures_is_rebuilt() {
    let (facts, settings) = (long(), ControlSettings::default());
    let records = completions(&[0.1, 0.3, 0.2, 0.5]);
    let state = ControlState::rebuild(&records, &facts, &settings);
    let mut value: serde_json::Value = serde_json::from_str(&state.export()).unwrap();
    value["integral"] = 9.0.into();
    assert_eq!(ControlState::import(&value.to_string()), None);
    assert_eq!(ControlState::import(&" ".repeat(MAX_STATE + 1)), None);
    assert_eq!(ControlState::rebuild(&records, &facts, &settings), state);
}

#[test]
fn out_of_range_values_are_clamped_and_counted() {
    let bad = Record {
        completion: serde_json::from_value((-7).into()).unwrap(),
        quality: f64::NEG_INFINITY,
        errors: -3.0,
        duration_s: f64::INFINITY,
        ..Record::default()
    };
    let good = Record { quality: f64::INFINITY, ..Record::default() };
    let decisions = run(&[bad, good, Record::default()], &long(), &ControlSettings::default());
    assert_eq!(decisions[0].warnings, ["4 figures of iteration 1 were out of range and were clamped."]);
    assert_eq!(decisions[1].warnings, ["One figure of iteration 2 was out of range and was clamped."]);
    assert!(decisions[2].warnings.is_empty());
    assert_eq!(decisions[0].metrics.p, 1.0);
}

#[test]
fn long_loop_keeps_state_small() {
    let mut state = ControlState::default();
    let settings = ControlSettings { window: 100, ..ControlSettings::default() };
    let mut record = Record { learnings: vec!["x".repeat(10_000); 10], ..Record::default() };
    for n in 1..=10_000_u32 {
        record.iteration = f64::from(n);
        record.completion = Ratio::new(f64::from(n % 7) / 10.0);
        record.blockers =
            (0..5).map(|k| format!("{}{}", "\\\"".repeat(n as usize % 90), char::from(b'a' + k))).collect();
        record.error_signature = Some("\u{1f600}".repeat(1000));
        let mut decision = state.step(&record, &TaskFacts::default(), &settings);
        state.actuate(&mut decision, &record, &TaskFacts::default(), None, &settings);
    }
    assert!(state.export().len() < MAX_STATE, "{}", state.export().len());
    assert_eq!(ControlState::import(&state.export()), Some(state));
}

#[test]
fn million_blockers_are_counted_in_bounded_time() {
    let blockers: Vec<String> =
        (0..1_000_000).map(|n| format!("blocker {}", char::from(b'a' + (n % 26) as u8))).collect();
    let learnings = blockers.clone();
    let record = Record { iteration: 1.0, blockers, learnings, ..Record::default() };
    let mut state = ControlState::default();
    let decision = state.step(&record, &long(), &ControlSettings::default());
    assert_eq!(decision.metrics.i, -1.0);
    assert!(state.export().len() < MAX_STATE);
}
