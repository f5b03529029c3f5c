//! Question of a hook that is waiting for the answer of a person.

use serde::{Deserialize, Serialize};

use crate::domain::model::hook::HookEvent;
use crate::domain::model::ids::Sha;

/// Question of a hook to people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HookQuestion {
    /// Event at which the hook ran.
    pub event: HookEvent,
    /// Name of the hook.
    pub hook: String,
    /// Head of the loop when the hook asked.
    pub commit: Sha,
}
