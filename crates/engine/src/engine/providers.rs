//! Calls of backends, from their selection to the recorded cost; shared by agents and assistants.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use failpoint::kill_point;
use secrecy::SecretString;

use crate::agent::{AgentOutcome, Backend};
use crate::domain::loops::{AgentSession, Loop};
use crate::domain::model::ids::{LoopId, Money, Timestamp};
use crate::domain::providers::backends::{
    BackendChange, BackendObservation, BackendRole, BackendStatus, Backends, CallAdvice, CallRequest, ClaimedState,
    CooldownReason, PreviousSession,
};
use crate::domain::providers::limit::Limit;
use crate::domain::providers::money::Ending;
use crate::domain::providers::prices::TokenUsage;
use crate::domain::supervision::control::ModelTier;
use crate::domain::trust::outbound::OutboundFilter;
use crate::engine::context::{ServiceContext, random};
use crate::engine::settings::CallSettings;
use crate::engine::spans::{ModelCall, model_span};
use crate::store::calls::{self, BackendChanges, CallContext, CallDecision, CallLimits, CallSettlement};
use crate::store::leases::LeaseToken;
use crate::store::sql::Connection;
use crate::store::{PendingWrite, StoreError, StoreResult, WriteGroup, session};

/// Reason for the end of a call, as its backend's state records it.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum CallEnd {
    /// The call succeeded.
    Succeeded,
    /// The call failed for a reason other than a limit.
    Failed(String),
    /// The provider's limit was reached.
    Limited(Limit),
    /// The agent reported that the provider's limit was reached.
    Claimed(Limit),
    /// The call succeeded with an unusable answer.
    Unusable,
    /// The service ended the call; the backend's state is unaffected.
    Ended,
}

impl CallEnd {
    pub fn word(&self) -> &'static str {
        match self {
            Self::Succeeded => "finished",
            Self::Failed(_) => "failed",
            Self::Limited(_) | Self::Claimed(_) => "limited",
            Self::Unusable => "unusable",
            Self::Ended => "ended",
        }
    }
}

/// Call to be made.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PlannedCall {
    /// Unique key that starts with the prefix of its work effect.
    pub key: String,
    /// Acquisition of the lease under which the work effect runs.
    pub lease: LeaseToken,
    /// Purpose of the call: `agent`, or the kind of question.
    pub purpose: &'static str,
    /// Role of the backend.
    pub role: BackendRole,
    /// Backends to exclude.
    pub exclude: Vec<String>,
    /// Requested model; `None` uses the backend's own.
    pub model: Option<String>,
    /// Expected cost; `None` to estimate it from earlier calls.
    pub likely: Option<Money>,
    /// Maximum share of the loop's cost limit for all calls of this purpose, from 0 to 1.
    pub share: f64,
    /// Session of the previous call, which may be resumed.
    pub previous_session: Option<AgentSession>,
}

/// Tokens and cost of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct CallUsage {
    /// Used tokens.
    pub usage: TokenUsage,
    /// Cost, if known or estimated.
    pub cost: Option<Money>,
    /// Whether the cost is an estimate.
    pub estimated: bool,
}

impl CallUsage {
    /// Adds the usage of another call.
    pub fn add(&mut self, other: CallUsage) {
        self.usage = self.usage.plus(other.usage);
        self.cost = [self.cost, other.cost].into_iter().flatten().reduce(Money::plus);
        self.estimated |= other.estimated;
    }
}

/// Calls of a run whose process died.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LostCalls {
    /// Total cost to book.
    pub cost: Money,
    /// Whether no agent had started.
    pub before_start: bool,
}

/// Chooses backends for model calls and books their cost.
pub struct Calls {
    pub(super) context: ServiceContext,
    /// Backends, their models and spending limits.
    pub settings: CallSettings,
    /// Agent backends by configured name.
    pub(super) backends: HashMap<String, Arc<dyn Backend>>,
    /// Filter that learns the logins of backends.
    pub(super) outbound: OutboundFilter,
}

impl Calls {
    /// Sends the span of a model call or an agent run, from its start until now.
    pub(super) fn model_span(&self, id: &LoopId, call: &ModelCall<'_>) {
        let provider = self.settings.providers.get(call.backend).unwrap_or(&call.backend);
        model_span(&self.context, provider, id, call);
    }

    /// Selects a backend for a call, reserves its cost and records its start. Fails if another process has taken over the work:
    /// the cost of the call would not be booked.
    pub(super) async fn begin_call(&self, current: &Loop, planned: PlannedCall) -> Result<CallDecision, StoreError> {
        let PlannedCall { key, lease, purpose, role, mut exclude, model: wanted, likely, share, previous_session } =
            planned;
        let of_loop = (current.limits.cost > Money(0)).then_some(current.limits.cost);
        let limits = CallLimits {
            of_loop,
            of_purpose: of_loop.filter(|_| share < 1.0).map(|most| Money::from_usd(most.usd() * share)),
            loop_spent: current.spent.cost,
            of_repository: self.settings.money.of_repository(current.settings.policy.limits.cost_usd_per_day.0),
            of_service: self.settings.money.per_service_day,
        };
        let caller = CallContext {
            key,
            loop_id: current.id.clone(),
            repo: current.issue.repo.clone(),
            iteration: current.spent.iterations,
            purpose: purpose.to_owned(),
            limits,
        };
        let all = self.settings.backends.backends.keys();
        let mut avoid = Vec::new();
        match (role, &current.settings.options.backend) {
            (BackendRole::Assistant | BackendRole::Reviewer, _) => {}
            (BackendRole::Agent, Some(only)) => exclude.extend(all.filter(|name| *name != only).cloned()),
            (BackendRole::Agent, None) => avoid.extend(all.filter(|name| current.avoids(name)).cloned()),
        }
        let previous = current.retained_iterations().rev().map(|i| &i.served.backend).find(|name| !name.is_empty());
        let request = CallRequest {
            loop_id: current.id.to_string(),
            role,
            exclude,
            avoid,
            likely_cost: likely,
            previous: previous.filter(|_| role == BackendRole::Agent).cloned(),
            session: previous_session.map(|session| PreviousSession {
                backend: session.backend,
                model: session.model,
                context_pct: session.context_pct,
            }),
        };
        let (now, seed) = (self.context.clock.now(), u64::from(random()));
        let models = self.models(current, role, now);
        let settings = self.settings.backends.clone();
        let begun = self.context.store.write(lease.guard(move |c| {
            let models = |name: &str| wanted.iter().chain(models.get(name).into_iter().flatten()).cloned().collect();
            let begun = calls::begin(c, &caller, &request, &models, &settings, seed, now)?;
            kill_point("K15b");
            Ok(begun)
        }));
        let begun = begun.await?;
        kill_point("K15c");
        if let CallDecision::Call { changes, .. } = &begun {
            self.report_changes(changes);
        }
        Ok(begun)
    }

    /// Returns the models of each backend, most preferred first. The order is: the schedule's model, the model of the first
    /// matching rule, the model of the tier chosen by the control loop, the default, the others.
    pub(super) fn models(&self, current: &Loop, role: BackendRole, now: Timestamp) -> BTreeMap<String, Vec<String>> {
        self.settings
            .backends
            .backends
            .keys()
            .map(|name| (name.clone(), self.models_of(name, current, role, now)))
            .collect()
    }

    /// Returns the models of a backend, most preferred first.
    pub(super) fn models_of(&self, backend: &str, current: &Loop, role: BackendRole, now: Timestamp) -> Vec<String> {
        let mut models = Vec::new();
        let tiers = match role {
            BackendRole::Assistant => {
                let named = self.settings.assistant.iter().filter(|assistant| assistant.backend == backend);
                models.extend(named.filter_map(|assistant| assistant.model.clone()));
                [ModelTier::Cheap, ModelTier::Default, ModelTier::Strong, ModelTier::Default]
            }
            BackendRole::Reviewer => [ModelTier::Default, ModelTier::Strong, ModelTier::Cheap, ModelTier::Default],
            BackendRole::Agent => {
                let facts = current.rule_facts(backend, now);
                let choice = self.settings.rules.get(backend).map(|rules| rules.choose(&facts));
                for broken in choice.iter().flat_map(|choice| &choice.broken) {
                    tracing::warn!(loop_id = %current.id, backend, broken, "cannot evaluate a rule of its models");
                }
                models.extend(current.agent.wanted.model_for(backend).cloned());
                models.extend(choice.filter(|choice| choice.rule.is_some()).and_then(|choice| choice.model));
                let tier = current.supervision.course.as_ref().map_or(ModelTier::Default, |course| course.model);
                [tier, ModelTier::Default, ModelTier::Cheap, ModelTier::Strong]
            }
        };
        if let Some(configured) = self.settings.models(backend) {
            models.extend(tiers.into_iter().filter_map(|tier| configured.of(tier)).cloned());
        }
        let mut seen = BTreeSet::new();
        models.retain(|model| seen.insert(model.clone()));
        models
    }

    /// Records the end of a call. Returns advice for people if waiting cannot solve the problem.
    pub(super) async fn end_call(
        &self,
        key: &str,
        backend: (&str, BackendRole),
        end: &CallEnd,
        used: CallUsage,
    ) -> Result<Option<CallAdvice>, StoreError> {
        self.end_call_with(key, backend, end, used, |_| Ok(())).await
    }

    /// Records the end of a call together with further changes by `record`, in one transaction. Returns advice for
    /// people if waiting cannot solve the problem.
    pub(super) async fn end_call_with(
        &self,
        key: &str,
        (backend, role): (&str, BackendRole),
        end: &CallEnd,
        used: CallUsage,
        record: impl Fn(&Connection) -> StoreResult<()> + Send + 'static,
    ) -> Result<Option<CallAdvice>, StoreError> {
        self.end_call_after(WriteGroup::default(), key, (backend, role), end, used, record).await
    }

    /// Like [`Self::end_call_with`], in one commit with earlier writes. Keeps the end in memory while the disk is full.
    pub(super) async fn end_call_after(
        &self,
        mut earlier: WriteGroup,
        key: &str,
        (backend, role): (&str, BackendRole),
        end: &CallEnd,
        used: CallUsage,
        record: impl Fn(&Connection) -> StoreResult<()> + Send + 'static,
    ) -> Result<Option<CallAdvice>, StoreError> {
        let usd = used.cost.unwrap_or_default().usd();
        self.context.metrics.call((backend, role.word()), end.word(), used.usage.by_kind(), usd);
        let booking = CallSettlement {
            ending: match (end, used.cost) {
                (_, Some(cost)) => Ending::Cost(cost),
                (CallEnd::Limited(_) | CallEnd::Claimed(_) | CallEnd::Failed(_), None)
                    if used.usage == TokenUsage::default() =>
                {
                    Ending::NeverRan
                }
                // A backend without a price has no known cost.
                (_, None) => Ending::Cost(Money(0)),
            },
            estimated: used.estimated,
            usage: used.usage,
            outcome: end.word(),
        };
        let (key, end, settings) = (key.to_owned(), end.clone(), self.settings.backends.clone());
        let (now, seed, tokens) = (self.context.clock.now(), u64::from(random()), used.usage.total());
        let observed = earlier.add_kept(move |c| {
            let observed = calls::end(c, &key, &booking, &settings, now, |call, cost| match end.clone() {
                // The backend served the call, independently of the answer.
                CallEnd::Succeeded | CallEnd::Unusable => BackendObservation::CallSucceeded { call, tokens, cost },
                CallEnd::Failed(error) => BackendObservation::CallFailed { call, cost, error, seed },
                CallEnd::Limited(limit) => BackendObservation::CallLimited { call, cost, limit, seed },
                CallEnd::Claimed(limit) => BackendObservation::LimitClaimed { call, cost, limit, seed },
                CallEnd::Ended => BackendObservation::CallAbandoned { call, cost },
            })?;
            record(c)?;
            kill_point("K18b");
            Ok(observed)
        });
        self.context.store.submit(earlier)?;
        let BackendChanges { changes, advice } = self.context.store.outcome(observed).await?;
        self.report_changes(&changes);
        Ok(advice)
    }

    /// Adds to `group` that a call received its first output; [`Self::tell_answered`] reports the result.
    pub(super) fn answered(&self, group: &mut WriteGroup, key: &str) -> PendingWrite<BackendChanges> {
        let (key, now, settings) = (key.to_owned(), self.context.clock.now(), self.settings.backends.clone());
        group.add(move |c| calls::answered(c, &key, &settings, now))
    }

    /// Reports that a call received its first output.
    pub(super) async fn tell_answered(&self, answered: PendingWrite<BackendChanges>) {
        match self.context.store.outcome(answered).await {
            Ok(observed) => self.report_changes(&observed.changes),
            Err(error) => tracing::warn!(%error, "could not record the first output of a backend"),
        }
        kill_point("K16b");
    }

    /// Enables a disabled backend.
    pub(super) async fn enable(&self, backend: &str) {
        self.observe(BackendObservation::Enabled { backend: backend.to_owned() }).await;
    }

    /// Enables a backend that cooled down because of errors, after a person resumed the loop.
    pub(super) async fn mended(&self, current: &Loop) {
        let last = current.retained_iterations().rev().find(|iteration| iteration.ended_at.is_some());
        let failed = last.filter(|last| current.agent.failures == 0 && !last.agent_problem.is_empty());
        let Some(name) = failed.map(|last| last.served.backend.clone()) else { return };
        let known = self.context.store.read(calls::state).await.unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot read the state of the backends");
            Backends::default()
        });
        let Some(backend) = known.backends.get(&name) else { return };
        let claim = backend.claims.of(current.id.as_str(), self.context.clock.now()).map(|claim| claim.state);
        let is_parked = matches!(&backend.status, BackendStatus::Parked(park) if park.kind == CooldownReason::Errors);
        if is_parked || claim == Some(ClaimedState::Parked(CooldownReason::Errors)) {
            self.observe(BackendObservation::Enabled { backend: name }).await;
        }
    }

    /// Records an observation of backends; failures are logged.
    pub(super) async fn observe(&self, observation: BackendObservation) {
        let (now, settings) = (self.context.clock.now(), self.settings.backends.clone());
        match self.context.store.write(move |c| calls::observe(c, &observation, &settings, now)).await {
            Ok(observed) => self.report_changes(&observed.changes),
            Err(error) => tracing::warn!(%error, "could not store an observation of a backend"),
        }
    }

    /// Enables a backend that cools down or is disabled, as a person requested, and ends the waits for a backend. Returns
    /// `true` if the backend's state changed; `None` if no such backend is configured.
    ///
    /// # Errors
    /// The store failed.
    pub async fn enable_backend(&self, name: &str) -> Result<Option<bool>, StoreError> {
        let (now, settings) = (self.context.clock.now(), self.settings.backends.clone());
        if !settings.backends.contains_key(name) {
            return Ok(None);
        }
        let name = name.to_owned();
        let observed = self.context.store.write(move |c| calls::enable(c, &name, &settings, now)).await?;
        self.report_changes(&observed.changes);
        self.context.wake.timer.notify_one();
        self.context.wake.loop_stepped();
        Ok(Some(!observed.changes.is_empty()))
    }

    fn report_changes(&self, changes: &[BackendChange]) {
        for change in changes {
            match change {
                BackendChange::Parked { backend, kind, until, reason } => {
                    self.context.metrics.parked(backend, &kind.to_string().replace(' ', "_"));
                    tracing::info!(backend, %kind, until_ms = until.0, reason, "a backend cools down");
                }
                BackendChange::Disabled { backend, kind, reason } => {
                    tracing::error!(backend, %kind, reason, "a backend is disabled until a person acts; see `ralph-bot backends`");
                }
                BackendChange::Claimed { backend, loop_id, until, reason } => {
                    let until_ms = until.map(|until| until.0);
                    self.context.metrics.parked(backend, "claimed");
                    tracing::info!(
                        backend,
                        loop_id,
                        until_ms,
                        reason,
                        "a backend cools down for the loop that reported a refusal"
                    );
                }
                BackendChange::Reactivated { backend, .. }
                | BackendChange::Proven { backend }
                | BackendChange::Enabled { backend } => {
                    tracing::info!(backend, "a backend is used again");
                }
                BackendChange::Rotated { key, from, to } => {
                    tracing::info!(call = key, from, to, "another backend takes over")
                }
            }
        }
    }

    /// Returns the cost of tokens according to the price table; `None` if the price is unknown.
    pub(super) fn estimated(&self, backend: &str, model: Option<&str>, usage: &TokenUsage) -> Option<Money> {
        let model = model.or_else(|| self.settings.models(backend)?.default.as_deref())?;
        self.settings.prices.get(backend)?.estimate(usage, model).map(|cost| cost.money)
    }

    /// Settles the calls of a run whose process died, and stores its turn as interrupted. Calls that had ended were recorded, but
    /// the loop had not received them. Fails if the lease is lost, because the next host may have opened the calls.
    pub(super) async fn settle_lost(
        &self,
        current: &Loop,
        ticket: u64,
        lease: &LeaseToken,
    ) -> Result<LostCalls, StoreError> {
        let (id, settings, now) = (current.id.clone(), self.settings.backends.clone(), self.context.clock.now());
        let counted = self.backends.iter().filter(|(_, backend)| !backend.hidden_keys().is_empty());
        let counted: BTreeSet<String> = counted.map(|(name, _)| name.clone()).collect();
        let ended = self.context.store.write(lease.guard(move |c| {
            let lost = calls::abandon(c, &id, &counted, &settings, now)?;
            session::cut_turn(c, &id)?;
            let prefix = calls::key_prefix(&id, ticket);
            let before_start = !calls::has_agent(c, &prefix)?;
            Ok((lost, LostCalls { cost: calls::cost_of(c, &prefix)?, before_start }))
        }));
        let (lost, settled) = ended.await?;
        for (backend, role, cost) in lost {
            self.context.metrics.call((&backend, role.word()), "lost", TokenUsage::default().by_kind(), cost.usd());
        }
        Ok(settled)
    }

    /// Adds the current secrets of a backend's login file to the secrets that the filter masks.
    pub(super) fn learn_login(&self, backend: &str) {
        let name = format!("the login of backend {backend}");
        let Some(backend) = self.backends.get(backend) else { return };
        backend.login_secrets().into_iter().for_each(|secret| self.outbound.learn(&name, &SecretString::from(secret)));
    }

    /// Whether the backend of a session resumes sessions.
    pub(super) fn can_resume(&self, session: &AgentSession) -> bool {
        self.backends.get(&session.backend).is_some_and(|backend| backend.resumes())
    }

    /// Returns the tokens and cost of a run of a backend with a requested model.
    pub(super) fn usage_of(&self, (backend, model): (&str, Option<&str>), outcome: &AgentOutcome) -> CallUsage {
        let usage = outcome.usage();
        let mut models = [model, outcome.model.as_deref()].into_iter();
        let estimate = || models.find_map(|model| self.estimated(backend, model, &usage));
        let cost = outcome.cost.or_else(estimate);
        // The broker's count applies where the program reported less.
        let counted = outcome.brokered.as_ref().map(|brokered| brokered.counted.cost);
        match counted.filter(|counted| *counted > cost.unwrap_or_default()) {
            Some(counted) => CallUsage { usage, cost: Some(counted), estimated: true },
            None => CallUsage { usage, cost, estimated: outcome.cost.is_none() && cost.is_some() },
        }
    }
}
