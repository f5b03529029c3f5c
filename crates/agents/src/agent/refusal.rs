//! Status of a run whose provider refused a request, and recognition of short texts that are error messages. Refusals
//! are classified in [`limit`](crate::domain::providers::limit).

use std::sync::LazyLock;

use regex::Regex;

use super::broker::meter::RunMeter;
use super::text::{MAX_NOTE, shortened};
use super::{AgentOutcome, AgentStatus};
use crate::domain::providers::limit::{EMPTY_ANSWER, LimitKind, LimitSignals};

/// Maximum length of an unstructured text that can be a refusal, in characters.
const MAX_REFUSAL: usize = 2_000;
/// Maximum number of lines of a short text, and the maximum length of each line in characters.
const BRIEF_LINES: usize = 2;
const MAX_BRIEF: usize = 200;

/// Returns the status of a run that ended with an error of its provider, and records the error. `message` is the error message.
pub(super) fn refused(signals: &mut LimitSignals, message: &str) -> AgentStatus {
    let refusal = signals.refusal_of_provider(message);
    status_of(refusal, signals, message)
}

/// Returns the status of a run that ended with an error whose source is unknown: the provider or a tool.
pub(super) fn gave_up(signals: &LimitSignals, message: &str) -> AgentStatus {
    status_of(signals.refusal(message), signals, message)
}

fn status_of(refusal: Option<LimitKind>, signals: &LimitSignals, message: &str) -> AgentStatus {
    let reason = shortened(message.trim(), MAX_NOTE);
    match refusal {
        Some(LimitKind::Rate | LimitKind::Quota | LimitKind::Overload) => {
            AgentStatus::Limited { until_ms: signals.resets_at.map(|at| at.0), reason }
        }
        Some(LimitKind::Auth | LimitKind::Billing | LimitKind::ModelMissing) => AgentStatus::Unavailable { reason },
        // A different prompt or another provider may succeed.
        Some(LimitKind::ContextTooLong | LimitKind::Policy | LimitKind::Empty | LimitKind::OwnBudget) | None => {
            AgentStatus::Failed { reason }
        }
    }
}

/// Replaces an agent's words about a failure by the refusal that the broker saw in the model's answer to its last request. Some agents
/// report a failure as text of the model and end their turn normally, for example Copilot CLI; such a run fails if no model answered.
pub(super) fn with_refusal(mut outcome: AgentOutcome, meter: &RunMeter) -> AgentOutcome {
    if outcome.status == AgentStatus::Finished && meter.is_unanswered() {
        let reason = shortened(outcome.final_message.trim(), MAX_NOTE);
        outcome.signals.succeeded = false;
        outcome.signals.code = Some(EMPTY_ANSWER.to_owned());
        outcome.signals.messages.push(reason.clone());
        outcome.status = AgentStatus::Failed { reason };
    }
    let (AgentStatus::Failed { reason } | AgentStatus::Unavailable { reason } | AgentStatus::Limited { reason, .. }) =
        &outcome.status
    else {
        return outcome;
    };
    if let Some(mut signals) = meter.refusal() {
        let answer = Some(signals.answer.clone()).filter(|answer| !answer.is_empty());
        let status = refused(&mut signals, answer.as_deref().unwrap_or(reason));
        let is_empty = signals.code.as_deref() == Some(EMPTY_ANSWER);
        if is_empty || matches!(status, AgentStatus::Limited { .. } | AgentStatus::Unavailable { .. }) {
            signals.messages.append(&mut outcome.signals.messages);
            signals.exit_code = outcome.signals.exit_code;
            signals.zone = outcome.signals.zone.take();
            (outcome.status, outcome.signals) = (status, signals);
        }
    }
    outcome
}

/// Whether an error message asks for a login or a key.
pub(super) fn asks_for_login(message: &str) -> bool {
    static LOGIN: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"(?i)/login\b|\b(?:log|sign)(?:ged|ed)?[ -]?in\b|\bapi[ _-]?key\b|\bauth method\b|\bunauthori[sz]ed\b|\bauthenticat")
            .expect("the expression is fixed and valid")
    });
    LOGIN.is_match(message)
}

/// Whether a text has at most two short lines, as the error message of a program that exits with 0 can have.
pub(super) fn is_brief(text: &str) -> bool {
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    lines.by_ref().take(BRIEF_LINES).all(|line| line.trim().chars().count() <= MAX_BRIEF) && lines.next().is_none()
}

/// Returns the line of a short text that shows that the text is an error message: the program requires a login, was
/// called with wrong arguments, or is discontinued. `None` if there is no such line.
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
