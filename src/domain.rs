//! The functional core: what decides. No async, no I/O, no clock, no randomness; imports nothing of the other layers.

pub mod address;
pub mod command;
pub mod control;
pub mod criteria;
pub mod effect;
pub mod event;
pub mod ids;
pub mod lifecycle;
pub mod notice;
pub mod oversight;
pub mod permit;
pub mod policy;
pub mod prompt;
pub mod record;
pub mod replay;
pub mod report;
pub mod sanitize;
pub mod settings;
pub mod signature;
pub mod similarity;
pub mod simulate;
pub mod strategy;
pub mod supervision;
pub mod tamper;
pub mod task;
pub mod view;
