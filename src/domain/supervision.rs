//! Supervision: control, oversight and strategy, joined by one pipeline that loops, replays and simulations share.

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
