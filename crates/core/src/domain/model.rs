//! Values shared by all parts of the core: identifiers, quantities, events, effects, tasks and the record of an iteration.

pub mod authorship;
pub mod characters;
pub mod comparison;
pub mod database;
pub mod dispersion;
pub mod document;
pub mod error_chain;
pub mod event;
pub mod hook;
pub mod host;
pub mod image;
pub mod opinion;
pub mod path_patterns;
pub mod plan;
pub mod quantity;
pub mod record;
pub mod saved_commits;
pub mod settings;
pub mod signature;
pub mod similarity;
pub mod stated_facts;
pub mod task;
pub mod tokens;

pub use ralph_types::ids;
