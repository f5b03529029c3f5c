//! Stories that take minutes: processes that are killed at every step, loss of power, resources that run out, floods of
//! deliveries, and programs that other people wrote.
//!
//! `cargo test` leaves them out; `cargo test --test slow` runs them, and so does CI.
#![expect(clippy::disallowed_methods, reason = "stories look at the machine that they run on")]

mod burst;
mod exhaustion;
#[path = "../harness/mod.rs"]
mod harness;
mod kills;
mod power;
mod processes;
mod real;
