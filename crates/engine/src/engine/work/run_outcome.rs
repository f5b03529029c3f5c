//! Outcome of one call of an agent's backend and its contribution to the run.

use super::selected_backend::SelectedBackend;
use crate::agent::{AgentOutcome, AgentStatus};
use crate::domain::loops::{AgentEnd, AgentRunFacts, AgentSession, ServedBy};
use crate::domain::model::ids::{Money, Timestamp};
use crate::domain::providers::limit::{Limit, LimitKind, LimitSignals, LimitSource, classify};
use crate::domain::providers::prices::TokenUsage;
use crate::engine::providers::CallUsage;

/// Compiles the patterns that recognize refusals.
pub(super) fn warm_up() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let sample =
            LimitSignals { messages: vec!["rate limit, try again in 1s".to_owned()], ..LimitSignals::default() };
        classify(&sample, Timestamp(0));
    });
}

/// Source of the report that a limit was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SeenBy {
    /// The service saw the limit in its own call, or in a response that passed the broker of keys.
    Service,
    /// The output of the run reported the limit.
    Run,
}

/// Returns the limit that a run reached and the source of this information; `None` if it reached no limit. The output
/// of a finished run is never searched for limits.
pub(super) fn limit_of(outcome: &AgentOutcome, now: Timestamp) -> Option<(Limit, SeenBy)> {
    let refused = match &outcome.status {
        AgentStatus::Failed { .. } | AgentStatus::Unavailable { .. } | AgentStatus::Limited { .. } => {
            outcome.brokered.as_ref().and_then(|brokered| brokered.refusal.as_ref())
        }
        _ => None,
    };
    let seen = refused.and_then(|signals| in_answer(signals, now));
    seen.map(|limit| (limit, SeenBy::Service)).or_else(|| Some((reported_limit(outcome, now)?, SeenBy::Run)))
}

/// Returns the limit in a provider's response; `None` if there is none. The message of an invalid request is ignored,
/// because it can quote the request.
fn in_answer(signals: &LimitSignals, now: Timestamp) -> Option<Limit> {
    let limit = classify(signals, now).or_else(|| {
        Some(Limit { kind: signals.refusal("")?, until: None, source: LimitSource::Stream, evidence: String::new() })
    })?;
    let concerns_request = matches!(limit.kind, LimitKind::ContextTooLong | LimitKind::ModelMissing);
    let is_refusal = matches!(signals.status, None | Some(401 | 402 | 403 | 408 | 429 | 500..=599));
    (concerns_request || limit.kind.declines() || is_refusal).then(|| {
        let evidence = match &limit.evidence {
            empty if empty.is_empty() => format!("status {}", signals.status.unwrap_or_default()),
            told => told.clone(),
        };
        Limit { evidence, ..limit }
    })
}

fn reported_limit(outcome: &AgentOutcome, now: Timestamp) -> Option<Limit> {
    match &outcome.status {
        AgentStatus::Failed { .. } | AgentStatus::Unavailable { .. } => classify(&outcome.signals, now),
        AgentStatus::Limited { until_ms, reason } => {
            let told = Limit {
                kind: LimitKind::Rate,
                until: until_ms.map(Timestamp),
                source: LimitSource::Stream,
                evidence: reason.chars().take(300).collect(),
            };
            let found = classify(&outcome.signals, now);
            Some(found.map_or(told.clone(), |limit| Limit { until: limit.until.or(told.until), ..limit }))
        }
        AgentStatus::Finished | AgentStatus::TimedOut { .. } | AgentStatus::Cancelled | AgentStatus::OverBudget => None,
    }
}

/// Adds a call to the run. Its end and message are the run's until another call is added. `window` is the size of the
/// context window in tokens.
pub(super) fn add(
    sum: &mut AgentRunFacts,
    outcome: AgentOutcome,
    chosen: &SelectedBackend,
    used: CallUsage,
    window: Option<u64>,
    ticket: u64,
) {
    let context_pct = outcome.context_tokens.zip(window).map(|(tokens, window)| filled_pct(tokens, window));
    sum.session = outcome.session.clone().filter(|_| outcome.session_kept).map(|id| AgentSession {
        backend: chosen.backend.clone(),
        model: chosen.model.clone(),
        id,
        files: chosen.session_folder(ticket),
        context_pct,
        account: outcome.account,
        told: chosen.told.clone(),
    });
    sum.killed = outcome.killed || matches!(outcome.status, AgentStatus::Cancelled | AgentStatus::OverBudget);
    sum.end = match outcome.status {
        AgentStatus::Finished => AgentEnd::Finished,
        AgentStatus::Failed { reason } => AgentEnd::Failed { reason },
        AgentStatus::TimedOut { what } => AgentEnd::TimedOut { what },
        AgentStatus::Cancelled => AgentEnd::Cancelled,
        AgentStatus::Unavailable { reason } => AgentEnd::Unavailable { reason },
        AgentStatus::Limited { until_ms, reason } => AgentEnd::Limited { until: until_ms.map(Timestamp), reason },
        AgentStatus::OverBudget => AgentEnd::OverBudget,
    };
    sum.report = outcome.report;
    sum.message = outcome.final_message;
    sum.cost = match (sum.cost, used.cost) {
        (Some(one), Some(other)) => Some(one.plus(other)),
        (one, other) => one.or(other),
    };
    sum.tokens_in = sum.tokens_in.saturating_add(outcome.tokens_in);
    sum.tokens_out = sum.tokens_out.saturating_add(outcome.tokens_out);
    sum.tool_calls = sum.tool_calls.saturating_add(outcome.tool_calls);
    sum.tool_errors = sum.tool_errors.saturating_add(outcome.tool_errors);
    for tool in outcome.denied {
        if !sum.denied_tools.contains(&tool) {
            sum.denied_tools.push(tool);
        }
    }
    for request in outcome.brokered.into_iter().flat_map(|brokered| brokered.refused_requests) {
        if !sum.refused_requests.contains(&request) {
            sum.refused_requests.push(request);
        }
    }
    sum.duration_ms = sum.duration_ms.saturating_add(outcome.duration_ms);
    sum.served = ServedBy {
        backend: chosen.backend.clone(),
        model: chosen.model.clone(),
        estimated: sum.served.estimated || used.estimated,
        unpriced: sum.served.unpriced || (used.cost.is_none() && used.usage.total() > 0),
        session: outcome.session,
        resumed: chosen.session.is_some(),
        context_pct,
        switched: Vec::new(),
    };
}

/// Adds the tokens and cost of questions to a run.
pub(super) fn charge(run: &mut AgentRunFacts, used: CallUsage) {
    let TokenUsage { input, output, cache_read, cache_write } = used.usage;
    run.cost = [run.cost, used.cost].into_iter().flatten().reduce(Money::plus);
    run.tokens_in = run.tokens_in.saturating_add(input).saturating_add(cache_read).saturating_add(cache_write);
    run.tokens_out = run.tokens_out.saturating_add(output);
    run.served.estimated |= used.estimated;
}

/// Returns the percentage of a context window that is used, 0 to 100.
fn filled_pct(tokens: u64, window: u64) -> f64 {
    (tokens as f64 / window.max(1) as f64 * 100.0).min(100.0)
}

pub(super) fn outcome_word(status: &AgentStatus) -> &'static str {
    match status {
        AgentStatus::Finished => "finished",
        AgentStatus::Failed { .. } => "failed",
        AgentStatus::TimedOut { .. } => "timed_out",
        AgentStatus::Cancelled => "cancelled",
        AgentStatus::Unavailable { .. } => "unavailable",
        AgentStatus::Limited { .. } => "limited",
        AgentStatus::OverBudget => "over_budget",
    }
}
