//! Completion criteria: where checks come from and how their outcomes are judged. Ecosystems: how their dependencies are
//! installed.

pub mod criteria;
pub mod dependencies;
