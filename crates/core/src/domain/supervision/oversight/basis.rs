//! Basis of a detection: how directly its evidence was measured.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Basis of a signal or a detection, most direct first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// Measurements: counts, exit codes, outputs of checks, and trees.
    Measured,
    /// Figures that are computed from measurements: rates, trends and estimates.
    Derived,
    /// Text of the agent or of the task.
    Words,
}

impl Basis {
    /// All values, most direct first.
    pub const ALL: [Self; 3] = [Self::Measured, Self::Derived, Self::Words];

    /// Returns the name used in the documentation.
    pub fn name(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Derived => "derived",
            Self::Words => "words",
        }
    }
}
