//! Completion criteria: where checks come from and how their outcomes are judged.

pub mod criteria;
