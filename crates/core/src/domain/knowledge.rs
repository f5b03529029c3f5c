//! Knowledge for the agent: memory across loops, memory of one loop's session, questions to models, and the prompt.

mod agent_message;
pub mod intelligence;
pub mod memory;
pub mod prompt;
pub mod session;
mod text;

pub use agent_message::report_of;
