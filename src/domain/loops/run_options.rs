//! Options of a loop, as the command that started or resumed it gave them.

use serde::{Deserialize, Serialize};

use crate::domain::checks::criteria;
use crate::domain::model::ids::Money;
use crate::domain::model::task::{Check, CheckSource};

/// Minimum length of a confirmation, in characters of the hash.
const CONFIRM_MIN: usize = 8;

/// Options of a loop. Omitted ones keep their configured value.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RunOptions {
    /// Commands of the checks, in order; at most 16.
    pub checks: Vec<String>,
    /// Maximum number of iterations, 1..=1000.
    pub max_iterations: Option<u32>,
    /// Time limit in seconds, up to 30 days.
    pub timeout_s: Option<u64>,
    /// Cost limit, above 0.
    pub budget: Option<Money>,
    /// Name of a backend.
    pub backend: Option<String>,
    /// Branch to start from.
    pub base: Option<String>,
    /// Hash of the confirmed text: 8 to 64 hexadecimal digits in lower case.
    pub confirm: Option<String>,
}

impl RunOptions {
    /// Whether `--confirm` names this hash, by at least its first 8 characters.
    pub fn confirms(&self, hash: &str) -> bool {
        let typed = self.confirm.as_deref().unwrap_or_default();
        typed.len() >= CONFIRM_MIN && hash.starts_with(&typed.to_ascii_lowercase())
    }

    /// Returns the checks of these options.
    pub fn to_checks(&self) -> Vec<Check> {
        self.checks.iter().map(|command| criteria::plain(command, CheckSource::Command)).collect()
    }
}
