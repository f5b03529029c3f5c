//! Tests of parsing, replay, totals and comparison of traces.

use serde_json::Value;

use super::*;
use crate::domain::model::ids::Ratio;
use crate::domain::supervision::oversight::{DetectionKind, InterventionLevel};

fn replay(text: &str) -> Vec<(Record, SupervisionReview)> {
    Trace::parse(text).unwrap().reviews(&SupervisionSettings::default()).collect()
}

fn line(review: &(Record, SupervisionReview)) -> ReplayLine {
    ReplayLine::from(&review.1)
}

fn refused(text: &str) -> String {
    Trace::parse(text).unwrap_err().to_string()
}

#[test]
fn first_line_may_contain_task_facts() {
    let with =
        Trace::parse("\u{feff}{\"task\": \"x\", \"complexity\": null, \"of_tomorrow\": 1}\r\n\n {\"iteration\": 1}\n");
    let with = with.unwrap();
    assert_eq!((with.facts.task.as_str(), with.facts.complexity, with.records.len()), ("x", None, 1));
    let without = Trace::parse("{\"completion\": 0.5}\n{\"completion\": null, \"blockers\": [\"a\"]}").unwrap();
    assert_eq!((without.facts, without.records.len()), (TaskFacts::default(), 2));
    assert_eq!(without.records[1], Record { blockers: vec!["a".to_owned()], ..Record::default() });
    assert_eq!(Trace::parse(" \n\n").unwrap(), Trace::default());
}

#[test]
fn written_trace_is_read_unchanged() {
    let facts = TaskFacts { task: "Fix\nit".to_owned(), scope: vec!["src".to_owned()], ..TaskFacts::default() };
    let records = replay(&stuck()).into_iter().map(|(record, _)| record).collect();
    for trace in [Trace { facts, records }, Trace::default()] {
        assert_eq!(Trace::parse(&trace.to_lines().unwrap()).unwrap(), trace);
    }
}

#[test]
fn invalid_line_is_reported_with_reason() {
    let refusals = [
        refused("{}\n\n{\"errors\": \"three\"}"),
        refused("{\"iteration\": 1}\n{\"iteration\": 2"),
        refused("{\"max_iterations\": []}"),
        refused("{\"iteration\": 1, \"completion\": NaN}"),
        refused("[1]"),
        refused("3"),
    ];
    insta::assert_snapshot!(refusals.join("\n"), @r#"
    line 3: `errors`: invalid type: string "three", expected f64
    line 2: column 15: EOF while parsing an object
    line 1: `max_iterations`: invalid type: sequence, expected f64
    line 1: column 32: expected value
    line 1: expected an object, found a list
    line 1: expected an object, found a single value
    "#);
}

#[test]
fn output_line_has_keys_of_the_format() {
    let reviews = replay("{\"iteration\": 1, \"completion\": 0.4}\n{\"iteration\": 2, \"completion\": 0.1}");
    insta::assert_snapshot!(serde_json::to_string(&line(&reviews[1])).unwrap(), @r#"{"iteration":2,"p":0.9,"i":1.44,"d":0.30000000000000004,"d_raw":0.30000000000000004,"velocity":-0.30000000000000004,"trend":"regressing","profile":"conservative","kp":0.44,"ki":0.12,"kd":0.295,"control_signal":0.6573,"urgency":"high","action":"pause","forecast":null,"alarms":[{"type":"regression","severity":"critical"},{"type":"derivative_spike","severity":"warning"}],"detections":[{"type":"regression","severity":"high"}],"interventions":[{"level":"warn","type":"regression"}],"strategy":"persist","status":"warning"}"#);
    let text = serde_json::to_string(&line(&reviews[0])).unwrap();
    assert_eq!(serde_json::from_str::<ReplayLine>(&text).unwrap(), line(&reviews[0]));
}

#[test]
fn summary_has_counts_and_first_end() {
    let stuck = "{\"completion\": 0.3}\n".repeat(8);
    let summary = ReplaySummary::of(&replay(&stuck));
    insta::assert_snapshot!(serde_json::to_string(&summary).unwrap(), @r#"{"iterations":8,"alarms":{"stuck_loop":1},"severities":{"critical":1},"actions":{"continue":1,"adjust":2,"pause":5},"detections":{"no_change":6,"stuck":4},"interventions":{"warn":1,"redirect":6,"pause":2},"ended":{"iteration":7,"by":"pause"}}"#);
    let done = ReplaySummary::of(&replay("{\"completion\": 0.5}\n{\"completion\": 1}"));
    assert_eq!(done.ended, Some(PredictedEnd { iteration: 2, by: EndKind::Finished }));
    assert_eq!(ReplaySummary::of(&[]), ReplaySummary::default());
}

/// Returns a trace of eight iterations without progress and with the same error.
fn stuck() -> String {
    let line = |n: u32| format!("{{\"iteration\": {n}, \"completion\": 0.3, \"error_signature\": \"E0308\"}}\n");
    (1..=8).map(line).collect()
}

/// Returns a trace of five iterations that finishes.
fn healthy() -> String {
    [0.2, 0.45, 0.6, 0.85, 1.0].iter().map(|completion| format!("{{\"completion\": {completion}}}\n")).collect()
}

#[test]
fn replay_redirects_and_pauses_stuck_loop() {
    let reviews = replay(&stuck());
    let text: Vec<String> = reviews
        .iter()
        .map(|review| {
            let ReplayLine { iteration, detections, interventions, strategy, status, .. } = line(review);
            serde_json::to_string(&(iteration, detections, interventions, strategy, status)).unwrap()
        })
        .collect();
    insta::assert_snapshot!(text.join("\n"), @r#"
    [1,[],[],"persist","healthy"]
    [2,[],[],"persist","healthy"]
    [3,[{"type":"no_change","severity":"medium"}],[{"level":"warn","type":"no_change"}],"persist","warning"]
    [4,[{"type":"no_change","severity":"high"}],[{"level":"redirect","type":"no_change"}],"pivot","warning"]
    [5,[{"type":"no_change","severity":"high"},{"type":"stuck","severity":"high"}],[{"level":"redirect","type":"no_change"},{"level":"redirect","type":"stuck"}],"pivot","warning"]
    [6,[{"type":"no_change","severity":"high"},{"type":"stuck","severity":"high"}],[{"level":"redirect","type":"no_change"},{"level":"redirect","type":"stuck"}],"pivot","warning"]
    [7,[{"type":"no_change","severity":"critical"},{"type":"stuck","severity":"critical"}],[{"level":"pause","type":"no_change"},{"level":"pause","type":"stuck"}],"pivot","paused"]
    [8,[{"type":"no_change","severity":"critical"},{"type":"stuck","severity":"critical"}],[{"level":"pause","type":"no_change"},{"level":"pause","type":"stuck"}],"escalate","paused"]
    "#);
    let summary = ReplaySummary::of(&reviews);
    assert_eq!(summary.interventions[&InterventionLevel::Redirect], 5);
    assert_eq!(summary.ended.map(|ended| ended.by), Some(EndKind::Pause));
}

#[test]
fn comparison_counts_saved_and_disturbed_loops() {
    let traces = [Trace::parse(&stuck()).unwrap(), Trace::parse(&healthy()).unwrap()];
    let (outcomes, all) = compare(&traces, &SupervisionSettings::default());
    insta::assert_snapshot!(serde_json::to_string(&(outcomes, all)).unwrap(), @r#"[[{"ended":{"iteration":7,"by":"pause"},"saved":1,"interventions":8,"disturbed":false,"stopped":false},{"ended":{"iteration":5,"by":"finished"},"saved":0,"interventions":0,"disturbed":false,"stopped":false}],{"loops":2,"healthy":1,"iterations":13,"saved":1,"interventions":8,"disturbed":0,"stopped":0}]"#);
    let mut eager = SupervisionSettings::default();
    eager.strategy.escalation_threshold = 1;
    eager.strategy.min_progress = 0.2;
    let (_, all) = compare(&traces, &eager);
    assert_eq!((all.disturbed, all.stopped), (1, 1), "{all:?}");
    assert_eq!(compare(&[], &eager), (Vec::new(), Comparison::default()));
}

/// Folder of the recorded vectors.
const VECTORS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/contracts/control-vectors");

#[test]
fn replayed_control_matches_recorded_vectors() {
    let files = std::fs::read_dir(VECTORS).unwrap().map(|entry| entry.unwrap().path());
    let expected: Vec<_> = files.filter(|file| file.to_string_lossy().ends_with(".expected.jsonl")).collect();
    assert!(!expected.is_empty(), "no vectors");
    let mut redirects = 0;
    for file in expected {
        let input = file.to_string_lossy().replace(".expected", "");
        let reviews = replay(&std::fs::read_to_string(input).unwrap());
        let lines = std::fs::read_to_string(&file).unwrap();
        assert_eq!(reviews.len(), lines.lines().count());
        for (review, expected) in reviews.iter().zip(lines.lines()) {
            redirects += usize::from(review.1.verdict.redirect().is_some());
            let found = serde_json::to_value(line(review)).unwrap();
            let expected: Value = serde_json::from_str(expected).unwrap();
            for (key, expected) in expected.as_object().unwrap() {
                let agree = match (found[key].as_f64(), expected.as_f64()) {
                    (Some(found), Some(expected)) => (found - expected).abs() <= 1e-9,
                    _ => found[key] == *expected,
                };
                assert!(agree, "{}: {key} is {}, not {expected}", file.display(), found[key]);
            }
        }
    }
    assert!(redirects > 0, "no vector in which a REDIRECT could have moved the gains");
}

#[test]
fn long_loop_is_reviewed_in_bounded_time() {
    const ITERATIONS: u32 = 2_000;
    let record = |n: u32| Record {
        iteration: f64::from(n),
        completion: Ratio::new(f64::from(n % 40) / 50.0),
        errors: f64::from(n % 3),
        error_signature: Some(format!("case {} fails", ["a", "b", "c"][n as usize % 3])),
        tree: Some(n.min(ITERATIONS - 2).to_string()),
        files: vec!["src/lib.rs".to_owned()],
        tests_passing: Some(f64::from(n % 40)),
        blockers: vec!["no database".to_owned()],
        ..Record::default()
    };
    let facts = TaskFacts { max_iterations: 20_000.0, ..TaskFacts::default() };
    let trace = |records| Trace { facts: facts.clone(), records };
    let settings = SupervisionSettings::default();
    let short = trace((1..=200).map(record).collect());
    let first: Vec<_> = short.reviews(&settings).map(|review| line(&review)).collect();
    let long = trace((1..=ITERATIONS).map(record).collect());
    let lines: Vec<_> = long.reviews(&settings).map(|review| line(&review)).collect();
    assert_eq!((lines.len(), &lines[..200]), (ITERATIONS as usize, first.as_slice()));
    let kinds: Vec<_> = lines[lines.len() - 1].detections.iter().map(|found| found.kind).collect();
    assert!(kinds.contains(&DetectionKind::NoChange), "{kinds:?}");
}
