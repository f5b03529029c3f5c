//! Reports: views of a loop for comments, and notices for channels.

mod compose;

pub mod control_words;
pub mod dashboard_links;
pub mod file_links;
pub mod loop_report;
pub mod notice;
pub mod task_words;
pub mod view;

pub use compose::*;
