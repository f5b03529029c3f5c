//! Reasons for the cooldown or the deactivation of a backend.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Reason of a cooldown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CooldownReason {
    /// Too many requests or tokens.
    Rate,
    /// The allowance of the plan is used up.
    Quota,
    /// The provider is overloaded.
    Overload,
    /// Too many consecutive errors.
    Errors,
    /// A configured threshold is reached.
    Threshold,
    /// Runs of several loops reported that the backend is not logged in.
    Auth,
    /// Runs of several loops reported that the account has no credit.
    Billing,
}

impl fmt::Display for CooldownReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rate => "rate limit",
            Self::Quota => "used-up quota",
            Self::Overload => "overloaded provider",
            Self::Errors => "errors in a row",
            Self::Threshold => "configured threshold",
            Self::Auth => "reports of a missing login",
            Self::Billing => "reports of an account without money",
        })
    }
}

/// Reason why a backend is disabled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DisabledFor {
    /// The backend is not logged in, or its key is rejected.
    Auth,
    /// The account has no credit.
    Billing,
    /// A person disabled the backend. A changed configuration does not enable it.
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
