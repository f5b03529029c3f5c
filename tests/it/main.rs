//! Stories: the real service against a forge on loopback, with real git, real processes and a real database file.
#![expect(clippy::disallowed_methods, reason = "stories look at the machine that they run on")]

mod cli;
mod clock;
mod commands;
mod commit_status;
mod edge;
mod egress;
mod gitea;
mod github;
#[path = "../harness/mod.rs"]
mod harness;
mod images;
mod landlock;
mod memory;
mod merges;
mod permission;
mod plans;
mod processes;
mod promptness;
mod replay;
mod sandbox;
mod settings;
mod story;
mod suggestions;
mod texts;
mod visible;
mod weakened_tests;
