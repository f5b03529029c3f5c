//! Values that every part of the core shares: identifiers, quantities, events, effects, tasks and the record of an iteration.

pub mod causes;
pub mod effect;
pub mod event;
pub mod ids;
pub mod quantity;
pub mod record;
pub mod settings;
pub mod signature;
pub mod similarity;
pub mod task;
