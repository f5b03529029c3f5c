//! What keeps a provider from serving us now, as a value.

use serde::{Deserialize, Serialize};

use crate::domain::ids::Timestamp;

/// What sort of limit it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitKind {
    /// Too many requests or tokens in a short time; passes by itself, mostly within minutes.
    Rate,
    /// A plan's share for hours, days or a month is used up; passes at its reset.
    Quota,
    /// The provider is overloaded or in trouble; passes by itself.
    Overload,
    /// Not logged in, or a key that is not accepted; a person has to act.
    Auth,
    /// No money on the account; a person has to act.
    Billing,
    /// The prompt is longer than the model takes; another prompt or model helps, waiting does not.
    ContextTooLong,
    /// The provider does not know the model, or does not give it to us; another model helps.
    ModelMissing,
}

/// Where a limit was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitSource {
    /// The program's exit code.
    Exit,
    /// A field of the program's structured output, or the status of an answer.
    Stream,
    /// A header of an answer.
    Headers,
    /// The words of a run that failed.
    Text,
}

/// A limit that a call ran into.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Limit {
    /// What sort it is.
    pub kind: LimitKind,
    /// When it ends, where that was said.
    pub until: Option<Timestamp>,
    /// Where it was read.
    pub source: LimitSource,
    /// The words or the field that say so, at most 300 characters.
    pub evidence: String,
}

/// What a call to a provider left behind that can tell of a limit. Nothing in it is what a model said of its work.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Signals {
    /// Whether the call reached its end; then there is no limit, whatever the words.
    pub succeeded: bool,
    /// Exit code of the program, where it had one.
    pub exit_code: Option<i32>,
    /// HTTP status of the answer that ended the call.
    pub status: Option<u16>,
    /// The provider's own word for the error: `overloaded_error`, `usage_limit_reached`, `insufficient_quota`.
    pub code: Option<String>,
    /// The end of a limit, where a field of the structured output names it.
    pub resets_at: Option<Timestamp>,
    /// Headers of the answer, names in any case.
    pub headers: Vec<(String, String)>,
    /// Messages of errors: from the structured output first, then the end of standard error. Never a model's prose.
    pub messages: Vec<String>,
}
