//! Calls of backends, from the choice to the booking: the same for agents and assistants.

use std::collections::{BTreeMap, BTreeSet};

use failpoint::kill_point;

use super::Engine;
use crate::domain::loops::{AgentSession, Iteration, Loop};
use crate::domain::model::ids::{Money, Timestamp};
use crate::domain::model::task::CheckReport;
use crate::domain::providers::backends::{
    BackendChange, BackendObservation, BackendRole, BackendStatus, Backends, Blocked, BlockedBy, CallAdvice,
    CallRequest, ParkedFor, PreviousSession, RotationMode,
};
use crate::domain::providers::limit::Limit;
use crate::domain::providers::money::Ending;
use crate::domain::providers::prices::TokenUsage;
use crate::domain::supervision::control::ModelTier;
use crate::store::StoreError;
use crate::store::calls::{self, BackendChanges, CallContext, CallDecision, CallLimits, CallSettlement};

/// How a call ended, as far as its backend is concerned.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum CallEnd {
    /// It came to its end.
    Succeeded,
    /// It failed, and not for a limit.
    Failed(String),
    /// It met a limit.
    Limited(Limit),
    /// It came to its end, and the answer is of no use.
    Unusable,
    /// We ended it; says nothing about the backend.
    Ended,
}

impl CallEnd {
    pub fn word(&self) -> &'static str {
        match self {
            Self::Succeeded => "finished",
            Self::Failed(_) => "failed",
            Self::Limited(_) => "limited",
            Self::Unusable => "unusable",
            Self::Ended => "ended",
        }
    }
}

/// A call that is to be made.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PlannedCall {
    /// Unique over all calls, and begins as those of its work do.
    pub key: String,
    /// What for: `agent`, or the sort of question.
    pub purpose: &'static str,
    /// Who is to serve it.
    pub role: BackendRole,
    /// Backends that must not be used for it.
    pub exclude: Vec<String>,
    /// The model that is asked for, whoever serves; that of the backend, where left open.
    pub model: Option<String>,
    /// What it is likely to cost; by calls before it, where that is left open.
    pub likely: Option<Money>,
    /// Most of the loop's money that all calls for the purpose may cost together, 0..1.
    pub share: f64,
    /// The session that the call before left.
    pub left: Option<AgentSession>,
}

/// What a call used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct CallUsage {
    /// Tokens.
    pub usage: TokenUsage,
    /// What it cost, where that is known or can be estimated.
    pub cost: Option<Money>,
    /// Whether that is an estimate of ours.
    pub estimated: bool,
}

impl CallUsage {
    /// Adds what another call used.
    pub fn add(&mut self, other: CallUsage) {
        self.usage = self.usage.plus(other.usage);
        self.cost = [self.cost, other.cost].into_iter().flatten().reduce(Money::plus);
        self.estimated |= other.estimated;
    }
}

impl Engine {
    /// Chooses a backend for a call of a loop, reserves the money and books that the call begins.
    pub(super) async fn begin_call(&self, current: &Loop, planned: PlannedCall) -> Result<CallDecision, StoreError> {
        let PlannedCall { key, purpose, role, mut exclude, model: wanted, likely, share, left } = planned;
        let of_loop = (current.limits.cost > Money(0)).then_some(current.limits.cost);
        let limits = CallLimits {
            of_loop,
            of_purpose: of_loop.filter(|_| share < 1.0).map(|most| Money::from_usd(most.usd() * share)),
            loop_spent: current.spent.cost,
            of_repository: self.settings.money.of_repository(current.policy.limits.cost_per_day),
            of_service: self.settings.money.per_service_day,
        };
        let caller = CallContext {
            key,
            loop_id: current.id.clone(),
            repo: current.place.repo.clone(),
            iteration: current.spent.iterations,
            purpose: purpose.to_owned(),
            limits,
        };
        let all = self.settings.backends.backends.keys();
        let mut avoid = Vec::new();
        match (role, &current.options.backend) {
            (BackendRole::Assistant, _) => {}
            (BackendRole::Agent, Some(only)) => exclude.extend(all.filter(|name| *name != only).cloned()),
            (BackendRole::Agent, None) => avoid.extend(all.filter(|name| current.avoids(name)).cloned()),
        }
        let previous = current.kept().rev().map(|i| &i.served.backend).find(|name| !name.is_empty());
        let request = CallRequest {
            role,
            task_type: current.task_type(),
            exclude,
            avoid,
            likely_cost: likely,
            previous: previous.filter(|_| role == BackendRole::Agent).cloned(),
            session: left.map(|left| PreviousSession {
                backend: left.backend,
                model: left.model,
                context_pct: left.context_pct,
            }),
        };
        let (now, seed) = (self.clock.now(), u64::from(self.random()));
        let models = self.models(current, role, now);
        let settings = self.settings.backends.clone();
        let begun = self.store.write(move |c| {
            let models = |name: &str| wanted.iter().chain(models.get(name).into_iter().flatten()).cloned().collect();
            let begun = calls::begin(c, &caller, &request, &models, &settings, seed, now)?;
            kill_point("K15b");
            Ok(begun)
        });
        let begun = begun.await?;
        kill_point("K15c");
        if let CallDecision::Call { changes, .. } = &begun {
            self.report_changes(changes);
        }
        Ok(begun)
    }

    /// The models that each backend may be asked for, the first that it has: what the schedule set, what the first rule that
    /// holds says, the tier that control wants, the usual one, the others.
    pub(super) fn models(&self, current: &Loop, role: BackendRole, now: Timestamp) -> BTreeMap<String, Vec<String>> {
        self.settings
            .backends
            .backends
            .keys()
            .map(|name| (name.clone(), self.models_of(name, current, role, now)))
            .collect()
    }

    /// The models that a backend may be asked for.
    pub(super) fn models_of(&self, backend: &str, current: &Loop, role: BackendRole, now: Timestamp) -> Vec<String> {
        let mut models = Vec::new();
        let tiers = match role {
            BackendRole::Assistant => [ModelTier::Cheap, ModelTier::Default, ModelTier::Strong, ModelTier::Default],
            BackendRole::Agent => {
                let facts = current.rule_facts(backend, now);
                let choice = self.settings.rules.get(backend).map(|rules| rules.choose(&facts));
                for broken in choice.iter().flat_map(|choice| &choice.broken) {
                    tracing::warn!(loop_id = %current.id, backend, broken, "a rule of its models cannot be computed");
                }
                models.extend(current.wanted.model_for(backend).cloned());
                models.extend(choice.filter(|choice| choice.rule.is_some()).and_then(|choice| choice.model));
                let tier = current.course.as_ref().map_or(ModelTier::Default, |course| course.model);
                [tier, ModelTier::Default, ModelTier::Cheap, ModelTier::Strong]
            }
        };
        if let Some(configured) = self.settings.models.get(backend) {
            models.extend(tiers.into_iter().filter_map(|tier| configured.of(tier)).cloned());
        }
        let mut seen = BTreeSet::new();
        models.retain(|model| seen.insert(model.clone()));
        models
    }

    /// Books the end of a call; what to do about it, where waiting does not help.
    pub(super) async fn end_call(
        &self,
        key: &str,
        (backend, role): (&str, BackendRole),
        end: &CallEnd,
        used: CallUsage,
    ) -> Result<Option<CallAdvice>, StoreError> {
        let usd = used.cost.unwrap_or_default().usd();
        self.metrics.call((backend, role.word()), end.word(), used.usage.by_kind(), usd);
        let booking = CallSettlement {
            ending: match (end, used.cost) {
                (_, Some(cost)) => Ending::Cost(cost),
                (CallEnd::Limited(_) | CallEnd::Failed(_), None) if used.usage == TokenUsage::default() => {
                    Ending::NeverRan
                }
                // A backend without a price costs nothing that we know of.
                (_, None) => Ending::Cost(Money(0)),
            },
            estimated: used.estimated,
            usage: used.usage,
            outcome: end.word(),
        };
        let (key, end, settings) = (key.to_owned(), end.clone(), self.settings.backends.clone());
        let (now, seed, tokens) = (self.clock.now(), u64::from(self.random()), used.usage.total());
        let observed = self.store.write(move |c| {
            let observed = calls::end(c, &key, &booking, &settings, now, |call, cost| match end {
                // It served us, whatever it said.
                CallEnd::Succeeded | CallEnd::Unusable => {
                    BackendObservation::CallSucceeded { call, tokens, cost, progress: None }
                }
                CallEnd::Failed(error) => BackendObservation::CallFailed { call, cost, error, seed },
                CallEnd::Limited(limit) => BackendObservation::CallLimited { call, cost, limit, seed },
                CallEnd::Ended => BackendObservation::CallAbandoned { call, cost },
            })?;
            kill_point("K18b");
            Ok(observed)
        });
        let BackendChanges { changes, advice } = observed.await?;
        self.report_changes(&changes);
        Ok(advice)
    }

    /// The first words of a call's model came.
    pub(super) async fn answered(&self, key: &str) {
        let (key, now, settings) = (key.to_owned(), self.clock.now(), self.settings.backends.clone());
        match self.store.write(move |c| calls::answered(c, &key, &settings, now)).await {
            Ok(observed) => self.report_changes(&observed.changes),
            Err(error) => tracing::warn!(%error, "the answer of a backend could not be noted"),
        }
        kill_point("K16b");
    }

    /// Gives the first backend that waits for a person another chance; whether there is one.
    pub(super) async fn enable_one(&self, reasons: &[Blocked]) -> bool {
        let waits = reasons.iter().find(|blocked| matches!(blocked.by, BlockedBy::Disabled(..)));
        let Some(blocked) = waits else { return false };
        self.observe(BackendObservation::Enabled { backend: blocked.backend.clone() }).await;
        true
    }

    /// Somebody let a loop go on whose runs had failed: its backend is not left alone for these errors any longer.
    pub(super) async fn mended(&self, current: &Loop) {
        let last = current.kept().rev().find(|iteration| iteration.ended_at.is_some());
        let failed = last.filter(|last| current.agent_failures == 0 && !last.agent_problem.is_empty());
        let Some(name) = failed.map(|last| last.served.backend.clone()) else { return };
        let known = self.store.read(calls::state).await.unwrap_or_else(|error| {
            tracing::warn!(%error, "what is known of backends cannot be read");
            Backends::default()
        });
        let parked = known.backends.get(&name).map(|backend| &backend.status);
        if matches!(parked, Some(BackendStatus::Parked(park)) if park.kind == ParkedFor::Errors) {
            self.observe(BackendObservation::Enabled { backend: name }).await;
        }
    }

    /// Takes something into account that was seen of backends; what cannot be stored is told in the log.
    pub(super) async fn observe(&self, observation: BackendObservation) {
        let (now, settings) = (self.clock.now(), self.settings.backends.clone());
        match self.store.write(move |c| calls::observe(c, &observation, &settings, now)).await {
            Ok(observed) => self.report_changes(&observed.changes),
            Err(error) => tracing::warn!(%error, "what was seen of a backend could not be stored"),
        }
    }

    fn report_changes(&self, changes: &[BackendChange]) {
        for change in changes {
            match change {
                BackendChange::Parked { backend, kind, until, reason } => {
                    self.metrics.parked(backend, &kind.to_string().replace(' ', "_"));
                    tracing::warn!(backend, %kind, until_ms = until.0, reason, "a backend is left alone for a while");
                }
                BackendChange::Disabled { backend, kind, reason } => {
                    tracing::error!(backend, %kind, reason, "a backend waits for a person: `ralph-bot backends`");
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

    /// What the iteration's backend was worth, where backends are chosen by that. A run that failed was counted then.
    pub(super) async fn judge_backend(&self, current: &Loop, report: &CheckReport) {
        let adaptive = self.settings.backends.rotation.mode == RotationMode::Adaptive;
        let worked = |last: &&Iteration| !last.served.backend.is_empty() && current.agent_failures == 0;
        let Some(last) = current.current().filter(|_| adaptive).filter(worked) else { return };
        let judged = BackendObservation::Judged {
            backend: last.served.backend.clone(),
            task_type: current.task_type(),
            progress: current.completion_by(report).get() - current.completion().get(),
            cost: Some(last.cost),
        };
        self.observe(judged).await;
    }

    /// What tokens of a backend's model cost by the price table.
    pub(super) fn estimated(&self, backend: &str, model: Option<&str>, usage: &TokenUsage) -> Option<Money> {
        let model = model.or_else(|| self.settings.models.get(backend)?.default.as_deref())?;
        self.settings.prices.get(backend)?.estimate(usage, model).map(|cost| cost.money)
    }
}

/// What holds the backends back, for people.
pub(super) fn reasons_words(reasons: &[Blocked]) -> String {
    let words: Vec<_> = reasons.iter().map(|blocked| format!("{}: {}", blocked.backend, blocked.by)).collect();
    if words.is_empty() { "no backend is configured for it".to_owned() } else { words.join("; ") }
}
