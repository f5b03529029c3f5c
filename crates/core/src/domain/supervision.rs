//! Supervision of a loop: control, oversight and strategy, combined in one pipeline for running loops, replays and
//! simulations.

pub mod control;
pub mod experience;
pub mod oversight;
pub mod progress_rate;
pub mod replay;
pub mod strategy;

mod pipeline;
mod settings;
mod task_facts;

pub use pipeline::*;
pub use task_facts::TaskFacts;
