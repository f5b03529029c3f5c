//! Identifiers and quantities as types of their own, so that none is taken for another.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// Takes the text as it is.
            pub fn new(text: impl Into<String>) -> Self {
                Self(text.into())
            }
            /// The text.
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
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
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
    /// The name of a configured forge server, as the operator wrote it (`work`, `gh`).
    ForgeName
);
text_id!(
    /// A loop: `r-<issue number>-<6 base32 characters>`.
    LoopId
);
text_id!(
    /// A commit or tree, as lower-case hexadecimal (40 or 64 characters).
    Sha
);
number_id!(
    /// The forge's numeric id of a repository; survives renames.
    RepoId(i64)
);
number_id!(
    /// The forge's numeric id of an account; survives renames, unlike a login.
    UserId(i64)
);
number_id!(
    /// The number of an issue or pull request within its repository (one series for both).
    Number(u64)
);
number_id!(
    /// The forge's id of a comment on an issue or pull request.
    CommentId(i64)
);

impl Sha {
    /// Reads a full object name; `None` unless it is 40 or 64 hexadecimal characters.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let well_formed = matches!(text.len(), 40 | 64) && text.bytes().all(|b| b.is_ascii_hexdigit());
        well_formed.then(|| Self(text.to_ascii_lowercase()))
    }

    /// The first 8 characters, for people.
    pub fn short(&self) -> &str {
        self.0.get(..8).unwrap_or(&self.0)
    }
}

impl LoopId {
    /// Builds the id from the issue's number and 30 random bits (upper bits are ignored).
    pub fn from_parts(issue: Number, random: u32) -> Self {
        const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
        let tail: String = (0..6).map(|i| ALPHABET[(random >> (5 * i) & 31) as usize] as char).collect();
        Self(format!("r-{issue}-{tail}"))
    }
}

/// A moment: milliseconds since 1970-01-01T00:00:00Z.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// This moment plus `ms` milliseconds (may be negative); saturates.
    pub fn plus_ms(self, ms: i64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// Milliseconds from `earlier` to this moment, never negative.
    pub fn since(self, earlier: Timestamp) -> i64 {
        self.0.saturating_sub(earlier.0).max(0)
    }
}

/// Money in millionths of a US dollar; never a float, so that sums are exact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Money(pub i64);

impl Money {
    /// From dollars; not-a-number and infinities become 0.
    pub fn from_usd(usd: f64) -> Self {
        if usd.is_finite() { Self((usd * 1e6).round() as i64) } else { Self(0) }
    }
    /// In dollars.
    pub fn usd(self) -> f64 {
        self.0 as f64 / 1e6
    }
    /// Sum, saturating.
    pub fn plus(self, other: Money) -> Money {
        Self(self.0.saturating_add(other.0))
    }
}

impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "${:.2}", self.usd())
    }
}

/// A share, 0..=1.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Ratio(f64);

impl Ratio {
    /// Clamped to 0..=1; not-a-number becomes 0.
    pub fn new(value: f64) -> Self {
        if value.is_nan() { Self(0.0) } else { Self(value.clamp(0.0, 1.0)) }
    }
    /// 0..=1.
    pub fn get(self) -> f64 {
        self.0
    }
    /// Whole percent, 0..=100, rounded down, so that only 1.0 reads as 100.
    pub fn whole_percent(self) -> u8 {
        (self.0 * 100.0 + 1e-9).floor() as u8
    }
}

/// A percentage, 0..=100 (coverage).
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Percent(pub f64);

/// What an account is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AccountKind {
    /// A person.
    User,
    /// An application or a machine account that the forge knows to be one.
    Bot,
}

/// An account on a forge. Equality of accounts is equality of `id`; the login is for display.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// Numeric id.
    pub id: UserId,
    /// Name at the time it was read.
    pub login: String,
    /// Person or bot.
    pub kind: AccountKind,
}

/// A repository on a forge.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RepoRef {
    /// Which configured forge.
    pub forge: ForgeName,
    /// Numeric id; what identity is decided by.
    pub id: RepoId,
    /// Owner's name when last seen.
    pub owner: String,
    /// Name when last seen.
    pub name: String,
}

/// An issue or pull request of a repository.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IssueRef {
    /// Repository.
    pub repo: RepoRef,
    /// Number of the issue or pull request.
    pub issue: Number,
}

impl IssueRef {
    /// Key of the issue, unique over all forges: `FORGE/REPOSITORY_ID#NUMBER`.
    pub fn key(&self) -> String {
        format!("{}/{}#{}", self.repo.forge, self.repo.id, self.issue)
    }
}

impl RepoRef {
    /// `owner/name`.
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.owner, self.name)
    }
}

impl fmt::Display for RepoRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}/{}", self.forge, self.owner, self.name)
    }
}
