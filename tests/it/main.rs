//! Stories: the real service against a forge on loopback, with real git, real processes and a real database file.
#![expect(clippy::disallowed_methods, reason = "stories look at the machine that they run on")]

mod api;
mod cli;
mod clock;
mod commands;
mod dashboard;
mod demo_end;
mod documents;
mod egress;
#[path = "../harness/mod.rs"]
mod harness;
mod landlock;
mod login;
mod memory;
mod operations;
mod pages;
mod permission;
mod plans;
mod processes;
mod promptness;
mod replay;
mod sandbox;
mod setup;
mod story;
mod texts;
mod tokens;
mod visible;
mod weakened_tests;
