//! Limits of providers, and how they are recognised from what a call left behind.
//!
//! [`classify`] asks in the order of trust: exit code, structured output, headers, and the words of errors, which are
//! looked at only where a run failed and only at the beginning of a line. A time without a date is the next one after now;
//! a time that has passed, or is more than [`LONGEST_MS`] away, is none.

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

/// The longest time that a limit is believed to last: 40 days in milliseconds, a month's plan and some.
pub const LONGEST_MS: i64 = 40 * 24 * 3_600 * 1_000;
/// Longest evidence, in characters.
const EVIDENCE: usize = 300;

/// Kind of a limit.
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
    /// The words of a run that failed.
    Text,
}

/// A limit that a call ran into.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Limit {
    /// Kind.
    pub kind: LimitKind,
    /// End of the limit, if the provider named one.
    pub until: Option<Timestamp>,
    /// Source.
    pub source: LimitSource,
    /// The words or the field that say so, at most 300 characters.
    pub evidence: String,
}

/// Evidence of a call to a provider that can indicate a limit. It never contains text that a model wrote about its
/// work.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LimitSignals {
    /// Whether the call reached its end; then there is no limit, whatever the words.
    pub succeeded: bool,
    /// Exit code of the program, where it had one.
    pub exit_code: Option<i32>,
    /// Whether the program ends with the status of the answer as its exit code (Gemini CLI: 429 is seen as 173). Of
    /// other programs an exit code says nothing of limits.
    pub exit_is_status: bool,
    /// HTTP status of the answer that ended the call.
    pub status: Option<u16>,
    /// The provider's own word for the error: `overloaded_error`, `usage_limit_reached`, `insufficient_quota`.
    pub code: Option<String>,
    /// The end of a limit, where a field of the structured output names it. It says when, not whether.
    pub resets_at: Option<Timestamp>,
    /// Headers of the answer, names in any case.
    pub headers: Vec<(String, String)>,
    /// Messages of errors: from the structured output first, then the end of standard error. Never a model's prose.
    pub messages: Vec<String>,
    /// IANA name of the time zone of times without one; UTC if missing or unknown.
    pub zone: Option<String>,
}

/// Returns the kind of the limit that a call ran into, as [`classify`] finds it; `None` if there was none.
pub fn kind(signals: &LimitSignals) -> Option<LimitKind> {
    classify(signals, Timestamp(0)).map(|limit| limit.kind)
}

/// The limit that a call ran into, if it was one. Never for a call that succeeded.
///
/// The source is the first place that tells of a limit, the kind the most telling of all places (the words of a 429 say
/// whether it is a rate or a plan), the time the first that holds: of the structured output, of the headers, of the words.
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

/// The moment, if it is still to come and not too far away.
fn plausible(at: Timestamp, now: Timestamp) -> Option<Timestamp> {
    (at > now && at.since(now) <= LONGEST_MS).then_some(at)
}
