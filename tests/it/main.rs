//! Stories: the real service against a forge on loopback, with real git, real processes and a real database file.
#![expect(clippy::disallowed_methods, reason = "stories look at the machine that they run on")]

mod agent_faults;
mod assistants;
mod burst;
mod channels;
mod cli;
mod clock;
mod commands;
mod edge;
mod egress;
mod evil;
mod exhaustion;
mod forge_faults;
mod git_faults;
mod harness;
mod interference;
mod isolation;
mod kills;
mod learning;
mod memory;
mod parts;
mod permission;
mod power;
mod processes;
mod promptness;
mod providers;
mod real;
mod replay;
mod service;
mod settings;
mod story;
mod supervised;
mod texts;
