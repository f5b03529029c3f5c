//! Limits of providers, recognized from the results of a call.
//!
//! [`classify`] reads the most reliable sources first: exit code, structured output, headers, and error messages, which are
//! read only if a run failed and only at the beginning of a line. A time without a date is the next one after now; a time
//! that has passed, or is more than [`LONGEST_MS`] away, is ignored.

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

pub use refusal::{http_error, status_in};

/// Maximum plausible duration of a limit, in milliseconds: 40 days, somewhat more than a monthly plan.
pub const LONGEST_MS: i64 = 40 * 24 * 3_600 * 1_000;
/// Maximum length of evidence, in characters.
const EVIDENCE: usize = 300;

/// Kind of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitKind {
    /// Too many requests or tokens in a short time; ends by itself, usually within minutes.
    Rate,
    /// The plan's share for hours, days or a month is used up; ends at its reset.
    Quota,
    /// The provider is overloaded or has an outage; ends by itself.
    Overload,
    /// Not logged in, or a key that is not accepted; a person has to act.
    Auth,
    /// No money on the account; a person has to act.
    Billing,
    /// The prompt is longer than the model accepts; another prompt or model helps, waiting does not.
    ContextTooLong,
    /// The provider does not know the model, or the account has no access to it; another model helps.
    ModelMissing,
}

/// Source from which a limit was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitSource {
    /// The program's exit code.
    Exit,
    /// A field of the program's structured output, or the status of an answer.
    Stream,
    /// A header of an answer.
    Headers,
    /// Error messages of a failed run.
    Text,
}

/// A limit that a call met.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Limit {
    /// Kind.
    pub kind: LimitKind,
    /// End of the limit, if the provider named one.
    pub until: Option<Timestamp>,
    /// Source.
    pub source: LimitSource,
    /// Text or field that shows the limit, at most 300 characters.
    pub evidence: String,
}

/// Evidence of a call to a provider that can indicate a limit. It never contains text that a model wrote about its
/// work.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LimitSignals {
    /// Whether the call succeeded; then there is no limit, whatever the messages say.
    pub succeeded: bool,
    /// Exit code of the program, if there was one.
    pub exit_code: Option<i32>,
    /// Whether the program's exit code is the HTTP status of the answer (Gemini CLI: 429 becomes 173). The exit code of other
    /// programs is ignored.
    pub exit_is_status: bool,
    /// HTTP status of the answer that ended the call.
    pub status: Option<u16>,
    /// Provider's code of the error: `overloaded_error`, `usage_limit_reached`, `insufficient_quota`.
    pub code: Option<String>,
    /// End of a limit, if a field of the structured output states it. Does not prove that the limit is reached.
    pub resets_at: Option<Timestamp>,
    /// Headers of the answer, names in any case.
    pub headers: Vec<(String, String)>,
    /// Error messages: from the structured output first, then the end of standard error. Never text of a model.
    pub messages: Vec<String>,
    /// IANA name of the time zone that applies to times without a zone; UTC if missing or unknown.
    pub zone: Option<String>,
}

/// Returns the kind of the limit that a call met, as [`classify`] finds it; `None` if there was none.
pub fn kind(signals: &LimitSignals) -> Option<LimitKind> {
    classify(signals, Timestamp(0)).map(|limit| limit.kind)
}

/// Returns the limit that a call met, if any. Never for a call that succeeded.
///
/// The source is the first place that shows a limit. The kind is the most specific of all places (the message of a 429 states
/// whether it is a rate or a plan). The time is the first valid one of the structured output, the headers and the messages.
/// Reads at most 128 KiB and some 400 lines of messages, from their ends.
pub fn classify(signals: &LimitSignals, now: Timestamp) -> Option<Limit> {
    if signals.succeeded {
        return None;
    }
    let exit = signals.exit_code.filter(|_| signals.exit_is_status).and_then(codes::of_exit);
    let status = signals.status.or(exit);
    let words = text::read(&signals.messages, status);
    let by_status = |status: Option<u16>| codes::of_status_with_words(status?, &text::words(&signals.messages));
    let by_exit = by_status(exit);
    let code = signals.code.as_deref().and_then(codes::of_code).filter(|kind| !codes::denied(signals.status, *kind));
    let by_stream = text::stronger(code, by_status(signals.status));
    // A refusal for another reason than a limit bears the same headers.
    let limiting = status.is_none_or(|status| codes::of_status(status).is_some());
    let headers = headers::read(&signals.headers, now).filter(|_| limiting);
    let by_headers = headers.as_ref().and_then(|headers| headers.kind);
    let by_words = words.as_ref().map(|words| words.kind);

    let found = [
        (LimitSource::Exit, by_exit),
        (LimitSource::Stream, by_stream),
        (LimitSource::Headers, by_headers),
        (LimitSource::Text, by_words),
    ];
    let source = found.iter().find(|(_, kind)| kind.is_some())?.0;
    let kind = found.iter().fold(None, |known, (_, kind)| text::stronger(known, *kind))?;
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

/// Returns the code, status or exit code, for errors without a message.
fn evidence_without_message(signals: &LimitSignals) -> Option<String> {
    let code = signals.code.clone();
    let status = || signals.status.map(|status| format!("status {status}"));
    code.or_else(status).or_else(|| signals.exit_code.map(|code| format!("exit code {code}")))
}

/// Returns the time if it is in the future and not too far away.
fn plausible(at: Timestamp, now: Timestamp) -> Option<Timestamp> {
    (at > now && at.since(now) <= LONGEST_MS).then_some(at)
}
