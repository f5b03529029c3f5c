//! Reasons why a backend is not used.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Reason of a cooldown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CooldownReason {
    /// Too many requests or tokens.
    Rate,
    /// The plan's share is used up.
    Quota,
    /// The provider is overloaded.
    Overload,
    /// Too many consecutive errors.
    Errors,
    /// A configured threshold is reached.
    Threshold,
}

impl fmt::Display for CooldownReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rate => "rate limit",
            Self::Quota => "used-up quota",
            Self::Overload => "overloaded provider",
            Self::Errors => "errors in a row",
            Self::Threshold => "configured threshold",
        })
    }
}

/// Reason why a backend is disabled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DisabledFor {
    /// Not logged in, or the key is not accepted.
    Auth,
    /// No money on the account.
    Billing,
    /// A person disabled it; a changed configuration does not enable it.
    Person,
}

impl fmt::Display for DisabledFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auth => "not logged in",
            Self::Billing => "no money on the account",
            Self::Person => "disabled by a person",
        })
    }
}
