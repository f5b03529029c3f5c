//! Attacks on the bot: each test acts as an attacker and looks for a canary, that is, a secret that leaves, a
//! file that changes, a process that lives on, an amount that is not counted.
//!
//! `cargo test` does not run them; `cargo test --test attack` and `.ci/run` do.
#![expect(clippy::disallowed_methods, reason = "stories look at the machine that they run on")]

mod base_tests;
mod broker;
mod budgets;
mod damaged;
mod deliveries;
mod evil;
mod flood;
#[path = "../harness/mod.rs"]
mod harness;
mod hidden;
mod outbound;
mod protected;
mod scripts;
mod shadowing;
