//! Stories that `cargo test` has no time for: set-up, the dashboard and the API, plans, weakened tests, operation (backups, restores, moves,
//! replaced secrets); features of one forge, images, suggested changes and merging, settings, supervision over many iterations, assistants,
//! providers, CI, hooks and notifications; processes killed at every step, faults of forges, git and agents, people who change the loop's
//! branch, power loss, exhausted resources, floods of deliveries, missing defences, and third-party programs.
//!
//! `cargo test --test slow` and `.ci/full` run them; `.ci/run` runs those about data and trust.
#![expect(clippy::disallowed_methods, reason = "stories look at the machine that they run on")]

mod absent_forges;
mod agent_faults;
mod api;
mod assets;
mod assistants;
mod browser;
mod browser_demo;
mod browser_live;
mod browser_pages;
mod browser_streams;
mod burst;
mod channels;
mod ci;
mod clock;
mod commit_status;
mod confirmation;
mod conventions;
mod dashboard;
mod defences;
mod demo_end;
mod edge;
mod environments;
mod exhaustion;
mod flaky;
mod forge_faults;
mod git_faults;
mod gitea;
mod github;
mod gone;
#[path = "../harness/mod.rs"]
mod harness;
mod hooks;
mod host_chaos;
mod host_faults;
mod host_jobs;
mod hosts;
mod images;
mod interference;
mod isolation;
mod kills;
mod learning;
mod local_model;
mod login;
#[cfg(feature = "mail")]
mod mail;
mod merges;
mod messages;
mod observability;
mod operations;
mod pages;
mod permission;
mod plans;
mod polling;
mod power;
mod processes;
mod promptness;
mod proposals;
mod providers;
mod pulls_of_bots;
mod real;
mod refusals;
mod rights;
mod rolling;
mod rotation;
mod second_opinion;
mod settings;
mod setup;
mod setup_browser;
mod started_processes;
mod suggestions;
mod supervised;
mod tampering;
#[cfg(feature = "traces")]
mod traces;
mod weakened_tests;
mod xss;
mod xss_setup;
