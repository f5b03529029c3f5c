//! Compares control's figures with recorded vectors.

use std::path::Path;

use serde_json::Value;

use super::run;
use crate::domain::model::record::Record;
use crate::domain::supervision::TaskFacts;
use crate::domain::supervision::control::ControlDecision;
use crate::domain::supervision::{SupervisionPreset, SupervisionSettings};

const VECTORS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/contracts/control-vectors");
/// Tolerance of a figure.
const NEAR: f64 = 1e-9;

/// Names of the traces, sorted.
fn names() -> Vec<String> {
    let files = std::fs::read_dir(VECTORS).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = files.filter_map(|file| Some(file.strip_suffix(".expected.jsonl")?.to_owned())).collect();
    names.sort();
    names
}

fn lines(file: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(Path::new(VECTORS).join(file)).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn figure(decision: &ControlDecision, key: &str) -> Value {
    let metrics = decision.metrics;
    match key {
        "iteration" => decision.iteration.into(),
        "p" => metrics.p.into(),
        "i" => metrics.i.into(),
        "d" => metrics.d.into(),
        "d_raw" => metrics.d_raw.into(),
        "velocity" => metrics.velocity.into(),
        "trend" => serde_json::to_value(metrics.trend).unwrap(),
        "forecast" => metrics.forecast.into(),
        "profile" => decision.gains.profile.clone().into(),
        "kp" => decision.gains.gains.kp.into(),
        "ki" => decision.gains.gains.ki.into(),
        "kd" => decision.gains.gains.kd.into(),
        "control_signal" => decision.control_signal.into(),
        "urgency" => serde_json::to_value(decision.urgency).unwrap(),
        other => panic!("the vectors have {other}"),
    }
}

fn agree(found: &Value, expected: &Value) -> bool {
    match (found.as_f64(), expected.as_f64()) {
        (Some(found), Some(expected)) => (found - expected).abs() <= NEAR,
        _ => found == expected,
    }
}

#[test]
fn figures_match_recorded_vectors() {
    let names = names();
    assert!(!names.is_empty(), "no vectors");
    for name in names {
        let input = lines(&format!("{name}.jsonl"));
        let facts: TaskFacts = serde_json::from_value(input[0].clone()).unwrap();
        let records: Vec<Record> =
            input[1..].iter().map(|line| serde_json::from_value(line.clone()).unwrap()).collect();
        let decisions = run(&records, &facts, &SupervisionSettings::of(SupervisionPreset::Pinned).control);
        let expected = lines(&format!("{name}.expected.jsonl"));
        assert_eq!(decisions.len(), expected.len(), "{name}");
        for (decision, line) in decisions.iter().zip(&expected) {
            for (key, value) in line.as_object().unwrap() {
                let found = figure(decision, key);
                assert!(
                    agree(&found, value),
                    "{name}, iteration {}: {key} is {found}, not {value}",
                    decision.iteration
                );
            }
        }
    }
}
