//! Question of a hook that waits for a person's answer.

use serde::{Deserialize, Serialize};

use crate::domain::model::hook::HookEvent;
use crate::domain::model::ids::Sha;

/// Question of a hook to people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HookQuestion {
    /// Event.
    pub event: HookEvent,
    /// Name of the hook.
    pub hook: String,
    /// Head of the loop at that time.
    pub commit: Sha,
}
