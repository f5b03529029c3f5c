//! Limits of providers, recognized from the result of a call.
//!
//! [`classify`] decides by the sentence of an error, from one table of sentences; codes, headers and HTTP statuses make it more
//! specific, or decide where no sentence is known. Messages are read only if a run failed, and only at the starts of lines. A
//! time without a date is taken as the next such time after now. A time that has passed, or is more than [`LONGEST_MS`] away, is
//! ignored.

use serde::{Deserialize, Serialize};

use crate::domain::model::ids::Timestamp;

mod codes;
mod duration;
mod headers;
mod moment;
mod refusal;
mod text;
mod when;
mod wording;
mod zone;

#[cfg(test)]
mod tests;

pub use codes::{EMPTY_ANSWER, OWN_BUDGET};
pub use refusal::{http_error, status_in};

/// Maximum plausible duration of a limit, in milliseconds: 40 days, slightly more than the period of a monthly plan.
pub const LONGEST_MS: i64 = 40 * 24 * 3_600 * 1_000;
/// Maximum length of the evidence, in characters.
const EVIDENCE: usize = 300;

/// Kind of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitKind {
    /// Too many requests or tokens in a short time; ends by itself, usually within minutes.
    Rate,
    /// The plan's allowance for some hours, a day or a month is used up; ends when the allowance is renewed.
    Quota,
    /// The provider is overloaded or has an outage; ends by itself.
    Overload,
    /// The backend is not logged in, or its key is rejected; a person has to act.
    Auth,
    /// The account has no credit; a person has to act.
    Billing,
    /// The prompt is longer than the model accepts. Another prompt or model helps; waiting does not.
    ContextTooLong,
    /// The provider does not know the model, or the account has no access to it; another model helps.
    ModelMissing,
    /// The provider declined the request for its usage policy. Another provider may accept it; waiting does not help.
    Policy,
    /// The model answered with nothing.
    Empty,
    /// The agent stopped at its own cost limit.
    OwnBudget,
}

impl LimitKind {
    /// Whether the limit concerns only this request to this backend, so that another backend gets it and the backend stays
    /// available.
    pub fn declines(self) -> bool {
        matches!(self, Self::Policy | Self::Empty | Self::OwnBudget)
    }
}

/// Source from which a limit was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitSource {
    /// The program's exit code.
    Exit,
    /// A field of the program's structured output, or the HTTP status of a response.
    Stream,
    /// A header of a response.
    Headers,
    /// An error message of a failed run.
    Text,
}

/// Limit that a call met.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Limit {
    /// Kind of the limit.
    pub kind: LimitKind,
    /// End of the limit; `None` if the provider stated none.
    pub until: Option<Timestamp>,
    /// Source of the limit.
    pub source: LimitSource,
    /// Text or field that indicates the limit, at most 300 characters.
    pub evidence: String,
}

/// Evidence from a call to a provider that can indicate a limit. It never contains text that a model wrote.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LimitSignals {
    /// Whether the call succeeded. A successful call met no limit, even if its messages mention one.
    pub succeeded: bool,
    /// Exit code of the program; `None` for a call without a program.
    pub exit_code: Option<i32>,
    /// Whether the program's exit code is an HTTP status (Gemini CLI: 429 becomes 173). If false, the exit code is ignored.
    pub exit_is_status: bool,
    /// HTTP status of the response that ended the call.
    pub status: Option<u16>,
    /// Error code of the provider, such as `overloaded_error`, `usage_limit_reached` or `insufficient_quota`.
    pub code: Option<String>,
    /// End of a limit, as stated by a field of the structured output. It does not prove that the limit is reached.
    pub resets_at: Option<Timestamp>,
    /// Headers of the response. Names may be in upper or lower case.
    pub headers: Vec<(String, String)>,
    /// Error with which the provider ended the call; empty if the error may come from another program. Its sentences count without
    /// a provider's prefix.
    pub answer: String,
    /// Error messages: first the structured output, then the end of standard error. Never text of a model.
    pub messages: Vec<String>,
    /// IANA name of the time zone for times that state none; UTC if it is missing or unknown.
    pub zone: Option<String>,
}

/// Returns the kind of the limit that a call met, as recognized by [`classify`]; `None` if there was no limit.
pub fn kind(signals: &LimitSignals) -> Option<LimitKind> {
    classify(signals, Timestamp(0)).map(|limit| limit.kind)
}

/// Returns the limit that a call met; `None` if there was none or the call succeeded.
///
/// The `source` is the first source that shows a limit. The kind follows from the sentence, unless a code or a header is more
/// specific; for example, the message of a 429 states whether it is a rate or a plan limit. The time is the first valid one of the
/// structured output, the headers and the messages. Of the messages, at most 128 KiB and some 400 lines are read, from their ends.
pub fn classify(signals: &LimitSignals, now: Timestamp) -> Option<Limit> {
    if signals.succeeded {
        return None;
    }
    let exit = signals.exit_code.filter(|_| signals.exit_is_status).and_then(codes::of_exit);
    let status = signals.status.or(exit);
    let answer = Some(&signals.answer).filter(|answer| !answer.is_empty());
    let words = answer.and_then(|answer| text::read_answer(answer, status));
    let words = words.or_else(|| text::read(&signals.messages, status));
    let by_words = words.as_ref().map(|words| words.kind);
    let by_status = |status: Option<u16>| codes::of_status_with_words(status?, &text::words(&signals.messages));
    let by_exit = by_status(exit);
    let code = signals.code.as_deref().and_then(codes::of_code).filter(|kind| !codes::denied(signals.status, *kind));
    // Gateways also deny access after an exhausted allowance; then the sentence is more specific than the code.
    let code = code.filter(|kind| *kind != LimitKind::Auth || by_words.is_none());
    let by_stream = text::stronger(code, by_status(signals.status));
    // A refusal for another reason than a limit bears the same headers.
    let limiting = status.is_none_or(|status| codes::of_status(status).is_some());
    let headers = headers::read(&signals.headers, now).filter(|_| limiting);
    let by_headers = headers.as_ref().and_then(|headers| headers.kind);

    let found = [
        (LimitSource::Exit, by_exit),
        (LimitSource::Stream, by_stream),
        (LimitSource::Headers, by_headers),
        (LimitSource::Text, by_words),
    ];
    let source = found.iter().find(|(_, kind)| kind.is_some())?.0;
    let by_any_status = text::stronger(by_status(signals.status), by_exit).filter(|_| by_words.is_none());
    let kinds = [by_words, code, by_headers, by_any_status];
    let kind = kinds.into_iter().fold(None, text::stronger)?;
    let habit = words.as_ref().and_then(|words| wording::zone(&words.message));
    let zone = habit.or(signals.zone.as_deref()).and_then(zone::by_name);
    let until = signals.resets_at.and_then(|at| plausible(at, now));
    let until = until.or_else(|| headers.as_ref().and_then(|headers| headers.until));
    let until = until.or_else(|| words.as_ref().and_then(|words| when::find(&words.message, now, zone.as_ref())));
    let evidence = match source {
        LimitSource::Headers => headers.map(|headers| headers.evidence),
        _ => words.map(|words| words.message).or_else(|| evidence_without_message(signals)),
    };
    Some(Limit { kind, until, source, evidence: evidence.unwrap_or_default().trim().chars().take(EVIDENCE).collect() })
}

/// Returns the error code, HTTP status or exit code as evidence for an error without a message.
fn evidence_without_message(signals: &LimitSignals) -> Option<String> {
    let code = signals.code.clone();
    let status = || signals.status.map(|status| format!("status {status}"));
    code.or_else(status).or_else(|| signals.exit_code.map(|code| format!("exit code {code}")))
}

/// Returns the time if it is in the future and at most `LONGEST_MS` away.
fn plausible(at: Timestamp, now: Timestamp) -> Option<Timestamp> {
    (at > now && at.since(now) <= LONGEST_MS).then_some(at)
}
