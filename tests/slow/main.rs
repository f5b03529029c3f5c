//! Stories that take minutes: processes killed at every step, faults of forges, git and agents, people who change the loop's
//! branch, power loss, exhausted resources, floods of deliveries, missing defences, and third-party programs.
//!
//! `cargo test` does not run them; `cargo test --test slow` and CI do.
#![expect(clippy::disallowed_methods, reason = "stories look at the machine that they run on")]

mod agent_faults;
mod burst;
mod defences;
mod exhaustion;
mod forge_faults;
mod git_faults;
#[path = "../harness/mod.rs"]
mod harness;
mod interference;
mod isolation;
mod kills;
mod power;
mod processes;
mod real;
mod tampering;
