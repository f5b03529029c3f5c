//! Identifiers and quantities as distinct types.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// Wraps the text unchanged.
            pub fn new(text: impl Into<String>) -> Self {
                Self(text.into())
            }
            /// Returns the text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

macro_rules! number_id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

text_id!(
    /// Name of a configured forge, as in the operator's file (`work`, `gh`).
    ForgeName
);
text_id!(
    /// Identifier of a loop: `r-<issue number>-<6 base32 characters>`.
    LoopId
);
text_id!(
    /// Object name of a commit or tree: 40 or 64 lower-case hexadecimal characters.
    Sha
);
number_id!(
    /// Numeric id of a repository on its forge; survives renames.
    RepoId(i64)
);
number_id!(
    /// Numeric id of an account on its forge; survives renames, unlike a login.
    UserId(i64)
);
number_id!(
    /// Number of an issue or pull request within its repository (one series for both).
    Number(u64)
);
number_id!(
    /// Numeric id of a comment on an issue or pull request.
    CommentId(i64)
);

impl Sha {
    /// Parses a full object name; `None` unless it has 40 or 64 hexadecimal characters.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let well_formed = matches!(text.len(), 40 | 64) && text.bytes().all(|b| b.is_ascii_hexdigit());
        well_formed.then(|| Self(text.to_ascii_lowercase()))
    }

    /// Returns the abbreviated object name: its first 8 characters.
    pub fn short(&self) -> &str {
        self.0.get(..8).unwrap_or(&self.0)
    }
}

impl LoopId {
    /// Builds an id from the issue's number and the lower 30 bits of `random`.
    pub fn from_parts(issue: Number, random: u32) -> Self {
        const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
        let tail: String = (0..6).map(|i| ALPHABET[(random >> (5 * i) & 31) as usize] as char).collect();
        Self(format!("r-{issue}-{tail}"))
    }
}

/// Point in time: milliseconds since 1970-01-01T00:00:00Z.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// Returns this time plus `ms` milliseconds (may be negative), saturating.
    pub fn plus_ms(self, ms: i64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// Returns the milliseconds since `earlier`, never negative.
    pub fn since(self, earlier: Timestamp) -> i64 {
        self.0.saturating_sub(earlier.0).max(0)
    }
}

/// Amount of money in millionths of a US dollar. Integers keep sums exact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Money(pub i64);

impl Money {
    /// Converts from dollars; NaN and infinities become 0.
    pub fn from_usd(usd: f64) -> Self {
        if usd.is_finite() { Self((usd * 1e6).round() as i64) } else { Self(0) }
    }
    /// Returns the amount in US dollars.
    pub fn usd(self) -> f64 {
        self.0 as f64 / 1e6
    }
    /// Returns the sum, saturating.
    pub fn plus(self, other: Money) -> Money {
        Self(self.0.saturating_add(other.0))
    }
}

impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "${:.2}", self.usd())
    }
}

/// Ratio, 0..=1.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Ratio(f64);

impl Ratio {
    /// Clamps `value` to 0..=1; NaN becomes 0.
    pub fn new(value: f64) -> Self {
        if value.is_nan() { Self(0.0) } else { Self(value.clamp(0.0, 1.0)) }
    }
    /// Returns the value, 0..=1.
    pub fn get(self) -> f64 {
        self.0
    }
    /// Returns the percentage, 0..=100, rounded down, so only a complete ratio returns 100.
    pub fn whole_percent(self) -> u8 {
        (self.0 * 100.0 + 1e-9).floor() as u8
    }
}

/// Percentage, 0..=100, for example a test coverage.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Percent(pub f64);

/// Kind of an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AccountKind {
    /// A person.
    User,
    /// Application, or an account marked as a bot by the forge.
    Bot,
}

/// Account on a forge. Compare accounts by `id`; the login is for display.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// Numeric id of the account.
    pub id: UserId,
    /// Login when last read.
    pub login: String,
    /// Kind of the account.
    pub kind: AccountKind,
}

/// Verdict of a review.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReviewVerdict {
    /// The reviewer approved the change.
    Approved,
    /// The reviewer requested changes.
    ChangesRequested,
    /// The reviewer only commented.
    Commented,
    /// The review was dismissed and no longer counts.
    Dismissed,
}

/// Repository on a forge.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct RepoRef {
    /// Configured forge.
    pub forge: ForgeName,
    /// Numeric id, which identifies the repository.
    pub id: RepoId,
    /// Owner's name when last read.
    pub owner: String,
    /// Name when last read.
    pub name: String,
}

/// Issue or pull request of a repository.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IssueRef {
    /// Owner and name of the repository.
    pub repo: RepoRef,
    /// Number of the issue or pull request.
    pub issue: Number,
}

impl IssueRef {
    /// Returns the key of the issue, unique over all forges: `FORGE/REPOSITORY_ID#NUMBER`.
    pub fn key(&self) -> String {
        format!("{}/{}#{}", self.repo.forge, self.repo.id, self.issue)
    }
}

impl RepoRef {
    /// Returns `owner/name`.
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.owner, self.name)
    }
}

impl fmt::Display for RepoRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}/{}", self.forge, self.owner, self.name)
    }
}
