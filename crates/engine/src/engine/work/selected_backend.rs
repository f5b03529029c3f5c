//! Backend that was selected for one call of a run.

use crate::domain::loops::AgentSession;
use crate::domain::model::ids::Money;
use crate::store::calls::CallContext;

/// Backend selected for a call.
pub(super) struct SelectedBackend {
    pub(super) caller: CallContext,
    pub(super) backend: String,
    pub(super) model: Option<String>,
    pub(super) at_most: Option<Money>,
    /// Session to resume.
    pub(super) session: Option<AgentSession>,
    /// Digests of the facts and texts that the session has received, including the prompt of this call.
    pub(super) told: Vec<String>,
    /// Number of earlier calls of the run.
    pub(super) number: usize,
}

impl SelectedBackend {
    /// Returns the name of the folder for the call's session. `ticket` is the ticket of the run.
    pub(super) fn session_folder(&self, ticket: u64) -> String {
        format!("{ticket}-{}", self.number)
    }
}
