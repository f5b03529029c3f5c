//! A recorded loop once more through control: a trace of JSON Lines in, one line an iteration out.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::control::{Action, AlarmKind, ControlSettings, ControlState, Decision, Severity, Trend, Urgency};
use super::record::{Record, TaskFacts};

/// A line of a trace that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct TraceError {
    /// Its number, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub reason: String,
}

/// A recorded loop.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Trace {
    /// What the first line says about the task; the defaults where there is no such line.
    pub facts: TaskFacts,
    /// One record an iteration, in order.
    pub records: Vec<Record>,
}

impl Trace {
    /// Reads JSON Lines: one record a line, after an optional first line about the task, which is an object with no key of
    /// a record. Blank lines are skipped, unknown keys ignored; what is missing or null takes its default.
    pub fn parse(text: &str) -> Result<Self, TraceError> {
        let mut trace = Self::default();
        let text = text.trim_start_matches('\u{feff}');
        let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        for (nth, (index, line)) in lines.enumerate() {
            let at = |reason| TraceError { line: index + 1, reason };
            let fields = object(line).map_err(at)?;
            if nth == 0 && is_header(&fields) {
                trace.facts = read(fields).map_err(at)?;
            } else {
                trace.records.push(read(fields).map_err(at)?);
            }
        }
        Ok(trace)
    }

    /// What control makes of each iteration.
    pub fn decisions<'a>(&'a self, settings: &'a ControlSettings) -> impl Iterator<Item = (&'a Record, Decision)> {
        let mut state = ControlState::default();
        self.records.iter().map(move |record| (record, state.step(record, &self.facts, settings)))
    }
}

/// The object on a line, without what is null in it.
fn object(line: &str) -> Result<Map<String, Value>, String> {
    let value = serde_json::from_str(line).map_err(|error| {
        let place = format!(" at line {} column {}", error.line(), error.column());
        format!("column {}: {}", error.column(), error.to_string().trim_end_matches(&place))
    })?;
    match value {
        Value::Object(mut fields) => {
            fields.retain(|_, field| !field.is_null());
            Ok(fields)
        }
        Value::Array(_) => Err("this is a list; an object is needed".to_owned()),
        _ => Err("this is a single value; an object is needed".to_owned()),
    }
}

fn is_header(fields: &Map<String, Value>) -> bool {
    let record = serde_json::to_value(Record::default()).unwrap_or_default();
    !fields.keys().any(|key| record.get(key).is_some())
}

/// A record or the facts from an object; the reason names the key that is wrong.
fn read<T: DeserializeOwned>(fields: Map<String, Value>) -> Result<T, String> {
    let of = |fields: Map<String, Value>| serde_json::from_value::<T>(Value::Object(fields));
    of(fields.clone()).map_err(|error| {
        let alone = |(key, field): (String, Value)| Some((of(Map::from_iter([(key.clone(), field)])).err()?, key));
        match fields.into_iter().find_map(alone) {
            Some((error, key)) => format!("`{key}`: {error}"),
            None => error.to_string(),
        }
    })
}

/// What the replay says about one iteration. The keys are the format, their order is not. The overseer's keys
/// (`detections`, `interventions`, `strategy`, `status`) join as further fields.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// From 1.
    pub iteration: u64,
    /// P, 0..1.
    pub p: f64,
    /// I, -1..5.
    pub i: f64,
    /// D, -1..1; above 0 is getting worse.
    pub d: f64,
    /// D without deadband, -1..1.
    pub d_raw: f64,
    /// Gap closed an iteration, -1..1.
    pub velocity: f64,
    /// Where it goes.
    pub trend: Trend,
    /// Profile that the gains move to.
    pub profile: String,
    /// Gain of P that was used.
    pub kp: f64,
    /// Gain of I that was used.
    pub ki: f64,
    /// Gain of D that was used.
    pub kd: f64,
    /// u, 0..1.
    pub control_signal: f64,
    /// Band of u.
    pub urgency: Urgency,
    /// What control recommends.
    pub action: Action,
    /// Iterations still needed; null where it does not get better.
    pub forecast: Option<u64>,
    /// The alarms that stand.
    pub alarms: Vec<AlarmMark>,
}

/// A standing alarm in a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlarmMark {
    /// What is wrong.
    #[serde(rename = "type")]
    pub kind: AlarmKind,
    /// How bad it is.
    pub severity: Severity,
}

impl From<&Decision> for Line {
    fn from(decision: &Decision) -> Self {
        let (metrics, gains) = (decision.metrics, decision.gains.gains);
        Self {
            iteration: decision.iteration,
            p: metrics.p,
            i: metrics.i,
            d: metrics.d,
            d_raw: metrics.d_raw,
            velocity: metrics.velocity,
            trend: metrics.trend,
            profile: decision.gains.profile.clone(),
            kp: gains.kp,
            ki: gains.ki,
            kd: gains.kd,
            control_signal: decision.control_signal,
            urgency: decision.urgency,
            action: decision.action,
            forecast: metrics.forecast,
            alarms: decision.alarms.iter().map(|a| AlarmMark { kind: a.kind, severity: a.severity }).collect(),
        }
    }
}

/// How a loop ends by itself or by what control recommends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// Everything holds.
    Finished,
    /// Control would wait for a person.
    Pause,
    /// Control would end it.
    Abort,
}

/// Where a loop would have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// After which iteration.
    pub iteration: u64,
    /// How.
    pub by: End,
}

/// A whole replay in counts. The overseer's counts join as further fields, and its word on the end wins.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Summary {
    /// How many.
    pub iterations: u64,
    /// Alarms raised, by type.
    pub alarms: BTreeMap<AlarmKind, u64>,
    /// The same alarms, by the worst severity that each came to.
    pub severities: BTreeMap<Severity, u64>,
    /// Iterations, by what was recommended.
    pub actions: BTreeMap<Action, u64>,
    /// The first end that there would have been; `None` where it would go on.
    pub ended: Option<Ended>,
}

impl Summary {
    /// Counts decisions, which come in order.
    pub fn of<'a>(decisions: impl IntoIterator<Item = &'a Decision>) -> Self {
        let mut summary = Self::default();
        let mut worst = BTreeMap::new();
        for decision in decisions {
            summary.iterations += 1;
            *summary.actions.entry(decision.action).or_default() += 1;
            for kind in &decision.raised {
                *summary.alarms.entry(*kind).or_default() += 1;
            }
            for alarm in &decision.alarms {
                let severity = worst.entry(alarm.id.clone()).or_insert(alarm.severity);
                *severity = alarm.severity.max(*severity);
            }
            let ended = end(decision).map(|by| Ended { iteration: decision.iteration, by });
            summary.ended = summary.ended.or(ended);
        }
        for severity in worst.into_values() {
            *summary.severities.entry(severity).or_default() += 1;
        }
        summary
    }
}

fn end(decision: &Decision) -> Option<End> {
    match decision.action {
        _ if decision.metrics.gap <= 0.0 => Some(End::Finished),
        Action::Pause => Some(End::Pause),
        Action::Abort => Some(End::Abort),
        Action::Continue | Action::Adjust => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replay(text: &str) -> Vec<Decision> {
        let trace = Trace::parse(text).unwrap();
        trace.decisions(&ControlSettings::default()).map(|(_, decision)| decision).collect()
    }

    fn refused(text: &str) -> String {
        Trace::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn the_first_line_may_be_about_the_task() {
        let with = Trace::parse(
            "\u{feff}{\"task\": \"x\", \"complexity\": null, \"of_tomorrow\": 1}\r\n\n {\"iteration\": 1}\n",
        );
        let with = with.unwrap();
        assert_eq!((with.facts.task.as_str(), with.facts.complexity, with.records.len()), ("x", None, 1));
        let without = Trace::parse("{\"completion\": 0.5}\n{\"completion\": null, \"blockers\": [\"a\"]}").unwrap();
        assert_eq!((without.facts, without.records.len()), (TaskFacts::default(), 2));
        assert_eq!(without.records[1], Record { blockers: vec!["a".to_owned()], ..Record::default() });
        assert_eq!(Trace::parse(" \n\n").unwrap(), Trace::default());
    }

    #[test]
    fn a_line_that_cannot_be_used_is_named_with_its_reason() {
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
        line 1: this is a list; an object is needed
        line 1: this is a single value; an object is needed
        "#);
    }

    #[test]
    fn a_line_has_the_keys_of_the_format() {
        let decisions = replay("{\"iteration\": 1, \"completion\": 0.4}\n{\"iteration\": 2, \"completion\": 0.1}");
        insta::assert_snapshot!(serde_json::to_string(&Line::from(&decisions[1])).unwrap(), @r#"{"iteration":2,"p":0.9,"i":1.44,"d":0.30000000000000004,"d_raw":0.30000000000000004,"velocity":-0.30000000000000004,"trend":"regressing","profile":"conservative","kp":0.44,"ki":0.12,"kd":0.295,"control_signal":0.6573,"urgency":"high","action":"pause","forecast":null,"alarms":[{"type":"regression","severity":"critical"},{"type":"derivative_spike","severity":"warning"}]}"#);
        let line = serde_json::to_string(&Line::from(&decisions[0])).unwrap();
        assert_eq!(serde_json::from_str::<Line>(&line).unwrap(), Line::from(&decisions[0]));
    }

    #[test]
    fn a_summary_counts_what_was_raised_and_knows_the_first_end() {
        let stuck = "{\"completion\": 0.3}\n".repeat(8);
        let summary = Summary::of(&replay(&stuck));
        insta::assert_snapshot!(serde_json::to_string(&summary).unwrap(), @r#"{"iterations":8,"alarms":{"stuck_loop":1},"severities":{"critical":1},"actions":{"continue":1,"adjust":2,"pause":5},"ended":{"iteration":4,"by":"pause"}}"#);
        let done = Summary::of(&replay("{\"completion\": 0.5}\n{\"completion\": 1}"));
        assert_eq!(done.ended, Some(Ended { iteration: 2, by: End::Finished }));
        assert_eq!(Summary::of(&[]), Summary::default());
    }
}
