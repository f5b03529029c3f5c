//! Trace spans of a loop: its deliveries, effects, agent runs and model calls, and the whole loop when it ends.
//!
//! Attribute names follow the OpenTelemetry semantic conventions for generative AI where they apply.

use serde_json::Value;

use crate::domain::lifecycle::effect::EffectQueue;
use crate::domain::loops::Loop;
use crate::domain::model::ids::{LoopId, Number, RepoId, RepoRef, Timestamp};
use crate::domain::providers::prices::TokenUsage;
use crate::engine::context::ServiceContext;
use crate::engine::receipt::{EffectError, Receipt};
use crate::store::inbox::WaitingDelivery;
use crate::store::loops;
use crate::store::outbox::ClaimedEffect;
use crate::telemetry::{EndedSpan, SpanValue};

/// Data of a model call or an agent run for its span.
pub(super) struct ModelCall<'c> {
    /// Operation: `invoke_agent` or `chat`.
    pub operation: &'static str,
    /// Backend by its configured name.
    pub backend: &'c str,
    /// Requested model; `None` if the backend chooses.
    pub model: Option<&'c str>,
    /// Tokens by kind.
    pub usage: TokenUsage,
    /// Cost in US dollars; 0 if unknown.
    pub usd: f64,
    /// Time of the start.
    pub started: Timestamp,
    /// Kind of the error; `None` if the call succeeded.
    pub error: Option<&'c str>,
}

/// Sends the span of an effect, from its claim until now.
pub(super) fn effect_span(context: &ServiceContext, claimed: &ClaimedEffect, outcome: &Result<Receipt, EffectError>) {
    let Some(id) = &claimed.loop_id else { return };
    let ended = context.clock.now();
    context.tracer.send(id, || {
        let kind = claimed.key.split('/').next().unwrap_or_default();
        let error = match outcome {
            Ok(_) => None,
            Err(EffectError::Retry { .. }) => Some("retry"),
            Err(EffectError::Permanent { .. }) => Some("permanent"),
            Err(EffectError::Stopped { .. }) => Some("stopped"),
        };
        EndedSpan {
            name: kind.to_owned(),
            outgoing: claimed.lane == EffectQueue::Forge,
            whole: false,
            started: claimed.claimed_at,
            ended,
            attributes: vec![
                ("ralph.effect", kind.into()),
                ("ralph.forge", claimed.place.repo.forge.as_str().into()),
                ("ralph.attempt", u64::from(claimed.tries + 1).into()),
            ],
            error: error.map(str::to_owned),
        }
    });
}

/// Sends the span of a delivery, from its arrival until now, if the delivery concerns a loop.
pub(super) async fn delivery_span(context: &ServiceContext, waiting: &WaitingDelivery) {
    if !context.tracer.is_on() {
        return;
    }
    let Some(id) = loop_of(context, waiting).await else { return };
    let ended = context.clock.now();
    let delivery = &waiting.delivery;
    context.tracer.send(&id, || EndedSpan {
        name: "delivery".into(),
        outgoing: false,
        whole: false,
        started: waiting.received_at,
        ended,
        attributes: vec![
            ("ralph.forge", delivery.forge.as_str().into()),
            ("ralph.delivery.id", delivery.delivery.as_str().into()),
            ("ralph.delivery.event", delivery.event.as_str().into()),
        ],
        error: None,
    });
}

/// Returns the loop of the issue or pull request that a delivery names.
async fn loop_of(context: &ServiceContext, waiting: &WaitingDelivery) -> Option<LoopId> {
    let body: Value = serde_json::from_slice(&waiting.delivery.body.unpack().ok()?).ok()?;
    let repo = RepoId(body["repository"]["id"].as_i64()?);
    let number = body["issue"]["number"].as_u64().or_else(|| body["pull_request"]["number"].as_u64())?;
    let forge = waiting.delivery.forge.clone();
    let repo = RepoRef { forge, id: repo, owner: String::new(), name: String::new() };
    let found = context.store.read(move |c| loops::find(c, &repo, Number(number))).await;
    found.ok().flatten().map(|(id, ..)| id)
}

/// Sends the span of a loop that has ended.
pub(super) fn loop_span(context: &ServiceContext, current: &Loop, ended: Timestamp) {
    context.tracer.send(&current.id, || EndedSpan {
        name: "loop".into(),
        outgoing: false,
        whole: true,
        started: current.created_at,
        ended,
        attributes: vec![
            ("ralph.forge", current.issue.repo.forge.as_str().into()),
            ("ralph.loop.state", current.state.as_str().into()),
            ("ralph.loop.iterations", u64::from(current.spent.iterations).into()),
            ("ralph.cost.usd", current.spent.cost.usd().into()),
        ],
        error: None,
    });
}

/// Sends the span of a model call or an agent run, from its start until now.
pub(super) fn model_span(context: &ServiceContext, provider: &str, id: &LoopId, call: &ModelCall<'_>) {
    let ended = context.clock.now();
    context.tracer.send(id, || {
        let of = if call.operation == "invoke_agent" { call.backend } else { call.model.unwrap_or_default() };
        let mut attributes: Vec<(&'static str, SpanValue)> = vec![
            ("gen_ai.operation.name", call.operation.into()),
            ("gen_ai.provider.name", provider.into()),
            // Includes the cached tokens, as the conventions ask.
            ("gen_ai.usage.input_tokens", call.usage.read().into()),
            ("gen_ai.usage.cache_read.input_tokens", call.usage.cache_read.into()),
            ("gen_ai.usage.cache_creation.input_tokens", call.usage.cache_write.into()),
            ("gen_ai.usage.output_tokens", call.usage.output.into()),
            ("ralph.cost.usd", call.usd.into()),
        ];
        attributes.extend(call.model.map(|model| ("gen_ai.request.model", model.into())));
        if call.operation == "invoke_agent" {
            attributes.push(("gen_ai.agent.name", call.backend.into()));
        }
        EndedSpan {
            name: format!("{} {of}", call.operation).trim_end().to_owned(),
            outgoing: true,
            whole: false,
            started: call.started,
            ended,
            attributes,
            error: call.error.map(str::to_owned),
        }
    });
}
