//! Replays a recorded loop through control, oversight and strategy. Reads a trace in JSON Lines, and returns one line per
//! iteration.
//!
//! The records do not react to the replayed decisions. Control's figures therefore depend only on the records. A REDIRECT,
//! which changes the gains in a running loop, has no effect here.

mod compare;
mod line;
mod summary;
#[cfg(test)]
mod tests;

use ralph_types::failure::Failure;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::domain::model::record::Record;
use crate::domain::supervision::TaskFacts;
use crate::domain::supervision::control::out_of_range;
use crate::domain::supervision::{ReviewContext, Supervision, SupervisionReview, SupervisionSettings};

pub use compare::{Comparison, TraceOutcome, compare};
pub use line::{AlarmMark, DetectionMark, InterventionMark, ReplayLine};
pub use summary::{EndKind, PredictedEnd, ReplaySummary, end};

/// Invalid line of a trace.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct TraceError {
    /// 1-based number of the line.
    pub line: usize,
    /// Message.
    pub reason: String,
}

/// Trace of a recorded loop.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Trace {
    /// Facts about the task from the optional first line; defaults without this line.
    pub facts: TaskFacts,
    /// One record per iteration, in order.
    pub records: Vec<Record>,
}

impl Trace {
    /// Parses a trace in JSON Lines: one record per line, after an optional first line with facts about the task. The first
    /// line has facts if it contains no key of a record. Ignores blank lines and unknown keys. Missing and null values take
    /// their defaults.
    pub fn parse(text: &str) -> Result<Self, TraceError> {
        let mut trace = Self::default();
        let text = text.trim_start_matches('\u{feff}');
        let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        for (nth, (index, line)) in lines.enumerate() {
            let at = |reason: Failure| TraceError { line: index + 1, reason: reason.to_string() };
            let fields = object(line).map_err(at)?;
            if nth == 0 && is_header(&fields) {
                trace.facts = read(fields).map_err(at)?;
            } else {
                trace.records.push(read(fields).map_err(at)?);
            }
        }
        Ok(trace)
    }

    /// Formats the trace as JSON Lines, which [`Trace::parse`] reads: the facts, then one record per line.
    ///
    /// # Errors
    /// A value cannot be serialized.
    pub fn to_lines(&self) -> serde_json::Result<String> {
        let mut text = serde_json::to_string(&self.facts)? + "\n";
        for record in &self.records {
            text.push_str(&serde_json::to_string(record)?);
            text.push('\n');
        }
        Ok(text)
    }

    /// Reviews each iteration in order and returns the reviews.
    pub fn reviews<'a>(
        &self,
        settings: &'a SupervisionSettings,
    ) -> impl Iterator<Item = (Record, SupervisionReview)> + use<'a> {
        let (records, wrong): (Vec<Record>, Vec<u32>) = self.records.iter().cloned().map(Record::cleaned).unzip();
        let (facts, mut supervision) = (self.facts.clone(), Supervision::default());
        (1..=records.len()).filter_map(move |upto| {
            let mut review = supervision.review(&records[..upto], &facts, ReviewContext::default(), settings)?;
            review.control.warnings.extend(out_of_range(wrong[upto - 1], review.control.iteration));
            supervision.control.forget_redirect();
            Some((records[upto - 1].clone(), review))
        })
    }
}

/// Parses a line as an object and removes null values.
fn object(line: &str) -> Result<Map<String, Value>, Failure> {
    let value = serde_json::from_str(line).map_err(|error| {
        let place = format!(" at line {} column {}", error.line(), error.column());
        Failure::new(format!("column {}: {}", error.column(), error.to_string().trim_end_matches(&place)))
    })?;
    match value {
        Value::Object(mut fields) => {
            fields.retain(|_, field| !field.is_null());
            Ok(fields)
        }
        Value::Array(_) => Err(Failure::new("expected an object, found a list")),
        _ => Err(Failure::new("expected an object, found a single value")),
    }
}

/// Line of a trace. The keys of the facts and of a record differ, so one schema describes both lines.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only the schema of the type is used")]
struct TraceLine {
    #[serde(flatten)]
    facts: TaskFacts,
    #[serde(flatten)]
    record: Record,
}

/// Returns the JSON Schema of a line of a trace.
pub fn schema() -> Value {
    let mut schema = schemars::schema_for!(TraceLine);
    schema.insert("title".to_owned(), "Line of a trace".into());
    let about = "The optional first line has facts about the task; each other line is the record of an iteration.";
    schema.insert("description".to_owned(), about.into());
    schema.to_value()
}

fn is_header(fields: &Map<String, Value>) -> bool {
    let record = serde_json::to_value(Record::default()).unwrap_or_default();
    !fields.keys().any(|key| record.get(key).is_some())
}

/// Converts an object to a record or to the facts. The error names the invalid key.
fn read<T: DeserializeOwned>(fields: Map<String, Value>) -> Result<T, Failure> {
    let of = |fields: Map<String, Value>| serde_json::from_value::<T>(Value::Object(fields));
    of(fields.clone()).map_err(|error| {
        let alone = |(key, field): (String, Value)| Some((of(Map::from_iter([(key.clone(), field)])).err()?, key));
        match fields.into_iter().find_map(alone) {
            Some((error, key)) => Failure::new(format!("`{key}`: {error}")),
            None => Failure::new(error.to_string()),
        }
    })
}
