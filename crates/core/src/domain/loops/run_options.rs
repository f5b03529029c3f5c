//! Options of a loop, as given in the command that started or resumed it.

use serde::{Deserialize, Serialize};

use crate::domain::checks::criteria;
use crate::domain::model::ids::Money;
use crate::domain::model::quantity::IterationLimit;
use crate::domain::model::task::{Check, CheckSource};

/// Minimum length of the hash in a confirmation, in characters.
const CONFIRM_MIN: usize = 8;

/// Options of a loop. For an omitted option, the configured value applies.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RunOptions {
    /// Commands of the checks, in order; at most 16. In a command of a person, a number means the proposal with this number.
    pub checks: Vec<String>,
    /// Maximum number of iterations: 1..=1000, or unlimited.
    pub max_iterations: Option<IterationLimit>,
    /// Time limit in seconds, up to 30 days.
    pub timeout_s: Option<u64>,
    /// Cost limit, above 0.
    pub budget: Option<Money>,
    /// Name of the backend to use.
    pub backend: Option<String>,
    /// Branch to start from.
    pub base: Option<String>,
    /// Hash of the confirmed text: 8 to 64 hexadecimal digits in lower case.
    pub confirm: Option<String>,
}

impl RunOptions {
    /// Whether `--confirm` has the start of this hash, with at least 8 characters.
    pub fn confirms(&self, hash: &str) -> bool {
        let typed = self.confirm.as_deref().unwrap_or_default();
        typed.len() >= CONFIRM_MIN && hash.starts_with(&typed.to_ascii_lowercase())
    }

    /// Creates the checks of these options.
    pub fn to_checks(&self) -> Vec<Check> {
        self.checks.iter().map(|command| criteria::plain(command, CheckSource::Command)).collect()
    }
}
