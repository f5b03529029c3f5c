//! Stored form of inputs, effects and loops: rows of a service whose types had no groups.

use std::collections::BTreeSet;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::*;

const INPUTS: &str = include_str!("../../../../../../tests/fixtures/loops/inputs.jsonl");
const EFFECTS: &str = include_str!("../../../../../../tests/fixtures/loops/effects.jsonl");
const LOOPS: &str = include_str!("../../../../../../tests/fixtures/loops/loops.jsonl");
/// The same loops, as stored by a version whose loops had no parts, and whose tasks had no displayed text.
const FLAT_LOOPS: &str = include_str!("../../../../../../tests/fixtures/loops/flat_loops.jsonl");

/// Reads rows, fails if writing them changes them, and returns their tags.
fn round_trip<T: Serialize + DeserializeOwned>(rows: &str, tag: &str) -> BTreeSet<String> {
    let names = rows.lines().map(|row| {
        let stored: Value = serde_json::from_str(row).expect("JSON");
        let read: T = serde_json::from_str(row).unwrap_or_else(|error| panic!("{error}: {row}"));
        let written = serde_json::to_string(&read).expect("written");
        assert_eq!(serde_json::from_str::<Value>(&written).expect("JSON"), stored);
        let name = stored[tag].as_str().unwrap_or_default().to_owned();
        // Queries of the store compare the start of a row.
        assert!(name.is_empty() || written.starts_with(&format!("{{\"{tag}\":\"{name}\"")), "{written}");
        name
    });
    names.collect()
}

/// Returns the tags of all variants, from the error about an unknown one.
fn variants<T: DeserializeOwned + std::fmt::Debug>(tag: &str) -> Vec<String> {
    let error = serde_json::from_value::<T>(json!({ tag: "?" })).expect_err("unknown").to_string();
    let quoted = error.split('`').skip(1).step_by(2).skip(1).map(str::to_owned);
    quoted.collect()
}

#[test]
fn stored_inputs_keep_their_form() {
    let tags = round_trip::<LoopInput>(INPUTS, "input");
    let groups = [
        variants::<CommandInput>("input"),
        variants::<ForgeInput>("input"),
        variants::<TimerInput>("input"),
        variants::<WorkOutcome>("input"),
    ];
    assert_eq!(tags, groups.into_iter().flatten().collect(), "each variant has a row in tests/fixtures/loops");
}

#[test]
fn stored_effects_keep_their_form() {
    let tags = round_trip::<Effect>(EFFECTS, "effect");
    let groups = [
        variants::<WorkEffect>("effect"),
        variants::<ForgeEffect>("effect"),
        variants::<ChannelEffect>("effect"),
        variants::<TimerEffect>("effect"),
        variants::<StoreEffect>("effect"),
    ];
    assert_eq!(tags, groups.into_iter().flatten().collect(), "each variant has a row in tests/fixtures/loops");
}

#[test]
fn stored_loops_keep_their_form() {
    round_trip::<Loop>(LOOPS, "loop");
}

#[test]
fn flat_loops_are_read_and_continue() {
    assert_eq!(FLAT_LOOPS.lines().count(), LOOPS.lines().count());
    for (flat, nested) in FLAT_LOOPS.lines().zip(LOOPS.lines()) {
        let read = Loop::read(flat).unwrap_or_else(|error| panic!("{error}: {flat}"));
        assert_eq!(read, serde_json::from_str(nested).expect("the current form"));
        let input = LoopInput::Command(CommandInput::RunLabelRemoved { by: None });
        let next = step(&read, input, read.updated_at).next;
        assert_eq!(Loop::read(&serde_json::to_string(&next).expect("written")).expect("read again"), next);
        assert_eq!(next.version, read.version + 1);
    }
}

#[test]
fn damaged_loops_are_not_read() {
    for row in [LOOPS, FLAT_LOOPS].map(|rows| rows.lines().next().expect("a row")) {
        let damaged = row.replace("\"state\":\"queued\"", "\"state\":\"?\"");
        let error = Loop::read(&damaged).expect_err("damaged").to_string();
        assert!(error.contains("unknown variant `?`"), "{error}");
    }
}
