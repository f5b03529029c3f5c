//! Stories of the loop: the real service against a forge on loopback, with real git, real processes and a real database file. Stories of
//! everything around it are in `tests/slow`.
#![expect(clippy::disallowed_methods, reason = "stories look at the machine that they run on")]

mod cli;
mod commands;
mod documents;
mod egress;
#[path = "../harness/mod.rs"]
mod harness;
mod landlock;
mod login;
mod memory;
mod permission;
mod replay;
mod sandbox;
mod story;
mod texts;
mod tokens;
mod visible;
