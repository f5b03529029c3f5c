//! What a provider's refusal means for the run, and short texts that are no answers. What a refusal says is read in
//! [`limit`](crate::domain::providers::limit).

use std::sync::LazyLock;

use regex::Regex;

use super::AgentStatus;
use super::preset::shortened;
use super::stream::MAX_NOTE;
use crate::domain::providers::limit::{LimitKind, LimitSignals};

/// Longest text without structure that may be a refusal and no answer, in characters.
const MAX_REFUSAL: usize = 2_000;
/// Most lines of such a text from a program that exits with 0, and their length in characters.
const BRIEF_LINES: usize = 2;
const MAX_BRIEF: usize = 200;

/// A run that ended with an error that is certainly its provider's, which `said` are the words of: what comes next.
pub(super) fn refused(signals: &LimitSignals, said: &str) -> AgentStatus {
    judged(signals.refusal_of_provider(said), signals, said)
}

/// A run that ended with an error of whatever it used: its provider's, or that of a tool.
pub(super) fn gave_up(signals: &LimitSignals, said: &str) -> AgentStatus {
    judged(signals.refusal(said), signals, said)
}

fn judged(refusal: Option<LimitKind>, signals: &LimitSignals, said: &str) -> AgentStatus {
    let reason = shortened(said.trim(), MAX_NOTE);
    match refusal {
        Some(LimitKind::Rate | LimitKind::Quota | LimitKind::Overload) => {
            AgentStatus::Limited { until_ms: signals.resets_at.map(|at| at.0), reason }
        }
        Some(LimitKind::Auth | LimitKind::Billing | LimitKind::ModelMissing) => AgentStatus::Unavailable { reason },
        // Another prompt may do.
        Some(LimitKind::ContextTooLong) | None => AgentStatus::Failed { reason },
    }
}

/// Whether a text is one or two short lines and nothing else, as the refusal of a program is that exits as if all were well.
pub(super) fn is_brief(text: &str) -> bool {
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    lines.by_ref().take(BRIEF_LINES).all(|line| line.trim().chars().count() <= MAX_BRIEF) && lines.next().is_none()
}

/// The line by which a short text without structure is no answer: the program wants a login, is called wrongly, or is
/// given up by its makers.
pub(super) fn no_answer(text: &str) -> Option<String> {
    static REFUSAL: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(
            r"(?ix) /login\b | \b(?:not|please)\ (?:logged|log|sign(?:ed)?)[\ -]in\b | \bto\ sign\ in\b
              | \bdevice\ code\b | \bset\ an?\ auth | \binvalid\ auth | \bno\ longer\ maintained\b
              | \bhas\ been\ (?:deprecated|discontinued|sunset|retired)\b | \bunknown\ (?:option|argument)
              | \bunexpected\ argument\b | \bno\ such\ option\b | \bunrecognized\ argument",
        )
        .expect("the expression is fixed and valid")
    });
    let text = text.trim();
    if text.chars().count() > MAX_REFUSAL {
        return None;
    }
    text.lines().find(|line| REFUSAL.is_match(line)).map(|line| shortened(line.trim(), MAX_NOTE))
}

#[cfg(test)]
mod tests;
