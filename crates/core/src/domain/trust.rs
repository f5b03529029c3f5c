//! Trust boundaries: permissions, policy, sanitization of text, secrets, test tampering and network egress.

pub mod address;
pub mod bounds;
pub mod commit_rules;
pub mod egress;
pub mod images;
pub mod limits;
pub mod outbound;
pub mod permit;
pub mod policy;
pub mod protected;
pub mod sanitize;
pub mod secret_forms;
pub mod setup_state;
pub mod tamper;
pub mod viewer;
pub mod visible;
