//! Completion criteria: sources of checks and judgement of their outcomes. Ecosystems: installation of dependencies.

pub mod criteria;
pub mod dependencies;
