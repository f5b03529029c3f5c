//! The corpus of real messages and of harmless prose, moments of every sort, and input that nobody wrote.

use serde::Deserialize;

use crate::domain::ids::Timestamp;
use crate::domain::limit::{LimitKind, Signals, classify};

const REAL: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/limits/real.jsonl"));
const HARMLESS: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/limits/harmless.jsonl"));
/// The time of lines that name none.
const NOW: &str = "2026-01-15T12:00:00Z";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Real {
    text: String,
    status: Option<u16>,
    code: Option<String>,
    #[serde(default)]
    headers: std::collections::BTreeMap<String, String>,
    exit: Option<i32>,
    zone: Option<String>,
    kind: LimitKind,
    now: Option<String>,
    until: Option<String>,
    source: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Harmless {
    text: String,
}

fn lines<T: for<'a> Deserialize<'a>>(text: &str) -> Vec<T> {
    let parse =
        |(index, line)| serde_json::from_str(line).unwrap_or_else(|error| panic!("line {}: {error}", index + 1));
    text.lines().enumerate().map(parse).collect()
}

fn moment(text: &str) -> Timestamp {
    Timestamp(text.parse::<jiff::Timestamp>().expect("RFC 3339").as_millisecond())
}

fn shown(at: Timestamp) -> String {
    jiff::Timestamp::from_millisecond(at.0).expect("in range").to_string()
}

/// A failed run that says this.
fn failed(text: &str) -> Signals {
    Signals { messages: vec![text.to_owned()], ..Signals::default() }
}

fn signals(real: &Real) -> Signals {
    Signals {
        exit_code: real.exit,
        exit_is_status: real.exit.is_some(),
        status: real.status,
        code: real.code.clone(),
        headers: real.headers.iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
        messages: if real.text.is_empty() { Vec::new() } else { vec![real.text.clone()] },
        zone: real.zone.clone(),
        ..Signals::default()
    }
}

/// What is wrong with the reading of a line, if anything is.
fn fault(real: &Real) -> Option<String> {
    let now = moment(real.now.as_deref().unwrap_or(NOW));
    let Some(limit) = classify(&signals(real), now) else {
        return Some(format!("not seen: {:?} ({})", real.text, real.source));
    };
    let until = limit.until.map(|at| Timestamp(at.0.div_euclid(1000))).map(|at| at.0);
    let wanted = real.until.as_deref().map(|text| moment(text).0.div_euclid(1000));
    if limit.kind == real.kind && until == wanted {
        return None;
    }
    let read = limit.until.map_or("never".to_owned(), shown);
    Some(format!(
        "{:?} until {read}, not {:?} until {:?}: {:?} ({})",
        limit.kind, real.kind, real.until, real.text, real.source
    ))
}

#[test]
fn real_messages_are_read_with_kind_and_time() {
    let real: Vec<Real> = lines(REAL);
    assert!(real.len() >= 100, "{} lines", real.len());
    assert!(real.iter().all(|line| !line.source.is_empty()));
    let faults: Vec<String> = real.iter().filter_map(fault).collect();
    let unseen = faults.iter().filter(|fault| fault.starts_with("not seen")).count();
    assert!(unseen * 50 <= real.len(), "{unseen} of {} not recognised:\n{}", real.len(), faults.join("\n"));
    assert!(faults.len() == unseen, "kinds and times that are wrong:\n{}", faults.join("\n"));
}

#[test]
fn harmless_prose_of_failed_runs_is_no_limit() {
    let harmless: Vec<Harmless> = lines(HARMLESS);
    assert!(harmless.len() >= 200, "{} lines", harmless.len());
    let faults: Vec<String> = harmless
        .iter()
        .filter_map(|line| Some(format!("{:?}: {:?}", classify(&failed(&line.text), moment(NOW))?.kind, line.text)))
        .collect();
    assert!(faults.is_empty(), "{} taken for limits:\n{}", faults.len(), faults.join("\n"));
}
