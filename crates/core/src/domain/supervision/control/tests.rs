//! Tests of control as a whole.

mod healthy;
mod properties;
mod reach;
mod vectors;

use super::{ControlDecision, ControlSettings, ControlState};
use crate::domain::model::ids::Ratio;
use crate::domain::model::record::Record;
use crate::domain::supervision::TaskFacts;

/// Returns the decisions for each iteration of a loop.
pub(super) fn run(records: &[Record], facts: &TaskFacts, settings: &ControlSettings) -> Vec<ControlDecision> {
    let mut state = ControlState::default();
    let mut decide = |record| {
        let mut decision = state.step(record, facts, settings);
        state.actuate(&mut decision, record, facts, None, settings);
        decision
    };
    records.iter().map(&mut decide).collect()
}

/// Returns records in which only completion is set.
pub(super) fn completions(values: &[f64]) -> Vec<Record> {
    let record = |(iteration, completion): (u32, &f64)| Record {
        iteration: f64::from(iteration),
        completion: Ratio::new(*completion),
        ..Record::default()
    };
    (1..).zip(values).map(record).collect()
}

/// Returns a task with many iterations.
pub(super) fn long() -> TaskFacts {
    TaskFacts { max_iterations: 1000.0, ..TaskFacts::default() }
}
