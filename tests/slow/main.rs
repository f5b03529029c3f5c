//! Stories that take minutes: processes killed at every step, power loss, exhausted resources, floods of deliveries, and
//! third-party programs.
//!
//! `cargo test` does not run them; `cargo test --test slow` and CI do.
#![expect(clippy::disallowed_methods, reason = "stories look at the machine that they run on")]

mod burst;
mod exhaustion;
#[path = "../harness/mod.rs"]
mod harness;
mod kills;
mod power;
mod processes;
mod real;
mod tampering;
