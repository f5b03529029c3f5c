//! Backends that answer questions or give second opinions.

use std::sync::Arc;

use crate::agent::Backend;
use crate::provider::assistant::Assistant;

/// Backend that answers questions or gives second opinions.
pub enum Respondent {
    /// Program that runs without write access.
    Agent(Arc<dyn Backend>),
    /// Model over HTTP.
    Assistant(Arc<dyn Assistant>),
}
