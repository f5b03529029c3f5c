//! Test bed of the stories: a fake forge with people and a repository, the service in this process or in separate ones, and
//! conditions that are true at the end of each story.
#![allow(dead_code, unused_imports, unused_macros, reason = "each test target uses its own part")]

pub mod conversation;
pub mod dashboard;
pub mod databases;
pub mod deliveries;
pub mod docs_tables;
pub mod invariants;
pub mod other_user;
pub mod parts;
pub mod payloads;
pub mod service;
pub mod session_memory;
pub mod setup;
pub mod stories;
pub mod viewers;
pub mod world;

pub use self::setup::{SECRET, Setup, UpdateMode, WILLING, sandbox};
pub use self::stories::{live_story, prepared_story, story};
pub(crate) use self::stories::{on_both_forges, on_one_forge};
pub use self::world::World;
